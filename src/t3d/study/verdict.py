"""Did a run learn? A verdict in a few words, from its records, and sentences with the numbers."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from t3d.run.records import Evaluation, Training

OVERESTIMATED = 0.5  # a `critic_error` above this is worth a warning
SATURATED = 0.8  # a share of actions at a limit of their range above this, too
_CUT_OFF = 0.05  # above this share, what follows an episode's end counts too much to compare
_ABOUT_RIGHT = 0.05  # a `critic_error` up to this, either way


class Verdict(NamedTuple):
    """How a run went."""

    word: Literal["too early to say", "not learned yet", "learned", "learned, then fell"]
    sentences: list[str]


def verdict(evaluations: Sequence[Evaluation], training: Sequence[Training] = ()) -> Verdict:
    """The verdict on a run, from its records."""
    if training and training[-1].updates == 0:
        sentence = (
            f"No update was made in {training[-1].step:,} steps: learning starts after "
            f"--random-steps, and the evaluations are of an untrained agent."
        )
        return Verdict("too early to say", [sentence])
    if len(evaluations) < 2:
        return Verdict("too early to say", [])
    progress = _progress(evaluations)
    critic = _critic(evaluations[-1])
    actions = _actions(training)
    return progress._replace(sentences=[*progress.sentences, *critic, *actions])


def best_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest mean; of equal ones, the first."""
    return max(evaluations, key=lambda evaluation: evaluation.mean)


def critic_error(evaluation: Evaluation) -> float | None:
    """By what share the critic over-estimates the return; None where they cannot be compared."""
    estimate, actual = evaluation.estimated_Q, evaluation.true_Q
    if _is_cut_off(evaluation) or estimate is None or actual is None:
        return None
    return (estimate - actual) / max(abs(estimate), abs(actual), 1e-9)


def _progress(evaluations: Sequence[Evaluation]) -> Verdict:
    """Whether the evaluations rose, fell again, or still rise."""
    first, last, best = evaluations[0], evaluations[-1], best_evaluation(evaluations)
    rise = best.mean - first.mean
    # The best of many is above the first by chance alone: the more evaluations, the further.
    quantile = NormalDist().inv_cdf(1 - 0.025 / len(evaluations))
    if rise <= quantile * _standard_error(first, best, evaluations):
        sentence = (
            f"The best evaluation, {best.mean:,.1f}, is not significantly above the first, "
            f"{first.mean:,.1f}. Run t3d doctor on the environment."
        )
        return Verdict("not learned yet", [sentence])
    sentences = [
        f"Its evaluations rose from {first.mean:,.1f} to {best.mean:,.1f}, at step {best.step:,}."
    ]
    fell = best.mean - last.mean
    has_fallen = fell > max(0.2 * rise, 2 * _standard_error(best, last, evaluations))
    if has_fallen:
        sentences.append(
            f"The last one is {last.mean:,.1f}. The best agent, of step {best.step:,}, is "
            f"saved: eval, record and load use it."
        )
    if _still_rises(evaluations, rise):
        sentences.append("The evaluations still rose at the end: more steps may help.")
    return Verdict("learned, then fell" if has_fallen else "learned", sentences)


def _still_rises(evaluations: Sequence[Evaluation], rise: float) -> bool:
    """Whether the last quarter of the evaluations is well above the quarter before it."""
    quarter = max(1, len(evaluations) // 4)
    parts = evaluations[-2 * quarter : -quarter], evaluations[-quarter:]
    before, after = (float(np.mean([each.mean for each in part])) for part in parts)
    return len(evaluations) >= 8 and after - before > 0.1 * rise


def _critic(evaluation: Evaluation) -> list[str]:
    """How far the critic's estimate is from the return."""
    if _is_cut_off(evaluation):
        return [
            "Episodes are cut off so early that much of the return comes after their end: the "
            "critic's estimate cannot be compared with the return."
        ]
    error = critic_error(evaluation)
    if error is None:
        return []
    how = f"{abs(error):.0%} too {'high' if error > 0 else 'low'}"
    sentences = [
        f"At the start of an episode the critic estimates {evaluation.estimated_Q:,.1f}; the "
        f"discounted return is {evaluation.true_Q:,.1f}: "
        f"{how if abs(error) > _ABOUT_RIGHT else 'about right'}."
    ]
    if error > OVERESTIMATED:
        sentences.append("The critic over-estimates far too much: try a smaller --learning-rate.")
    return sentences


def _is_cut_off(evaluation: Evaluation) -> bool:
    """Whether much of the return comes after the end of the episodes."""
    return evaluation.cut_off is not None and evaluation.cut_off > _CUT_OFF


def _actions(training: Sequence[Training]) -> list[str]:
    """How many of the last actions are at a limit, if they are many."""
    share = training[-1].saturation if training else None
    if share is None or share <= SATURATED:
        return []
    return [f"{share:.0%} of its last actions are at a limit of their range."]


def _standard_error(one: Evaluation, two: Evaluation, evaluations: Sequence[Evaluation]) -> float:
    """The standard error of the difference of two evaluations."""
    # One episode says nothing of its own spread.
    if len(one.returns) < 2 or one.std is None or two.std is None:
        return float(np.std(np.diff([each.mean for each in evaluations])))
    parts = [
        std * std / max(1, len(each.returns)) for std, each in ((one.std, one), (two.std, two))
    ]
    return math.sqrt(sum(parts))
