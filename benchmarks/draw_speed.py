"""Write docs/speed.md and its plots from the results of bench.py."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

_AXES = {
    "batch": "transitions in a batch",
    "hidden": "units in each hidden layer",
    "state": "numbers in a state",
    "rows": "transitions in the memory",
    "environments": "environments",
}
_COLOURS = {"fused": "#1b6ca8", "plain": "#c2571a"}


def draw(results: dict[str, Any], names: dict[str, str], page: Path, images: Path) -> None:
    """Write the page and the plots of the parts that were measured."""
    machine = results["machine"]
    lines = [
        "# Speed",
        "",
        *_summary(results["steps"]["HalfCheetah-v5"] if "steps" in results else {}),
        "`make bench` measures all of this, each table in one run on one machine",
        f"({machine['processor']}, {machine['cores']} cores). Every contestant is a process of its",
        "own; they take turns of about a second, and the median turn counts. Every turn is in",
        "`benchmarks/results/speed.json`. Unless stated otherwise, networks have two hidden layers",
        "of 256 units, batches have 256 transitions, and the actor learns at every second update.",
        "Such a machine is noisy: repeats move figures by some ten percent, and ratios by five.",
        "",
    ]
    if "update" in results:
        lines += _updates(results["update"], names)
    if "steps" in results:
        lines += _steps(results["steps"], names, images)
    if "growth" in results:
        lines += _growth(results["growth"], images)
    if "start" in results:
        lines += ["## Start", "", "| what | seconds |", "|---|---|"]
        lines += [f"| {name} | {seconds:.2f} |" for name, seconds in results["start"].items()]
        lines += [
            "",
            "`t3d train` uses the pendulum's preset: an evaluation and 1,000 random steps come",
            "before the first update. The engine is compiled once per machine and version; the",
            "result is stored next to the source or in the user's cache folder.",
            "",
        ]
    page.write_text("\n".join(lines))


def _summary(rows: dict[str, Any]) -> list[str]:
    if not rows:
        return ["T3D next to its peers on a plain CPU.", ""]
    sb3, sbx = (rows["fused"]["rate"] / rows[kind]["rate"] for kind in ("sb3", "sbx"))
    return [
        "T3D next to its peers on a plain CPU. On HalfCheetah-v5 the fused engine trains",
        f"{sb3:.1f} times as fast as Stable-Baselines3, and {sbx:.1f} times as fast as SBX.",
        "`--engine auto`, the default, uses it wherever it applies ([fused.md](fused.md)).",
        "",
    ]


def _updates(results: dict[str, Any], names: dict[str, str]) -> list[str]:
    lines = [
        "## The update alone",
        "",
        "*The limit* is the time of an update's matrix products alone, at the rate of NumPy's",
        "sgemm (256 x 256 x 256, one per core): no bias, no ReLU, no Adam. Where other programs",
        "share the machine, repeats put the fused engine at 0.71 to 0.86 of it, and at 0.77 to",
        "0.89 with one thread. `python benchmarks/update.py --quick` measures the first table's",
        "main rows in half a minute.",
        "",
    ]
    for case, rows in results.items():
        limit, one = (rows[name]["rate"] for name in ("limit", "limit_1_thread"))
        plain = rows["plain"]["rate"]
        lines += [f"**{case}**", "", "| | updates/s | of the limit | x plain PyTorch |"]
        lines += ["|---|---|---|---|"]
        lines += [f"| the limit, all cores | {limit:,.0f} | 1 | {limit / plain:.1f} |"]
        lines += [f"| the limit, one core | {one:,.0f} | 1 | {one / plain:.1f} |"]
        for kind, name in names.items():
            rate = rows[kind]["rate"]
            share = rate / (one if kind == "fused-1" else limit)
            lines.append(f"| {name} | {rate:,.0f} | {share:.2f} | {rate / plain:.1f} |")
        lines.append("")
    return lines


def _steps(results: dict[str, Any], names: dict[str, str], images: Path) -> list[str]:
    kinds = list(next(iter(results.values())))
    lines = [
        "## End to end",
        "",
        "Environment steps per second with one update each, everything included, and the peak RAM",
        "of the process (its replay memory, for a million transitions, has begun to fill).",
        "",
        "![Steps per second by environment and code](images/speed-steps.svg)",
        "",
        f"| | {' | '.join(names[kind] for kind in kinds)} |",
        f"|---|{'---|' * len(kinds)}",
    ]
    for env, rows in results.items():
        cells = [f"{row['rate']:,.0f}/s, {row['megabytes']:,.0f} MB" for row in rows.values()]
        lines.append(f"| {env} | {' | '.join(cells)} |")
    lines += ["", "How many times as fast the fused engine is:", ""]
    others = [kind for kind in kinds if kind != "fused"]
    lines += [f"| | {' | '.join(names[kind] for kind in others)} |", f"|---|{'---|' * len(others)}"]
    for env, rows in results.items():
        ratios = [f"{rows['fused']['rate'] / rows[kind]['rate']:.2f}" for kind in others]
        lines.append(f"| {env} | {' | '.join(ratios)} |")
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    width = 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        places = [i + (number - (len(kinds) - 1) / 2) * width for i in range(len(results))]
        heights = [rows[kind]["rate"] for rows in results.values()]
        colour = "#1b6ca8" if kind == "fused" else str(0.35 + 0.12 * number)
        axes.bar(places, heights, width * 0.92, color=colour, label=names[kind].strip("*"))
    axes.set_xticks(range(len(results)), list(results))
    axes.set_ylabel("steps per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, images / "speed-steps")
    return [*lines, ""]


def _growth(results: dict[str, Any], images: Path) -> list[str]:
    figure, panels = plt.subplots(1, len(results), figsize=(12, 2.9), layout="constrained")
    for axes, (what, by_size) in zip(panels, results.items()):
        for kind, colour in _COLOURS.items():
            points = {int(x): row[kind]["rate"] for x, row in by_size.items() if kind in row}
            if points:
                label = {"fused": "T3D, fused", "plain": "plain PyTorch"}[kind]
                axes.plot(list(points), list(points.values()), "o-", color=colour, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(_AXES[what])
        axes.set_title("steps/s" if what == "environments" else "updates/s", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    panels[0].legend(frameon=False, fontsize=8)
    _save(figure, images / "speed-growth")
    lines = [
        "## How the cost grows",
        "",
        "One size changes; the others stay those of HalfCheetah-v5 (17 state and 6 action numbers,",
        "100,000 rows). The last panel is end to end, with one update per environment step.",
        "",
        "![Updates per second against each size](images/speed-growth.svg)",
        "",
        "| | T3D, fused | plain PyTorch | ratio |",
        "|---|---|---|---|",
    ]
    for what, by_size in results.items():
        for value, row in by_size.items():
            fused, plain = row["fused"]["rate"], row.get("plain", {}).get("rate")
            comparison = f"{plain:,.0f}/s | {fused / plain:.1f}" if plain else " | "
            lines.append(f"| {_AXES[what]}: {int(value):,} | {fused:,.0f}/s | {comparison} |")
    return [*lines, ""]


def _save(figure: Any, path: Path) -> None:
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=150, metadata=None)
    plt.close(figure)
