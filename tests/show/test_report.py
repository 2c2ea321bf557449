"""The report of runs: what it says is what the folders say, in a real browser."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.commands import assert_refused
from helpers.runs import TINY, resumed, write_run
from t3d.cli.main import main
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock
from t3d.show.report import report_data, version

# One browser, and runs that are trained once: in one process.
pytestmark = pytest.mark.xdist_group("pages")

HOSTILE = '<img src=x onerror="alert(1)"></script><b>"&amp;\''


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds, one of them with its video and score; and another environment."""
    folder = tmp_path_factory.mktemp("runs")
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in TINY.items() if k != "hidden"]
    words = ["train", "Pendulum-v1", *flags, "--hidden", "8", "8", "--run", str(folder / "one")]
    assert main(words) == 0
    t3d.train("Pendulum-v1", run=folder / "two", seed=1, quiet=True, **TINY)
    t3d.train("MountainCarContinuous-v0", run=folder / "car", quiet=True, **TINY)
    return [folder / "one", folder / "two", folder / "car"]


def evaluations(run: Path) -> list[t3d.Evaluation]:
    return list(RunFolder(run).records(t3d.Evaluation))


def test_training_ends_with_a_report_of_what_happened(runs: list[Path], open_page: Any) -> None:
    opened = open_page(runs[0] / "report.html")
    text = opened.page.locator("main").inner_text()
    score = json.loads((runs[0] / "score.json").read_text())
    assert f"{score['mean']:,.1f}".replace("-", "−") in text
    assert "mean of 10 test episodes" in text
    assert "finished, step 60 of 60" in text
    assert "t3d resume" in text
    command = json.loads((runs[0] / "run.json").read_text())["command"]
    assert command in text
    differing = opened.page.locator("section", has_text="What differs from preset").first
    for knob in ("hidden", "batch_size", "capacity"):
        assert differing.locator("th", has_text=re.compile(f"^{knob}$")).first.is_visible()
    for package in ("torch 2", "gymnasium 1"):
        assert package in text
    video = opened.page.locator("video")
    assert video.get_attribute("src").startswith("data:video/mp4;base64,")
    video.evaluate("video => video.play()")
    opened.page.wait_for_function("document.querySelector('video').currentTime > 0.1")


def test_pointing_at_a_curve_shows_its_numbers(runs: list[Path], open_page: Any) -> None:
    opened = open_page(runs[0] / "report.html")
    curve = opened.page.locator("figure.chart").first
    wanted = evaluations(runs[0])
    curve.locator("svg").focus()
    for record in wanted:  # each step to the right is the next evaluation
        opened.page.keyboard.press("ArrowRight")
        text = curve.locator("output").inner_text()
        assert f"step {record.step:,}" in text
        value = float(text.rpartition("seed 0 ")[2].replace("−", "-"))
        assert value == pytest.approx(record.mean, rel=1e-3)
    box = curve.locator("svg").bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    assert f"step {wanted[-1].step:,}" in curve.locator("output").inner_text()
    assert curve.locator("path").count() == 1
    curve.locator("button").click()  # the legend hides its line
    assert curve.locator("path").count() == 0


