"""Import the user's own code by its name, `module:name`: environments, agents, bodies."""

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from t3d.base.errors import BadInput
from t3d.base.text import blame, did_you_mean


def name_of(thing: Any) -> str:
    """`module:name` of a class or function; without a name, such as a partial, its type's.

    A name with `<` in it, such as a lambda's, cannot be imported.
    """
    name = getattr(thing, "__qualname__", f"<{type(thing).__name__}>")
    return f"{getattr(thing, '__module__', '?')}:{name}"


def source_of(module_name: str) -> str | None:
    """The file that an import of a module would run last; None if there is no such module.

    Nothing is run to find it. (`importlib.util.find_spec` would import the parent packages.)
    """
    inside: list[str] | None = None  # the folders of the package so far
    origin = None
    parts = module_name.split(".")
    for count, part in enumerate(parts, start=1):
        name = ".".join(parts[:count])
        if name in sys.modules:
            module = sys.modules[name]
            origin = getattr(module, "__file__", None)
            paths = getattr(module, "__path__", None)
        else:
            spec = _spec_of(name, inside) if part.isidentifier() else None
            if spec is None:
                return None
            origin, paths = spec.origin, spec.submodule_search_locations
        if paths is None and count < len(parts):
            return None
        # That of a folder without __init__.py would look its parent up, which is not imported.
        inside = None if paths is None else list(getattr(paths, "_path", paths))
    if origin in (None, "built-in", "frozen"):
        return inside[0] if inside else "a part of Python"
    return os.path.realpath(str(origin))


def _spec_of(name: str, inside: list[str] | None) -> ModuleSpec | None:
    """The spec of a module in a package, or else where `import_module_of` would look."""
    for finder in sys.meta_path:
        where = inside
        if finder is PathFinder and inside is None:
            where = [os.getcwd(), *sys.path]
        try:
            spec = finder.find_spec(name, where)
        except KeyError:  # a folder without __init__.py, in another that is not imported
            spec = ModuleSpec(name, None, is_package=True)
            folders = [os.path.join(each, name.rpartition(".")[2]) for each in inside or ()]
            spec.submodule_search_locations = [each for each in folders if os.path.isdir(each)]
        if spec is not None:
            return spec
    return None


def import_module_of(name: str, role: str, parameter: str) -> ModuleType:
    """Import the module of `module:name`, from the current folder or the installed packages.

    Errors name its `role`, and the `parameter` that accepts the object itself.
    """
    module_name, _, attribute = name.partition(":")
    in_main = module_name == "__main__"
    if "<" in attribute or (in_main and not hasattr(sys.modules["__main__"], attribute)):
        advice = f"from Python, pass it as {parameter}"
        raise BadInput(f"{role} {name!r} was defined where it cannot be imported; {advice}")
    if os.getcwd() not in sys.path:  # a command, unlike `python`, does not look here by itself
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        where = f"looked in {os.getcwd()} and the installed packages"
        raise BadInput(f"no module {error.name!r} for {role} {name!r}; {where}") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"module {module_name!r} cannot be imported: {blame(error)}") from error


def member(module: ModuleType | None, attribute: str) -> Any:
    """The attribute of a module, by a name that may have dots; None if there is none."""
    value: Any = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    return value


def import_callable(name: str, role: str, parameter: str) -> Any:
    """The callable that `module:name` names."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise BadInput(f"{role} is {name!r}; expected module:name")
    module = import_module_of(name, role, parameter)
    value = member(module, attribute)
    if not callable(value):
        there = vars(module)  # `dir` has more names if the module loads some when they are used
        names = [key for key in dir(module) if key not in there or callable(there[key])]
        hint = did_you_mean(attribute, names)
        raise BadInput(f"module {module_name!r} has no {role} {attribute!r}{hint}")
    return value
