"""Stop a run when its evaluation is good enough: a watcher of your own.

    python examples/stop_at_return.py

The run is saved and scored, and `t3d resume` would train it further.
"""

import t3d


class StopAtReturn(t3d.Watcher):
    """Stops the run at the first evaluation with a mean return of at least `limit`."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def on_record(self, record: object) -> str | None:
        """Called after every line of metrics.jsonl: the reason to stop, or None."""
        if isinstance(record, t3d.Evaluation) and record.mean >= self.limit:
            return f"mean return {record.mean:.1f}, limit {self.limit:.1f}"
        return None


if __name__ == "__main__":
    t3d.train("Pendulum-v1", watchers=[StopAtReturn(-200)])
