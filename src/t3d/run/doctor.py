"""Before hours are spent: what an environment is like, what training on it will take, what to set.

Everything is found out by playing: random actions, the same seed more than once, and a few
updates on what was played. Nothing is written.
"""

import math
import time
import warnings
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from t3d.base import files
from t3d.base.errors import T3DError
from t3d.base.machine import available_memory
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.base.randomness import derived_seed, generator
from t3d.config import Config
from t3d.learn.engines import agent_class, make_agent
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.envs import EnvMaker, GuardedEnv

_LARGE = 20.0  # an observation or a reward that is often beyond this hampers learning
_APART = 100.0  # so do observations of which one is this many times as large as another
_SLOW = 0.002  # seconds that a step must take for a process of its own to be worth it
_IMAGES = 64  # in a batch, which learned well on a CPU
_MOST = 20_000  # steps are enough to tell


@dataclass
class Played:
    """Random episodes."""

    steps: int = 0
    vectors: list[Array] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # terminated, truncated, or neither
    lengths: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Diagnosis:
    """What was found, and what to do about it."""

    facts: dict[str, Any] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)  # knobs

    def advise(self, text: str, **flags: Any) -> None:
        """Add a piece of advice, and the knobs that it sets."""
        self.advice.append(text)
        self.flags |= flags


def examine(maker: EnvMaker, seconds: float = 5.0) -> Diagnosis:
    """All of it; `seconds` is about how long each part may take."""
    found, config = Diagnosis(), maker.config
    with closing(maker.make()) as env:
        found.facts["environment"] = env.name
        found.facts["observation"] = _describe(env)
        found.facts["action"] = _actions(env)
        memory = ReplayBuffer.of(env.layout, len(env.low), min(config.capacity, _MOST))
        played = play(env, config, seconds, memory)
        _judge_limit(env, played, config, found)
        _judge_scales(env.layout, played, config, found)
    _judge_rules(maker, found)
    _judge_determinism(maker, found, seconds)
    _judge_cost(env, played, memory, config, found, seconds)
    if {"image_size", "frame_stack"} & found.flags.keys():
        alone = {"num_envs": 1, "env_backend": config.env_backend}
        better = replace(config, **(found.flags | alone))
        with closing(EnvMaker(maker.source, better).make()) as env:
            memory = ReplayBuffer.of(env.layout, len(env.low), min(config.capacity, _MOST))
            played = play(env, better, seconds / 5, memory)
            total = _predict(played, _updates_per_second(env, memory, better, seconds), better)
        found.facts["as advised"] = f"about {_clock(total)}, with one environment"
    return found


def glance(maker: EnvMaker, seconds: float = 0.5) -> list[str]:
    """The quick part: advice from a moment of random play, in an environment of its own."""
    found, config = Diagnosis(), maker.config
    # What breaks here breaks in training too, which says so and saves.
    with suppress(T3DError), closing(maker.make()) as env:
        played = play(env, config, seconds, None)
        _judge_limit(env, played, config, found)
        _judge_scales(env.layout, played, config, found)
    return found.advice


def play(env: GuardedEnv, config: Config, seconds: float, memory: ReplayBuffer | None) -> Played:
    """Random episodes, for so long; what they gave, also in a memory."""
    random = generator(config.seed, "random-actions")
    low, high = (bound.astype(np.float64) for bound in (env.low, env.high))
    played, until = Played(), time.perf_counter() + seconds
    skipped = env.layout.frame_stack * env.layout.frame_size
    while not played.steps or (time.perf_counter() < until and played.steps < _MOST):
        state, _ = env.reset(seed=derived_seed(config.seed, "reset", 0, len(played.lengths)))
        state, length, total, end = state.copy(), 0, 0.0, ""  # an environment may write over it
        while not end and not (length and time.perf_counter() > until) and played.steps < _MOST:
            action = random.uniform(low, high).astype(np.float32)
            began = time.perf_counter()
            shown, reward, terminated, truncated, _ = env.step(action)
            after = shown.copy()
            played.seconds += time.perf_counter() - began
            end = "terminated" if terminated else "truncated" if truncated else ""
            if memory is not None:
                memory.add(state, after, action, reward, terminated, truncated)
            played.steps += 1
            vector = after[skipped:].copy()  # begins where a float may
            played.vectors.append(vector.view(np.float32) if env.layout.images else vector)
            played.rewards.append(reward)
            length, total, state = length + 1, total + reward, after
        played.lengths.append(length)
        played.ends.append(end)
        if end:
            played.returns.append(total)
    return played


