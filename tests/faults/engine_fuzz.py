"""Both engines on random configs: python tests/faults/engine_fuzz.py [SECONDS [SEED]].

A case is a small environment and a config, both drawn from one number, with sizes and knobs at
their edges. Both engines must refuse it with the same words, or train it to the same numbers.

The same numbers cannot mean the same bits: the engines add in another order, and training
multiplies a difference (Adam, for one, makes a step of `learning_rate` out of a gradient of pure
rounding). How much is measured, not guessed: the reference trains once more, and after each
update every weight is moved by one unit in its last place. The engines may differ by no more than
a multiple of what that does. Where it grows so far that nothing can be said (chaos), double
precision decides: it begins nine digits lower.
"""

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.runs import Recorder
from t3d import T3D, Config, FusedT3D, ReplayBuffer, T3DError
from t3d.base.errors import Diverged
from t3d.play.envs import EnvMaker
from t3d.run.loop import Run

UPDATES = 250
NUDGED_RUNS = 8
MULTIPLE = 100.0  # of what rounding grows to
# Of each precision: a share of a tensor's norm that is rounding without any growth, and one from
# which on a trajectory is chaos.
ROUNDING = {torch.float32: (1e-5, 1e-3), torch.float64: (1e-11, 1e-3)}
SIZES = (1, 1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 48, 64, 100)

OWN_SIZES = ("actor_hidden", "critic_hidden")
KNOBS: dict[str, tuple[Any, ...]] = {
    "batch_size": (1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 256, 1000),
    "learning_rate": (1e-8, 1e-5, 3e-4, 3e-4, 1e-3, 1e-3, 1e-2, 0.1, 1.0),
    "discount": (0.0, 0.5, 0.99, 0.99, 1.0),
    "tau": (1e-8, 0.005, 0.005, 0.5, 1.0),
    "policy_noise": (0.0, 0.2, 0.2, 1.0, 10.0),
    "noise_clip": (0.0, 0.5, 0.5, 10.0),
    "policy_freq": (1, 2, 2, 3, 7, 10**6),
    "n_step": (1, 1, 2, 3, 10, 1000),
    "twins": (True, True, False),
    "reward_scale": (1e-6, 0.1, 1.0, 1.0, 10.0, 1e6),
    "normalize_observations": (False, False, True),
    "activation": ("relu", "relu", "elu", "tanh"),
    "layer_norm": ("none", "none", "critic", "both"),
    "actor_learning_rate": (0.0, 0.0, 1e-8, 1e-3, 1.0),
    "critic_learning_rate": (0.0, 0.0, 1e-8, 1e-3, 1.0),
    "learning_rate_schedule": ("constant", "linear", "cosine"),
    "learning_rate_final": (0.0, 0.1, 1.0),
    "gradient_clip": (0.0, 0.0, 1e-6, 1.0, 1e9),
    # Not 100: with a rate of 0.01 it leaves 0 of a weight, or its last bit, as sums are rounded.
    "weight_decay": (0.0, 0.0, 0.01, 90.0),
    "sampling": ("uniform", "uniform", "lap"),
    "capacity": (1, 2, 17, 100, 1000, 10_000),
    "num_envs": (1, 1, 2, 3, 5),
    "train_after": ("step", "step", "episode"),
    "updates_per_step": (0.1, 0.5, 1.0, 1.0, 2.0, 7.0),
    "exploration": ("gaussian", "ou"),
    "exploration_noise": (0.0, 0.1, 0.1, 10.0),
    "exploration_pull": (1e-6, 0.15, 1.0),
    "random_steps": (0, 1, 20, 100),
    "max_episode_steps": (1, 2, 7, 50),
    "action_repeat": (1, 1, 3),
    "remake_envs": (False, True),
    "overlap": (False, False, True),
}


