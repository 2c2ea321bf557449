import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.known_runs import KNOWN, STEPS, known_with, run_folder
from t3d.base.extras import how_to_install
from t3d.cli.main import main
from t3d.presets import resolve
from t3d.run.records import Json
from t3d.show.check import draw, lines
from t3d.study.check import check
from t3d.study.known import known_curves, known_for


def result_of(tmp_path: Path, means: list[float], *more: Any, **knobs: Any) -> Json:
    return check(run_folder(tmp_path / "run", means, *more, **knobs), KNOWN).result


def test_the_first_line_is_the_verdict_with_its_numbers(tmp_path: Path) -> None:
    assert lines(result_of(tmp_path, [0.0, *[93.0] * 9, 95.0])) == [
        "Hopper-v5, seed 7, at step 1,000 of 1,000: within the band. Its score of 93 (mean of its"
        " evaluations after step 500) is within 90 to 110, the 95 % band of 3 known runs."
    ]


@pytest.mark.parametrize(
    ("means", "first", "second"),
    [
        (
            [0.0, *[100.0] * 5, *[50.0] * 5],
            "below the band since step 600. Its score of 50 (",
            "below",
        ),
        ([0.0, *[120.0] * 10], "above the band since step 100. Its score of 120 (", "above"),
    ],
)
def test_a_run_outside_says_since_when(
    tmp_path: Path, means: list[float], first: str, second: str
) -> None:
    line = lines(result_of(tmp_path, means))[0]
    assert f"at step 1,000 of 1,000: {first}" in line
    assert f") is {second} 90 to 110, the 95 % band of 3 known runs." in line


def test_a_repeated_known_run_is_announced(tmp_path: Path) -> None:
    rising = [0.0, *(96.0 + step for step in range(10))]
    known = known_with(runs=KNOWN["Hopper-v5"]["runs"] | {"0": rising})
    run = run_folder(tmp_path / "run", rising, seed=0, engine="fused")
    assert lines(check(run, known).result)[1:] == [
        "It repeats a known run: at all 11 steps that it shares with the known run of seed 0, the"
        " evaluations are equal to the last digit stored."
    ]
    other = run_folder(tmp_path / "other", rising, seed=7)
    assert not any("repeats" in line for line in lines(check(other, known).result))


def test_an_earlier_stretch_outside_has_a_line(tmp_path: Path) -> None:
    result = result_of(tmp_path, [0.0, 100.0, *[50.0] * 4, *[100.0] * 5])
    assert lines(result)[1:] == ["It was below the band from step 200 to 900."]


def test_steps_beyond_the_known_runs_have_a_line(tmp_path: Path) -> None:
    result = result_of(tmp_path, [0.0, *[100.0] * 12], at=[*STEPS, 1100, 1200])
    assert lines(result)[1:] == [
        "It trained to step 1,200. The known runs end at step 1,000; what came after is not judged."
    ]


def test_differences_and_hints_have_a_line_each(tmp_path: Path) -> None:
    warning = {"kind": "warning", "step": 300, "name": "collapsed", "text": "the same action"}
    versions = {"gymnasium": "1.5.0"}
    result = result_of(tmp_path, [0.0] * 11, warning, versions=versions, hidden=(400, 300))
    assert lines(result)[1:] == [
        "- different: hidden is 400 300, the known runs have 256 256",
        "- different: gymnasium is 1.5.0, the known runs have 1.4.0",
        "- at step 300 it warned: the same action",
    ]


def test_an_unexplained_run_is_reminded_of_chance(tmp_path: Path) -> None:
    (line,) = lines(result_of(tmp_path, [0.0, *[200.0] * 10]))[1:]
    assert "one normal run in 20 is outside by chance" in line


