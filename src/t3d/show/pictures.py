"""The pictures of a run that its folder gets when it is finished (run/finish.py)."""

from collections.abc import Callable
from pathlib import Path

from t3d.base.errors import RunFailed
from t3d.base.signals import Ended
from t3d.play.envs import EnvMaker, EnvSource
from t3d.run.agents import Which, load
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
    called before the video, which takes long: Ctrl-C skips it.
    """

    def episode(folder: RunFolder) -> Path:
        notice("  recording a video; Ctrl-C to skip it ...")
        try:
            return record_video(folder, folder.path / "episode", env=env)[0][0]
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
) -> tuple[list[Path], float]:
    """Record an episode of a run's agent; returns the files and the episode's return."""
    config = folder.config()
    policy = load(folder.path, which=which, importing=True).select_action
    return record(policy, EnvMaker(env or config.env, config), out, seed)
