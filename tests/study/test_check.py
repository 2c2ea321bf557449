import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import t3d
from helpers.known_runs import ENV, KNOWN, STEPS, known_with, run_folder
from t3d.study.check import check, unexplained
from t3d.study.known import known_curves

FAR_APART = ("Hopper-v5", "Walker2d-v5")
HALF = stats.t.ppf(0.975, 2) * 2 * math.sqrt(1 + 1 / 3)  # of the band


def test_a_run_like_the_known_ones_is_within(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [0.0, *[93.0] * 9, 95.0])
    result = check(run, KNOWN).result
    # At step 1,000 the evaluations after step 500 count.
    assert (result["verdict"], result["since"], result["step"]) == ("within", None, 1000)
    assert result["score"] == pytest.approx(93.4)
    assert result["low"] == pytest.approx(100 - HALF)
    assert result["high"] == pytest.approx(100 + HALF)
    assert result["curves"] == 3
    assert result["differences"] == {}
    assert result["hints"] == result["earlier"] == []


def test_a_known_run_that_was_repeated_is_recognised(tmp_path: Path) -> None:
    rising = [0.0, *(96.0 + step + 0.0004 for step in range(10))]
    known = known_with(runs=KNOWN[ENV]["runs"] | {"0": [0.0, *(96.0 + s for s in range(10))]})
    again = check(run_folder(tmp_path / "again", rising, seed=0, engine="fused"), known).result
    assert again["same_as_known"] == 11
    # One that was evaluated more seldom, and further, is compared where both were.
    means, at = [0.0, 96.0, 97.0, 105.0, 70.0], [0, 100, 200, 1000, 1900]
    few = run_folder(tmp_path / "few", means, at=at, seed=0, steps=1900)
    assert check(few, known).result["same_as_known"] == 4
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
        assert not check(other, known).result["same_as_known"], what


def test_below_and_above_say_since_when(tmp_path: Path) -> None:
    low = check(run_folder(tmp_path / "low", [0.0, *[100.0] * 5, *[50.0] * 5]), KNOWN).result
    # From step 600 on: the mean of the evaluations after step 300 is 83 there.
    assert (low["verdict"], low["since"]) == ("below", 600)
    high = check(run_folder(tmp_path / "high", [0.0, *[120.0] * 10]), KNOWN).result
    assert (high["verdict"], high["since"]) == ("above", 100)


def test_the_verdict_is_about_now_and_earlier_stretches_are_listed(tmp_path: Path) -> None:
    fell = run_folder(tmp_path / "fell", [0.0, 100.0, *[50.0] * 4, *[100.0] * 5])
    result = check(fell, KNOWN).result
    assert result["verdict"] == "within"
    assert result["earlier"] == [{"verdict": "below", "from": 200, "to": 900}]
    # One bad evaluation out of ten is no stretch.
    once = run_folder(tmp_path / "once", [0.0, 100.0, 85.0, *[100.0] * 8])
    assert check(once, KNOWN).result["earlier"] == []
    # Worse than the others before learning began says nothing.
    late = run_folder(tmp_path / "late", [-1e6, *[100.0] * 10])
    assert check(late, KNOWN).result["earlier"] == []


def test_known_curves_are_taken_at_the_runs_own_steps(tmp_path: Path) -> None:
    # Between steps 100 and 400 the known runs rise from 0 to 98, 100 and 102.
    rising = {str(seed): [0.0, 0.0, 98.0 + 2 * seed] for seed in range(3)}
    known = known_with(step=[0, 100, 400], runs=rising)
    run = run_folder(tmp_path / "run", [0.0, 25.0, 50.0], at=[0, 175, 250])
    comparison = check(run, known)
    # What is before step 100, the known runs' first evaluation, is not shown.
    assert comparison.curves.step.tolist() == [175, 250, 400]
    half = np.concatenate([comparison.curves.known[:, 0], comparison.curves.known[:, 1]])
    means = [24.5, 25, 25.5, *((24.5 + 49) / 2, 37.5, (25.5 + 51) / 2)]
    assert half.tolist() == pytest.approx(means)
    result = comparison.result
    assert (result["verdict"], result["step"], result["score"]) == ("within", 250, 37.5)
    # The variance is the mean of those around: of 0.5, 0.75 and 1.5, as recent means differ by.
    spread = math.sqrt((0.5**2 + 0.75**2 + 1.5**2) / 3)
    assert result["low"] == pytest.approx(37.5 - HALF / 2 * spread)
    # The picture extends to the planned end of the run.
    assert np.isnan(comparison.curves.run[2:]).all()
    assert np.isfinite(comparison.curves.low).all()
    only = run_folder(tmp_path / "only", [94.0], at=[850])  # as with --eval-every 0
    assert check(only, KNOWN).result["verdict"] == "within"


