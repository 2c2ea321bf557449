import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers import broken_envs
from helpers.runs import TINY, resumed, same_bits, trained
from t3d.cli.main import main
from t3d.config import FIXED, FREE, knob_types, knobs_of
from t3d.run.folder import RunFolder
from t3d.run.records import KnobChange
from t3d.show.report import report_data


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps, which are to be 60. Copy it before you change it."""
    run = trained(tmp_path_factory.mktemp("stopped") / "run", steps=30)
    edit(run, steps=60)
    return run


def edit(run: Path, **knobs: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | knobs))


def test_the_knobs_that_may_change_and_may_not_are_knobs_of_theirs() -> None:
    assert knob_types.keys() >= FREE | FIXED
    assert not FREE & FIXED
    assert knobs_of("machine", "records") | {"steps"} >= FREE
    assert not knobs_of("machine", "records") & FIXED


def test_an_edited_config_is_refused_and_the_message_says_how_to_change_it(
    tmp_path: Path, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    edit(run, exploration_noise=[0.3])
    assert main(["resume", str(run)]) == 2
    err = capsys.readouterr().err
    what = "exploration_noise was 0.1 at step 30, is 0.3"
    command = f"t3d resume {run} --set exploration_noise=0.3"
    assert f"{run / 'config.json'} was edited: {what}; put it back, or" in err
    assert err.endswith(f"change it on purpose: {command}\n")
    assert t3d.inspect(run)["step"] == 30

    assert main([*command.split()[1:], "--no-video"]) == 0
    note = "exploration_noise was 0.1, is 0.3; from here on the run is not bit-exact"
    assert f"note: {note}" in capsys.readouterr().out
    assert main(["inspect", str(run)]) == 0
    message = "not bit-exact: at step 30 exploration_noise was 0.1, is 0.3\n"
    assert message in capsys.readouterr().out


def test_what_was_empty_is_none(
    tmp_path: Path, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    edit(run, wrap=["my:Wrapper"], env_kwargs={"g": 5})
    assert main(["resume", str(run), "--trust"]) == 2
    assert "env_kwargs was none at step 30, is " in capsys.readouterr().err
    edit(run, env_kwargs={})
    assert main(["resume", str(run), "--trust"]) == 2
    assert "wrap was none at step 30, is my:Wrapper;" in capsys.readouterr().err


def test_what_a_run_keeps_cannot_change(
    tmp_path: Path, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    what = "seed was 0 at step 30, is 5; seed cannot change during a run"
    assert main(["resume", str(run), "--set", "seed=5"]) == 2
    assert f"{what}: train a new one" in capsys.readouterr().err
    edit(run, seed=5)
    with pytest.raises(t3d.BadInput, match=f"{what}: put it back in .*config.json, or train"):
        t3d.resume(run, quiet=True)
    edit(run, seed=0)
    for checkpoint in RunFolder(run).all_checkpoints():
        shutil.rmtree(checkpoint)
    with pytest.raises(
        t3d.BadInput, match="hidden was 8,8, is 4; hidden cannot change during a run"
    ):
        t3d.resume(run, quiet=True, hidden=4)
    with pytest.raises(t3d.BadInput, match="unknown knob 'lerning_rate'; did you mean"):
        t3d.resume(run, quiet=True, lerning_rate=4)  # type: ignore[call-arg]


def test_a_knob_that_is_changed_on_purpose_changes_the_run_from_there_on(
    tmp_path: Path, stopped: Path
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    before = shutil.copytree(stopped, tmp_path / "before")
    resumed(before)
    assert t3d.inspect(before)["bit_exact"]
    t3d.resume(run, quiet=True, learning_rate=0.01, threads=2)
    assert t3d.inspect(run)["not_bit_exact"] == ["at step 30 learning_rate was 0.0003, is 0.01"]
    assert (RunFolder(run).config().learning_rate, RunFolder(run).config().threads) == (0.01, 2)
    assert not same_bits(run, before)
    resumed(run, steps=90)  # the change counts once
    assert len(t3d.inspect(run)["not_bit_exact"]) == 1
    (change,) = RunFolder(run).records(KnobChange)
    assert (change.step, change.knob) == (30, "learning_rate")
    assert change.text == "learning_rate was 0.0003, is 0.01"
    (entry,) = report_data([run])["runs"]
    (knob,) = (each for each in entry["knobs"] if each["name"] == "learning_rate")
    assert knob["value"] == "0.01 (since step 30)"
    assert {"step": 30, "text": change.text} in entry["notes"]


def test_a_finished_run_says_first_what_cannot_change(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    with pytest.raises(t3d.BadInput, match="hidden cannot change during a run"):
        t3d.resume(run, quiet=True, hidden=4)
    # It has no score yet, and would only be scored: the change must not be forgotten.
    assert RunFolder(run).score() is None
    with pytest.raises(t3d.BadInput, match="is finished at step 60; train it further"):
        t3d.resume(run, quiet=True, learning_rate=0.01)


def test_a_run_without_a_checkpoint_begins_with_the_changed_knob(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    for checkpoint in RunFolder(run).all_checkpoints():
        shutil.rmtree(checkpoint)
    assert resumed(run, tau=0.1) == []
    assert same_bits(run, trained(tmp_path / "uninterrupted", tau=0.1))
    assert t3d.inspect(run)["bit_exact"]


@pytest.mark.parametrize(
    ("steps", "knobs", "extra"),
    [
        (45, {}, "no evaluation and no training record"),
        (40, {}, "no evaluation"),
        (45, {"eval_every": 15}, "no training record"),
        (30, {"eval_every": 0}, "no evaluation"),
        (30, {}, None),
        (32, {"num_envs": 4}, None),  # the first step beyond 30
        (36, {"num_envs": 4}, "no evaluation and no training record"),
    ],
)
def test_an_extended_run_says_what_it_has_at_its_old_end(
    tmp_path: Path, steps: int, knobs: dict[str, Any], extra: str | None
) -> None:
    run = trained(tmp_path / "run", steps=steps, **knobs)
    notes = resumed(run, steps=60)
    message = [f"at step {steps} steps was {steps}, is 60: a run of so many has {extra} here"]
    facts = t3d.inspect(run)
    assert facts["not_bit_exact"] == (message if extra else [])
    assert len(notes) == bool(extra)
    same = facts["digest"] == t3d.inspect(trained(tmp_path / "long", **knobs))["digest"]
    assert same is (extra is None)


FALLING: dict[str, Any] = {"learning_rate_schedule": "linear", "learning_rate": 0.01}


def test_another_end_of_a_schedule_is_recorded_also_before_the_old_one(tmp_path: Path) -> None:
    class Stops(t3d.Watcher):
        def on_step(self, step: int) -> str | None:
            return "enough" if step == 30 else None

    run = tmp_path / "run"
    t3d.train(run=run, quiet=True, watchers=[Stops()], **(TINY | FALLING))
    (note,) = resumed(run, steps=90)
    what = "steps was 60, is 90: a run of so many has other learning rates up to here"
    assert note.startswith(what)
    assert t3d.inspect(run)["not_bit_exact"] == [f"at step 30 {what}"]
    (change,) = RunFolder(run).records(KnobChange)
    assert (change.step, change.knob, change.text) == (30, "steps", what)
    resumed(run, steps=100)  # each new end is recorded
    assert len(t3d.inspect(run)["not_bit_exact"]) == 2


def test_before_the_first_update_a_schedule_may_have_another_end(tmp_path: Path) -> None:
    knobs = FALLING | {"random_steps": 30, "eval_every": 30}
    run = trained(tmp_path / "run", steps=30, **knobs)
    assert resumed(run, steps=60) == []
    assert same_bits(run, trained(tmp_path / "long", steps=60, **knobs))


def test_a_run_that_is_to_end_where_it_is_already_is_another(tmp_path: Path) -> None:
    class Stops(t3d.Watcher):
        def on_step(self, step: int) -> str | None:
            return "enough" if step == 45 else None

    t3d.train(run=tmp_path / "run", quiet=True, watchers=[Stops()], **TINY)
    resumed(tmp_path / "run", steps=45)
    (message,) = t3d.inspect(tmp_path / "run")["not_bit_exact"]
    assert message == "at step 45 steps was 60, is 45: it has played as many already"


def test_the_environment_of_evaluations_is_tried_too(tmp_path: Path) -> None:
    run, calm = tmp_path / "run", "helpers.broken_envs:Calm"
    with_state = "helpers.broken_envs:RemembersInReward"
    t3d.train(calm, eval_env=with_state, run=run, quiet=True, **TINY)
    assert RunFolder(run).config().remake_envs
    t3d.train(
        calm, eval_env="helpers.broken_envs:Lottery", run=tmp_path / "other", quiet=True, **TINY
    )
    assert not t3d.inspect(tmp_path / "other")["bit_exact"]


def test_an_environment_that_fails_to_close_is_remade_all_the_same(tmp_path: Path) -> None:
    class Stays(broken_envs.Calm):
        def close(self) -> None:
            raise RuntimeError("already closed")

    t3d.train(Stays, run=tmp_path / "run", quiet=True, remake_envs=True, **TINY)
    assert t3d.inspect(tmp_path / "run")["finished"]


def test_a_run_remakes_environments_that_carry_state_over_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env, run = broken_envs.RemembersInReward, tmp_path / "run"
    t3d.train(env, run=run, **TINY)
    note = "note: the environment carries state from one episode to the next: every episode gets"
    assert note in capsys.readouterr().out
    assert RunFolder(run).config().remake_envs
    resumed(run, env, steps=90)
    facts = t3d.inspect(run)
    assert facts["bit_exact"]
    played = "the current and the last episode of each environment were played again at step 60"
    assert facts["checked"] == [
        "a random episode was the same only in new environments",
        f"{played}: the same",
    ]
    assert main(["inspect", str(run)]) == 0
    assert "bit-exact in everything that was checked: a random epi" in capsys.readouterr().out


def test_a_run_on_an_environment_that_is_not_deterministic_is_not_called_exact(
    tmp_path: Path,
) -> None:
    t3d.train(broken_envs.Lottery, run=tmp_path / "run", quiet=True, **TINY)
    (message,) = t3d.inspect(tmp_path / "run")["not_bit_exact"]
    assert message.startswith("the environment is not deterministic: the same seed and actions")
