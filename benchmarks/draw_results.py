"""Write docs/results.md, its pictures, and the curves that `t3d check` compares with.

    python benchmarks/draw_results.py

All from the files in benchmarks/results/, which benchmarks/results.py keeps.
"""

import itertools
import json
import re
import textwrap
from pathlib import Path

import numpy as np

from results import RESULTS, Run, author, curve, kept, plan, without
from t3d.config import Config
from t3d.randomness import generator
from t3d.run import statistics
from t3d.run.statistics import Array
from t3d.show import plots
from t3d.show.check import Known, band, recent
from t3d.show.plots import Curve

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
KNOWN = ROOT / "src/t3d/show/curves.json"
MILESTONES = (100_000, 300_000, 1_000_000)


def prose(text: str) -> list[str]:
    """A paragraph, and the empty line after it."""
    return [*textwrap.wrap(" ".join(text.split()), 92, break_long_words=False), ""]


def number(value: float) -> str:
    """A return, with as many digits as it deserves."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table, as Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def score_at(step: Array, returns: Array, end: int) -> Array:
    """Of each run, the mean of its evaluations in the last tenth of the steps up to `end`."""
    last = (step > 0.9 * end) & (step <= end)
    return np.asarray(returns[:, last].mean(axis=1))


def estimate(scores: Array) -> Array:
    """The IQM of runs, and its 95 % interval."""
    return statistics.estimate(
        statistics.iqm, [scores], statistics.draw(generator(0, "bootstrap"), [scores])
    )


def cells(scores: Array) -> list[str]:
    """Seeds, mean, IQM and interval of some runs."""
    value, low, high = estimate(scores)
    interval = f"{number(low)} to {number(high)}" if len(scores) > 1 else "one run"
    return [str(len(scores)), number(scores.mean()), f"**{number(value)}**", interval]


def p_value(one: Array, two: Array) -> float:
    """How often chance alone would set two groups of runs as far apart, by their means, as these.

    Exact: every way to deal the runs out to two groups of these sizes is tried.
    """
    runs, size = np.concatenate([one, two]), len(one)

    def apart(chosen: tuple[int, ...]) -> float:
        mine = np.isin(np.arange(len(runs)), chosen)
        return float(abs(runs[mine].mean() - runs[~mine].mean()))

    found = apart(tuple(range(size)))
    dealt = [apart(chosen) for chosen in itertools.combinations(range(len(runs)), size)]
    return float(np.mean([difference >= found - 1e-9 for difference in dealt]))


def verdict(p: float) -> str:
    """What a p-value says."""
    return "no difference beyond that of seeds" if p > 0.05 else "a difference"


def milestones(runs: list[Run]) -> dict[int, Curve]:
    """By milestone that some runs reached, their curve up to there."""
    found = {}
    for end in MILESTONES:
        there = [run for run in runs if run["evaluations"]["step"][-1] >= end]
        if there:
            line = curve("T3D", there)
            within = line.step <= end
            found[end] = Curve("T3D", line.seeds, line.step[within], line.returns[:, within])
    return found


def campaign_section() -> list[str]:
    """The main table, and what others publish."""
    published = json.loads((RESULTS / "published.json").read_text())
    paper, peers = published["paper"], published["peers"]
    lines = ["## What it reaches", "", "![Learning curves of the campaign](images/results.svg)", ""]
    lines += prose(
        """A run counts by the mean of its evaluations in the last tenth of the steps up to there.
        Intervals are 95 % bootstrap intervals of the IQM over seeds. *Maximum* is the largest value
        of the mean curve, which is the measure of the paper's table. Beside ours, in italics, are
        the paper's own curves by the same measures: ten seeds, the settings of 2018, and Gym's v1
        of the environment, so **not the same task to the letter**."""
    )
    rows = []
    for env, runs in campaign_order():
        for end, line in milestones(runs).items():
            scores = score_at(line.step, line.returns, end)
            top = number(line.mean().max())
            rows.append([env, f"{end:,}", *cells(scores), top, f"{minutes(runs, end):.0f}"])
            if env in paper:
                mean, iqm, low, high = map(number, paper[env][str(end)])
                theirs = ["10", mean, iqm, f"{low} to {high}"]
                theirs += [number(paper[env]["maximum"])] if end == MILESTONES[-1] else []
                rows.append(["*paper, v1*", "", *(f"*{cell}*" for cell in theirs)])
                rows[-1] += [""] * (8 - len(rows[-1]))
    head = ["environment", "steps", "seeds", "mean", "IQM", "95 %", "maximum", "minutes"]
    lines += [*table(head, rows), ""]
    lines += prose(
        """Minutes are the wall clock of one run of one thread, two at a time, on a machine that
        did other work too: no measure of speed, for which see [speed.md](speed.md)."""
    )
    lines += ["### What others publish", ""]
    lines += prose(
        """After 1,000,000 steps, mean returns as these projects give them. Versions of
        environments, networks, evaluation and numbers of seeds differ, and are not always told; no
        peer publishes a table for Gymnasium's v5."""
    )
    tasks = [env for env in paper if env != "source"]
    rows = [["paper, v1, maximum", *(number(paper[env]["maximum"]) for env in tasks)]]
    for peer, said in peers.items():
        rows.append([peer, *(number(said[env]) if env in said else "–" for env in tasks)])
    return [*lines, *table(["", *(env[:-3] for env in tasks)], rows), ""]


