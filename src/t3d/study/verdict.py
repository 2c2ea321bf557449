"""Did a run learn? A verdict in a few words, from its records, and sentences with the numbers."""

import math
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from t3d.run.folder import Record

OVERESTIMATED = 0.5  # a `critic_error` above this is worth a warning
SATURATED = 0.8  # a share of actions at a limit of their range above this, too
_CUT_OFF = 0.05  # above this share, what follows an episode's end counts too much to compare
_ABOUT_RIGHT = 0.05  # a `critic_error` up to this, either way


class Verdict(NamedTuple):
    """How a run went."""

    word: Literal["too early to say", "not learned yet", "learned", "learned, then fell"]
    sentences: list[str]


def verdict(records: dict[str, list[Record]]) -> Verdict:
    """The verdict on a run, from its records by kind."""
    evaluations = records.get("evaluation", [])
    if len(evaluations) < 2:
        return Verdict("too early to say", [])
    progress = _progress(evaluations)
    critic = _critic(evaluations[-1])
    actions = _actions(records.get("train", []))
    return progress._replace(sentences=[*progress.sentences, *critic, *actions])


def best_evaluation(evaluations: list[Record]) -> Record:
    """The evaluation with the highest mean; of equal ones, the first."""
    return max(evaluations, key=lambda record: float(record["mean"]))


def critic_error(evaluation: Record) -> float | None:
    """By what share the critic over-estimates the return; None where they cannot be compared."""
    if evaluation.get("cut_off", 0) > _CUT_OFF or evaluation.get("estimated_Q") is None:
        return None
    estimate, actual = evaluation["estimated_Q"], evaluation["true_Q"]
    return float((estimate - actual) / max(abs(estimate), abs(actual), 1e-9))


def _progress(evaluations: list[Record]) -> Verdict:
    """Whether the evaluations rose, fell again, or still rise."""
    first, last, best = evaluations[0], evaluations[-1], best_evaluation(evaluations)
    rise = best["mean"] - first["mean"]
    # The best of many is above the first by chance alone: the more evaluations, the further.
    quantile = NormalDist().inv_cdf(1 - 0.025 / len(evaluations))
    if rise <= quantile * _standard_error(first, best, evaluations):
        sentence = (
            f"The best evaluation, {best['mean']:,.1f}, is not significantly above the first, "
            f"{first['mean']:,.1f}. Run t3d doctor on the environment."
        )
        return Verdict("not learned yet", [sentence])
    sentences = [
        f"Its evaluations rose from {first['mean']:,.1f} to {best['mean']:,.1f}, "
        f"at step {best['step']:,}."
    ]
    fell = best["mean"] - last["mean"]
    has_fallen = fell > max(0.2 * rise, 2 * _standard_error(best, last, evaluations))
    if has_fallen:
        sentences.append(
            f"The last one is {last['mean']:,.1f}. The best agent, of step {best['step']:,}, is "
            f"saved: eval, record and load use it."
        )
    if _still_rises(evaluations, rise):
        sentences.append("The evaluations still rose at the end: more steps may help.")
    return Verdict("learned, then fell" if has_fallen else "learned", sentences)


def _still_rises(evaluations: list[Record], rise: float) -> bool:
    """Whether the last quarter of the evaluations is well above the quarter before it."""
    quarter = max(1, len(evaluations) // 4)
    parts = evaluations[-2 * quarter : -quarter], evaluations[-quarter:]
    before, after = (float(np.mean([r["mean"] for r in part])) for part in parts)
    return len(evaluations) >= 8 and after - before > 0.1 * rise


def _critic(evaluation: Record) -> list[str]:
    """How far the critic's estimate is from the return."""
    if evaluation.get("cut_off", 0) > _CUT_OFF:
        return [
            "Episodes are cut off so early that much of the return comes after their end: the "
            "critic's estimate cannot be compared with the return."
        ]
    error = critic_error(evaluation)
    if error is None:
        return []
    how = f"{abs(error):.0%} too {'high' if error > 0 else 'low'}"
    sentences = [
        f"At the start of an episode the critic estimates {evaluation['estimated_Q']:,.1f}; the "
        f"discounted return is {evaluation['true_Q']:,.1f}: "
        f"{how if abs(error) > _ABOUT_RIGHT else 'about right'}."
    ]
    if error > OVERESTIMATED:
        sentences.append("The critic over-estimates far too much: try a smaller --learning-rate.")
    return sentences


def _actions(train: list[Record]) -> list[str]:
    share = train[-1].get("saturation") if train else None
    if (share or 0) <= SATURATED:
        return []
    return [f"{share:.0%} of its last actions are at a limit of their range."]


def _standard_error(one: Record, two: Record, evaluations: list[Record]) -> float:
    """The standard error of the difference of two evaluations."""
    if len(one.get("returns", [])) < 2:  # one episode says nothing of its own spread
        return float(np.std(np.diff([r["mean"] for r in evaluations])))
    parts = [r["std"] ** 2 / max(1, len(r.get("returns", []))) for r in (one, two)]
    return math.sqrt(sum(parts))
