"""The parts of a run, built in memory, and whether they fit into RAM and onto the disk."""

import dataclasses
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import torch

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.base.machine import available_memory
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import AGENTS, make_agent, reference_threads
from t3d.learn.networks import BODIES
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.batched import BatchedEnvironments
from t3d.play.collect import Collector
from t3d.play.collecting import Collecting
from t3d.play.envs import EnvMaker, Spaces
from t3d.play.evaluate import EvaluationEnv, evaluation_env, separate_env, spaces_of
from t3d.play.single import OneEnvironment, lending
from t3d.play.vector import Environments
from t3d.remote.collectors import Collectors


@dataclass
class Parts:
    """What a run is made of."""

    config: Config  # with the agent and the engine that were chosen
    why_this_engine: str
    spaces: Spaces
    agent: Agent
    memory: ReplayBuffer
    collector: Collecting
    evaluation_env: EvaluationEnv
    opened: ExitStack  # ends it

    def disk_bytes(self) -> int:
        """What the run may take on the disk."""
        config = self.config
        rows = min(config.capacity, self.memory.added + config.steps)
        agent = sum(tensor.nbytes for tensor in self.agent.state_dict().values())
        agents = 2 * config.keep_checkpoints + 1  # the last and the best, each time
        on_disk = memory_bytes(self.memory, config) if config.replay_on_disk else 0
        return agents * agent + 2 * rows * self.memory.row_bytes + on_disk

    def close(self) -> None:
        """End the environments."""
        with ExitStack() as last_first:
            last_first.callback(self.opened.close)
            last_first.callback(self.collector.close)


def build(maker: EnvMaker, scratch: Path) -> Parts:
    """Build everything in memory. Bad input leaves no trace.

    A memory on disk takes a nameless file near `scratch`.
    """
    with ExitStack() as opened:
        try:
            maker = opened.enter_context(lending(maker))
            env = evaluation_env(maker)
            opened.callback(env.close)
            return _build(maker, env, scratch, opened)
        except MemoryError as error:
            advice = "lower capacity, hidden or batch_size"
            raise BadInput(f"the run does not fit into memory: {error}; {advice}") from error


def _build(maker: EnvMaker, env: EvaluationEnv, scratch: Path, opened: ExitStack) -> Parts:
    """The same, once there is an environment that has the spaces."""
    spaces = spaces_of(env)
    if maker.for_evaluation() is not maker:
        with closing(separate_env(maker)) as training:
            spaces.require_same(env.name, spaces_of(training), f"{maker.name!r}")
    require_room_to_learn(spaces.layout, len(spaces.low), maker.config)
    agent, why_this_engine = make_agent(maker.config, *spaces)
    agent.env_name = maker.config.env
    config = agent.config  # with the engine that was chosen: a resumed run uses the same
    # Mapped into memory, the file lives as long as the mapping, although it is closed here.
    with files.scratch(scratch) if config.replay_on_disk else nullcontext() as file:
        memory = memory_for(spaces.layout, len(spaces.low), config, file)
    _require_memory(memory, config)
    collector: Collecting
    if config.collectors:
        threads = reference_threads(config, spaces.layout)
        # The class itself: on another machine no name may lead to it.
        own = None if config.agent in AGENTS else type(agent)
        player = partial(_player, config, threads, own)
        collector = Collectors(maker, spaces, agent, player)
    else:
        collector = Collector(_environments(maker), config)
    parts = config, why_this_engine, spaces, agent, memory, collector, env
    return Parts(*parts, opened.pop_all())


def _environments(maker: EnvMaker) -> Environments:
    """Those of a run in this process."""
    if maker.config.single_env:
        return OneEnvironment(maker)
    return (BatchedEnvironments if maker.config.env_backend == "batched" else Environments)(maker)


def memory_for(
    layout: Layout, action_dim: int, config: Config, file: BinaryIO | None
) -> ReplayBuffer:
    """A memory for all environments. Those of collectors do not quite alternate."""
    gap = config.all_envs * (1 + (config.staleness if config.collectors else 0))
    return ReplayBuffer(
        config.capacity, layout, action_dim, num_envs=config.all_envs, max_row_gap=gap, file=file
    )


def memory_bytes(memory: ReplayBuffer, config: Config) -> int:
    """What the replay memory will take, except one more observation per episode."""
    rows = min(memory.room, memory.added + config.steps) + config.all_envs
    return rows * memory.row_bytes


def require_room_to_learn(layout: Layout, action_dim: int, config: Config) -> None:
    """Refuse networks and batches that will not fit into RAM, before any of it is allocated.

    The system promises more than it has: without this, the run would fill it for minutes.
    """
    free = available_memory()
    own = config.agent not in AGENTS or config.body not in BODIES
    if free is None or own or config.device.partition(":")[0] != "cpu":
        return
    inputs = layout.vector + (config.features if layout.images else 0)
    hidden = config.hidden_layers
    actor = (inputs, *hidden["actor"], action_dim)
    critic = (inputs + action_dim, *hidden["critic"], 1)
    # A LayerNorm has two more numbers per unit than the bias.
    more = 1 if config.layer_norm == "none" and config.body != "layer_norm" else 3
    weights = sum((a + more) * b for sizes in (actor, critic, critic) for a, b in pairwise(sizes))
    networks = 4 * 4 * weights  # floats: the weights, their targets, and two moments of Adam
    if networks > free:
        sizes = " and ".join(dict.fromkeys(str(each) for each in hidden.values()))
        what = f"networks of hidden {sizes} would take {files.size(networks)}"
        raise BadInput(f"{what}; {files.size(free)} of RAM is free: use a smaller --hidden")
    # Floats: a state and the next, and each layer's output and its gradient; both again, if normed.
    row = 4 * 2 * (layout.size + (1 if more == 1 else 2) * (sum(actor) + 2 * sum(critic)))
    if networks + config.batch_size * row > free:
        what = f"a batch of {config.batch_size:,} would take {files.size(config.batch_size * row)}"
        limit = max(1, int(0.9 * (free - networks) / row))
        advice = f"use --batch-size {limit} or less"
        raise BadInput(f"{what}; {files.size(free)} of RAM is free: {advice}")


def _require_memory(memory: ReplayBuffer, config: Config) -> None:
    """Refuse a memory that will not fit into RAM."""
    free, needed = available_memory(), memory_bytes(memory, config)
    if free is None or needed <= free or config.replay_on_disk:
        return
    limit = int(0.9 * free / memory.row_bytes)
    problem = (
        f"the replay memory would take {files.size(needed)}; {files.size(free)} of RAM is free"
    )
    raise BadInput(f"{problem}: use --capacity {limit} or less, or --replay-on-disk")


def _player(config: Config, threads: int, own: type[Agent] | None, spaces: Spaces) -> Agent:
    """An agent for a collector, which gets its weights from the one that learns."""
    if config.staleness:  # in lock-step everything is as in the learner, for the bits
        threads, config = 1, dataclasses.replace(config, device="cpu", engine="auto")
    torch.set_num_threads(threads)
    return make_agent(config, *spaces, own)[0]
