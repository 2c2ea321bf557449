"""The run's records as TensorBoard events. Needs the extra `tensorboard`."""

from typing import TYPE_CHECKING

from t3d.run.records import Record
from t3d.run.watchers import Watcher

if TYPE_CHECKING:
    from t3d.run.loop import Run


class TensorBoard(Watcher):
    """Writes every number of the records, into the run's folder."""

    def on_start(self, run: "Run") -> None:
        """Open the file. Events that an interrupted run wrote beyond this step are dropped."""
        from torch.utils.tensorboard import SummaryWriter

        step = run.collector.steps
        first = step + 1 if step else 0
        self._writer = SummaryWriter(str(run.folder.tensorboard), purge_step=first)

    def on_record(self, record: Record) -> None:
        """Write the numbers of one line of metrics.jsonl."""
        for name, value in record.to_json().items():
            if isinstance(value, (int, float)) and name not in ("step", "env", "episode"):
                self._writer.add_scalar(f"{record.kind}/{name}", value, record.step)

    def on_end(self, run: "Run") -> None:
        """Hand everything to the disk."""
        self._writer.close()
