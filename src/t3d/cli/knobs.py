"""The commands that take every knob: train, doctor and tune. A typed knob overrides the preset."""

import contextlib
import dataclasses
import shlex
import tomllib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from t3d.base.errors import BadInput
from t3d.base.knobs import typed_value
from t3d.cli.help import names, page
from t3d.cli.options import Argument, Command, Option, UsageError, read, show, wants_help
from t3d.config import SCOPES, Config, knob_types
from t3d.presets import resolve

# The knobs that people change first.
FIRST = (
    *("steps", "seed", "num_envs", "random_steps", "exploration_noise"),
    *("hidden", "batch_size", "learning_rate", "eval_every", "device"),
)
_ALIASES = {"agent": "algorithm"}  # of knobs
_PRESET = Option(
    "preset", "a name from `t3d presets`, a TOML file, or auto: that of ENV", "auto", metavar="NAME"
)


class Typed(NamedTuple):
    """What was typed after a command that takes every knob."""

    options: Namespace  # the command's own, typed or by default
    preset: str
    config: Config  # the preset's knobs, overridden by the typed ones
    knobs: frozenset[str]  # the names of the typed ones


def read_knobs(name: str, about: str, own: Sequence[Option], words: Sequence[str]) -> Typed:
    """Read the words after a command with options of its own and all knobs."""
    own = [_PRESET, *own]
    command = _command(name, about, own, Config())
    if wants_help(words) or "--help-all" in words:
        _help(command, own, words)
    values = read(command, words)
    _require_env_first(command, values)
    preset, config = resolve(values["env"], values.get("preset", "auto"))
    typed = {knob: value for knob, value in values.items() if knob in knob_types}
    if values["env"] is None:
        del typed["env"]
    config = Config.from_dict(vars(config) | typed)
    options = {each.name: values.get(each.name, each.default) for each in own}
    return Typed(Namespace(**options), preset, config, frozenset(typed))


def _require_env_first(command: Command, values: Mapping[str, Any]) -> None:
    """Refuse an environment that was typed after NAME=VALUE words, which take it for one more."""
    for option in command.all_options if values["env"] is None else ():
        for word in values.get(option.name, ()) if option.metavar == "NAME=VALUE" else ():
            if "=" not in word:
                what = f"{option.flag} has {word!r}; expected NAME=VALUE"
                advice = f"t3d {command.name} {shlex.quote(word)} {option.flag} ..."
                raise UsageError(f"{what}; an environment goes first: {advice}")


def _command(name: str, about: str, own: Sequence[Option], config: Config) -> Command:
    """The command with all its options: the knobs by scope, with this config's defaults."""
    scopes: dict[str, list[Option]] = {scope: [] for scope in SCOPES}
    for field in dataclasses.fields(Config):
        if field.name != "env":
            scopes[field.metadata["scope"]].append(_knob_option(field.name, config))
    text = Config.__dataclass_fields__["env"].metadata["help"]
    env = Argument("env", "ENV", f"{text} [{config.env}]", "optional")
    return Command(name, about, env, {"options": own, **scopes})


def _knob_option(name: str, config: Config) -> Option:
    kind, several = knob_types[name], False
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        kind, several = get_args(kind)[0], True
    arguments = get_origin(kind) is Mapping
    words = arguments or (several and kind is str)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Option(
        name,
        Config.__dataclass_fields__[name].metadata["help"],
        getattr(config, name),
        "NAME=VALUE" if arguments else {int: "N", float: "X"}.get(kind, "NAME"),
        partial(typed_value, knob_types[name]),
        several or words,
        commas=name == "log_info",
        choices=choices,
        repeated=words or (several and bool(choices)),
        alias=_ALIASES.get(name, ""),
    )


def _help(command: Command, own: Sequence[Option], words: Sequence[str]) -> None:
    """Print the help with the preset's defaults: of some knobs, or of all."""
    others = [word for word in words if word not in ("-h", "--help", "--help-all")]
    try:
        values = read(command, others)
        preset, config = resolve(values["env"], values.get("preset", "auto"))
    except BadInput:  # whoever asks for help may have typed nonsense before
        preset, config = resolve(None)
    about = f"{command.about} In brackets: the defaults; those of knobs are from preset {preset}."
    command = _command(command.name, about, own, config)
    scopes = {scope: command.options[scope] for scope in SCOPES}
    if "--help-all" in words:
        groups = {SCOPES[scope]: options for scope, options in scopes.items()}
        show(page(command.usage, about, command.argument, {"options": own, **groups}))
    by_name = {option.name: option for option in command.all_options}
    first = {"options": own, "the knobs to change first": [by_name[name] for name in FIRST]}
    rest = {
        scope: [option for option in options if option.name not in FIRST]
        for scope, options in scopes.items()
    }
    head = f"all other knobs (t3d {command.name} --help-all explains them):"
    show("\n".join([page(command.usage, about, command.argument, first), "", head, *names(rest)]))


def knob_values(text: str) -> tuple[str, Any]:
    """`tau=0.005,0.01` as a knob and its values."""
    knob, equals, values = text.partition("=")
    if not equals or not values:
        raise BadInput(f"--set {text!r}; expected KNOB=VALUE or KNOB=VALUE,VALUE")
    return knob.replace("-", "_"), typed_values(values)


def typed_values(text: str) -> Any:
    """The text as a TOML value; else as a list, if it has commas; else as a plain string."""
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    parts = text.split(",")
    return [typed_values(part) for part in parts] if len(parts) > 1 else text
