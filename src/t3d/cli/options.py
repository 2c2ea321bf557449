"""Options as data, and one parser for all commands. A usage error is one line."""

import argparse
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from t3d.base.errors import BadInput
from t3d.base.knobs import typed_value
from t3d.base.other_names import OTHER_WAYS, own_name
from t3d.base.text import did_you_mean
from t3d.cli.help import page
from t3d.config import knob_types


class UsageError(BadInput):
    """The words after a command do not fit its options."""


@dataclass(frozen=True)
class Option:
    """One option of a command. One whose default is a bool is a switch: --video, --no-video."""

    name: str  # as in Python: num_envs
    help: str
    default: Any = None
    metavar: str = ""
    convert: Callable[[str], Any] = str
    many: bool = False  # several values at once: --hidden 400 300
    commas: bool = False  # takes several values as one word, with commas: --log-info a,b
    choices: tuple[str, ...] = ()  # what the value can be, if that is all
    repeated: bool = False  # can be typed again, for more: --set tau=0.1 --set n_step=3
    alias: str = ""  # another name for it

    @property
    def flag(self) -> str:
        """The option as it is typed, without a value."""
        return _flag(self.name)

    @property
    def is_switch(self) -> bool:
        """Whether it is typed without a value."""
        return isinstance(self.default, bool)

    @property
    def spelling(self) -> str:
        """The option as the help shows it."""
        if self.is_switch:
            return self.flag.replace("--", "--[no-]" if self.default else "--", 1)
        return f"{self.flag} {self.metavar}{' ...' if self.many else ''}"


@dataclass(frozen=True)
class Argument:
    """The words of a command that belong to no option."""

    name: str
    metavar: str
    help: str
    count: Literal["optional", "one", "many"] = "one"

    @property
    def spelling(self) -> str:
        """The argument as the usage line shows it."""
        shapes = {"optional": "[{0}]", "one": "{0}", "many": "{0} [{0} ...]"}
        return shapes[self.count].format(self.metavar)


@dataclass(frozen=True)
class Command:
    """What can be typed after `t3d NAME`."""

    name: str
    about: str
    argument: Argument | None = None
    options: Mapping[str, Sequence[Option]] = field(default_factory=dict)  # by heading

    @property
    def all_options(self) -> list[Option]:
        """The options of all headings."""
        return [option for options in self.options.values() for option in options]

    @property
    def usage(self) -> str:
        """The command with its argument."""
        return f"t3d {self.name} {self.argument.spelling if self.argument else ''}".rstrip()

    @property
    def help(self) -> str:
        """The page that --help prints."""
        return page(self.usage, self.about, self.argument, self.options)


def parse(command: Command, words: Sequence[str]) -> Namespace:
    """The values of a command's options, typed or by default; --help prints its page and exits."""
    if wants_help(words):
        show(command.help)
    defaults = {option.name: option.default for option in command.all_options}
    return Namespace(**(defaults | read(command, words)))


def wants_help(words: Sequence[str]) -> bool:
    """Whether the words ask for help."""
    return bool({"-h", "--help"} & set(words))


def show(text: str) -> NoReturn:
    """Print a help page; nothing else is done then."""
    print(text, flush=True)
    raise SystemExit(0)