def _describe(env: GuardedEnv) -> str:
    layout = env.layout
    parts = [f"image of {i.channels} x {i.height} x {i.width}" for i in layout.images]
    if layout.frame_stack > 1:
        parts = [f"{part}, stack of {layout.frame_stack}" for part in parts]
    if layout.vector:
        parts.append(f"vector of {layout.vector}")
    return ", ".join(parts)


def _actions(env: GuardedEnv) -> str:
    bounds = [f"{low:g} to {high:g}" for low, high in zip(env.low, env.high)]
    if len(set(bounds)) == 1:
        return f"{len(bounds)}, each from {bounds[0]}"
    return f"{len(bounds)}: {', '.join(bounds[:8])}{' ...' if len(bounds) > 8 else ''}"


def _judge_limit(env: GuardedEnv, played: Played, config: Config, found: Diagnosis) -> None:
    limit = config.max_episode_steps or (env.spec.max_episode_steps if env.spec else None)
    if not played.lengths:
        return
    whole = [n for n, end in zip(played.lengths, played.ends) if end]
    if whole:
        found.facts["episodes"] = f"{len(whole)}, of {min(whole)} to {max(whole)} steps"
        found.facts["random return"] = _spread(played.returns)
    else:
        found.facts["episodes"] = f"none came to its end in {sum(played.lengths):,} steps"
    found.facts["time limit"] = f"{limit:,} steps" if limit else "none that is known"
    if not limit and not any(end == "truncated" for end in played.ends):
        found.advise(
            "no time limit is known: an episode, or an evaluation, may never end",
            max_episode_steps=1000,
        )


def _judge_scales(layout: Layout, played: Played, config: Config, found: Diagnosis) -> None:
    rewards = np.array(played.rewards)
    found.facts["reward"] = _spread(played.rewards)
    usual = float(np.abs(rewards).mean()) * config.reward_scale
    largest = float(np.abs(rewards).max(initial=0)) * config.reward_scale
    if rewards.size and not rewards.any():
        found.advise("random play never found a reward that is not 0: more exploration may")
    elif usual > _LARGE or (largest > 0 and usual < 1e-3):
        scale = 10.0 ** -round(math.log10(largest)) * config.reward_scale
        text = f"rewards are usually about {usual:.3g}, up to {largest:.3g}: scale them"
        found.advise(text, reward_scale=float(f"{scale:g}"))
    if not layout.vector:
        return
    vectors = np.stack(played.vectors)
    spread, size = vectors.std(axis=0), np.abs(vectors).mean(axis=0)
    moving = spread[spread > 0]
    found.facts["observed"] = f"{vectors.min():.3g} to {vectors.max():.3g}"
    still = int((spread == 0).sum())
    if still:
        found.facts["observed"] += f", {still} of {layout.vector} never changed"
    apart = float(moving.max() / moving.min()) if len(moving) else 1.0
    if not config.normalize_observations and (size.max() > _LARGE or apart > _APART):
        what = (
            f"they are up to {size.max():.3g} on average, and one varies {apart:.3g} times as much"
        )
        text = f"observations differ much in size ({what} as another): normalise them"
        found.advise(text, normalize_observations=True)


def _spread(values: list[float]) -> str:
    if not values:
        return "none"
    array = np.array(values)
    return f"{array.mean():.4g} ± {array.std():.3g} ({array.min():.4g} to {array.max():.4g})"


def _judge_rules(maker: EnvMaker, found: Diagnosis) -> None:
    """Gymnasium's own checks."""
    complaints: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with closing(maker.make()) as env:
            try:
                check_env(env.unwrapped, skip_render_check=True)
            except Exception as error:  # whatever it finds, it is to be told
                complaints.append(" ".join(str(error).split()) or type(error).__name__)
    for warning in caught:
        text = " ".join(str(warning.message).replace("\x1b[33m", "").replace("\x1b[0m", "").split())
        text = text.removeprefix("WARN: ")
        if not text.startswith("For Box action spaces, we recommend"):  # any range will do
            complaints.append(text)
    found.facts["check_env"] = list(dict.fromkeys(complaints)) or "nothing to complain about"


