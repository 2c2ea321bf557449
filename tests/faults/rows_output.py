"""Rows R15 and R16: signals that ask a run to end, and outputs that cannot be written."""

import contextlib
import itertools
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import t3d
from faults.common import Case, command, in_session, trained
from helpers import signalling
from helpers.runs import TESTS, TINY
from t3d.base.signals import STOP_SIGNALS

# R15: every signal, at every moment.

KNOBS = TINY | {"steps": 300, "random_steps": 60, "checkpoint_every": 50, "eval_every": 100}
BACKENDS: dict[str, dict[str, Any]] = {
    "inline": {},
    "processes": {"num_envs": 2, "env_backend": "processes"},
}


def stop_signals(count: int, folder: Path) -> Iterator[Case]:
    """R15."""
    expected = {
        name: t3d.inspect(trained(folder / name, **(KNOBS | more)))["digest"]
        for name, more in BACKENDS.items()
    }
    kinds = itertools.product(signalling.MOMENTS, ("alone", "group"), BACKENDS)
    cases = [(sent, *kind) for kind, sent in zip(itertools.cycle(kinds), _repeated(count))]
    for number, (sent, moment, who, backend) in enumerate(cases):
        run = folder / f"{number}"
        words = [*command("Pendulum-v1", KNOBS | BACKENDS[backend]), "--run", str(run)]
        shared = set(os.listdir("/dev/shm"))
        trainer = _process([signalling.__file__, sent.name, who, moment, *words], folder)
        out, err = trainer.communicate(timeout=300)
        wrong = ""
        if trainer.returncode != 128 + sent or err:
            wrong = f"exit {trainer.returncode}: {err}"
        elif _left(trainer.pid, shared):
            wrong = f"left {_left(trainer.pid, shared)}"
        elif moment == "starting":
            wrong = f"left {os.listdir(folder)}" if list(folder.glob("*.new*")) else ""
        elif ("interrupted" if moment == "scoring" else "Stopped and saved") not in out:
            wrong = f"it does not say so: {out}"
        else:
            wrong = _resumed(run, expected[backend])
        yield f"{sent.name} while {moment}, {who}, {backend}", wrong
    if count >= len(STOP_SIGNALS):
        yield "a closed terminal", closed_terminal(folder / "closed", nohup=False)
        yield "a closed terminal, nohup, SIGTERM", closed_terminal(folder / "nohup", nohup=True)
        yield "a limit of CPU time", limited(folder / "limited")
        for name, sent in itertools.product(("sweep", "tune"), (signal.SIGHUP, signal.SIGUSR1)):
            for who in ("alone", "everyone"):
                place = folder / f"{name}-{sent.name}-{who}"
                yield f"{sent.name} to a {name}, {who}", stopped_study(name, sent, who, place)


