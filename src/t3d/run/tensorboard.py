"""The run's records as TensorBoard events."""

from pathlib import Path

from t3d.run.folder import Record


class TensorBoard:
    """A watcher of a run that writes every number of its records. Needs the extra `tensorboard`."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Write from `first_step` on; what an interrupted run wrote beyond it does not count."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def tick(self, step: int) -> None:
        """Nothing to write."""

    def record(self, record: Record) -> None:
        """Write the numbers of one line of metrics.jsonl."""
        kind, step = record["kind"], record["step"]
        for name, value in record.items():
            if isinstance(value, (int, float)) and name not in ("step", "env", "episode"):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Hand everything to the disk."""
        self._writer.close()
