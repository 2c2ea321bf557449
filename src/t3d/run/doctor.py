"""Before hours are spent: what an environment is like, how long training takes, which knobs to set.

All of it is measured: with random actions, with the same seed more than once, and with a few
updates on the transitions that were played. Nothing is written.
"""

import math
import time
import warnings
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from gymnasium.utils.env_checker import check_env

from t3d.base import files
from t3d.base.errors import T3DError
from t3d.base.machine import available_memory
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.base.randomness import derived_seed, generator
from t3d.base.text import one_line
from t3d.config import Config
from t3d.learn.engines import agent_class, make_agent
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.envs import EnvMaker, GuardedEnv, Spaces, raise_interrupt, time_limit
from t3d.play.evaluate import EvaluationEnv, separate_env
from t3d.play.info import Survey
from t3d.play.repeating import try_to_repeat
from t3d.run.build import require_room_to_learn

_LARGE = 20.0  # observations or rewards that are often beyond this hamper learning
_SCALE_RATIO = 100.0  # so do observations of which one varies this many times as much as another
_SLOW = 0.002  # seconds that a step must take for a process of its own to pay
_IMAGE_BATCH = 64  # a batch size that learned well from images on a CPU
_IMAGE_SIDE = 64  # pixels; larger images are slow on a CPU
_MAX_STEPS = 20_000  # of random play
_GLANCE_SECONDS = 0.5  # of random play before a run


@dataclass
class RandomPlay:
    """Random episodes."""

    steps: int = 0
    vectors: list[Array] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # terminated, truncated, or neither
    lengths: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    info: Survey = field(default_factory=Survey)
    seconds: float = 0.0


@dataclass
class Diagnosis:
    """Facts about an environment, and advice with the knobs that follow it."""

    facts: dict[str, Any] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)  # knobs

    def advise(self, text: str, **flags: Any) -> None:
        """Add a piece of advice, and the knobs that it sets."""
        self.advice.append(text)
        self.flags |= flags


def examine(maker: EnvMaker, seconds: float = 5.0) -> Diagnosis:
    """The full diagnosis; `seconds` is about how long each part may take."""
    diagnosis, config = Diagnosis(), maker.config
    maker = replace(maker, config=replace(config, rate=0.0))  # nothing here needs to wait
    with closing(maker.make()) as env:
        diagnosis.facts["environment"] = describe_environment(maker)
        diagnosis.facts["observation"] = _describe_observation(env)
        diagnosis.facts["action"] = _describe_action(env)
        require_room_to_learn(env.layout, len(env.low), config)
        _check_variant(maker, env, diagnosis)
        memory = _memory(env, config)
        played = play(env, config, seconds, memory)
        _check_time_limit(env, played, config, diagnosis)
        _check_scales(env.layout, played, config, diagnosis)
        _check_info(played, config, diagnosis)
    _check_random_steps(config, diagnosis)
    if config.env_backend == "batched":
        diagnosis.facts["deterministic"] = "not known: a batch cannot repeat an episode"
    else:
        _check_rules(maker, diagnosis)
        _check_determinism(maker, seconds, diagnosis)
    updates_per_second = _updates_per_second(env, memory, config, seconds)
    _check_speed(env.layout, played, updates_per_second, config, diagnosis)
    _check_memory(memory, config, diagnosis)
    _check_images(env.layout, config, diagnosis)
    if {"image_size", "frame_stack"} & diagnosis.flags.keys():
        alone = {"num_envs": 1, "env_backend": config.env_backend}
        better = replace(config, **(diagnosis.flags | alone))
        with closing(replace(maker, config=better).make()) as env:
            memory = _memory(env, better)
            played = play(env, better, seconds / 5, memory)
            total = _predict(played, _updates_per_second(env, memory, better, seconds), better)
        diagnosis.facts["as advised"] = f"about {_duration(total)}, with one environment"
    return diagnosis