def plan_section() -> list[str]:
    """What of the campaign is there, and what is not yet."""
    lines = ["### What is there, and what is not yet", ""]
    rows = []
    for spec, (every, left) in plan().items():
        seeds: dict[str, list[str]] = {}
        for config in left:
            seeds.setdefault(config.env, []).append(str(config.seed))
        said = "; ".join(f"{env} seed {', '.join(dict.fromkeys(s))}" for env, s in seeds.items())
        done = f"{len(every) - len(left)} of {len(every)}"
        rows.append([f"`{spec.relative_to(ROOT)}`", done, said or "–"])
    lines += table(["sweep", "measured", "not yet"], rows)
    return [
        *lines,
        "",
        *prose(
            """`python benchmarks/results.py campaign` trains what is missing, as many runs at a
            time as there are cores, goes on where it was stopped, and keeps each curve as a small
            file in `benchmarks/results/`; `python benchmarks/draw_results.py` writes this page from
            them."""
        ),
    ]


def minutes(runs: list[Run], end: int) -> float:
    """The median wall clock of runs up to a step."""
    found = []
    for run in runs:
        steps, seconds = run["evaluations"]["step"], run["evaluations"]["seconds"]
        if end in steps:
            found.append(seconds[steps.index(end)] / 60)
    return float(np.median(found))


def campaign_order() -> list[tuple[str, list[Run]]]:
    """The tasks of the campaign and their runs, in the order of the sweeps."""
    runs = kept("campaign")
    named = [config.env for every, _ in plan().values() for config in every]
    return [(env, runs[env]) for env in dict.fromkeys(named) if env in runs]


def author_section() -> list[str]:
    """T3D beside the author's code, on the same environments."""
    lines = ["## Beside the author's code", ""]
    lines += prose(
        """The author's code (github.com/sfujim/TD3 as of 2020; its networks and knobs are T3D's
        defaults) on the same Gymnasium v5 environments, with as many random steps as here and ten
        evaluation episodes. A run counts by the mean of all its evaluations up to the last step
        that all runs share; p is that of an exact permutation test of the difference of the means,
        over all ways to deal these runs out to two groups."""
    )
    rows = []
    for env, runs in campaign_order():
        theirs = author(env)
        if theirs is None:
            continue
        ours = curve("T3D", runs)
        shared = sorted(set(ours.step.tolist()) & set(theirs.step.tolist()))
        mine, other = (
            line.returns[:, np.isin(line.step, shared)].mean(axis=1) for line in (ours, theirs)
        )
        last = [
            ", ".join(number(v) for v in line.returns[:, line.step == shared[-1]].ravel())
            for line in (ours, theirs)
        ]
        p = p_value(mine, other)
        rows.append([env, f"{shared[-1]:,}", number(mine.mean()), number(other.mean()), *last])
        rows[-1].append(f"{p:.2f}: {verdict(p)}")
    head = ["environment", "up to step", "T3D, mean", "author's, mean"]
    head += ["T3D there, each seed", "author's there, each seed", "p"]
    return [*lines, *table(head, rows), ""]


