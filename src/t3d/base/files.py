"""Files: written completely or not at all, and read without trust.

Nothing here executes what it reads. The size that a file claims is checked against its real
size before memory is allocated for it.
"""

import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from t3d.base.errors import BadInput, CannotWrite

_MAXIMUM_JSON = 2**20  # bytes of a file, unless its reader allows more
_MAXIMUM_HEADER = 2**20
_MAXIMUM_VALUES = 600_000  # of a JSON text: lists of nothing take far more memory than bytes
_MAXIMUM_NESTING = 50
# Bytes per number of each type that we write.
_WIDTHS = {"F64": 8, "F32": 4, "I64": 8, "U64": 8, "I32": 4, "U8": 1, "BOOL": 1}
_WIDTHS |= {"F16": 2, "BF16": 2, "I16": 2, "I8": 1}  # of networks of the user's own


def write(path: Path, content: bytes) -> None:
    """Write a new file, and wait until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".writing-{path.name}")
    temporary.unlink(missing_ok=True)
    write(temporary, content)
    try:
        os.replace(temporary, path)
    except OSError:
        temporary.unlink()
        raise
    flush_folder(path.parent)


def save(path: Path, content: bytes) -> None:
    """`replace`, for a file that the user asked for: an error names the file and the reason."""
    try:
        replace(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path | str, error: OSError) -> CannotWrite:
    """The error for a file that the system refuses to write."""
    return CannotWrite(f"{path} cannot be written: {reason(error)}")


def reason(error: OSError) -> str:
    """Why the system refused, without the number and the path."""
    return error.strerror or str(error)


def flush_folder(path: Path) -> None:
    """Wait until the disk has the names of a folder."""
    if os.name != "posix":  # pragma: no cover, others do not open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path, maximum: float = math.inf) -> BufferedReader:
    """A regular file of at most `maximum` bytes, to read.

    Links, pipes and devices are refused: they may lead anywhere, and never end or never answer.
    """
    size = regular_size(path)
    if size > maximum:
        raise BadInput(f"{path} has {size:,} bytes; expected at most {maximum:,}")
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason(error)}") from error


def read(path: Path, maximum: int) -> bytes:
    """The content of a regular file of at most `maximum` bytes."""
    with open_regular(path, maximum) as file:
        return file.read(maximum)


def usable(path: str | Path) -> Path:
    """A path that the system can look up, whether it exists or not; else an error says why."""
    if path == "":
        raise BadInput("a path is ''; expected the path of a file or a folder")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long; an unreadable folder; a null byte
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path} cannot be used: {why}") from error
    return Path(path)


def regular_size(path: Path) -> int:
    """The size of a regular file in bytes; anything else is refused."""
    try:
        status = path.lstat()
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise BadInput(f"{path} cannot be read: {why}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{path} is not a regular file")
    return status.st_size


def require_regular(path: Path) -> None:
    """Refuse to write where there is a link, a pipe or a device: it would lead elsewhere."""
    if os.path.lexists(path):
        regular_size(path)


def read_json(path: Path, maximum: int = _MAXIMUM_JSON) -> dict[str, Any]:
    """The JSON object of a regular file of at most `maximum` bytes."""
    content = read(path, maximum)
    try:
        values = parse_json(content)
    except ValueError as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path} is not a JSON object")
    return values


def parse_json(content: bytes) -> Any:
    """A JSON value in UTF-8; ValueError if it is none, too deep, or too much."""
    text = content.decode()
    opened = text.count("[") + text.count("{")
    if opened + text.count(",") > _MAXIMUM_VALUES:
        raise ValueError(f"it has more than {_MAXIMUM_VALUES:,} values")
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if opened > _MAXIMUM_NESTING:
        _check_nesting(value)
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _check_nesting(value: Any) -> None:
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level:
        depth += 1
        if depth > _MAXIMUM_NESTING:
            raise ValueError(f"it is nested more than {_MAXIMUM_NESTING} deep")
        inner: list[Any] = []
        for each in level:
            members = each.values() if isinstance(each, dict) else each
            inner += [member for member in members if isinstance(member, (dict, list))]
        level = inner


def hash_of(path: Path) -> str:
    """The SHA-256 of a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Header(NamedTuple):
    """The header of a safetensors file: what the file claims to hold."""

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]
    dtypes: dict[str, str]  # by safetensors' names: F32, I64 ...


def header(path: Path) -> Header:
    """The header of a safetensors file whose size is the one that its header claims."""
    size = regular_size(path)
    try:
        with open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAXIMUM_HEADER, size - 8):
                raise ValueError(f"its header claims {length:,} bytes")
            entries = parse_json(file.read(length))
        metadata = entries.pop("__metadata__", {})
        shapes, dtypes, total = {}, {}, 0
        for name, entry in entries.items():
            shape = tuple(entry["shape"])
            if not all(isinstance(n, int) and n >= 0 for n in shape):
                raise ValueError(f"{name} has shape {shape}")
            if entry["dtype"] not in _WIDTHS:
                raise ValueError(f"{name} has numbers of type {entry['dtype']!r}")
            shapes[name], dtypes[name] = shape, entry["dtype"]
            total += math.prod(shape) * _WIDTHS[entry["dtype"]]
        if total != size - 8 - length:
            raise ValueError(f"it claims {total:,} bytes of numbers and has {size - 8 - length:,}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not a safetensors file of T3D: {error}") from error
    return Header(shapes, metadata, dtypes)


def need_room(path: Path, needed: int, what: str) -> None:
    """Raise `CannotWrite` if the disk of a folder, which need not exist yet, has no room."""
    path = _existing(path)
    free = shutil.disk_usage(path).free
    if needed > free:
        advice = "free some, lower --capacity, or take another folder with --run"
        raise CannotWrite(f"{what} may take {size(needed)} and {path} has {size(free)}; {advice}")


def scratch(path: Path) -> BinaryIO:
    """A nameless temporary file on the disk of a folder; it vanishes with the process."""
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(dir=_existing(path)))
    except OSError as error:
        raise CannotWrite(f"no file can be written near {path}: {reason(error)}") from error


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def size(count: float) -> str:
    """A number of bytes for people, such as 1.5 GB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
