"""The fused engine as an agent: TD7, with its arrays laid out for the compiled update."""

import math
from functools import partial
from typing import Any, ClassVar

from t3d.learn.agent import Measures
from t3d.learn.fused.agent import FusedT3D, one_array
from t3d.learn.fused.plan import Memory, Scaling, Weights, new_scratch
from t3d.learn.fused.td7 import entry
from t3d.learn.fused.td7.plan import ENCODER_LOSS, LARGEST, LEAST, MEASURES, lay_out
from t3d.learn.fused.td7.update import Job
from t3d.learn.fused.vectors import LANES
from t3d.learn.td7 import TD7


class FusedTD7(FusedT3D, TD7):
    """TD7 on the CPU with a compiled update. Everything else is the same."""

    agent_id = "td7"
    compiled: ClassVar[type[TD7]] = TD7
    code: ClassVar[Any] = entry

    def _lay_down(self) -> None:
        """Make all parameters and Adam's state views of flat arrays, and say how to act."""
        networks = self.encoder, self.actor, self.critic
        targets = self.fixed_encoder_target, self.actor_target, self.critic_target
        self._weights = Weights(
            parameters=one_array(p for network in networks for p in network.parameters()),
            targets=one_array(p for network in targets for p in network.parameters()),
            **self._moments("encoder", "actor", "critic"),
        )
        self._fixed = one_array(self.fixed_encoder.parameters())
        self._seen, self._limits = self.values.seen.numpy(), self.values.limits.numpy()
        plan = lay_out(self.state_dim, self.action_dim, self.config, panels=1)
        arrays = self._weights.parameters, self._fixed, plan.networks.f, plan.networks.actor
        self._act = partial(entry.act, *arrays, tuple(self._bounds), tuple(self._scaling))

    def _changes_policy(self) -> bool:
        """Whether actions are others after the next update: a copy changes the acting encoder."""
        return super()._changes_policy() or (self.updates + 1) % self.target_every == 0

    def _learned(self, job: Any) -> Measures:
        """Count an update that is done, and copy the targets, if that is due."""
        measures = super()._learned(job)
        totals = job.scratch.totals
        measures["encoder_loss"] = float(totals[ENCODER_LOSS])
        self._seen[:] = min(self._seen[0], totals[LEAST]), max(self._seen[1], totals[LARGEST])
        if self.copies_now:
            weights = self._weights
            encoder = self._fixed.size
            # Steps 14 and 15 (changed), and step E (new).
            weights.targets[encoder:] = weights.parameters[encoder:]
            weights.targets[:encoder] = self._fixed
            self._fixed[:] = weights.parameters[:encoder]
            self._limits[:] = self._seen
        return measures

    def _job(self, memory: Memory, scaling: Scaling, batch_size: int) -> Job:
        """The agent's own arrays, a memory's, and room to compute in for a size of batch."""
        kind, panels = self._weights.parameters.dtype, math.ceil(batch_size / LANES)
        plan = lay_out(self.state_dim, self.action_dim, self.config, panels)
        return Job(
            **self._shared_parts(memory, scaling, batch_size),
            networks=plan.networks,
            sections=plan.sections,
            weights=self._weights,
            scratch=new_scratch(plan.sizes, panels, kind, MEASURES),
            fixed=self._fixed,
            limits=self._limits,
        )
