"""One contestant of bench.py, in a process and an environment of its own.

    python contestant.py KIND update STATE ACTION HIDDEN BATCH [ROWS]
    python contestant.py KIND steps ENV HIDDEN BATCH [KNOBS]      as JSON, of T3D
    python contestant.py KIND steps ENV HIDDEN BATCH [ENVIRONMENTS UPDATES]     per step, of SB3

It prints `ready`. For each number of seconds that it reads from stdin, it works about as long
and prints the result as JSON: {"count": updates or steps, "seconds": ..., "megabytes": peak
memory}. So contestants take turns, and none is measured while another works.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from t3d.play.envs import EnvMaker

RANDOM = 1_000  # steps played before learning starts


class Blank(gymnasium.Env[Any, Any]):
    """An environment of any size that does nothing: the peers need one to build an agent."""

    def __init__(self, state: int, action: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (state,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (action,), np.float32)

    def reset(self, **options: Any) -> Any:
        """A random state."""
        super().reset(**options)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """A random state, and no reward."""
        return self.observation_space.sample(), 0.0, False, False, {}


def repeat(work: Callable[[], object], unit: int = 1) -> Callable[[float], tuple[int, float]]:
    """Do `work`, which counts as `unit`, for some seconds."""

    def go(seconds: float) -> tuple[int, float]:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            work()
            count += unit
        return count, time.perf_counter() - began

    return go


def t3d_update(engine: str, threads: int, sizes: list[int]) -> Any:
    """One of T3D's engines, updates alone."""
    import t3d
    from rounds import filled_memory

    state, action, hidden, batch, rows = sizes
    config = t3d.Config(hidden=(hidden, hidden), batch_size=batch, threads=threads)
    kind = {"fused": t3d.FusedT3D, "reference": t3d.T3D}[engine]
    agent = kind(state, [-1.0] * action, [1.0] * action, config)
    memory = filled_memory(rows, state, action)
    agent.train(memory, 100)
    return repeat(lambda: agent.train(memory, 1))


def t3d_steps(engine: str, threads: int, env: str, **knobs: Any) -> Any:
    """A run of T3D, end to end, as `t3d train` makes it."""
    from t3d import Config
    from t3d.run.folder import RunFolder
    from t3d.run.loop import Run

    rare = {"eval_every": 0, "checkpoint_every": 0, "log_every": 10**9, "steps": 10**9}
    more = {"random_steps": RANDOM, "engine": engine, "threads": threads}
    config = Config.from_dict({"env": env, **rare, **more, **knobs})
    folder = RunFolder(tempfile.mkdtemp() + "/run")
    run = Run.start(EnvMaker(env, config), folder, about={})
    while run.agent.updates < 100:
        run.step()
    go = repeat(run.step)

    def go_and_finish(seconds: float) -> tuple[int, float]:
        before = run.collector.steps
        _, took = go(seconds)
        run.learning.finish()  # or its threads would wait while another contestant works
        return run.collector.steps - before, took

    return go_and_finish


def plain_update(sizes: list[int]) -> Any:
    """Plain PyTorch, updates alone."""
    from plain import PlainTD3

    state, action, hidden, batch, rows = sizes
    agent = PlainTD3(state, action, hidden, batch, rows)
    draw = np.random.default_rng(0)
    agent.memory = [draw.standard_normal(column.shape) for column in agent.memory]
    agent.size = rows
    for _ in range(20):
        agent.update()
    return repeat(agent.update)


def plain_steps(env: str, hidden: int, batch: int) -> Any:
    """Plain PyTorch end to end, in the loop of the author's code."""
    from plain import PlainTD3

    world = gymnasium.make(env)
    space = world.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert world.observation_space.shape is not None
    agent = PlainTD3(world.observation_space.shape[0], space.shape[0], hidden, batch, 10**6)
    draw = np.random.default_rng(0)
    state, _ = world.reset(seed=0)
    steps = 0

    def step() -> None:
        nonlocal state, steps
        steps += 1
        if steps <= RANDOM:
            action = space.sample()
        else:
            action = agent.select_action(np.array(state)) * space.high
            noise = draw.normal(0, space.high * 0.1, size=space.shape[0])
            action = (action + noise).clip(space.low, space.high).astype(np.float32)
        after, reward, terminated, truncated, _ = world.step(action)
        agent.add(state, after, action / space.high, reward, 1.0 - float(terminated))
        state = after
        if steps > RANDOM:
            agent.update()
        if terminated or truncated:
            state, _ = world.reset()

    while agent.updates < 100:
        step()
    return repeat(step)


