import importlib
import json
import re
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.commands import wait_for_step
from helpers.runs import TINY, t3d_process
from t3d.cli.main import main as command
from t3d.run.folder import RunFolder
from t3d.run.records import Episode, Stop

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which the examples can be imported, and that runs may be written to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("arm", "batched_carts", "own_agent", "own_body"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def typed(knobs: dict[str, Any]) -> list[str]:
    """Knobs as words of a command."""
    words: list[str] = []
    for name, value in knobs.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


def test_td3_by_hand_learns_to_swing_up(capsys: object) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"]
    returns = by_hand(steps=8_000)
    assert len(returns) == 40
    assert np.mean(returns[:5]) < -900  # random play
    assert np.mean(returns[-5:]) > -400  # with exploration noise on


def test_an_own_agent_trains_from_python_and_from_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_agent = importlib.import_module("own_agent")
    agent = own_agent.main(run="python", preset="default", quiet=True, **TINY)
    assert type(agent) is own_agent.Careful
    assert "the torque on a hanging pendulum: " in capsys.readouterr().out
    words = ["train", "Pendulum-v1", "--agent", "own_agent:Careful", "--preset", "default"]
    assert command([*words, "--run", "command", "--no-video", *typed(TINY)]) == 0
    out = capsys.readouterr().out
    assert "engine reference (fused runs the agent t3d, not own_agent:Careful)" in out
    # The same run, and not TD3's.
    t3d.train("Pendulum-v1", run="plain", preset="default", engine="reference", quiet=True, **TINY)
    digests = [t3d.inspect(name)["digest"] for name in ("python", "command", "plain")]
    assert digests[0] == digests[1] != digests[2]


def test_an_own_body_trains_from_python_and_from_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_body = importlib.import_module("own_body")
    agent = own_body.main(run="python", preset="default", quiet=True, **TINY)
    assert isinstance(next(agent.actor.layers.children()), own_body.Residual)
    words = ["train", "Pendulum-v1", "--body", "own_body:residual", "--preset", "default"]
    assert command([*words, "--run", "command", "--no-video", *typed(TINY)]) == 0
    out = capsys.readouterr().out
    assert "engine reference (fused has no network body own_body:residual, only mlp)" in out
    digests = [t3d.inspect(name)["digest"] for name in ("python", "command")]
    assert digests[0] == digests[1]
    assert command(["resume", "command", "--steps", "80", "--no-video"]) == 0


def test_a_watcher_stops_at_a_return(tmp_path: Path) -> None:
    stop_at_return = runpy.run_path(str(EXAMPLES / "stop_at_return.py"))["StopAtReturn"]
    run = tmp_path / "run"
    t3d.train(run=run, quiet=True, watchers=[stop_at_return(-1e4)], **TINY)
    *_, stop = RunFolder(run).records()
    assert isinstance(stop, Stop)
    assert (stop.step, stop.watcher) == (0, "StopAtReturn")
    assert stop.reason.endswith(", limit -10000.0")
    t3d.resume(run, quiet=True, watchers=[stop_at_return(1e4)])
    assert t3d.inspect(run)["finished"]


def test_the_loop_of_the_notes_runs(capsys: object) -> None:
    loop = runpy.run_path(str(EXAMPLES / "notes_loop.py"))["main"]
    short = {"max_timesteps": 400, "start_timesteps": 200}
    returns = loop(**short)
    assert len(returns) == 2
    assert loop(**short) == returns  # the same seed, the same numbers
    assert loop(**short, seed=1) != returns


def test_the_tour_runs_from_its_first_cell_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trained = t3d.train

    def train_a_little(env: Any, **knobs: Any) -> Any:
        sizes = {} if "from_run" in knobs else {"hidden": TINY["hidden"]}
        return trained(
            env, **knobs | {k: each for k, each in TINY.items() if k != "hidden"} | sizes
        )

    monkeypatch.setattr(t3d, "train", train_a_little)
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text("utf-8"))["cells"]
    namespace: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
    out = capsys.readouterr().out
    assert "critic_loss" in out
    assert namespace["tuned"].config.hidden == namespace["agent"].config.hidden
    assert t3d.inspect(f"{namespace['folder']}/third")["origin"]["agent"] == "memory"


