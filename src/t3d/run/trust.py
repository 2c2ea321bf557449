"""Code that a folder names: it is imported only if the user trusts it.

A config names an environment, and perhaps wrappers, another environment for evaluations, an agent,
a network body and a Ray cluster. Whoever types
such a name trusts what it leads to, and training remembers that. A name that only comes from a
folder, which may be somebody else's, is refused until the user agrees once.

~/.config/t3d/trusted.jsonl has a line for each name and the file that it led to. Delete a line, or
the file, to be asked again.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from t3d.base import files
from t3d.base.arguments import calls, texts_in
from t3d.base.errors import BadInput, T3DError
from t3d.base.imports import source_of
from t3d.config import Config

_MAXIMUM = 2**24  # bytes of the file
_OWN_CLUSTERS = ("local", "auto")
ENVIRONMENT = frozenset({"env", "env_kwargs", "wrap", "eval_env", "eval_env_kwargs"})
_ROLES = {
    "env": "environment",
    "env_kwargs": "argument",
    "wrap": "wrapper",
    "eval_env": "environment",
    "eval_env_kwargs": "argument",
    "agent": "agent",
    "body": "network body",
    "ray": "Ray cluster",
}
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w./-]*")


class Named(NamedTuple):
    """Something that a config names, and where it leads."""

    knob: str
    name: str  # module:name, or the address of a cluster
    source: str | None  # the file that an import would run; None if there is none

    def __str__(self) -> str:
        """What would happen, in words."""
        does = "connects to it" if self.knob == "ray" else f"runs {self.source}"
        return f"the {_ROLES[self.knob]} {self.name}, which {does}"


_granted: set[Named] = set()  # in this process, even if nothing can be written


def require(
    where: str | Path,
    *configs: Config,
    not_from_folder: Collection[str] = (),
    trust: bool = False,
    ask: Callable[[str], bool] = lambda question: False,
    how: str = "pass trust=True, or the object itself",
) -> None:
    """Refuse configs from a folder that name code which the user has not trusted.

    `not_from_folder` are the knobs that the user passed. With `trust`, or if `ask` says so, the
    code is trusted from now on; `how` tells the user to do that.
    """
    for named in dict.fromkeys(
        each for config in configs for each in _named(config, not_from_folder)
    ):
        if _is_trusted(named):
            continue
        if named.source is None and not trust:
            raise BadInput(f"{where} needs {_ROLES[named.knob]} {named.name}: no such module here")
        if not trust and not ask(f"{where} names {named}. Do you trust it?"):
            raise BadInput(f"{where} names {named}; if you trust it, {how}")
        _remember(named)


def remember(config: Config) -> None:
    """Trust what a config names: the user is training with it."""
    for named in _named(config):
        if not _is_trusted(named):
            _remember(named)


def _named(config: Config, not_from_folder: Collection[str] = ()) -> Iterator[Named]:
    """What a config names that is not part of T3D or registered with Gymnasium."""
    wrapping = calls("wrap", config.wrap)
    names = [("env", config.env), ("agent", config.agent), ("body", config.body)]
    names += [("wrap", name) for name, _ in wrapping]
    names += [("eval_env", config.eval_env)] if config.eval_env else []
    for knob, name in names:
        module, colon, attribute = name.partition(":")
        # A name with < in it, such as a lambda's, cannot be imported.
        if knob not in not_from_folder and colon and "<" not in attribute:
            yield Named(knob, name, source_of(module))
    # Some environments import what an argument names, as Gymnasium's for the old Gym do.
    given = [("env_kwargs", config.env_kwargs), ("eval_env_kwargs", config.eval_env_kwargs)]
    given += [("wrap", arguments) for _, arguments in wrapping]
    for knob, arguments in given:
        for name in texts_in(arguments) if knob not in not_from_folder else ():
            source = source_of(name.partition(":")[0]) if _NAME.fullmatch(name) else None
            if source is not None:
                yield Named(knob, name, source)
    if config.collectors and "ray" not in not_from_folder and config.ray not in _OWN_CLUSTERS:
        yield Named("ray", config.ray, config.ray)


def _is_trusted(named: Named) -> bool:
    return named in _granted or (named.source is not None and named in _remembered())


def _remember(named: Named) -> None:
    """Trust something in this process and, if the user's folder can be written, later."""
    _granted.add(named)
    path = _path()
    if path is None or named.source is None:
        return
    with suppress(OSError, T3DError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.require_regular(path)
        line = json.dumps(named._asdict()) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())  # one write: concurrent runs lose no line
        finally:
            os.close(descriptor)


def _remembered() -> set[Named]:
    """What the user trusted earlier. Malformed lines are ignored."""
    path = _path()
    remembered: set[Named] = set()
    if path is None or not os.path.lexists(path):
        return remembered
    for line in files.read(path, _MAXIMUM).splitlines():
        with suppress(ValueError, TypeError):
            remembered.add(Named(**files.parse_json(line)))
    return remembered


def _path() -> Path | None:
    """The file in the user's config folder; None if there is no such folder."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(config) if os.path.isabs(config) else Path.home() / ".config"
    except RuntimeError:  # nobody's home
        return None
    return folder / "t3d" / "trusted.jsonl"
