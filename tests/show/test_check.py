import json
import math
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats

import t3d
from t3d.cli.main import main
from t3d.config import Config
from t3d.presets import resolve
from t3d.show import check as pages
from t3d.show.check import check, known_curves, known_for, lines

ENV = "Hopper-v5"
STEPS = list(range(0, 1100, 100))
# Three runs that rise from 0 to about 100 at once: their mean is 100 and their deviation 2.
KNOWN: dict[str, Any] = {
    ENV: {
        "config": {"env": ENV, "tau": 0.01, "random_steps": 25, "engine": "fused"},
        "versions": {"t3d": "0.1.0", "gymnasium": "1.4.0", "mujoco": "3.5.0"},
        "step": STEPS,
        "runs": {str(seed): [0.0, *[98.0 + 2 * seed] * 10] for seed in range(3)},
    }
}
FAR_APART = ("Hopper-v5", "Walker2d-v5")
HALF = stats.t.ppf(0.975, 2) * 2 * math.sqrt(1 + 1 / 3)  # of the band


def known_with(**parts: Any) -> dict[str, Any]:
    return {ENV: KNOWN[ENV] | parts}


def run_folder(
    path: Path,
    means: list[float],
    *more: dict[str, Any],
    at: list[int] = STEPS,
    versions: dict[str, str] | None = None,
    **knobs: Any,
) -> Path:
    """A run that was evaluated at these steps, and what else it recorded."""
    path.mkdir(parents=True)
    usual = {"env": ENV, "tau": 0.01, "random_steps": 25, "steps": 1000, "seed": 7}
    config = Config.from_dict(usual | knobs)
    (path / "config.json").write_text(config.to_json())
    (path / "run.json").write_text(json.dumps({"versions": versions} if versions else {}))
    evaluations = [{"kind": "evaluation", "step": s, "mean": m} for s, m in zip(at, means)]
    records = [*evaluations, *more]
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_a_run_like_the_known_ones_is_within(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [0.0, *[93.0] * 9, 95.0])
    told = check(run, KNOWN).told
    # At step 1,000 the evaluations after step 500 count.
    assert (told["verdict"], told["since"], told["step"]) == ("within", None, 1000)
    assert told["score"] == pytest.approx(93.4)
    assert told["low"] == pytest.approx(100 - HALF)
    assert told["high"] == pytest.approx(100 + HALF)
    assert told["curves"] == 3
    assert told["differences"] == {}
    assert told["hints"] == told["earlier"] == []
    assert lines(told) == [
        "Hopper-v5, seed 7, at step 1,000 of 1,000: within. Its 93 (mean of its evaluations after"
        " step 500) is within 90 to 110, the 95 % band of 3 known runs."
    ]


def test_a_known_run_that_was_made_again_is_recognised(tmp_path: Path) -> None:
    rising = [0.0, *(96.0 + step + 0.0004 for step in range(10))]
    known = known_with(runs=KNOWN[ENV]["runs"] | {"0": [0.0, *(96.0 + s for s in range(10))]})
    again = check(run_folder(tmp_path / "again", rising, seed=0, engine="fused"), known).told
    assert again["same_as_known"] == 11
    assert lines(again)[1:] == [
        "It is one of these: at all 11 steps that both have, its evaluation is that of the known"
        " run of seed 0, to the last digit kept."
    ]
    # One that was evaluated more seldom, and further, is compared where both were.
    means, at = [0.0, 96.0, 97.0, 105.0, 70.0], [0, 100, 200, 1000, 1900]
    few = run_folder(tmp_path / "few", means, at=at, seed=0, steps=1900)
    assert check(few, known).told["same_as_known"] == 4
    others = {
        "digit": run_folder(tmp_path / "digit", [0.0, 96.001, *rising[2:]], seed=0),
        "late": run_folder(tmp_path / "late", [*rising[:-1], 105.001], seed=0),
        "seed": run_folder(tmp_path / "seed", rising, seed=7),
        "knob": run_folder(tmp_path / "knob", rising, seed=0, tau=0.02),
        "engine": run_folder(tmp_path / "engine", rising, seed=0, engine="reference"),
        "untrained": run_folder(tmp_path / "untrained", [0.0, 99.0], at=[0, 150], seed=0),
        # Runs that all have what there is to have are alike without being one.
        "mastered": run_folder(tmp_path / "mastered", [0.0, *[100.0] * 10], seed=1),
    }
    for what, other in others.items():
        told = check(other, known).told
        assert not told["same_as_known"], what
        assert not any("one of these" in line for line in lines(told)), what


