"""Write docs/results.md, its pictures, README's table, and the curves of `t3d check`.

    python benchmarks/draw_results.py

All from the files in benchmarks/results/, which benchmarks/results.py keeps.
"""

import itertools
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from results import (
    AGAIN,
    RESULTS,
    Run,
    author,
    curve,
    group_of,
    kept,
    plan,
    setting,
    together,
    without,
)
from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.config import Config
from t3d.show import plots
from t3d.study import statistics
from t3d.study.evaluations import Curve
from t3d.study.known import DECIMALS, KnownRuns, band, recent

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
KNOWN = ROOT / "src/t3d/study/curves.json"
MILESTONES = (100_000, 300_000, 1_000_000)
PARTS = ("twins", "delay", "smoothing")
PUBLISHED = json.loads((RESULTS / "published.json").read_text())

# The processors of kept runs, as people call them.
PROCESSORS = {
    "GenuineIntel family 6 model 207": "Intel Emerald Rapids",
    "AuthenticAMD family 25 model 1": "AMD Zen 3",
}

# What an ablation shows, in words.
REMARKS = {
    "InvertedDoublePendulum-v5": """Twins and smoothing make the critic believe less; of the delay
    no such effect shows. With neither of the two it believes too much, with both too little. (Some
    of that is no error: with smoothing it learns the value of noisy actions, and the true return is
    one without noise.) Returns are not told apart: five seeds are few, and agents of all kinds
    master this task and fall over now and then."""
}

# What settings beside each other show, in words.
TRIED = {
    "Hopper-v5": """Runs of the campaign's setting alone are from 333 to 3,021: which setting is
    better, so few runs do not tell. The presets of Hopper-v5 and Walker2d-v5 had 1,000 random
    steps, as the paper has there, and now have 25,000, to be those of the author's later code in
    all knobs. This was decided with the runs of 1,000 in view, and the first of 25,000, which is of
    the campaign too."""
}


# Words and numbers.


def prose(text: str) -> list[str]:
    """A paragraph, and the empty line after it."""
    words = " ".join(text.split())
    return [*textwrap.wrap(words, 92, break_long_words=False, break_on_hyphens=False), ""]


