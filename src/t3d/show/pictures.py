"""The pictures of a run that its folder gets when it is finished (run/finish.py)."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from t3d.base.errors import RunFailed
from t3d.base.signals import Ended
from t3d.play.envs import EnvMaker, EnvSource, Spaces
from t3d.run.agents import Which, agent_spaces, load
from t3d.run.finish import Picture
from t3d.run.folder import RunFolder
from t3d.show import plots
from t3d.show.report import report
from t3d.show.video import record


def pictures(
    with_video: bool,
    env: EnvSource | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> dict[str, Picture]:
    """The learning curve, a video if asked for, and the report, which shows both.

    `env` is needed only if the run was trained on a callable that cannot be imported. `notice` is
    called before the video, which takes long: Ctrl-C skips it. A run in one environment only has
    none: it would be a second one that can render.
    """

    def episode(folder: RunFolder) -> Path:
        if folder.config().single_env:
            raise RunFailed(f"another environment would be made; to do that: t3d record {folder}")
        notice("  recording a video; Ctrl-C to skip it ...")
        try:
            return record_video(
                folder, folder.path / "episode", which=folder.scored_agent, env=env
            )[0][0]
        except Ended:
            raise
        except KeyboardInterrupt as error:
            raise RunFailed("skipped") from error

    video: dict[str, Picture] = {"video": episode} if with_video else {}
    return {"curve": curve, **video, "report": page}


def curve(folder: RunFolder) -> Path:
    """Draw the learning curve of a run."""
    return plots.plot([folder.path], folder.path / "curve")[0]


def page(folder: RunFolder) -> Path:
    """Write the report of a run."""
    return report([folder.path], folder.path / "report.html")


def record_video(
    folder: RunFolder,
    out: Path,
    seed: int = 0,
    which: Which = "best",
    env: EnvSource | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> tuple[list[Path], float]:
    """Record an episode of a run's agent; returns the files and the episode's return.

    It plays where the run is evaluated, or in `env`, a variant of that environment.
    """
    maker = EnvMaker.variant(folder.config(), env, env_kwargs)
    agent = load(folder.path, which=which, importing=True)
    if env is not None or env_kwargs:
        with closing(maker.make()) as variant:
            Spaces.of(variant).require_same(
                maker.name, agent_spaces(agent), "the environment of the agent"
            )
    return record(agent.select_action, maker, out, seed)
