"""The tables of docs/results.md: a function for each {{ placeholder }} of results.template.md."""

import json
import re
from collections.abc import Callable, Iterable

import numpy as np

from measures import (
    MILESTONES,
    PARTS,
    ablations,
    by_engine,
    by_variant,
    campaign_order,
    furthest,
    interval,
    late,
    minutes,
    overall,
    p_value,
    q_error,
    reached,
    score_at,
    up_to,
    variant_name,
    verdict,
)
from results import (
    AGAIN,
    HERE,
    RESULTS,
    Run,
    author,
    curve,
    plan,
    setting,
    stored_runs,
    together,
)
from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.config import Config
from t3d.study import statistics
from t3d.study.evaluations import Curve
from t3d.study.known import KnownRuns, band, recent

PUBLISHED = json.loads((RESULTS / "published.json").read_text())
NAMED_PROCESSORS = {
    "GenuineIntel family 6 model 207": "Intel Emerald Rapids",
    "AuthenticAMD family 25 model 1": "AMD Zen 3",
}


def number(value: float) -> str:
    """A return, with one decimal if it is small."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table as Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def iqm_of(scores: Array) -> list[str]:
    """The IQM of runs and its 95 % interval, if there are enough."""
    if len(scores) < 3:
        return ["–", "too few"]
    value, low, high = map(number, interval(scores))
    return [f"**{value}**", f"{low} to {high}"]


# Returns.


def summary(chosen: Callable[[str, int], bool] = lambda env, end: True) -> str:
    """Each task at the last milestone with an interval, and at the last one of single runs."""
    paper, tianshou = PUBLISHED["paper"], PUBLISHED["tianshou"]
    rows = []
    for env, runs in campaign_order():
        for end in sorted({furthest(runs, 3), furthest(runs, 1)} - {0}):
            if not chosen(env, end):
                continue
            there = reached(runs, end)
            scores = score_at(up_to(curve("", there), end), end)
            # Fewer than three runs have no interval: each is listed.
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
    return table([*head, "paper, v1", "Tianshou, v3"], rows)


def short_summary() -> str:
    """The tasks with five seeds of T3D and ten of each of the others, for the README."""
    both = PUBLISHED["paper"].keys() & PUBLISHED["tianshou"].keys()
    rows = summary(lambda env, end: env in both and end == 300_000)
    return rows.replace(", or each run", "")


def milestones() -> str:
    """Every task at every milestone, with the figures of the paper and of Tianshou."""
    paper, tianshou = PUBLISHED["paper"], PUBLISHED["tianshou"]
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
    return table(head, rows)


def hopper() -> dict[str, str]:
    """The figures in the text about Hopper-v5, whose runs differ most."""
    _, early, last = MILESTONES
    runs, tianshou = stored_runs("campaign")["Hopper-v5"], PUBLISHED["tianshou"]["Hopper-v5"]
    ours = {end: score_at(curve("", reached(runs, end)), end) for end in (early, last)}
    assert len(ours[last]) == 2, "there are more runs now: change the text about two of them"
    same = author("Hopper-v5")[runs[0]["config"]["random_steps"]]

    def span(values: Iterable[float]) -> str:
        return f"{number(min(values))} to {number(max(values))}"

    low, high = map(number, sorted(ours[last]))
    return {
        "low": low,
        "high": high,
        "ours": span(ours[early]),
        "tianshou": span(tianshou[str(early)]),
        "tianshou-million": span(tianshou[str(last)]),
        "author": " and ".join(map(number, score_at(together("", same), early))),
    }


# Others' code.


def against_author() -> str:
    """T3D against the author's code on the same environments."""
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
    return table([*head, "T3D, mean", "author's, mean", "test"], rows)


def against_tianshou() -> str:
    """T3D against Tianshou's published runs."""
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
    return table(["environment", "steps", "T3D, mean", "Tianshou, mean", "test"], rows)


def published() -> str:
    """The results that other projects publish."""
    paper = PUBLISHED["paper"]
    tasks = [env for env in paper if env != "source"]
    rows = [["paper, maximum (v1, ten seeds)", *(number(paper[env]["maximum"]) for env in tasks)]]
    for peer, returns in PUBLISHED["peers"].items():
        rows.append([peer, *(number(returns[env]) if env in returns else "–" for env in tasks)])
    return table(["", *(env[:-3] for env in tasks)], rows)


def physics() -> str:
    """How much the next states differ under another MuJoCo."""
    measured = json.loads((RESULTS / "physics.json").read_text())
    envs = list(next(iter(measured["beside"].values())))
    rows = []
    for version, gaps_of in measured["beside"].items():
        for margins, label in (("as it is", ""), ("halved", ", contact margins halved in ours")):
            gaps = [gaps_of[env][margins] for env in envs]
            if margins == "as it is" or max(gaps) < max(gaps_of[env]["as it is"] for env in envs):
                cells = [f"{gap:.0e}" if gap else "0" for gap in gaps]
                rows.append([f"MuJoCo {version}{label}", *cells])
    return table(["", *(env[:-3] for env in envs)], rows)


