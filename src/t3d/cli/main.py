"""The command line: t3d train and the other commands.

Nothing heavy is imported before a command needs it, so that --help is fast.
"""

import sys
from collections.abc import Callable
from typing import NoReturn

from t3d import __version__
from t3d.base import output
from t3d.base.ending import leave
from t3d.base.errors import T3DError
from t3d.base.text import clean, did_you_mean
from t3d.cli import pages, runs, say, studies, train
from t3d.cli.help import row
from t3d.cli.options import UsageError, wants_help
from t3d.run.signals import exit_code, raised

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train.train,
    "resume": train.resume,
    "doctor": train.doctor,
    "presets": train.presets,
    "inspect": runs.inspect,
    "eval": runs.evaluate,
    "record": runs.record,
    "plot": runs.plot,
    "report": pages.report,
    "explain": pages.explain,
    "check": studies.check,
    "compare": studies.compare,
    "sweep": studies.sweep,
    "tune": studies.tune,
}
# What these print only shows a run, which goes on if it cannot be printed. The output of the others
# is their result.
_TRAINING = ("train", "resume", "sweep", "tune")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 2 for an error, 128 + n for signal n."""
    words = sys.argv[1:] if arguments is None else arguments
    output.open_missing()
    shows_a_run = words[:1] and words[0] in _TRAINING and not wants_help(words)
    with output.guarded(essential=not shows_a_run), raised():
        try:
            code = _dispatch(words)
            sys.stdout.flush()
            return code
        except T3DError as error:
            for line in say.own_traceback(error):
                print(clean(line), file=sys.stderr)
            output.complain(clean(error))
            return 2
        except KeyboardInterrupt as interrupt:
            return exit_code(interrupt)
        except BrokenPipeError:  # the reader of our output, such as `head`, has left
            return 0


def program() -> NoReturn:
    """The command `t3d`."""
    leave(main())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("--version", "-V"):
        print(f"t3d {__version__}")
        return 0
    if words[0] not in COMMANDS:
        advice = did_you_mean(words[0], COMMANDS) or f"; expected one of: {', '.join(COMMANDS)}"
        raise UsageError(f"no command is called {words[0]!r}{advice}")
    return COMMANDS[words[0]](words[1:])


def _help() -> str:
    lines = ["usage: t3d COMMAND ...", "", "Train and use TD3 agents for continuous control.", ""]
    for name, command in COMMANDS.items():
        lines += row(name, (command.__doc__ or "").splitlines()[0], column=12)
    lines += ["", "t3d COMMAND --help explains a command; t3d --version prints the version."]
    lines += ["Start with: t3d train"]
    return "\n".join(lines)