def ablation_section() -> list[str]:
    """What each part of TD3 is good for."""
    found = kept("ablation")
    if not found:
        return []
    lines = ["## What each part is for", ""]
    lines += prose(
        """The paper's ablation, as knobs of the same code: without the second critic
        (`--no-twins`), without the delay (`--policy-freq 1`), without target smoothing
        (`--policy-noise 0`), and every combination of these; without all three it is DDPG. The
        score is that of the last tenth of the steps, as above; p is against the whole. *Q error*
        is what the critics believe of the first states of evaluation episodes, less the discounted
        return that came of them (mean over seeds, last tenth): above 0 is overestimation."""
    )
    for env, runs in found.items():
        end = min(run["evaluations"]["step"][-1] for run in runs)
        groups = by_variant(runs)
        whole = score_at(*_measured(groups[""]), end)
        lines += [
            f"### {env}, {end:,} steps",
            "",
            f"![Ablation on {env}](images/ablation-{env}.svg)",
            "",
        ]
        rows = []
        for gone, those in groups.items():
            scores = score_at(*_measured(those), end)
            error = curve("", those, "estimated_Q").returns - curve("", those, "true_Q").returns
            believed = score_at(curve("", those).step, error, end).mean()
            test = f"{p_value(scores, whole):.3f}" if gone else "–"
            rows.append([variant_name(gone), *cells(scores), f"{believed:+,.1f}", test])
        lines += table(["", "seeds", "mean", "IQM", "95 %", "Q error", "p"], rows)
        lines += ["", *main_effects(runs, end)]
        lines += ["One of these runs again, bit for bit on the same kind of machine:", ""]
        lines += [f"    {groups['twins'][0]['command']}", ""]
    return lines


def _measured(runs: list[Run]) -> tuple[Array, Array]:
    line = curve("", runs)
    return line.step, line.returns


