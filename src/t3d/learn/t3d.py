"""Steps 4 to 15: Twin Delayed Deep Deterministic policy gradient (TD3), on one page.

Fujimoto, van Hoof and Meger, "Addressing Function Approximation Error in Actor-Critic
Methods", 2018. Every step is explained, with a picture, in docs/fifteen-steps.md.

Step 1 is in replay/memory.py, steps 2 and 3 are in networks.py. The rest is elsewhere: bounds,
devices and random streams (agent.py), images and normalisation (perception.py), files (saving.py).
To change a step, subclass T3D: examples/own_agent.py.

`t3d explain` reads the names and the "Step" comments of `train` and `update`: keep them.
"""

import copy

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import huber_loss, mse_loss

from t3d.learn.agent import Agent, Measures
from t3d.learn.networks import Actor, Critic
from t3d.learn.perception import Batch
from t3d.learn.replay.memory import ReplayBuffer


class T3D(Agent):
    """An actor and twin critics, a target of each (six networks in all), and two Adam optimisers.

    Actions are in the environment's own units; states too, unless they are normalised or images.
    `policy_noise` and `noise_clip` are fractions of `max_action`, half the range of each action.
    """

    agent_id = "t3d"

    def build(self, weights: np.random.Generator) -> None:
        """Steps 2 and 3: the networks, their targets and their optimisers."""
        self.actor = Actor(*self.shape_of("actor", weights)).to(self.device)
        self.critic = Critic(*self.shape_of("critic", weights)).to(self.device)
        if not self.config.twins:  # ablation: equal twins get equal gradients and stay equal
            self.critic.twin2.load_state_dict(self.critic.twin1.state_dict())
        self.perception.attach_encoder(self.critic, weights)  # for images only
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_optimizer = self.make_optimizer(self.actor)
        self.critic_optimizer = self.make_optimizer(self.critic)

    def train(self, replay_buffer: ReplayBuffer, iterations: int) -> Measures:
        """Run `iterations` updates, each on a new batch; returns the last value of each measure."""
        self.check_memory(replay_buffer, iterations)
        measures: Measures = {}
        for _ in range(iterations):
            # Step 4: sample a batch of transitions and move it to the device.
            stored = self.sample(replay_buffer)
            # One standard normal number per row and per action dimension, for step 6.
            noise = self.draw_noise(len(stored.reward))
            batch = self.perceive(stored)
            measures |= self.update(batch, noise)
            self.tell_sampler()
        return measures

    def update(self, batch: Batch, noise: Tensor) -> Measures:
        """Steps 5 to 12 and, when the actor is due, 13 to 15. All randomness comes in."""
        config = self.config
        with torch.no_grad():
            # Step 5: the actor target plays the next action.
            next_action = self.actor_target(batch.next_state)
            # Step 6: smooth it with clipped noise, and stay inside the action range.
            noise = (noise * config.policy_noise).clamp(-config.noise_clip, config.noise_clip)
            next_action = (next_action + noise * self.max_action).clamp(self.low, self.high)
            # Step 7: both critic targets judge it.
            target_Q1, target_Q2 = self.critic_target(batch.next_state, next_action)
            # Step 8: believe the smaller value, against over-estimation.
            target_Q = torch.min(target_Q1, target_Q2)
            # Step 9: the Bellman target; where the episode terminated, no value follows.
            target_Q = batch.reward + (1 - batch.done) * config.discount**batch.steps * target_Q

        # Step 10: both critics predict the value of the action that was played.
        Q1, Q2 = self.critic(batch.state, batch.action)
        # Step 11: how far both are from the target.
        critic_loss = self.td_loss(Q1, target_Q) + self.td_loss(Q2, target_Q)
        # Step 12: backpropagate, and let Adam update both critics.
        self.descend(self.critic_optimizer, critic_loss)

        self.predictions = Q1.detach(), Q2.detach(), target_Q
        measures: Measures = {"critic_loss": critic_loss.detach(), "mean_Q": Q1.detach().mean()}
        if (self.updates + 1) % config.policy_freq == 0:
            # Step 13: move the actor up the gradient of the first critic.
            actor_loss = self.actor_loss(batch)  # minus the mean of Q1(state, actor(state))
            self.descend(self.actor_optimizer, actor_loss)
            # Step 14: the actor target follows the actor by a small step.
            polyak(self.actor_target, self.actor, self.step_of_targets)
            # Step 15: the critic target follows the critic by a small step.
            polyak(self.critic_target, self.critic, self.step_of_targets)

            measures["actor_loss"] = actor_loss.detach()
        self.updates += 1
        return measures

    # To make a variant of TD3, override one of these two.

    def td_loss(self, value: Tensor, target: Tensor) -> Tensor:
        """One critic's loss: the mean squared error; with `--sampling lap`, Huber's instead."""
        loss = huber_loss if self.draws_by_errors else mse_loss
        return loss(value, target)

    def actor_loss(self, batch: Batch) -> Tensor:
        """The actor's loss: minus the first critic's mean value of the actor's own actions."""
        state = batch.state.detach()  # the image encoder learns from the critic's loss only
        loss: Tensor = -self.critic.Q1(state, self.actor(state)).mean()
        return loss

    @property
    def td_errors(self) -> Tensor:
        """Of each row of the last batch, the larger absolute error of the two critics."""
        Q1, Q2, target_Q = self.predictions
        errors: Tensor = torch.max((Q1 - target_Q).abs(), (Q2 - target_Q).abs())
        return errors

    @torch.no_grad()
    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state or for a batch of states, without noise."""
        states = self.perception.checked(state)
        rows = torch.from_numpy(np.atleast_2d(states)).to(self.device)
        action = self.actor(self.perception.encode(rows, self.critic))
        # Rounding can leave the action range by a hair; the environment must never see that.
        actions: NDArray[np.float32] = action.clamp(self.low, self.high).float().cpu().numpy()
        return actions if states.ndim == 2 else actions[0]


@torch.no_grad()
def polyak(target: nn.Module, model: nn.Module, tau: float) -> None:
    """target <- tau * model + (1 - tau) * target."""
    for old, new in zip(target.parameters(), model.parameters()):
        old.lerp_(new, tau)
