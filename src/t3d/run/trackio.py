"""A run's record in Trackio, here or in a Hugging Face Space. Needs the extra `trackio`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import trackio
from trackio.sqlite_storage import SQLiteStorage

from t3d.run.tracking import PROJECT, ExperimentTracker, facts

if TYPE_CHECKING:
    from t3d.run.folder import RunFolder


class Trackio(ExperimentTracker):
    """Logs to Trackio, as its environment variables say: TRACKIO_DIR, TRACKIO_SPACE_ID ..."""

    def begin(self, folder: "RunFolder", id: str) -> None:
        """Open the run. Trackio knows runs by name, so the id is part of that."""
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        name = f"{folder.path.name}-{id}"
        config = {name: list(v) if isinstance(v, tuple) else v for name, v in facts(folder).items()}
        rows = SQLiteStorage.get_logs(project, name)
        self._steps: dict[str, int] = {}  # the last of each number that is logged
        for row in rows:
            self._steps |= {key: max(row["step"], self._steps.get(key, -1)) for key in row}
        noted = SQLiteStorage.get_alerts(project, name) if rows else []
        self._notes = {(each["title"], each["step"]) for each in noted}
        self._run = trackio.init(project, name, config=config, resume="allow", embed=False)

    def has(self, name: str, step: int) -> bool:
        """Whether this number of this step is logged."""
        return step <= self._steps.get(name, -1)

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers; Trackio writes them in a thread."""
        self._run.log(numbers, step=step)

    def note(self, title: str, text: str, step: int) -> None:
        """Log a note as an alert, once."""
        if (title, step) not in self._notes:
            self._run.alert(title, text, step=step)

    def keep(self, paths: dict[str, Path], step: int) -> None:
        """Keep all files as an artefact, and show the video."""
        artifact = trackio.Artifact(f"run-{self._run.name}", "run")
        for path in paths.values():
            artifact.add_file(path)
        self._run.log_artifact(artifact)
        if "video" in paths:
            self._run.log({"video": trackio.Video(paths["video"])}, step=step)

    def end(self, state: str) -> None:
        """Finish the run; it waits until all is written."""
        trackio.finish()
