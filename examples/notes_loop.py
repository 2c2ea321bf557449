"""The training loop of the notes, on T3D's fast engine: only the import line is another.

python examples/notes_loop.py
"""

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from t3d import notes
from t3d.notes import T3D, ReplayBuffer


def main(
    max_timesteps: int = 8_000,
    start_timesteps: int = 1_000,
    seed: int = 0,
    code: Any = notes,  # a module with the notes' classes: to compare with another
) -> list[float]:
    """Train on Pendulum-v1; returns the return of every episode."""
    batch_size, discount, tau, expl_noise = 100, 0.99, 0.005, 0.1
    policy_noise, noise_clip, policy_freq = 0.2, 0.5, 2

    env: Any = gym.make("Pendulum-v1")
    env.action_space.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  as the notes do
    state_dim, action_dim = env.observation_space.shape[0], env.action_space.shape[0]
    max_action = float(env.action_space.high[0])

    policy: T3D = code.T3D(state_dim, action_dim, max_action)
    replay_buffer: ReplayBuffer = code.ReplayBuffer()

    returns: list[float] = []
    total_timesteps, episode_timesteps, done = 0, 0, True
    while total_timesteps < max_timesteps:
        if done:
            if total_timesteps > start_timesteps:  # as many iterations as the episode had steps
                policy.train(
                    *(replay_buffer, episode_timesteps, batch_size, discount, tau),
                    *(policy_noise, noise_clip, policy_freq),
                )
            obs, _ = env.reset(seed=seed + len(returns))
            done, episode_reward, episode_timesteps = False, 0.0, 0
        if total_timesteps < start_timesteps:
            action = env.action_space.sample()
        else:
            action = policy.select_action(np.array(obs))
            noise = np.random.normal(0, expl_noise, size=action_dim)  # noqa: NPY002
            action = (action + noise).clip(env.action_space.low, env.action_space.high)
        new_obs, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        # `done` in the buffer: a time limit is no end, and its last state still has a value.
        replay_buffer.add((obs, new_obs, action, reward, float(terminated)))
        obs, episode_reward = new_obs, episode_reward + float(reward)
        episode_timesteps, total_timesteps = episode_timesteps + 1, total_timesteps + 1
        if done:
            returns.append(episode_reward)
            print(f"step {total_timesteps:>6}  return {episode_reward:8.1f}")
    return returns


if __name__ == "__main__":
    main()
