"""Which agent learns: TD3 or TD7 on one of their engines, or a class of the user's own."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from t3d.base.arguments import wrapper_words
from t3d.base.errors import BadInput, T3DError
from t3d.base.imports import import_callable, member, name_of
from t3d.base.observation import Layout
from t3d.base.text import blame, did_you_mean
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.networks import BODIES, body_name

AgentSource: TypeAlias = str | type[Agent]  # t3d, module:Class, or a class


def _fused() -> type[Agent]:
    from t3d.learn.fused.agent import FusedT3D  # imports numba

    return FusedT3D


def _reference() -> type[Agent]:
    from t3d.learn.t3d import T3D

    return T3D


def _fused_td7() -> type[Agent]:
    from t3d.learn.fused.td7.agent import FusedTD7

    return FusedTD7


def _td7() -> type[Agent]:
    from t3d.learn.td7 import TD7

    return TD7


# The engines of each agent of T3D's own, the fastest first.
AGENTS: dict[str, dict[str, Callable[[], type[Agent]]]] = {
    "t3d": {"fused": _fused, "reference": _reference},
    "td7": {"fused": _fused_td7, "reference": _td7},
}


def agent_class(
    config: Config, layout: Layout | None = None, *, fallback: bool = False
) -> tuple[type[Agent], str]:
    """The class of a config's agent, and why it is not on a faster engine.

    With `fallback`, an engine that cannot be used here gives way to the reference: any engine can
    read any agent.
    """
    own = find_agent(config.agent)
    engines = AGENTS["t3d"] | {own.engine: lambda: own} if own else AGENTS[config.agent]
    config = dataclasses.replace(config, agent=own.agent_id if own else config.agent)
    if config.agent == "t3d":
        for knob in ("embedding", "encoder_hidden"):
            if getattr(config, knob) != getattr(Config, knob):
                raise BadInput(f"{knob} is a knob of td7; use --agent td7, or leave it out")
    if unfit := (own or engines["reference"]()).unfit(config, layout):
        raise BadInput(unfit)
    reasons: dict[str, str] = {}
    for name, engine in engines.items():
        if config.engine in ("auto", name) or (fallback and reasons):
            try:
                kind = engine()
                why_not = kind.why_not(config, layout)
            except ImportError as error:  # not there, or not made for this Python or NumPy
                why_not = f"{name} needs numba: {error}"
            if not why_not:
                return kind, "; ".join(reasons.values())
            reasons[name] = why_not
    if config.engine == "fused" and (own is None or own.engine != "fused"):
        raise BadInput(f"engine {reasons['fused']}; use --engine reference")
    *_, last = reasons.values()
    why_not = reasons.get(own.engine, last) if own else last
    raise BadInput(f"agent {config.agent} cannot be used: {why_not}")


def make_agent(
    config: Config,
    layout: Layout,
    low: ArrayLike,
    high: ArrayLike,
    agent: AgentSource | None = None,
) -> tuple[Agent, str]:
    """An untrained agent for a config, and why it is not on a faster engine.

    `agent` replaces `config.agent`. The config of the result says what it became.
    """
    if agent is not None:
        config = dataclasses.replace(config, agent=agent_name(agent))
    kind, why = agent_class(config, layout)
    config = dataclasses.replace(config, engine=kind.engine)
    own = own_code(config)
    try:
        made = kind(layout, low, high, config)
        if own:
            made.check_saving()
            _rehearse(made)
        return made, why
    except (T3DError, MemoryError):
        raise
    except Exception as error:
        if not own:
            raise
        raise BadInput(f"{own} cannot build an agent: {blame(error)}") from error


def own_code(config: Config) -> str:
    """The name of the user's own agent, or else of the user's own network body; empty if none."""
    own_body = "" if config.body in BODIES else config.body
    return own_body if config.agent in AGENTS else config.agent


def _rehearse(agent: Agent) -> None:
    """Ask for the actions and values of one state and of two, and check what comes back."""
    for rows in (1, 2):
        states = np.zeros((rows, agent.layout.size), agent.layout.dtype)
        shapes = {agent.select_action: (rows, agent.action_dim), agent.value: (rows,)}
        for method, shape in shapes.items():
            answer = method(states)
            if not isinstance(answer, np.ndarray) or answer.shape != shape:
                what = f"{type(answer).__name__} of shape {np.shape(answer)} for {rows} states"
                expected = f"expected a NumPy array of shape {shape}"
                raise BadInput(f"{agent.agent_id}.{method.__name__} returned a {what}; {expected}")


def find_agent(name: str, *, importing: bool = True) -> type[Agent] | None:
    """The user's own class that the knob `agent` names; None for T3D's own agents.

    With `importing=False` nothing is imported: the class must be there already.
    """
    if name in AGENTS:
        return None
    module, colon, attribute = name.partition(":")
    if not colon:
        hint = (
            did_you_mean(name, AGENTS)
            or f"; expected {', '.join(AGENTS)}, or your own module:Class"
        )
        raise BadInput(f"no agent is called {name!r}{hint}")
    kind = _passed.get(name) or member(sys.modules.get(module), attribute)
    if kind is None:
        if not importing:
            advice = "import its module first, or pass its class as agent"
            raise BadInput(f"agent {name!r} is not imported here; {advice}")
        kind = import_callable(name, "agent", "agent")
    kind = _checked(kind)
    return None if kind.agent_id in AGENTS else kind


_passed: dict[str, type[Agent]] = {}  # classes that were passed from Python, by name


def agent_name(agent: AgentSource) -> str:
    """The name of an agent in a config; `find_agent` then finds a class that was passed here."""
    if isinstance(agent, str):
        return agent
    kind = _checked(agent)
    _passed[kind.agent_id] = kind
    return kind.agent_id


def _checked(kind: Any) -> type[Agent]:
    if isinstance(kind, type) and issubclass(kind, Agent) and kind is not Agent:
        return kind
    what = name_of(kind) if callable(kind) else type(kind).__name__
    raise BadInput(f"agent is {what}; expected a subclass of t3d.Agent")


def by_name(knobs: dict[str, Any]) -> dict[str, Any]:
    """Knobs as a config takes them: agents, bodies and wrappers by their names."""
    names = {"agent": agent_name, "body": body_name, "wrap": wrapper_words}
    return knobs | {knob: names[knob](knobs[knob]) for knob in names.keys() & knobs.keys()}


def reference_threads(config: Config, layout: Layout) -> int:
    """PyTorch's threads for the reference: the knob's; else 1 where more would only wait."""
    widest = max(max(hidden) for hidden in config.hidden_layers.values())
    small = config.batch_size * widest**2 < 2**22 and not layout.images
    return config.threads or (1 if small else torch.get_num_threads())
