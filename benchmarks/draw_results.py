"""Write docs/results.md, its pictures, README's table, and the curves of `t3d check`.

    python benchmarks/draw_results.py

All figures come from the files in benchmarks/results/, which benchmarks/results.py writes. The text
of docs/results.md is in results.template.md: edit it there. Each {{ placeholder }} is a function of
results_tables.py, with its arguments.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import results_tables as tables
from measures import (
    MILESTONES,
    PARTS,
    ablations,
    by_engine,
    by_variant,
    campaign_order,
    interval,
    q_error,
    variant_name,
)
from results import Run, author, curve, together
from results_tables import PUBLISHED, by_setting, runs_of
from t3d.show import plots
from t3d.study.evaluations import Curve
from t3d.study.known import DECIMALS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TEMPLATE = Path(__file__).with_name("results.template.md")
KNOWN_RUNS = ROOT / "src/t3d/study/curves.json"
PLACEHOLDER = re.compile(r"\{\{ (.+?) \}\}")


def page() -> str:
    """docs/results.md: the template, filled in."""
    template = TEMPLATE.read_text()
    placed = set(PLACEHOLDER.findall(template))
    expected = {f"ablation {env}" for env in ablations()}
    expected |= {f"settings {env}" for env in by_setting()}
    if missing := sorted(expected - placed):
        raise SystemExit(f"{TEMPLATE.name} has no {{{{ {missing[0]} }}}}: write a section with it")
    return PLACEHOLDER.sub(lambda match: fill(match[1]), template)


def fill(placeholder: str) -> str:
    """The text in place of a placeholder: a function's name and its arguments."""
    name, *words = placeholder.split()
    if name == "hopper":
        return tables.hopper()[words[0]]
    return str(getattr(tables, name)(*words))


def readme() -> str:
    """README.md, with the short table."""
    before, begin, rest = README.read_text().partition("<!-- results -->\n")
    _, finish, after = rest.partition("<!-- end -->")
    return f"{before}{begin}\n{tables.short_summary()}\n\n{finish}{after}"


def draw_campaign() -> list[Path]:
    """The learning curves of the campaign: a panel for each environment, one legend for all."""
    order = campaign_order()
    across = min(4 if len(order) > 6 else 3, len(order))
    down = -(-len(order) // across)
    figure = plots.new_figure(4.4 * across, 3.3 * down + 0.4)
    legend: dict[str, Any] = {}
    for place, (env, runs) in enumerate(order, start=1):
        axes: Any = figure.add_subplot(down, across, place)
        seeds = [[curve("", [run]) for run in runs]]
        seeds += [author(env).get(runs[0]["config"]["random_steps"], [])]
        lines = [
            together(name, each) for name, each in zip(("T3D", "author's code"), seeds) if each
        ]
        plots.panel(axes, lines)
        for line, mean, each in zip(lines, axes.get_legend_handles_labels()[0], seeds):
            for one in each:
                further = one.step >= line.step[-1]
                if further.sum() > 1:
                    look = {"color": mean.get_color(), "lw": 0.9}
                    look["label"] = f"{line.label}, single seeds further"
                    axes.plot(one.step[further], one.returns[0, further], **look)
        mark_published(axes, env, max(int(one.step[-1]) for one in seeds[0]))
        axes.set_title(f"{env}, {len(runs)} seeds" if len(runs) > 1 else f"{env}, one seed")
        axes.locator_params(axis="x", nbins=4)
        axes.get_legend().remove()  # it would lie on the curves
        for handle, label in zip(*axes.get_legend_handles_labels()):
            legend.setdefault(re.sub(r", (seed \d+|\d+ seeds)$", "", label), handle)
        if (place - 1) % across == 0:
            axes.set_ylabel("evaluation return")
    legend = dict(sorted(legend.items()))  # T3D's first
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=len(legend))
    return plots.save(figure, DOCS / "images" / "results")


