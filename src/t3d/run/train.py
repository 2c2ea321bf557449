"""The loop: play, learn, evaluate, log, checkpoint."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import torch

from t3d.config import Config
from t3d.errors import T3DError
from t3d.learn.replay import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.play.collect import Collector
from t3d.play.envs import Environments, EnvSource, make
from t3d.play.evaluate import Score, evaluate
from t3d.run import checkpoint
from t3d.run.folder import MetricsFile, Record, RunFolder


class Watcher(Protocol):
    """Someone who follows a run, such as the table on the terminal."""

    def tick(self, step: int) -> None:
        """Another step of the loop is done."""

    def record(self, record: Record) -> None:
        """A line was written to metrics.jsonl."""

    def close(self) -> None:
        """The run is over, for now."""


class Run:
    """One training run: all that its next step depends on, in one object."""

    def __init__(self, config: Config, source: EnvSource, folder: RunFolder) -> None:
        """Build everything in memory. Nothing is written yet: bad input leaves no trace."""
        if config.threads:
            torch.set_num_threads(config.threads)
        self.config = config
        self.folder = folder
        self.watchers: list[Watcher] = []
        self.environments = Environments(source, config)
        try:
            low, high = self.environments.low, self.environments.high
            self.agent = T3D(self.environments.state_dim, low, high, config)
            self.memory = ReplayBuffer(config.capacity, self.environments.state_dim, len(low))
            self.collector = Collector(self.environments, config)
            self.evaluation_env = make(source, max_episode_steps=config.max_episode_steps)
        except BaseException:
            self.environments.close()
            raise
        self.best_mean: float | None = None
        self.measured: dict[str, torch.Tensor] = {}
        self.seconds = 0.0  # spent by the processes before this one

    @classmethod
    def start(cls, config: Config, source: EnvSource, folder: RunFolder, about: Record) -> "Run":
        """A new run in a new folder."""
        run = cls(config, source, folder)
        try:
            run.environments.reset()
            folder.create(config, about)
        except BaseException:
            run._close_environments()
            raise
        run._open(metrics_bytes=0)
        return run

    @classmethod
    def resume(cls, config: Config, source: EnvSource, folder: RunFolder) -> "Run":
        """A run that goes on from its newest checkpoint, as if it had never stopped."""
        newest = folder.newest_checkpoint()
        if newest is None:
            raise T3DError(f"{folder.path} has no checkpoint to go on from; train it anew")
        run = cls(config, source, folder)
        try:
            progress = checkpoint.load(newest, run.agent, run.memory, run.collector)
        except BaseException:
            run._close_environments()
            raise
        run.best_mean = progress["best_mean"]
        run.measured = {k: torch.tensor(v) for k, v in progress["measured"].items()}
        run.seconds = progress["seconds"]
        run._open(progress["metrics_bytes"])
        return run

    def _open(self, metrics_bytes: int) -> None:
        self.metrics = MetricsFile(self.folder, metrics_bytes)
        self._started = time.monotonic()
        self._speed_from = (self._started, self.collector.steps)

    def loop(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the last step, or until `stop` says so; True if the run is finished."""
        if self.best_mean is None and self.config.eval_every:
            self.evaluate()  # the untrained agent, where the curve begins
        while self.collector.steps < self.config.steps:
            if stop():
                self.checkpoint()
                return False
            before = self.collector.steps
            ended = self.collector.step(self.agent.select_action, self.memory)
            for env, number, length, total in ended:
                facts = {"env": env, "episode": number, "length": length, "return": total}
                self.record("episode", facts)
            if self.config.train_after == "step" or ended:
                self.learn()
            last = self.collector.steps >= self.config.steps
            if last or self._passed(self.config.log_every, before):
                self.log()
            if last or self._passed(self.config.eval_every, before):
                self.evaluate()
            if last or self._passed(self.config.checkpoint_every, before):
                self.checkpoint()
            for watcher in self.watchers:
                watcher.tick(self.collector.steps)
        return True

    def _passed(self, every: int, before: int) -> bool:
        """Whether this step of the loop passed a multiple of `every`."""
        return every > 0 and self.collector.steps // every > before // every

    def learn(self) -> None:
        """Do the updates that are due: `updates_per_step` for every step after the random ones."""
        steps = max(0, self.collector.steps - self.config.random_steps)
        # The tiny term keeps 10 steps at 0.1 from counting as 0.9999 updates.
        due = int(steps * self.config.updates_per_step + 1e-9) - self.agent.updates
        if due > 0:
            self.measured |= self.agent.train(self.memory, due)

    def evaluate(self) -> Score:
        """Play noiseless episodes, and keep the agent if it is the best so far."""
        episodes, seed = self.config.eval_episodes, self.config.seed
        score = evaluate(self.agent.select_action, self.evaluation_env, episodes, seed)
        if self.best_mean is None or score.mean > self.best_mean:
            self.best_mean = score.mean
            aside = self.folder.best_agent.with_suffix(".writing")
            self.agent.save(aside)
            aside.replace(self.folder.best_agent)
        facts = {"mean": score.mean, "std": score.std, "best_mean": self.best_mean}
        self.record("evaluation", facts | {"returns": score.returns, "lengths": score.lengths})
        return score

    def log(self) -> None:
        """Write how learning goes."""
        now, steps = time.monotonic(), self.collector.steps
        before, steps_before = self._speed_from
        self._speed_from = (now, steps)
        facts = {name: float(value) for name, value in self.measured.items()}
        speed = {"steps_per_second": (steps - steps_before) / max(now - before, 1e-9)}
        counts = {"updates": self.agent.updates, "memory": len(self.memory)}
        self.record("train", counts | facts | speed)

    def record(self, kind: str, facts: Record) -> None:
        """Write one line to metrics.jsonl, and show it to whoever watches."""
        step, seconds = self.collector.steps, self._elapsed()
        record = {"kind": kind, "step": step, **facts, "seconds": round(seconds, 3)}
        self.metrics.write(record)
        for watcher in self.watchers:
            watcher.record(record)

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._started

    def checkpoint(self) -> None:
        """Save the whole state of the run."""
        progress = {
            "best_mean": self.best_mean,
            "measured": {name: float(value) for name, value in self.measured.items()},
            "seconds": self._elapsed(),
            "metrics_bytes": self.metrics.position(),
        }
        keep = self.config.keep_checkpoints
        checkpoint.save(self.folder, self.agent, self.memory, self.collector, progress, keep)

    def close(self) -> None:
        """End the environments and the files."""
        self._close_environments()
        self.metrics.close()
        for watcher in self.watchers:
            watcher.close()

    def _close_environments(self) -> None:
        self.environments.close()
        self.evaluation_env.close()


class StopSignal:
    """Remembers a Ctrl-C or SIGTERM, so that the loop can stop where it is safe."""

    def __init__(self, on_signal: Callable[[], None] = lambda: None) -> None:
        self.number: int | None = None
        self._on_signal = on_signal

    def __call__(self) -> bool:
        """Whether the run was asked to stop."""
        return self.number is not None

    @contextmanager
    def caught(self) -> Iterator["StopSignal"]:
        """Catch the signals meanwhile. A second one has its usual effect: it ends the program."""
        if threading.current_thread() is not threading.main_thread():
            yield self  # only the main thread may set handlers
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        usual = {number: signal.getsignal(number) for number in numbers}

        def remember(number: int, frame: FrameType | None) -> None:
            self.number = number
            for each in numbers:
                signal.signal(each, usual[each])
            self._on_signal()

        for number in numbers:
            signal.signal(number, remember)
        try:
            yield self
        finally:
            for number in numbers:
                signal.signal(number, usual[number])