def test_a_run_that_went_further_is_judged_where_three_are_known(tmp_path: Path) -> None:
    runs = {"0": [0.0, *[98.0] * 10], "1": [0.0, *[100.0] * 10], "2": [0.0, *[102.0] * 6]}
    means = [0.0, *[100.0] * 6, *[0.0] * 6]
    far = run_folder(tmp_path / "far", means, at=[*STEPS, 1100, 1200])
    result = check(far, known_with(runs=runs)).result
    assert (result["verdict"], result["step"], result["trained_to"]) == ("within", 600, 1200)
    beyond = run_folder(tmp_path / "beyond", [100.0], at=[2000])
    with pytest.raises(t3d.T3DError, match="no evaluation to compare: the known curves end at"):
        check(beyond, known_with(runs=runs))


def test_where_all_known_runs_are_equal_a_point_less_is_no_alarm(tmp_path: Path) -> None:
    alike = known_with(runs={str(seed): [0.0, *[100.0] * 10] for seed in range(3)})
    for final, verdict in ((99.0, "within"), (96.0, "within"), (94.0, "below")):
        run = run_folder(tmp_path / f"{final}", [0.0, *[final] * 10])
        assert (
            check(run, alike).result["verdict"] == verdict
        )  # 100 ± 4.97, by the minimum deviation


@settings(max_examples=30, deadline=None)
@given(means=st.lists(st.floats(-200, 200), min_size=2, max_size=11), shift=st.floats(0, 200))
def test_a_run_that_is_better_everywhere_is_never_judged_worse(
    means: list[float], shift: float
) -> None:
    order = ["below", "within", "above"]
    with tempfile.TemporaryDirectory() as folder:
        run = run_folder(Path(folder) / "run", means)
        better = run_folder(Path(folder) / "better", [mean + shift for mean in means])
        verdicts = [check(path, KNOWN).result["verdict"] for path in (run, better)]
    assert order.index(verdicts[0]) <= order.index(verdicts[1])


def test_knobs_and_versions_that_differ_are_always_named(tmp_path: Path) -> None:
    result = check(
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
    ).result
    assert result["verdict"] == "within"
    assert result["differences"] == {
        "exploration_noise": {"run": (0.3,), "known": (0.1,)},
        "hidden": {"run": (400, 300), "known": (256, 256)},
        "gymnasium": {"run": "1.5.0", "known": "1.4.0"},
    }


def test_a_run_below_gets_hints_from_its_own_records(tmp_path: Path) -> None:
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
    result = check(run_folder(tmp_path / "run", [0.0] * 6, *records, *late), KNOWN).result
    assert result["verdict"] == "below"
    assert result["hints"] == [
        "at step 300 it warned: the same action",
        "at step 400 it warned: at the end",
        "restarts of an environment's process: 2, the last at step 700: it did not answer",
        "the critic estimates 300.0 at the start of an episode, and the discounted return is 20.0:"
        " over-estimation; try a smaller --learning-rate",
        "93% of its last actions are at a limit of their range",
    ]
    assert not unexplained(result)


def test_a_run_outside_for_no_reason_that_shows_is_unexplained(tmp_path: Path) -> None:
    for final in (0.0, 200.0):
        result = check(run_folder(tmp_path / f"{final}", [0.0, *[final] * 10]), KNOWN).result
        assert unexplained(result)


def test_a_band_that_holds_an_untrained_agent_is_noticed(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [0.0, *[100.0] * 10])
    assert not check(run, KNOWN).result["untrained_within"]
    far_apart = known_with(runs={str(s): [1.0, *[10.0 + 90 * s] * 10] for s in range(3)})
    result = check(run, far_apart).result
    assert result["low"] < 1 < result["high"]
    assert result["untrained_within"]


