"""TD3 in plain PyTorch, in the style of the author's code and of most libraries, for comparison."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

Array = NDArray[Any]


class PlainActor(nn.Module):
    """Three linear layers, as everyone writes them."""

    def __init__(self, state: int, action: int, hidden: int) -> None:
        super().__init__()
        self.one = nn.Linear(state, hidden)
        self.two = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, action)

    def forward(self, state: Tensor) -> Tensor:
        """State to action."""
        hidden = functional.relu(self.one(state))
        return torch.tanh(self.out(functional.relu(self.two(hidden))))


class PlainCritic(nn.Module):
    """Twins of three linear layers each."""

    def __init__(self, state: int, action: int, hidden: int) -> None:
        super().__init__()
        for twin in ("a", "b"):
            setattr(self, f"{twin}1", nn.Linear(state + action, hidden))
            setattr(self, f"{twin}2", nn.Linear(hidden, hidden))
            setattr(self, f"{twin}3", nn.Linear(hidden, 1))

    def twin(self, name: str, both: Tensor) -> Tensor:
        """The value by one twin."""
        hidden = functional.relu(getattr(self, f"{name}1")(both))
        hidden = functional.relu(getattr(self, f"{name}2")(hidden))
        value: Tensor = getattr(self, f"{name}3")(hidden)
        return value

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The values by both."""
        both = torch.cat([state, action], 1)
        return self.twin("a", both), self.twin("b", both)


class PlainTD3:
    """Memory, networks and update; actions are -1 to 1."""

    def __init__(self, state: int, action: int, hidden: int, batch: int, rows: int) -> None:
        self.batch = batch
        widths = (state, state, action, 1, 1)
        self.memory: list[Array] = [np.zeros((rows, width)) for width in widths]
        self.size = self.position = 0
        self.actor, self.critic = (
            PlainActor(state, action, hidden),
            PlainCritic(state, action, hidden),
        )
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.updates = 0

    def add(self, *transition: Any) -> None:
        """Store state, next state, action, reward and not-done."""
        for column, value in zip(self.memory, transition):
            column[self.position] = value
        self.position = (self.position + 1) % len(self.memory[0])
        self.size = min(self.size + 1, len(self.memory[0]))

    def select_action(self, state: Array) -> Array:
        """The policy's action for one state."""
        tensor = torch.FloatTensor(state.reshape(1, -1))
        chosen: Array = self.actor(tensor).cpu().data.numpy().flatten()
        return chosen

    def update(self) -> None:
        """One iteration."""
        self.updates += 1
        rows = np.random.randint(0, self.size, self.batch)  # noqa: NPY002
        state, next_state, action, reward, not_done = (
            torch.FloatTensor(column[rows]) for column in self.memory
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
