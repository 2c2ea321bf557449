"""Start a run from an agent that has learned already: its networks, targets and normaliser.

The optimisers and the replay memory can come along. Counters and random streams are the new run's
own. Everything is compared with what the run will train, layer by layer, before anything is
written; what was taken is in the run's first checkpoint, so that a resumed run needs no source.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.base.knobs import flag
from t3d.base.numbers import Array
from t3d.base.text import shown
from t3d.config import NETWORK_KNOBS, Config
from t3d.learn.agent import Agent
from t3d.learn.networks import BODIES
from t3d.learn.replay.blocks import Block
from t3d.learn.replay.memory import ReplayBuffer
from t3d.run import checkpoint, health, trust
from t3d.run.agents import Which, agent_file, config_of, load, step_of
from t3d.run.folder import Origin, RunFolder
from t3d.run.records import Json

# The layers that take observations, of the bodies that T3D has, and Adam's moments of them.
_FIRST_LAYER = re.compile(
    r"((actor|critic)(_target|_optimizer)?\.(layers\.0|twin\d+\.0|mixer\.first|twin\d+\.first)"
    r"|(fixed_)?encoder(_target|_optimizer)?\.f\.0)\.weight(\.exp_avg(_sq)?)?"
)


@dataclass(frozen=True)
class Start:
    """What a run starts from, if not from random networks.

    `run` is a run's folder, an agent's file or an agent; of a run, `which` is the best agent or the
    last. `optimizers` and `memory` come along if asked for; the memory of a run is that of its
    newest checkpoint. `observation_map` is for an environment with other observations: for each of
    its numbers, which number of the old observation it is, or None if it is new.
    """

    run: str | Path | Agent
    which: Which = "best"
    optimizers: bool = False
    memory: bool = False
    observation_map: Sequence[int | None] | None = None


StartSource: TypeAlias = str | Path | Agent | Start


class Source:
    """An agent to start from, loaded, with the memory of its run if that is asked for."""

    def __init__(self, start: StartSource, typed: Mapping[str, Any]) -> None:
        """Load it; `typed` are the knobs that the user has named, which say more than the source.

        An agent or a network body of the user's own that only a folder names must be trusted.
        """
        self.start = start = start if isinstance(start, Start) else Start(start)
        if not isinstance(start.run, (str, os.PathLike, Agent)):
            expected = "a run's folder, an agent's file or an agent"
            raise BadInput(f"a run cannot start from {shown(start.run)}; expected {expected}")
        if isinstance(start.run, Agent):
            self.name, self.agent = "the agent", start.run
            env = start.run.env_name
            path, which, step = f"an agent{f' of {env}' if env else ''}", "memory", None
            sha256 = hashlib.sha256(start.run.to_bytes()).hexdigest()
        else:
            self.name = path = str(start.run)
            file = agent_file(start.run, start.which)
            named = config_of(start.run)
            own = {k: typed[k] for k in ("agent", "body") if typed.get(k) == getattr(named, k)}
            how = "name it yourself with --agent or --body (in Python, agent= or body=)"
            unused = {*trust.ENVIRONMENT, "ray", *own}
            trust.require(start.run, named, not_from_folder=unused, how=how)
            sha256 = files.hash_of(file)
            self.agent = load(start.run, which=start.which, importing=True, **own)
            which = "file" if file == Path(start.run) else start.which
            step = None if which == "file" else step_of(RunFolder.open(start.run), start.which)
        taken = [name for name in ("optimizers", "memory") if getattr(start, name)]
        mapped = None if start.observation_map is None else list(start.observation_map)
        self.origin = Origin(path, which, sha256, step, self.agent.updates, taken, mapped)
        self._memory = self._stored_memory() if start.memory else None

    def config(self, config: Config, typed: Collection[str]) -> Config:
        """A config with the source's networks, and the size of its memory, unless typed."""
        taken = NETWORK_KNOBS | ({"capacity"} if self._memory else set())
        there = vars(self.agent.built_with)
        if self._memory:
            there = there | {"capacity": self._memory[0].get("capacity")}
        return replace(config, **{knob: there[knob] for knob in taken - set(typed)})

    def give(self, agent: Agent, memory: ReplayBuffer) -> list[str]:
        """Give an untrained agent and an empty memory what they start with; returns notes."""
        fresh, given = agent.state_dict(), self._state(agent)
        self._compare(agent, given, {name: fresh[name] for name in fresh if self._takes(name)})
        if self._memory:
            self._give_memory(agent, memory)
        cast = {name: value.to(fresh[name]) for name, value in given.items()}
        agent.load_state_dict(fresh | cast)
        if problem := health.broken_weights(agent):
            raise BadInput(f"{self.name} has diverged: {problem}; start from another agent")
        notes = [f"starts from {self.origin}"]
        for knob in sorted(NETWORK_KNOBS):
            there, here = getattr(self.agent.built_with, knob), getattr(agent.built_with, knob)
            if there != here:
                what = f"it learned with {flag(knob, there)}, this run has {flag(knob, here)}"
                notes.append(f"{what}: the same weights may act or learn differently")
        if not all(
            torch.equal(a, b) for a, b in zip(self._bounds(self.agent), self._bounds(agent))
        ):
            there, here = (_range(*self._bounds(each)) for each in (self.agent, agent))
            notes.append(f"actions were {there}, are {here}: the policy's are scaled")
        if agent.config.random_steps:
            what = f"the first {agent.config.random_steps:,} steps are random play all the same"
            notes.append(f"{what}; --random-steps 0 plays the loaded policy from the start")
        return notes

    @staticmethod
    def _bounds(agent: Agent) -> tuple[Tensor, Tensor]:
        return agent.low.cpu(), agent.high.cpu()

    def _takes(self, name: str) -> bool:
        """Whether a tensor of a state is taken from the source."""
        part = name.partition(".")[0]
        networks = [*self.agent.networks, "normalizer"]
        return part in networks or (self.start.optimizers and part.endswith("_optimizer"))

    def _state(self, agent: Agent) -> dict[str, Tensor]:
        """The tensors to take, with observations as the agent's environment has them."""
        state = {k: each for k, each in self.agent.state_dict().items() if self._takes(k)}
        mapped = self.start.observation_map
        if mapped is None:
            return state
        old, new = self.agent.layout, agent.layout
        if old.images or new.images or self.agent.config.body not in BODIES:
            raise BadInput("observation_map is for vectors, and for networks of T3D's own bodies")
        size, columns = old.vector, list(mapped)
        right = all(each is None or (type(each) is int and 0 <= each < size) for each in columns)
        if len(columns) != new.vector or not right:
            expected = f"{new.vector} entries, each None or a number from 0 to {size - 1}"
            raise BadInput(f"observation_map is {shown(mapped)}; expected {expected}")
        for name, tensor in state.items():
            if _FIRST_LAYER.fullmatch(name):
                actions = tensor[:, size:]  # of the critics
                state[name] = torch.cat([_chosen(tensor, columns, 0), actions], dim=1)
        if "normalizer.mean" in state:  # a new number is left as it is, until more is known of it
            count = float(state["normalizer.count"])
            for name, unknown in (("mean", 0.0), ("squares", count)):
                row = state[f"normalizer.{name}"][None]
                state[f"normalizer.{name}"] = _chosen(row, columns, unknown)[0]
        return state

    def _compare(self, agent: Agent, given: Mapping[str, Tensor], fresh: dict[str, Tensor]) -> None:
        """Refuse the first layer that does not fit."""
        for name in [*fresh, *given]:
            there, here = (
                f"of shape {tuple(state[name].shape)}" if name in state else "missing"
                for state in (given, fresh)
            )
            if there != here:
                what = f"{name} is {there} in {self.name}, {here} here"
                raise BadInput(f"{what}: {self._why(agent)}")

    def _why(self, agent: Agent) -> str:
        """Why layers do not fit, and what to do."""
        old, new = self.agent.layout, agent.layout
        mapped = self.start.observation_map is not None
        if old.images != new.images or old.frame_stack != new.frame_stack:
            return "its observations have other images; use its environment and image knobs"
        if old.vector != new.vector and not mapped:
            what = f"its observations have {old.vector} numbers, those here {new.vector}"
            return f"{what}; from Python, t3d.Start(..., observation_map=[...]) says which is which"
        if self.agent.action_dim != agent.action_dim:
            what = f"its actions have size {self.agent.action_dim}, those here"
            return f"{what} {agent.action_dim}; train without --from"
        for knob in sorted(NETWORK_KNOBS):
            there, here = getattr(self.agent.config, knob), getattr(agent.config, knob)
            if there != here:
                return f"it has {flag(knob, there)}, not {flag(knob, here)}; leave that out"
        return "its agent has other networks; train without --from, or with its agent"

    def _stored_memory(self) -> tuple[Json, Callable[[Block], dict[str, Array]]]:
        """The memory of the source: its facts, and a function that reads a block of it."""
        run = self.start.run
        if isinstance(run, Agent):
            if run.memory is None:
                advice = "train it with keep_memory=True, or name the folder of its run"
                raise BadInput(f"the agent has no memory; {advice}")
            return run.memory.facts(), run.memory.read
        if self.origin.agent == "file":
            raise BadInput(f"{run} is an agent's file, which has no memory; name its run's folder")
        valid = checkpoint.newest_valid(RunFolder.open(run))
        if valid is None:
            raise BadInput(f"{run} has no checkpoint yet, and so no memory; train it longer")
        return valid.manifest.memory, checkpoint.blocks_of(valid)

    def _give_memory(self, agent: Agent, memory: ReplayBuffer) -> None:
        assert self._memory is not None
        facts, read = self._memory
        if self.agent.layout != agent.layout or self.agent.action_dim != agent.action_dim:
            raise BadInput(f"the memory of {self.name} has other observations; leave it there")
        if facts["capacity"] != memory.capacity:
            what = f"the memory of {self.name} has capacity {facts['capacity']}"
            raise BadInput(f"{what}, not {memory.capacity}; leave out --capacity")
        # Every episode in it has ended: those of the new run continue none.
        ended = facts | {"last": [-1] * memory.num_envs}
        with checkpoint.reading(Path(self.name)):
            memory.restore(ended, read)


def _chosen(rows: Tensor, columns: list[int | None], missing: float) -> Tensor:
    """Some columns of a table in another order; those that it lacks have one value."""
    chosen = torch.full((len(rows), len(columns)), missing, dtype=rows.dtype, device=rows.device)
    for here, there in enumerate(columns):
        if there is not None:
            chosen[:, here] = rows[:, there]
    return chosen


def _range(low: Tensor, high: Tensor) -> str:
    return f"{[round(x, 4) for x in low.tolist()]} to {[round(x, 4) for x in high.tolist()]}"