def test_a_critic_that_is_wrong_for_a_while_is_no_hint(tmp_path: Path) -> None:
    values = {"mean": 0.0, "cut_off": 0.0, "estimated_Q": 300.0, "true_Q": 20.0}
    right = values | {"estimated_Q": 20.0}
    records = [{"kind": "evaluation", "step": s} | values for s in STEPS[6:]]
    records[1] |= right
    result = check(run_folder(tmp_path / "run", [0.0] * 6, *records), KNOWN).result
    assert (result["verdict"], result["hints"]) == ("below", [])


@pytest.mark.parametrize(("random_steps", "first"), [(25, 100), (200, 400)])
def test_a_run_that_has_hardly_started_is_not_judged(
    tmp_path: Path, random_steps: int, first: int
) -> None:
    config = KNOWN[ENV]["config"] | {"random_steps": random_steps}
    run = run_folder(tmp_path / "run", [0.0, 0.0], at=[0, first - 1])
    with pytest.raises(
        t3d.T3DError, match=f"too early to tell: runs are compared from step {first}"
    ):
        check(run, known_with(config=config))
    run = run_folder(tmp_path / "later", [0.0, 0.0], at=[0, first])
    assert check(run, known_with(config=config)).result["verdict"] == "below"


def test_a_record_that_says_nothing_is_no_hint(tmp_path: Path) -> None:
    empty = [{"kind": kind, "step": 3} for kind in ("warning", "train", "collectors", "gossip")]
    result = check(run_folder(tmp_path / "run", [0.0] * 11, *empty), KNOWN).result
    assert (result["verdict"], result["hints"]) == ("below", [])
    restart = run_folder(tmp_path / "restart", [0.0] * 11, {"kind": "restart", "step": 3})
    hint = "restarts of an environment's process: 1, the last at step 3"
    assert check(restart, KNOWN).result["hints"] == [hint]


def test_what_came_after_the_judged_step_is_no_hint(tmp_path: Path) -> None:
    late = {"kind": "warning", "step": 1100, "name": "collapsed", "text": "it fell"}
    run = run_folder(tmp_path / "run", [0.0] * 12, late, at=[*STEPS, 1100])
    result = check(run, KNOWN).result
    assert (result["verdict"], result["step"], result["hints"]) == ("below", 1000, [])


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
        run_folder(tmp_path / "pixels", fine, pixels=True): "pixels is True, the known runs have",
        run_folder(tmp_path / "repeat", fine, action_repeat=2): "action_repeat is 2, the known "
        "runs have 1: its steps and returns cannot be compared",
        run_folder(tmp_path / "cut", fine, max_episode_steps=9): "max_episode_steps is 9, the",
    }
    for path, message in bad.items():
        with pytest.raises(t3d.T3DError) as error:
            check(path, KNOWN)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    two = known_with(runs={"0": fine, "1": fine})
    with pytest.raises(
        t3d.T3DError, match="too few curves of Hopper-v5 are known: 2; expected at least 3"
    ):
        check(run_folder(tmp_path / "few", fine), two)


@pytest.mark.parametrize("env", known_curves())
def test_each_known_run_is_normal_against_the_others_and_a_poor_one_is_not(
    env: str, tmp_path: Path
) -> None:
    curves = known_curves()[env]
    runs: dict[str, list[float]] = curves["runs"]
    verdicts = []
    for seed, returns in runs.items():
        rest = {other: those for other, those in runs.items() if other != seed}
        path = run_folder(tmp_path / seed, returns, at=curves["step"], **curves["config"])
        verdicts.append(check(path, {env: curves | {"runs": rest}}).result["verdict"])
    assert verdicts.count("within") >= len(verdicts) - 1
    # One that learns nothing, and one that reaches a third of what others reach.
    longest = max(runs.values(), key=len)
    for share in (0.0, 0.33):
        poor = [longest[0] + share * (mean - longest[0]) for mean in longest]
        path = run_folder(tmp_path / f"poor-{share}", poor, at=curves["step"], **curves["config"])
        result = check(path).result
        # The runs on some tasks differ too much to tell, and the result says so.
        assert result["untrained_within"] == (env in FAR_APART)
        assert result["verdict"] == "below" or result["untrained_within"], share
