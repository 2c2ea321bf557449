"""A search of a few tiny runs: tried, stored, pruned, stopped and resumed."""

import dataclasses
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest

import t3d
from helpers.commands import TINY_FLAGS, assert_refused, wait_for_step
from helpers.runs import TESTS, TINY, same_bits, same_bits_and_records, t3d_process
from t3d import Config, T3DError
from t3d.base.extras import how_to_install
from t3d.cli.main import main
from t3d.presets import read, resolve
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock, alone, is_locked
from t3d.show.terminal import PatientConsole
from t3d.show.tuning import TuningWatcher, draw
from t3d.study.plan import Plan, choose
from t3d.study.storage import open_study
from t3d.study.tune import Result, _next_trial, importances, results, search

# The searches that several tests read are made once, so in one process.
pytestmark = pytest.mark.xdist_group("tune")

SEARCH = ["--search", "learning_rate", "tau", "exploration_noise"]
# A value outside of every range to search, with which trial 0 starts all the same.
BAD = 'why = "bad on purpose"\n[knobs]\ntau = 0.9\n'


def trials(out: Path) -> list[Any]:
    """The trials of the study in a folder, as Optuna reads them."""
    storage = f"sqlite:///{out / 'study.db'}"
    return optuna.load_study(study_name=out.name, storage=storage).get_trials()


def plan(out: Path, trials: int, **changed: Any) -> Plan:
    """A search for tau, from the defaults with some changes."""
    base = Config(**{**TINY, **changed})
    return Plan(base, ("tau",), trials, out, None, {"preset": "default", "command": "t3d tune"})


def run(plan: Plan, study: optuna.Study) -> list[Result]:
    """Run the missing trials."""
    watcher = TuningWatcher(PatientConsole(quiet=True), plan, [])
    search(plan, study, lambda: False, watcher)
    return results(plan, study)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "bad.toml").write_text(BAD)
    words = ["tune", "Pendulum-v1", *TINY_FLAGS, *SEARCH, "--trials", "4"]
    words += ["--preset", str(folder / "bad.toml"), "--out", str(folder / "out")]
    assert main(words) == 0
    return folder / "out"


def test_trial_0_is_the_start_and_others_differ(tuned: Path) -> None:
    configs = [RunFolder(tuned / f"trial-000{n}").config() for n in range(4)]
    start: dict[str, Any] = {**vars(resolve("Pendulum-v1")[1]), **TINY}
    began = Config(**start | {"tau": 0.9, "engine": configs[0].engine})
    assert configs[0] == began
    assert len({config.tau for config in configs}) == 4
    for config in configs:
        searched: dict[str, Any] = {name: getattr(config, name) for name in SEARCH[1:]}
        assert dataclasses.replace(began, **searched) == config
    assert RunFolder(tuned / "trial-0001").about()["preset"].endswith("bad.toml")


def test_a_trial_is_worth_the_last_third_of_its_evaluations(tuned: Path) -> None:
    for trial in trials(tuned):
        records = RunFolder(tuned / f"trial-{trial.number:04}").records(t3d.Evaluation)
        means = [record.mean for record in records]
        assert len(means) == 3  # at steps 0, 30 and 60
        assert trial.value == means[-1]
        assert trial.intermediate_values == dict(zip((0, 30, 60), means))