def glance(maker: EnvMaker, seconds: float | None = None) -> list[str]:
    """The quick part: advice from a moment of random play, in an environment of its own."""
    diagnosis, config = Diagnosis(), maker.config
    once = replace(maker, config=replace(config, env_restarts=0, rate=0.0))
    seconds = _GLANCE_SECONDS if seconds is None else seconds
    # An error here is an error in training too, which reports it and saves.
    with suppress(T3DError), closing(separate_env(once)) as env:
        played = play(env, config, seconds, None)
        _check_time_limit(env, played, config, diagnosis)
        _check_scales(env.layout, played, config, diagnosis)
        if isinstance(env, GuardedEnv):  # from another process no info comes
            _check_info(played, config, diagnosis)
    return diagnosis.advice


def _memory(env: GuardedEnv, config: Config) -> ReplayBuffer:
    return ReplayBuffer(min(config.capacity, _MAX_STEPS), env.layout, len(env.low))


def play(
    env: EvaluationEnv, config: Config, seconds: float, memory: ReplayBuffer | None
) -> RandomPlay:
    """Play random episodes for so long, and store their transitions in a memory, if any."""
    random = generator(config.seed, "random-actions")
    low, high = (bound.astype(np.float64) for bound in (env.low, env.high))
    played, until = RandomPlay(), time.perf_counter() + seconds
    image_bytes = env.layout.frame_stack * env.layout.frame_size
    while not played.steps or (time.perf_counter() < until and played.steps < _MAX_STEPS):
        state, _ = env.reset(seed=derived_seed(config.seed, "reset", 0, len(played.lengths)))
        state, length, total, end = state.copy(), 0, 0.0, ""  # an environment may write over it
        while (
            not end and not (length and time.perf_counter() > until) and played.steps < _MAX_STEPS
        ):
            action = random.uniform(low, high).astype(np.float32)
            began = time.perf_counter()
            observation, reward, terminated, truncated, info = env.step(action)
            after = observation.copy()
            played.seconds += time.perf_counter() - began
            end = "terminated" if terminated else "truncated" if truncated else ""
            if type(info) is dict:
                played.info.add(info)
            if memory is not None:
                memory.add(state, after, action, reward, terminated, truncated)
            played.steps += 1
            vector = after[image_bytes:].copy()  # begins where a float may
            played.vectors.append(vector.view(np.float32) if env.layout.images else vector)
            played.rewards.append(reward)
            length, total, state = length + 1, total + reward, after
        played.lengths.append(length)
        played.ends.append(end)
        if end:
            played.returns.append(total)
    return played


def describe_environment(maker: EnvMaker) -> str:
    """The environment, with its arguments and wrappers."""
    config = maker.config
    arguments = f" {config.env_kwargs}" if config.env_kwargs else ""
    wrapped = f", in {' '.join(config.wrap)}" if config.wrap else ""
    return f"{maker.name}{arguments}{wrapped}"


def _describe_observation(env: GuardedEnv) -> str:
    layout = env.layout
    parts = [f"image of {i.channels} x {i.height} x {i.width}" for i in layout.images]
    if layout.frame_stack > 1:
        parts = [f"{part}, stack of {layout.frame_stack}" for part in parts]
    if layout.vector:
        parts.append(f"vector of {layout.vector}")
    return ", ".join(parts)


def _describe_action(env: GuardedEnv) -> str:
    bounds = [f"{low:g} to {high:g}" for low, high in zip(env.low, env.high)]
    if len(set(bounds)) == 1:
        return f"{len(bounds)}, each from {bounds[0]}"
    return f"{len(bounds)}: {', '.join(bounds[:8])}{' ...' if len(bounds) > 8 else ''}"


def _check_variant(maker: EnvMaker, env: GuardedEnv, diagnosis: Diagnosis) -> None:
    """The environment of evaluations, if that is another."""
    variant = maker.for_evaluation()
    if variant is not maker:
        with closing(variant.make()) as other:
            Spaces.of(other).require_same(variant.name, Spaces.of(env), f"{env.name!r}")
        diagnosis.facts["evaluated in"] = describe_environment(variant)