def _repeated(count: int) -> Iterator[signal.Signals]:
    """The signals in turn, each time from another one on, so that every moment gets every one."""
    for number in range(count):
        yield STOP_SIGNALS[(number + number // len(STOP_SIGNALS)) % len(STOP_SIGNALS)]


def _left(leader: int, shared: set[str]) -> list[str]:
    """The processes and the shared memory that a trainer has left, once there was time to end."""
    until = time.monotonic() + 20
    while True:
        left = in_session(leader) + sorted(set(os.listdir("/dev/shm")) - shared)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def _process(words: list[str], folder: Path, **more: Any) -> "subprocess.Popen[str]":
    """A program of Python in a session of its own, with the usual handlers and buffers."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    usual: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    usual |= {"cwd": folder, "start_new_session": True, "preexec_fn": _hear_all}
    return subprocess.Popen(
        [sys.executable, *words], **(usual | more | {"env": env | {"PYTHONPATH": path}})
    )


def _hear_all() -> None:
    """A shell without job control starts what it puts into the background deaf to Ctrl-C."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _resumed(run: Path, digest: str) -> str:
    """What is wrong with a stopped run once it is resumed."""
    before = t3d.inspect(run)
    if before["step"] is None or not before["bit_exact"]:
        return "not saved, or not bit for bit"
    t3d.resume(run, quiet=True)
    after = t3d.inspect(run)
    if after["digest"] != digest or not after["finished"]:
        return "resumed, it ends with another digest than uninterrupted"
    return "" if (run / "score.json").exists() else "no score"


def closed_terminal(run: Path, nohup: bool) -> str:
    """What is wrong when the terminal of a run closes; with nohup it gets SIGTERM afterwards."""
    words = [*command("Pendulum-v1", KNOBS | {"steps": 10**6}), "--run", str(run)]
    child, terminal = pty.fork()
    if child == 0:
        _hear_all()
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-m", "t3d", *words])

    def ended() -> bool:
        return bool(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))

    def newest() -> Path | None:
        return max(run.glob("checkpoints/step-*"), default=None)

    while newest() is None and not ended():
        with contextlib.suppress(OSError):
            os.read(terminal, 100_000)
    os.close(terminal)
    before = newest()
    while nohup and newest() == before and not ended():
        time.sleep(0.02)  # it trains on, without a terminal
    if nohup and not ended():
        os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 128 + (signal.SIGTERM if nohup else signal.SIGHUP):
        return f"exit {code}"
    return "" if t3d.inspect(run)["bit_exact"] else "not saved"


def limited(run: Path) -> str:
    """What is wrong when a run reaches a soft limit of CPU time: SIGXCPU, every second."""
    words = [*command("Pendulum-v1", KNOBS | {"steps": 10**6}), "--run", str(run)]

    def limit() -> None:
        _hear_all()
        resource.setrlimit(resource.RLIMIT_CPU, (8, 60))

    trainer = _process(["-m", "t3d", *words], run.parent, preexec_fn=limit)
    _, err = trainer.communicate(timeout=300)
    if trainer.returncode != 128 + signal.SIGXCPU or err:
        return f"exit {trainer.returncode}: {err}"
    return "" if t3d.inspect(run)["step"] else "not saved"


def stopped_study(name: str, sent: signal.Signals, who: str, place: Path) -> str:
    """What is wrong when a sweep or a search gets a signal."""
    place.mkdir()
    words = commands(KNOBS | {"steps": 10**6})[name]
    trainer = _process(["-m", "t3d", *words], place)
    while trainer.poll() is None and not list(place.glob("runs/*/*/checkpoints/step-*")):
        time.sleep(0.02)
    everyone = [int(line.split()[0]) for line in in_session(trainer.pid)]
    for each in everyone if who == "everyone" else [trainer.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, sent)
    out, err = trainer.communicate(timeout=300)
    if trainer.returncode != 128 + sent or err or "Stopped and saved." not in out:
        return f"exit {trainer.returncode}: {out} {err}"
    if _left(trainer.pid, set(os.listdir("/dev/shm"))):
        return "left running"
    (run,) = [file.parent for file in place.glob("runs/*/*/config.json")]
    return "" if t3d.inspect(run)["bit_exact"] else "not saved"


# R16: outputs that cannot be written.

# Their output only shows a run; that of the others is their result.
TRAINING = ("train", "resume", "sweep", "tune")


def commands(knobs: dict[str, Any]) -> dict[str, list[str]]:
    """Every command, on a finished run and a half of one."""
    typed = command("Pendulum-v1", knobs)[1:]
    sets = [f"--set={name}={list(v) if isinstance(v, tuple) else v}" for name, v in knobs.items()]
    return {
        "train": ["train", *typed],
        "inspect": ["inspect", "RUN"],
        "resume": ["resume", "HALF", "--steps", "300", "--no-video"],
        "presets": ["presets"],
        "eval": ["eval", "RUN"],
        "--help": ["--help"],
        "train --help": ["train", "--help"],
        "--version": ["--version"],
        "doctor": ["doctor", "Pendulum-v1"],
        "record": ["record", "RUN"],
        "plot": ["plot", "RUN"],
        "report": ["report", "RUN"],
        "explain": ["explain", "RUN"],
        "check": ["check", "RUN"],
        "compare": ["compare", "RUN", "HALF", "--out", "compared"],
        "sweep": ["sweep", "Pendulum-v1", "--preset", "default", *sets],
        "tune": ["tune", *[w for w in typed if w != "--no-video"], "--trials", "1"],
    }


OUTPUTS = ("full", "closed", "ascii", "reader gone", "stderr full", "both full", "both closed")


def unwritable(count: int, folder: Path) -> Iterator[Case]:
    """R16."""
    digest = t3d.inspect(trained(folder / "run", **KNOBS))["digest"]
    trained(folder / "half", **(KNOBS | {"steps": 200}))
    kinds = itertools.product(commands(KNOBS).items(), OUTPUTS)
    for number, ((name, words), output) in enumerate(itertools.islice(kinds, count)):
        place = folder / f"{number}"
        place.mkdir()
        for run in ("run", "half"):
            subprocess.run(["cp", "-r", folder / run, place / run], check=True)
        words = [{"RUN": "run", "HALF": "half"}.get(word, word) for word in words]
        yield f"{name}, {output}", _unwritten(name, words, output, place, digest)


def _unwritten(name: str, words: list[str], output: str, place: Path, digest: str) -> str:
    """What is wrong when a command's output is like that."""
    code, out, err = _with_output(["-m", "t3d", *words], output, place)
    training = name in TRAINING
    essential = not training and output in ("full", "closed", "both full", "both closed")
    expected = {2} if essential else {0}
    if name == "check":  # it has nothing to compare this run with
        expected = {2}
    if code not in expected or "Traceback" in err + out:
        return f"exit {code}: {err}"
    lines = [line for line in err.splitlines() if not line.endswith("loading PyTorch ...")]
    if len(lines) > 1 or not all(line.startswith("t3d: ") for line in lines):
        return f"more than a line: {err}"
    if (essential or (training and output in ("full", "closed"))) and not lines:
        return "it does not say so" if output in ("full", "closed") else ""
    if output == "ascii" and not out.isascii():
        return f"not ASCII: {out}"
    for run in _trained_by(name, place) if training else []:
        facts = t3d.inspect(run)
        if not facts["finished"] or (name != "tune" and facts["digest"] != digest):
            return f"{run.name} is not finished, or has another digest"
    return ""


def _trained_by(name: str, place: Path) -> list[Path]:
    if name == "resume":
        return [place / "half"]
    pattern = {"train": "runs/*/config.json", "sweep": "runs/*/*/config.json"}
    runs = [file.parent for file in place.glob(pattern.get(name, "runs/*/trial-*/config.json"))]
    assert runs, os.listdir(place)
    return runs


def _with_output(words: list[str], output: str, place: Path) -> tuple[int, str, str]:
    """The exit code of a program with an output like that, and what could be read of it."""
    both = output.startswith("both")
    with open("/dev/full", "w") as full:
        more: dict[str, Any] = {}
        if "full" in output:
            more = {"stdout": full} if output == "full" else {"stderr": full}
            more |= {"stdout": full} if both else {}

        def close() -> None:
            _hear_all()
            for number in {"closed": [1], "both closed": [1, 2]}.get(output, []):
                os.close(number)

        if output == "ascii":
            os.environ["PYTHONIOENCODING"] = "ascii"
        try:
            trainer = _process(words, place, preexec_fn=close, **more)
        finally:
            os.environ.pop("PYTHONIOENCODING", None)
    if output == "reader gone":
        assert trainer.stdout is not None
        trainer.stdout.close()
        trainer.stdout = None
    out, err = trainer.communicate(timeout=300)
    return trainer.returncode, out or "", err or ""
