"""What experiment trackers have stored of a run, read back from their own stores."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Points = dict[str, list[tuple[int, float]]]


class Stored(NamedTuple):
    """The record of a run."""

    config: dict[str, Any]
    points: Points  # by name: steps and values, in the order in which they were logged
    notes: dict[str, str]
    files: set[str]
    state: str


def in_mlflow(uri: str, id: str) -> Stored:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("t3d")
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`t3d.id` = '{id}'")
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    points = {name: [(m.step, m.value) for m in metrics] for name, metrics in history.items()}
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    return Stored(run.data.params, points, run.data.tags, files, run.info.status)


def in_trackio(id: str) -> Stored:
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = [each for each in Api().runs("t3d") if each.name.endswith(id)]
    points: Points = {}
    for row in SQLiteStorage.get_logs("t3d", run.name):
        step = row.pop("step")
        for name, value in row.items():
            if isinstance(value, (int, float)):
                points.setdefault(name, []).append((step, value))
    notes = {f"{each['title']} at step {each['step']}": each["text"] for each in run.alerts()}
    artifact = SQLiteStorage.get_artifact_manifest("t3d", f"run-{run.name}", "latest")
    files = {each["path"] for each in artifact["manifest"]}
    return Stored(run.config or {}, points, notes, files, "")


def in_wandb(file: Path) -> Stored:
    """The record in the file of an offline run of W&B."""
    config: dict[str, Any] = {}
    points: Points = {}
    notes: dict[str, str] = {}
    files: set[str] = set()
    state = "open"
    for record in _wandb_records(file):
        if record.HasField("run"):
            config |= {each.key: json.loads(each.value_json) for each in record.run.config.update}
        row = {
            each.nested_key[0] if each.nested_key else each.key: json.loads(each.value_json)
            for each in record.history.item
            if len(each.nested_key) < 2  # not what it says about a video
        }
        for name, value in row.items():
            if isinstance(value, (int, float)) and not name.startswith("_") and name != "step":
                points.setdefault(name, []).append((row["step"], value))
        for each in record.summary.update:
            value = json.loads(each.value_json)
            if isinstance(value, str):
                notes[each.nested_key[0] if each.nested_key else each.key] = value
        files |= {entry.path for entry in record.artifact.manifest.contents}
        if record.HasField("exit"):
            state = f"exit {record.exit.exit_code}"
    return Stored(config, points, notes, files, state)


def _wandb_records(file: Path) -> Iterator[Any]:
    """The messages of the file: LevelDB's log format, after 7 bytes of W&B's own."""
    from wandb.proto import wandb_internal_pb2

    data, place, message = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32_768 - place % 32_768
        if left < 7:  # too few for another header in this block
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        message += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole message, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            yield record
            message = b""