def test_below_and_above_say_since_when(tmp_path: Path) -> None:
    low = check(run_folder(tmp_path / "low", [0.0, *[100.0] * 5, *[50.0] * 5]), KNOWN).told
    # From step 600 on: the mean of the evaluations after step 300 is 83 there.
    assert (low["verdict"], low["since"]) == ("below", 600)
    assert "at step 1,000 of 1,000: below since step 600. Its 50 " in lines(low)[0]
    assert "is below 90 to 110, the 95 % band" in lines(low)[0]
    high = check(run_folder(tmp_path / "high", [0.0, *[120.0] * 10]), KNOWN).told
    assert (high["verdict"], high["since"]) == ("above", 100)
    assert "above since step 100. Its 120 " in lines(high)[0]


def test_the_verdict_is_about_now_and_what_was_before_is_said(tmp_path: Path) -> None:
    fell = run_folder(tmp_path / "fell", [0.0, 100.0, *[50.0] * 4, *[100.0] * 5])
    told = check(fell, KNOWN).told
    assert told["verdict"] == "within"
    assert told["earlier"] == [{"verdict": "below", "from": 200, "to": 900}]
    assert lines(told)[1:] == ["It was below from step 200 to 900."]
    # One bad evaluation out of ten is no stretch.
    once = run_folder(tmp_path / "once", [0.0, 100.0, 85.0, *[100.0] * 8])
    assert check(once, KNOWN).told["earlier"] == []
    # Worse than the others before learning began says nothing.
    late = run_folder(tmp_path / "late", [-1e6, *[100.0] * 10])
    assert check(late, KNOWN).told["earlier"] == []


def test_known_curves_are_taken_at_the_runs_own_steps(tmp_path: Path) -> None:
    # Between steps 100 and 400 the known runs rise from 0 to 98, 100 and 102.
    rising = {str(seed): [0.0, 0.0, 98.0 + 2 * seed] for seed in range(3)}
    known = known_with(step=[0, 100, 400], runs=rising)
    run = run_folder(tmp_path / "run", [0.0, 25.0, 50.0], at=[0, 175, 250])
    found = check(run, known)
    # What is before step 100, the known runs' first evaluation, is not shown.
    assert found.step.tolist() == [175, 250, 400]
    half = np.concatenate([found.known[:, 0], found.known[:, 1]])
    means = [24.5, 25, 25.5, *((24.5 + 49) / 2, 37.5, (25.5 + 51) / 2)]
    assert half.tolist() == pytest.approx(means)
    told = found.told
    assert (told["verdict"], told["step"], told["score"]) == ("within", 250, 37.5)
    # The variance is the mean of those around: of 0.5, 0.75 and 1.5, as recent means differ by.
    spread = math.sqrt((0.5**2 + 0.75**2 + 1.5**2) / 3)
    assert told["low"] == pytest.approx(37.5 - HALF / 2 * spread)
    # The picture goes on to where the run is to go.
    assert np.isnan(found.run[2:]).all()
    assert np.isfinite(found.low).all()
    only = run_folder(tmp_path / "only", [94.0], at=[850])  # as with --eval-every 0
    assert check(only, KNOWN).told["verdict"] == "within"