def read(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """What was typed, by name: nothing else is in it but the argument."""
    parser = _Parser(command)
    options, after = list(words), []
    if "--" in options:
        cut = options.index("--")
        options, after = options[:cut], options[cut + 1 :]
    try:
        typed, rest = parser.parse_known_args(parser.spelled(options))
    except argparse.ArgumentError as error:
        raise UsageError(parser.explain(error)) from None
    for word in rest:
        if word.startswith("-") and word != "-":
            raise UsageError(parser.unknown(word.partition("=")[0]))
    for option in command.all_options:
        if getattr(typed, option.name, None) == "":
            expected = f"expected a value: {option.spelling}"
            raise UsageError(f"{option.flag} is ''; {expected} (t3d {command.name} --help)")
    commas = [each.flag for each in command.all_options if each.commas and each.name in typed]
    hint = f"; the values of {commas[0]} have commas between them, no spaces" if commas else ""
    return vars(typed) | _argument(command, [*rest, *after], hint)


def _argument(command: Command, words: list[str], hint: str) -> dict[str, Any]:
    """The value of the command's argument, if there are as many words as it takes."""
    argument = command.argument
    many = argument is not None and argument.count == "many"
    maximum = len(words) if many else 0 if argument is None else 1
    if len(words) > maximum:
        what = f"{command.name}: {words[maximum]!r} is one argument too many{hint}"
        raise UsageError(f"{what} (t3d {command.name} --help)")
    if argument is None:
        return {}
    if "" in words:
        raise UsageError(f"{command.name}: an argument is ''; expected {argument.help}")
    if not words and argument.count != "optional":
        raise UsageError(f"{command.name} needs {argument.help}: {command.usage}")
    return {argument.name: tuple(words) if many else words[0] if words else None}


class _Parser(argparse.ArgumentParser):
    """Argparse, less what it prints: options without defaults, and errors as `UsageError`."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"t3d {command.name}",
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
            argument_default=argparse.SUPPRESS,
        )
        # Argparse reads -1 as a number and -1e-5 as an option.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.command = command
        self.by_flag: dict[str, Option] = {}
        for option in command.all_options:
            flags = [option.flag, *([_flag(option.alias)] if option.alias else [])]
            self.by_flag |= dict.fromkeys(flags, option)
            if option.is_switch:
                self.by_flag[f"--no-{option.flag[2:]}"] = option
                self.add_argument(option.flag, action=argparse.BooleanOptionalAction)
            else:
                nargs = "+" if option.many else None
                more = "extend" if option.many else "append"
                action = more if option.repeated else "store"
                self.add_argument(*flags, type=option.convert, nargs=nargs, action=action)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help)")

    def spelled(self, words: Sequence[str]) -> list[str]:
        """The words as argparse knows them: --num_envs and --hidden=400 300 are fine, too."""
        spelled: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name not in self.by_flag:
                spelled.append(word)
            elif equals and self.by_flag[name].many:
                spelled += [name, value]
            else:
                spelled.append(f"{name}{equals}{value}")
        return spelled

    def explain(self, error: argparse.ArgumentError) -> str:
        """An error of argparse in plain words."""
        flag = str(error.argument_name).partition("/")[0]
        option = self.by_flag[flag]
        if isinstance(error.__context__, ArgumentTypeError):
            problem = f"{flag} {error.message}"
        elif option.is_switch:
            problem = f"{flag} takes no value; type {flag} or --no-{flag[2:]}"
        else:
            expected = ", ".join(option.choices) or option.spelling
            problem = f"{flag} needs a value: {expected}"
        return f"{problem} ({self.prog} --help)"

    def unknown(self, flag: str) -> str:
        """The message for an option that the command does not have."""
        argument = self.command.argument
        name = flag[2:].replace("-", "_")
        knob = own_name(name)
        if argument and knob == argument.name:
            return (
                f"{self.command.name} takes {argument.metavar} without {flag}: {self.command.usage}"
            )
        if name.lower() in OTHER_WAYS:
            advice = f"; {OTHER_WAYS[name.lower()]}"
        elif knob in knob_types and _flag(knob) not in self.by_flag:
            takes = (
                "type --set {}=VALUE" if "--set" in self.by_flag else "{} is a knob of t3d train"
            )
            advice = f"; {takes.format(knob)}"
        else:
            advice = did_you_mean(_flag(knob), self.by_flag) or f"; {self.prog} --help lists all"
        return f"{self.command.name} has no option {flag!r}{advice}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def whole_number(text: str) -> int:
    """A whole number; 1e6 and 1_000_000 are fine, too."""
    value = typed_value(int, text)
    if not isinstance(value, (int, float)) or value % 1:  # infinity and nan leave nan
        raise ArgumentTypeError(f"is {text!r}; expected a whole number")
    return int(value)


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"is {text!r}; expected a number") from None


def one_of(*names: str) -> Callable[[str], str]:
    """One of some names."""

    def convert(text: str) -> str:
        if text not in names:
            near = did_you_mean(text, names)
            raise ArgumentTypeError(f"is {text!r}; expected one of: {', '.join(names)}{near}")
        return text

    return convert
