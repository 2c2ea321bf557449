"""Batched environments: of Gymnasium, of PyTorch, and such as break the rules."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

MODES = {"next": AutoresetMode.NEXT_STEP, "same": AutoresetMode.SAME_STEP}
MODES["disabled"] = AutoresetMode.DISABLED


class Toy(gym.Env[Any, Any]):
    """Says who it is, in which episode, at which step, and what it was told to do.

    Episode k of environment i has `lengths[(i + k) % len(lengths)]` steps; every other one is
    truncated.
    """

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, index: int, lengths: Sequence[int]) -> None:
        self.index, self.lengths, self.episode = index, lengths, -1

    def _observation(self, action: float) -> Any:
        return np.array([self.index, self.episode, self.count, action], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode += 1
        self.count = 0
        return self._observation(0.0), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        ended = self.count == self.lengths[(self.index + self.episode) % len(self.lengths)]
        even = self.episode % 2 == 0
        info = {"height": float(self.count)} | ({"is_success": even} if ended else {})
        reward = self.count + float(action[0])
        return self._observation(float(action[0])), reward, ended and even, ended and not even, info


def toys(
    num_envs: int, mode: str = "next", lengths: Sequence[int] = (3, 1, 5), copy: bool = True
) -> SyncVectorEnv[Any, Any]:
    """A batch of toys; without `copy` it writes over the observations that it has returned."""
    makers = [lambda i=i: Toy(i, lengths) for i in range(num_envs)]
    return SyncVectorEnv(makers, copy=copy, autoreset_mode=MODES[mode])


def in_torch(num_envs: int, mode: str = "next") -> VectorEnv[Any, Any, Any]:
    """The same with tensors: it takes no others."""
    return _InTorch(toys(num_envs, mode))


class _InTorch(VectorWrapper[Any, Any, Any, Any, Any]):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return torch.from_numpy(observation), info

    def step(self, actions: Any) -> Any:
        assert isinstance(actions, torch.Tensor)
        *answer, info = super().step(actions.numpy())
        if "final_obs" in info:
            rows = [np.zeros(4, np.float32) if row is None else row for row in info["final_obs"]]
            info["final_obs"] = torch.from_numpy(np.stack(rows)).requires_grad_()
        return *(torch.from_numpy(each) for each in answer), info


def four(mode: str = "next") -> VectorEnv[Any, Any, Any]:
    """A batch that always has four environments."""
    return toys(4, mode)


def no_batch(num_envs: int) -> gym.Env[Any, Any]:
    """One environment."""
    return Toy(0, [num_envs])


class _Flawed(VectorWrapper[Any, Any, Any, Any, Any]):
    def __init__(self, env: VectorEnv[Any, Any, Any], flaw: str) -> None:
        super().__init__(env)
        self._flaw = flaw
        says = {"says next": "next", "says same": "same", "says nothing": None}
        if flaw in says:
            mode = says[flaw]
            self.metadata = {"autoreset_mode": MODES[mode]} if mode else {}
        if flaw == "odd mode":
            self.metadata = {"autoreset_mode": "sometimes"}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if self._flaw == "resets others" and options:
            options = None
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(actions)
        if self._flaw == "no final":
            info.pop("final_obs", None)
        if self._flaw == "short finals" and "final_obs" in info:
            info["final_obs"] = info["final_obs"][:1]
        if self._flaw == "says next":
            info = {}
        if self._flaw == "odd info":
            more: dict[Any, Any] = {
                3: np.zeros(3),
                "empty": np.zeros(0),
                "_height": np.ones(1),
                "x": object(),
            }
            info |= more
        if self._flaw == "changes the dtype" and terminated.any():
            torch.set_default_dtype(torch.float64)
        if self._flaw == "nan":
            observation[1, 2] = np.nan
        if self._flaw == "infinite reward":
            reward[1] = np.inf
        if self._flaw == "one reward":
            reward = 1.0
        if self._flaw == "fewer rows":
            observation = observation[:-1]
        if self._flaw == "odd ends":
            terminated = terminated + 2.0
        if self._flaw == "raises":
            raise RuntimeError("out of order")
        if self._flaw == "four values":
            return observation, reward, terminated, info
        return observation, reward, terminated, truncated, info


class _InDicts(VectorWrapper[Any, Any, Any, Any, Any]):
    """Observations as a dict with one tensor, which has a gradient; ends as lists."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.single_observation_space = gym.spaces.Dict(toy=env.single_observation_space)

    def _dict(self, rows: Any) -> Any:
        return {"toy": torch.from_numpy(rows.copy()).requires_grad_()}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return self._dict(observation), info

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(actions.numpy())
        if "final_obs" in info:
            rows = [np.zeros(4) if each is None else each for each in info["final_obs"]]
            info["final_obs"] = {"toy": torch.tensor(np.stack(rows), requires_grad=True)}
        return self._dict(observation), reward, terminated.tolist(), truncated.tolist(), info

    def close(self, **arguments: Any) -> None:
        raise RuntimeError("it will not close")


def in_dicts(num_envs: int, mode: str = "next") -> VectorEnv[Any, Any, Any]:
    """A batch of dicts that refuses to close."""
    return _InDicts(toys(num_envs, mode))


def flawed(num_envs: int, mode: str, flaw: str) -> VectorEnv[Any, Any, Any]:
    """A batch that breaks a rule."""
    return _Flawed(toys(num_envs, mode), flaw)