def by_variant(runs: list[Run]) -> dict[str, list[Run]]:
    """The runs of an ablation by what they do without, the whole first."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(without(run["config"]), []).append(run)
    return dict(sorted(groups.items(), key=lambda group: (len(group[0].split()), group[0])))


def variant_name(gone: str) -> str:
    """What a run without some parts is called."""
    if gone.count(" or ") == 2:
        return "DDPG: none of the three"
    return f"no {gone.replace(' or ', ', no ')}" if gone else "**TD3**"


def main_effects(runs: list[Run], end: int) -> list[str]:
    """What each part does on average over the presence of the others."""
    lines = []
    for part in ("twins", "delay", "smoothing"):
        gone = [run for run in runs if part in without(run["config"])]
        there = [run for run in runs if run not in gone]
        one, two = (score_at(*_measured(group), end) for group in (there, gone))
        p = statistics.p_value(generator(0, "permutation"), [one], [two])
        lines.append(
            f"- {part}: {number(one.mean())} with, {number(two.mean())} without, over all"
            f" {len(runs)} runs (permutation test, p = {p:.2g})"
        )
    return ["Each part by itself, on average over the others:", "", *lines, ""]


def runs_section() -> list[str]:
    """Every run of the campaign, and the command that gives it again."""
    lines = ["## Every run, and how to have it again", ""]
    lines += prose(
        """On the same kind of processor, with the versions of `constraints.txt`, each command
        gives the run bit for bit; `t3d inspect RUN` then says the same digest. *Score* is that of
        the best agent of a run on ten test episodes (seed 0) that it was not chosen by. The files
        in `benchmarks/results/` have every evaluation, all knobs, versions and the processor."""
    )
    for env, runs in campaign_order():
        commands = (re.sub(r" --seed \d+", "", run["command"]) for run in runs)
        lines += [f"**{env}**", ""]
        lines += [*(f"    {command} --seed SEED" for command in dict.fromkeys(commands)), ""]
        rows = []
        for run in runs:
            points, score = run["evaluations"], run["score"]
            best = int(np.argmax(points["mean"]))
            rows.append(
                [
                    str(run["config"]["seed"]),
                    f"{points['step'][-1]:,}",
                    f"{number(score['mean'])} ± {number(score['std'])}",
                    number(points["mean"][-1]),
                    f"{number(points['mean'][best])} at {points['step'][best]:,}",
                    f"{points['seconds'][-1] / 60:.1f}",
                    f"`{run['digest'][:12]}`",
                ]
            )
        head = ["seed", "steps", "score", "last evaluation", "best evaluation", "minutes", "digest"]
        lines += [*table(head, rows), ""]
    return lines


def more_section(group: str, title: str, words: str) -> list[str]:
    """Curves from beside the campaign, each environment with its runs and commands."""
    lines = [f"## {title}", "", *prose(words)]
    for name, runs in kept(group).items():
        lines += [f"### {name}", "", f"![Learning curves on {name}](images/{group}-{name}.svg)", ""]
        rows = []
        for run in sorted(runs, key=lambda run: str(run["config"]["engine"])):
            points, score = run["evaluations"], run["score"]
            rows.append([run["config"]["engine"], str(run["config"]["seed"])])
            rows[-1] += [f"{number(score['mean'])} ± {number(score['std'])}"]
            rows[-1] += [number(max(points["mean"])), number(points["mean"][-1])]
            rows[-1] += [f"{points['seconds'][-1] / 60:.1f}"]
        head = ["engine", "seed", "score", "best evaluation", "last evaluation", "minutes"]
        lines += [*table(head, rows), ""]
        engines = by_engine(runs)
        if len(engines) == 2:
            p = p_value(*(line.returns.mean(axis=1) for line in engines))
            lines += [f"Between the engines: p = {p:.2f}, {verdict(p)}.", ""]
        repeat = runs[0]["config"].get("action_repeat", 1)
        if repeat > 1:
            lines += [f"Each action is played {repeat} times, and counts as one step.", ""]
        for said in dict.fromkeys((run.get("note", ""), run["config"]["engine"]) for run in runs):
            first = next(run for run in runs if run["config"]["engine"] == said[1])
            again = "One of these runs again, bit for bit on the same kind of machine:"
            lines += [said[0] or again, "", f"    {first['command']}", ""]
    return lines


def trust_section() -> list[str]:
    """How often `t3d check` would call a run that is known to be normal outside."""
    lines = ["## How far to trust t3d check", ""]
    lines += prose(
        """Each run of the campaign beside the band of the others of its environment: how many are
        outside at their last step, which is what the verdict is about, and at how many of all their
        evaluations. By its definition the band has 5 % outside."""
    )
    rows = []
    for env, runs in campaign_order():
        if len(runs) < 4:
            continue
        ends, points = [], []
        for run in runs:
            step = np.array(run["evaluations"]["step"])
            others = [other["evaluations"]["mean"] for other in runs if other is not run]
            longest = max((other["evaluations"]["step"] for other in runs), key=len)
            low, high = band(Known(Config(), {}, np.array(longest), others), step)
            mine = recent(step, np.array(run["evaluations"]["mean"]))
            judged = (step > 0) & np.isfinite(low)
            outside = ((mine < low) | (mine > high))[judged]
            ends.append(outside[-1])
            points += outside.tolist()
        rows.append([env, f"{sum(ends)} of {len(ends)}", f"{sum(points)} of {len(points)}"])
    return [*lines, *table(["environment", "outside at the end", "outside, all steps"], rows), ""]


def by_engine(runs: list[Run]) -> list[Curve]:
    """One curve for each engine."""
    engines = sorted({run["config"]["engine"] for run in runs})
    return [
        curve(f"T3D, {engine}", [run for run in runs if run["config"]["engine"] == engine])
        for engine in engines
    ]


def page() -> str:
    """docs/results.md."""
    lines = ["# Results", ""]
    lines += prose(
        """What T3D learns on Gymnasium's environments, with seeds and intervals. Every figure here
        is drawn by `python benchmarks/draw_results.py` from the files in `benchmarks/results/`. All
        runs are of one thread, with the preset of their environment (`t3d presets`) unless it says
        otherwise, and are evaluated on ten noiseless episodes at a time. Is a run of yours normal?
        `t3d check RUN` compares it with these curves."""
    )
    lines += campaign_section() + plan_section() + author_section() + ablation_section()
    lines += runs_section() + trust_section()
    lines += more_section(
        "engines",
        "The engines learn alike",
        """Each seed counts by the mean of all its evaluations; p is that of an exact permutation
        test of the difference between the engines' means, over all ways to deal these seeds out to
        two groups.""",
    )
    lines += more_section("presets", "More environments", "Two seeds each, with their presets.")
    return "\n".join(lines)


def draw_campaign() -> list[Path]:
    """The learning curves of the campaign, a panel for each environment."""
    order = campaign_order()
    across = min(4, len(order))
    down = -(-len(order) // across)
    figure = plots.new_figure(4.4 * across, 3.3 * down)
    for place, (env, runs) in enumerate(order, start=1):
        axes = figure.add_subplot(down, across, place)
        lines = [curve("T3D", runs)]
        longest = max(runs, key=lambda run: len(run["evaluations"]["step"]))
        whole = curve("T3D", [longest])
        further = whole.step >= lines[0].step[-1]
        theirs = author(env)
        if theirs:
            lines.append(theirs)
        plots.panel(axes, lines)
        if further.sum() > 1:
            colour = axes.get_lines()[0].get_color()
            axes.plot(whole.step[further], whole.returns[0, further], color=colour, lw=1)
        axes.set_title(env)
        axes.locator_params(axis="x", nbins=4)
        axes.legend(loc="lower right", fontsize=8)
        if (place - 1) % across == 0:
            axes.set_ylabel("evaluation return")
    return plots.save(figure, DOCS / "images" / "results")


def draw_ablation(env: str, runs: list[Run]) -> list[Path]:
    """What is learned without some parts; and what critics believe, beside what came of it."""
    groups = {variant_name(gone).strip("*"): those for gone, those in by_variant(runs).items()}
    shown = {"TD3", "no twins", "no delay", "no smoothing", "DDPG: none of the three"}
    groups = {name: those for name, those in groups.items() if name in shown}
    figure = plots.new_figure(13, 4.4)
    left, right = figure.subplots(1, 2)
    plots.panel(left, [curve(name.partition(":")[0], those) for name, those in groups.items()])
    errors = []
    for name, those in groups.items():
        line = curve(name.partition(":")[0], those, "estimated_Q")
        line.returns = line.returns - curve("", those, "true_Q").returns
        errors.append(line)
    plots.panel(right, errors)
    right.axhline(0, color="black", lw=1, ls="--")
    left.set(title=f"{env}: what is learned", ylabel="evaluation return")
    right.set(
        title="What the critics believe, less what came of it", ylabel="estimated Q - true return"
    )
    return plots.save(figure, DOCS / "images" / f"ablation-{env}")


def known() -> str:
    """The curves that `t3d check` compares with."""
    found = {}
    for env, runs in campaign_order():
        longest = max(runs, key=lambda run: len(run["evaluations"]["step"]))
        found[env] = {
            "config": {name: value for name, value in longest["config"].items() if name != "seed"},
            "versions": longest["versions"],
            "step": longest["evaluations"]["step"],
            "runs": {
                str(run["config"]["seed"]): [round(mean, 3) for mean in run["evaluations"]["mean"]]
                for run in runs
            },
        }
    rows = (f" {json.dumps(env)}: {json.dumps(facts)}" for env, facts in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> None:
    """Write all of it."""
    files = draw_campaign()
    for env, runs in kept("ablation").items():
        files += draw_ablation(env, runs)
    for group in ("engines", "presets"):
        for name, runs in kept(group).items():
            files += plots.draw({name: by_engine(runs)}, DOCS / "images" / f"{group}-{name}")
    for file, text in ((DOCS / "results.md", page()), (KNOWN, known())):
        file.write_text(text)
        files.append(file)
    for file in files:
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