def peer(name: str) -> Any:
    """TD3 of Stable-Baselines3, or of SBX."""
    if name == "sb3":
        from stable_baselines3 import TD3
        from stable_baselines3.common.noise import NormalActionNoise
    else:
        from sbx import TD3
        from stable_baselines3.common.noise import NormalActionNoise

    def build(env: Any, hidden: int, batch: int, rows: int) -> Any:
        actions = env.action_space.shape[0]
        return TD3(
            "MlpPolicy",
            env,
            learning_rate=3e-4,
            buffer_size=rows,
            learning_starts=RANDOM,
            batch_size=batch,
            train_freq=1,
            gradient_steps=1,
            action_noise=NormalActionNoise(np.zeros(actions), 0.1 * np.ones(actions)),
            policy_kwargs={"net_arch": [hidden, hidden]},
            device="cpu",
        )

    return build


def peer_update(name: str, sizes: list[int]) -> Any:
    """A peer, updates alone: one call per update, as in its own training loop."""
    from stable_baselines3.common.logger import Logger

    state, action, hidden, batch, rows = sizes
    model = peer(name)(Blank(state, action), hidden, batch, rows)
    model.set_logger(Logger(None, []))
    draw = np.random.default_rng(0)
    memory = model.replay_buffer
    for store in (memory.observations, memory.next_observations, memory.actions, memory.rewards):
        store[:] = draw.standard_normal(store.shape)
    memory.full = True
    for _ in range(20):
        model.train(gradient_steps=1, batch_size=batch)
    return repeat(lambda: model.train(gradient_steps=1, batch_size=batch))


def peer_steps(
    name: str, env: str, hidden: int, batch: int, envs: int = 0, updates: float = 1
) -> Any:
    """A peer, end to end by its own `learn`; with `envs`, in as many processes."""
    world: Any
    if envs:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        world = SubprocVecEnv([partial(gymnasium.make, env)] * envs)
    else:
        world = gymnasium.make(env)
    model = peer(name)(world, hidden, batch, 10**6)
    model.gradient_steps = max(1, round(updates * max(1, envs)))
    model.learn(RANDOM + 100)
    return repeat(lambda: model.learn(104, reset_num_timesteps=False), 104)


def main() -> None:
    """Build the contestant, then work on request."""
    kind, what, *rest = sys.argv[1:]
    engine, _, threads = kind.partition("-")
    if what == "update":
        sizes = [int(word) for word in rest]
        sizes += [100_000] if len(sizes) == 4 else []  # transitions in the memory
        if engine in ("fused", "reference"):
            go = t3d_update(engine, int(threads or 0), sizes)
        elif engine == "plain":
            go = plain_update(sizes)
        elif engine == "jax":
            from jax_scan import jax_update

            go = repeat(*jax_update(sizes))
        else:
            go = peer_update(engine, sizes)
    else:
        env, words = rest[0], rest[1:]
        hidden, batch = int(words[0]), int(words[1])
        if engine in ("fused", "reference"):
            knobs = {"hidden": (hidden, hidden), "batch_size": batch}
            knobs |= json.loads(words[2]) if len(words) > 2 else {}
            go = t3d_steps(engine, int(threads or 0), env, **knobs)
        elif engine == "plain":
            go = plain_steps(env, hidden, batch)
        else:
            numbers = [float(word) for word in words[2:]]
            go = peer_steps(engine, env, hidden, batch, *map(int, numbers[:1]), *numbers[1:])
    print("ready", flush=True)
    for line in sys.stdin:
        count, seconds = go(float(line))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"count": count, "seconds": seconds, "megabytes": peak}), flush=True)


if __name__ == "__main__":
    main()
