"""An agent of your own: TD3 with one step changed.

    python examples/own_agent.py
    cd examples && t3d train Pendulum-v1 --agent own_agent:Careful

`Careful` changes step 13: large actions cost something, so the pendulum swings up with less torque.
Everything else is T3D's: playing, learning, checkpoints, resuming. All steps are in learn/t3d.py.
"""

from typing import Any

import numpy as np
from torch import Tensor

import t3d


class Careful(t3d.T3D):
    """TD3 whose actor pays for large actions."""

    PRICE = 0.1

    def actor_loss(self, batch: t3d.Batch) -> Tensor:
        """Step 13, plus the mean square of the actions as fractions of `max_action`."""
        fraction: Tensor = self.actor(batch.state.detach()) / self.max_action
        return super().actor_loss(batch) + self.PRICE * fraction.square().mean()


def main(**knobs: Any) -> t3d.Agent:
    """Train on Pendulum-v1; `knobs` are those of `t3d train`."""
    agent = t3d.train("Pendulum-v1", agent=Careful, **knobs)
    hanging = np.array([-1.0, 0.0, 0.0])  # cosine and sine of the angle, angular velocity
    print(f"the torque on a hanging pendulum: {agent.select_action(hanging)[0]:.2f}")
    return agent


if __name__ == "__main__":
    main()
