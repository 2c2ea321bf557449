import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.runs import TINY, metrics_without_time, same_bits, trained
from t3d.play.envs import EnvMaker
from t3d.run import ready
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.manifest import seal
from t3d.run.records import Evaluation, Json, Stop
from t3d.run.session import open_run
from t3d.run.watchers import Watcher, by_name
from t3d.show.live import LiveCurve

HERE = "run.test_ready"


def train(path: Path | None, *watchers: Watcher, env: str = "Pendulum-v1", **knobs: Any) -> Run:
    """Train with watchers: start the run of a folder, or resume it."""
    config = t3d.Config.from_dict({"env": env, **TINY, **knobs})
    if path is None:
        run = Run.start(EnvMaker(env, config))
    else:
        run = open_run(EnvMaker(env, config), RunFolder(path), {}, changing=knobs.keys())
    with closing(run):
        for watcher in watchers:
            run.watchers.append(watcher)
        run.loop()
    return run


def evaluation(mean: float) -> Evaluation:
    return Evaluation(step=1, mean=mean)


def test_stop_at_return_stops_at_the_goal_and_not_below() -> None:
    watcher = t3d.StopAtReturn(-200)
    assert watcher.on_record(evaluation(-200.1)) is None
    assert watcher.on_record(evaluation(-199.5)) == "a mean return of -199.5, the goal was -200"
    run = train(None, t3d.StopAtReturn(-1e9))
    assert run.stopped_by is not None
    assert run.stopped_by.step == 0  # every agent is good enough
    assert train(None, t3d.StopAtReturn(0)).stopped_by is None


def test_stop_without_improvement_counts_evaluations_since_the_best() -> None:
    watcher = t3d.StopWithoutImprovement(2, by=1.0)
    answers = [watcher.on_record(evaluation(mean)) for mean in (5.0, 5.9, 6.5, 7.5, 7.0)]
    assert answers == [None, None, None, None, "2 evaluations without improvement on 6.5"]


def test_stop_without_improvement_counts_on_after_a_resume(tmp_path: Path) -> None:
    def patience() -> Watcher:
        return t3d.StopWithoutImprovement(3, by=1e9)  # nothing improves by so much

    knobs: dict[str, Any] = {"eval_every": 10}
    whole = train(tmp_path / "whole", patience(), **knobs)
    assert whole.stopped_by is not None
    assert whole.stopped_by.step == 30  # evaluations at 0, 10, 20 and 30
    train(tmp_path / "run", patience(), StopAt(15), **knobs)
    again = train(tmp_path / "run", patience(), **knobs)
    assert again.stopped_by is not None
    assert again.stopped_by.step == 30
    assert same_bits(tmp_path / "whole", tmp_path / "run")


def test_stop_after_minutes_stops_and_saves(tmp_path: Path) -> None:
    run = train(tmp_path / "run", t3d.StopAfter(minutes=0))
    assert run.stopped_by is not None
    assert (run.stopped_by.step, run.stopped_by.reason) == (1, "0 minutes are over")
    assert t3d.inspect(tmp_path / "run")["step"] == 1
    assert train(None, t3d.StopAfter(minutes=60)).stopped_by is None


class StopAt(Watcher):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int) -> str | None:
        return "here" if step == self.step else None


class Rates(Watcher):
    """The learning rate after every step."""

    def on_start(self, run: Run) -> None:
        self.run = run
        self.rates: list[float] = []

    def on_step(self, step: int) -> None:
        self.rates.append(self.run.agent.config.learning_rate)


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_a_schedule_sets_the_learning_rate_and_resumes_to_the_same_bits(
    tmp_path: Path, engine: str
) -> None:
    stairs = [[30, 1e-2], [40, 1e-3]]
    rates = Rates()
    knobs: dict[str, Any] = {"engine": engine}
    train(tmp_path / "whole", t3d.LearningRateSchedule(stairs), rates, **knobs)
    usual = t3d.Config().learning_rate
    assert rates.rates[28:30] == [usual, 1e-2]
    assert rates.rates[-1] == 1e-3
    train(tmp_path / "run", t3d.LearningRateSchedule(stairs), StopAt(35), **knobs)
    train(tmp_path / "run", t3d.LearningRateSchedule(stairs), **knobs)
    assert same_bits(tmp_path / "whole", tmp_path / "run")
    constant = trained(tmp_path / "constant", **knobs)
    assert not same_bits(tmp_path / "whole", constant)


