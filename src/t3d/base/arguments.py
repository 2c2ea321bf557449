"""Arguments of environments, wrappers and watchers: NAME=VALUE words, stored as JSON values.

A value is read as JSON or TOML, else as text: gravity=5, on=true, names=["a","b"], mode=fast.
"""

import contextlib
import inspect
import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from t3d.base.errors import BadInput
from t3d.base.imports import name_of
from t3d.base.text import clean, did_you_mean, shown

_LONGEST = 10_000  # characters of all arguments together, as JSON
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)")
_NESTED = ("[", "{")  # how lists and dicts begin
_PYTHON = {"True": True, "False": False, "None": None}


class Arguments(dict[str, Any]):
    """Keyword arguments of JSON values. It can be hashed: nothing changes it once it is made."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Of its contents, in any order."""
        return hash(json.dumps(self, sort_keys=True))

    def __str__(self) -> str:
        """As it is typed, without the quotes of a shell."""
        return " ".join(words(self)) or "none"


def checked(what: str, value: Any, example: str = "gravity=5") -> Arguments:
    """Arguments from a mapping, from a NAME=VALUE word or from several."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, (list, tuple)):
        value = _pairs(what, value, example)
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} is {shown(value)}; expected NAME=VALUE words, in Python a dict")
    for name in value:
        if not isinstance(name, str) or not name.isidentifier():
            raise BadInput(f"{what} has {shown(name)}; expected the name of an argument")
    arguments = Arguments({name: _plain(f"{what}: {name}", each) for name, each in value.items()})
    if len(json.dumps(arguments)) > _LONGEST:
        raise BadInput(f"{what} has more than {_LONGEST:,} characters; put them into a file")
    return arguments


def _pairs(what: str, typed: Iterable[Any], example: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for word in typed:
        name, equals, text = word.partition("=") if isinstance(word, str) else ("", "", "")
        if not equals or not name.isidentifier():
            raise BadInput(f"{what} has {shown(word)}; expected NAME=VALUE, such as {example}")
        if name in pairs:
            raise BadInput(f"{what} has {name} twice; give it once")
        pairs[name] = _typed(text)
        if pairs[name] == text and text.startswith(_NESTED):  # else a slip would be a text
            read = "expected JSON or TOML, because of how it begins"
            raise BadInput(f"{what}: {name} is {shown(text)}; {read}; as a text: {_quoted(text)}")
    return pairs


def _quoted(text: str) -> str:
    """A text as it is typed in a shell, if it would else be read as something else."""
    return shlex.quote(json.dumps(clean(text, 100)))


def _typed(text: str) -> Any:
    """The value that a text stands for: JSON, a word of Python's, TOML, or else the text itself."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    if text in _PYTHON:
        return _PYTHON[text]
    with contextlib.suppress(ValueError, RecursionError):
        value = tomllib.loads(f"value = {text}")["value"]
        if isinstance(value, (bool, int, float, str, list, dict)):  # not a date
            return value
    return text


def _plain(what: str, value: Any, depth: int = 0) -> Any:
    """A copy of a value in JSON's types; an error if that would lose something."""
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth < 20:
        if isinstance(value, (list, tuple)):
            return [_plain(what, each, depth + 1) for each in value]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return {name: _plain(what, each, depth + 1) for name, each in value.items()}
    expected = "expected finite numbers, texts, true, false, null, and lists and dicts of them"
    advice = "anything else goes into a callable that makes the environment"
    raise BadInput(f"{what} is {shown(value)}; {expected}; {advice}")


def words(arguments: Mapping[str, Any]) -> list[str]:
    """The words to type for some arguments, without the quotes of a shell."""
    texts = {}
    for name, value in arguments.items():
        is_text = isinstance(value, str) and value and _typed(value) == value
        is_text = is_text and not value.startswith(_NESTED)
        texts[name] = value if is_text else json.dumps(value)
    return [f"{name}={text}" for name, text in texts.items()]


def calls(
    what: str, value: Iterable[str], example: str = "factor=2"
) -> list[tuple[str, Arguments]]:
    """What some words name, wrappers or watchers, each with the arguments after it."""
    named: list[tuple[str, list[str]]] = []
    for word in value:
        # A colon in a value is no name: path=a:b
        if "=" not in word.partition(":")[0] and ":" in word:
            named.append((word, []))
        elif named:
            named[-1][1].append(word)
        else:
            raise BadInput(f"{what} begins with {word!r}; expected module:name")
    return [(name, checked(f"{what} {name}", texts, example)) for name, texts in named]


def wrapper_words(value: Any) -> tuple[str, ...]:
    """Wrappers as words: names or classes, each perhaps followed by a dict of its arguments."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    flat: list[str] = []
    for part in parts:
        if isinstance(part, Mapping):
            flat += words(checked("wrap", part))
        elif isinstance(part, (list, tuple)):
            flat += wrapper_words(part)
        else:
            flat.append(_wrapper_name(part) if callable(part) else part)
    return tuple(flat)


def _wrapper_name(wrapper: Any) -> str:
    name = name_of(wrapper)
    if "<" in name:
        advice = "define it at the top of a module, or use it in the callable that makes the env"
        raise BadInput(f"wrapper {name} cannot be imported; {advice}")
    return name


def refused(
    what: str, maker: Callable[..., Any], given: Mapping[str, Any], error: BaseException
) -> str:
    """What to say if `maker` raised for an argument that is missing or not its own; or nothing."""
    text = str(error) if isinstance(error, TypeError) else ""
    names = [name for name in _parameters(maker) if name not in ("self", "env", "render_mode")]
    if missing := _MISSING.search(text):
        needed = [
            name
            for name in re.findall(r"'(\w+)'", missing[1])
            if name in names and name not in given
        ]
        typed = " ".join(f"{name}=VALUE" for name in needed)
        return f"{what} cannot be made without {typed}" if needed else ""
    match = _UNEXPECTED.search(text)
    if match is None or match[1] not in given:
        return ""
    takes = f"; it takes: {', '.join(names)}" if names else "; it takes none"
    return f"{what} takes no argument {match[1]!r}{did_you_mean(match[1], names) or takes}"


def with_advice(advice: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """For an `__init__` that users call: arguments that it does not take are one line."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @wraps(function)
        def called(*values: _P.args, **named: _P.kwargs) -> _R:
            try:
                signature.bind(*values, **named)
            except TypeError as error:
                raise BadInput(f"{type(values[0]).__name__}: {error}; {advice}") from None
            return function(*values, **named)

        return called

    return decorate


def _parameters(maker: Callable[..., Any]) -> list[str]:
    """The names of a callable's arguments; of a class, those of its base classes, too."""
    makers: Iterable[Any] = [maker]
    if inspect.isclass(maker):
        makers = [vars(each)["__init__"] for each in maker.__mro__ if "__init__" in vars(each)]
    names: dict[str, None] = {}
    for each in makers:
        with contextlib.suppress(TypeError, ValueError):  # of C code, without a signature
            for parameter in inspect.signature(each).parameters.values():
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    names[parameter.name] = None
    return list(names)


def texts_in(value: Any) -> Iterator[str]:
    """Every text in some arguments."""
    if isinstance(value, str):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts_in(each)
