"""How fast one update is, beside plain PyTorch and the limit of the machine.

    python benchmarks/update.py [--quick] [--json] [--threads N]

The work is HalfCheetah-v5's: 17 state and 6 action dimensions, hidden 256-256, batch 256,
float32, the actor at every second update. The contestants take turns in one process, many
short rounds each, and the median round counts: machines are shared and noisy, and a ratio of
neighbours survives that. The last line of --json is one object, in updates per second:

    limit           what the matrix products alone would allow at the machine's best rate
    plain_pytorch   the update as the author of TD3 wrote it: autograd, Adam, a loop for Polyak
    reference       t3d.T3D.update
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from t3d import T3D, Config, ReplayBuffer

STATE, ACTION, HIDDEN, BATCH = 17, 6, 256, 256
# Floating-point operations of one update's matrix products, the actor's counted at half.
FLOPS_PER_UPDATE = 0.415e9


class PlainActor(nn.Module):
    """Three linear layers, as everyone writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(STATE, HIDDEN)
        self.two = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, ACTION)

    def forward(self, state: Tensor) -> Tensor:
        """State to action."""
        hidden = functional.relu(self.one(state))
        return torch.tanh(self.out(functional.relu(self.two(hidden))))


class PlainCritic(nn.Module):
    """Twins of three linear layers each."""

    def __init__(self) -> None:
        super().__init__()
        for twin in ("a", "b"):
            setattr(self, f"{twin}1", nn.Linear(STATE + ACTION, HIDDEN))
            setattr(self, f"{twin}2", nn.Linear(HIDDEN, HIDDEN))
            setattr(self, f"{twin}3", nn.Linear(HIDDEN, 1))

    def twin(self, name: str, both: Tensor) -> Tensor:
        """The value by one twin."""
        hidden = functional.relu(getattr(self, f"{name}1")(both))
        value: Tensor = getattr(self, f"{name}3")(
            functional.relu(getattr(self, f"{name}2")(hidden))
        )
        return value

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The values by both."""
        both = torch.cat([state, action], 1)
        return self.twin("a", both), self.twin("b", both)


class PlainPyTorch:
    """TD3 in the plain style of most code bases."""

    def __init__(self, memory: ReplayBuffer) -> None:
        rows = len(memory)
        columns = (memory.state, memory.next_state, memory.action)
        self.memory = [
            *(column[:rows] for column in columns),
            memory.reward[:rows, None],
            1 - memory.done[:rows, None],
        ]
        self.actor, self.critic = PlainActor(), PlainCritic()
        self.actor_target, self.critic_target = (
            copy.deepcopy(self.actor),
            copy.deepcopy(self.critic),
        )
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.updates = 0

    def update(self) -> None:
        """One iteration."""
        self.updates += 1
        rows = np.random.randint(0, len(self.memory[0]), BATCH)  # noqa: NPY002
        state, next_state, action, reward, not_done = (
            torch.tensor(column[rows], dtype=torch.float32) for column in self.memory
        )
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            next_action = (self.actor_target(next_state) + noise).clamp(-1, 1)
            one, two = self.critic_target(next_state, next_action)
            target = reward + not_done * 0.99 * torch.min(one, two)
        one, two = self.critic(state, action)
        loss = functional.mse_loss(one, target) + functional.mse_loss(two, target)
        self.critic_adam.zero_grad()
        torch.autograd.backward(loss)
        self.critic_adam.step()
        if self.updates % 2 == 0:
            both = torch.cat([state, self.actor(state)], 1)
            loss = -self.critic.twin("a", both).mean()
            self.actor_adam.zero_grad()
            torch.autograd.backward(loss)
            self.actor_adam.step()
            pairs = ((self.critic, self.critic_target), (self.actor, self.actor_target))
            for model, target_model in pairs:
                for new, old in zip(model.parameters(), target_model.parameters()):
                    old.data.copy_(0.005 * new.data + 0.995 * old.data)


def filled_memory(rows: int) -> ReplayBuffer:
    """Random transitions: what is in them does not matter for the speed."""
    draw = np.random.default_rng(0)
    memory = ReplayBuffer(rows, STATE, ACTION)
    state = draw.standard_normal((2, rows, STATE), np.float32)
    action = draw.uniform(-1, 1, (rows, ACTION)).astype(np.float32)
    reward = draw.standard_normal(rows, np.float32)
    memory.add(state[0], state[1], action, reward, draw.random(rows) < 0.01)
    return memory


def per_second(work: Callable[[], object], count: int) -> float:
    """How often `work` is done in a second, over `count` times."""
    began = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - began)


def measure(rounds: int, updates: int) -> dict[str, float]:
    """The median rate of every contestant over rounds in which each has its turn."""
    memory = filled_memory(100_000)
    agent = T3D(STATE, [-1.0] * ACTION, [1.0] * ACTION, Config())
    plain = PlainPyTorch(memory)
    square = [torch.rand(256, 256) for _ in range(3)]
    # Products of 256 x 256 x 256, two operations per multiplication and addition.
    products_per_update = FLOPS_PER_UPDATE / (2 * 256**3)
    turns: dict[str, Callable[[], float]] = {
        "limit": lambda: (
            per_second(lambda: torch.mm(square[0], square[1], out=square[2]), 20 * updates)
            / products_per_update
        ),
        "plain_pytorch": lambda: per_second(plain.update, updates),
        "reference": lambda: per_second(lambda: agent.train(memory, 1), updates),
    }
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            rate = turn()
            if number > 0:  # the first round warms up
                rates[name].append(rate)
    return {name: statistics.median(values) for name, values in rates.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about 15 seconds")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--threads", type=int, help="PyTorch's threads; by default its own choice")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    rates = measure(rounds=7 if asked.quick else 25, updates=50)
    print(f"{torch.get_num_threads()} threads, updates per second:")
    for name, rate in rates.items():
        print(f"  {name:<14}{rate:8.0f}   {rate / rates['limit']:5.2f} of the limit")
    print(f"reference / plain_pytorch: {rates['reference'] / rates['plain_pytorch']:.2f}")
    if asked.json:
        print(json.dumps({name: round(rate, 1) for name, rate in rates.items()}))


if __name__ == "__main__":
    main()