def number(value: float) -> str:
    """A return, with as many digits as it deserves."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table, as Markdown, and the empty line after it."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return [*lines, ""]


def score_at(line: Curve, end: int) -> Array:
    """Of each run, the mean of its evaluations in the last tenth of the steps up to `end`."""
    last = (line.step > 0.9 * end) & (line.step <= end)
    return np.asarray(line.returns[:, last].mean(axis=1))


def overall(line: Curve) -> Array:
    """Of each run, the mean of all its evaluations, less that before training."""
    return np.asarray(line.returns[:, line.step > 0].mean(axis=1))


def interval(scores: Array) -> tuple[float, ...]:
    """The IQM of runs, and the ends of its 95 % interval."""
    groups, size = [np.asarray(scores)], len(scores)
    if size <= 5:  # few enough to take every resample there is
        draws = [np.array(list(itertools.product(range(size), repeat=size)))]
    else:
        draws = statistics.draw(generator(0, "bootstrap"), groups)
    return tuple(statistics.estimate(statistics.iqm, groups, draws).tolist())


def iqm_of(scores: Array) -> list[str]:
    """The IQM of runs, and its 95 % interval, if there are enough."""
    if len(scores) < 3:
        return ["–", "too few"]
    value, low, high = map(number, interval(scores))
    return [f"**{value}**", f"{low} to {high}"]


def p_value(one: Array, two: Array) -> float:
    """How often chance sets two groups as far apart, by their means; all ways to deal are tried."""

    def apart(mine: Array, theirs: Array) -> float:
        return float(abs(mine.mean() - theirs.mean()))

    found = stats.permutation_test(
        (one, two), apart, vectorized=False, n_resamples=np.inf, alternative="greater"
    )
    return float(found.pvalue)


def verdict(one: Array, two: Array, names: tuple[str, str]) -> str:
    """What a test says of two groups."""
    deals = math.comb(len(one) + len(two), len(one))
    if (1 + (len(one) == len(two))) / deals > 0.05:
        return f"{len(one)} against {len(two)} runs are too few for a test"
    p = p_value(one, two)
    if p > 0.05:
        return f"p = {p:.3f}: not told apart by these seeds"
    return f"p = {p:.3f}: {names[int(one.mean() < two.mean())]} is higher"


def up_to(line: Curve, end: int) -> Curve:
    """The first part of a curve."""
    within = line.step <= end
    return Curve(line.label, line.seeds, line.step[within], line.returns[:, within])


def reached(runs: list[Run], end: int) -> list[Run]:
    """The runs that were trained that far."""
    return [run for run in runs if run["evaluations"]["step"][-1] >= end]


def campaign_order() -> list[tuple[str, list[Run]]]:
    """The tasks of the campaign and their runs, in the order of the sweeps."""
    runs = kept("campaign")
    named = [config.env for every, _ in plan().values() for config in every]
    return [(env, runs[env]) for env in dict.fromkeys(named) if env in runs]


# The page, section by section.


def campaign_section() -> list[str]:
    """The main table, and what others publish."""
    paper, tianshou, peers = (PUBLISHED[name] for name in ("paper", "tianshou", "peers"))
    lines = ["## What it reaches", "", "![Learning curves of the campaign](images/results.svg)", ""]
    lines += prose(
        """Thick lines are means over seeds, of T3D as many as a title says, of the author's code
        those of [the table below](#beside-other-code); shades, from three seeds on, their 95 %
        bootstrap intervals; thin lines are seeds; marks are the IQM of others' ten seeds with its
        interval. In the table, a run counts by the mean of its evaluations in the last tenth of its
        first 100,000, 300,000 or 1,000,000 steps: on the larger tasks, with an evaluation every
        10,000 steps, that is of one, three or ten. The interval is that of the IQM. *All* is the
        mean of all evaluations up to that step, but that before training, and *maximum* the largest
        value of the mean curve, the measure of the paper's table. In italics, by the same measures
        but of evaluations every 5,000 steps: the paper's own curves
        ([learning_curves](https://github.com/sfujim/TD3/tree/master/learning_curves): ten seeds,
        the settings of 2018, Gym's v1 of the environment), and those of
        [Tianshou](https://github.com/thu-ml/tianshou/tree/39acf20/examples/mujoco/benchmark) (ten
        seeds, the author's later settings, which are T3D's defaults but for 25,000 random steps,
        Gym's v3)."""
    )
    rows = []
    for env, runs in campaign_order():
        for end in MILESTONES:
            there = reached(runs, end)
            if not there:
                continue
            line = up_to(curve("T3D", there), end)
            scores = score_at(line, end)
            rows.append([env, f"{end:,}", str(len(there)), number(scores.mean()), *iqm_of(scores)])
            rows[-1] += [number(overall(line).mean())]
            rows[-1] += [number(line.mean().max()) if len(there) > 1 else ""]
            rows[-1] += [f"{minutes(there, end):.0f}"]
            if env in paper:
                mean, iqm, low, high, all_of = map(number, paper[env][str(end)])
                theirs = ["10", mean, iqm, f"{low} to {high}", all_of]
                theirs += [number(paper[env]["maximum"])] if end == MILESTONES[-1] else []
                rows.append(["*paper, v1*", "", *(f"*{cell}*" for cell in theirs)])
                rows[-1] += [""] * (9 - len(rows[-1]))
            if env in tianshou:
                ten = np.array(tianshou[env][str(end)])
                cells = [str(len(ten)), number(ten.mean()), *iqm_of(ten)]
                cells = [f"*{cell.strip('*')}*" for cell in cells]
                rows.append(["*Tianshou, v3*", "", *cells, "", "", ""])
    head = ["environment", "steps", "seeds", "mean", "IQM", "95 %", "all", "maximum", "minutes"]
    lines += table(head, rows)
    lines += prose(
        """How to read it. Intervals are nominal: of five runs, if runs were spread normally, one of
        95 % covers about 91 % for the IQM and 84 % for the mean, the shades in the picture
        ([compare.md](compare.md)). The ten episodes of an evaluation begin in
        the same ten states each time, drawn by the run's seed. On Pendulum-v1 returns depend on
        them more than on the agent: its interval is one of start states."""
    )
    lines += prose(
        """The four small tasks have small networks (64-64) and quick knobs, which were chosen on
        one or a few of these very seeds: where they are ahead of the paper at 100,000 steps, that
        may be why. On Reacher-v5 they are a little behind it (the intervals overlap). Agents of the
        two inverted pendulums fall over for an evaluation now and then, as the paper's do; *all*
        shows it, the last tenth may not. The best agents that these runs kept did not fall in ten
        fresh episodes (below)."""
    )
    lines += prose(
        """The larger tasks have the settings of the author's later code, but on HalfCheetah-v5 and
        Ant-v5 with 10,000 random steps, as in the paper, where it has 25,000. With these settings
        (a learning rate of 3e-4 for 1e-3 is one) the agents of T3D and of Tianshou are both behind
        the paper's at 100,000 and 300,000 steps, though the intervals of T3D and the paper overlap
        on HalfCheetah-v5 and Hopper-v5 at 300,000; on Ant-v5 they are ahead. At 1,000,000
        Tianshou's are ahead on HalfCheetah and Ant, level on Hopper and behind on Walker2d, and T3D
        has too few runs to say. Whether the settings do that or the versions of the environments is
        not measured: two runs with the paper's settings on Hopper-v5
        ([below](#how-presets-came-about)) are too few to tell. That seed 0 goes on to 1,000,000
        was fixed before the campaign had a run; on Walker2d-v5 it happens to be the best of five at
        300,000. Seed 1 of Hopper-v5, the second of five there, was sent on later, as the next in
        order."""
    )
    lines += prose(hopper())
    lines += prose(
        """The tasks of v1, v3 and v5 are not the same to the letter: in v5 both feet of Walker2d
        have the same friction, which the right one had less of; an agent that falls has no reward
        for being upright in that step; Reacher's reward is that after the step, not before it; Ant
        observes contact forces and pays for them, as in v1, but in v3 with MuJoCo 2.0 they were
        always 0 ([gym#1541](https://github.com/openai/gym/issues/1541)). Minutes are the wall clock
        of one run of one thread, two at a time, on machines that did other work too: no measure of
        speed, for which see [speed.md](speed.md)."""
    )
    lines += ["### What others publish", ""]
    lines += prose(
        """Mean returns within 1,000,000 steps (Spinning Up's are read off graphs that go on to
        3,000,000), as these projects give them; `benchmarks/results/published.json` has the
        sources. Versions of environments differ, and so do networks, measures and numbers of seeds;
        none of these is for Gymnasium's v5. (For Reacher, the paper's table has -3.60 where its
        curves give -3.70.)"""
    )
    tasks = [env for env in paper if env != "source"]
    rows = [["paper, maximum (v1, ten seeds)", *(number(paper[env]["maximum"]) for env in tasks)]]
    for peer, said in peers.items():
        rows.append([peer, *(number(said[env]) if env in said else "–" for env in tasks)])
    lines += table(["", *(env[:-3] for env in tasks)], rows)
    return lines + physics()


def hopper() -> str:
    """What is known of the task whose runs differ most."""
    _, soon, last = MILESTONES
    runs, tianshou = kept("campaign")["Hopper-v5"], PUBLISHED["tianshou"]["Hopper-v5"]
    ours = {end: score_at(curve("", reached(runs, end)), end) for end in (soon, last)}
    assert len(ours[last]) == 2, "there are more runs now: what is said of two is to change"
    alike = author("Hopper-v5")[runs[0]["config"]["random_steps"]]
    authors = " and ".join(map(number, score_at(together("", alike), soon)))

    def span(values: Iterable[float]) -> str:
        return f"{number(min(values))} to {number(max(values))}"

    low, high = map(number, sorted(ours[last]))
    return f"""Runs of Hopper-v5 differ most. Of two to 1,000,000 steps one has {high}, within
        Tianshou's ten ({span(tianshou[str(last)])}), and one {low}, below them: four of its last
        ten evaluations are about 3,300, all episodes of full length; in five, most episodes end in
        a fall before step 600 of 1,000. At 300,000 steps T3D's five have {span(ours[soon])},
        Tianshou's {span(tianshou[str(soon)])}, and the author's code on the same v5 only
        {authors}, in two runs that hardly rise after step 100,000: what holds runs back here is
        hardly T3D's own. It may be chance, or the task, whose
        [contacts are others](#one-name-two-physics) than in the v1 and v3 of the others: training
        with the old ones would be the next thing to measure."""


def physics() -> list[str]:
    """Where an environment of one name is not the same task under another MuJoCo."""
    measured = json.loads((RESULTS / "physics.json").read_text())
    lines = ["### One name, two physics", ""]
    lines += prose(
        f"""Gymnasium's v5 does not fix the physics: MuJoCo's version does. One step from each of
        1,000 states of random play, by MuJoCo {measured["mujoco"]}, with which T3D's runs were
        made, and by another: the largest difference of any position or velocity
        (`python benchmarks/physics.py {" ".join(measured["beside"])}`)."""
    )
    envs = list(next(iter(measured["beside"].values())))
    rows = []
    for version, found in measured["beside"].items():
        for margins, label in (("as it is", ""), ("halved", ", contact margins halved in ours")):
            gaps = [found[env][margins] for env in envs]
            if margins == "as it is" or max(gaps) < max(found[env]["as it is"] for env in envs):
                cells = [f"{gap:.0e}" if gap else "0" for gap in gaps]
                rows.append([f"MuJoCo {version}{label}", *cells])
    lines += table(["", *(env[:-3] for env in envs)], rows)
    return lines + prose(
        """Hopper-v5 and Ant-v5 changed with MuJoCo 3.5.0: contacts begin at twice the distance (2
        mm on Hopper, 2 cm on Ant). With margins halved, Hopper is the old one to the last digits;
        Ant has changed once more since. The others are the same to 1e-6 in these states, which are
        those of random play. So figures for Hopper-v5 and Ant-v5 from before and after are of two
        tasks; whether one is learned otherwise than the other is not measured."""
    )


def minutes(runs: list[Run], end: int) -> float:
    """The median wall clock of runs up to a step."""
    seconds = [curve("", [run], "seconds") for run in runs]
    return float(np.median([up_to(line, end).returns[0, -1] for line in seconds]) / 60)


def plan_section() -> list[str]:
    """What of the campaign is there, and what is not yet."""
    rows = []
    for spec, (every, left) in plan().items():
        seeds: dict[str, list[str]] = {}
        for config in left:
            seeds.setdefault(config.env, []).append(str(config.seed))
        said = "; ".join(f"{env} seed {', '.join(dict.fromkeys(s))}" for env, s in seeds.items())
        done = f"{len(every) - len(left)} of {len(every)}"
        rows.append([f"`{spec.relative_to(ROOT)}`", done, said or "–"])
    lines = ["## What is there, and what is not yet", ""]
    lines += table(["sweep", "measured", "not yet"], rows)
    return lines + prose(
        """`python benchmarks/results.py campaign` trains what is missing, as many runs at a time as
        there are cores, goes on where it was stopped, and keeps each curve as a small file in
        `benchmarks/results/`; `python benchmarks/draw_results.py` writes this page from them."""
    )


def other_code_section() -> list[str]:
    """T3D beside other code that has its knobs."""
    lines = ["## Beside other code", ""]
    lines += prose(
        """**The author's** `TD3.py` and `utils.py`, unchanged, in a loop of ours
        (`benchmarks/author.py`) on the same Gymnasium v5 environments. Its networks and knobs are
        T3D's defaults, and it begins with as many random steps as T3D's runs. A run counts by the
        mean of all its evaluations up to a step; the test is an exact permutation test of the
        difference of the means, over all ways to deal these runs out to two groups (several tests,
        none corrected for the others). Of five runs against two the smallest p that there can be is
        0.048, so that only the largest differences show: that none does says little of whether they
        are equal. The first two runs on HalfCheetah-v5 were made by a loop like it, on another
        machine, and their versions were not kept."""
    )
    rows = []
    for env, runs in campaign_order():
        each = author(env).get(runs[0]["config"]["random_steps"], [])
        for end in sorted({MILESTONES[0], *(int(line.step[-1]) for line in each)} if each else ()):
            groups = [curve("", reached(runs, end))]
            groups += [together("", [line for line in each if line.step[-1] >= end])]
            shared = np.intersect1d(groups[0].step, groups[1].step)
            pair = []
            for line in groups:
                at = np.isin(line.step, shared) & (line.step <= end)
                pair.append(overall(Curve("", line.seeds, line.step[at], line.returns[:, at])))
            rows.append([env, f"{end:,}", *(", ".join(map(number, group)) for group in pair)])
            rows[-1] += [number(group.mean()) for group in pair]
            rows[-1].append(verdict(pair[0], pair[1], ("T3D", "the author's code")))
    head = ["environment", "up to step", "T3D, each seed", "author's, each seed"]
    lines += table([*head, "T3D, mean", "author's, mean", "test"], rows)
    lines += prose(
        """**Tianshou's** ten published runs, with the author's later settings on Gym's v3
        environments, MuJoCo 2.0: a run counts by the last tenth of its steps, as in the first
        table. Versions of environments differ, and so do the random steps on HalfCheetah-v5 (10,000
        here, 25,000 there), so this is no test of the code alone."""
    )
    tianshou = PUBLISHED["tianshou"]
    rows = []
    for env, runs in campaign_order():
        for end in MILESTONES:
            there = reached(runs, end)
            if env in tianshou and len(there) >= 3:
                pair = [score_at(curve("", there), end), np.array(tianshou[env][str(end)])]
                counts = [f"{number(group.mean())} ({len(group)} runs)" for group in pair]
                test = verdict(pair[0], pair[1], ("T3D", "Tianshou"))
                rows.append([env, f"{end:,}", *counts, test])
    return lines + table(["environment", "steps", "T3D, mean", "Tianshou, mean", "test"], rows)


def ablations() -> dict[str, list[Run]]:
    """The ablations of which all runs are there, by environment, as far as all of them go."""
    found = {}
    for spec, (every, left) in plan().items():
        if group_of(spec) == "ablation" and not left:
            env, end = every[0].env, every[0].steps
            runs = kept("ablation")[env]
            if all(without(run["config"]) for run in runs):  # the campaign has the whole
                runs += reached(kept("campaign")[env], end)
            found[env] = [cut(run, end) for run in runs]
    return found


def cut(run: Run, end: int) -> Run:
    """The first part of a run."""
    count = sum(step <= end for step in run["evaluations"]["step"])
    return run | {"evaluations": {name: row[:count] for name, row in run["evaluations"].items()}}


def ablation_section() -> list[str]:
    """What each part of TD3 is good for."""
    lines = ["## What each part is for", ""]
    lines += prose(
        """An ablation like the paper's, as knobs of the same code: without the second critic
        (`--no-twins`), without the delay (`--policy-freq 1`), without target smoothing
        (`--policy-noise 0`), and combinations. Without all three it is DDPG with TD3's
        networks, knobs and exploration, which the paper calls AHE. A run counts by the mean of all
        its evaluations, of which mean, IQM and interval are, and p, of an exact permutation test
        against the whole (several tests, none corrected for the others). *True* is the discounted
        return of evaluation episodes, and *Q error* what the first critic believes of their first
        states, less that (means over the evaluations of the second half): above 0 is
        overestimation."""
    )
    for env, runs in ablations().items():
        groups = by_variant(runs)
        end = runs[0]["evaluations"]["step"][-1]
        whole = overall(curve("", groups[()]))
        network = "-".join(map(str, runs[0]["config"]["hidden"]))
        lines += [f"### {env}, {end:,} steps", "", f"![Ablation](images/ablation-{env}.svg)", ""]
        lines += prose(
            f"""With the preset of {env} (networks of {network}). The paper's ablation has ten seeds
            to 1,000,000 steps, on HalfCheetah, Hopper, Walker2d and Ant."""
        )
        rows = []
        for gone, those in groups.items():
            scores = overall(curve("", those))
            true = late(curve("", those, "true_Q")).mean()
            test = f"{p_value(scores, whole):.3f}" if gone else "–"
            cells = [str(len(those)), number(scores.mean()), *iqm_of(scores), f"{true:,.0f}"]
            rows.append([variant_name(gone), *cells, f"{late(q_error('', those)).mean():+,.0f}"])
            rows[-1].append(test)
        lines += table(["", "seeds", "mean", "IQM", "95 %", "true", "Q error", "p"], rows)
        if len(groups) == 2 ** len(PARTS):
            lines += main_effects(groups)
        lines += prose(REMARKS.get(env, ""))
        lines += ["One of these runs again, bit for bit on the same kind of machine:", ""]
        lines += [f"    {groups['twins',][0]['command']}", ""]
    return lines if ablations() else []


def by_variant(runs: list[Run]) -> dict[tuple[str, ...], list[Run]]:
    """The runs of an ablation by what they do without, the whole first."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(without(run["config"]), []).append(run)
    return dict(sorted(groups.items(), key=lambda group: (len(group[0]), group[0])))


def variant_name(gone: Iterable[str]) -> str:
    """What a run without some parts is called."""
    names = [f"no {part}" for part in gone]
    return "none of the three" if len(names) == len(PARTS) else ", ".join(names) or "TD3"


def q_error(label: str, runs: list[Run]) -> Curve:
    """What critics believe, less what came of it."""
    line = curve(label, runs, "estimated_Q")
    line.returns = line.returns - curve("", runs, "true_Q").returns
    return line


def late(line: Curve) -> Array:
    """Of each run, the mean over the second half of its steps."""
    return np.asarray(line.returns[:, line.step > line.step[-1] / 2].mean(axis=1))


def main_effects(groups: dict[tuple[str, ...], list[Run]]) -> list[str]:
    """What each part does, whichever of the others are there."""
    measures: list[Callable[[list[Run]], Array]]
    measures = [lambda runs: overall(curve("", runs)), lambda runs: late(q_error("", runs))]
    rows = []
    for part in PARTS:
        having = [gone for gone in groups if part not in gone]
        pairs = [(gone, tuple(sorted((*gone, part), key=PARTS.index))) for gone in having]
        rows.append([part])
        for measure in measures:
            there = [measure(groups[gone]) for gone, _ in pairs]
            left_out = [measure(groups[lacking]) for _, lacking in pairs]
            chance = float(statistics.improvement(there, left_out))
            p = statistics.p_value(generator(0, "permutation"), there, left_out)
            rows[-1].append(f"{chance:.0%} (p = {p:.2g})")
    said = """Each part by itself: in how many pairs the run with it has the higher return, and the
        higher Q error, than the run without it, whichever of the other parts both have (p of 2,000
        random deals within these four settings)."""
    return [*prose(said), *table(["", "higher return", "higher Q error"], rows)]


def named(processor: str) -> str:
    """A processor as people call it, where that is known."""
    return PROCESSORS.get(processor, processor)


def runs_section() -> list[str]:
    """Every run of the campaign, and the command that gives it again."""
    lines = ["## Every run, and how to have it again", ""]
    lines += prose(
        """On the same kind of processor, with the versions of `constraints.txt`, each command gives
        the run bit for bit; `t3d inspect RUN` then says the same digest, of which the beginning is
        here. (On another kind, `t3d check RUN` says whether the evaluations are the same.) *Score*
        is that of the best agent of a run on ten test episodes (seed 0) that it was not chosen by,
        ± the standard deviation over these. The files in
        `benchmarks/results/campaign` have every evaluation, all knobs and versions."""
    )
    for env, runs in campaign_order():
        seeds: dict[str, list[str]] = {}
        for run in runs:
            line = re.sub(r" --seed \d+", "", run["command"])
            seeds.setdefault(line, []).append(str(run["config"]["seed"]))
        lines += [f"**{env}**", ""]
        for line, those in seeds.items():
            lines += [f"    {line} --seed SEED    # {', '.join(those)}"]
        rows = []
        for run in runs:
            points, score = run["evaluations"], run["score"]
            best = int(np.argmax(points["mean"]))
            rows.append([str(run["config"]["seed"]), f"{points['step'][-1]:,}"])
            rows[-1] += [f"{number(score['mean'])} ± {number(score['std'])}"]
            rows[-1] += [number(points["mean"][-1])]
            rows[-1] += [f"{number(points['mean'][best])} at {points['step'][best]:,}"]
            rows[-1] += [f"{points['seconds'][-1] / 60:.1f}", named(run["processor"])]
            rows[-1] += [f"`{run['digest'][:12]}`"]
        head = ["seed", "steps", "score", "last evaluation", "best evaluation", "minutes"]
        head += ["processor", "digest"]
        lines += ["", *table(head, rows)]
    return lines + again_section()


def again_section() -> list[str]:
    """Runs that were made once more on another kind of processor."""
    lines = ["### The same on another processor", ""]
    lines += prose(
        """Some of these runs were made again, later, on another kind of processor and with the same
        versions (`python benchmarks/results.py again RUN` compares; these are all
        that were tried). An evaluation is ten episodes of the agent of that step: where returns are
        sums of many numbers, an agent that differs in one bit shows soon. (Those of
        InvertedPendulum-v5 count steps, and all after step 34,000 are 1,000.)"""
    )
    said = {True: "same", False: "other", None: "–"}  # none, of a run that went further
    rows = []
    for row in json.loads(AGAIN.read_text()):
        rows.append([f"{row['env']}, seed {row['seed']}", f"{row['step']:,}"])
        rows[-1] += [f"{row['same']} of {row['evaluations']}", f"{row['apart']:.1g}"]
        rows[-1] += [said[row["digest"]]]
        rows[-1] += [named(row["first"]), named(row["again"])]
    head = ["run", "up to step", "same to the last bit", "apart", "digest", "first on", "again on"]
    lines += table(head, rows)
    return lines + prose(
        """*Apart* is the largest difference of two evaluations. The one on Reacher-v5 is probably
        the task's own: its reward is a norm, for which NumPy asks OpenBLAS, whose last bit depends
        on the processor; the memory keeps rewards in fewer digits. The digest of a run (– where one
        went further) takes in `estimated_Q`, what the critic expects where an evaluation begins,
        which PyTorch computes, and so need not be the same on two kinds of processor. What the
        fused engine does depends neither on these libraries' kernels nor on the width of the
        processor's vectors: a test (`tests/parity/test_processors.py`) makes a run with their
        plainest ones, and one that is compiled for narrower vectors, and compares all of its state.
        A run compiled for AMD's Zen 4, whose vectors are wider, was the same too
        (`NUMBA_CPU_NAME=znver4 NUMBA_CPU_FEATURES= t3d train ...`, on an Intel processor that can
        run it). Without fused multiply-add a product is rounded once more: compiled for such a
        processor (`x86-64-v2`), the run was another. The `tanh` of an action is the C library's
        (here glibc 2.36): of another version, or on ARM, nothing is measured. The reference
        engine's products are PyTorch's."""
    )


def trust_section() -> list[str]:
    """How often `t3d check` would call a normal run outside, and how poor one must be."""
    lines = ["## How far to trust t3d check", ""]
    lines += prose(
        """Each run of the campaign beside the band of the others of its environment: how many are
        outside at the last step that is judged, which is what the verdict is about, and at how
        many of all that are judged. If runs were spread normally, it would be 5 %. *Below* is how
        much of the known runs' mean rise a run must have missed at the end to be called below; more
        than 100 % says that none can be, as the known runs differ too much."""
    )
    rows = []
    for env, runs in campaign_order():
        line = curve("", runs)
        if len(runs) < 4:
            continue
        ends, points = [], []
        config = Config.from_dict(runs[0]["config"])
        for row in range(len(runs)):
            others = np.delete(line.returns, row, axis=0)
            known = KnownRuns(config, {}, line.step, dict(enumerate(others.tolist())))
            low, high = band(line.step, recent(line.step, known.at(line.step)))
            mine = recent(line.step, line.returns[row])
            outside = ((mine < low) | (mine > high))[line.step >= known.first]
            ends.append(outside[-1])
            points += outside.tolist()
        known_means = recent(line.step, line.returns)
        low, _ = band(line.step, known_means)
        rise = known_means.mean(axis=0)[-1] - line.mean()[0]
        missed = (known_means.mean(axis=0)[-1] - low[-1]) / rise
        cells = [f"{sum(ends)} of {len(ends)}", f"{sum(points)} of {len(points)}"]
        rows.append([env, *cells, f"{missed:.0%}"])
    head = ["environment", "outside at the end", "outside, all that are judged", "below"]
    return lines + table(head, rows)


def more_section(group: str, title: str, words: str) -> list[str]:
    """Curves from beside the campaign, each environment with its runs and commands."""
    lines = [f"## {title}", "", *prose(words)]
    for name, runs in beside(group).items():
        lines += [f"### {name}", "", f"![Learning curves on {name}](images/{group}-{name}.svg)", ""]
        rows = []
        for run in runs:
            points, score = run["evaluations"], run["score"]
            rows.append([run["config"]["engine"], str(run["config"]["seed"])])
            rows[-1] += [f"{points['step'][-1]:,}"]
            rows[-1] += [f"{number(score['mean'])} ± {number(score['std'])}"]
            rows[-1] += [number(max(points["mean"])), number(points["mean"][-1])]
            rows[-1] += [f"{points['seconds'][-1] / 60:.1f}"]
        head = ["engine", "seed", "steps", "score", "best evaluation", "last evaluation", "minutes"]
        lines += table(head, rows)
        engines = by_engine(runs)
        if len(engines) == 2:
            end = min(line.step[-1] for line in engines)
            pair = [overall(up_to(line, end)) for line in engines]
            names = "the fused engine", "the reference"
            lines += [f"Up to step {end:,}, {verdict(pair[0], pair[1], names)}.", ""]
        repeat = runs[0]["config"].get("action_repeat", 1)
        if repeat > 1:
            lines += [f"Each action is played {repeat} times, and counts as one step.", ""]
        said = set()
        for run in runs:
            text = "Of an earlier version: today the command gives a run like it, not its bits."
            text = "Bit for bit on the same kind of machine:" if "digest" in run else text
            if (text, run["config"]["engine"]) not in said:
                said.add((text, run["config"]["engine"]))
                lines += [*prose(text), f"    {run['command']}", ""]
    return lines


def beside(group: str) -> dict[str, list[Run]]:
    """The runs of a group, by engine; the campaign's stand in where one has none of the fused."""
    found = {}
    for name, runs in kept(group).items():
        fused = any(run["config"]["engine"] == "fused" for run in runs)
        more = kept("campaign").get(name, []) if group == "engines" and not fused else []
        found[name] = sorted([*runs, *more], key=lambda run: str(run["config"]["engine"]))
    return found


def by_engine(runs: list[Run]) -> list[Curve]:
    """One curve for each engine."""
    engines = sorted({run["config"]["engine"] for run in runs})
    return [
        curve(f"T3D, {engine}", [run for run in runs if run["config"]["engine"] == engine])
        for engine in engines
    ]


def settings_section() -> list[str]:
    """What was tried before a preset was what it is."""
    lines = ["## How presets came about", ""]
    lines += prose(
        """Settings beside each other, as flags over T3D's defaults. A run counts by the mean of its
        evaluations in the last tenth of its steps; *all* is the mean of all of them. The files in
        `benchmarks/results/settings` have the command of each run."""
    )
    for env, tried in by_setting().items():
        lines += [f"### Settings for {env}", "", f"![Settings](images/settings-{env}.svg)", ""]
        rows = []
        for line in tried:
            each = score_at(line, int(line.step[-1]))
            cells = [", ".join(map(str, line.seeds)), f"{line.step[-1]:,}"]
            cells += [", ".join(map(number, each)), number(overall(line).mean())]
            rows.append([f"`{line.label}`" if line.label.startswith("-") else line.label, *cells])
        lines += table(["setting", "seeds", "steps", "each seed", "all"], rows)
        lines += prose(TRIED.get(env, ""))
    return lines


def by_setting() -> dict[str, list[Curve]]:
    """By environment, a curve for each setting that was tried."""
    found: dict[str, list[Curve]] = {}
    for env, runs in kept("settings").items():
        alike: dict[str, list[Run]] = {}
        for run in [*runs, *kept("campaign").get(env, [])]:
            alike.setdefault(" ".join(setting(run["config"])) or "defaults", []).append(run)
        found[env] = [curve(label, those) for label, those in sorted(alike.items())]
        for count, each in author(env).items():
            found[env].append(together(f"author's code, {count:,} random steps", each))
    return found


def page() -> str:
    """docs/results.md."""
    lines = ["# Results", ""]
    lines += prose(
        """What T3D learns on Gymnasium's environments, with seeds and intervals, beside the paper
        ([Fujimoto et al. 2018](https://arxiv.org/abs/1802.09477)) and
        [its author's code](https://github.com/sfujim/TD3). It is a campaign of sweeps that goes on:
        what is [not there yet](#what-is-there-and-what-is-not-yet) is listed below. Every figure
        here is drawn by `python benchmarks/draw_results.py` from the files in
        `benchmarks/results/`. All runs are of one thread, with the preset of their environment
        (`t3d presets`) unless it says otherwise. An evaluation is the mean return of noiseless
        episodes: ten, for CarRacing five. Is a run of yours normal? `t3d check RUN` compares it
        with the curves of the campaign, of environments with three runs or more."""
    )
    lines += campaign_section() + other_code_section() + ablation_section() + trust_section()
    lines += plan_section() + runs_section() + settings_section()
    lines += more_section(
        "engines",
        "The two engines",
        """The fused engine beside the reference. Each run counts by the mean of all its
        evaluations; p is that of an exact permutation test of the difference between the engines'
        means, over all ways to deal the runs out to two groups.""",
    )
    lines += more_section("presets", "More environments", "Two seeds each, with their presets.")
    return "\n".join(lines)


def readme() -> str:
    """README.md, with the short table: each task as far as it got with an interval, and alone."""
    paper, tianshou = PUBLISHED["paper"], PUBLISHED["tianshou"]
    rows = []
    for env, runs in campaign_order():
        for end in sorted({furthest(runs, 3), furthest(runs, 1)} - {0}):
            there = reached(runs, end)
            scores = score_at(up_to(curve("", there), end), end)
            # Of fewer than three there is no interval, and each is told.
            ours = " and ".join(map(number, scores))
            if len(scores) >= 3:
                ours = "{} ({})".format(*iqm_of(scores)).replace("**", "")
            theirs = ["–", "–"]
            if env in paper:
                _, iqm, low, high, _ = map(number, paper[env][str(end)])
                theirs[0] = f"{iqm} ({low} to {high})"
            if env in tianshou:
                value, within = iqm_of(np.array(tianshou[env][str(end)]))
                theirs[1] = f"{value.strip('*')} ({within})"
            rows.append([env, f"{end:,}", str(len(there)), ours, *theirs])
    head = ["environment", "steps", "seeds", "T3D: IQM (95 %), or each run"]
    head += ["paper, v1", "Tianshou, v3"]
    before, begin, rest = README.read_text().partition("<!-- what it reaches -->\n")
    _, finish, after = rest.partition("<!-- end -->")
    return "\n".join([before + begin, *table(head, rows), finish + after])


def furthest(runs: list[Run], least: int) -> int:
    """The last milestone that at least so many runs reached, or 0."""
    return max([0, *(end for end in MILESTONES if len(reached(runs, end)) >= least)])


# The pictures, and the curves for `t3d check`.


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
    """What others reached: the IQM of ten seeds and its interval, at the milestones of a panel."""
    ends = [end for end in MILESTONES if end <= last]
    marks: dict[str, list[tuple[float, ...]]] = {}
    if env in PUBLISHED["paper"]:
        marks["paper, v1"] = [tuple(PUBLISHED["paper"][env][str(end)][1:4]) for end in ends]
    if env in PUBLISHED["tianshou"]:
        marks["Tianshou, v3"] = [interval(PUBLISHED["tianshou"][env][str(end)]) for end in ends]
    for place, (label, values) in enumerate(marks.items()):
        middle, low, high = np.array(values).T
        at = np.array(ends) - 0.012 * last * place  # beside each other
        look: dict[str, Any] = {"color": ("black", "tab:red")[place], "marker": "Ds"[place]}
        look |= {"linestyle": "none", "markersize": 4, "linewidth": 1, "capsize": 2, "zorder": 4}
        axes.errorbar(at, middle, (middle - low, high - middle), label=label, **look)


def draw_ablation(env: str, runs: list[Run]) -> list[Path]:
    """What is learned without some parts; and what critics believe, less what came of it."""
    groups = [
        (variant_name(gone), those)
        for gone, those in by_variant(runs).items()
        if len(gone) in (0, 1, len(PARTS))
    ]
    figure = plots.new_figure(13, 4.4)
    left, right = figure.subplots(1, 2)
    plots.panel(left, [curve(name, those) for name, those in groups])
    plots.panel(right, [q_error(name, those) for name, those in groups])
    right.axhline(0, color="black", lw=1, ls="--")
    left.set(title=f"{env}: what is learned", ylabel="evaluation return")
    right.set_title("What the critics believe, less what came of it")
    right.set_ylabel("estimated Q, less the true return")
    return plots.save(figure, DOCS / "images" / f"ablation-{env}")


def draw_settings(env: str, lines: list[Curve]) -> list[Path]:
    """Settings beside each other; their names are long, and stand below."""
    figure = plots.new_figure(8, 5.5)
    axes = figure.add_subplot()
    plots.panel(axes, lines)
    axes.set(title=f"{env}: settings", ylabel="evaluation return")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14), fontsize=9, frameon=False)
    return plots.save(figure, DOCS / "images" / f"settings-{env}")


def known() -> str:
    """The curves that `t3d check` compares with, of environments with three runs or more."""
    found = {}
    for env, runs in campaign_order():
        if len(runs) < 3:
            continue
        longest = max(runs, key=lambda run: len(run["evaluations"]["step"]))
        for run in runs:  # a curve is kept without its steps: they are the first of these
            points = run["evaluations"]["step"]
            assert points == longest["evaluations"]["step"][: len(points)], (env, run["digest"])
        found[env] = {
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
    rows = (f" {json.dumps(env)}: {json.dumps(facts)}" for env, facts in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> None:
    """Write all of it: first the words, which fail when something is missing."""
    texts = {DOCS / "results.md": page(), README: readme(), KNOWN: known()}
    files = draw_campaign()
    for env, runs in ablations().items():
        files += draw_ablation(env, runs)
    for env, lines in by_setting().items():
        files += draw_settings(env, lines)
    for group in ("engines", "presets"):
        for name, runs in beside(group).items():
            files += plots.draw({name: by_engine(runs)}, DOCS / "images" / f"{group}-{name}")
    for file, text in texts.items():
        file.write_text(text)
    for file in [*files, *texts]:
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