def test_best_toml_trains_the_best_trial_again_bit_for_bit(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = max(trials(tuned), key=lambda trial: trial.value)
    preset = tuned / "best.toml"
    why = read(str(preset)).why
    assert why.startswith(
        f"trial {best.number} of 4, with a score of {best.value:,.1f} on Pendulum"
    )
    again = tmp_path / "again"
    assert "steps" not in read(str(preset)).knobs  # those of a trial are few
    flags = ["--preset", str(preset), "--threads", "1", "--no-video", "--run", str(again)]
    assert main(["train", "Pendulum-v1", "--steps", "60", *flags]) == 0
    assert f"preset {preset}" in capsys.readouterr().out
    assert RunFolder(again).about()["preset"] == str(preset)
    assert same_bits(again, tuned / f"trial-{best.number:04}")
    api = t3d.train(preset=str(preset), steps=60, threads=1, run=tmp_path / "api", quiet=True)
    assert same_bits(again, tmp_path / "api")
    assert api.config.tau == best.params["tau"]


LONGER = ["tune", "Pendulum-v1", *TINY_FLAGS, *SEARCH, "--steps", "1500", "--trials", "3"]
LONGER += ["--eval-every", "500", "--checkpoint-every", "100", "--out"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that nothing interrupted."""
    out = tmp_path_factory.mktemp("uninterrupted") / "out"
    assert main([*LONGER, str(out)]) == 0
    return out


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_study_that_is_stopped_resumes_to_the_same_end(
    tmp_path: Path, sent: signal.Signals, code: int, uninterrupted: Path
) -> None:
    stopped = tmp_path / "stopped"
    tuner = t3d_process(*LONGER, str(stopped), cwd=tmp_path)
    wait_for_step(stopped / "trial-0001", 300, tuner)
    tuner.send_signal(sent)
    out, _ = tuner.communicate(timeout=300)
    assert tuner.returncode == code
    if sent == signal.SIGTERM:
        assert f"Resume with: t3d {' '.join(LONGER)} {stopped}" in out
    assert [trial.state.name for trial in trials(stopped)] == ["COMPLETE", "RUNNING"]
    reached = RunFolder(stopped / "trial-0001").newest_checkpoint()
    assert reached is not None
    assert reached.name < "step-000000001500"

    assert main([*LONGER, str(stopped)]) == 0
    for mine, theirs in zip(trials(stopped), trials(uninterrupted), strict=True):
        assert (mine.state, mine.value, mine.params) == (theirs.state, theirs.value, theirs.params)
        assert mine.intermediate_values == theirs.intermediate_values
    assert same_bits_and_records(stopped / "trial-0001", uninterrupted / "trial-0001")


def test_two_processes_share_the_trials(tmp_path: Path) -> None:
    words = ["tune", "Pendulum-v1", *TINY_FLAGS, *SEARCH, "--trials", "5", "--out", "out"]
    both = [t3d_process(*words, cwd=tmp_path) for _ in range(2)]
    for each in both:
        _, err = each.communicate(timeout=300)
        assert (each.returncode, err) == (0, "")
    assert [trial.state.name for trial in trials(tmp_path / "out")] == ["COMPLETE"] * 5
    assert len(list((tmp_path / "out").glob("trial-*"))) == 5


def test_trials_train_in_parallel_and_the_search_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tune", "Pendulum-v1", *TINY_FLAGS, *SEARCH, "--jobs", "2", "--out", "out"]
    assert main([*words, "--trials", "3"]) == 0
    capsys.readouterr()
    assert main([*words, "--trials", "4"]) == 0
    out, err = capsys.readouterr()
    assert "4 trials, of which 3 have ended" in out
    assert "4 of 4  trial 3" in out
    assert err == ""
    assert [trial.state.name for trial in trials(tmp_path / "out")] == ["COMPLETE"] * 4
    configs = [RunFolder(tmp_path / f"out/trial-000{n}").config() for n in range(4)]
    assert len({config.tau for config in configs}) == 4
    assert not list((tmp_path / "out").glob("*.log"))


def test_an_error_of_a_parallel_trial_ends_the_search_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)  # where the processes of the search import `helpers` from
    flags = [*TINY_FLAGS, *SEARCH, "--eval-every", "0", "--jobs", "2"]
    words = ["tune", "helpers.broken_envs:NanObservation", *flags, "--out", str(tmp_path / "out")]
    assert_refused(words, "step 3: observation[1] is nan", capsys)
    assert_refused([*words, "--jobs", "0"], "jobs is 0; expected at least 1", capsys)


def test_a_signal_stops_every_parallel_trial_and_saves_it(tmp_path: Path) -> None:
    words = ["tune", "Pendulum-v1", *TINY_FLAGS, *SEARCH, "--steps", "100000", "--trials", "4"]
    words += ["--eval-every", "0", "--jobs", "2", "--out", "out"]
    tuner = t3d_process(*words, cwd=tmp_path)
    for number in range(2):
        wait_for_step(tmp_path / f"out/trial-000{number}", 100, tuner)
    tuner.send_signal(signal.SIGTERM)
    out, err = tuner.communicate(timeout=300)
    assert (tuner.returncode, err) == (143, "")
    assert f"Stopped and saved. Resume with: t3d {' '.join(words)}" in out
    for number in range(2):
        folder = RunFolder(tmp_path / f"out/trial-000{number}")
        assert folder.newest_checkpoint() is not None
        assert not is_locked(folder)


@pytest.mark.parametrize("looks", range(1, 5))
def test_a_trial_that_ends_meanwhile_is_counted_once(
    tmp_path: Path, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = plan(tmp_path / "out", trials=1)
    study = open_study(mine)
    with alone(mine.out) as owner:
        trial = _next_trial(mine, study, owner)
        assert trial is not None
        mine.folder(0).path.mkdir()
        lock = Lock(mine.folder(0))  # as the process that plays it has
        look, left = study.get_trials, [looks]

        def look_and_end(*words: Any, **more: Any) -> Any:
            trials_now = look(*words, **more)
            left[0] -= 1
            if left[0] == 0:
                study.tell(trial, 1.0)
            return trials_now

        monkeypatch.setattr(study, "get_trials", look_and_end)
        assert _next_trial(mine, study, owner) is None
        lock.release()


def test_a_trial_elsewhere_is_left_alone(tmp_path: Path) -> None:
    mine = plan(tmp_path / "out", trials=1)
    study = open_study(mine)
    elsewhere = study.ask()  # trial 0, on a machine with a folder of its own
    elsewhere.set_user_attr("owner", "another")
    assert [each.number for each in run(mine, study)] == [1]
    assert study.trials[0].state.name == "RUNNING"


def test_a_finished_trial_is_reported_and_one_without_a_folder_starts(tmp_path: Path) -> None:
    mine = plan(tmp_path / "out", trials=2)
    study = open_study(mine)
    (first,) = run(dataclasses.replace(mine, trials=1), study)
    # As if killed before the result of one trial was stored, and before another had a folder.
    with closing(sqlite3.connect(tmp_path / "out" / "study.db")) as database, database:
        database.execute("UPDATE trials SET state = 'RUNNING', datetime_complete = NULL")
        database.execute("DELETE FROM trial_values")
    study = open_study(mine)
    study.ask().set_user_attr("owner", (tmp_path / "out" / ".folder").read_text())
    both = run(mine, study)
    assert both[0] == first
    assert [each.ended for each in both] == ["finished", "finished"]


def better(study: optuna.Study, count: int) -> None:
    """Add trials with a return that a pendulum never has."""
    tau = optuna.distributions.FloatDistribution(0.001, 0.08, log=True)
    for step in range(count):
        study.add_trial(
            optuna.create_trial(
                params={"tau": 0.01 + step / 1000},
                distributions={"tau": tau},
                value=step,
                intermediate_values={30: 0.0, 60: 0.0},
            )
        )


def test_a_trial_far_below_the_others_is_pruned_and_can_be_resumed(tmp_path: Path) -> None:
    mine = plan(tmp_path / "out", trials=6)
    study = open_study(mine)
    better(study, 5)
    (pruned,) = [each for each in run(mine, study) if each.ended != "finished"]
    assert (pruned.number, pruned.ended, pruned.step) == (0, "pruned", 30)
    folder = tmp_path / "out" / "trial-0000"
    *_, last = RunFolder(folder).records(t3d.Evaluation)
    assert (last.step, last.mean) == (30, pruned.value)
    t3d.resume(folder, quiet=True)
    assert t3d.inspect(folder)["step"] == 60


def test_trials_that_diverge_do_not_end_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tune", "helpers.odd_envs:HugeReward", *TINY_FLAGS, *SEARCH, "--trials", "2"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out.count("diverged at step") == 2
    assert err.count("\n") == 1
    assert "none of 2 trials finished" in err


def test_a_broken_environment_ends_the_study_and_the_trial_can_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*TINY_FLAGS, *SEARCH, "--eval-every", "0", "--out", str(tmp_path / "out")]
    words = ["tune", "helpers.broken_envs:NanObservation", *flags]
    assert_refused(words, "step 3: observation[1] is nan", capsys)
    assert [trial.state.name for trial in trials(tmp_path / "out")] == ["RUNNING"]


def test_what_is_typed_is_not_searched() -> None:
    assert "tau" in choose(Config(), (), ())
    assert "tau" not in choose(Config(), ("tau",), ())
    assert choose(Config(), (), ("tau", "hidden")) == ("tau", "hidden")
    each = Config(exploration_noise=(0.1, 0.2))
    assert "exploration_noise" not in choose(each, (), ())
    with pytest.raises(T3DError, match="a value per dimension cannot be searched"):
        choose(each, (), ("exploration_noise",))


def test_the_folder_of_another_search_is_refused(
    tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = ["--preset", str(tuned.parent / "bad.toml")]
    same = ["tune", "Pendulum-v1", *TINY_FLAGS, *preset, "--out", str(tuned)]
    before = sorted(tuned.iterdir())
    for words, message in [
        ([*same, *SEARCH, "--steps", "61"], f"steps is 61, and the study of {tuned} has 60;"),
        ([*same, "--search", "tau"], f"search is tau, and the study of {tuned} has expl"),
        (["tune", "MountainCarContinuous-v0", *same[2:], *SEARCH], "env is MountainCarContin"),
    ]:
        assert_refused([*words, "--trials", "9"], message, capsys)
    assert sorted(tuned.iterdir()) == before


def test_a_study_of_an_earlier_version_has_the_defaults_of_knobs_that_are_new(
    tmp_path: Path,
) -> None:
    study = open_study(plan(tmp_path / "out", 1))
    stored = dict(study.user_attrs["plan"])
    del stored["weight_decay"]
    study.set_user_attr("plan", stored)
    open_study(plan(tmp_path / "out", 1))
    with pytest.raises(t3d.BadInput, match=r"weight_decay is 0.1, and .* has 0.0; choose another"):
        open_study(plan(tmp_path / "out", 1, weight_decay=0.1))


def test_a_lost_study_is_rebuilt_from_its_runs(tmp_path: Path) -> None:
    mine = plan(tmp_path / "out", trials=2)
    before = run(mine, open_study(mine))
    (tmp_path / "out" / "study.db").rename(tmp_path / "study.db")
    assert run(mine, open_study(mine)) == [each._replace(step=0) for each in before]
    (tmp_path / "out" / "study.db").rename(tmp_path / "again.db")
    other = plan(tmp_path / "out", trials=2, discount=0.5)
    with pytest.raises(T3DError, match="trial-0000 is a run of something else"):
        run(other, open_study(other))


def test_a_password_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://me:secret@localhost/x"
    assert main(["tune", "--storage", url, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "the storage postgresql://me:***@localhost/x cannot be used" in err
    assert not (tmp_path / "out").exists()


def test_importances_are_drawn_once_enough_trials_finished(tmp_path: Path) -> None:
    mine = plan(tmp_path / "out", trials=1)
    study = open_study(mine)
    better(study, 4)
    with pytest.raises(T3DError, match="4 trials finished, and it takes 5"):
        importances(study)
    better(study, 4)
    shares = importances(study)
    assert shares == {"tau": pytest.approx(1.0)}
    files = draw("a title", results(mine, study), shares, tmp_path / "importance")
    assert [file.name for file in files] == ["importance.png", "importance.svg"]
    words = files[1].read_text("utf-8")
    for word in ("a title", "tau", "best so far", "importance of the knobs"):
        assert word in words


def test_without_optuna_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "import sys; sys.modules['optuna'] = None; from t3d.cli.main import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", code, "tune", "Pendulum-v1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"t3d: tune needs an extra: {how_to_install('tune')}\n"
    assert list(tmp_path.iterdir()) == []