def mujoco(which: str) -> str:
    """The MuJoCo of T3D's runs (`ours`), or those that it was compared with (`others`)."""
    measured = json.loads((RESULTS / "physics.json").read_text())
    return str(measured["mujoco"]) if which == "ours" else " ".join(measured["beside"])


# Ablations.


def ablation(env: str) -> str:
    """Returns and Q errors of TD3 and of TD3 without some parts."""
    groups = by_variant(ablations()[env])
    full = overall(curve("", groups[()]))
    rows = []
    for lacking, runs in groups.items():
        scores = overall(curve("", runs))
        true = late(curve("", runs, "true_Q")).mean()
        test = f"{p_value(scores, full):.3f}" if lacking else "–"
        cells = [str(len(runs)), number(scores.mean()), *iqm_of(scores), f"{true:,.0f}"]
        rows.append([variant_name(lacking), *cells, f"{late(q_error('', runs)).mean():+,.0f}"])
        rows[-1].append(test)
    return table(["", "seeds", "mean", "IQM", "95 %", "true", "Q error", "p"], rows)


def main_effects(env: str) -> str:
    """The effect of each part, over all combinations of the others."""
    groups = by_variant(ablations()[env])
    measures: list[Callable[[list[Run]], Array]]
    measures = [lambda runs: overall(curve("", runs)), lambda runs: late(q_error("", runs))]
    rows = []
    for part in PARTS:
        having = [lacking for lacking in groups if part not in lacking]
        pairs = [(more, tuple(sorted((*more, part), key=PARTS.index))) for more in having]
        rows.append([part])
        for measure in measures:
            with_part = [measure(groups[more]) for more, _ in pairs]
            without_part = [measure(groups[less]) for _, less in pairs]
            chance = float(statistics.improvement(with_part, without_part))
            p = statistics.p_value(generator(0, "permutation"), with_part, without_part)
            rows[-1].append(f"{chance:.0%} (p = {p:.2g})")
    return table(["", "higher return", "higher Q error"], rows)


def ablation_command(env: str) -> str:
    """The command of one run without twins."""
    return str(by_variant(ablations()[env])["twins",][0]["command"])


# The runs.


def processor_name(identifier: str) -> str:
    """A processor's common name, or its identifier if it has none here."""
    return NAMED_PROCESSORS.get(identifier, identifier)


def every_run() -> str:
    """Every run of the campaign, and the command that reproduces it."""
    parts = []
    for env, runs in campaign_order():
        seeds: dict[str, list[str]] = {}
        for run in runs:
            line = re.sub(r" --seed \d+", "", run["command"])
            seeds.setdefault(line, []).append(str(run["config"]["seed"]))
        commands = [f"    {line} --seed SEED    # {', '.join(of)}" for line, of in seeds.items()]
        rows = []
        for run in runs:
            points, score = run["evaluations"], run["score"]
            best = int(np.argmax(points["mean"]))
            rows.append([str(run["config"]["seed"]), f"{points['step'][-1]:,}"])
            rows[-1] += [f"{number(score['mean'])} ± {number(score['std'])}"]
            rows[-1] += [number(points["mean"][-1])]
            rows[-1] += [f"{number(points['mean'][best])} at {points['step'][best]:,}"]
            rows[-1] += [f"{points['seconds'][-1] / 60:.1f}", processor_name(run["processor"])]
            rows[-1] += [f"`{run['digest'][:12]}`"]
        head = ["seed", "steps", "score", "last evaluation", "best evaluation", "minutes"]
        parts += [f"**{env}**", "\n".join(commands), table([*head, "processor", "digest"], rows)]
    return "\n\n".join(parts)


def repeated() -> str:
    """Runs that were repeated on another kind of processor."""
    digest = {True: "same", False: "different", None: "–"}  # none where one run is longer
    rows = []
    for row in json.loads(AGAIN.read_text()):
        rows.append([f"{row['env']}, seed {row['seed']}", f"{row['step']:,}"])
        rows[-1] += [f"{row['same']} of {row['evaluations']}", f"{row['apart']:.1g}"]
        rows[-1] += [digest[row["digest"]]]
        rows[-1] += [processor_name(row["first"]), processor_name(row["again"])]
    head = ["run", "up to step", "equal evaluations", "largest difference", "digest"]
    return table([*head, "first on", "repeated on"], rows)


