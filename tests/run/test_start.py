import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import t3d
from helpers import own_agents
from helpers.commands import TINY_FLAGS, assert_refused
from helpers.runs import TINY, resumed, saved_arrays, trained
from t3d.cli.main import main
from t3d.learn.saving import saved_config
from t3d.play.envs import EnvMaker, env_name
from t3d.run import session, trust
from t3d.run.folder import RunFolder
from t3d.run.session import about, open_run
from t3d.run.start import Source, Start, StartSource


class Wider(gym.ObservationWrapper[Any, Any, Any]):
    """A pendulum that shows its speed first, then a number that means nothing, then its angle."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (4,), np.float32)

    def observation(self, observation: Any) -> Any:
        cosine, sine, speed = observation
        return np.array([speed, 9.0, cosine, sine], np.float32)


class TwoActions(gym.ActionWrapper[Any, Any, Any]):
    """A pendulum with a second action that does nothing."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.action_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def action(self, action: Any) -> Any:
        return action[:1]


class Weaker(gym.ActionWrapper[Any, Any, Any]):
    """A pendulum that allows half the torque."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: Any) -> Any:
        return action


MAP = [2, None, 0, 1]  # from a pendulum to the wider one


def started(path: Path, start: StartSource, env: Any = "Pendulum-v1", **knobs: Any) -> Path:
    """Begin a tiny run from another one, as `t3d train --from` does, and take no step."""
    typed = {k: each for k, each in TINY.items() if k not in ("hidden", "capacity")} | knobs
    source = Source(start, typed)
    config = source.config(t3d.Config.from_dict({"env": env_name(env), **typed}), typed)
    with closing(open_run(EnvMaker(env, config), RunFolder(path), about("x"), source=source)):
        return path


def first_agent(run: Path) -> dict[str, torch.Tensor]:
    """The state that a run started with."""
    return load_file(RunFolder(run).checkpoints / "step-000000000000" / "agent.safetensors")


def last_agent(run: Path) -> dict[str, torch.Tensor]:
    path = RunFolder(run).last_agent()
    assert path
    return load_file(path)


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TRIAL_SECONDS", 0.01)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "source"
    return trained(path, normalize_observations=True, seed=5)


@pytest.fixture
def source(tmp_path: Path, original: Path) -> Path:
    """The folder of a run to start from."""
    return Path(shutil.copytree(original, tmp_path / "source"))


@pytest.mark.parametrize("optimizers", [False, True])
@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_a_run_starts_with_networks_and_normaliser_of_another(
    tmp_path: Path, source: Path, engine: str, optimizers: bool
) -> None:
    run = started(tmp_path / "run", Start(source, "last", optimizers), engine=engine)
    plain = trained(tmp_path / "plain", steps=1, normalize_observations=True, engine=engine)
    there, here, fresh = last_agent(source), first_agent(run), last_agent(plain)
    for name, value in here.items():
        part = name.partition(".")[0]
        if part in ("actor", "actor_target", "critic", "critic_target", "normalizer"):
            assert torch.equal(value, there[name]), name
        elif part.endswith("_optimizer"):
            expected = there[name] if optimizers else torch.zeros_like(value)
            assert torch.equal(value, expected), name
        else:  # counters and random streams are the run's own
            assert torch.equal(value, fresh[name]), name
    assert int(here["updates"]) == 0
    assert int(there["updates"]) == 40


def test_the_best_agent_is_taken_unless_the_last_is_asked_for(tmp_path: Path, source: Path) -> None:
    best = load_file(source / "best.safetensors")["actor.layers.0.weight"]
    last = last_agent(source)["actor.layers.0.weight"]
    assert not torch.equal(best, last)
    file = tmp_path / "file.safetensors"
    shutil.copy(source / "best.safetensors", file)
    starts: dict[str, tuple[StartSource, torch.Tensor]] = {
        "best": (source, best),
        "last": (Start(source, "last"), last),
        "file": (file, best),
        "agent": (t3d.load(source), best),
    }
    digests = {}
    for name, (start, expected) in starts.items():
        run = started(tmp_path / name, start)
        assert torch.equal(first_agent(run)["actor.layers.0.weight"], expected), name
        origin = t3d.inspect(run)["origin"]
        assert origin["agent"] == {"agent": "memory"}.get(name, name)
        digests[name] = origin["sha256"]
    assert digests["best"] == digests["file"] == digests["agent"] != digests["last"]


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"engine": "reference", "num_envs": 2},
        {"env": Wider, "random_steps": 0},
    ],
)
def test_a_run_that_started_from_another_resumes_exactly_and_without_it(
    tmp_path: Path, source: Path, knobs: dict[str, Any]
) -> None:
    wider = knobs.get("env") is Wider
    start = Start(source, "last", True, not wider, MAP if wider else None)
    for name in ("whole", "killed", "parts"):
        started(tmp_path / name, start, **knobs)
    shutil.rmtree(source)
    env = knobs.get("env")
    digests = []
    for name, stop in (("whole", 0), ("parts", 33), ("killed", 47)):
        run = tmp_path / name
        if stop:
            folder = RunFolder(run)
            maker = EnvMaker(env or folder.config().env, folder.config())
            with closing(open_run(maker, folder, {})) as half:
                while half.collector.steps < stop:
                    if half._evaluation_due():
                        half.evaluate()
                    half.step()
                if name == "parts":  # the other is killed: what it did is lost
                    half.checkpoint()
        resumed(run, env)
        facts = t3d.inspect(run)
        assert facts["finished"]
        assert facts["bit_exact"]
        digests.append(facts["digest"])
    assert len(set(digests)) == 1


def test_the_memory_comes_along_and_its_episodes_have_ended(tmp_path: Path, source: Path) -> None:
    kept = t3d.train(
        from_run=Start(source, memory=True),
        run=tmp_path / "run",
        keep_memory=True,
        quiet=True,
        **TINY | {"steps": 1, "random_steps": 1, "num_envs": 1},
    )
    assert kept.memory is not None
    assert len(kept.memory) == 61
    stored = saved_arrays(source)
    for name in ("action", "reward", "state"):
        mine = getattr(kept.memory, name)[:60]
        assert np.array_equal(mine, stored[f"memory-rows-0000000000.{name}"]), name
    # The last transition of the old run is not continued by the first of the new one.
    assert kept.memory.batch(np.array([59]), n_step=5).steps.tolist() == [1.0]


def test_sizes_are_those_of_the_source_unless_they_are_typed(tmp_path: Path) -> None:
    there: dict[str, Any] = {
        "hidden": (6, 5),
        "body": "layer_norm",
        "reward_scale": 0.5,
        "capacity": 500,
    }
    source = trained(tmp_path / "source", steps=30, learning_rate=1e-2, **there)
    config = RunFolder(started(tmp_path / "run", source)).config()
    assert (config.hidden, config.body, config.reward_scale) == ((6, 5), "layer_norm", 0.5)
    assert (config.capacity, config.learning_rate) == (t3d.Config().capacity, 3e-4)
    config = RunFolder(started(tmp_path / "memory", Start(source, memory=True))).config()
    assert config.capacity == 500
    config = RunFolder(started(tmp_path / "typed", source, reward_scale=2)).config()
    assert config.reward_scale == 2


@pytest.mark.parametrize(
    ("env", "knobs", "message"),
    [
        (
            "Pendulum-v1",
            {"hidden": (8, 9)},
            r"^actor.layers.2.weight is of shape \(8, 8\) in .*source, of shape \(9, 8\) here: "
            "it has --hidden 8 8, not --hidden 8 9; leave that out$",
        ),
        (
            "Pendulum-v1",
            {"hidden": (8, 8, 8)},
            r"actor.layers.4.weight is of shape \(1, 8\) in .*source, of shape \(8, 8\) here: ",
        ),
        (
            "Pendulum-v1",
            {"body": "layer_norm"},
            "actor.layers.1.weight is missing in .*source, of shape .* here: it has --body mlp, ",
        ),
        (
            "Pendulum-v1",
            {"normalize_observations": False},
            r"normalizer.count is of shape \(\) in .*, missing here: it has --normalize-obs",
        ),
        (
            Wider,
            {},
            r"^actor.layers.0.weight is of shape \(8, 3\) in .*source, of shape \(8, 4\) here: "
            r"its observations have 3 numbers, those here 4; from Python, t3d.Start\(..., observ",
        ),
        (
            TwoActions,
            {},
            r"^actor.layers.4.weight is of shape \(1, 8\) in .*source, of shape \(2, 8\) here: "
            "its actions have size 1, those here 2; train without --from$",
        ),
    ],
)
def test_the_first_layer_that_does_not_fit_is_named_and_nothing_is_written(
    tmp_path: Path, source: Path, env: Any, knobs: dict[str, Any], message: str
) -> None:
    with pytest.raises(t3d.BadInput, match=message):
        started(tmp_path / "run", source, env, **knobs)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("normalize", [False, True])
def test_mapped_observations_leave_the_policy_and_the_values_as_they_were(
    tmp_path: Path, normalize: bool
) -> None:
    trained(tmp_path / "old", normalize_observations=normalize)
    old = t3d.load(tmp_path / "old")
    start = Start(tmp_path / "old", optimizers=True, observation_map=MAP)
    run = started(tmp_path / "run", start, Wider)
    new = t3d.load(run, which="last")
    states = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    for extra in (0.0, 7.0):  # the new number changes nothing yet
        wide = np.insert(states[:, [2, 0, 1]], 1, extra, axis=1)
        np.testing.assert_allclose(new.select_action(wide), old.select_action(states), atol=1e-5)
        np.testing.assert_allclose(new.value(wide), old.value(states), atol=1e-5)
    moments = "critic_optimizer.twin2.0.weight.exp_avg_sq"
    there, here = old.state_dict()[moments], new.state_dict()[moments]
    assert torch.equal(here, torch.cat([there[:, 2:3], 0 * there[:, :1], there[:, [0, 1, 3]]], 1))
    assert t3d.inspect(run)["origin"]["observation_map"] == MAP


def test_mapped_observations_of_td7_leave_the_policy_and_the_values_as_they_were(
    tmp_path: Path,
) -> None:
    trained(tmp_path / "old", agent="td7", embedding=6)
    old = t3d.load(tmp_path / "old")
    run = started(tmp_path / "run", Start(tmp_path / "old", observation_map=MAP), Wider)
    new = t3d.load(run, which="last")
    states = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    wide = np.insert(states[:, [2, 0, 1]], 1, 7.0, axis=1)
    np.testing.assert_allclose(new.select_action(wide), old.select_action(states), atol=1e-5)
    np.testing.assert_allclose(new.value(wide), old.value(states), atol=1e-5)
    for network in ("encoder", "fixed_encoder_target"):
        assert (new.state_dict()[f"{network}.f.0.weight"][:, 1] == 0).all()


@pytest.mark.parametrize("wrong", [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, -1], [0, 1, 2, 1.0], []])
def test_a_map_that_does_not_fit_is_refused(tmp_path: Path, source: Path, wrong: list[Any]) -> None:
    message = "expected 4 entries, each None or a number from 0 to 2"
    with pytest.raises(t3d.BadInput, match=message):
        started(tmp_path / "run", Start(source, observation_map=wrong), Wider)


def test_what_a_source_does_not_have_is_said(tmp_path: Path, source: Path) -> None:
    file = source / "best.safetensors"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "nowhere", {}, "no run folder at"),
        (7, {}, "a run cannot start from 7; expected a run's folder, an agent's file or an agent"),
        (Start(source, "worst"), {}, "which is 'worst'"),  # type: ignore[arg-type]
        (Start(file, memory=True), {}, "is an agent's file, which has no memory; name its run's"),
        (Start(t3d.load(source), memory=True), {}, "the agent has no memory; train it with keep_"),
        (
            Start(source, memory=True),
            {"capacity": 70},
            "has capacity 1000, not 70; leave out --cap",
        ),
    ]
    for start, knobs, message in cases:
        with pytest.raises(t3d.BadInput, match=message):
            started(tmp_path / "run", start, **knobs)
    with pytest.raises(t3d.BadInput, match="has other observations; leave it there"):
        started(tmp_path / "run", Start(source, memory=True, observation_map=MAP), Wider)
    assert not (tmp_path / "run").exists()


def test_an_agent_that_has_diverged_is_no_start(tmp_path: Path, source: Path) -> None:
    agent = t3d.load(source)
    with torch.no_grad():
        next(agent.critic.parameters())[0, 0] = torch.nan
    with pytest.raises(t3d.BadInput, match=r"the agent has diverged: .*; start from another agent"):
        started(tmp_path / "run", agent)
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_killed_before_it_stored_its_start_is_not_resumed(
    tmp_path: Path, source: Path
) -> None:
    run = started(tmp_path / "run", source)
    shutil.rmtree(run / "checkpoints" / "step-000000000000")
    message = f"stopped before it had stored what it took from {source}; remove it, and train again"
    with pytest.raises(t3d.BadInput, match=message):
        resumed(run)


def test_another_range_of_actions_scales_them_and_a_note_says_so(
    tmp_path: Path, source: Path
) -> None:
    start = Source(source, {})
    config = start.config(t3d.Config.from_dict({"env": "Weaker", **TINY}), TINY)
    folder = RunFolder(tmp_path / "run")
    with closing(open_run(EnvMaker(Weaker, config), folder, about("x"), source=start)) as run:
        assert run.notes == [
            f"starts from the best agent of {source} (step {start.origin.step}, "
            f"{start.agent.updates} updates)",
            "actions were [-2.0] to [2.0], are [-1.0] to [1.0]: the policy's are scaled",
            "the first 20 steps are random play all the same; --random-steps 0 plays the loaded"
            " policy from the start",
        ]
        state = np.array([0.1, 0.2, 0.3], np.float32)
        half = start.agent.select_action(state) / 2
        np.testing.assert_allclose(run.agent.select_action(state), half, rtol=1e-5)


def test_an_agent_of_ones_own_starts_from_plain_td3(tmp_path: Path, source: Path) -> None:
    run = started(tmp_path / "run", source, agent="helpers.own_agents:Timid")
    assert type(t3d.load(run, which="last", importing=True)) is own_agents.Timid


def test_code_that_only_the_source_names_is_refused_until_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange_body.py").write_text(
        "from t3d.learn.networks import mlp\ndef plain(*a): return mlp(*a)\n"
    )
    trained(Path("source"), body="strange_body:plain")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    monkeypatch.setattr(trust, "_granted", set())
    monkeypatch.delitem(sys.modules, "strange_body")
    capsys.readouterr()
    how = "if you trust it, name it yourself with --agent or --body"
    begin = ["train", "--no-video", "--from", "source", "--run", "run", *TINY_FLAGS]
    assert_refused(begin, how, capsys)
    assert "strange_body" not in sys.modules
    with pytest.raises(t3d.BadInput, match=how):
        t3d.train(from_run="source", run="run", quiet=True)
    assert not Path("run").exists()
    assert main([*begin, "--body", "strange_body:plain"]) == 0


def test_the_environment_of_the_source_need_not_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap = "helpers.own_wrappers:Scale"
    other = {"eval_env": "helpers.broken_envs:Calm"}
    trained(tmp_path / "a", wrap=(wrap,))
    trained(tmp_path / "b", env="helpers.broken_envs:Calm", **other)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    monkeypatch.setattr(trust, "_granted", set())
    for name in ("a", "b"):
        Source(tmp_path / name, {})  # nothing of it is imported
    with pytest.raises(t3d.BadInput, match="names the wrapper"):
        t3d.make_env(tmp_path / "a")


def test_other_knobs_of_the_networks_are_noted(tmp_path: Path, source: Path) -> None:
    start = Source(source, {"activation": "tanh"})
    config = start.config(
        t3d.Config.from_dict({**TINY, "activation": "tanh"}), TINY.keys() | {"activation"}
    )
    with closing(
        open_run(
            EnvMaker("Pendulum-v1", config), RunFolder(tmp_path / "r"), about("x"), source=start
        )
    ) as run:
        assert run.notes[1] == (
            "it learned with --activation relu, this run has --activation tanh: the same weights"
            " may act or learn differently"
        )


def test_the_command_starts_from_a_run_and_inspect_says_from_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(Path("a"), hidden=(7, 7))
    flags = [*TINY_FLAGS]
    at = flags.index("--hidden")
    del flags[at : at + 3]
    take = ["--from-last", "--from-optimizers", "--from-memory"]
    begin = ["train", "Pendulum-v1", "--no-video", *flags]
    assert main([*begin, "--from", "a", *take, "--run", "b"]) == 0
    what = "the last agent of a (step 60, 40 updates), with its optimizers and memory"
    assert f"note: starts from {what}\n" in capsys.readouterr().out
    assert RunFolder("b").config().hidden == (7, 7)
    assert saved_config(Path("b/best.safetensors")).hidden == (7, 7)
    assert main(["inspect", "b"]) == 0
    digest = t3d.inspect("b")["origin"]["sha256"]
    assert f"started from {what}; its agent's SHA-256 is {digest}\n" in capsys.readouterr().out
    assert main(["inspect", "a"]) == 0
    assert "started from" not in capsys.readouterr().out
    assert_refused([*begin, "--from", "a", "--seeds", "2"], "--from starts one run;", capsys)
    assert_refused([*begin, "--from-memory"], "name it with --from RUN", capsys)
    assert_refused([*begin, "--from", "none"], "no run folder at none", capsys)


def test_an_agent_fine_tunes_a_copy_of_itself(tmp_path: Path, source: Path) -> None:
    agent = t3d.load(source)
    before = agent.state_dict()
    knobs = {k: each for k, each in TINY.items() if k != "hidden"}
    knobs |= {"random_steps": 0, "keep_checkpoints": 9}
    better = agent.fine_tune("Pendulum-v1", run=tmp_path / "run", quiet=True, **knobs)
    assert better is not agent
    assert better.config.hidden == (8, 8)
    assert all(torch.equal(value, before[k]) for k, value in agent.state_dict().items())
    first = first_agent(tmp_path / "run")["actor.layers.0.weight"]
    assert torch.equal(first, before["actor.layers.0.weight"])
    assert not torch.equal(last_agent(tmp_path / "run")["actor.layers.0.weight"], first)


def test_runs_that_started_from_another_share_no_curve_with_others(
    tmp_path: Path, source: Path
) -> None:
    from t3d.study.evaluations import curves

    started(tmp_path / "run", source)
    resumed(tmp_path / "run")
    (lines,) = curves([source, tmp_path / "run"]).values()
    assert any("from another run" in line.label for line in lines)
    assert len(lines) == 2
