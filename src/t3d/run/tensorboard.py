"""The run's records as TensorBoard events. Needs the extra `tensorboard`."""

import os
import platform
import secrets
import time
from typing import TYPE_CHECKING, Any

from t3d.run.records import Record
from t3d.run.watchers import Watcher

if TYPE_CHECKING:
    from t3d.run.loop import Run


class TensorBoard(Watcher):
    """Writes every number of the records, into the run's folder.

    Not by PyTorch's SummaryWriter: that writes in a thread, whose errors come late and as a
    traceback.
    """

    optional = True

    def on_start(self, run: "Run") -> None:
        """Open the file. Events that an interrupted run wrote beyond this step are dropped."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder, step = run.folder.tensorboard, run.collector.steps
        folder.mkdir(exist_ok=True)
        place = f"{int(time.time()):010d}.{platform.node()}.{os.getpid()}"
        self._file = (folder / f"events.out.tfevents.{place}.{secrets.token_hex(4)}").open("wb")
        self._writer = RecordWriter(self._file)
        first = step + 1 if step else 0
        self._write(first, file_version="brain.Event:2")
        session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(first, session_log=session)

    def on_record(self, record: Record) -> None:
        """Write the numbers of one line of metrics.jsonl."""
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in record.numbers().items()
        ]
        self._write(record.step, summary=self._summary(value=values))

    def _write(self, step: int, **content: Any) -> None:
        event = self._event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())
        self._file.flush()

    def on_end(self, run: "Run") -> None:
        """Hand everything to the disk."""
        self._file.close()
