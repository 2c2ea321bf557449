"""A run's record in MLflow, in a local database or on a server. Needs the extra `mlflow`."""

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlflow import MlflowClient, MlflowException
from mlflow.entities import Metric, Param

from t3d.run.records import Json
from t3d.run.tracking import PROJECT, ExperimentTracker, facts

if TYPE_CHECKING:
    from t3d.run.folder import RunFolder

_ID = "t3d.id"  # the tag by which a run is found again: MLflow makes the ids of runs itself
_STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_SECONDS = 2.0  # between two batches of numbers: each is a transaction, or a request
_BATCH = 500  # numbers; MLflow takes up to 1,000
_OTHER = re.compile(r"[^\w\-./: ]")  # what MLflow does not allow in a name
_LONGEST = 6000  # characters of a parameter


class MLflow(ExperimentTracker):
    """Logs to the store of MLFLOW_TRACKING_URI, by default mlflow.db in the current folder."""

    def __init__(self) -> None:
        # Training waits for a server that does not answer: not for MLflow's usual many minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

    def begin(self, folder: "RunFolder", id: str) -> None:
        """Open the run: the one with our id, or a new one."""
        self._client = MlflowClient()
        self._waiting: list[Metric] = []
        self._sent = time.monotonic()
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        same = self._client.search_runs([experiment], f"tags.`{_ID}` = '{id}'", max_results=1)
        if same:
            run = same[0]
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            tags = {_ID: id}
            run = self._client.create_run(experiment, run_name=folder.path.name, tags=tags)
        self._id = run.info.run_id
        self._steps = {name: self._last_step(name) for name in run.data.metrics}
        self._describe(run.data.params, facts(folder))

    def _experiment(self, name: str) -> str:
        """The id of an experiment, which is created if it is not there."""
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run was faster
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _last_step(self, name: str) -> int:
        return max(int(each.step) for each in self._client.get_metric_history(self._id, name))

    def _describe(self, before: dict[str, str], now: Json) -> None:
        """Log the parameters. A parameter cannot change: of a resumed run, a tag has its value."""
        values = {_OTHER.sub("_", name): str(value)[:_LONGEST] for name, value in now.items()}
        new = [Param(name, value) for name, value in values.items() if name not in before]
        for start in range(0, len(new), 100):  # no more are allowed at once
            self._client.log_batch(self._id, params=new[start : start + 100])
        for name, value in values.items():
            if before.get(name, value) != value:
                self._client.set_tag(self._id, f"now.{name}", value)

    def has(self, name: str, step: int) -> bool:
        """Whether this number of this step is logged."""
        return step <= self._steps.get(_OTHER.sub("_", name), -1)

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers, not each at once."""
        now = int(time.time() * 1000)
        self._waiting += [Metric(_OTHER.sub("_", n), v, now, step) for n, v in numbers.items()]
        if len(self._waiting) >= _BATCH or time.monotonic() - self._sent >= _SECONDS:
            self._send()

    def _send(self) -> None:
        self._sent = time.monotonic()
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._client.log_batch(self._id, metrics=waiting)

    def state_dict(self) -> Json:
        """Send what waits: a run that is resumed from this checkpoint does not log it again."""
        self._send()
        return {}

    def note(self, title: str, text: str, step: int) -> None:
        """Show a note as a tag."""
        self._client.set_tag(self._id, _OTHER.sub("_", f"{title} at step {step}"), text)

    def keep(self, paths: dict[str, Path], step: int) -> None:
        """Keep all files as artefacts."""
        for path in paths.values():
            self._client.log_artifact(self._id, str(path))

    def end(self, state: str) -> None:
        """Send what waits, and end the run."""
        self._send()
        self._client.set_terminated(self._id, _STATES[state])
