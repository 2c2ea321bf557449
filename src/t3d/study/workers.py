"""Who trains a run of a sweep: a process on this machine, or a task of a Ray cluster."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from t3d.base import files
from t3d.base.signals import STOP_SIGNALS
from t3d.presets import train_command
from t3d.remote.cluster import last_line
from t3d.study.job import STOPPED, attempt
from t3d.study.spec import SweepRun

_LAST = 10_000  # bytes of a log in which the reason of a failure stands


class Job(Protocol):
    """What a worker does: train a run, or search."""

    state: str  # waiting, training, and then finished, stopped or failed
    why: str  # it failed


class Worker(Protocol):
    """Does one job."""

    def ended(self) -> tuple[str, str] | None:
        """The state in which the run ended, and why if it failed; None while it trains."""

    def stop(self) -> None:
        """Make it save and end."""

    def kill(self) -> None:
        """End it at once."""


class Process:
    """A job in a process of its own, which ends with this one, however this one ends."""

    def __init__(self, job: str, log_path: Path, threads: int) -> None:
        """`job` is a line of JSON, for job.py."""
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        limits = {name: str(threads) for name in names if threads}  # unless the user set them
        self._stopping = False
        self._log = log_path
        try:
            self._log.unlink(missing_ok=True)  # a link or a pipe there would lead elsewhere
            log = self._log.open("wb")
        except OSError as error:
            raise files.cannot_write(self._log, error) from error
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "t3d.study.job"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=limits | os.environ,
                process_group=0,  # the terminal's Ctrl-C is for the sweep, which stops the runs
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once: `ended` says so
            self._process.stdin.write(job.encode() + b"\n")
            self._process.stdin.flush()

    def ended(self) -> tuple[str, str] | None:
        """See `Worker`."""
        code = self._process.poll()
        if code is None:
            return None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        # A batch system may have signalled all of us, and it while it started or was scored.
        if code == 0 or (self._stopping and (code == STOPPED or -code in STOP_SIGNALS)):
            self._log.unlink(missing_ok=True)
            return ("finished" if code == 0 else "stopped"), ""
        if code < 0 or code == STOPPED:
            return "failed", f"ended by {signal.Signals(-code if code < 0 else code - 128).name}"
        with self._log.open("rb") as log:  # an environment may have printed gigabytes
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST))
            printed = [line for line in log.read().decode(errors="replace").splitlines() if line]
        return "failed", printed[-1].strip() if printed else f"exit code {code}"

    def stop(self) -> None:
        """See `Worker`."""
        self._stopping = True
        self._process.terminate()

    def kill(self) -> None:
        """See `Worker`."""
        self._process.kill()
        self._process.communicate()


class Task:
    """A run as a task of Ray, wherever there is room for it."""

    def __init__(self, ray: Any, run: SweepRun) -> None:
        self._ray = ray
        needs = {"num_cpus": run.config.threads or 1}
        needs["num_gpus"] = int(run.config.device.startswith("cuda"))
        task = ray.remote(**needs, max_retries=0)(_attempt_json)
        self._answer = task.remote(job(run))

    def ended(self) -> tuple[str, str] | None:
        """See `Worker`."""
        done, _ = self._ray.wait([self._answer], timeout=0)
        if not done:
            return None
        try:
            state, why = self._ray.get(self._answer)
            return state, why
        except self._ray.exceptions.TaskCancelledError:  # before it started
            return "stopped", ""
        except self._ray.exceptions.RayError as error:
            return "failed", last_line(error)

    def stop(self) -> None:
        """See `Worker`. Ray raises SIGINT in the task, which saves."""
        self._ray.cancel(self._answer, force=False)

    def kill(self) -> None:
        """See `Worker`."""
        self._ray.cancel(self._answer, force=True)


def _attempt_json(job: str) -> tuple[str, str]:
    return attempt(json.loads(job))


def job(run: SweepRun) -> str:
    """The job of a worker as a line of JSON."""
    about = {"preset": run.preset, "command": train_command(run.config)}
    config = dataclasses.asdict(run.config)
    return json.dumps({"run": str(run.path.absolute()), "config": config, "about": about})
