"""TD3 by hand: a memory, an agent and a loop, without the rest of T3D.

    python examples/by_hand.py

Learns to swing up a pendulum in about ten seconds; the first time, the engine is compiled, which
takes half a minute. `t3d train` does the same, with evaluation, checkpoints, several environments
and resuming.
"""

import gymnasium as gym
import numpy as np

from t3d import Config, FusedT3D, ReplayBuffer


def main(steps: int = 10_000, seed: int = 0) -> list[float]:
    """Train for `steps` steps; returns the return of every episode."""
    env = gym.make("Pendulum-v1")
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    config = Config(seed=seed, hidden=(64, 64), batch_size=128, learning_rate=1e-3, tau=0.01)
    # The fast engine. `T3D` takes the same arguments and is the code to read: src/t3d/learn/t3d.py.
    agent = FusedT3D(state_dim=3, low=low, high=high, config=config)
    agent.prepare(waiting=lambda: print("compiling the fast engine, once ..."))
    replay_buffer = ReplayBuffer(capacity=steps, state_dim=3, action_dim=1)
    noise = np.random.default_rng(seed)

    returns, total = [], 0.0
    state, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < 1_000:  # random play first, to fill the memory
            action = noise.uniform(low, high)
        else:  # then the actor, with exploration noise
            action = agent.select_action(state) + noise.normal(0, 0.2 * (high - low) / 2)
            action = np.clip(action, low, high)
        next_state, reward, terminated, truncated, _ = env.step(action)
        replay_buffer.add(state, next_state, action, float(reward), terminated)
        if step >= 1_000:
            agent.train(replay_buffer, iterations=1)
        state, total = next_state, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            print(f"step {step + 1:>6}  return {total:8.1f}")
            state, total = env.reset()[0], 0.0
    return returns


if __name__ == "__main__":
    main()
