"""The fused engine as an agent: T3D with its arrays laid out for fused.py, and its threads."""

import itertools
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from t3d.base.errors import BadInput
from t3d.base.machine import cores
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.agent import adam_state
from t3d.learn.fused import update as fused
from t3d.learn.fused.threads import BOARD, OPEN, dismiss
from t3d.learn.fused.tiles import LANES
from t3d.learn.fused.update import ACTOR, TWIN1, Job
from t3d.learn.normalize import Normalizer
from t3d.learn.perception import Batch
from t3d.learn.replay.memory import Batch as Transitions
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.t3d import T3D


class FusedT3D(T3D):
    """T3D on the CPU with the update of fused.py. Everything else is the same.

    The networks' parameters and Adam's moments are views of a few flat arrays, which the
    compiled update works on; to PyTorch, to `state_dict` and to files they look as ever.
    """

    agent_id = "t3d"
    engine = "fused"
    depends_on_threads = False

    @classmethod
    def why_not(cls, config: Config, layout: Layout | None) -> str:
        """Why this engine cannot be used for a config and a layout; empty if it can."""
        if layout and layout.images:
            return "fused has no convolutions for images"
        if config.device.partition(":")[0] != "cpu":
            return f"fused runs on the CPU, not on {config.device}"
        if config.body != "mlp":
            return f"fused has no network body {config.body}, only mlp"
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
        actor, critic = list(self.actor.parameters()), list(self.critic.parameters())
        targets = itertools.chain(self.actor_target.parameters(), self.critic_target.parameters())
        self._parameters = _one_array(actor + critic)
        self._targets = _one_array(list(targets))
        adam = self.actor_optimizer.state | self.critic_optimizer.state
        self._exp_avg = _one_array([adam[p]["exp_avg"] for p in actor + critic])
        self._exp_avg_sq = _one_array([adam[p]["exp_avg_sq"] for p in actor + critic])
        self._actor_steps = _one_array([adam[p]["step"] for p in actor])
        self._critic_steps = _one_array([adam[p]["step"] for p in critic])
        self._steps = 0, 0  # Adam's, of the critic and of the actor
        bounds = (self.low, self.high, self.actor.middle, self.actor.max_action)
        self._bounds = tuple(bound.numpy() for bound in bounds)
        places = lay_out(self.state_dim, self.action_dim, self.config.hidden, panels=1)
        normalizer = self.perception.normalizer
        seen = normalizer.shift, normalizer.scale, normalizer.limit
        self._seen = tuple(part.numpy() for part in seen)
        self._acting = self._parameters, places.plan[ACTOR], self._bounds, self._seen
        self._crew: _Crew | None = None

    def _adam(self, module: nn.Module) -> Any:
        # PyTorch's own is not needed, and takes a second to import.
        return SimpleNamespace(state=adam_state(module, "cpu"))

    def prepare(self, waiting: Callable[[], None]) -> None:
        """Compile the engine, if this machine has not yet; `waiting` is called if so."""
        timer = threading.Timer(2.0, waiting)
        timer.daemon = True
        timer.start()
        try:
            compile_all(self.dtype)
        finally:
            timer.cancel()

    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state, or for a batch of states. No noise is added."""
        states = self.perception.checked(state)
        rows = states if states.ndim == 2 else states[None]
        actions = np.empty((len(rows), self.action_dim), np.float32)
        fused.act(*self._acting, rows, actions)
        return actions if states.ndim == 2 else actions[0]

    def train(self, replay_buffer: ReplayBuffer, iterations: int) -> dict[str, SupportsFloat]:
        """Run that many training iterations; returns the last of each measure."""
        crew = self._crew_for(replay_buffer)
        measured: dict[str, SupportsFloat] = {}
        for _ in range(iterations):
            self._draw(crew, replay_buffer)
            crew.begin()
            crew.finish()
            measured |= self._learned(crew.job)
        return measured

    def begin(self, replay_buffer: ReplayBuffer) -> Callable[[], dict[str, SupportsFloat]] | None:
        """Begin an update that leaves the actor alone; returns what finishes it, if it is one."""
        crew = self._crew_for(replay_buffer)
        if self._actors_turn() or not crew.has_helpers():
            return None
        self._draw(crew, replay_buffer)
        crew.begin()

        def finish() -> dict[str, SupportsFloat]:
            crew.finish()
            return self._learned(crew.job)

        return finish

    def last_batch(self, replay_buffer: ReplayBuffer) -> tuple[Transitions, Tensor] | None:
        """What the last update learned from, and its noise; None if there was none yet."""
        if self._crew is None or not self._crew.serves(replay_buffer) or self.updates == 0:
            return None
        rows, noise = self._crew.job.rows, torch.from_numpy(self._crew.job.noise.copy())
        batch = replay_buffer.batch(rows, self.config.n_step, self.config.discount)
        return batch.to(self.device, self.dtype), noise

    def _crew_for(self, memory: ReplayBuffer) -> "_Crew":
        if self._crew is None or not self._crew.serves(memory):
            self.check_memory(memory)
            if memory.frame_stack > 1:
                raise BadInput("engine fused does not put stacks of frames together")
            stores = memory.observation, memory.next_at, memory.action, memory.reward, memory.done
            job = self._job(stores, self._seen, self.config.batch_size)
            self._crew = _Crew(job, memory, self.config.threads, self.config.policy_freq)
        _finish(self._crew.job)  # an update that an interrupt has left, or that nobody finished
        return self._crew

    def _draw(self, crew: "_Crew", memory: ReplayBuffer) -> None:
        """All randomness of the next update."""
        memory.check_draw(self.config.batch_size)
        self.sampling.random(out=crew.job.drawn)
        crew.job.size[0] = memory.size
        self.smoothing.standard_normal(out=crew.job.noise, dtype=np.float32)
        self._number(crew.job)

    def update(self, batch: Batch, noise: Tensor) -> dict[str, SupportsFloat]:
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
        stores = np.concatenate([state, after]), np.zeros(0, np.int32), action, reward, done
        unchanged = Normalizer(self.state_dim, self.dtype)
        seen = unchanged.shift.numpy(), unchanged.scale.numpy(), unchanged.limit.numpy()
        job = self._job(stores, seen, rows)
        job.rows[:] = np.arange(rows)
        job.ends[:] = rows + job.rows
        job.sums[:] = reward
        job.weights[:] = ((1 - batch.done) * self.config.discount**batch.steps).numpy()
        job.noise[:] = noise.numpy()
        self._number(job)
        fused.begin(job.board, 1)
        fused.work(job, 0, 1, 0)
        return self._learned(job)

    def _actors_turn(self) -> bool:
        return (self.updates + 1) % self.config.policy_freq == 0

    def _number(self, job: Job) -> None:
        """Which update the next is."""
        critic_step, actor_step = self._steps
        job.turn[0], job.turn[1], job.turn[2] = critic_step + 1, actor_step + 1, self._actors_turn()

    def _learned(self, job: Job) -> dict[str, SupportsFloat]:
        """Count an update that is done; returns its measures."""
        actors_turn = self._actors_turn()
        critic_step, actor_step = self._steps
        self.updates += 1
        self._steps = critic_step + 1, actor_step + actors_turn
        loss1, loss2, actor_loss, mean_Q = job.measured.tolist()
        if actors_turn:
            return {"critic_loss": loss1 + loss2, "mean_Q": mean_Q, "actor_loss": actor_loss}
        return {"critic_loss": loss1 + loss2, "mean_Q": mean_Q}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is built anew, or its networks would no longer be views of its arrays."""
        about = (self.layout, self.low.numpy(), self.high.numpy(), self.config, self.dtype)
        return _rebuilt, (type(self), about, self.state_dict())

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, but the memory: flat, names to tensors."""
        self._critic_steps[:], self._actor_steps[:] = self._steps
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave. Checked whole before anything changes."""
        super().load_state_dict(state)
        self._steps = int(self._critic_steps[0]), int(self._actor_steps[0])

    def _job(self, stores: tuple[Array, ...], seen: tuple[Array, ...], batch_size: int) -> Job:
        """The agent's own arrays, a memory's, and room to compute in for a size of batch."""
        knobs, kind = self.config, self._parameters.dtype
        panels = math.ceil(batch_size / LANES)
        places = lay_out(self.state_dim, self.action_dim, knobs.hidden, panels)
        return Job._make(
            (
                np.zeros(BOARD, np.int64),
                np.zeros(3, np.int64),
                np.zeros((panels, 4), kind),
                np.zeros(4, kind),
                *stores,
                np.zeros(batch_size),
                np.zeros(1, np.int64),
                np.zeros(batch_size, np.int64),
                np.zeros(batch_size, np.int64),
                np.zeros(batch_size, kind),
                np.zeros(batch_size, kind),
                np.zeros((batch_size, self.action_dim), stores[2].dtype),
                *seen,
                *self._bounds,
                places.plan,
                self._parameters,
                self._targets,
                self._exp_avg,
                self._exp_avg_sq,
                np.zeros(places.gradients, kind),
                np.zeros(places.panel * panels, kind),
                np.zeros(places.turned, kind),
                (knobs.discount ** np.arange(knobs.n_step + 1)).astype(kind),
                knobs.reward_scale,
                knobs.tau,
                knobs.policy_noise,
                knobs.noise_clip,
                knobs.learning_rate,
            )
        )