def test_the_tour_is_a_notebook_without_outputs() -> None:
    text = (EXAMPLES / "tour.ipynb").read_text("utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert "".join(cell["source"]).strip()
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
        else:
            assert cell["cell_type"] == "markdown"
            for name in re.findall(r"`(docs/[\w.-]+)`", "".join(cell["source"])):
                assert (EXAMPLES.parent / name).is_file()


def test_the_arm_trains_from_python_and_from_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = importlib.import_module("arm")
    arm.main(run="python", quiet=True, **TINY)
    assert arm.__doc__
    text = arm.__doc__.partition("t3d train")[2].partition("\n\n")[0].replace("\\\n", " ")
    typed_words = shlex.split(text.replace("arm.toml", str(EXAMPLES / "arm.toml")))
    words = ["train", *typed_words, *typed(TINY), "--run", "command", "--no-video"]
    assert command(words) == 0
    out = capsys.readouterr().out
    assert "Score: " in out
    assert "success " in out
    digests = [t3d.inspect(name)["digest"] for name in ("python", "command")]
    assert digests[0] == digests[1]
    first, *_ = RunFolder("python").records(t3d.Evaluation)
    assert first.success == 0.0
    assert {"distance", "reward_distance", "reward_effort", "reward_there"} <= first.info.keys()
    assert t3d.inspect("python")["bit_exact"]


def test_the_arm_that_is_killed_resumes_to_the_same_bits_with_all_that_it_has(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments, a wrapper, histories, a schedule, and watchers with state and without."""
    watching = ["--watcher", "t3d:StopWithoutImprovement", "evaluations=99"]
    watching += ["t3d:Curriculum", "attribute=spread", "stages=[[0, 0.3], [1000, 1.0]]"]
    knobs: dict[str, Any] = TINY | {"steps": 3000, "frame_stack": 2, "action_history": 1}
    knobs |= {"checkpoint_every": 500, "eval_every": 1000, "log_every": 100, "gradient_clip": 1.0}
    knobs |= {"learning_rate_schedule": "linear", "layer_norm": "critic", "weight_decay": 0.01}
    words = ["train", "arm:Arm", "--env-kwargs", "payload=0.5", "--wrap", "arm:NoisySensors"]
    words += ["std=0.01", *typed(knobs), *watching, "--preset", "default", "--no-video"]
    assert command([*words, "--run", "uninterrupted"]) == 0
    trainer = t3d_process(*words, "--run", str(here / "killed"), cwd=EXAMPLES)
    wait_for_step(here / "killed", 1300, trainer)
    trainer.kill()
    trainer.communicate()
    assert command(["resume", "killed", "--no-video", *watching]) == 0
    facts = [t3d.inspect(name) for name in ("uninterrupted", "killed")]
    assert facts[0]["digest"] == facts[1]["digest"]
    assert facts[1]["bit_exact"]


def test_the_arm_reaches_the_target_that_it_is_steered_to() -> None:
    arm = runpy.run_path(str(EXAMPLES / "arm.py"))
    env = arm["Arm"](tolerance=0.05)
    env.reset(seed=0)
    env.target = arm["tip"](env.angles)  # where it is already
    _, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
    assert info["is_success"]
    assert reward == pytest.approx(0.5)
    assert not terminated
    assert not truncated
    for _ in range(59):
        *_, truncated, info = env.step(np.ones(2, np.float32))
    assert truncated  # and not terminated
    assert not info["is_success"]


def test_a_batched_simulator_in_pytorch_learns_to_stop_in_the_middle(here: Path) -> None:
    knobs: dict[str, Any] = {"env_backend": "batched", "num_envs": 32, "updates_per_step": 0.1}
    knobs |= {"steps": 32_000, "random_steps": 3_200, "hidden": (64, 64), "batch_size": 64}
    knobs |= {"learning_rate": 1e-3, "eval_every": 16_000, "eval_episodes": 5, "threads": 1}
    t3d.train("batched_carts:Carts", run="run", quiet=True, preset="default", **knobs)
    first, *_, last = RunFolder("run").records(t3d.Evaluation)
    assert last.mean > -20 > first.mean
    assert (last.success or 0.0) >= 0.8
    for episode in RunFolder("run").records(Episode):
        assert episode.length == 100 or (episode.return_ or 0) < -100  # off the rail
