"""A raw environment: made by its name or its maker, with its arguments and wrappers."""

import copy
import functools
import inspect
import json
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import gymnasium as gym

from t3d.base.arguments import Arguments, calls, checked, refused
from t3d.base.errors import BadInput, T3DError
from t3d.base.extras import how_to_install
from t3d.base.imports import import_callable, import_module_of, member, name_of
from t3d.base.output import complain
from t3d.base.signals import Ended
from t3d.base.text import blame, did_you_mean, one_line
from t3d.config import Config

# The name that was typed is the one that T3D prints, and Gymnasium's newest version of it is meant.
warnings.filterwarnings("ignore", ".*Using the latest versioned environment", UserWarning)

# A Gymnasium id, module:EnvId, module:callable, or a callable that makes an environment.
EnvSource: TypeAlias = str | Callable[..., gym.Env[Any, Any]]


def env_name(source: EnvSource) -> str:
    """The name an environment goes by in run folders: its id, or module:callable."""
    source = lent(source)
    if isinstance(source, str):
        return source
    if not callable(source):
        expected = "an environment's name, or a callable that makes a new one: lambda: Robot()"
        raise BadInput(f"env is a {type(source).__name__}; expected {expected}")
    return name_of(source)


def lent(source: EnvSource) -> EnvSource:
    """What a source makes that lends one environment to all (single.py); else the source."""
    own: EnvSource = getattr(source, "lends", source)
    return own


def factory(source: EnvSource) -> Callable[..., Any]:
    """What makes an environment, given its arguments."""
    if callable(source):
        return source
    maker = callable_in_module(source)
    return maker or functools.partial(gym.make, source, disable_env_checker=True)