def _rebuilt(kind: type[FusedT3D], about: tuple[Any, ...], state: dict[str, Tensor]) -> FusedT3D:
    *shape, dtype = about
    agent = kind(*shape, dtype=dtype)
    agent.load_state_dict(state)
    return agent


def _one_array(tensors: Sequence[Tensor]) -> Array:
    """Put tensors one behind the other into one array, and have them be views of it."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.numel()
        tensor.data = flat[start:end].view(tensor.shape)
    return flat.numpy()


class Places(NamedTuple):
    """Where everything of every layer is, and how much room it takes."""

    plan: NDArray[np.int64]  # (3 networks, layers, 7): see fused.py
    gradients: int  # numbers in the array of gradients
    panel: int  # numbers in a panel
    turned: int  # numbers in the array of turned inputs


def lay_out(state_dim: int, action_dim: int, hidden: tuple[int, ...], panels: int) -> Places:
    """Give every layer of the three networks its places, for a batch of so many panels."""
    inputs = state_dim + action_dim
    networks = [(state_dim, *hidden, action_dim), (inputs, *hidden, 1), (inputs, *hidden, 1)]
    plan = np.zeros((3, len(hidden) + 1, 7), np.int64)
    weight = gradient = turned = 0
    unit = (2 * inputs + 1) * LANES  # behind both states, both actions, and the target
    for network, sizes in enumerate(networks):
        if network == TWIN1:  # the twins are done when it is the actor's turn
            turned = 0
        for i, (ins, outs) in enumerate(itertools.pairwise(sizes)):
            width = math.ceil(ins / LANES) * LANES
            slope = unit + outs * LANES
            plan[network, i] = (ins, outs, weight, gradient, unit, slope, turned)
            weight += (ins + 1) * outs
            gradient += (width + 1) * outs
            unit = slope + outs * LANES
            turned += width * panels * LANES
    # What `turn` takes along may lie behind the last unit.
    return Places(plan, gradient, unit + LANES * LANES, turned)


class _Crew:
    """The threads that learn from one memory."""

    def __init__(self, job: Job, memory: ReplayBuffer, threads: int, policy_freq: int) -> None:
        self.job = job
        self._memory = memory
        self._process = os.getpid()
        most = min(threads or cores(), len(job.parts), 1024 if os.name == "posix" else 1)
        helpers: list[threading.Thread] = []
        # At exit too: a thread that outlives the interpreter would bring the process down.
        weakref.finalize(self, _send_home, job, helpers, self._process)
        # All before the first update: an interrupt can then leave none that is counted on and
        # does not come.
        for me in range(1, most):
            helpers.append(threading.Thread(target=fused.work, args=(job, me, 0, 0), daemon=True))
            try:
                helpers[-1].start()
            except RuntimeError:  # the system gives no more threads; fewer do the same
                helpers.pop()
                break
        team = len(helpers) + 1
        self._pace = Pace([team] if threads else _doubling(team), policy_freq)
        self._when = 0.0

    def serves(self, memory: ReplayBuffer) -> bool:
        """Whether this crew learns from a memory; a forked process has none of its threads."""
        return memory is self._memory and os.getpid() == self._process

    def has_helpers(self) -> bool:
        """Whether an update goes on while this thread does something else, as far as we know."""
        return self._pace.team > 1 and self._pace.settled

    def begin(self) -> None:
        """Have the other threads begin an update."""
        self._when = time.perf_counter()
        fused.begin(self.job.board, self._pace.team)

    def finish(self) -> None:
        """Take part in it until it is done."""
        _finish(self.job)
        self._pace.took(time.perf_counter() - self._when)


def _finish(job: Job) -> None:
    """Do this thread's part of an update that is going on, if one is.

    The board says so, and not a variable of Python's, which an interrupt could leave wrong.
    """
    team = int(job.board[OPEN])
    if team:
        fused.work(job, 0, team, 0)


def _send_home(job: Job, helpers: list[threading.Thread], process: int) -> None:
    if os.getpid() == process:
        _finish(job)
    dismiss(job.board)
    for helper in helpers:
        if helper.ident is not None:  # an interrupt may have come before it began
            helper.join()


class Pace:
    """How many threads are worth it: tried out at the start and again every while.

    It depends on the networks, the machine, and on what else it is doing. Since any team
    gives the same bits, the answer may come from a clock.
    """

    HOLD = 2.0, 20.0  # seconds of updates between trials, after a change and in the long run
    WORTH = 1.15  # how much slower a smaller team may be before a larger one takes its place

    def __init__(self, sizes: list[int], policy_freq: int) -> None:
        """Choose among teams of these sizes, the smallest first."""
        self.team = self._choice = sizes[0]
        self._sizes = sizes
        # Trials are as long as the actor's turns are apart, or a multiple, to be of equal work.
        self._length = policy_freq * math.ceil(4 / policy_freq) if policy_freq <= 32 else 4
        self._trials: list[int] = []
        self._best: dict[int, float] = {}
        self._updates = 0
        self._seconds = 0.0
        self._hold = self.HOLD[0]
        if len(sizes) > 1:
            self._begin()

    @property
    def settled(self) -> bool:
        """Whether no trial is going on."""
        return not self._trials

    def _begin(self) -> None:
        self._best = {}
        self._trials = 2 * self._sizes  # each twice: the first may include waking up
        self.team = self._trials[0]

    def took(self, seconds: float) -> None:
        """An update by the team took so long."""
        self._updates += 1
        self._seconds += seconds
        if len(self._sizes) == 1 or self._updates < self._length:
            return
        if self._trials:
            size = self._trials.pop(0)
            self._best[size] = min(self._seconds, self._best.get(size, math.inf))
            if self._trials:
                self.team = self._trials[0]
            else:
                fastest = min(self._best.values())
                before = self._choice
                self.team = self._choice = next(
                    size for size in self._sizes if self._best[size] <= self.WORTH * fastest
                )
                # Something else may have had the cores just then: do not stay wrong for long.
                same = self.team == before
                self._hold = min(2 * self._hold, self.HOLD[1]) if same else self.HOLD[0]
        elif self._seconds < self._hold:
            return
        else:
            self._begin()
        self._updates, self._seconds = 0, 0.0


def _doubling(most: int) -> list[int]:
    """1, 2, 4 ... up to a number, and that number itself."""
    return [*itertools.takewhile(lambda size: size < most, (2**i for i in range(32))), most]


def compile_all(dtype: torch.dtype = torch.float32) -> None:
    """Compile all that training and acting need, or read it from where it is kept."""
    agent = FusedT3D(1, [-1.0], [1.0], Config(hidden=(1,), batch_size=1), dtype=dtype)
    memory = ReplayBuffer(1, 1, 1)
    memory.add([0.0], [0.0], [0.0], 0.0, False)
    agent.train(memory, 1)
    agent.select_action([0.0])
