"""What images cost: memory, drawing a batch, and an update, compared with plain PyTorch.

    python benchmarks/pixels.py

The plain update has the same networks, losses and optimiser, as one usually writes them: float
batches in PyTorch's usual order. Neither augments.
"""

import copy
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import mse_loss

from t3d import T3D, Config, ReplayBuffer
from t3d.base.observation import Image, Layout

FRAMES = 50_000
LAYOUT = Layout(0, (Image(1, 84, 84),), 3)


def resident() -> int:
    """Bytes of RAM that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def filled(layout: Layout, rows: int, capacity: int) -> ReplayBuffer:
    """A memory with episodes of 1,000 steps of noise."""
    memory = ReplayBuffer(capacity, layout, 1)
    random = np.random.default_rng(0)
    frames: list[Any] = []
    for i in range(rows):
        if i % 1000 == 0:
            frames = [random.integers(0, 256, layout.frame_size, np.uint8)] * layout.frame_stack
        state = np.concatenate(frames)
        frames = [*frames[1:], random.integers(0, 256, layout.frame_size, np.uint8)]
        memory.add(state, np.concatenate(frames), [0.0], 0.0, False, i % 1000 == 999)
    return memory


def in_turns(jobs: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Milliseconds of each job, the median over turns."""
    took: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(turns):
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            took[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(times) for name, times in took.items()}


class Plain:
    """The same networks and update, as plain PyTorch."""

    def __init__(self, agent: T3D, memory: ReplayBuffer) -> None:
        self.knobs, self.memory, self.image = agent.config, memory, agent.layout.images[0]
        self.actor, self.critic = copy.deepcopy(agent.actor), copy.deepcopy(agent.critic)
        self.actor_target, self.critic_target = copy.deepcopy((self.actor, self.critic))
        rate = self.knobs.learning_rate
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), rate)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), rate)
        self.random = np.random.default_rng(0)
        self.updates = 0

    def encode(self, critic: Any, images: torch.Tensor) -> torch.Tensor:
        """Features of float images."""
        features: torch.Tensor = critic.encoder.towers[0](images / 255 - 0.5)
        return features

    def update(self) -> None:
        """One update."""
        size = self.knobs.batch_size
        batch = self.memory.sample(size, self.random)
        shape = (size, -1, self.image.height, self.image.width)
        state, after = (field.float().reshape(shape) for field in batch[:2])
        with torch.no_grad():
            encoded = self.encode(self.critic_target, after)
            noise = (torch.randn_like(batch.action) * 0.2).clamp(-0.5, 0.5)
            action = (self.actor_target(encoded) + noise).clamp(-1, 1)
            target = torch.min(*self.critic_target(encoded, action))
            target = batch.reward + (1 - batch.done) * 0.99 * target
        features = self.encode(self.critic, state)
        one, two = self.critic(features, batch.action)
        loss = mse_loss(one, target) + mse_loss(two, target)
        self.critic_adam.zero_grad()
        torch.autograd.backward(loss)
        self.critic_adam.step()
        self.updates += 1
        if self.updates % 2 == 0:
            features = features.detach()
            loss = -self.critic.Q1(features, self.actor(features)).mean()
            self.actor_adam.zero_grad()
            torch.autograd.backward(loss)
            self.actor_adam.step()
            with torch.no_grad():
                pairs = ((self.actor, self.actor_target), (self.critic, self.critic_target))
                for model, slow in pairs:
                    for new, old in zip(model.parameters(), slow.parameters()):
                        old.data.copy_(0.005 * new.data + 0.995 * old.data)


def main() -> None:
    """Measure, and print."""
    before = resident()
    memory = filled(LAYOUT, FRAMES, 1_000_000)
    measured, estimate = (resident() - before) / 1e9, FRAMES * memory.row_bytes / 1e9
    print(f"memory of {FRAMES:,} steps, 84 x 84 grey, stack of 3")
    print(
        f"  estimate {estimate:.3f} GB, measured {measured:.3f} GB ({measured / estimate - 1:+.1%})"
    )
    million = 1_000_000 * memory.row_bytes
    print(f"  a million: {million / 1e9:.2f} GB; one frame each is {84 * 84 / 1e3:.2f} GB")
    print(
        f"  Stable-Baselines3, two complete states per step: {6 * 84 * 84 / 1e3:.1f} GB (computed)"
    )
    random = np.random.default_rng(0)
    took = in_turns({"draw": partial(memory.sample, 256, random)}, 50)
    print(f"  a batch of 256 is drawn in {took['draw']:.1f} ms")
    del memory

    for side, batch_size in ((48, 128), (84, 64)):
        layout = Layout(0, (Image(1, side, side),), 3)
        memory = filled(layout, 2000, 2000)
        config = Config(batch_size=batch_size, image_shift=0, engine="reference")
        agent = T3D(layout, [-1], [1], config)
        plain = Plain(agent, memory)
        jobs: dict[str, Callable[[], Any]]
        jobs = {"T3D": partial(agent.train, memory, 1), "plain PyTorch": plain.update}
        took = in_turns(jobs, 40)
        ratio = took["plain PyTorch"] / took["T3D"]
        print(
            f"update, {side} x {side}, stack of 3, batch {batch_size}, "
            f"{torch.get_num_threads()} threads: T3D {took['T3D']:.1f} ms, "
            f"plain PyTorch {took['plain PyTorch']:.1f} ms, {ratio:.2f} x"
        )


if __name__ == "__main__":
    main()
