"""One cell of a sweep: trained, from its start or from where it stopped, and scored.

`python -m t3d.study.cell` does so in a process of its own, and reads the job, a line of JSON, from
stdin. When that closes, whoever began it is gone: it saves and ends. What is heavy is imported
after that is watched for.
"""

import dataclasses
import json
import os
import signal
import sys
import threading
from contextlib import ExitStack, closing
from importlib.util import find_spec
from typing import Any

from t3d.base.errors import T3DError
from t3d.config import Config

STOPPED = 128 + signal.SIGTERM  # the exit code of a cell that was told to save


def attempt(job: dict[str, Any]) -> tuple[str, str]:
    """Train and score a cell; returns its state, and why if it failed."""
    try:
        return ("finished" if _train(job) else "stopped"), ""
    except T3DError as error:
        return "failed", str(error)


def _train(job: dict[str, Any]) -> bool:
    from t3d.play.envs import EnvMaker
    from t3d.run.agents import evaluate, keep_score
    from t3d.run.checkpoint import has_finished
    from t3d.run.folder import RunFolder, versions
    from t3d.run.loop import Run, StopSignal
    from t3d.run.tensorboard import TensorBoard

    config, folder = Config.from_dict(job["config"]), RunFolder(job["run"])
    begun = folder.path.exists()
    if not begun or not has_finished(folder, config.steps):
        # A signal waits also while the folder is made, or half of one would be left.
        with StopSignal().caught() as stop, ExitStack() as last_first:
            if begun:  # with its own threads; all else is the same, or it would have been refused
                config = dataclasses.replace(folder.config(), steps=config.steps)
                run = Run.resume(EnvMaker(config.env, config), folder)
            else:
                run = Run.start(
                    EnvMaker(config.env, config), folder, job["about"] | {"versions": versions()}
                )
            last_first.enter_context(closing(run))
            if begun:
                folder.write_config(config)
                folder.score_path.unlink(missing_ok=True)
            step = run.collector.steps
            if find_spec("tensorboard"):
                run.watchers.append(TensorBoard(folder.tensorboard, step + 1 if step else 0))
            if not run.loop(stop):
                return False
    keep_score(folder, evaluate(folder.path))
    return True


def _save_when_alone(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """The process: exit code 0 if finished, 2 if it failed, with why as the last line."""
    pipe = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing else is to read from the pipe
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(pipe, 65_536)
        if not more:
            return STOPPED
        line += more
    threading.Thread(target=_save_when_alone, args=[pipe], daemon=True).start()
    state, why = attempt(json.loads(line))
    if why:
        sys.stderr.write(f"{why}\n")
    return {"finished": 0, "stopped": STOPPED, "failed": 2}[state]


if __name__ == "__main__":
    sys.exit(main())
