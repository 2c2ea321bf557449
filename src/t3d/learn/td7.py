"""TD7 on one page: TD3, with embeddings to learn from, and targets that are copied.

Fujimoto, Chang, Smith, Gu, Precup and Meger, "For SALE: State-Action Representation Learning for
Deep Reinforcement Learning", 2023. docs/td7.md explains it, beside TD3's fifteen steps.

Steps with a number are TD3's: *as in TD3* they do what they do in t3d.py, *changed* they say how.
Steps with a letter are new. The networks are in sale.py. Step 4, which draws rows with large errors
more often (LAP), is in replay/prioritized.py; that and Huber's loss are `--sampling lap`, the
default here. What the paper calls a checkpoint, the best agent so far, is kept by every run.
"""

import copy
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from t3d.base.errors import BadInput
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.agent import Measures
from t3d.learn.perception import Batch
from t3d.learn.replay.prioritized import Prioritized
from t3d.learn.sale import Actor, Critic, Encoder, ValueRange
from t3d.learn.t3d import T3D

Network = TypeVar("Network", bound=nn.Module)


class TD7(T3D):
    """An actor, twin critics, an encoder, and older copies of all, with three Adam optimisers.

    The encoder learns at every update. The critics and the actor need inputs that stay as they are
    for a while: they use the `fixed_encoder`, their targets the `fixed_encoder_target`, which are
    the encoder as it was at the last copy and at the one before.
    """

    agent_id = "td7"
    usual_sampling = "lap"
    usual_target_every = 250

    @classmethod
    def unfit(cls, config: Config, layout: Layout | None) -> str:
        """What of a config and a layout TD7 cannot do on any engine; empty if nothing."""
        if layout and layout.images:
            return f"{cls.agent_id} does not learn from images; use --agent t3d"
        for knob, value in (("body", "mlp"), ("activation", "relu"), ("layer_norm", "none")):
            if getattr(config, knob) != value:
                return f"{cls.agent_id} has layers of its own; leave {knob} at {value}"
        if config.n_step > 1:
            return f"{cls.agent_id} predicts the next state alone; use --n-step 1"
        return ""

    def build(self, weights: np.random.Generator) -> None:
        """Steps 2 and 3, changed: all networks see embeddings, and there is an encoder."""
        if unfit := self.unfit(self.config, self.layout):
            raise BadInput(unfit)
        hidden, embedding, to = self.config.hidden_layers, self.config.embedding, self.device
        sizes = self.state_dim, *self.bounds
        self.actor = Actor(*sizes, hidden["actor"], embedding, weights, self.dtype).to(to)
        self.critic = Critic(*sizes, hidden["critic"], embedding, weights, self.dtype).to(to)
        if not self.config.twins:  # ablation: equal twins get equal gradients and stay equal
            self.critic.twin2.load_state_dict(self.critic.twin1.state_dict())
        layers = self.config.encoder_layers
        self.encoder = Encoder(*sizes, layers, embedding, weights, self.dtype).to(to)
        self.actor_target, self.critic_target = _frozen(self.actor), _frozen(self.critic)
        self.fixed_encoder, self.fixed_encoder_target = _frozen(self.encoder), _frozen(self.encoder)
        self.values = ValueRange(self.dtype).to(to)
        self.actor_optimizer = self.make_optimizer(self.actor)
        self.critic_optimizer = self.make_optimizer(self.critic)
        self.encoder_optimizer = self.make_optimizer(self.encoder)

    def update(self, batch: Batch, noise: Tensor) -> Measures:
        """Steps 5 to 15, with those of TD7. All randomness comes in."""
        config = self.config
        # Step A (new): the encoder predicts the embedding of the next state.
        with torch.no_grad():
            next_zs = self.encoder.zs(batch.next_state)
        prediction = self.encoder.zsa(self.encoder.zs(batch.state), batch.action)
        encoder_loss = mse_loss(prediction, next_zs)
        # Step B (new): backpropagate, and let Adam update the encoder. It learns nothing else.
        self.descend(self.encoder_optimizer, encoder_loss)

        with torch.no_grad():
            # Step C (new): embed the next state, as the targets know it.
            next_zs = self.fixed_encoder_target.zs(batch.next_state)
            # Step 5 (changed): the actor target sees the embedding, too.
            next_action = self.actor_target(batch.next_state, next_zs)
            # Step 6 (as in TD3): smooth it with clipped noise, and stay inside the action range.
            noise = (noise * config.policy_noise).clamp(-config.noise_clip, config.noise_clip)
            next_action = (next_action + noise * self.max_action).clamp(self.low, self.high)
            # Step 7 (changed): both critic targets see the embeddings of state and action, too.
            next_zsa = self.fixed_encoder_target.zsa(next_zs, next_action)
            target_Q1, target_Q2 = self.critic_target(
                batch.next_state, next_action, next_zsa, next_zs
            )
            # Step 8 (changed): believe the smaller value, but none beyond all targets so far:
            # an embedding of an action that was never played may give any value.
            target_Q = self.values.clip(torch.min(target_Q1, target_Q2))
            # Step 9 (as in TD3): the Bellman target; where the episode terminated, no value follows
            target_Q = batch.reward + (1 - batch.done) * config.discount**batch.steps * target_Q
            self.values.see(target_Q)
            # Step D (new): embed the state and the action, as the critics know them.
            zs = self.fixed_encoder.zs(batch.state)
            zsa = self.fixed_encoder.zsa(zs, batch.action)

        # Step 10 (changed): both critics see these embeddings.
        Q1, Q2 = self.critic(batch.state, batch.action, zsa, zs)
        # Step 11 (changed): Huber's loss, which goes with LAP.
        critic_loss = self.td_loss(Q1, target_Q) + self.td_loss(Q2, target_Q)
        # Step 12 (as in TD3): backpropagate, and let Adam update both critics.
        self.descend(self.critic_optimizer, critic_loss)

        self.predictions = Q1.detach(), Q2.detach(), target_Q
        measures: Measures = {"critic_loss": critic_loss.detach(), "mean_Q": Q1.detach().mean()}
        measures["encoder_loss"] = encoder_loss.detach()
        if (self.updates + 1) % config.policy_freq == 0:
            # Step 13 (changed): move the actor up the gradient of both critics.
            actor_loss = self.actor_loss(batch)
            self.descend(self.actor_optimizer, actor_loss)
            measures["actor_loss"] = actor_loss.detach()
        self.updates += 1
        if self.copies_now:
            # Step 14 (changed): copy the actor to its target, all of it, but seldom.
            copy_weights(self.actor_target, self.actor)
            # Step 15 (changed): the same for the critics.
            copy_weights(self.critic_target, self.critic)
            # Step E (new): the targets get the critics' encoder, and these the newest one.
            copy_weights(self.fixed_encoder_target, self.fixed_encoder)
            copy_weights(self.fixed_encoder, self.encoder)
            self.values.move()
        return measures

    def actor_loss(self, batch: Batch) -> Tensor:
        """Minus the mean value of the actor's own actions, by both critics."""
        with torch.no_grad():
            zs = self.fixed_encoder.zs(batch.state)
        action = self.actor(batch.state, zs)
        zsa = self.fixed_encoder.zsa(zs, action)  # the gradient goes through it to the action
        Q1, Q2 = self.critic(batch.state, action, zsa, zs)
        loss: Tensor = -(Q1.mean() + Q2.mean()) / 2
        return loss

    @property
    def target_every(self) -> int:
        """How many updates there are from one copy to the next."""
        return self.config.target_every or self.usual_target_every

    @property
    def copies_now(self) -> bool:
        """Whether the targets are copied after the update that was just counted."""
        return self.updates % self.target_every == 0

    def tell_sampler(self) -> None:
        """Step 4 (changed): pass on the errors; at a copy, forget the largest of long ago."""
        super().tell_sampler()
        if self.copies_now and isinstance(self.sampler, Prioritized):
            self.sampler.forget_largest()

    @torch.no_grad()
    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state or for a batch of states, without noise."""
        states = self.perception.checked(state)
        rows = torch.from_numpy(np.atleast_2d(states)).to(self.device)
        inputs = self.perception.encode(rows, self.critic)
        action = self.actor(inputs, self.fixed_encoder.zs(inputs))
        actions: NDArray[np.float32] = action.clamp(self.low, self.high).float().cpu().numpy()
        return actions if states.ndim == 2 else actions[0]

    def Q1(self, inputs: Tensor) -> Tensor:
        """The first critic's value of the policy's action in each state."""
        zs = self.fixed_encoder.zs(inputs)
        action = self.actor(inputs, zs)
        values: Tensor = self.critic(inputs, action, self.fixed_encoder.zsa(zs, action), zs)[0]
        return values

    def acting(self) -> list[nn.Module]:
        """The networks that `select_action` computes with."""
        return [self.actor, self.fixed_encoder.f]


def _frozen(network: Network) -> Network:
    copied = copy.deepcopy(network)
    copied.requires_grad_(False)
    return copied


def copy_weights(target: nn.Module, model: nn.Module) -> None:
    """target <- model."""
    target.load_state_dict(model.state_dict())
