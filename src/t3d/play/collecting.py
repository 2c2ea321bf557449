"""The interface of collectors, in this process or on Ray, and the records that they return."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from numpy.typing import ArrayLike

from t3d.base.numbers import Array
from t3d.play.envs import env_role
from t3d.play.evaluate import EvaluationEnv, Policy, Score
from t3d.play.info import EpisodeInfo
from t3d.play.workers import WorkerEnv

Meanwhile = Callable[[], AbstractContextManager[None]]


class Transition(NamedTuple):
    """One step of some environments, a row for each: the arguments of `ReplayBuffer.add`."""

    state: Array
    next_state: Array  # where the action led, before any reset
    action: Array
    reward: Array
    done: Array  # terminated, not truncated: a state that a time limit cut off still has a value
    truncated: Array
    envs: Array | None = None  # whose rows these are; None: all environments, in order

    def only(self, rows: Array) -> "Transition":
        """Some of the rows; `envs` then holds their numbers."""
        state, next_state, action, reward, done, truncated, _ = self
        ends = done[rows], truncated[rows]
        return Transition(
            state[rows], next_state[rows], action[rows], reward[rows], *ends, envs=rows
        )


class Memory(Protocol):
    """Where transitions go: a ReplayBuffer."""

    def add(
        self,
        state: ArrayLike,
        next_state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
        truncated: ArrayLike,
        envs: ArrayLike | None = None,
    ) -> None:
        """Store a transition of each environment, or of some."""

    def end(self, env: int) -> None:
        """Cut an environment's episode: its next transition does not follow its last."""


class Episode(NamedTuple):
    """One finished episode."""

    env: int
    number: int
    length: int
    total: float  # its undiscounted return
    info: EpisodeInfo = EpisodeInfo()


class Event(NamedTuple):
    """Something that went wrong while playing, and was repaired."""

    kind: str  # of its line in metrics.jsonl
    facts: dict[str, Any]
    text: str


def restart_event(env: int | None, why: str, **facts: Any) -> Event:
    """The process of an environment was lost and restarted; `env` is None for evaluation."""
    text = f"the process of {env_role(env)} {why} and was restarted"
    number = {} if env is None else {"env": env}
    return Event("restart", number | facts | {"why": why}, text)


def evaluation_events(env: EvaluationEnv) -> list[Event]:
    """What happened in evaluations since the last call."""
    restarts = env.take_restarts() if isinstance(env, WorkerEnv) else []
    return [restart_event(None, why) for why in restarts]


class Collecting(Protocol):
    """Whoever plays the environments of a run: a Collector, or Collectors on Ray."""

    @property
    def steps(self) -> int:
        """Environment steps stored, over all environments."""

    @property
    def state(self) -> Array:
        """The current states of the environments that played the last step."""

    @property
    def lost(self) -> list[int]:
        """Environments that could not resume the episode of a checkpoint: they began another."""

    @property
    def at_rest(self) -> bool:
        """Whether an evaluation may be played now: not during an episode in the only environment.

        Checkpoints wait, too: they take time, and a resumed run would cut the episode.
        """

    def cut(self) -> list[int]:
        """Cut the episode in progress in the only environment: its number; else none."""

    def reset(self) -> None:
        """Begin the first episode of every environment."""

    def step(
        self, policy: Policy, memory: Memory, meanwhile: Meanwhile = nullcontext
    ) -> list[Episode]:
        """Play a step and store it; returns the episodes that it ended.

        `meanwhile` is entered once the actions are chosen, and left before anything is stored.
        """

    def take_events(self) -> list[Event]:
        """What happened to environments and collectors since the last call."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every training environment, when its next episode begins.

        The value is kept in checkpoints: plain JSON values only.
        """

    def measures(self) -> dict[str, float]:
        """Measurements of playing since the last call, for metrics.jsonl."""

    def evaluate(self, policy: Policy, env: EvaluationEnv, stop: Callable[[], bool]) -> Score:
        """Play the config's evaluation episodes without noise, in `env` if not elsewhere.

        Once `stop` says so, it breaks off and returns the episodes that are finished.
        """

    def state_dict(self) -> dict[str, Array]:
        """Counters, random streams and where each environment stands, as arrays."""

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken."""

    def close(self) -> None:
        """End the environments, and whatever plays them."""