def test_estimates_and_returns_are_those_of_the_evaluations(runs: list[Path]) -> None:
    run = report_data([runs[0]])["runs"][0]
    records = evaluations(runs[0])
    assert run["evaluations"]["estimated_Q"] == [r.estimated_Q for r in records]
    assert run["evaluations"]["true_Q"] == [r.true_Q for r in records]
    trained = [r.to_json() for r in RunFolder(runs[0]).records(t3d.Training)]
    for name in ("critic_loss", "saturation", "exploration", "steps_per_second"):
        assert run["train"][name] == [r.get(name) for r in trained]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_several_runs_share_a_page_and_nothing_sticks_out(
    runs: list[Path], open_page: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", *map(str, runs), "--out", str(out)]) == 0
    opened = open_page(out, width, color_scheme=scheme)
    assert opened.overflow() == 0
    text = opened.page.locator("main").inner_text()
    assert "2 seeds, mean and 95 % interval" in text
    for run in runs:
        assert f"About {run.name}" in text
    assert opened.page.locator(".verdict").count() == 3
    for title in ("Pendulum-v1: evaluation return", "MountainCarContinuous-v0: critic loss"):
        assert opened.page.locator("figcaption", has_text=title).is_visible()


def test_many_points_are_averaged_and_none_is_lost(runs: list[Path], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "long")
    folder.create(RunFolder(runs[0]).config(), {})
    records = [{"kind": "episode", "step": i + 1, "return": i, "seconds": 1} for i in range(1000)]
    folder.metrics_path.write_text("".join(json.dumps(r) + "\n" for r in records))
    episodes = report_data([folder.path])["runs"][0]["episodes"]
    assert episodes["every"] == 3
    assert episodes["return"][0] == 1  # the mean of 0, 1 and 2
    assert episodes["steps"][-1] == 1000
    assert len(episodes["steps"]) == len(episodes["return"]) == 334


def test_hostile_names_are_shown_and_not_run(
    runs: list[Path], tmp_path: Path, open_page: Any
) -> None:
    run = tmp_path / HOSTILE.replace("/", "_")
    t3d.train("Pendulum-v1", run=run, quiet=True, **TINY)
    about = {"preset": HOSTILE, "command": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    (run / "run.json").write_text(json.dumps(about))
    with RunFolder(run).metrics_path.open("a") as file:
        text = {"kind": "warning", "step": 60, "name": "x", "text": HOSTILE, "seconds": 1}
        file.write(json.dumps(text) + "\n")
    out = tmp_path / "out.html"
    for command in ("report", "explain"):
        assert main([command, str(run), "--out", str(out)]) == 0
        opened = open_page(out)
        assert opened.page.locator("img, b").count() == 0
        shown = opened.page.locator("body").inner_text()
        assert (HOSTILE if command == "report" else run.name) in shown


def test_a_half_written_line_is_left_out(runs: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **TINY)
    before = report_data([path])["runs"]
    with RunFolder(path).metrics_path.open("a") as file:
        file.write('{"kind": "evaluation", "step": 6')
    assert report_data([path])["runs"] == before


def test_lines_with_fewer_and_with_more_fields_are_shown_as_far_as_they_go(
    tmp_path: Path, open_page: Any
) -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "evaluation", "step": 0, "mean": -5.0},
        {"kind": "episode", "step": 5, "return": -4.0, "mood": "good"},
        {"kind": "train", "step": 6, "critic_loss": 0.5, "optimiser": "adam"},
        {"kind": "gossip", "step": 7, "about": {}},
        {"kind": "restart", "step": 8},
        {"kind": "evaluation", "step": 10, "mean": -3.0},
    ]
    run = write_run(tmp_path / "run", lines)
    (entry,) = report_data([run])["runs"]
    assert (entry["step"], entry["seconds"]) == (10, 0.0)
    assert entry["evaluations"]["mean"] == [-5.0, -3.0]
    assert entry["evaluations"]["std"] == [None, None]
    assert (entry["episodes"]["return"], entry["episodes"]["length"]) == ([-4.0], [None])
    assert entry["train"]["critic_loss"] == [0.5]
    assert entry["train"]["steps_per_second"] == [None]
    assert main(["report", str(run)]) == 0
    text = open_page(run / "report.html").page.locator("main").inner_text()
    assert "best evaluation, at step 10" in text


def evaluated(path: Path, means: dict[int, float], **knobs: Any) -> Path:
    """A run with these evaluations."""
    records = [
        {"kind": "evaluation", "seconds": 1, "step": step, "mean": mean, "std": 1.0}
        | {"returns": [mean] * 10}
        for step, mean in means.items()
    ]
    return write_run(path, records, **knobs)


def test_seeds_that_have_just_started_or_were_evaluated_at_other_steps_are_shown(
    tmp_path: Path,
) -> None:
    one = evaluated(tmp_path / "one", {0: -5, 10: -4, 20: -3}, seed=0)
    two = evaluated(tmp_path / "two", {0: -5, 10: -2, 20: -1}, seed=1)
    young = evaluated(tmp_path / "young", {0: -5}, seed=2)
    odd = evaluated(tmp_path / "odd", {1: -5, 11: -4}, seed=3)
    (curve,) = report_data([one, two, young])["curves"]["Pendulum-v1"]
    assert curve["seeds"] == [0, 1]
    assert curve["mean"] == [-5, -3, -2]
    lines = report_data([one, two, odd])["curves"]["Pendulum-v1"]
    assert [line["label"] for line in lines] == ["one", "two", "odd"]


