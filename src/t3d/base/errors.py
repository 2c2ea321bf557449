"""Everything that T3D raises on purpose. The message is one clear line.

    T3DError
    ├── BadInput              what the user gave cannot be used
    ├── CannotWrite           a file or folder cannot be written
    └── RunFailed             training cannot continue; what was learned is saved
        ├── Diverged          the agent's numbers are no longer finite
        ├── BrokenEnvironment an environment broke Gymnasium's rules, or raised
        ├── BrokenWatcher     a watcher raised
        └── BrokenAgent       an agent, network body or sampler of the user's own raised

The command line prints the message without a traceback and exits with code 2.
"""


class T3DError(Exception):
    """The base of the tree: catch this to catch them all."""


class BadInput(T3DError):
    """Something the user gave cannot be used: what, which value, what was expected, what to do."""


class CannotWrite(T3DError):
    """A file or folder cannot be written, or there is no room for it."""


class RunFailed(T3DError):
    """Training cannot continue."""


class Diverged(RunFailed):
    """The agent's numbers are no longer finite."""


class BrokenEnvironment(RunFailed):
    """An environment failed while it played."""


class BrokenWatcher(RunFailed):
    """A watcher raised; its own error is the `__cause__`."""


class BrokenAgent(RunFailed):
    """The user's own agent, network body or sampler raised; its own error is the `__cause__`."""
