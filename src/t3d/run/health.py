"""Checks of the agent's numbers: stop if one is not finite, warn if they look wrong.

    python -m t3d.run.health RUN/broken-step-N

repeats the update that failed, from the bundle that the run wrote, and prints its measures.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import SupportsFloat

import numpy as np
import torch
from safetensors.torch import load_file, save

from t3d.base import files
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import agent_class
from t3d.learn.networks import find_body
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.replay.sampling import Transitions
from t3d.run import trust
from t3d.run.folder import RunFolder, versions
from t3d.run.records import Json


def broken(measured: Mapping[str, SupportsFloat]) -> str:
    """Which measure is not finite, in words; empty if all are."""
    for name, value in measured.items():
        if not math.isfinite(value):
            return f"{name} is {float(value)}"
    return ""


def broken_weights(agent: Agent) -> str:
    """Which array of an agent is not finite, in words; empty if all are."""
    for name, tensor in agent.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"{name} is not finite"
    return ""


def write_bundle(folder: RunFolder, agent: Agent, memory: ReplayBuffer, about: Json) -> Path:
    """Save the broken agent, with the batch and the noise of its last update."""
    path = folder.path / f"broken-step-{about['step']}"
    path.mkdir(exist_ok=True)
    files.replace(path / "agent.safetensors", agent.to_bytes())
    last = agent.last_batch(memory)
    if last is not None:
        batch, noise = last
        tensors = {**batch._asdict(), "noise": noise}
        content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
        files.replace(path / "batch.safetensors", content)
    knobs = {"engine": agent.engine, "agent": agent.agent_id, "body": agent.config.body}
    facts = about | knobs | {"versions": versions()}
    files.replace(path / "about.json", (json.dumps(facts, indent=2) + "\n").encode())
    return path


def reproduce(bundle: str | Path) -> dict[str, float]:
    """Repeat the update of a bundle until the actor was updated too; returns the measures."""
    path = Path(bundle)
    about = files.read_json(path / "about.json")
    knobs = ("engine", "agent", "body")
    config = Config.from_dict({knob: about[knob] for knob in knobs if knob in about})
    trust.require(path, config, how="import it first")
    find_body(config.body)
    agent = agent_class(config)[0].load(path / "agent.safetensors")
    files.header(path / "batch.safetensors")
    tensors = load_file(path / "batch.safetensors")
    noise = tensors.pop("noise").to(agent.dtype)
    batch = Transitions(**tensors).to(agent.device, agent.dtype)
    measured: dict[str, SupportsFloat] = {}
    for _ in range(agent.config.policy_freq + 1):
        measured |= agent.update(agent.perceive(batch), noise)
        if broken(measured):
            break
    return {name: float(value) for name, value in measured.items()}


def saturation(agent: Agent, memory: ReplayBuffer) -> float:
    """The share of the last actions that are at an end of their range."""
    if not memory.size:
        return 0.0
    recent = memory.action[memory.newest(1000)]
    low, high = agent.low.cpu().numpy(), agent.high.cpu().numpy()
    edge = 0.01 * (high - low)
    return float(np.mean((recent <= low + edge) | (recent >= high - edge)))


def warnings(
    agent: Agent, memory: ReplayBuffer, config: Config, measured: Json
) -> Iterable[tuple[str, str]]:
    """Signs of trouble: the name of each, and one line that says what it is and what to try."""
    live = memory.live_rows()
    share = measured["saturation"]
    if share > 0.95:
        sign = f"{share:.0%} of the last actions are at the end of their range"
        yield "saturated", f"{sign}: lower --learning-rate, or scale the observations to about 1"
    if config.discount < 1 and measured.get("mean_Q") is not None:
        rewards = np.abs(memory.reward[live])
        largest = config.reward_scale * float(rewards.max())
        limit = largest / (1 - config.discount)
        if abs(measured["mean_Q"]) > 2 * limit > 0:
            sign = f"mean Q is {measured['mean_Q']:,.4g}, and no return can be beyond {limit:,.4g}"
            yield "exploding", f"{sign}: lower --learning-rate or --tau, or scale the rewards down"
    every = live[:: max(1, memory.size // 256)]
    states = memory.batch(every[:256]).state.numpy()
    if (states != states[0]).any():
        spread = agent.select_action(states).std(axis=0) / agent.max_action.cpu().numpy()
        if float(spread.max()) < 1e-4:
            sign = "the policy plays the same action in every state"
            yield "collapsed", f"{sign}: lower --learning-rate, or raise --exploration-noise"


def main() -> None:
    """Reproduce a bundle, and print its measures."""
    for name, value in reproduce(sys.argv[1]).items():
        sys.stdout.write(f"{name} {value}\n")


if __name__ == "__main__":
    main()