def test_a_run_that_went_further_is_judged_where_three_are_known(tmp_path: Path) -> None:
    runs = {"0": [0.0, *[98.0] * 10], "1": [0.0, *[100.0] * 10], "2": [0.0, *[102.0] * 6]}
    means = [0.0, *[100.0] * 6, *[0.0] * 6]
    far = run_folder(tmp_path / "far", means, at=[*STEPS, 1100, 1200])
    told = check(far, known_with(runs=runs)).told
    assert (told["verdict"], told["step"], told["trained_to"]) == ("within", 600, 1200)
    said = "It went on to step 1,200, beyond 600, where the known runs end; what came after is not"
    assert lines(told)[1].startswith(said)
    beyond = run_folder(tmp_path / "beyond", [100.0], at=[2000])
    with pytest.raises(t3d.T3DError, match="no evaluation to compare: the known curves end at"):
        check(beyond, known_with(runs=runs))


def test_where_all_known_runs_are_equal_a_point_less_is_no_alarm(tmp_path: Path) -> None:
    alike = known_with(runs={str(seed): [0.0, *[100.0] * 10] for seed in range(3)})
    for final, verdict in ((99.0, "within"), (96.0, "within"), (94.0, "below")):
        run = run_folder(tmp_path / f"{final}", [0.0, *[final] * 10])
        assert check(run, alike).told["verdict"] == verdict  # 100 ± 4.97, by the least deviation


def test_the_quantiles_are_those_of_students_t() -> None:
    freedom = 2 + np.arange(len(pages._T))
    np.testing.assert_allclose(pages._T, stats.t.ppf(0.975, freedom), atol=1e-6)


def test_the_band_is_the_prediction_interval_of_the_textbook() -> None:
    for count in range(3, 11):
        values = np.random.default_rng(count).normal(50, 10, count)
        low, high = pages.band(np.array([10]), values[:, None])
        error = stats.sem(values) * math.sqrt(count + 1)
        expected = stats.t.interval(0.95, count - 1, values.mean(), error)
        assert (low[0], high[0]) == pytest.approx(expected, rel=1e-6)


def test_nineteen_of_twenty_further_runs_are_in_the_band() -> None:
    within = []
    for *known, run in np.random.default_rng(0).normal(size=(5_000, 6)):
        low, high = pages.band(np.array([10]), np.array(known)[:, None])
        within.append(low[0] <= run <= high[0])
    assert np.mean(within) == pytest.approx(0.95, abs=0.01)  # three standard errors


def test_what_runs_do_at_other_times_widens_the_band() -> None:
    steps = np.arange(0, 110, 10)
    still = np.full((5, 11), 1000.0)
    falls = still.copy()
    falls[2, 9] = 0.0  # well before and after
    for runs, low in ((still, 1000), (falls, 900)):
        assert pages.band(steps, pages.recent(steps, runs))[0][6] <= low
    assert pages.band(steps, still)[0][6] == 1000


def test_how_far_apart_runs_are_is_pooled_around_a_step() -> None:
    steps = np.array([0, 10, 40, 80, 170])
    runs = np.array([[0, 1, 2, 3, 90], [0, 3, 2, 7, 10], [0, 5, 2, 2, 50]], float)
    low, high = pages.band(steps, runs)
    spread = np.sqrt((runs[:, 2].var(ddof=1) + runs[:, 3].var(ddof=1)) / 2)
    assert (high - low)[2] / 2 == pytest.approx(stats.t.ppf(0.975, 2) * spread * math.sqrt(4 / 3))


@settings(max_examples=30, deadline=None)
@given(means=st.lists(st.floats(-200, 200), min_size=2, max_size=11), shift=st.floats(0, 200))
def test_a_run_that_is_better_everywhere_is_never_judged_worse(
    means: list[float], shift: float
) -> None:
    order = ["below", "within", "above"]
    with tempfile.TemporaryDirectory() as folder:
        run = run_folder(Path(folder) / "run", means)
        better = run_folder(Path(folder) / "better", [mean + shift for mean in means])
        verdicts = [check(path, KNOWN).told["verdict"] for path in (run, better)]
    assert order.index(verdicts[0]) <= order.index(verdicts[1])