def mark_published(axes: Any, env: str, last: int) -> None:
    """The IQM of others' ten seeds and its interval, at the milestones of a panel."""
    ends = [end for end in MILESTONES if end <= last]
    marks: dict[str, list[tuple[float, ...]]] = {}
    if env in PUBLISHED["paper"]:
        marks["paper, v1"] = [tuple(PUBLISHED["paper"][env][str(end)][1:4]) for end in ends]
    if env in PUBLISHED["tianshou"]:
        marks["Tianshou, v3"] = [interval(PUBLISHED["tianshou"][env][str(end)]) for end in ends]
    for place, (label, values) in enumerate(marks.items()):
        middle, low, high = np.array(values).T
        at = np.array(ends) - 0.012 * last * place  # so that they do not overlap
        look: dict[str, Any] = {"color": ("black", "tab:red")[place], "marker": "Ds"[place]}
        look |= {"linestyle": "none", "markersize": 4, "linewidth": 1, "capsize": 2, "zorder": 4}
        axes.errorbar(at, middle, (middle - low, high - middle), label=label, **look)


def draw_ablation(env: str, runs: list[Run]) -> list[Path]:
    """Learning curves and Q errors without some parts."""
    groups = [
        (variant_name(lacking), variant)
        for lacking, variant in by_variant(runs).items()
        if len(lacking) in (0, 1, len(PARTS))
    ]
    figure = plots.new_figure(13, 4.4)
    left, right = figure.subplots(1, 2)
    plots.panel(left, [curve(name, variant) for name, variant in groups])
    plots.panel(right, [q_error(name, variant) for name, variant in groups])
    right.axhline(0, color="black", lw=1, ls="--")
    left.set(title=f"{env}: learning curves", ylabel="evaluation return")
    right.set(title="Q error of the first critic", ylabel="estimated Q minus true return")
    return plots.save(figure, DOCS / "images" / f"ablation-{env}")


def draw_settings(env: str, lines: list[Curve]) -> list[Path]:
    """The curves of settings; their names are long, so the legend is below."""
    figure = plots.new_figure(8, 5.5)
    axes = figure.add_subplot()
    plots.panel(axes, lines)
    axes.set(title=f"{env}: settings", ylabel="evaluation return")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14), fontsize=9, frameon=False)
    return plots.save(figure, DOCS / "images" / f"settings-{env}")


def known_runs() -> str:
    """The curves that `t3d check` compares with, of environments with three runs or more."""
    curves = {}
    for env, runs in campaign_order():
        if len(runs) < 3:
            continue
        longest = max(runs, key=lambda run: len(run["evaluations"]["step"]))
        for run in runs:  # a curve is stored without its steps: they are the first of these
            points = run["evaluations"]["step"]
            assert points == longest["evaluations"]["step"][: len(points)], (env, run["digest"])
        curves[env] = {
            "config": {name: value for name, value in longest["config"].items() if name != "seed"},
            "versions": longest["versions"],
            "step": longest["evaluations"]["step"],
            "runs": {
                str(run["config"]["seed"]): [
                    round(mean, DECIMALS) for mean in run["evaluations"]["mean"]
                ]
                for run in runs
            },
        }
    rows = (f" {json.dumps(env)}: {json.dumps(facts)}" for env, facts in curves.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> None:
    """Write everything; the texts come first, because they fail if something is missing."""
    texts = {DOCS / "results.md": page(), README: readme(), KNOWN_RUNS: known_runs()}
    files = draw_campaign()
    for env, runs in ablations().items():
        files += draw_ablation(env, runs)
    for env, lines in by_setting().items():
        files += draw_settings(env, lines)
    for group in ("engines", "presets"):
        for name, runs in runs_of(group).items():
            files += plots.draw({name: by_engine(runs)}, DOCS / "images" / f"{group}-{name}")
    for file, text in texts.items():
        file.write_text(text)
    for file in [*files, *texts]:
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
