"""The loop: play, learn, evaluate, log, checkpoint."""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from math import isfinite
from types import FrameType
from typing import BinaryIO, Protocol, SupportsFloat

import numpy as np
import torch

from t3d.base import files
from t3d.base.errors import BadInput, BrokenEnvironment, Diverged
from t3d.base.machine import available_memory
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import make_agent, reference_threads
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.collect import Collector
from t3d.play.collecting import Collecting
from t3d.play.envs import EnvMaker, Spaces
from t3d.play.explore import mean_noise
from t3d.play.vector import Environments
from t3d.remote.collectors import Collectors
from t3d.run import checkpoint, health
from t3d.run.folder import Lock, MetricsFile, Record, RunFolder


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

    def __init__(self, maker: EnvMaker, folder: RunFolder) -> None:
        """Build everything in memory. Nothing is written yet: bad input leaves no trace."""
        self.folder, config = folder, maker.config
        self.watchers: list[Watcher] = []
        self.evaluation_env = maker.make()
        try:
            self.spaces = spaces = Spaces.of(self.evaluation_env)
            self.agent, self.why_this_engine = make_agent(config, *spaces)
            # With the agent and the engine that were chosen: a resumed run keeps them.
            self.config = config = self.agent.config
            # Mapped into memory, a file stays until that goes, also when it is closed.
            with files.scratch(folder.path) if config.replay_on_disk else nullcontext() as file:
                self.memory = memory_for(spaces.layout, len(spaces.low), config, file)
            self._need_memory()
            self.collector: Collecting
            if config.collectors:
                threads = reference_threads(config, spaces.layout)
                player = partial(_player, config, threads)
                self.collector = Collectors(maker, spaces, self.agent, player)
            else:
                self.collector = Collector(Environments(maker), config)
        except MemoryError as error:
            self.evaluation_env.close()
            advice = "lower capacity, hidden or batch_size"
            raise BadInput(f"the run does not fit into memory: {error}; {advice}") from error
        except BaseException:
            self.evaluation_env.close()
            raise
        self.best_mean: float | None = None
        self.best_step = 0
        self.evaluated_at = -1  # the step of the last evaluation
        self.saved_at = 0  # the step of the last checkpoint
        self.measured: dict[str, SupportsFloat] = {}
        self._warned: set[str] = set()
        self._unfinished: Callable[[], dict[str, SupportsFloat]] | None = None
        self.seconds = 0.0  # spent by the processes before this one
        self.not_bit_exact: list[str] = []  # what makes this run differ from an uninterrupted one
        if config.collectors and config.staleness:
            self.not_bit_exact.append("collectors play at their own speed")
        self.notes: list[str] = []  # what whoever resumes the run should know
        self._lock: Lock | None = None

    @classmethod
    def start(
        cls,
        maker: EnvMaker,
        folder: RunFolder,
        about: Record,
        waiting: Callable[[], None] = lambda: None,
    ) -> "Run":
        """A new run in a new folder; `waiting` is called if the agent takes long to prepare."""
        run = cls(maker, folder)
        try:
            run.collector.reset()
            run.agent.prepare(waiting)
            files.need_room(folder.path, run.disk_bytes(), "what this run keeps")
            folder.create(run.config, about)
            run._lock = Lock(folder)
            run._open(metrics_bytes=0)
        except BaseException:
            run.let_go()
            raise
        return run

    def memory_bytes(self) -> int:
        """What the replay memory will take, but for one more observation per episode."""
        rows = min(self.memory.room, self.config.steps) + self.config.all_envs
        return rows * self.memory.row_bytes

    def _need_memory(self) -> None:
        """Refuse a memory that will not fit into RAM."""
        free, needed = available_memory(), self.memory_bytes()
        if free is None or needed <= free or self.config.replay_on_disk:
            return
        fits = int(0.9 * free / self.memory.row_bytes)
        what = (
            f"the replay memory would take {files.size(needed)}; {files.size(free)} of RAM is free"
        )
        raise BadInput(f"{what}: take --capacity {fits} or less, or --replay-on-disk")

    def disk_bytes(self) -> int:
        """What the run may take on the disk."""
        rows = min(self.config.capacity, self.config.steps)
        parameters = sum(p.numel() for p in self.agent.critic.parameters()) * 1.5  # and the actor's
        agents = 2 * self.config.keep_checkpoints + 1  # the last and the best, each time
        on_disk = self.memory_bytes() if self.config.replay_on_disk else 0
        return int(agents * 4 * 4 * parameters + 2 * rows * self.memory.row_bytes + on_disk)

    @classmethod
    def resume(
        cls,
        maker: EnvMaker,
        folder: RunFolder,
        waiting: Callable[[], None] = lambda: None,
    ) -> "Run":
        """A run that goes on from its newest whole checkpoint, as if it had never stopped."""
        lock, config = Lock(folder), maker.config
        try:
            whole = checkpoint.newest_whole(folder)
            done = whole.manifest["step"] if whole else 0
            if whole and checkpoint.is_finished(whole.manifest, config.steps):
                advice = f"go further with --steps {2 * done}"
                raise BadInput(f"{folder} is finished at step {done}; {advice}")
            run = cls(maker, folder)
        except BaseException:
            lock.release()
            raise
        run._lock = lock
        try:
            run.agent.prepare(waiting)
            if whole is None:  # it stopped before its first checkpoint
                folder.best_agent.unlink(missing_ok=True)
                run.collector.reset()
                run._open(metrics_bytes=0)
                return run
            progress = checkpoint.load(whole, folder, run.agent, run.memory, run.collector)
            run._open(whole.manifest["metrics"]["bytes"])
            for damaged, why in whole.damaged.items():
                checkpoint.set_aside(damaged)
                run.notes.append(f"{why}; back to the checkpoint of step {done:,}")
        except BaseException:
            run.let_go()
            raise
        if not run.metrics.is_as(whole.manifest["metrics"]):
            run.notes.append(f"{folder.metrics_path} is not what it was at step {done:,}")
        differences = checkpoint.differences(whole.manifest, run.agent)
        if config.collectors and config.staleness:
            run.notes.append("the collectors begin new episodes")
        else:
            differences += [
                f"environment {index} is not deterministic: it begins a new episode"
                for index in run.collector.lost
            ]
        run.not_bit_exact = progress.not_bit_exact
        run.not_bit_exact += [f"at step {done:,} {what}" for what in differences]
        if differences:
            what = "; ".join(differences)
            run.notes.append(f"{what}: from here on not bit for bit an uninterrupted run")
        run.best_mean, run.best_step = progress.best_mean, progress.best_step
        run.evaluated_at = progress.evaluated_at
        run.saved_at = run.collector.steps
        run.measured = dict(progress.measured)
        run.seconds = progress.seconds
        run._warned = set(progress.warned)
        return run

    def _open(self, metrics_bytes: int) -> None:
        self.metrics = MetricsFile(self.folder, metrics_bytes)
        self._threads_before = torch.get_num_threads()
        self._set_threads()
        # Only the updates of single steps overlap: an episode's are due when no step is.
        overlap = self.config.overlap and self.config.train_after == "step"
        self._background = ThreadPoolExecutor(1, "learn", self._set_threads) if overlap else None
        self._started = time.monotonic()
        self._speed_from = (self._started, self.collector.steps)

    def _set_threads(self) -> None:
        threads = reference_threads(self.config, self.spaces.layout)
        torch.set_num_threads(threads)  # PyTorch counts them per thread

    def loop(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the last step, or until `stop` says so; True if the run is finished."""
        try:
            while not stop():
                if self._evaluation_due():
                    self.evaluate(stop)
                    continue  # asks `stop` again, which may have broken the evaluation off
                finished = self.collector.steps >= self.config.steps
                if finished or self._passed(self.config.checkpoint_every, self.saved_at):
                    self.checkpoint()
                if finished:
                    return True
                self.step()
            self.checkpoint()
        except Diverged as error:
            raise Diverged(self._keep_what_broke(str(error))) from error
        except BrokenEnvironment as error:
            try:
                self.checkpoint()
            except Diverged as broken:  # no environment is to blame for what that plays
                raise Diverged(self._keep_what_broke(str(broken))) from error
            on = f"saved at step {self.collector.steps}, go on with: t3d resume {self.folder}"
            raise BrokenEnvironment(f"{error}; {on}") from error
        return False

    def step(self) -> None:
        """One step in every environment, and the updates that are due after it."""
        before = self.collector.steps
        ended = self.collector.step(self.agent.select_action, self.memory, self._beside)
        if self.collector.steps > before:
            self.agent.observe(self.collector.state)
        for kind, facts, text in self.collector.take_events():
            self.record(kind, facts)
            self.not_bit_exact.append(f"at step {self.collector.steps:,} {text}")
        for env, number, length, total in ended:
            facts = {"env": env, "episode": number, "length": length, "return": total}
            self.record("episode", facts)
        if not self._background and (self.config.train_after == "step" or ended):
            self.learn()
        last = self.collector.steps >= self.config.steps
        if last or self._passed(self.config.log_every, before):
            self.log()
        for watcher in self.watchers:
            watcher.tick(self.collector.steps)

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Meanwhile, do the updates that were due after the step before."""
        due = self._due() if self._background else 0
        if self._background and due > 0:
            self._unfinished = self._background.submit(self.agent.train, self.memory, due).result
        try:
            yield
        finally:
            self.finish()

    def _passed(self, every: int, since: int) -> bool:
        """Whether a multiple of `every` steps was passed since a step."""
        return every > 0 and self.collector.steps // every > since // every

    def _evaluation_due(self) -> bool:
        """At every multiple of `eval_every`, 0 included, where the curve begins; and at the end."""
        at_the_end = self.collector.steps >= self.config.steps > self.evaluated_at
        return at_the_end or self._passed(self.config.eval_every, self.evaluated_at)

    def learn(self) -> None:
        """Do the updates that are due. The last may go on beside the next step; see `finish`."""
        due = self._due()
        for _ in range(due - 1):
            self._learned(self.agent.train(self.memory, 1))
        if due > 0:
            self._unfinished = self.agent.begin(self.memory)
            if self._unfinished is None:
                self._learned(self.agent.train(self.memory, 1))

    def _due(self) -> int:
        """Updates to do: `updates_per_step` for every step after the random ones."""
        steps = max(0, self.collector.steps - self.config.random_steps)
        # The tiny term keeps 10 steps at 0.1 from counting as 0.9999 updates.
        return int(steps * self.config.updates_per_step + 1e-9) - self.agent.updates

    def finish(self) -> None:
        """Wait for the update that goes on, if one does."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished:
            self._learned(unfinished())

    def _learned(self, measured: dict[str, SupportsFloat]) -> None:
        """Take note of an update, and stop if the agent is not well after it."""
        self.measured |= measured
        what = health.broken(measured)
        if what:
            raise Diverged(what)

    def _keep_what_broke(self, what: str) -> str:
        """Leave a bundle beside the last good checkpoint; returns what to say."""
        with suppress(Diverged):
            self.finish()
        step, good = self.collector.steps, self.folder.newest_checkpoint()
        about = {"what": what, "step": step, "updates": self.agent.updates}
        bundle = health.write_bundle(self.folder, self.agent, self.memory, about)
        kept = f"the last good checkpoint is {good.name}" if good else "there was no checkpoint yet"
        advice = "lower --learning-rate, or scale the rewards down"
        broke = f"the agent diverged by step {step}: {what}"
        return f"{broke}; {advice}; {kept}; reproduce with: python -m t3d.run.health {bundle}"

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Play noiseless episodes, and keep the agent if it is the best so far.

        An evaluation that `stop` breaks off does not count; a resumed run plays it again.
        """
        self.finish()
        score = self.collector.evaluate(self.agent.select_action, self.evaluation_env, stop)
        if stop():
            return
        # What the critic expects where episodes begin, and what came of it, both discounted.
        facts = {
            "mean": score.mean,
            "std": score.std,
            "estimated_Q": float(self.agent.value(np.stack(score.starts)).mean()),
            "true_Q": float(np.mean(score.discounted)),
            "cut_off": float(np.mean(score.cut_off)),
        }
        what = health.broken(facts)
        if what:
            raise Diverged(what)
        self.evaluated_at = self.collector.steps
        if self.best_mean is None or score.mean > self.best_mean:
            self.best_mean, self.best_step = score.mean, self.collector.steps
            self.agent.save(self.folder.best_agent)
        best = {"best_mean": self.best_mean, "best_step": self.best_step}
        lists = {"returns": score.returns, "lengths": score.lengths}
        self.record("evaluation", facts | best | lists)

    def log(self) -> None:
        """Write how learning goes."""
        self.finish()
        now, steps = time.monotonic(), self.collector.steps
        before, steps_before = self._speed_from
        self._speed_from = (now, steps)
        values = {name: float(value) for name, value in self.measured.items()}
        # JSON has no word for what is not finite but null.
        facts = {name: value if isfinite(value) else None for name, value in values.items()}
        speed = {"steps_per_second": (steps - steps_before) / max(now - before, 1e-9)}
        counts = {"updates": self.agent.updates, "memory": len(self.memory)}
        played = {
            "exploration": mean_noise(self.config, steps),
            "saturation": health.saturation(self.agent, self.memory),
        }
        self.record("train", counts | facts | played | speed | self.collector.measures())
        if self.agent.updates:
            found = health.warnings(self.agent, self.memory, self.config, facts | played)
            for name, text in found:
                if name not in self._warned:
                    self._warned.add(name)
                    self.record("warning", {"name": name, "text": text})

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
        """Save the whole state of the run, if it is worth it: a broken agent is not."""
        self.finish()
        what = health.broken_weights(self.agent)
        if what:
            raise Diverged(what)
        progress = checkpoint.Progress(
            best_mean=self.best_mean,
            best_step=self.best_step,
            evaluated_at=self.evaluated_at,
            measured={name: float(value) for name, value in self.measured.items()},
            seconds=self._elapsed(),
            not_bit_exact=self.not_bit_exact,
            warned=sorted(self._warned),
        )
        self.saved_at = self.collector.steps
        parts = self.agent, self.memory, self.collector, progress, self.metrics.position()
        checkpoint.save(self.folder, *parts, self.config.keep_checkpoints)

    def close(self) -> None:
        """End the environments and the files, whatever else goes wrong."""
        with ExitStack() as last_first:
            last_first.callback(self.let_go)
            last_first.callback(torch.set_num_threads, self._threads_before)
            last_first.callback(self.metrics.close)
            if self._background:
                last_first.callback(self._background.shutdown)
            for watcher in self.watchers:
                last_first.callback(watcher.close)
            with suppress(Diverged):
                self.finish()

    def let_go(self) -> None:
        """End the environments of a run that was built, and is not to be trained."""
        self.collector.close()
        self.evaluation_env.close()
        if self._lock:
            self._lock.release()
            self._lock = None


def memory_for(
    layout: Layout, action_dim: int, config: Config, file: BinaryIO | None
) -> ReplayBuffer:
    """Room for what all environments play. Those of collectors do not quite take turns."""
    envs = config.all_envs
    gap = envs * (1 + (config.staleness if config.collectors else 0))
    return ReplayBuffer(
        config.capacity, layout, action_dim, num_envs=envs, max_row_gap=gap, file=file
    )


def _player(config: Config, threads: int, spaces: Spaces) -> Agent:
    """An agent for a collector, which gets its weights from the one that learns."""
    if config.staleness:  # in step, all is as there, for the bits
        threads, config = 1, dataclasses.replace(config, device="cpu", engine="auto")
    torch.set_num_threads(threads)
    return make_agent(config, *spaces)[0]


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
