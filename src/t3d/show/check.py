"""`t3d check` in words, and as a picture of a run over the known runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from t3d.run.records import Json
from t3d.show import plots
from t3d.show.words import value_text
from t3d.study.check import Check, unexplained


def lines(result: Json) -> list[str]:
    """The result in words: the verdict first, then what may explain it."""
    text = [_verdict(result)]
    if result["untrained_within"]:
        text.append(
            "This is weak evidence: known runs vary so much here that an untrained agent would be"
            " inside the band, too."
        )
    if result["same_as_known"]:
        text.append(
            f"It repeats a known run: at all {result['same_as_known']} steps that it shares with"
            f" the known run of seed {result['seed']}, the evaluations are equal to the last digit"
            " stored."
        )
    text += [
        f"It was {each['verdict']} the band from step {each['from']:,} to {each['to']:,}."
        for each in result["earlier"]
    ]
    if result["trained_to"] > result["step"]:
        text.append(
            f"It trained to step {result['trained_to']:,}. The known runs end at step"
            f" {result['step']:,}; what came after is not judged."
        )
    for name, values in result["differences"].items():
        run, known = (value_text(values[which]) for which in ("run", "known"))
        text.append(f"- different: {name} is {run}, the known runs have {known}")
    text += [f"- {hint}" for hint in result["hints"]]
    if unexplained(result):
        text.append(
            "- nothing in its files explains it; about one normal run in 20 is outside by chance."
            " To find out, train on fresh seeds:"
        )
    return text


def _verdict(result: Json) -> str:
    """Where the run is, against the band, with as many digits as the band is wide."""
    step, low, high = (result[name] for name in ("step", "low", "high"))
    digits = max(0, 1 - math.floor(math.log10(high - low))) if high > low else 1
    score, low, high = (f"{value:,.{digits}f}" for value in (result["score"], low, high))
    return (
        f"{result['env']}, seed {result['seed']}, at step {step:,} of {result['steps']:,}:"
        f" {result['verdict']} the band{_since(result)}. Its score of {score} (mean of its"
        f" evaluations after step {step // 2:,}) is {result['verdict']} {low} to {high}, the 95 %"
        f" band of {result['curves']} known runs."
    )


def _since(result: Json) -> str:
    since = result["since"]
    return f" since step {since:,}" if since not in (None, result["step"]) else ""


def draw(check: Check, out: Path) -> list[Path]:
    """Draw the run over the known ones as PNG and SVG; returns the files."""
    result, (step, run, known, low, high) = check
    figure = plots.new_figure(8, 4.8)
    axes = figure.add_subplot()
    blue, red = plots.COLOURS[:2]
    has_band = np.isfinite(low)
    axes.fill_between(step, low, high, color=blue, alpha=0.15, lw=0, label="95 % band")
    for number, each in enumerate(known):
        name = None if number else f"the {len(known)} known runs"
        axes.plot(step, each, color=blue, lw=0.7, alpha=0.6, label=name)
    mean = np.nanmean(known[:, has_band], axis=0)
    axes.plot(step[has_band], mean, color=blue, lw=1.8, label="their mean")
    axes.plot(step, run, color="black", lw=2.5, label=f"this run, seed {result['seed']}")
    outside = has_band & ((run < low) | (run > high))
    if outside.any():
        marks: Any = {"color": red, "ls": "", "marker": "o", "ms": 5, "zorder": 3}
        axes.plot(step[outside], run[outside], label="outside", **marks)
    # Where few runs vary a lot, the band is very wide: the axis fits the curves instead.
    values = np.concatenate([run, known.ravel(), [result["low"], result["high"]]])
    margin = 0.05 * np.nanmax(values) - 0.05 * np.nanmin(values) or 1.0
    axes.set(ylim=(np.nanmin(values) - margin, np.nanmax(values) + margin))
    where = f"{result['verdict']} the band{_since(result)}"
    axes.set(title=f"{plots.named(result['env'])}, at step {result['step']:,}: {where}")
    axes.set(xlabel="environment steps", ylabel="evaluation return\n(mean of the last half)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best")
    return plots.save(figure, out)