def _check_time_limit(
    env: EvaluationEnv, played: RandomPlay, config: Config, diagnosis: Diagnosis
) -> None:
    declared = time_limit(env) if isinstance(env, GuardedEnv) else env.time_limit
    limit = config.max_episode_steps or declared
    finished = [length for length, end in zip(played.lengths, played.ends) if end]
    if finished:
        lengths = f"{min(finished)} to {max(finished)} steps"
        diagnosis.facts["episodes"] = f"{len(finished)}, of {lengths}"
        diagnosis.facts["random return"] = _spread(played.returns)
    else:
        diagnosis.facts["episodes"] = f"none ended within {sum(played.lengths):,} steps"
    cut = [length for length, end in zip(played.lengths, played.ends) if end == "truncated"]
    own = f"not declared; the environment truncated after {max(cut):,} steps" if cut else "none"
    diagnosis.facts["time limit"] = f"{limit:,} steps" if limit else own
    if not limit and not cut:
        what = "there is no time limit: an episode or an evaluation may never end"
        if config.env_backend == "batched":
            diagnosis.advise(f"{what}; have the simulator truncate them")
        else:
            diagnosis.advise(f"{what}; use --max-episode-steps", max_episode_steps=1000)


def _check_scales(layout: Layout, played: RandomPlay, config: Config, diagnosis: Diagnosis) -> None:
    rewards = np.abs(np.array(played.rewards)) * config.reward_scale
    diagnosis.facts["reward"] = _spread(played.rewards)
    average, largest = float(rewards.mean()), float(rewards.max())
    if not rewards.any():
        diagnosis.advise("random play got no reward other than 0: more exploration may help")
    elif average > _LARGE or average < 1e-3:
        scale = float(f"{10.0 ** -round(math.log10(largest)) * config.reward_scale:g}")
        what = f"rewards have a mean magnitude of {average:.3g} and a largest one of {largest:.3g}"
        diagnosis.advise(f"{what}: use --reward-scale {scale:g}", reward_scale=scale)
    if not layout.vector:
        return
    vectors = np.stack(played.vectors).astype(np.float64)  # squares of float32 may overflow
    spread, magnitude = vectors.std(axis=0), np.abs(vectors).mean(axis=0).max()
    diagnosis.facts["observed"] = f"{vectors.min():.3g} to {vectors.max():.3g}"
    constant = int((spread == 0).sum())
    if constant:
        diagnosis.facts["observed"] += f", {constant} of {layout.vector} never changed"
    moving = spread[spread > 0]
    ratio = float(moving.max() / moving.min()) if len(moving) else 1.0
    if not config.normalize_observations and (magnitude > _LARGE or ratio > _SCALE_RATIO):
        what = f"observation scales differ by up to {ratio:.3g} (largest mean magnitude"
        text = f"{what} {magnitude:.3g}): use --normalize-observations"
        diagnosis.advise(text, normalize_observations=True)


def _check_info(played: RandomPlay, config: Config, diagnosis: Diagnosis) -> None:
    """What of the info a run records, and what it leaves out."""
    names = played.info.names
    diagnosis.facts["info"] = ", ".join(names[:8]) + (" ..." if names[8:] else "") or "no numbers"
    for line in played.info.advice(config.log_info):
        diagnosis.advise(line)


def _spread(values: list[float]) -> str:
    if not values:
        return "none"
    array = np.array(values)
    return f"{array.mean():.4g} ± {array.std():.3g} ({array.min():.4g} to {array.max():.4g})"


def _check_random_steps(config: Config, diagnosis: Diagnosis) -> None:
    """A run that ends before it learns."""
    if config.steps <= config.random_steps:
        fewer = config.steps // 10
        what = f"nothing would be learned: all {config.steps:,} steps are random play"
        diagnosis.advise(f"{what}: use --random-steps {fewer}", random_steps=fewer)


def _check_rules(maker: EnvMaker, diagnosis: Diagnosis) -> None:
    """Gymnasium's own checks."""
    complaints: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with closing(maker.make()) as env:
            try:
                check_env(env.unwrapped, skip_render_check=True)
            except BaseException as error:  # any: it is reported
                raise_interrupt(error)
                complaints.append(one_line(error))
    for warning in caught:
        text = one_line(cast(Warning, warning.message))
        for noise in ("\\x1b[33m", "\\x1b[0m", "WARN: "):  # Gymnasium's, as `one_line` shows it
            text = text.replace(noise, "")
        if not text.startswith("For Box action spaces, we recommend"):  # any range will do
            complaints.append(text)
    diagnosis.facts["check_env"] = list(dict.fromkeys(complaints)) or "no complaints"


