"""The loop: play, learn, evaluate, log, checkpoint."""

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import numpy as np
import torch

from t3d.base import files
from t3d.base.errors import (
    BadInput,
    BrokenAgent,
    BrokenEnvironment,
    BrokenWatcher,
    Diverged,
    T3DError,
)
from t3d.base.output import complain
from t3d.base.randomness import torch_random
from t3d.base.text import blame
from t3d.learn.agent import Agent
from t3d.learn.engines import own_code
from t3d.play import surroundings
from t3d.play.collecting import evaluation_events
from t3d.play.envs import EnvMaker
from t3d.run import health, trust
from t3d.run.build import build
from t3d.run.checkpoint import Progress, State
from t3d.run.folder import RunFolder
from t3d.run.journal import Journal
from t3d.run.learning import Learning
from t3d.run.lock import Lock
from t3d.run.records import (
    Evaluation,
    Json,
    Stop,
)
from t3d.run.signals import never
from t3d.run.start import Source
from t3d.run.store import DiskStore, Store
from t3d.run.watchers import Watchers

# A network body with dropout, for example, draws from there.
_TORCH_RANDOM = "PyTorch's global random numbers were used, which no checkpoint holds"


class Run:
    """One training run: everything that its next step depends on, in one object.

        with closing(Run.start(EnvMaker("Pendulum-v1", config))) as run:
            run.loop()

    trains in memory alone: nothing is written, and watchers see every record. With a folder,
    `Run.start(maker, folder)` also writes metrics and checkpoints, from which it can be resumed.
    """

    def __init__(self, maker: EnvMaker, folder: RunFolder | None = None) -> None:
        """Build everything in memory. Nothing is written yet: bad input leaves no trace."""
        scratch = folder.path if folder else Path(tempfile.gettempdir())
        self.parts = parts = build(maker, scratch)
        self.config, self.spaces = parts.config, parts.spaces
        self.memory, self.collector = parts.memory, parts.collector
        self.learning = Learning(parts.agent, parts.memory, parts.config)
        self.watchers = Watchers()
        self.store = Store()
        self.progress = Progress()
        self.saved_at = 0  # the step of the last checkpoint
        self.stopped_by: Stop | None = None  # set if a watcher stopped the run
        self._left_over: list[str] = []  # what steps have changed, and was said
        self.notes: list[str] = []  # printed when the run is resumed
        if self.config.collectors and self.config.staleness:
            self.progress.not_bit_exact.append("collectors play at their own speed")

    @classmethod
    def start(
        cls,
        maker: EnvMaker,
        folder: RunFolder | None = None,
        about: Json | None = None,
        waiting: Callable[[], None] = lambda: None,
        source: Source | None = None,
    ) -> "Run":
        """A new run, in a new folder if one is given.

        `about` goes into run.json; `waiting` is called if the agent takes long to prepare. The
        networks start as those of `source`, if there is one.
        """
        run = cls(maker, folder)
        try:
            if source:
                run.notes += source.give(run.agent, run.memory)
                about = (about or {}) | {"origin": dataclasses.asdict(source.origin)}
            run.collector.reset()
            run.agent.prepare(waiting)
            if folder:
                files.need_room(folder.path, run.parts.disk_bytes(), "this run")
                folder.create(run.config, about or {})
                trust.remember(run.config)
            run.open(DiskStore(folder, Lock(folder)) if folder else Store(), run.progress)
        except BaseException:
            run.close()
            raise
        return run

    def open(self, store: Store, progress: Progress) -> None:
        """Start learning and recording from the current step."""
        self.store, self.progress = store, progress
        self.saved_at = self.collector.steps
        with torch_random:
            self._torch_random = torch.get_rng_state()
        self._settings = surroundings.settings()
        self.journal = Journal(store, self.watchers, self.collector, progress)
        self.learning.open()
        self._lasting = surroundings.lasting()

    @property
    def agent(self) -> Agent:
        """The agent; waits for an update that still runs in the background."""
        return self.learning.agent

    @property
    def folder(self) -> RunFolder:
        """The run's folder; an error if it has none."""
        if self.store.folder is None:
            raise BadInput("this run has no folder; start it with one to keep it")
        return self.store.folder

    @property
    def finished(self) -> bool:
        """Whether all steps are played and the last evaluation is done."""
        return self.collector.steps >= self.config.steps and not self._evaluation_due()

    def loop(self, stop: Callable[[], bool] = never) -> bool:
        """Train to the last step, or until `stop` or a watcher says so; True if it is finished."""
        self.stopped_by = None
        self.watchers.start(self)
        self._lasting = surroundings.lasting()  # which the watchers may have changed
        try:
            while not (stop() or self.watchers.failure):
                if self._evaluation_due():
                    self.evaluate(stop)
                    continue  # `stop` may have interrupted the evaluation: ask it again
                if self.finished or self.watchers.stop:
                    break
                due = self._passed(self.config.checkpoint_every, self.saved_at)
                if due and self.collector.at_rest:
                    self.checkpoint()
                self.step()
            self._record_stop()
            self.checkpoint()
        except Diverged as error:
            raise Diverged(self._save_broken(error)) from error
        except BrokenEnvironment as error:
            try:
                self.checkpoint()
            except Diverged as broken:  # the agent is broken, not the environment
                raise Diverged(self._save_broken(broken)) from error
            saved = self.store.how_to_resume(self.collector.steps)
            raise BrokenEnvironment(f"{error}{saved}") from error
        except T3DError:
            raise
        except Exception as error:
            # It may be in the middle of an update: the last checkpoint is what is safe.
            saved = self.store.how_to_resume(self.saved_at)
            self._blame_environments(error, saved)
            own = own_code(self.config)
            if not own:
                raise
            raise BrokenAgent(f"{own} raised {blame(error)}{saved}") from error
        if self.watchers.failure:
            saved = self.store.how_to_resume(self.collector.steps)
            failure = self.watchers.failure
            self._blame_environments(failure, saved)
            raise BrokenWatcher(f"{failure}{saved}") from failure.__cause__
        return self.finished

    def _blame_environments(self, error: Exception, saved: str) -> None:
        """An error of a process whose settings an environment has changed is no other's fault."""
        changed = surroundings.changes(self._settings) or surroundings.left_over(self._lasting)
        if changed:
            what = f"while {self.config.env} played, it changed {changed[0]}"
            advice = f"{surroundings.ADVICE} (then: {blame(error)})"
            raise BrokenEnvironment(f"{what}; {advice}{saved}") from error

    def _name_left_over(self) -> None:
        """Say what steps have changed for good, once. Not after each step: a look costs 2 µs."""
        for name in surroundings.left_over(self._lasting):
            if name in self._left_over:
                continue
            self._left_over.append(name)
            what = f"while {self.config.env} played, it changed {name}"
            complain(f"{what}, which stays so; {surroundings.ADVICE}")
            if name.startswith("PyTorch"):  # the bits may depend on it
                self.progress.not_bit_exact.append(f"at step {self.collector.steps:,} {what}")

    def step(self) -> None:
        """One step in every environment, and the updates that are due after it."""
        before = self.collector.steps
        ended = self.collector.step(self.learning.policy, self.memory, self._meanwhile)
        if self.collector.steps > before:
            self.agent.observe(self.collector.state)
        self.journal.write_playing(ended)
        if ended:
            self._name_left_over()
        if self.config.train_after == "step" or ended:
            self.learning.learn(self.collector.steps, self.watchers.heartbeat)
        last = self.collector.steps >= self.config.steps
        if last or self._passed(self.config.log_every, before):
            self.log()
        self.watchers.step(self.collector.steps)

    def _meanwhile(self) -> AbstractContextManager[None]:
        return self.learning.meanwhile(self.collector.steps)

    def _record_stop(self) -> None:
        if self.watchers.stop and not self.finished:
            watcher, reason = self.watchers.stop
            self.stopped_by = self.journal.write(Stop, watcher=watcher, reason=reason)

    def _passed(self, every: int, since: int) -> bool:
        """Whether a multiple of `every` steps was reached since step `since`."""
        return every > 0 and self.collector.steps // every > since // every

    def _evaluation_due(self) -> bool:
        """At every multiple of `eval_every`, step 0 included, and at the end.

        In the only environment, it waits for the end of the episode.
        """
        evaluated_at = self.progress.evaluated_at
        at_the_end = self.collector.steps >= self.config.steps > evaluated_at
        due = self._passed(self.config.eval_every, evaluated_at)
        return at_the_end or (due and self.collector.at_rest)

    def evaluate(self, stop: Callable[[], bool] = never) -> None:
        """Play noiseless episodes, and keep the agent if it is the best so far.

        An evaluation that `stop` interrupts does not count; a resumed run repeats it.
        """
        agent, progress, env = self.agent, self.progress, self.parts.evaluation_env
        for cut in self.collector.cut():
            self.memory.end(cut)
        beat = self.watchers.heartbeat(f"evaluating {self.config.eval_episodes:,} episodes")

        def patient_stop() -> bool:  # it is called at every step of the episodes
            beat()
            return stop()

        try:
            score = self.collector.evaluate(agent.select_action, env, patient_stop)
        finally:
            self.journal.write_events(evaluation_events(env))
            self._name_left_over()
        if stop():
            return
        # The critic's value of the first states, and the discounted return from there.
        facts: Json = {
            "mean": score.mean,
            "std": score.std,
            "estimated_Q": float(agent.value(np.stack(score.starts)).mean()),
            "true_Q": float(np.mean(score.discounted)),
            "cut_off": float(np.mean(score.cut_off)),
        }
        problem = health.broken(facts)
        if problem:
            raise Diverged(problem)
        progress.evaluated_at = self.collector.steps
        if progress.best_mean is None or score.mean > progress.best_mean:
            progress.best_mean, progress.best_step = score.mean, self.collector.steps
            self.store.save_best(agent)
        best: Json = {"best_mean": progress.best_mean, "best_step": progress.best_step}
        lists: Json = {"returns": score.returns, "lengths": score.lengths}
        facts |= {"success": score.success, "info": score.info}
        self.journal.write(Evaluation, **facts, **best, **lists)

    def log(self) -> None:
        """Write a training record: losses, values, speed."""
        self.journal.write_learning(self.agent, self.memory, self.learning.measures)

    def checkpoint(self) -> None:
        """Save the complete state of the run, unless the agent is broken."""
        agent = self.agent
        problem = health.broken_weights(agent)
        if problem:
            raise Diverged(problem)
        with torch_random:
            drawn = not torch.equal(torch.get_rng_state(), self._torch_random)
        if drawn and _TORCH_RANDOM not in self.progress.not_bit_exact:
            self.progress.not_bit_exact.append(_TORCH_RANDOM)
        progress = dataclasses.replace(
            self.progress,
            measured={name: float(value) for name, value in self.learning.measures.items()},
            seconds=self.journal.seconds,
            warned=sorted(self.progress.warned),
            watchers=self.progress.watchers | self.watchers.state_dict(),
            changed=agent.changed,
        )
        state = State(agent, self.memory, self.collector)
        self.store.save(state, progress, self.config.keep_checkpoints)
        self.saved_at = self.collector.steps

    def _save_broken(self, error: Diverged) -> str:
        """Save a bundle next to the last good checkpoint; returns the message."""
        with suppress(Diverged):
            self.learning.finish()
        step, agent = self.collector.steps, self.agent
        about = {"what": str(error), "step": step, "updates": agent.updates}
        saved = self.store.save_broken(agent, self.memory, about)
        advice = "lower --learning-rate, or scale the rewards down"
        return f"the agent diverged by step {step}: {error}; {advice}{saved}"

    def close(self) -> None:
        """Close watchers, environments and files, each even if another fails."""
        with ExitStack() as last_first:
            last_first.callback(self.store.close)
            last_first.callback(self.parts.close)
            last_first.callback(self.learning.close)
            last_first.callback(self.watchers.end, self)
            with suppress(Diverged):
                self.learning.finish()
