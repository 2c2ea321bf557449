from dataclasses import replace

import numpy as np
import pytest

from t3d.run.records import Evaluation, Training
from t3d.study.verdict import verdict


def evaluation(step: int, mean: float, **more: float) -> Evaluation:
    values = {"step": step, "mean": mean, "std": 1.0, **more}
    return Evaluation.from_json({**values, "returns": [mean] * 10})


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ([-100, -50, -10, -10], "learned"),
        ([-100, -10, -90], "learned, then fell"),
        ([-100, -99.9, -100.2], "not learned yet"),
        ([-100, -99.2, *[-100] * 200], "not learned yet"),  # the best of many, by chance
        ([-100], "too early to say"),
    ],
)
def test_the_verdict_is_what_the_curve_shows(means: list[float], word: str) -> None:
    evaluations = [evaluation(i, mean) for i, mean in enumerate(means)]
    assert verdict(evaluations).word == word


def test_without_a_standard_deviation_the_spread_is_that_of_the_curve() -> None:
    means = [-100, -99, -100, -99, -100]
    for std, word in ((0.0, "learned"), (None, "not learned yet")):
        evaluations = [replace(evaluation(i, mean), std=std) for i, mean in enumerate(means)]
        assert verdict(evaluations).word.startswith(word)


def test_single_episodes_that_only_jump_about_are_not_called_learning() -> None:
    draw = np.random.default_rng(0)
    means = [float(mean) for mean in draw.normal(size=40)]
    single = [replace(evaluation(i, mean), std=0.0, returns=[mean]) for i, mean in enumerate(means)]
    assert verdict(single).word == "not learned yet"
    rising = [replace(each, mean=each.mean + 10 * i) for i, each in enumerate(single)]
    assert verdict(rising).word == "learned"


def test_episodes_that_are_cut_off_early_are_not_compared_with_the_critic() -> None:
    last = evaluation(1, -10, estimated_Q=92.6, true_Q=26.0, cut_off=0.74)
    sentences = verdict([evaluation(0, -100), last]).sentences
    assert "cut off so early" in sentences[-1]
    assert "too high" not in " ".join(sentences)


@pytest.mark.parametrize(
    ("estimate", "actual", "text"),
    [
        (-90.0, -100.0, "10% too high"),
        (-100.0, -80.0, "20% too low"),
        (50.0, 51.0, "about right"),
        (300.0, 100.0, "over-estimates far too much"),
    ],
)
def test_the_verdict_says_how_far_the_critic_is_off(
    estimate: float, actual: float, text: str
) -> None:
    last = evaluation(1, -10, estimated_Q=estimate, true_Q=actual)
    sentences = verdict([evaluation(0, -100), last]).sentences
    assert text in " ".join(sentences)


def test_a_run_that_still_rises_is_worth_more_steps() -> None:
    rising = [evaluation(step, mean) for step, mean in enumerate(range(-100, -20, 10))]
    flat = [*rising, *(evaluation(10 + step, -30) for step in range(8))]
    hint = "The evaluations still rose at the end: more steps may help."
    assert hint in verdict(rising).sentences
    assert hint not in verdict(flat).sentences


def test_a_run_that_made_no_update_is_not_sent_to_the_doctor() -> None:
    flat = [evaluation(step, -100) for step in (0, 500, 1000)]
    word, sentences = verdict(flat, [Training(step=1000, updates=0)])
    assert word == "too early to say"
    assert sentences[0].startswith(
        "No update was made in 1,000 steps: learning starts after --rand"
    )
    assert verdict(flat, [Training(step=1000, updates=1)]).word == "not learned yet"


def test_saturated_actions_are_mentioned() -> None:
    evaluations = [evaluation(0, -100), evaluation(1, -10)]
    for share, mentioned in ((0.9, True), (0.7, False), (None, False)):
        training = [Training(step=1, saturation=share)]
        sentences = verdict(evaluations, training).sentences
        assert ("90% of its last actions are at a limit of their range." in sentences) == mentioned
