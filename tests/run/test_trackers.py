import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import t3d
from helpers.runs import CLOCKED, TINY, read_json, t3d_process, trained
from helpers.stores import Points, Stored, in_mlflow, in_trackio, in_wandb
from t3d.base.extras import how_to_install
from t3d.run import tracking
from t3d.run.finish import Finished
from t3d.run.folder import RunFolder
from t3d.run.tracking import WATCHERS, ExperimentTracker, Tracker, record_id

pytestmark = [
    pytest.mark.xdist_group("trackers"),  # their stores are made once
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow uses it
]

# It does not go with the newest Pillow, so not every installation has it.
NAMES = ["wandb", "mlflow", "trackio"]
VARIABLES = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Stores in a temporary folder, and no network."""
    folder = tmp_path_factory.mktemp("stores")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        places = {"TRACKIO_DIR": f"{folder / 'trackio'}", "MLFLOW_TRACKING_URI": uri}
        for name, value in (VARIABLES | places).items():
            patch.setenv(name, value)
        patch.chdir(folder)  # MLflow keeps its artefacts there
        yield uri


@pytest.fixture(scope="module")
def run(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracked run that was stopped at step 55, lost its last checkpoint, and was resumed."""
    path = tmp_path_factory.mktemp("runs") / "tracked"
    track: list[Any] = ["wandb", "mlflow", "trackio"]
    t3d.train("Pendulum-v1", run=path, quiet=True, track=track, watchers=[StopsAt(55)], **TINY)
    shutil.rmtree(path / "checkpoints" / "step-000000000055")
    t3d.resume(path, steps=90, quiet=True, video=True)
    return path


def stored(name: str, run: Path, uri: str) -> Stored:
    known = record_id(RunFolder(run))
    if name == "mlflow":
        return in_mlflow(uri, known)
    if name == "trackio":
        return in_trackio(known)
    # Offline, every process of a run has a file of its own; they have the same id.
    first, last = (
        in_wandb(file) for file in sorted(run.glob(f"wandb/*-{known}/run-{known}.wandb"))
    )
    until = min(step for values in last.points.values() for step, _ in values)
    points = {
        name: [
            *((step, v) for step, v in first.points.get(name, []) if step < until),
            *last.points.get(name, []),
        ]
        for name in first.points | last.points
    }
    return last._replace(points=points, notes=first.notes | last.notes)


def expected(run: Path) -> Points:
    points: Points = {}
    for record in RunFolder(run).records():
        for name, value in record.numbers().items():
            points.setdefault(name, []).append((record.step, value))
    return without_clock(points)


def without_clock(points: Points) -> Points:
    return {name: v for name, v in points.items() if name.split("/")[1] not in CLOCKED}


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_has_one_record_with_every_number_once(
    name: str, run: Path, store: str
) -> None:
    points = stored(name, run, store).points
    logged = {key: v for key, v in points.items() if not key.startswith("score/")}
    assert without_clock(logged) == expected(run)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_has_the_config_the_versions_the_score_and_the_files(
    name: str, run: Path, store: str
) -> None:
    record = stored(name, run, store)
    knobs = {"env": "Pendulum-v1", "seed": 0, "preset": "Pendulum-v1", "hidden": (8, 8)}
    assert {key: plain(record.config[key]) for key in knobs} == {
        k: plain(v) for k, v in knobs.items()
    }
    assert record.config["version/torch"] == RunFolder(run).about()["versions"]["torch"]
    mean = read_json(run / "score.json")["mean"]
    assert record.points["score/mean"][-1][1] == pytest.approx(mean)
    assert {"report.html", "score.json", "config.json", "episode.mp4"} <= record.files
    assert record.notes["stop StopsAt at step 55"] == "enough"
    assert record.state in ("FINISHED", "exit 0", "")


def plain(value: Any) -> str:
    return str(tuple(value) if isinstance(value, list) else value)


def test_tracking_changes_no_bit_of_a_run(run: Path, tmp_path: Path) -> None:
    untracked = tmp_path / "untracked"
    t3d.train("Pendulum-v1", run=untracked, quiet=True, **TINY)
    shutil.rmtree(untracked / "checkpoints" / "step-000000000060")
    t3d.resume(untracked, steps=90, quiet=True)
    assert t3d.inspect(run)["digest"] == t3d.inspect(untracked)["digest"]


