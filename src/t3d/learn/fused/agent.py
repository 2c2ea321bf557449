"""The fused engine as an agent: T3D, with its arrays laid out for the compiled update."""

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numba
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.agent import CHANGEABLE, Measures
from t3d.learn.fused import entry
from t3d.learn.fused.plan import (
    SCHEDULE,
    Bounds,
    Memory,
    Scaling,
    Weights,
    knobs_of,
    lay_out,
    new_draw,
    new_scratch,
)
from t3d.learn.fused.team import ThreadTeam
from t3d.learn.fused.threads import COUNTERS
from t3d.learn.fused.update import Job
from t3d.learn.fused.vectors import LANES
from t3d.learn.normalize import Normalizer
from t3d.learn.optimizers import adam_state
from t3d.learn.perception import Batch
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.replay.sampling import Transitions, check_rows
from t3d.learn.t3d import T3D


class FusedT3D(T3D):
    """T3D on the CPU with the compiled update of this package. Everything else is the same.

    The networks' parameters and Adam's moments are views of a few flat arrays, which the
    compiled update works on; PyTorch, `state_dict` and files see no difference.
    """

    agent_id = "t3d"
    engine = "fused"
    depends_on_threads = False
    compiled: ClassVar[type[T3D]] = T3D  # whose steps are
    code: ClassVar[Any] = entry  # the module of its compiled functions

    @classmethod
    def why_not(cls, config: Config, layout: Layout | None) -> str:
        """Why this engine cannot be used for a config and a layout; empty if it can."""
        if numba.config.DISABLE_JIT:
            return "fused is compiled by Numba, which NUMBA_DISABLE_JIT turns off"
        if layout and layout.images:
            return "fused has no convolutions for images"
        if config.device.partition(":")[0] != "cpu":
            return f"fused runs on the CPU, not on {config.device}"
        if config.body != "mlp":
            return f"fused has no network body {config.body}, only mlp"
        for method in ("update", "actor_loss", "td_loss"):
            compiled = FusedT3D if method == "update" else cls.compiled
            if getattr(cls, method) is not getattr(compiled, method):
                own = f"{cls.agent_id}.{method}"
                return f"fused is compiled and does not call {own}; subclass t3d.T3D instead"
        return super().why_not(config, layout)

    def __init__(
        self,
        state_dim: int | Layout,
        low: ArrayLike,
        high: ArrayLike,
        config: Config | None = None,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build an untrained agent; `low` and `high` bound each dimension of the action."""
        super().__init__(state_dim, low, high, config, dtype=dtype)
        why_not = self.why_not(self.config, self.layout)
        if why_not:
            raise BadInput(f"engine {why_not}; use --engine reference")
        self._steps = 0, 0  # Adam's, of the critic and of the actor
        self._bounds = Bounds(
            low=self.low.numpy(),
            high=self.high.numpy(),
            middle=self.actor.middle.numpy(),
            max_action=self.actor.max_action.numpy(),
        )
        self._scaling = _scaling(self.perception.normalizer)
        self._lay_down()
        self._team: ThreadTeam | None = None
        self._td_errors: Array = np.zeros((2, 0))

    def _lay_down(self) -> None:
        """Make all parameters and Adam's state views of flat arrays, and say how to act."""
        actor, critic = list(self.actor.parameters()), list(self.critic.parameters())
        targets = itertools.chain(self.actor_target.parameters(), self.critic_target.parameters())
        self._weights: Any = Weights(
            parameters=one_array(actor + critic),
            targets=one_array(targets),
            **self._moments("actor", "critic"),
        )
        layers = lay_out(self.state_dim, self.action_dim, self.config, panels=1).networks.actor
        acting = self._weights.parameters, layers, tuple(self._bounds), tuple(self._scaling)
        self._act: Callable[[Array, Array], None] = partial(entry.act, *acting)

    def _moments(self, *networks: str) -> dict[str, Array]:
        """Adam's moments of some networks as flat arrays; keeps its counts of steps, too."""
        states = {
            name: [self.optimizers[name].state[p] for p in self.networks[name].parameters()]
            for name in networks
        }
        self._adam_steps = {
            name: one_array(state["step"] for state in states[name]) for name in networks
        }
        every = list(itertools.chain(*states.values()))
        kinds = ("exp_avg", "exp_avg_sq")
        return {kind: one_array(state[kind] for state in every) for kind in kinds}

    def _adam(self, module: nn.Module, rate: float) -> Any:
        # PyTorch's own Adam is not needed, and takes a second to import.
        return SimpleNamespace(state=adam_state(module, "cpu"), param_groups=[])

    def change(self, **knobs: Any) -> None:
        """Learn with other values of some knobs from here on, such as `learning_rate`."""
        before = self.config
        super().change(**knobs)
        rates = {knob: value for knob, value in knobs.items() if knob.endswith("learning_rate")}
        if dataclasses.replace(before, **rates) != self.config:
            self._team = None  # all but the learning rates are laid down in its job

    def prepare(self, waiting: Callable[[], None]) -> None:
        """Compile the engine, if this machine has not yet; `waiting` is called if so."""
        timer = threading.Timer(2.0, waiting)
        timer.daemon = True
        timer.start()
        try:
            compile_all(self.dtype, type(self))
        finally:
            timer.cancel()

    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state, or for a batch of states. No noise is added."""
        states = self.perception.checked(state)
        rows = states if states.ndim == 2 else states[None]
        actions = np.empty((len(rows), self.action_dim), np.float32)
        self._act(rows, actions)
        return actions if states.ndim == 2 else actions[0]

    def train(self, replay_buffer: ReplayBuffer, iterations: int) -> Measures:
        """Run `iterations` updates, each on a new batch; returns the last value of each measure."""
        team = self._team_for(replay_buffer, iterations)
        measures: Measures = {}
        for _ in range(iterations):
            self._draw(team.job, replay_buffer)
            team.begin()
            team.finish()
            measures |= self._learned(team.job)
            self.tell_sampler()
        return measures

    def begin(self, replay_buffer: ReplayBuffer) -> Callable[[], Measures] | None:
        """Begin an update that leaves the actor as it is; returns a function that finishes it.

        None if the actor is due, or if there is no other thread to do it.
        """
        team = self._team_for(replay_buffer)
        if self._changes_policy() or not team.has_helpers():
            return None
        self._draw(team.job, replay_buffer)
        team.begin()

        def finish() -> Measures:
            team.finish()
            measures = self._learned(team.job)
            self.tell_sampler()
            return measures

        return finish

    def last_batch(self, replay_buffer: ReplayBuffer) -> tuple[Transitions, Tensor] | None:
        """What the last update learned from, and its noise; None if there was none yet."""
        if self._team is None or not self._team.serves(replay_buffer) or self.updates == 0:
            return None
        drawn = self._team.job.batch
        batch = replay_buffer.batch(drawn.rows, self.config.n_step, self.config.discount)
        return batch.to(self.device, self.dtype), torch.from_numpy(drawn.noise.copy())

    @property
    def td_errors(self) -> Tensor:
        """The larger of both critics' errors in each row of the last batch, for priorities."""
        return torch.from_numpy(self._td_errors).amax(dim=0)

    def _team_for(self, memory: ReplayBuffer, iterations: int = 1) -> ThreadTeam:
        if self._team is None or not self._team.serves(memory):
            self.check_memory(memory, iterations)
            stores = Memory(
                observation=memory.observation,
                next_at=memory.next_at,
                action=memory.action,
                reward=memory.reward,
                done=memory.done,
            )
            job = self._job(stores, self._scaling, self.config.batch_size)
            threads, freq = self.config.threads, self.config.policy_freq
            self._team = ThreadTeam(job, self.code.work, memory, threads, freq)
        self._team.join()  # an update that an interrupt has left, or that nobody finished
        return self._team

    def _draw(self, job: Job, memory: ReplayBuffer) -> None:
        """All randomness of the next update."""
        job.batch.rows[:] = check_rows(memory, self.draw_rows(memory))
        job.batch.from_memory[0] = 1
        self.smoothing.standard_normal(out=job.batch.noise, dtype=np.float32)
        self._schedule(job)

    def update(self, batch: Batch, noise: Tensor) -> Measures:
        """Steps 5 to 15, once. All randomness comes in as arguments."""
        rows = len(noise)
        widths = (self.state_dim,), (self.state_dim,), (self.action_dim,), (), (), ()
        for name, field, width in zip(Batch._fields, batch, widths):
            if field.shape != (rows, *width):
                expected = f"expected {(rows, *width)}, with {rows} rows of noise"
                raise BadInput(f"{name} has shape {tuple(field.shape)}; {expected}")
        if noise.shape != (rows, self.action_dim):
            raise BadInput(f"noise has shape {tuple(noise.shape)}; expected one per action")
        state, after, action, reward, done, _ = (
            np.ascontiguousarray(field.numpy()) for field in batch
        )
        stores = Memory(
            observation=np.concatenate([state, after]),
            next_at=np.zeros(0, np.int32),
            action=action,
            reward=reward,
            done=done,
        )
        # The states of a batch are as the networks see them: normalised already.
        unchanged = _scaling(Normalizer(self.state_dim, self.dtype))
        job = self._job(stores, unchanged, rows)
        job.batch.rows[:] = np.arange(rows)
        job.batch.ends[:] = rows + job.batch.rows
        job.batch.rewards[:] = reward
        job.batch.discounts[:] = ((1 - batch.done) * self.config.discount**batch.steps).numpy()
        job.batch.noise[:] = noise.numpy()
        self._schedule(job)
        entry.begin(job.counters, 1)
        self.code.work(entry.unnamed(job), 0, 1, 0)
        return self._learned(job)

    def _actor_due(self) -> bool:
        """Whether the next update has steps 13 to 15."""
        return (self.updates + 1) % self.config.policy_freq == 0

    def _changes_policy(self) -> bool:
        """Whether actions are others after the next update."""
        return self._actor_due()

    def _schedule(self, job: Job) -> None:
        """Say which update the next one is."""
        critic_step, actor_step = self._steps
        rates = (self.rate_of(network) for network in ("critic", "actor", "encoder"))
        steps = critic_step + 1, actor_step + 1, self._actor_due()
        job.schedule[0] = *steps, *rates, self.step_of_targets

    def _learned(self, job: Job) -> Measures:
        """Count an update that is done; returns its measures."""
        actor_due = self._actor_due()
        critic_step, actor_step = self._steps
        self.updates += 1
        self._steps = critic_step + 1, actor_step + actor_due
        self._td_errors = job.batch.td_errors
        loss1, loss2, actor_loss, mean_Q = job.scratch.totals.tolist()[:4]
        if actor_due:
            return {"critic_loss": loss1 + loss2, "mean_Q": mean_Q, "actor_loss": actor_loss}
        return {"critic_loss": loss1 + loss2, "mean_Q": mean_Q}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is built again, or its networks would no longer be views of its arrays."""
        about = (self.layout, self.low.numpy(), self.high.numpy(), self.built_with, self.dtype)
        changed = {knob: getattr(self.config, knob) for knob in CHANGEABLE}
        return _rebuilt, (type(self), about, self.state_dict(), changed), {"score": self.score}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update depends on except the memory: flat, names to tensors."""
        critic_steps, actor_steps = self._steps
        for name, steps in self._adam_steps.items():  # td7's encoder steps whenever the critic does
            steps[:] = actor_steps if name == "actor" else critic_steps
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load a `state_dict`. All of it is checked before anything changes."""
        super().load_state_dict(state)
        self._steps = int(self._adam_steps["critic"][0]), int(self._adam_steps["actor"][0])

    def _job(self, memory: Memory, scaling: Scaling, batch_size: int) -> Any:
        """The agent's own arrays, a memory's, and room to compute in for a size of batch."""
        kind, panels = self._weights.parameters.dtype, math.ceil(batch_size / LANES)
        plan = lay_out(self.state_dim, self.action_dim, self.config, panels)
        return Job(
            **self._shared_parts(memory, scaling, batch_size),
            networks=plan.networks,
            sections=plan.sections,
            weights=self._weights,
            scratch=new_scratch(plan.sizes, panels, kind),
        )

    def _shared_parts(self, memory: Memory, scaling: Scaling, batch_size: int) -> dict[str, Any]:
        """The parts of a job that are the same for every agent."""
        kind = self._weights.parameters.dtype
        return {
            "counters": np.zeros(COUNTERS, np.int64),
            "schedule": np.zeros(1, SCHEDULE),
            "memory": memory,
            "batch": new_draw(batch_size, self.action_dim, kind, memory.action.dtype),
            "bounds": self._bounds,
            "scaling": scaling,
            "knobs": knobs_of(self.config, kind, huber=self.draws_by_errors),
        }


def _scaling(normalizer: Normalizer) -> Scaling:
    """A normalizer's own arrays, which follow its updates."""
    return Scaling(
        shift=normalizer.shift.numpy(),
        scale=normalizer.scale.numpy(),
        limit=normalizer.limit.numpy(),
    )


def _rebuilt(
    kind: type[FusedT3D],
    about: tuple[Any, ...],
    state: dict[str, Tensor],
    changed: dict[str, Any],
) -> FusedT3D:
    *shape, dtype = about
    agent = kind(*shape, dtype=dtype)
    agent.load_state_dict(state)
    agent.change(**changed)
    return agent


def one_array(tensors: Iterable[Tensor]) -> Array:
    """Copy tensors into one flat array, and make them views of it."""
    tensors = list(tensors)
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.numel()
        tensor.data = flat[start:end].view(tensor.shape)
    return flat.numpy()


def compile_all(dtype: torch.dtype = torch.float32, kind: type[FusedT3D] = FusedT3D) -> None:
    """Compile the code for training and acting, or read it from Numba's cache."""
    agent = kind(1, [-1.0], [1.0], Config(hidden=(1,), batch_size=1), dtype=dtype)
    memory = ReplayBuffer(1, 1, 1)
    memory.add([0.0], [0.0], [0.0], 0.0, False)
    agent.train(memory, 1)
    agent.select_action([0.0])
