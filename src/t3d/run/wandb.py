"""A run's record in Weights & Biases, online or offline. Needs the extra `wandb`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import wandb

from t3d.base.errors import BadInput
from t3d.run.tracking import PROJECT, ExperimentTracker, facts

if TYPE_CHECKING:
    from t3d.run.folder import RunFolder


class Wandb(ExperimentTracker):
    """Logs to W&B, as its environment variables say: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY ..."""

    def __init__(self) -> None:
        """Refuse to log online without an account: W&B would ask for one, and wait."""
        if wandb.setup().settings.mode not in ("online", "shared"):
            return
        try:
            has_account = wandb.login(prompt=False, verify=False)
        except wandb.Error as error:
            raise BadInput(f"W&B cannot log in: {error}") from error
        if not has_account:
            advice = "log in with `wandb login`, or set WANDB_MODE=offline"
            raise BadInput(f"track names wandb, and there is no account of W&B here; {advice}")

    def begin(self, folder: "RunFolder", id: str) -> None:
        """Open the run. In W&B its steps only grow, so a chart's x-axis is a number of our own."""
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", folder.path.name),
            id=id,
            resume="allow",
            config=facts(folder),
            allow_val_change=True,  # of a resumed run
            dir=os.environ.get("WANDB_DIR", folder.path),
            settings=wandb.Settings(console="off"),  # what T3D prints is no part of the record
        )
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._until = int(self._run.summary.get("step", 0))  # offline, nothing is known

    def has(self, name: str, step: int) -> bool:
        """Whether the run was beyond this step already."""
        return step < self._until

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers; those of one step become one row."""
        self._run.log({"step": step, **numbers}, step=max(step, self._run.step))

    def note(self, title: str, text: str, step: int) -> None:
        """Show a note in the summary."""
        self._run.summary[f"{title} at step {step}"] = text

    def keep(self, paths: dict[str, Path], step: int) -> None:
        """Keep all files as an artefact, and show the video."""
        artifact = wandb.Artifact(f"run-{self._run.id}", "run")
        for path in paths.values():
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        if "video" in paths:
            self._run.log({"video": wandb.Video(str(paths["video"]), format="mp4")})

    def end(self, state: str) -> None:
        """Finish the run; it waits until all is sent, or on the disk."""
        self._run.finish(exit_code=int(state == "failed"))