class Ledger(ExperimentTracker):
    """A tracker whose store is a dictionary that outlives it."""

    records: ClassVar[dict[str, Any]] = {}

    def begin(self, folder: RunFolder, id: str) -> None:
        self.calls = self.records.setdefault(id, [])
        self.before = {call[1:3] for call in self.calls if call[0] == "log"}
        self.calls.append(("begin",))

    def has(self, name: str, step: int) -> bool:
        return (name, step) in self.before

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.calls += [("log", name, step, value) for name, value in numbers.items()]

    def note(self, title: str, text: str, step: int) -> None:
        self.calls.append(("note", title, text, step))

    def keep(self, paths: dict[str, Path], step: int) -> None:
        self.calls.append(("keep", *sorted(paths)))

    def end(self, state: str) -> None:
        self.calls.append(("end", state))


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`track=["mlflow"]` is this tracker now."""
    use(monkeypatch, Ledger)
    monkeypatch.setattr(Ledger, "records", {})
    return Ledger.records


def use(monkeypatch: pytest.MonkeyPatch, tracker: type[ExperimentTracker]) -> None:
    monkeypatch.setitem(WATCHERS, "mlflow", Tracker(tracker, "json"))


def test_a_run_without_a_checkpoint_yet_continues_its_record(
    tmp_path: Path, ledger: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, track="mlflow", **TINY)
    shutil.rmtree(path / "checkpoints")
    (path / "checkpoints").mkdir()  # as if killed before the first
    t3d.resume(path, quiet=True)
    ((known, calls),) = ledger.items()
    assert read_json(path / "tracking.json") == {"id": known}
    logged = [call[1:3] for call in calls if call[0] == "log" and "score/" not in call[1]]
    assert len(logged) == len(set(logged))  # all once, though they were computed twice
    assert [call for call in calls if call[0] == "end"] == [("end", "finished")] * 2


def test_numbers_that_are_others_after_a_resume_are_logged_too(
    tmp_path: Path, ledger: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, track="mlflow", **TINY)
    shutil.rmtree(path / "checkpoints" / "step-000000000060")
    t3d.resume(path, quiet=True, learning_rate=0.01)
    (calls,) = ledger.values()
    losses = [call[3] for call in calls if call[:3] == ("log", "train/critic_loss", 60)]
    assert len(set(losses)) == 2


def test_a_run_that_was_trained_and_not_scored_gets_its_score_in_the_same_record(
    tmp_path: Path, ledger: dict[str, Any]
) -> None:
    path = trained(tmp_path / "run", track=("mlflow",))
    assert not ledger  # `trained` attaches no tracker
    t3d.resume(path, quiet=True)
    (calls,) = ledger.values()
    assert calls[0] == ("begin",)
    assert calls[-2:] == [("keep", "config", "curve", "report", "score"), ("end", "finished")]
    assert {call[1] for call in calls if call[0] == "log"} == {
        "score/mean",
        "score/std",
        "score/episodes",
    }


def test_the_record_has_the_success_and_the_info_of_the_score(
    tmp_path: Path, ledger: dict[str, Any]
) -> None:
    env = "helpers.telling_envs:Telling"
    t3d.train(env, run=tmp_path / "run", quiet=True, track="mlflow", **TINY)
    score = RunFolder(tmp_path / "run").score()
    assert score is not None
    (calls,) = ledger.values()
    logged = {call[1]: call[3] for call in calls if call[0] == "log"}
    assert logged["score/success"] == score["success"]
    assert {name for name in logged if name.startswith("score/info/")} == {
        *("score/info/cost", "score/info/count", "score/info/near")
    }


class StopsAt(t3d.Watcher):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int) -> str | None:
        return "enough" if step >= self.step else None


class FailsAt25(t3d.Watcher):
    def on_step(self, step: int) -> str | None:
        return step / 0 if step >= 25 else None  # type: ignore[return-value]


def test_a_record_says_how_the_run_ended(tmp_path: Path, ledger: dict[str, Any]) -> None:
    def train(name: str, *own: t3d.Watcher) -> None:
        knobs = TINY | {"eval_every": 0}
        t3d.train(
            "Pendulum-v1", run=tmp_path / name, quiet=True, track="mlflow", watchers=own, **knobs
        )

    train("stopped", StopsAt(25))
    with pytest.raises(t3d.BrokenWatcher):
        train("failed", FailsAt25())
    stopped, failed = ledger.values()
    assert ("note", "stop StopsAt", "enough", 25) in stopped
    assert stopped[-1] == ("end", "finished")  # its last agent has a score
    assert failed[-1] == ("end", "failed")


@pytest.mark.parametrize("method", ["begin", "log", "keep", "end"])
def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    method: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise ConnectionError("the network is gone")

    use(monkeypatch, type("Cut", (Ledger,), {method: fail}))
    knobs: Any = {"preset": "default", "track": "mlflow", **TINY}
    t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, **knobs)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("t3d: watcher Cut, on_")
    assert "raised ConnectionError: the network is gone" in line
    expected = t3d.inspect(trained(tmp_path / "expected"))["digest"]
    assert t3d.inspect(tmp_path / "run")["digest"] == expected


def test_a_server_that_is_not_there_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, track="mlflow", **TINY)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("t3d: ")]
    (line,) = lines
    assert line.startswith("t3d: watcher MLflow, on_start() raised MlflowException: API request")
    assert line.endswith("; the run continues without it")


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named_before_anything_is_written(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(t3d.BadInput) as refusal:
        t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, track=[name], **TINY)
    assert str(refusal.value) == (
        f"track names {name}, which is not installed: {how_to_install(name)}"
    )
    assert not (tmp_path / "run").exists()


def test_a_folder_of_the_name_of_a_package_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(WATCHERS, "wandb", Tracker(Ledger, "no_package"))
    with pytest.raises(t3d.BadInput, match="track names wandb, which is not installed"):
        tracking.chosen(["wandb"])


def test_wandb_without_an_account_is_one_line_and_no_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "none"))
    process = t3d_process("train", "--track", "wandb", "--run", "run", cwd=tmp_path)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors == (
        "t3d: track names wandb, and there is no account of W&B here; log in with `wandb login`,"
        " or set WANDB_MODE=offline\n"
    )
    assert output == "Pendulum-v1, 10,000 steps: loading PyTorch ...\n"
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> t3d.Watcher:
        raise ValueError("1 validation error\nmode: Input should be 'online' or 'offline'")

    monkeypatch.setitem(WATCHERS, "wandb", Tracker(refuses, "wandb"))
    expected = r"^wandb cannot be used: ValueError: 1 validation error mode: Input should be"
    with pytest.raises(t3d.BadInput, match=expected):
        tracking.chosen(["wandb"])


def test_an_id_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "tracking.json").write_text('{"id": "../../elsewhere"}')
    with pytest.raises(t3d.BadInput, match=r"tracking\.json has no id; delete it to begin a new"):
        record_id(folder)


def test_names_of_trackers_are_checked() -> None:
    assert t3d.Config(track="mlflow").track == ("mlflow",)  # type: ignore[arg-type]
    assert t3d.Config(track="mlflow,wandb").track == ("mlflow", "wandb")  # type: ignore[arg-type]
    assert t3d.Config(track=["wandb", "mlflow", "wandb"]).track == ("wandb", "mlflow")  # type: ignore[arg-type]
    with pytest.raises(
        t3d.BadInput, match="track is 'wandbb'; expected one of: wandb, trackio, mlf"
    ):
        t3d.Config(track=("wandbb",))  # type: ignore[arg-type]


def test_a_watcher_hears_of_the_score_and_the_files(tmp_path: Path) -> None:
    class Hears(t3d.Watcher):
        def on_finish(self, folder: RunFolder, finished: Finished) -> None:
            self.heard = folder.score(), set(finished.files)

    hears = Hears()
    t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, watchers=[hears], **TINY)
    assert hears.heard == (RunFolder(tmp_path / "run").score(), {"curve", "report"})
    assert hears.heard[0] is not None


def test_a_watcher_that_raises_at_the_finish_is_named(tmp_path: Path) -> None:
    class Careless(t3d.Watcher):
        def on_finish(self, folder: RunFolder, finished: Finished) -> None:
            raise ZeroDivisionError

    with pytest.raises(t3d.BrokenWatcher, match=r"watcher Careless, on_finish\(\) raised ZeroDiv"):
        t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, watchers=[Careless()], **TINY)
    assert RunFolder(tmp_path / "run").score() is not None
