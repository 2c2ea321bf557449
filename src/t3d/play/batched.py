"""A batch of environments as the environments of a run."""

from typing import Any

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array, as_floats
from t3d.base.randomness import derived_seed
from t3d.play.batch import Batch
from t3d.play.envs import EnvMaker, Spaces, check_spaces
from t3d.play.vector import Environments, Steps


class BatchedEnvironments(Environments):
    """Environments that one object plays at once.

    Nobody can begin a single one of them with a seed of its own. So no episode can be played again:
    a resumed run begins new ones, and is marked not bit-exact.
    """

    def __init__(self, maker: EnvMaker) -> None:
        config = maker.config
        self.batch = Batch(maker.source, config, check_spaces)
        low, high = as_floats(self.batch.low), as_floats(self.batch.high)
        self._keep(maker, 0, Spaces(self.batch.layout, low, high))

    def take_restarts(self) -> list[tuple[int, str]]:
        """None: there are no processes to restart."""
        return []

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self.state = self.batch.reset(derived_seed(self.seed, "reset", 0, int(self.episode.sum())))

    def set_attribute(self, name: str, value: Any) -> None:
        """Not here: a batch has no environments of its own to set it in."""
        advice = "train with --env-backend inline or processes, or without the curriculum"
        raise BadInput(f"{name!r} cannot be set in a batch of environments; {advice}")

    def step(self, action: Array) -> Steps:
        """Play one action in each; those that begin their next episode instead are `lost`."""
        played = self.batch.step(action)
        self.state = played.state
        skipped = np.flatnonzero(played.skipped)
        ended = (played.terminated | played.truncated) & ~played.skipped
        self.episode += ended
        return Steps(
            played.next_state,
            np.where(played.skipped, 0.0, played.reward),
            played.terminated & ended,
            played.truncated & ended,
            skipped.tolist(),
            played.infos,
        )

    def state_dict(self) -> dict[str, Array]:
        """How many episodes each environment has finished, and its state."""
        return {"episode": self.episode.copy(), "state": self.state.copy()}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume with new episodes in all of them."""
        self.episode = arrays["episode"] + 1
        self.lost = list(range(self.num_envs))
        self.reset()

    def close(self) -> None:
        """End the batch."""
        self.batch.close()
