"""Whether environments behave the same under another version of MuJoCo.

    python benchmarks/physics.py 3.4.0 3.5.0

Random actions visit a thousand states of each MuJoCo environment of the campaign. From each state
and action, the next state is computed with the installed MuJoCo and with the given versions, each
in a virtual environment (benchmarks/.venvs). The largest difference of a position or a velocity is
written to benchmarks/results/physics.json, for docs/results.md. `halved` is the same with the
contact margins of the installed MuJoCo halved. (For another MuJoCo this script calls itself with
two files: the states to read, and the next states to write.)
"""

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

HERE = Path(__file__).parent
RESULT = HERE / "results/physics.json"
ENVS = (
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
    "Reacher-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
)
STATES = 1000
MAXIMUM_LENGTH = 40  # Steps before a new start: states near the ground, on it, and in the air.


def visit(env_id: str) -> dict[str, Any]:
    """States that random actions lead to, and the actions."""
    env: Any = gymnasium.make(env_id).unwrapped
    env.action_space.seed(0)
    env.reset(seed=0)
    states, actions = [], []
    for step in range(1, STATES + 1):
        states.append(np.concatenate([env.data.qpos, env.data.qvel]))
        actions.append(env.action_space.sample())
        terminated = env.step(actions[-1])[2]
        if terminated or step % MAXIMUM_LENGTH == 0:
            env.reset(seed=step)
    return {f"{env_id} states": np.array(states), f"{env_id} actions": np.array(actions)}


def next_states(env_id: str, visited: Any, margins: float = 1.0) -> Any:
    """The next state of each visited one, by the MuJoCo of this process."""
    env: Any = gymnasium.make(env_id).unwrapped
    env.model.geom_margin[:] *= margins
    env.reset(seed=0)
    results = []
    for state, action in zip(
        visited[f"{env_id} states"], visited[f"{env_id} actions"], strict=True
    ):
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(state[: env.model.nq], state[env.model.nq :])
        env.data.qacc_warmstart[:] = 0  # before 3.3.6, set_state leaves something there
        env.step(action)
        results.append(np.concatenate([env.data.qpos, env.data.qvel]))
    return np.array(results)


def python_with(version: str) -> Path:
    """A Python with that MuJoCo, and with this Gymnasium."""
    folder = HERE / ".venvs" / f"mujoco-{version}"
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    needed = [f"mujoco=={version}", f"gymnasium=={gymnasium.__version__}", "packaging", "imageio"]
    if subprocess.run([str(python), "-m", "pip", "install", "-q", *needed]).returncode:
        sys.exit(f"MuJoCo {version} could not be installed; expected a version such as 3.4.0")
    return python


def main(versions: list[str]) -> None:
    """Compare, and write the differences."""
    visited = {key: value for env_id in ENVS for key, value in visit(env_id).items()}
    ours = {env_id: next_states(env_id, visited) for env_id in ENVS}
    halved = {env_id: next_states(env_id, visited, margins=0.5) for env_id in ENVS}
    results: dict[str, Any] = {"mujoco": importlib.metadata.version("mujoco"), "beside": {}}
    if (
        RESULT.exists()
        and (before := json.loads(RESULT.read_text()))["mujoco"] == results["mujoco"]
    ):
        results = before
    with tempfile.TemporaryDirectory() as folder:
        states, answers = Path(folder, "states.npz"), Path(folder, "answers.npz")
        np.savez(states, **visited)
        for version in versions:
            subprocess.run([python_with(version), __file__, states, answers], check=True)
            theirs = np.load(answers)
            results["beside"][version] = {
                env_id: {
                    name: float(f"{np.abs(mine[env_id] - theirs[env_id]).max():.2g}")
                    for name, mine in (("as it is", ours), ("halved", halved))
                }
                for env_id in ENVS
            }
            print(version, json.dumps(results["beside"][version], indent=1))
    order = sorted(
        results["beside"], key=lambda version: [int(part) for part in version.split(".")]
    )
    results["beside"] = {version: results["beside"][version] for version in order}
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] and Path(sys.argv[1]).suffix == ".npz":
        visited = np.load(sys.argv[1])
        np.savez(sys.argv[2], **{env_id: next_states(env_id, visited) for env_id in ENVS})
    elif sys.argv[1:]:
        main(sys.argv[1:])
    else:
        sys.exit(__doc__)