def test_knobs_and_versions_that_differ_are_always_named(tmp_path: Path) -> None:
    told = check(
        run_folder(
            tmp_path / "run",
            [0.0, *[100.0] * 10],
            versions={"t3d": "0.1.7", "gymnasium": "1.5.0", "torch": "1.0"},
            exploration_noise=0.3,
            hidden=(400, 300),
            eval_every=123,
            device="cuda",
        ),
        KNOWN,
    ).told
    assert told["verdict"] == "within"
    assert lines(told)[1:] == [
        "- this differs: exploration_noise is 0.3, the known runs' is 0.1",
        "- this differs: hidden is 400 300, the known runs' is 256 256",
        "- this differs: gymnasium is 1.5.0, the known runs' is 1.4.0",
    ]


def test_a_run_below_is_told_what_it_recorded_itself(tmp_path: Path) -> None:
    records = [
        {"kind": "warning", "step": 300, "name": "collapsed", "text": "the same action"},
        {"kind": "warning", "step": 400, "name": "saturated", "text": "at the end"},
        {"kind": "warning", "step": 500, "name": "collapsed", "text": "the same action"},
        {"kind": "restart", "step": 600, "env": 0, "why": "died (SIGKILL)"},
        {"kind": "restart", "step": 700, "env": 1, "why": "did not answer"},
        {"kind": "train", "step": 1000, "saturation": 0.93},
    ]
    values = {"mean": 0.0, "cut_off": 0.0, "estimated_Q": 300.0, "true_Q": 20.0}
    late = [{"kind": "evaluation", "step": step} | values for step in STEPS[6:]]
    told = check(run_folder(tmp_path / "run", [0.0] * 6, *records, *late), KNOWN).told
    assert told["verdict"] == "below"
    assert told["hints"] == [
        "at step 300 it warned: the same action",
        "at step 400 it warned: at the end",
        "restarts of an environment's process: 2, the last at step 700: it did not answer",
        "the critic expects 300.0 where episodes begin, and 20.0 comes: over-estimation; try a"
        " smaller --learning-rate",
        "93% of its last actions are at an end of their range",
    ]
    assert lines(told)[1:] == [f"- {hint}" for hint in told["hints"]]
    assert not pages.unexplained(told)


def test_a_run_outside_for_no_reason_that_shows_is_told_of_chance(tmp_path: Path) -> None:
    for final in (0.0, 200.0):
        told = check(run_folder(tmp_path / f"{final}", [0.0, *[final] * 10]), KNOWN).told
        assert pages.unexplained(told)
        assert "one normal run in 20 is outside by chance" in lines(told)[1]


def test_a_band_that_holds_an_untrained_agent_says_so(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [0.0, *[100.0] * 10])
    blind = "That says little: known runs differ so much here that one that has learned nothing"
    assert not any(blind in line for line in lines(check(run, KNOWN).told))
    far_apart = known_with(runs={str(s): [1.0, *[10.0 + 90 * s] * 10] for s in range(3)})
    told = check(run, far_apart).told
    assert told["low"] < 1 < told["high"]
    assert blind in lines(told)[1]


def test_small_returns_keep_their_digits(tmp_path: Path) -> None:
    small = {seed: [r / 100 for r in runs] for seed, runs in KNOWN[ENV]["runs"].items()}
    run = run_folder(tmp_path / "run", [0.0, *[0.98] * 10])
    said = lines(check(run, known_with(runs=small)).told)[0]
    assert "Its 0.98 " in said
    assert "is within 0.90 to 1.10, the" in said


def test_a_critic_that_is_wrong_for_a_while_is_no_hint(tmp_path: Path) -> None:
    values = {"mean": 0.0, "cut_off": 0.0, "estimated_Q": 300.0, "true_Q": 20.0}
    right = values | {"estimated_Q": 20.0}
    records = [{"kind": "evaluation", "step": s} | values for s in STEPS[6:]]
    records[1] |= right
    told = check(run_folder(tmp_path / "run", [0.0] * 6, *records), KNOWN).told
    assert (told["verdict"], told["hints"]) == ("below", [])


