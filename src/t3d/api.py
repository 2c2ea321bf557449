"""What `import t3d` offers for complete runs: train, resume, inspect, load, evaluate, make_env."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from rich.console import Console

from t3d.base import output
from t3d.base.arguments import checked as checked_arguments
from t3d.config import Config, knob_types, unknown_knob
from t3d.learn.agent import Agent
from t3d.learn.engines import AgentSource, by_name
from t3d.learn.networks import Body
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.envs import EnvMaker, EnvSource, GuardedEnv, env_name
from t3d.play.making import unfolded
from t3d.play.single import lending, require_consent
from t3d.presets import resolve
from t3d.run import trust as trusting
from t3d.run.agents import evaluate as evaluate
from t3d.run.agents import load as load
from t3d.run.finish import finish
from t3d.run.folder import RunFolder
from t3d.run.inspect import inspect as inspect
from t3d.run.loop import Run
from t3d.run.session import Outcome, about
from t3d.run.start import Source, StartSource
from t3d.run.watchers import Watcher, checked
from t3d.show import progress
from t3d.show.pictures import pictures
from t3d.show.terminal import PatientConsole


class Knobs(TypedDict, total=False):
    """The knobs that `train` and `resume` take, for editors and type checkers: see config.py."""

    env_kwargs: Mapping[str, Any]
    wrap: str | Sequence[Any]
    eval_env: EnvSource | None
    eval_env_kwargs: Mapping[str, Any]
    steps: int
    seed: int
    num_envs: int
    collectors: int | None
    staleness: int
    ray: str
    collector_cpus: float
    env_backend: Literal["inline", "processes", "envpool", "batched"]
    env_deadline: float
    env_restarts: int
    eval_envs: int | None
    single_env: bool
    rate: float
    remake_envs: bool
    action_repeat: int
    max_episode_steps: int
    random_steps: int
    exploration: Literal["gaussian", "ou"]
    exploration_noise: float | Sequence[float]
    exploration_final: float | Sequence[float]
    exploration_steps: int
    exploration_pull: float
    pixels: bool
    grey: bool
    image_size: int
    frame_stack: int
    action_history: int
    image_shift: int
    image_channels: int
    features: int
    capacity: int
    sampling: Literal["auto", "uniform", "lap"]
    replay_on_disk: bool
    agent: AgentSource
    body: str | Body
    normalize_observations: bool
    reward_scale: float
    train_after: Literal["step", "episode"]
    updates_per_step: float
    batch_size: int
    hidden: int | Sequence[int]
    actor_hidden: int | Sequence[int]
    critic_hidden: int | Sequence[int]
    embedding: int
    encoder_hidden: int | Sequence[int]
    activation: Literal["relu", "elu", "tanh"]
    layer_norm: Literal["none", "critic", "both"]
    learning_rate: float
    actor_learning_rate: float
    critic_learning_rate: float
    learning_rate_schedule: Literal["constant", "linear", "cosine"]
    learning_rate_final: float
    gradient_clip: float
    weight_decay: float
    n_step: int
    discount: float
    tau: float
    target_every: int
    twins: bool
    policy_noise: float
    noise_clip: float
    policy_freq: int
    eval_every: int
    eval_episodes: int
    test_episodes: int
    log_every: int
    log_info: str
    checkpoint_every: int
    keep_checkpoints: int
    track: Literal["wandb", "trackio", "mlflow"] | Sequence[Literal["wandb", "trackio", "mlflow"]]
    engine: Literal["auto", "reference", "fused"]
    device: str
    threads: int
    overlap: bool


class Options(Knobs, total=False):
    """What `train` takes besides the environment and what it starts from: for `fine_tune`."""

    preset: str
    run: str | Path | None
    watchers: Sequence[Watcher]
    keep_memory: bool
    video: bool
    quiet: bool


@output.guarded(essential=False)
def train(
    env: EnvSource | None = None,
    *,
    preset: str = "auto",
    run: str | Path | None = None,
    from_run: StartSource | None = None,
    watchers: Sequence[Watcher] = (),
    keep_memory: bool = False,
    video: bool = False,
    quiet: bool = False,
    **knobs: Unpack[Knobs],
) -> Agent:
    """Train an agent, score it, and return the best one that was evaluated.

    `env` is a Gymnasium id, module:EnvId, module:callable, or a callable that makes an
    environment; by default Pendulum-v1, or the environment of the preset's file. `preset` is a
    name or a TOML file. `run` is the folder to write; by default a new one under runs/.
    `from_run` is what to start from instead of random networks: a run's folder, an agent's file, an
    agent, or a `t3d.Start` that says more. `watchers` follow the run and may stop it. With
    `keep_memory`, the replay memory is `memory` of the agent. `video` records an episode at the
    end; `quiet` prints nothing. `knobs` are fields of `Config`, over those of the preset; `agent`
    may be a class of yours, `body` a function, `env_kwargs` a dict, `wrap` a list of wrappers, each
    perhaps followed by a dict of its arguments, and `eval_env` a callable. With `single_env=True`,
    pass `random_steps` too: it agrees to that many steps with random actions. Ctrl-C saves, then
    raises KeyboardInterrupt.
    """
    env, given, eval_env = _named(env, knobs)
    preset, config = resolve(None if env is None else env_name(env), preset)
    config = Config.from_dict(dataclasses.asdict(config) | given)
    folder = RunFolder(RunFolder.free_path(config.env, config.seed) if run is None else run)
    folder.require_free()
    source = None if from_run is None else Source(from_run, given)
    config = source.config(config, given) if source else config
    require_consent(config, given)
    console, kept = PatientConsole(quiet=quiet), _Memory()
    watching = [*checked(watchers), kept] if keep_memory else watchers
    with lending(EnvMaker(env or config.env, config, eval_env)) as maker:
        outcome = progress.train(maker, folder, about(preset), console, watching, source=source)
        agent = _finished(outcome, maker, console, video)
    agent.memory = kept.memory
    return agent


class _Memory(Watcher):
    """Keeps the replay memory of a run beyond its end."""

    memory: ReplayBuffer | None = None

    def on_end(self, run: Run) -> None:
        """Take it."""
        self.memory = run.memory


@output.guarded(essential=False)
def resume(
    run: str | Path,
    *,
    env: EnvSource | None = None,
    watchers: Sequence[Watcher] = (),
    video: bool = False,
    quiet: bool = False,
    trust: bool = False,
    **knobs: Unpack[Knobs],
) -> Agent:
    """Resume a run from its newest checkpoint, to its end or to another number of `steps`.

    `env`, `agent` and `body` are needed only if those of the run cannot be imported. Of a run
    that was not trained here, pass them, or `trust=True` if you trust the code that it names.
    `knobs` are fields of `Config` to change from here on, such as `learning_rate`; the run records
    that.
    """
    folder = RunFolder.open(run)
    before = folder.config()
    source, changes, eval_env = _named(env, knobs)
    if env is not None and source is not env and env_name(env) == before.env:
        source = env  # an earlier version knew a partial by that name
        del changes["env_kwargs"]
    if changes.get("env_kwargs") == before.env_kwargs:
        del changes["env_kwargs"]
    config = Config.from_dict(vars(before) | changes)
    not_from_folder = [*changes, *(["env"] if env is not None else [])]
    trusting.require(run, config, not_from_folder=not_from_folder, trust=trust)
    console = PatientConsole(quiet=quiet)
    with lending(EnvMaker(source or config.env, config, eval_env)) as maker:
        outcome = progress.train(maker, folder, {}, console, watchers, changes.keys())
        return _finished(outcome, maker, console, video)


def _checked(knobs: Knobs) -> dict[str, Any]:
    """Knobs as a config takes them. `Config` checks their values."""
    for name in knobs:
        if name not in knob_types:
            raise unknown_knob(name)
    return by_name(dict(knobs))


def _named(
    env: EnvSource | None, given: Knobs
) -> tuple[EnvSource | None, dict[str, Any], EnvSource | None]:
    """What makes the environments, and knobs that name it: a partial gives its arguments, too.

    Returns the environment, the knobs and the environment of evaluations.
    """
    knobs = _checked(given)
    sources: dict[str, EnvSource | None] = {"env": env, "eval_env": given.get("eval_env")}
    for knob, source in sources.items():
        if source is None:
            continue
        sources[knob], arguments = unfolded(source)
        if arguments:
            typed = checked_arguments(f"{knob}_kwargs", knobs.get(f"{knob}_kwargs", {}))
            knobs[f"{knob}_kwargs"] = {**arguments, **typed}
    if sources["eval_env"] is not None:
        knobs["eval_env"] = env_name(sources["eval_env"])
    return sources["env"], knobs, sources["eval_env"]


def _finished(outcome: Outcome, maker: EnvMaker, console: Console, video: bool) -> Agent:
    """Score a trained run, draw it, and return its agent."""
    folder = outcome.folder
    notice = progress.speaker(console)
    if outcome.signal is not None:
        how = f"resume with t3d.resume({str(folder.path)!r})"
        notice(f"Stopped and saved; {how}")  # a traceback may hide the error's own text
        raise KeyboardInterrupt(f"saved; {how}")
    notice(progress.scoring(folder))
    played = maker.for_evaluation().source
    finished = finish(folder, pictures(video, played, notice), played, outcome.watchers, notice)
    progress.conclude(folder, finished, console)
    return load(folder.path, which=folder.scored_agent)


def make_env(
    run: str | Path,
    *,
    env: EnvSource | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    trust: bool = False,
) -> GuardedEnv:
    """The environment of a run as its agent sees it: `select_action` takes its observations.

    It has the arguments, wrappers and histories of the run; `env_kwargs` come on top of its
    arguments. Of a run that was not trained here, pass it, or `trust=True` if you trust the code
    behind it.
    """
    config = RunFolder.open(run).config()
    config = dataclasses.replace(config, eval_env=None, eval_env_kwargs={})
    not_from_folder = ["agent", "body", "ray", *(["env"] if env is not None else [])]
    trusting.require(run, config, not_from_folder=not_from_folder, trust=trust)
    return EnvMaker.variant(config, env, env_kwargs).make(render_mode=render_mode)
