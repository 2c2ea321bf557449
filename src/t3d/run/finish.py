"""The end of a run: the score of its best agent on test episodes, and what shows the run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from t3d.base.errors import RunFailed, T3DError
from t3d.base.output import complain
from t3d.play.envs import EnvSource
from t3d.play.evaluate import Score
from t3d.run.agents import evaluate, keep_score
from t3d.run.folder import RunFolder
from t3d.run.watchers import Watchers

Picture = Callable[[RunFolder], Path]  # writes a file about a run, and returns its path


class Finished(NamedTuple):
    """What a finished run has besides its agents."""

    score: Score | None  # None if the run has no agent yet
    files: dict[str, Path]  # by name: curve, video, report
    problems: dict[str, str]  # by name, what could not be written and why


def finish(
    folder: RunFolder,
    pictures: Mapping[str, Picture] | None = None,
    env: EnvSource | None = None,
    watchers: Watchers | None = None,
    waiting: Callable[[str], None] = complain,
) -> Finished:
    """Score a run on test episodes, write score.json, then the pictures.

    The score is that of the best agent or, without any evaluation, of the last.

    A picture that cannot be written is a problem, not an error. `env` is needed only if the run
    was trained on a callable that cannot be imported. `watchers` are told at the end, `waiting`
    every ten seconds how far the score is.
    """
    finished = Finished(None, {}, {})
    try:
        finished = _finish(folder, pictures or {}, env, waiting)
    finally:
        if watchers:
            watchers.finish(folder, finished)
    return finished


def _finish(
    folder: RunFolder,
    pictures: Mapping[str, Picture],
    env: EnvSource | None,
    waiting: Callable[[str], None],
) -> Finished:
    score, files, problems = None, {}, {}
    if folder.newest_checkpoint():
        try:
            episodes = folder.config().test_episodes
            # It was trained just now, so its code is trusted.
            which = folder.scored_agent
            score = evaluate(
                folder.path, episodes=episodes, which=which, env=env, trust=True, waiting=waiting
            )
        except RunFailed as error:
            how = f"training is finished and saved, score it with: t3d resume {folder}"
            raise type(error)(f"{error}; {how}") from error
        try:
            keep_score(folder, score)
        except T3DError as error:
            problems["score"] = str(error)
    else:
        problems["score"] = "no agent yet"
    for name, picture in pictures.items():
        try:
            files[name] = picture(folder)
        except T3DError as error:
            problems[name] = str(error)
    return Finished(score, files, problems)
