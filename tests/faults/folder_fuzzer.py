"""A fuzzer for run folders: it knows the files, changes one of them, and runs a command on it.

Every file is changed by its grammar: values of JSON become those of another type, numbers become
huge, keys go missing, arrays get another shape. What a SHA-256 would give away is sealed again.
"""

import contextlib
import copy
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load, save

import t3d
from t3d.cli.main import main
from t3d.run.manifest import seal

DEEP = "[" * 100_000 + "]" * 100_000
# JSON, as it is written into a file in place of a value.
VALUES = [
    *("null", "true", "0", "-1", "1.5", "-0.0", "1e308", "-1e308", "5e-324", "1e999", "NaN"),
    *(str(2**31), str(-(2**63)), str(2**64), str(10**30), "9" * 5000, '""', '"x"', '"-1"'),
    *("[]", "{}", "[[]]", "[null]", '{"a": 1}', "[1e308, 1e308]", '["a", 1]'),
    *(json.dumps(text) for text in ("\x1b[2J\x1b]0;x\x07", "a\nb\r\nc", "\u202eevil", "$\\frac$")),
    *(
        json.dumps(text)
        for text in ("\x00", "../../x", "/dev/zero", "os:abort", "\udc80", "\U0001f600")
    ),
    *('"' + "x" * 10**6 + '"', "[" + "1," * 10**4 + "1]", "[" * 200 + "]" * 200, DEEP),
]
_CPU_SECONDS, _SECONDS, _MEGABYTES = 10, 300, 100  # the machine may have other work


class Change(NamedTuple):
    """A change of one file of a folder."""

    what: str
    file: str
    make: Callable[[Path], str | None]  # returns more about it


def rewritten(path: Path, content: bytes) -> None:
    """Give a file other content; where a manifest lists it, the manifest lists that."""
    path.unlink()
    path.write_bytes(content)
    reseal(path)