def test_weak_evidence_is_called_so(tmp_path: Path) -> None:
    weak = (
        "This is weak evidence: known runs vary so much here that an untrained agent would be"
        " inside the band, too."
    )
    run = run_folder(tmp_path / "run", [0.0, *[100.0] * 10])
    assert weak not in lines(check(run, KNOWN).result)
    far_apart = known_with(runs={str(s): [1.0, *[10.0 + 90 * s] * 10] for s in range(3)})
    assert lines(check(run, far_apart).result)[1] == weak


def test_small_returns_keep_their_digits(tmp_path: Path) -> None:
    small = {seed: [r / 100 for r in runs] for seed, runs in KNOWN["Hopper-v5"]["runs"].items()}
    run = run_folder(tmp_path / "run", [0.0, *[0.98] * 10])
    line = lines(check(run, known_with(runs=small)).result)[0]
    assert "Its score of 0.98 (" in line
    assert "is within 0.90 to 1.10, the" in line


def test_the_picture_says_the_verdict_and_marks_what_is_outside(tmp_path: Path) -> None:
    def words(name: str, means: list[float]) -> set[str]:
        png, svg = draw(check(run_folder(tmp_path / name, means), KNOWN), tmp_path / f"{name}.png")
        with Image.open(png) as picture:
            assert picture.width > 1000
        parts = [(node.text, node.tail) for node in ET.parse(svg).getroot().iter()]
        return {text.strip() for pair in parts for text in pair if text}

    below = words("below", [0.0, *[50.0] * 10])
    named = {"the 3 known runs", "their mean", "this run, seed 7", "environment steps"}
    assert named | {"outside"} <= below
    assert "Hopper-v5, at step 1,000: below the band since step 100" in below
    within = words("within", [0.0, *[100.0] * 5])
    assert named | {"Hopper-v5, at step 500: within the band"} <= within
    assert "outside" not in within


def test_a_real_run_is_checked_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "train Pendulum-v1 --steps 5000 --eval-every 500 --eval-episodes 2 --hidden 8 8"
    words += " --updates-per-step 0.1 --threads 1 --run run --no-video"
    assert main(words.split()) == 0
    count = len(known_for(resolve("Pendulum-v1")[1]).returns)
    output = capsys.readouterr().out
    assert "t3d check run " in output
    assert f"is it normal? compared with {count} known runs" in output
    code = main(["check", "run"])
    sentence, *rest = capsys.readouterr().out.splitlines()
    assert sentence.startswith("Pendulum-v1, seed 0, at step 5,000 of 5,000: ")
    assert "- different: hidden is 8 8, the known runs have 64 64" in rest
    assert rest[-2:] == ["run/check.png", "run/check.svg"]
    assert (tmp_path / "run" / "check.png").stat().st_size > 1000
    assert main(["check", "run", "--json", "--out", "it.png"]) == code
    result = json.loads(capsys.readouterr().out)
    assert f"at step 5,000 of 5,000: {result['verdict']}" in sentence
    assert code == (result["verdict"] == "below")
    assert result["differences"]["hidden"] == {"run": [8, 8], "known": [64, 64]}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "it.png", "it.svg"}
    assert main(["check", "run", "--out", "/proc/no/it"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("Pendulum-v1, seed 0, at step 5,000 of 5,000: ")
    assert err.count("\n") == 1
    assert "cannot be written" in err


def test_below_the_band_the_exit_code_is_1_and_the_command_for_new_seeds_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = known_curves()["Pendulum-v1"]
    path, steps = tmp_path / "run", entry["step"]
    run_folder(path, [-2000.0] * len(steps), at=steps, **(entry["config"] | {"seed": 3}))
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    assert main(["check", str(path)]) == 1
    output = capsys.readouterr().out.splitlines()
    assert ": below the band since step " in output[0]
    assert output[1].startswith("- nothing in its files explains it")
    assert output[2].startswith("  t3d train Pendulum-v1 ")
    assert " --steps 100000 --seed 4 " in output[2]
    assert output[2].endswith(" --seeds 5")
    assert output[3:] == [f"no picture: plots need an extra: {how_to_install('plot')}"]
    assert not (path / "check.png").exists()
