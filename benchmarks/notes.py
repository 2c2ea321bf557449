"""The loop of examples/notes_loop.py with t3d.notes and with plain PyTorch, in turns.

python benchmarks/notes.py [ROUNDS]

It fails if t3d.notes is not twice as fast in every round, or ends with a mean return below -300.
"""

import contextlib
import copy
import io
import itertools
import runpy
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from t3d import notes

EXAMPLE = Path(__file__).parents[1] / "examples" / "notes_loop.py"


class PlainBuffer:
    """A list of tuples, from which batches are stacked."""

    def __init__(self, max_size: float = 1e6) -> None:
        self.storage: list[tuple[Any, ...]] = []
        self.max_size, self.ptr = int(max_size), 0

    def add(self, transition: tuple[Any, ...]) -> None:
        """Append, or overwrite the oldest."""
        if len(self.storage) < self.max_size:
            self.storage.append(transition)
        else:
            self.storage[self.ptr] = transition
            self.ptr = (self.ptr + 1) % self.max_size

    def sample(self, batch_size: int) -> list[Tensor]:
        """A column of each of the five."""
        rows = np.random.randint(0, len(self.storage), batch_size)  # noqa: NPY002
        columns = zip(*(self.storage[row] for row in rows))
        return [
            torch.from_numpy(np.array(column, np.float32).reshape(batch_size, -1))
            for column in columns
        ]


def layers(*sizes: int) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    pairs = [[nn.Linear(i, o), nn.ReLU()] for i, o in itertools.pairwise(sizes)]
    return [layer for pair in pairs for layer in pair][:-1]


class PlainT3D:
    """TD3 in plain PyTorch, with the notes' networks, knobs and signatures."""

    def __init__(self, state_dim: int, action_dim: int, max_action: float) -> None:
        self.max_action = max_action
        self.actor = nn.Sequential(*layers(state_dim, 400, 300, action_dim), nn.Tanh())
        self.twins = nn.ModuleList(
            nn.Sequential(*layers(state_dim + action_dim, 400, 300, 1)) for _ in range(2)
        )
        self.actor_target = copy.deepcopy(self.actor)
        self.twins_target = copy.deepcopy(self.twins)
        self.actor_adam = torch.optim.Adam(self.actor.parameters())
        self.critic_adam = torch.optim.Adam(self.twins.parameters())

    def select_action(self, state: Any) -> Any:
        """The actor's action."""
        with torch.no_grad():
            action = self.max_action * self.actor(torch.as_tensor(state, dtype=torch.float32))
        return action.numpy()

    def train(
        self,
        replay_buffer: PlainBuffer,
        iterations: int,
        batch_size: int,
        discount: float,
        tau: float,
        policy_noise: float,
        noise_clip: float,
        policy_freq: int,
    ) -> None:
        """Steps 4 to 15, so many times."""
        limit = self.max_action
        for iteration in range(iterations):
            state, after, action, reward, done = replay_buffer.sample(batch_size)
            with torch.no_grad():
                noise = (torch.randn_like(action) * policy_noise).clamp(-noise_clip, noise_clip)
                next_action = (limit * self.actor_target(after) + noise).clamp(-limit, limit)
                both = torch.cat([after, next_action], 1)
                value = torch.min(self.twins_target[0](both), self.twins_target[1](both))
                target = reward + (1 - done) * discount * value
            both = torch.cat([state, action], 1)
            loss = sum(mse_loss(twin(both), target) for twin in self.twins)
            assert isinstance(loss, Tensor)
            self.critic_adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.critic_adam.step()
            if iteration % policy_freq == 0:
                played = torch.cat([state, limit * self.actor(state)], 1)
                actor_loss = -self.twins[0](played).mean()
                self.actor_adam.zero_grad()
                actor_loss.backward()
                self.actor_adam.step()
                pairs = ((self.actor, self.actor_target), (self.twins, self.twins_target))
                with torch.no_grad():
                    for model, follower in pairs:
                        for new, old in zip(model.parameters(), follower.parameters()):
                            old.lerp_(new, tau)


def main() -> None:
    """Run both loops in turns, with another seed in every round."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    plain = SimpleNamespace(T3D=PlainT3D, ReplayBuffer=PlainBuffer)
    loop = runpy.run_path(str(EXAMPLE))["main"]
    notes.T3D(3, 1, 2.0)  # compiles or loads the engine
    failed = False
    for seed in range(rounds):
        seconds = {}
        for name, code in (("t3d.notes", notes), ("plain PyTorch", plain)):
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                returns = loop(seed=seed, code=code)
            seconds[name] = time.perf_counter() - began
            last = np.mean(returns[-10:])
            print(f"seed {seed}, {name}: {seconds[name]:.1f} s, last ten episodes {last:.0f}")
            failed |= code is notes and bool(last < -300)
        ratio = seconds["plain PyTorch"] / seconds["t3d.notes"]
        print(f"  {ratio:.2f} times as fast", flush=True)
        failed |= ratio < 2
    sys.exit(failed)


if __name__ == "__main__":
    main()