def reseal(path: Path) -> None:
    """Have the manifest beside a file of a checkpoint fit it."""
    manifest = path.with_name("manifest.json")
    if path == manifest or not manifest.is_file() or not path.is_file():
        return
    values = json.loads(manifest.read_text())
    del values["sha256"]
    content = path.read_bytes() if path.stat().st_size < 10**7 else b""
    part = values["files"][path.name]
    part["bytes"], part["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    manifest.write_bytes(seal(values))


# Changes that need not know what a file holds.


def plain_changes(name: str, chance: random.Random) -> Iterator[Change]:
    """A file that is cut, damaged, or something else than a file."""

    def cut(path: Path) -> None:
        content = path.read_bytes()
        rewritten(path, content[: chance.randrange(len(content) + 1)])

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 8, 100))):
            bit = chance.randrange(max(1, 8 * len(content)))
            if content:
                content[bit // 8] ^= 1 << bit % 8
        rewritten(path, bytes(content))

    def sparse(path: Path) -> None:
        path.unlink()
        with path.open("wb") as file:
            file.truncate(10**10)

    def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
        def change(path: Path) -> None:
            path.unlink()
            make(path)

        return change

    yield Change("cut", name, cut)
    yield Change("bits flipped", name, flip)
    yield Change("empty", name, lambda path: rewritten(path, b""))
    yield Change("random", name, lambda path: rewritten(path, chance.randbytes(1000)))
    yield Change("deep", name, lambda path: rewritten(path, DEEP.encode() + b"\n"))
    yield Change("missing", name, Path.unlink)
    yield Change("10 GB of nothing", name, sparse)
    yield Change("a folder", name, instead(Path.mkdir))
    yield Change("a pipe", name, instead(os.mkfifo))
    yield Change("an endless device", name, instead(lambda path: path.symlink_to("/dev/zero")))
    yield Change("a link to itself", name, instead(lambda path: path.symlink_to(path)))
    yield Change("a link to nothing", name, instead(lambda path: path.symlink_to("nothing")))
    yield Change("a link outside", name, instead(lambda path: path.symlink_to(secret(path))))


def secret(path: Path) -> Path:
    """A file outside of the folder, which nothing may change."""
    while path.name != "folder":
        path = path.parent
    return path.with_name("secret")


# JSON, by its structure.


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


_MARK = "a value that no file holds"


def replaced(value: Any, place: tuple[Any, ...], text: str | None) -> str:
    """A JSON value as text, with other text in one place; None takes the key away."""
    value = copy.deepcopy(value)
    if not place:
        return text or ""
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    if text is None:
        del parent[place[-1]]
        return json.dumps(value)
    parent[place[-1]] = _MARK
    return json.dumps(value).replace(f'"{_MARK}"', text)


def json_change(chance: random.Random, values: Any) -> tuple[str, str]:
    """What is changed somewhere in a JSON value, and its text then."""
    place = chance.choice(list(places(values)))
    text = None if place and chance.random() < 0.15 else chance.choice(VALUES)
    what = "missing" if text is None else text[:40]
    return f"{'.'.join(map(str, place))} {what}", replaced(values, place, text)


def change_json(path: Path, chance: random.Random) -> str:
    """Change something in a file of JSON; a manifest is sealed again where that is possible."""
    values = json.loads(path.read_text())
    if path.name == "manifest.json":
        del values["sha256"]
    what, text = json_change(chance, values)
    content = text.encode()
    if path.name == "manifest.json":
        with contextlib.suppress(ValueError, RecursionError):
            changed = json.loads(text)
            content = seal(changed) if isinstance(changed, dict) else content
    rewritten(path, content)
    return what


def change_line(path: Path, chance: random.Random) -> str:
    """Change a line of metrics.jsonl, or all lines of its kind alike."""
    lines = path.read_text().splitlines()
    number = chance.randrange(len(lines))
    values = json.loads(lines[number])
    place = chance.choice(list(places(values)))
    text = None if place and chance.random() < 0.15 else chance.choice(VALUES)
    for other, line in enumerate(lines):
        each = json.loads(line)
        alike = chance.random() < 0.5 and each["kind"] == values["kind"] and other != number
        if other == number or alike:
            with contextlib.suppress(KeyError, IndexError):
                lines[other] = replaced(each, place, text)
    rewritten(path, ("\n".join(lines) + "\n").encode())
    return f"line {number} {'.'.join(map(str, place))} {'missing' if text is None else text[:40]}"


# Safetensors: the header, the metadata and the arrays.


def change_tensors(path: Path, chance: random.Random) -> str:
    """Change the header, the description of the agent, or an array of a file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = header.get("__metadata__", {}).get("t3d")
    kind = chance.choice(("header", "array", "array", "about" if about else "array"))
    if kind == "array":
        arrays = load(content)
        name = chance.choice(sorted(arrays))
        what, arrays[name] = other_array(arrays[name], chance)
        metadata = header.get("__metadata__")
        rewritten(path, save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, metadata))
        return f"{name} {what}"
    if kind == "about":
        what, text = json_change(chance, json.loads(about))
        header["__metadata__"]["t3d"] = text
        changed = json.dumps(header)
    else:
        what, changed = json_change(chance, header)
    text_bytes = changed.encode()
    rewritten(path, struct.pack("<Q", len(text_bytes)) + text_bytes + content[8 + length :])
    return f"{kind} {what}"


def other_array(array: Any, chance: random.Random) -> tuple[str, Any]:
    """An array with other numbers, another type or another shape."""
    kinds: dict[str, Callable[[], Any]] = {
        "largest": lambda: np.full_like(array, _largest(array.dtype)),
        "smallest": lambda: np.full_like(array, _largest(array.dtype, smallest=True)),
        "nan": lambda: array * np.nan if array.dtype.kind == "f" else array - 1,
        "random": lambda: np.frombuffer(chance.randbytes(array.nbytes), array.dtype).reshape(
            array.shape
        ),
        "float64": lambda: array.astype(np.float64),
        "int32": lambda: np.zeros(array.shape, np.int32),
        "empty": lambda: array.reshape(-1)[:0],
        "flat": lambda: array.reshape(-1),
        "longer": lambda: np.concatenate([array, array]) if array.ndim else array[None],
        "wider": lambda: np.stack([array, array], axis=-1),
    }
    what = chance.choice(sorted(kinds))
    changed = kinds[what]()
    return what, changed.reshape(array.shape) if what == "random" else changed


def _largest(dtype: Any, smallest: bool = False) -> Any:
    if dtype.kind == "b":
        return not smallest
    about = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return about.min if smallest else about.max


# TOML, and the database of a search.


def change_text(path: Path, chance: random.Random) -> str:
    """Replace a word of a file, such as a value of TOML."""
    words = path.read_text().split(" ")
    number = chance.randrange(len(words))
    words[number] = chance.choice([*VALUES, "=", "[", "", "[[knobs]]", "1979-05-27"])
    rewritten(path, " ".join(words).encode(errors="surrogatepass"))
    return f"word {number} {words[number][:40]}"


def change_rows(path: Path, chance: random.Random) -> str:
    """Replace a value of a table, or delete its rows."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        tables = [
            row[0] for row in database.execute("select name from sqlite_master where type='table'")
        ]
        table = chance.choice(sorted(tables))
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        column = chance.choice(columns)
        value = chance.choice(
            [None, -1, 1e308, "x", b"\xff", 2**62, "{}", '"x"', "\x1b[2J", "[" * 5000]
        )
        with contextlib.suppress(sqlite3.Error):
            if chance.random() < 0.2:
                database.execute(f"delete from {table}")
                return f"{table} empty"
            database.execute(f"update {table} set {column} = ?", (value,))
        return f"{table}.{column} {str(value)[:40]}"


