"""Collectors on Ray, which to the training loop are like one that plays here."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.play.collecting import Episode, Event, Meanwhile, Memory
from t3d.play.envs import EnvMaker, Spaces
from t3d.play.evaluate import EvaluationEnv, Policy, Score, evaluate
from t3d.remote.actor import Player
from t3d.remote.exchange import Exchange
from t3d.remote.free_running import FreeRunning
from t3d.remote.lockstep import LockStep
from t3d.remote.members import POLL, Members


class Collectors:
    """What the training loop sees; see Collecting for its methods."""

    def __init__(
        self,
        maker: EnvMaker,
        spaces: Spaces,
        agent: Player,
        player: Callable[[Spaces], Player],
    ) -> None:
        """Place the collectors; `player` makes each an agent that plays as `agent` does."""
        self.config, self._agent = maker.config, agent
        self.members = Members(maker, spaces, player)
        self.exchange = Exchange(self.members, agent)
        mode = FreeRunning if self.config.staleness else LockStep
        self._mode: FreeRunning | LockStep = mode(self.exchange)

    @property
    def steps(self) -> int:
        """Environment steps stored, over all environments."""
        return self.exchange.steps

    @property
    def state(self) -> Array:
        """The current states of the environments whose step was stored last."""
        return self.exchange.state

    @property
    def lost(self) -> list[int]:
        """Environments that could not resume the episode of a checkpoint: they began another."""
        return self.members.lost

    @property
    def at_rest(self) -> bool:
        """Always: evaluations have environments of their own."""
        return True

    def cut(self) -> list[int]:
        """None, for the same reason."""
        return []

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self.members.start([self.members.next_episodes(i) for i in range(self.members.count)])

    def step(
        self, policy: Policy, memory: Memory, meanwhile: Meanwhile = nullcontext
    ) -> list[Episode]:
        """Store a step of one collector, or of all in lock-step; none if there is none yet.

        `policy` is not used here: collectors play with the weights of the agent.
        """
        return self._mode.step(memory, meanwhile)

    def take_events(self) -> list[Event]:
        """What happened to collectors and environments since the last call."""
        events, self.members.events = self.members.events, []
        return events

    def set_attribute(self, name: str, value: Any) -> None:
        """Not here: no message takes it to the collectors."""
        advice = "train without --collectors"
        raise BadInput(f"{name!r} of environments on Ray collectors cannot be set; {advice}")

    def measures(self) -> dict[str, float]:
        """How stale policies were since the last call; nothing in lock-step."""
        return self._mode.measures()

    def evaluate(self, policy: Policy, env: EvaluationEnv, stop: Callable[[], bool]) -> Score:
        """Divide the evaluation episodes among the collectors; play them here if one is lost."""
        score = self._evaluate_remotely(stop)
        if score is None:
            episodes, seed = range(self.config.eval_episodes), self.config.seed
            discount = self.config.discount
            score = evaluate(policy, env, episodes, seed, discount=discount, stop=stop)
        return score

    def _evaluate_remotely(self, stop: Callable[[], bool]) -> Score | None:
        """Episodes in the order of their numbers; None if a collector was lost, or on `stop`."""
        members, episodes = self.members, self.config.eval_episodes
        players = sorted(members.playing)[:episodes]
        if not players:
            return None
        ray, weights = members.ray, members.ray.put(self._agent.weights())
        parts = [list(range(k, episodes, len(players))) for k in range(len(players))]
        refs = [members.actors[i].evaluate.remote(weights, part) for i, part in zip(players, parts)]
        began, waiting, deadline = time.monotonic(), refs, math.inf
        while waiting and not stop() and time.monotonic() < deadline:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL)
            if len(waiting) < len(refs) and deadline == math.inf and self.config.env_deadline:
                # One is done: the others have ten times as long as it took.
                now = time.monotonic()
                deadline = now + 10 * (now - began) + self.config.env_deadline
        for ref in waiting:
            ray.cancel(ref)
        if waiting:
            return None
        try:
            scores = [members.get(ref) for ref in refs]
        except ray.exceptions.RayError:
            return None
        if None in scores:
            return None
        order = np.argsort([number for part in parts for number in part]).tolist()
        joined = [[item for values in column for item in values] for column in zip(*scores)]
        return Score(*([values[k] for k in order] for values in joined))

    def state_dict(self) -> dict[str, Array]:
        """The state of the run's environments in lock-step; else only counters."""
        return self._mode.state_dict()

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken."""
        self._mode.load_state_dict(arrays)

    def close(self) -> None:
        """End the collectors, and Ray if it was started for them."""
        self.members.close()