class Halves(Watcher):
    """Another watcher that sets the learning rate."""

    def on_start(self, run: Run) -> None:
        self.run = run

    def on_step(self, step: int) -> None:
        if step == 33:
            self.run.agent.change(learning_rate=5e-3)


def test_a_schedule_and_another_watcher_of_the_rate_resume_to_the_same_bits(tmp_path: Path) -> None:
    stairs = [[30, 1e-2], [40, 1e-3]]
    for path, stops in (("whole", []), ("run", [StopAt(35)]), ("run", [])):
        train(tmp_path / path, t3d.LearningRateSchedule(stairs), Halves(), *stops)
    assert same_bits(tmp_path / "whole", tmp_path / "run")


def test_a_rate_that_was_changed_stays_after_a_resume_without_the_watcher(tmp_path: Path) -> None:
    schedule = t3d.LearningRateSchedule(lambda step: 1e-2)
    train(tmp_path / "whole", schedule)
    train(tmp_path / "run", schedule, StopAt(25))
    train(tmp_path / "run")
    assert same_bits(tmp_path / "whole", tmp_path / "run")


def test_every_evaluated_agent_is_saved(tmp_path: Path) -> None:
    train(tmp_path / "run", t3d.SaveAgents())
    agents = sorted((tmp_path / "run" / "agents").iterdir())
    assert [agent.name for agent in agents] == [
        f"step-{step:012d}.safetensors" for step in (0, 30, 60)
    ]
    assert [t3d.load(agent).updates for agent in agents] == [0, 10, 40]


def test_a_save_that_fails_names_the_watcher(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=20)
    (tmp_path / "run" / "agents").write_text("in the way")
    with pytest.raises(t3d.BrokenWatcher, match=r"watcher SaveAgents, on_start\(\) raised"):
        train(tmp_path / "run", t3d.SaveAgents(), steps=40)


HILL = "helpers.hills:Hill"
STAGES = [[0, 0.5], [25, 1.5]]


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_curriculum_sets_an_attribute_when_an_episode_begins(
    tmp_path: Path, backend: str
) -> None:
    knobs: dict[str, Any] = {"env": HILL, "num_envs": 2, "env_backend": backend}
    knobs |= {"max_episode_steps": 7}
    run = train(tmp_path / "whole", t3d.Curriculum("slope", STAGES), **knobs)
    state = run.collector.state_dict()
    assert b'"slope": 1.5' in state["environments.settings"].tobytes()
    for step in (3, 27, 29):  # before, and in the first episodes of the second stage
        path = tmp_path / f"{backend}-{step}"
        train(path, t3d.Curriculum("slope", STAGES), StopAt(step + step % 2), **knobs)
        train(path, t3d.Curriculum("slope", STAGES), **knobs)
        assert same_bits(tmp_path / "whole", path)
        assert t3d.inspect(path)["bit_exact"]
        if backend == "processes":  # a second is enough to start that many
            return


def test_an_episode_has_one_value_from_its_beginning_to_its_end() -> None:
    seen: list[tuple[int, float]] = []

    class Sees(Watcher):
        def on_start(self, run: Run) -> None:
            self.collector = run.collector

        def on_step(self, step: int) -> None:
            seen.append((step, round(float(self.collector.state[0, 1]), 3)))

    knobs: dict[str, Any] = {"env": HILL, "max_episode_steps": 10, "random_steps": 60}
    train(None, Sees(), t3d.Curriculum("slope", [[0, 0.1], [15, 0.2]]), **knobs)
    # Ten steps an episode: the one that step 15 falls into ends as it began.
    assert {value for step, value in seen if step < 20} == {0.1}
    assert {value for step, value in seen if step >= 20} == {0.2}