_STRUCTURED: dict[str, Callable[[Path, random.Random], str]] = {
    ".json": change_json,
    ".jsonl": change_line,
    ".safetensors": change_tensors,
    ".toml": change_text,
    ".db": change_rows,
}


def changes(folder: Path, chance: random.Random) -> Iterator[Change]:
    """Endless changes of the files of a folder: most by their grammar, some blind."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    names = [name for name in names if "tensorboard" not in name]
    known = [name for name in names if Path(name).suffix in _STRUCTURED]
    while True:
        if chance.random() < 0.25:
            yield chance.choice(list(plain_changes(chance.choice(names), chance)))
            continue
        # As often a small file that everything reads as one of the many files of checkpoints.
        kind = chance.choice(sorted({Path(name).suffix for name in known}))
        name = chance.choice([each for each in known if Path(each).suffix == kind])
        change = _STRUCTURED[kind]

        def make(path: Path, change: Any = change, seed: int = chance.getrandbits(32)) -> str:
            return str(change(path, random.Random(seed)))

        yield Change("by its grammar", name, make)


# One command on a changed folder, in a process with limits.


def fuzz(
    folder: Path, change: Change, command: Callable[[Path], list[str]], scratch: Path
) -> tuple[str, str]:
    """What was done, and what went wrong when a command met a changed copy of a folder."""
    # A command is a fork, in which PyTorch would wait for its threads: they are not there.
    torch.set_num_threads(1)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    target = shutil.copytree(folder, scratch / "folder", symlinks=True)
    (scratch / "secret").write_bytes(b"{}\n")
    how = change.make(target / change.file) or change.what
    words = command(target)
    code, peak = _run(words, scratch)
    out, err = ((scratch / name).read_text(errors="replace") for name in ("out", "err"))
    what = f"{change.file}: {how}, {words[0]}"
    if code == -signal.SIGKILL or code == -signal.SIGALRM:
        wrong = "" if _is_valid_config(target, change) else "it hangs"
    elif code not in (0, 1, 2) or "Traceback" in err:
        wrong = f"exit {code}: {err[-1500:]}"
    elif (code == 2) != (len(err.splitlines()) == 1) or (code != 2 and err):
        wrong = f"exit {code}, not one line: {err[:500]}"
    elif not all(c.isprintable() or c == "\n" for c in out + err):
        wrong = f"not cleaned: {(out + err)[:500]!r}"
    elif peak > _MEGABYTES and not _is_valid_config(target, change):
        wrong = f"took {peak:.0f} MB"
    elif (scratch / "secret").read_bytes() != b"{}\n":
        wrong = "a file outside was changed"
    else:
        wrong = ""
    return what, wrong


def _is_valid_config(target: Path, change: Change) -> bool:
    """Whether the command does what a valid config asks for, and may take long over it."""
    if not change.file.endswith(("config.json", "sweep.json", ".toml")):
        return False
    if not change.file.endswith("config.json"):
        return True
    with contextlib.suppress(Exception):
        t3d.Config.from_dict(json.loads((target / change.file).read_text()))
        return True
    return False


def _run(words: list[str], scratch: Path) -> tuple[int, float]:
    """The exit code of a command in a forked process, and the megabytes that it took."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setpgid(0, 0)
            os.chdir(scratch)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o666), number)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w"), "utf-8") for n in (1, 2))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_SECONDS)
            try:
                code = main(words)
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            (scratch / "peak").write_text(str((after - before) / 1024))
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    peak = scratch / "peak"
    return code, float(peak.read_text()) if peak.exists() else 0.0