def _judge_determinism(maker: EnvMaker, found: Diagnosis, seconds: float) -> None:
    """The same seed and actions in new environments, and in one with a past."""

    def episode(env: GuardedEnv, number: int, steps: int = 150) -> bytes:
        random = np.random.default_rng(number)
        state, _ = env.reset(seed=number)
        seen, low, high = [state.tobytes()], env.low.astype(float), env.high.astype(float)
        until = time.perf_counter() + 3
        for _ in range(steps):
            state, _, terminated, truncated, _ = env.step(
                random.uniform(low, high).astype(np.float32)
            )
            seen.append(state.tobytes())
            if terminated or truncated or time.perf_counter() > until:
                break
        return b"".join(seen)

    def same(one: bytes, other: bytes) -> bool:
        length = min(len(one), len(other))  # a slow one may have been broken off
        return one[:length] == other[:length]

    with closing(maker.make()) as one, closing(maker.make()) as other:
        fresh = same(episode(one, 100), episode(other, 100))
        later, number, until = True, 0, time.perf_counter() + seconds
        while later and number < 8 and time.perf_counter() < until:
            episode(one, number)
            number += 1
            with closing(maker.make()) as new:
                later = same(episode(one, 100 + number), episode(new, 100 + number))
    if not fresh:
        found.facts["deterministic"] = "no: the same seed and actions gave something else"
        found.advise("a resumed run begins its current episodes anew, and is not bit-exact")
    elif not later:
        found.facts["deterministic"] = "only when new: an episode depends on those before it"
        found.advise(
            "for resumed runs to be exact, make it anew for each episode", remake_envs=True
        )
    else:
        found.facts["deterministic"] = "yes"


def _judge_cost(
    env: GuardedEnv,
    played: Played,
    memory: ReplayBuffer,
    config: Config,
    found: Diagnosis,
    seconds: float,
) -> None:
    layout = env.layout
    kind, why = agent_class(config, layout)
    updates_per_second = _updates_per_second(env, memory, config, seconds)
    steps_per_second = played.steps / max(played.seconds, 1e-9)
    found.facts["environment's speed"] = f"{_rate(steps_per_second)} steps/s"
    found.facts["updates"] = (
        f"{_rate(updates_per_second)} per second, engine {kind.engine}{f' ({why})' if why else ''}"
    )
    total = _predict(played, updates_per_second, config)
    found.facts[f"{config.steps:,} steps"] = f"about {_clock(total)}, evaluations aside"
    rows = min(config.capacity, config.steps)
    needed, free = rows * memory.row_bytes, available_memory()
    found.facts["replay memory"] = f"{files.size(needed)} for {rows:,} steps"
    if free is not None and needed > free and not config.replay_on_disk:
        fits = int(0.9 * free / memory.row_bytes)
        text = f"{files.size(needed)} is more than the {files.size(free)} of RAM that is free"
        found.advise(text, capacity=fits)
    for image in layout.images:
        if max(image.height, image.width) > 64:
            text = f"images of {image.height} x {image.width} are slow on a CPU: make them smaller"
            found.advise(text, image_size=48, grey=True)
    if layout.images and config.batch_size > _IMAGES and config.device == "cpu":
        text = (
            f"batches of {config.batch_size} images are slow on a CPU: {_IMAGES} learned well too"
        )
        found.advise(text, batch_size=_IMAGES)
    if layout.images and layout.frame_stack == 1:
        found.advise("one image does not show how things move: stack some", frame_stack=3)
    wait, learn = 1 / steps_per_second, config.updates_per_step / updates_per_second
    if wait > max(learn, _SLOW) and config.num_envs == 1:
        text = "the environment is slower than learning: play several at once"
        found.advise(text, num_envs=4, env_backend="processes")


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


def _predict(played: Played, updates_per_second: float, config: Config) -> float:
    """Seconds that the run will take, by what was measured."""
    learning = max(0, config.steps - config.random_steps) * config.updates_per_step
    return config.steps * played.seconds / played.steps + learning / updates_per_second


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _clock(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(1, round(seconds))} seconds"
