"""Agents as users write them."""

from torch import Tensor

from t3d import T3D, Batch


class Timid(T3D):
    """Avoids large actions."""

    def actor_loss(self, batch: Batch) -> Tensor:
        """Minus the value, and a penalty on the squares of the actions."""
        penalty: Tensor = (self.actor(batch.state.detach()) ** 2).mean()
        return super().actor_loss(batch) + penalty
