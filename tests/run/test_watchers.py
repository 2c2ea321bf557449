import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.runs import TINY, Recorder, metrics_without_time, resumed, same_bits, trained
from t3d.base.extras import how_to_install
from t3d.play.envs import EnvMaker
from t3d.run import tracking, watchers
from t3d.run.finish import finish
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.records import Record, Stop
from t3d.run.tensorboard import TensorBoard
from t3d.run.tracking import WATCHERS
from t3d.run.watchers import Watcher


def start(path: Path | None = None, **knobs: Any) -> Run:
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY, **knobs})
    return Run.start(EnvMaker(config.env, config), RunFolder(path) if path else None)


class Diary(Watcher):
    """Writes down every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_start(self, run: Run) -> None:
        self.calls.append(("start", run.collector.steps))

    def on_step(self, step: int) -> None:
        self.calls.append(step)

    def on_record(self, record: Record) -> None:
        self.calls.append((record.kind, record.step))

    def on_end(self, run: Run) -> None:
        self.calls.append(("end", run.agent.updates))


class StopsAt(Watcher):
    """Stops the run at a step, in one of two methods."""

    def __init__(self, step: int, method: str = "on_step") -> None:
        self.step, self.method = step, method

    def on_step(self, step: int) -> str | None:
        return f"step {step}" if self.method == "on_step" and step >= self.step else None

    def on_record(self, record: Record) -> str | None:
        return record.kind if self.method == "on_record" and record.step >= self.step else None


def test_a_watcher_by_default_does_nothing() -> None:
    with closing(start()) as run:
        run.watchers.append(Watcher())
        assert run.loop()


def test_a_watcher_sees_the_start_every_step_every_record_and_the_end() -> None:
    diary, recorder = Diary(), Recorder()
    with closing(start()) as run:
        run.watchers.append(diary)
        run.watchers.append(recorder)
        run.loop()
        assert diary.calls[0] == ("start", 0)
        assert [call for call in diary.calls if isinstance(call, int)] == list(range(1, 61))
        seen = [call for call in diary.calls[1:] if not isinstance(call, int)]
        assert seen == [(line["kind"], line["step"]) for line in recorder.lines]
    assert diary.calls[-1] == ("end", 40)
    assert diary.calls.count(("end", 40)) == 1


@pytest.mark.parametrize("method", ["on_step", "on_record"])
@pytest.mark.parametrize("step", [25, 30, 45])  # learning; an evaluation; an episode's end
def test_a_run_that_a_watcher_stops_is_saved_and_resumes_to_the_same_end(
    tmp_path: Path, method: str, step: int
) -> None:
    trained(tmp_path / "uninterrupted")
    recorder = Recorder()
    with closing(start(tmp_path / "run")) as run:
        run.watchers.append(StopsAt(step, method))
        run.watchers.append(recorder)
        assert not run.loop()
        stop = run.stopped_by
    assert stop is not None
    assert stop.watcher == "StopsAt"
    assert stop.step >= step
    folder = RunFolder(tmp_path / "run")
    *_, last = folder.records()
    assert last == stop
    assert recorder.lines[-1]["reason"] == stop.reason
    assert t3d.inspect(folder.path)["step"] == stop.step
    resumed(folder.path)
    assert same_bits(tmp_path / "uninterrupted", folder.path)
    lines = [line for line in metrics_without_time(folder.path) if line["kind"] != Stop.kind]
    assert lines == metrics_without_time(tmp_path / "uninterrupted")
    # When somebody stopped it is no part of what a run computed.
    digests = [t3d.inspect(tmp_path / name)["digest"] for name in ("run", "uninterrupted")]
    assert digests[0] == digests[1]


def test_a_stop_in_the_last_evaluation_comes_too_late() -> None:
    with closing(start()) as run:
        run.watchers.append(StopsAt(60, "on_record"))
        assert run.loop()
        assert run.stopped_by is None


def test_a_run_can_be_looped_again_after_a_stop() -> None:
    with closing(start()) as run:
        stopper = StopsAt(25)
        run.watchers.append(stopper)
        assert not run.loop()
        stopper.step = 100
        assert run.loop()


class Careless(Watcher):
    """Divides by zero in one of its methods, at a step."""

    def __init__(self, method: str, step: int = 25) -> None:
        self.method, self.step = method, step
        self.ended = False

    def _fail(self, method: str, step: int) -> None:
        if method == self.method and step >= self.step:
            step // 0

    def on_start(self, run: Run) -> None:
        self._fail("on_start", 100)

    def on_step(self, step: int) -> None:
        self._fail("on_step", step)

    def on_record(self, record: Record) -> None:
        self._fail("on_record", record.step)

    def on_end(self, run: Run) -> None:
        self.ended = True
        self._fail("on_end", 100)


@pytest.mark.parametrize("method", ["on_start", "on_step", "on_record"])
def test_a_watcher_that_raises_is_named_after_the_run_was_saved(
    tmp_path: Path, method: str
) -> None:
    careless, diary = Careless(method), Diary()
    run = start(tmp_path / "run")
    with closing(run):
        run.watchers.append(careless)
        run.watchers.append(diary)
        with pytest.raises(t3d.BrokenWatcher) as failure:
            run.loop()
    step = run.collector.steps
    assert str(failure.value) == (
        f"watcher Careless, {method}() raised ZeroDivisionError: {failure.value.__cause__} "
        f"(test_watchers.py:{line_of('step // 0')}); saved at step {step}, resume with: "
        f"t3d resume {tmp_path / 'run'}"
    )
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    assert t3d.inspect(tmp_path / "run")["step"] == step
    assert careless.ended
    assert diary.calls[-1][0] == "end"
    resumed(tmp_path / "run")
    assert same_bits(trained(tmp_path / "uninterrupted"), tmp_path / "run")


@pytest.mark.parametrize("method", ["on_start", "on_step", "on_record", "on_end", "state_dict"])
def test_a_watcher_that_ends_the_program_ends_the_run_saved(tmp_path: Path, method: str) -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    watcher = Watcher()
    setattr(watcher, method, leave)
    with pytest.raises(
        t3d.BrokenWatcher, match=rf"watcher Watcher, {method}\(\) raised SystemExit"
    ):
        train_with([watcher], tmp_path / "run")
    assert t3d.inspect(tmp_path / "run")["step"] is not None


def test_ctrl_c_in_a_watcher_is_not_the_watchers_error(tmp_path: Path) -> None:
    class Interrupted(Watcher):
        def on_step(self, step: int) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_with([Interrupted()], tmp_path / "run")


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def test_a_watcher_that_raises_at_the_end_keeps_nobody_else_from_ending() -> None:
    run, diary = start(), Diary()
    for watcher in (diary, Careless("on_end"), Diary()):
        run.watchers.append(watcher)
    assert run.loop()
    with pytest.raises(t3d.BrokenWatcher, match=r"watcher Careless, on_end\(\) raised ZeroDiv"):
        run.close()
    assert diary.calls[-1][0] == "end"


def train_with(watchers: list[Watcher], path: Path | None = None) -> None:
    with closing(start(path)) as run:
        for watcher in watchers:
            run.watchers.append(watcher)
        run.loop()


def test_a_watcher_that_raises_at_the_end_says_where_the_run_is(tmp_path: Path) -> None:
    where = "; saved at step 60, resume with: t3d resume "
    with pytest.raises(t3d.BrokenWatcher, match=rf"on_end\(\) raised ZeroDivisionError.*{where}"):
        train_with([Careless("on_end")], tmp_path / "run")


def test_a_watcher_that_raises_at_the_end_does_not_hide_why_the_run_ended() -> None:
    with pytest.raises(t3d.BrokenWatcher) as failure:
        train_with([Careless("on_end"), Careless("on_step")])
    assert str(failure.value).startswith("watcher Careless, on_step() raised ZeroDivisionError")
    (note,) = failure.value.__notes__
    assert note.startswith("watcher Careless, on_end() raised ZeroDivisionError")


@pytest.mark.parametrize("method", ["on_start", "on_step", "on_record", "on_end"])
def test_an_optional_watcher_that_raises_is_a_line_and_the_run_continues(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Display(Careless):
        optional = True

    display, diary = Display(method), Diary()
    train_with([display, diary])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"t3d: watcher Display, {method}() raised ZeroDivisionError")
    assert display.ended
    assert ("evaluation", 60) in diary.calls


class Misspelt(Watcher):
    def on_recrod(self, record: Record) -> None:
        pass


NO_WATCHERS: dict[str, tuple[Any, str]] = {
    "a class": ([Diary], r"a watcher is the class Diary; expected .*: create one: Diary\(\)"),
    "a function": ([print], r"a watcher is a builtin_function_or_method; expected an object of"),
    "none": (None, "watchers is a NoneType; expected a list of watchers"),
    "misspelt": ([Misspelt()], "watcher Misspelt has on_recrod, .*; did you mean 'on_record'"),
    "one": (Diary(), "watchers is a Diary; expected a list of watchers"),
}


@pytest.mark.parametrize(("watchers", "message"), NO_WATCHERS.values(), ids=NO_WATCHERS)
def test_what_is_no_watcher_is_refused_before_anything_is_written(
    tmp_path: Path, watchers: Any, message: str
) -> None:
    with pytest.raises(t3d.BadInput, match=message):
        t3d.train("Pendulum-v1", run=tmp_path / "run", watchers=watchers, quiet=True, **TINY)
    assert not (tmp_path / "run").exists()
    with closing(start()) as run, pytest.raises(t3d.BadInput, match="a watcher is"):
        run.watchers.append(print)  # type: ignore[arg-type]


def test_a_reason_that_is_no_text_is_refused() -> None:
    class SaysTrue(Watcher):
        def on_step(self, step: int) -> Any:
            return True

    with closing(start()) as run:
        run.watchers.append(SaysTrue())
        with pytest.raises(t3d.BrokenWatcher, match=r"it returned True; expected None, or why"):
            run.loop()


def test_an_agent_that_diverged_is_not_blamed_on_the_watcher_that_uses_it() -> None:
    class Asks(Watcher):
        def on_step(self, step: int) -> None:
            raise t3d.Diverged("critic_loss is nan")  # as `run.agent` does

    with closing(start()) as run:
        run.watchers.append(Asks())
        with pytest.raises(t3d.Diverged, match="the agent diverged by step 1: critic_loss is nan"):
            run.loop()


def test_names_choose_watchers_and_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(WATCHERS) == ["tensorboard", "wandb", "trackio", "mlflow"]
    (tensorboard,), missing = tracking.chosen()
    assert isinstance(tensorboard, TensorBoard)
    assert missing == []
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    assert tracking.chosen([]) == (
        [],
        [f"no TensorBoard events; to have them: {how_to_install('tensorboard')}"],
    )


class Patient(Watcher):
    def __init__(self) -> None:
        self.waited: list[str] = []

    def on_wait(self, what: str) -> None:
        self.waited.append(what)


@pytest.mark.parametrize(("seconds", "count"), [(0.0, 19 + 29 + 29), (1e9, 0)])
def test_what_takes_long_is_said_in_between(
    seconds: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "WAIT_SECONDS", seconds)
    patient = Patient()
    with closing(start(train_after="episode", updates_per_step=2.0, eval_every=0)) as run:
        run.watchers.append(patient)
        run.loop()
        # Episodes end at 30, 45 and 60; the last update of each runs on in the background.
        assert run.agent.updates == 20 + 30 + 30
    learning = [text for text in patient.waited if text.startswith("learning, ")]
    assert len(learning) == count
    assert ("learning, 30 updates, for 0 s so far" in learning) == (count > 0)
    evaluating = [text for text in patient.waited if text.startswith("evaluating 1 episodes, for")]
    assert bool(evaluating) == (count > 0)
    assert len(learning) + len(evaluating) == len(patient.waited)


def test_a_score_that_takes_long_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "WAIT_SECONDS", 0.0)
    run, heard = trained(tmp_path / "run", test_episodes=2), list[str]()
    finish(RunFolder(run), waiting=heard.append)
    # At the start of an episode of 15 steps and at each of them.
    assert [text.partition(",")[0] for text in heard] == ["episode 1 of 2"] * 16 + [
        "episode 2 of 2"
    ] * 16
    assert heard[0] == "episode 1 of 2, for 0 s so far"
