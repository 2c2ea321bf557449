"""Where a run is stored: in its folder, or nowhere."""

from t3d.base.text import typed_path
from t3d.learn.agent import Agent
from t3d.learn.replay.memory import ReplayBuffer
from t3d.run import checkpoint, health
from t3d.run.checkpoint import Progress, State
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock
from t3d.run.records import Json, MetricsFile, Record


class Store:
    """Keeps nothing: the store of a run without a folder."""

    folder: RunFolder | None = None

    def write(self, record: Record) -> None:
        """Keep a record."""

    def save_best(self, agent: Agent) -> None:
        """Keep the agent with the best evaluation so far."""

    def save(self, state: State, progress: Progress, keep: int) -> None:
        """Keep the complete state, and up to `keep` - 1 earlier ones."""

    def save_broken(self, agent: Agent, memory: ReplayBuffer, about: Json) -> str:
        """Keep an agent that diverged; returns a clause about the files it left."""
        return ""

    def how_to_resume(self, step: int) -> str:
        """A clause that says how to resume after the last save."""
        return ""

    def close(self) -> None:
        """Release the folder."""


class DiskStore(Store):
    """Keeps a run in its folder, under the run's lock."""

    folder: RunFolder

    def __init__(self, folder: RunFolder, lock: Lock, metrics_bytes: int = 0) -> None:
        """Continue metrics.jsonl after its first `metrics_bytes`."""
        self.folder = folder
        self._lock = lock
        try:
            self.metrics = MetricsFile(folder.metrics_path, metrics_bytes)
        except BaseException:
            lock.release()
            raise

    def write(self, record: Record) -> None:
        """Append a line to metrics.jsonl."""
        self.metrics.write(record.to_json())

    def save_best(self, agent: Agent) -> None:
        """Write best.safetensors."""
        agent.save(self.folder.best_agent)

    def save(self, state: State, progress: Progress, keep: int) -> None:
        """Write a checkpoint, and remove those beyond `keep`."""
        self._lock.renew()
        checkpoint.save(self.folder, state, progress, self.metrics.position(), keep)

    def save_broken(self, agent: Agent, memory: ReplayBuffer, about: Json) -> str:
        """Write a bundle that reproduces the update, next to the last good checkpoint."""
        bundle = health.write_bundle(self.folder, agent, memory, about)
        good = self.folder.newest_checkpoint()
        last = f"the last good checkpoint is {good.name}" if good else "there was no checkpoint yet"
        return f"; {last}; reproduce with: python -m t3d.run.health {typed_path(bundle)}"

    def how_to_resume(self, step: int) -> str:
        """The command, for a run that was saved at a step."""
        return f"; saved at step {step}, resume with: t3d resume {self.folder.to_resume}"

    def close(self) -> None:
        """Close the metrics and release the lock."""
        self.metrics.close()
        self._lock.release()