def test_flat_curves_and_runs_of_the_same_name_are_drawn(tmp_path: Path, open_page: Any) -> None:
    steps = range(0, 100, 10)
    for seed in range(3):
        (tmp_path / f"{seed}").mkdir()
        evaluated(tmp_path / f"{seed}/run", dict.fromkeys(steps, -0.1), seed=seed)
    out = tmp_path / "report.html"
    paths = [str(tmp_path / f"{seed}/run") for seed in range(3)]
    assert main(["report", *paths, "--out", str(out)]) == 0
    opened = open_page(out)
    assert opened.page.locator("figure.chart path").count() >= 4
    text = opened.page.locator("main").inner_text()
    for path in paths:
        assert path in text


def test_a_change_is_noticed_also_a_score(runs: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **TINY)
    before = version([path])
    assert version([path]) == before
    RunFolder(path).write_score({"mean": 1, "std": 0, "episodes": 1, "step": 60})
    after = version([path])
    assert after != before
    # Trained further, the score may not be that of the best agent any more.
    resumed(path, steps=80)
    assert report_data([path])["runs"][0]["score"] is None


def test_a_run_that_trains_says_so(runs: list[Path]) -> None:
    lock = Lock(RunFolder(runs[1]))
    assert report_data([runs[1]])["runs"][0]["state"] == "being trained"
    lock.release()
    assert report_data([runs[1]])["runs"][0]["state"] == "finished"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report", "report needs one or more run folders: t3d report RUN [RUN ...]"),
        ("report nowhere", "no run folder at nowhere"),
        ("report broken", "metrics.jsonl, line 2 is no record"),
        ("report odd", "line 1 is no record: its return is 'x'; expected a finite number"),
        ("report huge", "line 1 is no record: its return is inf; expected a finite number"),
        ("report nan", "metrics.jsonl, line 1 is no record"),
        ("report kind", "metrics.jsonl, line 1 is no record"),
        ("report scored", "score.json is no score"),
        ("report one --out one/config.json/page.html", "cannot be written"),
        ("report one --watch --port 99999", "port 99999 cannot be served"),
    ],
)
def test_bad_input_is_one_line(
    runs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").symlink_to(runs[0])
    config = RunFolder(runs[0]).config()
    for name in ("broken", "odd", "huge", "nan", "kind", "scored"):
        RunFolder(tmp_path / name).create(config, {})
    good = '{"kind": "episode", "step": 1, "return": 1, "length": 1, "seconds": 1}\n'
    (tmp_path / "broken/metrics.jsonl").write_text(good + "{}\n" + good)
    (tmp_path / "odd/metrics.jsonl").write_text(good.replace('"return": 1', '"return": "x"'))
    (tmp_path / "huge/metrics.jsonl").write_text(good.replace('"return": 1', '"return": 1e999'))
    (tmp_path / "nan/metrics.jsonl").write_text(good.replace('"return": 1', '"return": NaN'))
    (tmp_path / "kind/metrics.jsonl").write_text(good.replace('"episode"', "[]"))
    (tmp_path / "scored/score.json").write_text('{"mean": "high"}')
    assert_refused(words.split(), message, capsys)


def test_a_run_without_anything_yet_has_a_report(
    runs: list[Path], tmp_path: Path, open_page: Any
) -> None:
    folder = RunFolder(tmp_path / "new")
    folder.create(RunFolder(runs[0]).config(), {})
    assert main(["report", str(folder.path)]) == 0
    opened = open_page(folder.path / "report.html")
    assert "too early to say" in opened.page.locator("main").inner_text()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, str, "subprocess.Popen[str]"]]:
    """A short run, and `t3d report --watch` of it in a process of its own."""
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **TINY)
    code = "import sys; from t3d.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "report", str(path), "--watch"]
    # A shell that starts tests in the background has them ignore Ctrl-C; the user's does not.
    server = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert server.stdout is not None
    yield path, server.stdout.readline().split()[0], server
    if server.poll() is None:
        server.kill()
    server.communicate()


def test_watch_follows_a_run_that_trains_and_ends_with_ctrl_c(
    watched: tuple[Path, str, "subprocess.Popen[str]"], browser: Any
) -> None:
    path, address, server = watched
    assert address.startswith("http://127.0.0.1:")
    page = browser.new_page()
    page.goto(address)
    page.get_by_text("step 60 of 60").wait_for()
    t3d.resume(path, steps=120, quiet=True)
    page.get_by_text("step 120 of 120").wait_for(timeout=20_000)
    assert page.goto(f"{address}secret").status == 404
    page.goto(address)
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
    page.get_by_text("--watch has ended").wait_for(timeout=20_000)
    page.close()