def rendered(env: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
    """The same environment with rendered images as its observations."""
    try:
        return gym.wrappers.AddRenderObservation(env)
    except gym.error.DependencyNotInstalled as error:
        raise BadInput(missing_extra(name, error)) from error
    except Exception as error:  # whatever a graphics driver raises
        raise BadInput(f"environment {name!r} cannot be rendered: {blame(error)}") from error


def draw_without_a_screen() -> None:
    """Have pygame and MuJoCo render off screen, unless there is a screen or the user chose."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not ("DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")


def create(source: EnvSource, config: Config, render_mode: str | None) -> gym.Env[Any, Any]:
    """Make an environment with the config's arguments, in the config's wrappers."""
    env = _made(source, env_name(source), config.env_kwargs, render_mode)
    for name, arguments in calls("wrap", config.wrap):
        env = _wrapped(env, name, arguments)
    return env


def _made(
    source: EnvSource, name: str, arguments: Mapping[str, Any], render_mode: str | None
) -> gym.Env[Any, Any]:
    if render_mode:
        draw_without_a_screen()
    # An environment that cannot be rendered need not take the argument.
    rendering: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}
    env = call_maker(source, name, factory(source), arguments, rendering)
    if not isinstance(env, gym.Env):
        what = f"{name!r} made a {type(env).__name__}; expected a gymnasium.Env"
        batched = isinstance(env, gym.vector.VectorEnv)
        raise BadInput(f"{what}{'; play a batch with --env-backend batched' if batched else ''}")
    if lent(source) is source and not _claim(env):
        advice = "make a new one at each call, or train with --single-env (single_env=True)"
        raise BadInput(f"{name!r} returned an environment that is in use already; {advice}")
    return env


def call_maker(
    source: EnvSource,
    name: str,
    make: Callable[..., Any],
    arguments: Mapping[str, Any],
    rendering: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """What `make` returns for some arguments; whatever it raises becomes one line."""
    _hear_mujoco_once(name)
    # A copy: the environment may change what it gets.
    given: dict[str, Any] = copy.deepcopy(dict(arguments)) | dict(rendering)
    try:
        return make(**given)
    except gym.error.DependencyNotInstalled as error:
        raise BadInput(missing_extra(name, error)) from error
    except ModuleNotFoundError as error:
        raise BadInput(
            f"environment {name!r} needs the module {error.name!r}: install it"
        ) from error
    except gym.error.Error as error:
        if name in gym.registry:
            raise BadInput(f"environment {name!r} cannot be made: {one_line(error)}") from error
        near = did_you_mean(name, gym.registry)
        advice = near or "; your own goes as module:EnvId or module:callable"
        raise BadInput(f"no environment is called {name!r}{advice}") from error
    except T3DError:
        raise
    except BaseException as error:
        raise_interrupt(error)
        own = lent(source)
        maker = own if callable(own) else callable_in_module(own) or _entry_point(name)
        refusal = refused(f"environment {name!r}", maker, arguments, error)
        if refusal:
            raise BadInput(refusal) from error
        if rendering and isinstance(error, TypeError) and "render_mode" in one_line(error):
            advice = "add the argument to render it, as docs/environments.md shows"
            raise BadInput(f"environment {name!r} takes no render_mode; {advice}") from error
        advice = f" with {given}" if given else ""
        raise BadInput(f"environment {name!r} cannot be made{advice}: {blame(error)}") from error


_heard: set[str] = set()  # what MuJoCo has warned of in this process


def _hear_mujoco_once(name: str) -> None:
    """Show each of MuJoCo's warnings once: by itself it repeats them for every environment.

    Whoever has set a handler of their own keeps it.
    """
    entry = str(gym.registry[name].entry_point) if name in gym.registry else ""
    if "mujoco" not in sys.modules and "mujoco" not in entry:
        return
    with suppress(ImportError, AttributeError):  # not installed, or too old for it
        import mujoco

        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(_tell_once)


def _tell_once(warning: str) -> None:
    if warning not in _heard:
        _heard.add(warning)
        complain(f"MuJoCo warns: {warning}")


# The environments in use here, by their id: an evaluation in that of training would reset it.
_in_use: dict[int, weakref.ref[gym.Env[Any, Any]]] = {}


def _claim(env: gym.Env[Any, Any]) -> bool:
    """Note that an environment is in use; False if it is already."""
    inner = env.unwrapped
    other = _in_use.get(id(inner))
    if other is not None and other() is inner:  # or else the id is that of a former one
        return False
    _in_use[id(inner)] = weakref.ref(inner)
    return True


def release(env: gym.Env[Any, Any]) -> None:
    """Note that an environment is closed."""
    with suppress(Exception):  # of an environment that refuses even this
        _in_use.pop(id(env.unwrapped), None)


def _entry_point(name: str) -> Any:
    """What makes a registered environment."""
    entry = gym.registry[name.rpartition(":")[2]].entry_point
    return gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry


def _wrapped(env: gym.Env[Any, Any], name: str, arguments: Arguments) -> gym.Env[Any, Any]:
    """An environment in a wrapper, `module:name`."""
    wrapper = import_callable(name, "wrapper", "wrap")
    try:
        wrapped = wrapper(env, **copy.deepcopy(dict(arguments)))
    except BaseException as error:
        raise_interrupt(error)
        refusal = refused(f"wrapper {name!r}", wrapper, arguments, error)
        raise BadInput(refusal or f"wrapper {name!r} cannot be made: {blame(error)}") from error
    if not isinstance(wrapped, gym.Env):
        kind = type(wrapped).__name__
        raise BadInput(f"wrapper {name!r} made a {kind}; expected a gymnasium.Env")
    return wrapped


def unfolded(source: EnvSource) -> tuple[EnvSource, Arguments]:
    """A functools.partial as what it calls and with which arguments, so that a config can name it.

    One that cannot be imported, or whose arguments are not JSON, stays what it is.
    """
    if not isinstance(source, functools.partial):
        return source, Arguments()
    called, given = source.func, dict(source.keywords)
    try:
        if source.args:
            signature = inspect.signature(called)
            given |= signature.bind_partial(*source.args).arguments
            kinds = {signature.parameters[each].kind for each in given.keys() - source.keywords}
            if kinds != {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
                return source, Arguments()
        if json.loads(json.dumps(given)) != given:
            return source, Arguments()
        arguments = checked("env", given)
    except (BadInput, TypeError, ValueError, RecursionError):
        return source, Arguments()
    if called is gym.make and isinstance(arguments.get("id"), str):
        name: str = arguments.pop("id")
        return name, arguments
    module, _, attribute = name_of(called).partition(":")
    importable = member(sys.modules.get(module), attribute) is called
    return (called, arguments) if importable else (source, Arguments())


def callable_in_module(source: str) -> Callable[..., Any] | None:
    """What `module:name` names, if it is a callable; None if Gymnasium is to look it up."""
    module_name, colon, attribute = source.partition(":")
    if not colon:
        return None
    module = import_module_of(source, "environment", "env")
    maker = member(module, attribute)
    if callable(maker):
        return cast(Callable[..., Any], maker)
    if attribute not in gym.registry:
        names = [key for key, value in vars(module).items() if callable(value)] + list(gym.registry)
        advice = did_you_mean(attribute, names)
        raise BadInput(f"module {module_name!r} neither has nor registers {attribute!r}{advice}")
    return None


def missing_extra(name: str, error: gym.error.DependencyNotInstalled) -> str:
    """The error for an environment whose packages are not installed."""
    text = str(error).lower()
    extras = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "classic"}
    extra = next((extra for word, extra in extras.items() if word in text), None)
    if extra is None:
        return f"environment {name!r} needs a package that is not installed: {one_line(error)}"
    return f"environment {name!r} needs an extra: {how_to_install(extra)}"


def raise_interrupt(error: BaseException) -> None:
    """Pass on a signal of the user's; all else that foreign code raises is an error of its own."""
    by_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if isinstance(error, Ended) or (isinstance(error, KeyboardInterrupt) and by_ctrl_c):
        raise error