def trust() -> str:
    """How often `t3d check` would call a normal run outside, and how low a run must be."""
    rows = []
    for env, runs in campaign_order():
        line = curve("", runs)
        if len(runs) < 4:
            continue
        ends, points = [], []
        config = Config.from_dict(runs[0]["config"])
        for row in range(len(runs)):
            others = np.delete(line.returns, row, axis=0)
            rest = KnownRuns(config, {}, line.step, dict(enumerate(others.tolist())))
            low, high = band(line.step, recent(line.step, rest.at(line.step)))
            mine = recent(line.step, line.returns[row])
            outside = ((mine < low) | (mine > high))[line.step >= rest.first]
            ends.append(outside[-1])
            points += outside.tolist()
        known_means = recent(line.step, line.returns)
        low, _ = band(line.step, known_means)
        rise = known_means.mean(axis=0)[-1] - line.mean()[0]
        missed = (known_means.mean(axis=0)[-1] - low[-1]) / rise
        cells = [f"{sum(ends)} of {len(ends)}", f"{sum(points)} of {len(points)}"]
        rows.append([env, *cells, f"{missed:.0%}"])
    return table(["environment", "outside at the end", "outside, all evaluations", "below"], rows)


def missing() -> str:
    """How much of the campaign is measured, and what is missing."""
    rows = []
    for spec, (every, left) in plan().items():
        seeds: dict[str, list[str]] = {}
        for config in left:
            seeds.setdefault(config.env, []).append(str(config.seed))
        to_do = "; ".join(f"{env} seed {', '.join(dict.fromkeys(s))}" for env, s in seeds.items())
        done = f"{len(every) - len(left)} of {len(every)}"
        rows.append([f"`{spec.relative_to(HERE.parent)}`", done, to_do or "–"])
    return table(["sweep", "measured", "missing"], rows)


# Settings, engines, more environments.


def by_setting() -> dict[str, list[Curve]]:
    """By environment, a curve for each setting that was tried."""
    curves: dict[str, list[Curve]] = {}
    for env, runs in stored_runs("settings").items():
        by_knobs: dict[str, list[Run]] = {}
        for run in [*runs, *stored_runs("campaign").get(env, [])]:
            by_knobs.setdefault(" ".join(setting(run["config"])) or "defaults", []).append(run)
        curves[env] = [curve(label, those) for label, those in sorted(by_knobs.items())]
        for count, each in author(env).items():
            curves[env].append(together(f"author's code, {count:,} random steps", each))
    return curves


def settings(env: str) -> str:
    """The settings that were tried on an environment."""
    rows = []
    for line in by_setting()[env]:
        each = score_at(line, int(line.step[-1]))
        cells = [", ".join(map(str, line.seeds)), f"{line.step[-1]:,}"]
        cells += [", ".join(map(number, each)), number(overall(line).mean())]
        rows.append([f"`{line.label}`" if line.label.startswith("-") else line.label, *cells])
    return table(["setting", "seeds", "steps", "each seed", "all"], rows)


def runs_of(group: str) -> dict[str, list[Run]]:
    """The runs of a group by task; the campaign's stand in where an engine's are missing."""
    by_task = {}
    for name, runs in stored_runs(group).items():
        fused = any(run["config"]["engine"] == "fused" for run in runs)
        more = stored_runs("campaign").get(name, []) if group == "engines" and not fused else []
        by_task[name] = sorted([*runs, *more], key=lambda run: str(run["config"]["engine"]))
    return by_task


def more(group: str) -> str:
    """A section for each task of a group: picture, runs, test, commands."""
    parts = []
    for name, runs in runs_of(group).items():
        parts += [f"### {name}", f"![Learning curves on {name}](images/{group}-{name}.svg)"]
        rows = []
        for run in runs:
            points, score = run["evaluations"], run["score"]
            rows.append([run["config"]["engine"], str(run["config"]["seed"])])
            rows[-1] += [f"{points['step'][-1]:,}"]
            rows[-1] += [f"{number(score['mean'])} ± {number(score['std'])}"]
            rows[-1] += [number(max(points["mean"])), number(points["mean"][-1])]
            rows[-1] += [f"{points['seconds'][-1] / 60:.1f}"]
        head = ["engine", "seed", "steps", "score", "best evaluation", "last evaluation", "minutes"]
        parts.append(table(head, rows))
        engines = by_engine(runs)
        if len(engines) == 2:
            end = min(line.step[-1] for line in engines)
            pair = [overall(up_to(line, end)) for line in engines]
            names = "the fused engine", "the reference"
            parts.append(f"Up to step {end:,}, {verdict(pair[0], pair[1], names)}.")
        repeat = runs[0]["config"].get("action_repeat", 1)
        if repeat > 1:
            parts.append(f"Each action is played {repeat} times and counts as one step.")
        parts += _commands(runs)
    return "\n\n".join(parts)


def _commands(runs: list[Run]) -> list[str]:
    """The command of one run per engine, and whether it still gives the same bits."""
    parts, listed = [], set()
    for run in runs:
        exact = "digest" in run
        if (exact, run["config"]["engine"]) not in listed:
            listed.add((exact, run["config"]["engine"]))
            parts.append(
                "Bit for bit on the same kind of machine:"
                if exact
                else "From an earlier version: today the command gives a similar run, not its bits."
            )
            parts.append(f"    {run['command']}")
    return parts