class Plant(gym.Env[Any, Any]):
    """A small system of any size: the state decays and is pushed by the action."""

    def __init__(self, chance: random.Random) -> None:
        self.size, actions = chance.choice(SIZES), chance.choice((1, 1, 2, 3, 15, 16, 17))
        self.scale = chance.choice((1e-3, 1.0, 1.0, 1.0, 1e3))
        self.reward = chance.choice((0.0, 1e-3, 1.0, 1.0, 1e3))
        self.ends = chance.choice((0.0, 0.05, 0.5, 1.0))
        numbers = np.random.default_rng(chance.randrange(2**32))
        self.push = numbers.normal(size=(self.size, actions)) / math.sqrt(actions)
        low = numbers.normal(size=actions) * chance.choice((1e-2, 1.0, 100.0))
        width = np.exp(numbers.normal(size=actions)) * chance.choice((1e-2, 1.0, 100.0))
        self.middle, self.half = low + width / 2, width / 2
        self.action_space = Box(low.astype(np.float32), (low + width).astype(np.float32))
        self.observation_space = Box(-np.inf, np.inf, (self.size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=self.size)
        return (self.scale * self.state).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        unit = (np.asarray(action, np.float64) - self.middle) / self.half
        self.state = 0.9 * self.state + 0.3 * self.push @ unit
        reward = self.reward * float(np.cos(self.state[0]) - 0.1 * np.mean(unit**2))
        terminated = bool(self.np_random.random() < self.ends)
        return (self.scale * self.state).astype(np.float32), reward, terminated, False, {}


class Trained(NamedTuple):
    """How a run ended: refused, diverged, or with these numbers."""

    ending: str
    updates: int
    state: dict[str, torch.Tensor]
    records: list[dict[str, Any]]
    memory: ReplayBuffer | None


class FuzzCase:
    """The environment and the config of one number."""

    def __init__(self, number: int, updates: int = UPDATES) -> None:
        self.number, self.updates = number, updates
        chance = random.Random(f"engines {number}")
        self.knobs = {knob: chance.choice(values) for knob, values in KNOBS.items()}
        for knob, layers in (("hidden", (1, 2, 3)), *((k, (0, 0, 1, 2)) for k in OWN_SIZES)):
            self.knobs[knob] = tuple(chance.choice(SIZES) for _ in range(chance.choice(layers)))
        self.knobs["exploration_noise"] = (self.knobs["exploration_noise"],)
        self.knobs["seed"] = chance.choice((0, chance.randrange(2**32), 2**32 - 1))
        steps = math.ceil(updates / self.knobs["updates_per_step"])
        self.knobs["steps"] = self.knobs["random_steps"] + steps
        self.knobs |= {
            "eval_every": 0,
            "eval_episodes": 1,
            "log_every": 50,
            "env": "plant",
            "threads": 1,
        }
        self._plant = chance.randrange(2**32)

    def plant(self) -> Plant:
        """The environment, always the same."""
        return Plant(random.Random(self._plant))

    def config(self, engine: str) -> Config:
        return Config.from_dict({**self.knobs, "engine": engine})

    def train(self, engine: str, nudges: int | None = None) -> Trained:
        """A whole run in memory; the first of the `nudges` differ in the weights alone."""
        recorder = Recorder()
        try:
            run = Run.start(EnvMaker(self.plant, self.config(engine)))
        except T3DError as error:
            return Trained(f"refused: {error}", 0, {}, [], None)
        with closing(run):
            run.watchers.append(recorder)
            if nudges is not None:
                nudge(run.agent, nudges, everywhere=nudges > 0)
            ending = "trained"
            try:
                run.loop()
            except Diverged:
                ending = "diverged"
            except T3DError as error:
                ending = f"stopped: {error}"
            agent = run.learning._agent
            state = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
            return Trained(ending, agent.updates, state, recorder.lines, run.memory)

    def agents(self, dtype: torch.dtype, nudges: int) -> tuple[T3D, T3D, T3D]:
        """The reference, the fused engine, and a reference that is nudged."""
        space = self.plant().action_space
        assert isinstance(space, Box)
        sizes = self.plant().size, space.low, space.high
        reference, fused, nudged = (
            kind(*sizes, self.config(kind.engine), dtype=dtype) for kind in (T3D, FusedT3D, T3D)
        )
        nudge(nudged, self.number + nudges)
        return reference, fused, nudged


class Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every result of PyTorch moves by one unit in its last place, up or down."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.elu_backward.default:
            # The fused engine has exp(x) from exp(x) - 1, which is rounded as a number near 1.
            result = result + (self.moved(args[0]) - args[0])
        if any(each.alias_info is not None for each in func._schema.returns):
            return result  # a view, or in place
        return tree_map_only(torch.Tensor, self.moved, result)

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with other last places. 0 and a full tanh stay: both engines have those."""
        if not tensor.is_floating_point():
            return tensor
        up = torch.randint(0, 2, tensor.shape, generator=self.numbers)
        moved = tensor * (1 + torch.finfo(tensor.dtype).eps * (2 * up - 1).to(tensor.dtype))
        return torch.where(tensor.abs() == 1, tensor, moved)


def nudge(agent: Any, seed: int, *, everywhere: bool = True) -> None:
    """Have an agent's weights, or all results of its updates, differ in their last places."""
    rounding = Rounding(seed)
    update = agent.update

    def nudged(*arguments: Any) -> Any:
        with rounding if everywhere else nullcontext():
            measures = update(*arguments)
        with torch.no_grad():
            for network in (agent.actor, agent.critic):  # which are changed in place
                for weight in network.parameters():
                    weight.copy_(rounding.moved(weight))
        return measures

    agent.update = nudged


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of any tensor, as a share of its norm; infinite if one is not."""
    largest = 0.0
    for name, tensor in other.items():
        if not tensor.is_floating_point():
            continue
        if one[name].shape != tensor.shape:  # one has stopped earlier: it has fewer rows
            return math.inf
        mine, theirs = one[name].double(), tensor.double()
        same = (mine == theirs) | (mine.isnan() & theirs.isnan())
        error = torch.where(same, 0.0, mine - theirs).norm()
        # Below this a number is lost in what Adam adds to it, and one engine makes it 0.
        share = float(error / (theirs.norm() + 1e-18))
        largest = max(largest, share if math.isfinite(share) else math.inf)
    return largest


def record_distance(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> float:
    """The same for two lists of records; infinite if they differ in anything but a float."""
    largest = 0.0
    if len(one) != len(other):
        return math.inf
    for mine, theirs in zip(one, other):
        if mine.keys() != theirs.keys():
            return math.inf
        for key, value in theirs.items():
            pairs = zip(*(x if isinstance(x, list) else [x] for x in (mine[key], value)))
            for a, b in pairs:
                if a == b:
                    continue
                if not (isinstance(a, float) and isinstance(b, float)):
                    return math.inf
                largest = max(largest, abs(a - b) / max(abs(a), abs(b)))
    return largest


class Verdict(NamedTuple):
    """What came of a case: a word to count, and what is wrong, if anything."""

    word: str
    wrong: str = ""
    distance: float = 0.0
    growth: float = 0.0


def judge(case: FuzzCase) -> Verdict:
    """Train a case with both engines."""
    reference, fused = case.train("reference"), case.train("fused")
    if "refused" in reference.ending or "refused" in fused.ending:
        same = reference.ending == fused.ending
        return Verdict("refused", "" if same else f"{fused.ending!r}, {reference.ending!r}")
    for nudges in range(NUDGED_RUNS):  # two rows that are nudged apart can cancel each other
        exact = compare_in_double(case, reference, nudges)
        if not exact.wrong:
            break
    else:
        return exact
    mine = distance(fused.state, reference.state)
    records = record_distance(fused.records, reference.records)
    rounding, chaos = ROUNDING[torch.float32]
    grown = grown_records = 0.0
    for nudges in range(NUDGED_RUNS):  # more only where they are needed: one flipped ReLU is rare
        nudged = case.train("reference", nudges)
        grown = max(grown, distance(nudged.state, reference.state))
        grown_records = max(grown_records, record_distance(nudged.records, reference.records))
        if grown > chaos or nudged.ending != reference.ending:
            return Verdict("chaos", "", mine, grown)
        same = (fused.ending, fused.updates) == (reference.ending, reference.updates)
        same &= mine <= max(rounding, MULTIPLE * grown)
        same &= records <= max(1e-4, MULTIPLE * grown_records)
        if same:
            return Verdict("agree", "", mine, grown)
    if reference.ending == fused.ending == "diverged" and overflows(reference, fused):
        return Verdict("overflow", "", mine, grown)
    facts = f"{mine:.1e} apart, rounding grows to {grown:.1e}"
    facts += f"; records {records:.1e}, {grown_records:.1e}"
    return Verdict("differ", f"{fused.ending!r}, {reference.ending!r}; {facts}", mine, grown)


def overflows(*ended: Trained) -> bool:
    """Whether products of these weights are too large for a float.

    Then the order of a sum decides when it becomes infinite, and so when a run is stopped.
    """
    return all(
        any(t.is_floating_point() and bool((t.abs() > 1e10).any()) for t in each.state.values())
        for each in ended
    )


def compare_in_double(case: FuzzCase, collected: Trained, nudges: int) -> Verdict:
    """The updates alone, from the memory that a run has filled, in double precision."""
    memory = collected.memory
    assert memory is not None
    if memory.size == 0 or collected.updates == 0:
        return Verdict("agree")
    dtype = torch.float64
    rounding, chaos = ROUNDING[dtype]
    reference, fused, nudged = case.agents(dtype, nudges)
    for agent in (reference, fused, nudged):
        agent.observe(memory.state[memory.live_rows()])
    mine = grown = 0.0
    for count in in_steps(collected.updates):
        for agent in (reference, fused, nudged):
            agent.train(memory, count)
        expected = reference.state_dict()
        mine = distance(fused.state_dict(), expected)
        grown = distance(nudged.state_dict(), expected)
        if grown > chaos:
            break  # up to here they agreed
        if mine > max(rounding, MULTIPLE * grown):
            facts = f"{mine:.1e} apart in float64 after {reference.updates} updates"
            return Verdict("differ", f"{facts}; one unit grows to {grown:.1e}", mine, grown)
    return Verdict("agree", "", mine, grown)


def in_steps(total: int) -> Iterator[int]:
    """1, 2, 4 ... up to a total: so that a fault shows before chaos hides it."""
    done, step = 0, 1
    while done < total:
        yield min(step, total - done)
        done, step = done + step, 2 * step


def main() -> int:
    """Judge one number after the other for so many seconds; 1 if a case differs."""
    seconds, first = (float(sys.argv[1]) if len(sys.argv) > 1 else 60.0), 0
    if len(sys.argv) > 2:
        first = int(sys.argv[2])
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    until, number = time.monotonic() + seconds, first
    while time.monotonic() < until:
        verdict = judge(FuzzCase(number))
        counts[verdict.word] += 1
        if verdict.wrong:
            print(f"case {number}: {verdict.wrong}", flush=True)
        number += 1
        if number % 100 == 0:
            print(f"{number - first} cases: {dict(counts)}", flush=True)
    print(f"{number - first} cases: {dict(counts)}", flush=True)
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
