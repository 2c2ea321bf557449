"""The one exception for bad input: what, which value, what was expected, what to do."""


class T3DError(ValueError):
    """Something the user gave cannot be used. The message is one clear line.

    The command line prints it without a traceback and exits with code 2.
    """


class DivergedError(T3DError):
    """The agent's numbers are no longer finite."""