@pytest.mark.parametrize(("random_steps", "first"), [(25, 100), (200, 400)])
def test_a_run_that_has_hardly_begun_is_not_judged(
    tmp_path: Path, random_steps: int, first: int
) -> None:
    config = KNOWN[ENV]["config"] | {"random_steps": random_steps}
    run = run_folder(tmp_path / "run", [0.0, 0.0], at=[0, first - 1])
    with pytest.raises(
        t3d.T3DError, match=f"too early to tell: runs are compared from step {first}"
    ):
        check(run, known_with(config=config))
    run = run_folder(tmp_path / "later", [0.0, 0.0], at=[0, first])
    assert check(run, known_with(config=config)).told["verdict"] == "below"


def test_a_record_that_makes_no_sense_is_no_hint(tmp_path: Path) -> None:
    odd = run_folder(tmp_path / "odd", [0.0] * 11, {"kind": "warning", "step": 3})
    told = check(odd, KNOWN).told
    assert (told["verdict"], told["hints"]) == ("below", [])


def test_what_came_after_the_judged_step_is_no_hint(tmp_path: Path) -> None:
    late = {"kind": "warning", "step": 1100, "name": "collapsed", "text": "it fell"}
    run = run_folder(tmp_path / "run", [0.0] * 12, late, at=[*STEPS, 1100])
    told = check(run, KNOWN).told
    assert (told["verdict"], told["step"], told["hints"]) == ("below", 1000, [])


def test_bad_input_is_named(tmp_path: Path) -> None:
    fine = [0.0, *[100.0] * 10]
    new = run_folder(tmp_path / "new", [0.0], at=[0])
    broken = run_folder(tmp_path / "broken", fine)
    (broken / "metrics.jsonl").write_text("nonsense\n")
    (tmp_path / "empty").mkdir()
    bad = {
        tmp_path / "nowhere": "no run folder at",
        tmp_path / "empty": "is not a run folder: it has no config.json",
        new: "has no evaluation after step 0 yet; let it train longer",
        broken: "line 1 is no record",
        run_folder(tmp_path / "ant", fine, env="Ant-v5"): "no curves of Ant-v5 are known, only "
        "of Hopper-v5",
        run_folder(tmp_path / "own", fine, env="my_robot:Robot"): "no curves of my_robot:Robot are",
        run_folder(tmp_path / "pixels", fine, pixels=True): "pixels is True, the known runs' is",
        run_folder(tmp_path / "repeat", fine, action_repeat=2): "action_repeat is 2, the known "
        "runs' is 1: its steps and returns cannot be compared",
        run_folder(tmp_path / "cut", fine, max_episode_steps=9): "max_episode_steps is 9, the",
    }
    for path, message in bad.items():
        with pytest.raises(t3d.T3DError) as error:
            check(path, KNOWN)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    two = known_with(runs={"0": fine, "1": fine})
    with pytest.raises(t3d.T3DError, match="too few curves of Hopper-v5 are known: 2; expected 3"):
        check(run_folder(tmp_path / "few", fine), two)


def test_the_picture_says_the_verdict_and_marks_what_is_outside(tmp_path: Path) -> None:
    def words(name: str, means: list[float]) -> set[str]:
        png, svg = pages.draw(
            check(run_folder(tmp_path / name, means), KNOWN), tmp_path / f"{name}.png"
        )
        with Image.open(png) as picture:
            assert picture.width > 1000
        parts = [(node.text, node.tail) for node in ET.parse(svg).getroot().iter()]
        return {text.strip() for pair in parts for text in pair if text}

    below = words("below", [0.0, *[50.0] * 10])
    named = {"the 3 known runs", "their mean", "this run, seed 7", "environment steps"}
    assert named | {"outside"} <= below
    assert "Hopper-v5, at step 1,000: below since step 100" in below
    within = words("within", [0.0, *[100.0] * 5])
    assert named | {"Hopper-v5, at step 500: within"} <= within
    assert "outside" not in within


