"""R14: environments that crash, hang, fork, print, or change the process that they play in.

The short form has the cases that take no trainer of their own.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import t3d
from faults.common import LONGER, Case, command
from helpers import rude_envs
from helpers.runs import TINY, Trained, in_memory, t3d_process, trained
from t3d.play import envs
from t3d.run.folder import RunFolder
from t3d.run.lock import is_locked

CALM = "helpers.broken_envs:Calm"
RUDE = "helpers.rude_envs"
MANY = 20  # cases: with more, real trainers are started, too


def surroundings(count: int, folder: Path) -> Iterator[Case]:
    """R14."""
    full = count > MANY
    yield from itertools.chain(
        settings(full),
        undone(full),
        closings(full),
        evaluations(folder, full),
        left_behind(folder, full),
    )
    if full:
        yield from itertools.chain(
            unheard_signals(folder), printing(folder), killed_trainers(folder)
        )


def settings(full: bool) -> Iterator[Case]:
    """What T3D depends on: named, with one line, and set back."""
    whens = ("make", "reset", "step", "step, learning")
    engines = ("reference", "fused") if full else ("reference",)
    for number, (name, when, engine) in enumerate(
        itertools.product(rude_envs.SETTINGS, whens, engines)
    ):
        if not full and number % 3:
            continue
        more = {"random_steps": 2, "batch_size": 2} if "learning" in when else {}
        what = rude_envs.doing(rude_envs.SETTINGS[name], when.partition(",")[0])
        wrong = "it was let through"
        try:
            in_memory(what, engine=engine, **more)
        except t3d.T3DError as error:
            named = name in str(error) and "\n" not in str(error)
            wrong = "" if named else f"not named, or not in one line: {error}"
        yield f"it changes {name} ({when}, {engine})", wrong


def undone(full: bool) -> Iterator[Case]:
    """What an environment need not change: the numbers are those of one that does not."""
    expected = in_memory(CALM, engine="reference")
    before = signal.getsignal(signal.SIGTERM)
    for name, when in itertools.product(rude_envs.HARMLESS, ("make", "reset")[: 1 + full]):
        got = in_memory(rude_envs.doing(rude_envs.HARMLESS[name], when), engine="reference")
        wrong = differs(got, expected)
        if signal.getsignal(signal.SIGTERM) is not before:
            wrong = "SIGTERM has another handler"
        yield f"it {name} ({when})", wrong


def differs(one: Trained, other: Trained) -> str:
    lines = [
        [line for line in each.records.lines if line["kind"] != "restart"] for each in (one, other)
    ]
    return "" if one.state == other.state and lines[0] == lines[1] else "other numbers"


def closings(full: bool) -> Iterator[Case]:
    """A close() that never returns."""
    limit, envs._CLOSE_LIMIT = envs._CLOSE_LIMIT, 0.2
    try:
        for name in ("sleeps", "loops")[: 1 + full]:
            in_memory(rude_envs.doing(rude_envs.HANGS[name], "close"))
            yield f"close() {name}", ""
    finally:
        envs._CLOSE_LIMIT = limit


def evaluations(folder: Path, full: bool) -> Iterator[Case]:
    """A breakdown in an evaluation, in a process: the same episode again, and the same numbers."""
    breakdowns = folder / "breakdowns"
    breakdowns.mkdir()
    os.environ |= {"BREAKDOWNS": str(breakdowns), "FORKED": str(folder / "forked-in-a-worker")}
    knobs = {"env_backend": "processes", "env_deadline": 2.0, "env_restarts": 2}
    expected = in_memory(CALM)
    kinds = ("Evaluated", "HangsEvaluated", "ForksAndCrashesEvaluated")
    for kind in kinds if full else kinds[2:]:
        (breakdowns / "one").touch()
        got = in_memory(f"{RUDE}:{kind}", **knobs)
        wrong = differs(got, expected)
        restarts = got.records.of("restart")
        if [line.get("env") for line in restarts] != [None]:
            wrong = f"not one restart: {restarts}"
        yield f"{kind}: once", wrong
    with contextlib.suppress(FileNotFoundError):
        os.kill(int((folder / "forked-in-a-worker").read_text()), signal.SIGKILL)
    for number in range(9):
        (breakdowns / f"{number}").touch()
    run, wrong = folder / "evaluated", "it was let through"
    try:
        trained(run, f"{RUDE}:Evaluated", **(knobs | {"env_restarts": 1}))
    except t3d.BrokenEnvironment as error:
        right = "died (SIGSEGV), after 1 restarts; saved at step 0, resume with" in str(error)
        wrong = "" if right and "\n" not in str(error) else f"{error}"
    kinds_written = [line["kind"] for line in RunFolder(run).metrics()]
    yield "always: stopped and saved", wrong or (kinds_written != ["restart"]) * "no restart noted"
    if not full:
        return
    for file in breakdowns.iterdir():
        file.unlink()
    t3d.resume(run, quiet=True)
    score = t3d.evaluate(run).returns
    (breakdowns / "one").touch()
    yield "in scoring, once", "" if t3d.evaluate(run).returns == score else "another score"
    for number in range(9):
        (breakdowns / f"{number}").touch()
    (run / "score.json").unlink()
    try:
        t3d.resume(run, quiet=True)
        wrong = "it was let through"
    except t3d.BrokenEnvironment as error:
        wrong = "" if "score it with: t3d resume" in str(error) else f"{error}"
    for file in breakdowns.iterdir():
        file.unlink()
    t3d.resume(run, quiet=True)
    yield (
        "in scoring, always: scored later",
        wrong or "another score" * (t3d.evaluate(run).returns != score),
    )


# Takes a lock, or starts a worker, prints the numbers of its child processes, and waits.
_LOCKS = """
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock
from helpers.rude_envs import fork_once
lock = Lock(RunFolder("run"))
fork_once()
"""
_PLAYS = """
import numpy as np
from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.play.workers import Workers
workers = Workers(EnvMaker("helpers.rude_envs:{env}", Config(env_backend="processes")), range(2))
workers.reset({{0: 1, 1: 1}})
workers._ask(0, "step", np.zeros(2, np.float32))
open("pids", "w").write(" ".join(str(p.pid) for p in workers.processes))
"""


def waiting(code: str, folder: Path) -> "subprocess.Popen[str]":
    """A program that has done something, and waits."""
    indented = "".join(f"    {line}\n" for line in code.strip().splitlines())
    file = folder / "program.py"
    file.write_text(
        f"if __name__ == '__main__':\n{indented}    print('ready', flush=True)\n    input()\n"
    )
    path = os.pathsep.join(sys.path)
    program = subprocess.Popen(
        [sys.executable, str(file)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "FORKED": str(folder / "forked")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout
    assert program.stdout.readline() == "ready\n"
    return program


def kill(program: "subprocess.Popen[str]") -> None:
    program.kill()
    program.wait()
    for pipe in (program.stdin, program.stdout, program.stderr):
        if pipe:  # not read to its end: what was forked has it open
            pipe.close()


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether a process ends within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if " Z " not in Path(f"/proc/{pid}/stat").read_text():
                time.sleep(0.05)
                continue
        return True
    return False


def named_memory(*pids: str) -> str:
    """What is wrong if processes use shared memory that has a name, which would be left."""
    mapped = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    named = [line for line in mapped if "/dev/shm/psm" in line and "(deleted)" not in line]
    return f"shared memory with a name: {named}" if named else ""


def left_behind(folder: Path, full: bool) -> Iterator[Case]:
    """After the SIGKILL of a program: its lock, its workers and their shared memory."""
    place = folder / "left"
    (place / "run").mkdir(parents=True)
    program = waiting(_LOCKS, place)
    locked = is_locked(RunFolder(place / "run"))
    kill(program)
    free = not is_locked(RunFolder(place / "run"))
    child = int((place / "forked").read_text())
    yield "the lock, with a fork alive", "" if locked and free and not gone(child, 0.1) else "held"
    os.kill(child, signal.SIGKILL)
    for env in ("sleeps", "loops", "hangs_in_c") if full else ("loops",):
        program = waiting(_PLAYS.format(env=env), place)
        workers = (place / "pids").read_text().split()
        named = named_memory(str(program.pid), *workers)
        kill(program)
        left = [pid for pid in workers if not gone(int(pid))]
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        wrong = f"left running: {left}" if left else ""
        yield f"a worker that {env}", wrong or named


# The rest takes real trainers.


def until_saved(run: Path, trainer: "subprocess.Popen[str]") -> None:
    while trainer.poll() is None and not list(run.glob("checkpoints/step-*")):
        time.sleep(0.01)


def signalled(trainer: "subprocess.Popen[str]", sent: signal.Signals) -> tuple[str, str]:
    """What a trainer printed until a signal ended it.

    The system drops a signal that arrives while it is ignored, inside of a step: it is sent again.
    """
    for _ in range(10):
        trainer.send_signal(sent)
        try:
            return trainer.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            pass
    trainer.kill()
    return trainer.communicate()


def unheard_signals(folder: Path) -> Iterator[Case]:
    """Environments that ignore the signals by which a run is stopped, or close its stdout."""
    for env, sent in itertools.product(
        ("ignores_signals", "ignores_signals_in_c", "closes_stdout", "prints", "hangs_at_close"),
        (signal.SIGINT, signal.SIGTERM),
    ):
        run = folder / f"{env}-{sent.name}"
        knobs = TINY | LONGER | {"steps": 1_000_000}
        words = [*command(f"{RUDE}:{env}", knobs), "--run", str(run)]
        errors = folder / f"{run.name}.err"
        with errors.open("w") as file:  # not a pipe: one that nobody reads yet would fill up
            trainer = t3d_process(*words, cwd=folder, stderr=file)
            until_saved(run, trainer)
            out, _ = signalled(trainer, sent)
        err = errors.read_text()
        wrong = ""
        if trainer.returncode != 128 + sent or "Traceback" in err:
            wrong = f"exit {trainer.returncode}: {err[-300:]}"
        elif "Stopped and saved. Resume with:" not in out or "hello" in out:
            wrong = f"printed {out[-300:]}"
        elif t3d.inspect(run)["step"] is None:
            wrong = "not saved"
        yield f"{sent.name} to one that {env}", wrong


def printing(folder: Path) -> Iterator[Case]:
    """Environments that print: the output of a command is its own."""
    run = trained(folder / "printing", CALM)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"env": f"{RUDE}:prints"}))
    for words in (["eval", str(run), "--json"], ["doctor", f"{RUDE}:prints", "--json"]):
        out, err = t3d_process(*words, cwd=folder).communicate(timeout=300)
        try:
            json.loads(out)
            wrong = "" if "hello from C" in err and "says hello" in err else "nothing on stderr"
        except json.JSONDecodeError as error:
            wrong = f"{error}: {out[:100]}"
        yield f"{words[0]} --json", wrong


def arguments(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def killed_trainers(folder: Path) -> Iterator[Case]:
    """SIGKILL to a trainer: nothing is left, and the run can be resumed."""
    os.environ["FORKED"] = str(folder / "forked")
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"{RUDE}:forks", {}),
        (f"{RUDE}:forks", {"env_backend": "processes"}),
        (CALM, {"env_backend": "processes", "num_envs": 2}),
    ]
    for number, (env, more) in enumerate(cases):
        run = folder / f"killed-{number}"
        knobs = TINY | LONGER | {"steps": 1_000_000} | more
        trainer = t3d_process(*command(env, knobs), "--run", str(run), cwd=folder)
        until_saved(run, trainer)
        children = Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children").read_text().split()
        tracker = [pid for pid in children if "resource_tracker" in arguments(pid)]
        wrong = named_memory(str(trainer.pid), *children)
        kill(trainer)
        forked = folder / "forked"
        fork = forked.read_text() if forked.exists() else ""
        # Python's own tracker of shared memory waits, idle, for all that has its pipe.
        others = {fork, *tracker} if fork else set()
        if [pid for pid in children if pid not in others and not gone(int(pid))]:
            wrong = "a process was left"
        elif is_locked(RunFolder(run)):
            wrong = "locked"
        else:
            step = t3d.inspect(run)["step"]
            config = json.loads((run / "config.json").read_text()) | {"steps": step + 50}
            (run / "config.json").write_text(json.dumps(config))
            t3d.resume(run, quiet=True)
        if fork:
            os.kill(int(fork), signal.SIGKILL)
            forked.unlink()
        yield f"SIGKILL to the trainer of {env} {more}", wrong
