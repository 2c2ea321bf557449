"""The agents that a run keeps: loaded, and played."""

import dataclasses
from pathlib import Path
from typing import Literal

from t3d.base.errors import BadInput
from t3d.learn.engines import agent_class, engine_for
from t3d.learn.t3d import T3D
from t3d.play.envs import EnvMaker, EnvSource
from t3d.play.evaluate import Score
from t3d.play.evaluate import evaluate as play_episodes
from t3d.run.folder import RunFolder

Which = Literal["best", "last"]


def load(run: str | Path, *, which: Which = "best", device: str = "cpu") -> T3D:
    """The agent of a run: the best by evaluation, or the last."""
    folder = RunFolder.open(run)
    path = folder.best_agent if which == "best" else folder.last_agent()
    if path is None or not path.is_file():
        raise BadInput(f"{run} has no {which} agent yet; let it train to its first evaluation")
    config = dataclasses.replace(folder.config(), device=device)
    if config.engine == "fused":  # what it was trained with; on another device any will do
        config = dataclasses.replace(config, engine="auto")
    return agent_class(engine_for(config)[0]).load(path, device)


def evaluate(
    run: str | Path,
    *,
    episodes: int = 10,
    seed: int = 0,
    which: Which = "best",
    env: EnvSource | None = None,
) -> Score:
    """Play noiseless episodes that no choice of training was made on."""
    if episodes < 1:
        raise BadInput(f"episodes is {episodes}; expected at least 1")
    if seed < 0:
        raise BadInput(f"seed is {seed}; expected at least 0")
    config = RunFolder.open(run).config()
    agent = load(run, which=which)
    played = EnvMaker(env or config.env, config).make()
    try:
        return play_episodes(agent.select_action, played, range(episodes), seed, purpose="test")
    finally:
        played.close()


def keep_score(folder: RunFolder, score: Score) -> None:
    """Write what the best agent of a run reached on test episodes into its folder."""
    *_, last = folder.metrics("evaluation")
    kept = {"mean": score.mean, "std": score.std, "returns": score.returns}
    folder.write_score(kept | {"episodes": len(score.returns), "step": last["best_step"]})