def test_evaluations_keep_the_task() -> None:
    knobs: dict[str, Any] = {"env": HILL, "max_episode_steps": 3, "eval_every": 0}
    plain = train(None, **knobs, steps=21)
    hard = train(None, t3d.Curriculum("slope", [[0, 9.0]]), **knobs, steps=21)
    assert plain.agent.updates == hard.agent.updates
    with closing(EnvMaker(HILL, plain.config).make()) as env:
        assert env.reset(seed=0)[0][1] == 1.0
    assert hard.parts.evaluation_env.reset(seed=0)[0][1] == 1.0


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_an_attribute_that_no_environment_has_is_named(backend: str) -> None:
    with pytest.raises(t3d.BrokenWatcher, match="has no attribute 'slop' to set; did you mean 'sl"):
        train(None, t3d.Curriculum("slop", STAGES), env=HILL, env_backend=backend)


@pytest.mark.parametrize(
    ("attribute", "knobs", "message"),
    [
        ("slop", {}, "has no attribute 'slop' to set; did you mean 'slope'"),
        ("slope", {"single_env": True}, "Curriculum cannot set 'slope' with --single-env; train"),
        ("slope", {"collectors": 1}, "Curriculum cannot set 'slope' with --collectors; train"),
    ],
)
def test_a_curriculum_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, attribute: str, knobs: dict[str, Any], message: str
) -> None:
    curriculum = t3d.Curriculum(attribute, STAGES)
    with pytest.raises(t3d.T3DError, match=message):
        t3d.train(HILL, run=tmp_path / "run", watchers=[curriculum], quiet=True, **TINY, **knobs)
    assert not (tmp_path / "run").exists()


BAD: dict[str, tuple[Any, str]] = {
    "goal": (lambda: t3d.StopAtReturn("high"), "goal is 'high'; expected a number"),  # type: ignore[arg-type]
    "nan": (lambda: t3d.StopAtReturn(math.nan), "goal is nan; expected a number"),
    "patience": (lambda: t3d.StopWithoutImprovement(0), "evaluations is 0; expected a whole numb"),
    "a part of one": (lambda: t3d.StopWithoutImprovement(1.5), "evaluations is 1.5; expected a wh"),  # type: ignore[arg-type]
    "minutes": (lambda: t3d.StopAfter(-1), "minutes is -1; expected a number, at least 0"),
    "stairs": (lambda: t3d.LearningRateSchedule([1, 2]), r"rate is \[1, 2\]; expected a func"),  # type: ignore[list-item]
    "rate": (lambda: t3d.LearningRateSchedule([[0, -1]]), "a rate is -1; expected a number"),
    "stages": (lambda: t3d.Curriculum("slope", []), r"stages is \[\]; expected a list such as"),
    "step": (lambda: t3d.Curriculum("slope", [["a", 1]]), "a step is 'a'; expected a number"),
    "name": (lambda: t3d.Curriculum("a b", STAGES), "attribute is 'a b'; expected a name"),
    "object": (
        lambda: t3d.Curriculum("slope", [[0, object()]]),
        "a stage of slope is .*; expected plain JSON values",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(t3d.BadInput, match=message):
        make()


class Counts(Watcher):
    """Counts steps, in its state."""

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, step: int) -> None:
        self.count += 1

    def state_dict(self) -> Json:
        return {"count": self.count}

    def load_state_dict(self, state: Json) -> None:
        self.count = state["count"]


def test_the_state_of_a_watcher_comes_back_with_the_run(tmp_path: Path) -> None:
    first, second, other = Counts(), Counts(), Counts()
    train(tmp_path / "run", first, StopAt(25), second)
    assert (first.count, second.count) == (25, 25)
    again = Counts()
    train(tmp_path / "run", again, other)
    assert (again.count, other.count) == (60, 60)


def test_a_watcher_that_is_not_attached_any_more_marks_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", Counts(), StopAt(25))
    train(tmp_path / "run")
    what = "the watcher Counts was attached to this run and is not any more"
    assert what in capsys.readouterr().err
    report = t3d.inspect(tmp_path / "run")
    assert not report["bit_exact"]
    assert report["not_bit_exact"] == [f"at step 25 {what}"]


def test_so_does_one_without_state_unless_it_changes_nothing(tmp_path: Path) -> None:
    schedule = t3d.LearningRateSchedule([[0, 1e-3], [40, 1e-4]])
    train(tmp_path / "run", schedule, Counts(), t3d.SaveAgents(), LiveCurve(), StopAt(25))
    train(tmp_path / "run", Counts(), StopAt(35))
    lost = "at step 25 the watcher LearningRateSchedule was attached to this run and is not any"
    (reason,) = t3d.inspect(tmp_path / "run")["not_bit_exact"]
    assert reason == f"{lost} more"
    train(tmp_path / "run", Counts())  # it is said once
    assert t3d.inspect(tmp_path / "run")["not_bit_exact"] == [reason]


def test_a_checkpoint_of_an_earlier_version_knows_the_watchers_with_state(tmp_path: Path) -> None:
    train(tmp_path / "run", Counts(), Rates(), StopAt(25))
    newest = RunFolder(tmp_path / "run").newest_checkpoint()
    assert newest is not None
    values = json.loads((newest / "manifest.json").read_text())
    del values["sha256"], values["progress"]["attached"]
    (newest / "manifest.json").write_bytes(seal(values))
    train(tmp_path / "run")
    what = "the watcher Counts was attached to this run and is not any more"
    assert t3d.inspect(tmp_path / "run")["not_bit_exact"] == [f"at step 25 {what}"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": object()}, "expected plain JSON values"),
        ({1: 2}, "expected plain JSON values"),
        ({"a": math.nan}, "expected plain JSON values"),
        ([1], "expected a dict of plain JSON values"),
        ({"a": "x" * 2**21}, "characters; expected at most 1,048,576"),
    ],
)
def test_a_state_that_cannot_be_saved_is_named(tmp_path: Path, state: Any, message: str) -> None:
    class Odd(Watcher):
        def state_dict(self) -> Any:
            return state

    with pytest.raises(t3d.BrokenWatcher, match=rf"watcher Odd, state_dict\(\) raised .*{message}"):
        train(tmp_path / "run", Odd())