def test_the_curves_of_the_package_are_whole() -> None:
    every = known_curves()
    assert "Pendulum-v1" in every
    for env, found in every.items():
        config = Config.from_dict(found["config"])
        assert config.env == env
        assert "seed" not in found["config"]
        assert found["versions"]["gymnasium"]
        assert found["step"][0] == 0
        assert (np.diff(found["step"]) > 0).all()
        for returns in found["runs"].values():
            assert 1 < len(returns) <= len(found["step"])
            assert np.isfinite(returns).all()


@pytest.mark.parametrize("env", known_curves())
def test_each_known_run_is_normal_beside_the_others_and_a_poor_one_is_not(
    env: str, tmp_path: Path
) -> None:
    found = known_curves()[env]
    runs: dict[str, list[float]] = found["runs"]
    verdicts = []
    for seed, returns in runs.items():
        rest = {other: those for other, those in runs.items() if other != seed}
        path = run_folder(tmp_path / seed, returns, at=found["step"], **found["config"])
        verdicts.append(check(path, {env: found | {"runs": rest}}).told["verdict"])
    assert verdicts.count("within") >= len(verdicts) - 1
    # One that learns nothing, and one that reaches a third of what others reach.
    longest = max(runs.values(), key=len)
    for share in (0.0, 0.33):
        poor = [longest[0] + share * (mean - longest[0]) for mean in longest]
        path = run_folder(tmp_path / f"poor-{share}", poor, at=found["step"], **found["config"])
        told = check(path).told
        # The runs on some tasks differ too much to tell, and that is said.
        assert told["untrained_within"] == (env in FAR_APART)
        assert told["verdict"] == "below" or told["untrained_within"], share


def test_a_real_run_is_checked_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "train Pendulum-v1 --steps 5000 --eval-every 500 --eval-episodes 2 --hidden 8 8"
    words += " --updates-per-step 0.1 --threads 1 --run run --no-video"
    assert main(words.split()) == 0
    count = len(known_for(resolve("Pendulum-v1")[1]).returns)
    said = capsys.readouterr().out
    assert "t3d check run " in said
    assert f"is it normal? compared with {count} known runs" in said
    code = main(["check", "run"])
    sentence, *rest = capsys.readouterr().out.splitlines()
    assert sentence.startswith("Pendulum-v1, seed 0, at step 5,000 of 5,000: ")
    assert "- this differs: hidden is 8 8, the known runs' is 64 64" in rest
    assert rest[-2:] == ["run/check.png", "run/check.svg"]
    assert (tmp_path / "run" / "check.png").stat().st_size > 1000
    assert main(["check", "run", "--json", "--out", "it.png"]) == code
    told = json.loads(capsys.readouterr().out)
    assert f"at step 5,000 of 5,000: {told['verdict']}" in sentence
    assert code == (told["verdict"] == "below")
    assert told["differences"]["hidden"] == {"run": [8, 8], "known": [64, 64]}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "it.png", "it.svg"}
    assert main(["check", "run", "--out", "/proc/no/it"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("Pendulum-v1, seed 0, at step 5,000 of 5,000: ")
    assert err.count("\n") == 1
    assert "cannot be written" in err


def test_the_exit_code_is_1_below_and_the_command_for_fresh_seeds_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = known_curves()["Pendulum-v1"]
    path, steps = tmp_path / "run", found["step"]
    run_folder(path, [-2000.0] * len(steps), at=steps, **(found["config"] | {"seed": 3}))
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    assert main(["check", str(path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert ": below since step " in said[0]
    assert said[1].startswith("- nothing in its files sets it apart")
    assert said[2].startswith("  t3d train Pendulum-v1 ")
    assert " --steps 100000 --seed 4 " in said[2]
    assert said[2].endswith(" --seeds 5")
    assert said[3:] == ["no picture: plots need an extra: pip install 't3d[plot]'"]
    assert not (path / "check.png").exists()
