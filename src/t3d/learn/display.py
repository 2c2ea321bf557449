"""An agent as a prompt and a notebook show it. Texts are cleaned: a config may come from a file."""

from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from torch import nn

from t3d.base.text import clean
from t3d.config import Config

if TYPE_CHECKING:
    from t3d.learn.agent import Agent

_LONGEST = 200  # characters of a value
_KNOBS = 120  # characters of all knobs in a line


def line(agent: "Agent") -> str:
    """One line: the same without what has a default, and layers by their units."""
    parts = [f"observation {agent.layout.size}, action {agent.action_dim}"]
    for network, units in agent.config.hidden_layers.items():
        parts.append(f"{network} {'-'.join(map(str, units))}")
    parts += [f"{agent.updates:,} updates", f"{agent.engine} engine"]
    if agent.score:
        parts.append(f"score {_score(agent.score)}")
    elsewhere = ("agent", "hidden", "actor_hidden", "critic_hidden")
    knobs = {name: value for name, value in _knobs(agent).items() if name not in elsewhere}
    if knobs:
        texts = (f"{name}={clean(value, _LONGEST)}" for name, value in knobs.items())
        parts.append(shorten(", ".join(texts), _KNOBS, placeholder=" ..."))
    env = f"{clean(agent.env_name, _LONGEST)}: " if agent.env_name else ""
    return f"{type(agent).__name__}({env}{', '.join(parts)})"


def html(agent: "Agent") -> str:
    """A table: sizes, networks, updates, score, and the knobs that are not the defaults."""
    rows = {"environment": agent.env_name} if agent.env_name else {}
    rows |= {
        "observation, action": f"{agent.layout.size}, {agent.action_dim}",
        "engine, device": f"{agent.engine}, {agent.device}",
        "updates": f"{agent.updates:,}",
    }
    if agent.score:
        rows["score"] = _score(agent.score)
    rows |= {name: _layers(network) for name, network in agent.networks.items()}
    rows |= {name: f"{value}" for name, value in _knobs(agent).items()}
    lines = [
        f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in rows.items()
    ]
    return f"<table><caption>{_text(type(agent).__name__)}</caption>{''.join(lines)}</table>"


def _knobs(agent: "Agent") -> dict[str, Any]:
    """The knobs that are not the defaults, without those that are shown anyway."""
    usual, shown = vars(Config()), ("env", "engine", "device")
    knobs = vars(agent.config).items()
    return {name: value for name, value in knobs if value != usual[name] and name not in shown}


def _score(score: dict[str, float]) -> str:
    return "{mean:,.1f} ± {std:,.1f}, {episodes:.0f} episodes".format(**score)


def _layers(network: nn.Module) -> str:
    """The parameters of a network: how many, and the shapes of its weights."""
    weights = [each for each in network.parameters() if each.ndim > 1]
    count = sum(each.numel() for each in network.parameters())
    return f"{count:,} parameters: {', '.join('×'.join(map(str, w.shape)) for w in weights)}"


def _text(value: str) -> str:
    return escape(clean(value, _LONGEST))