def _check_determinism(maker: EnvMaker, seconds: float, diagnosis: Diagnosis) -> None:
    trial = try_to_repeat(maker, seconds)
    diagnosis.facts["deterministic"] = {
        "always": "yes",
        "when new": "only when new: an episode depends on the episodes before it",
        "never": "no: the same seed and actions gave something else",
        "unknown": f"not known: {trial.why}",
    }[trial.repeats]
    if trial.repeats == "never":
        diagnosis.advise("a resumed run begins new episodes, and is not bit-exact")
    elif trial.repeats == "when new":
        what = "resumed runs are exact only with a new environment for each episode"
        diagnosis.advise(f"{what}: use --remake-envs", remake_envs=True)


def _check_speed(
    layout: Layout,
    played: RandomPlay,
    updates_per_second: float,
    config: Config,
    diagnosis: Diagnosis,
) -> None:
    kind, why = agent_class(config, layout)
    steps_per_second = played.steps / max(played.seconds, 1e-9)
    alone = ", one of a batch alone" if config.env_backend == "batched" else ""
    diagnosis.facts["environment's speed"] = f"{_rate(steps_per_second)} steps/s{alone}"
    reason = f" ({why})" if why else ""
    speed = f"{_rate(updates_per_second)} per second"
    diagnosis.facts["updates"] = f"{speed}, engine {kind.engine}{reason}"
    total = _duration(_predict(played, updates_per_second, config))
    diagnosis.facts[f"{config.steps:,} steps"] = f"about {total}, without evaluations"
    step, learning = 1 / steps_per_second, config.updates_per_step / updates_per_second
    if alone:
        return
    if step > max(learning, _SLOW) and config.num_envs == 1 and not config.rate:
        flags: dict[str, Any] = {"num_envs": 4, "env_backend": "processes"}
        what = "the environment is slower than learning"
        diagnosis.advise(f"{what}: use --num-envs 4 --env-backend processes", **flags)


def _check_memory(memory: ReplayBuffer, config: Config, diagnosis: Diagnosis) -> None:
    rows = min(config.capacity, config.steps)
    needed, free = rows * memory.row_bytes, available_memory()
    diagnosis.facts["replay memory"] = f"{files.size(needed)} for {rows:,} steps"
    if free is not None and needed > free and not config.replay_on_disk:
        capacity = int(0.9 * free / memory.row_bytes)
        what = f"the replay memory needs {files.size(needed)}; {files.size(free)} of RAM is free"
        diagnosis.advise(f"{what}: use --capacity {capacity}", capacity=capacity)


def _check_images(layout: Layout, config: Config, diagnosis: Diagnosis) -> None:
    for image in layout.images:
        if max(image.height, image.width) > _IMAGE_SIDE:
            what = f"images of {image.height} x {image.width} are slow on a CPU"
            diagnosis.advise(f"{what}: use --image-size 48 --grey", image_size=48, grey=True)
    if layout.images and config.batch_size > _IMAGE_BATCH and config.device == "cpu":
        what = f"batches of {config.batch_size} images are slow on a CPU, {_IMAGE_BATCH} learn too"
        diagnosis.advise(f"{what}: use --batch-size {_IMAGE_BATCH}", batch_size=_IMAGE_BATCH)
    if layout.images and layout.frame_stack == 1:
        diagnosis.advise("one image does not show motion: use --frame-stack 3", frame_stack=3)


def _updates_per_second(
    env: GuardedEnv, memory: ReplayBuffer, config: Config, seconds: float
) -> float:
    agent, _ = make_agent(config, env.layout, env.low, env.high)
    agent.prepare(lambda: None)
    agent.train(memory, config.policy_freq)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds or count == 0:
        agent.train(memory, config.policy_freq)
        count += config.policy_freq
    return count / (time.perf_counter() - began)


def _predict(played: RandomPlay, updates_per_second: float, config: Config) -> float:
    """Seconds that the run will take, by these measurements."""
    learning = max(0, config.steps - config.random_steps) * config.updates_per_step
    playing = config.steps * played.seconds / played.steps
    if config.rate:
        playing = max(playing, config.steps / config.rate)
    return playing + learning / updates_per_second


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    count = max(1, round(seconds))
    return f"{count} second{'s' if count > 1 else ''}"
