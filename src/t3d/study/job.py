"""One run of a sweep: trained, from its start or from where it stopped, and scored. Or a search.

`python -m t3d.study.job` does so in a process of its own, and reads the job, a line of JSON, from
stdin. When that closes, the parent is gone: the run is saved and the process ends. Heavy modules
are imported after the pipe is watched.
"""

import dataclasses
import json
import os
import signal
import sys
import threading
from contextlib import closing
from typing import Any

from t3d.base.ending import leave
from t3d.base.errors import RunFailed, T3DError
from t3d.base.text import clean
from t3d.config import Config

STOPPED = 128 + signal.SIGTERM  # the exit code of a run that was stopped and saved


def attempt(job: dict[str, Any]) -> tuple[str, str]:
    """Train and score a run, or search; returns its state, and why if it failed."""
    try:
        return ("finished" if (_search if "trials" in job else _train)(job) else "stopped"), ""
    except T3DError as error:
        return "failed", str(error)


def _train(job: dict[str, Any]) -> bool:
    """Whether the run is finished; False if a signal stopped it."""
    from t3d.play.envs import EnvMaker
    from t3d.run import tracking, watchers
    from t3d.run.checkpoint import has_finished
    from t3d.run.finish import finish
    from t3d.run.folder import RunFolder, versions
    from t3d.run.session import open_run, train_to_end
    from t3d.run.signals import StopSignal

    config, folder = Config.from_dict(job["config"]), RunFolder(job["run"])
    trackers = tracking.chosen(config.track)[0]
    attached: watchers.Watchers | None = watchers.Watchers(trackers)
    exists = folder.path.exists()
    if not exists or not has_finished(folder, config.steps):
        if exists:  # with its own threads; all else is the same, or the sweep would have refused it
            config = dataclasses.replace(folder.config(), steps=config.steps)
        # A signal waits also while the folder is made, or half of one would be left.
        with StopSignal().caught() as stop:
            about = job["about"] | {"versions": versions()}
            with closing(open_run(EnvMaker(config.env, config), folder, about)) as run:
                outcome = train_to_end(run, trackers, stop)
        attached = outcome.watchers
        if outcome.signal is not None:
            return False
    # It is the sweep that shows how far its runs are.
    problems = finish(folder, watchers=attached, waiting=lambda text: None).problems
    if problems:
        raise RunFailed(f"the run has no score: {problems['score']}")
    return True


def _search(job: dict[str, Any]) -> bool:
    from t3d.study.searchers import search_here

    return search_here(job)


def _save_when_alone(pipe: int) -> None:
    """Once the pipe closes, tell this process to save and end."""
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """The process: exit code 0 if finished, 2 if it failed, with the reason as the last line."""
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
        sys.stderr.write(f"{clean(why)}\n")
    return {"finished": 0, "stopped": STOPPED, "failed": 2}[state]


if __name__ == "__main__":
    leave(main())
