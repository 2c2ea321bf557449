"""Learning in a run: how many updates are due, and the one that may still be unfinished.

An update may continue while the environments play their next step. `Learning` is the only holder
of such an update, and finishes it before it gives the agent to anybody.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import SupportsFloat

import torch

from t3d.base.errors import Diverged
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import reference_threads
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.evaluate import Policy
from t3d.run import health

Heartbeat = Callable[[str], Callable[[], None]]  # see Watchers.heartbeat


class Learning:
    """The agent of a run, and the updates that it does from the memory."""

    def __init__(self, agent: Agent, memory: ReplayBuffer, config: Config) -> None:
        self.memory = memory
        self.measures: dict[str, SupportsFloat] = {}  # the last of each
        self._agent = agent
        self._config = config
        self._unfinished: Callable[[], dict[str, SupportsFloat]] | None = None
        self._background: ThreadPoolExecutor | None = None
        self._opened = ExitStack()

    def open(self) -> None:
        """Set PyTorch's threads, and start the thread that `overlap` learns in."""
        self._opened.callback(torch.set_num_threads, torch.get_num_threads())
        self._set_threads()
        # Only the updates of single steps overlap: an episode's are due when no step is.
        if self._config.overlap and self._config.train_after == "step":
            self._background = ThreadPoolExecutor(1, "learn", self._set_threads)
            self._opened.callback(self._background.shutdown)

    def _set_threads(self) -> None:
        threads = reference_threads(self._config, self._agent.layout)
        torch.set_num_threads(threads)  # PyTorch counts them per thread

    @property
    def agent(self) -> Agent:
        """The agent, with every update that was begun."""
        self.finish()
        return self._agent

    @property
    def policy(self) -> Policy:
        """The agent's actions. An unfinished update leaves the actor alone, so none is awaited."""
        return self._agent.select_action

    def due(self, steps: int) -> int:
        """Updates to do: `updates_per_step` for every step after the random ones."""
        return self._config.updates_by(steps) - self.agent.updates

    def learn(self, steps: int, heartbeat: Heartbeat = lambda what: lambda: None) -> None:
        """Do the updates that are due. The last may continue while the next step is played.

        The function that `heartbeat` returns is called after each of them.
        """
        if self._background:  # which does them meanwhile
            return
        due = self.due(steps)
        if due > 1:
            beat = heartbeat(f"learning, {due:,} updates")
            for _ in range(due - 1):
                self._note(self._agent.train(self.memory, 1))
                beat()
        if due > 0:
            self._unfinished = self._agent.begin(self.memory)
            if self._unfinished is None:
                self._note(self._agent.train(self.memory, 1))

    @contextmanager
    def meanwhile(self, steps: int) -> Iterator[None]:
        """While a step is played: finish the update before it, or, with `overlap`, do those due."""
        due = self.due(steps) if self._background else 0
        if self._background and due > 0:
            self._unfinished = self._background.submit(self._agent.train, self.memory, due).result
        try:
            yield
        finally:
            self.finish()

    def finish(self) -> None:
        """Wait for the unfinished update, if there is one."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished:
            self._note(unfinished())

    def _note(self, measures: dict[str, SupportsFloat]) -> None:
        """Keep the measures of an update, and stop if they are not finite."""
        self.measures |= measures
        problem = health.broken(measures)
        if problem:
            raise Diverged(problem)

    def close(self) -> None:
        """Finish, and give PyTorch its threads back."""
        with suppress(Diverged):
            self.finish()
        self._opened.close()