class Exits(Watcher):
    def __init__(self) -> None:
        raise SystemExit(3)


def test_watchers_are_made_by_their_names_and_arguments() -> None:
    curriculum_words = ["t3d:Curriculum", "attribute=slope", "stages=[[0,1.5]]"]
    words = ["t3d:StopAtReturn", "goal=-200", *curriculum_words, f"{HERE}:Counts"]
    goal, curriculum, counts = by_name(words)
    assert isinstance(goal, ready.StopAtReturn)
    assert goal.goal == -200
    assert isinstance(curriculum, ready.Curriculum)
    assert curriculum.value(3) == 1.5
    assert type(counts).__name__ == "Counts"
    assert by_name([]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("t3d", "watcher begins with 't3d'; expected module:name"),
        ("t3d:StopAtRetun goal=1", "has no watcher 'StopAtRetun'; did you mean 'StopAtReturn'"),
        ("t3d:StopAtReturn", "watcher t3d:StopAtReturn cannot be made without goal=VALUE"),
        ("t3d:StopAtReturn gaol=1", "takes no argument 'gaol'; did you mean 'goal'"),
        (
            "t3d:StopAtReturn 1",
            "watcher t3d:StopAtReturn has '1'; expected NAME=VALUE, such as goal",
        ),
        ("t3d:StopAtReturn goal=a", r"watcher t3d:StopAtReturn: goal is 'a'; expected a number"),
        (f"{HERE}:Exits", f"watcher {HERE}:Exits cannot be made: SystemExit: 3"),
        ("t3d:Config", "a watcher is a Config; expected an object of t3d.Watcher"),
        ("nowhere:Watcher", "no module 'nowhere' for watcher"),
    ],
)
def test_what_is_no_watcher_is_refused_by_name(words: str, message: str) -> None:
    with pytest.raises(t3d.BadInput, match=message):
        by_name(words.split())


def test_a_watchers_stop_is_recorded(tmp_path: Path) -> None:
    train(tmp_path / "run", t3d.StopAtReturn(-1e9))
    *_, last = metrics_without_time(tmp_path / "run")
    assert last["kind"] == Stop.kind
    assert last["watcher"] == "StopAtReturn"
