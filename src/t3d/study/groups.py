"""Groups of runs to compare: which runs belong together, and where they can be compared."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.study.evaluations import Evaluations, describe, differing_knobs, read_evaluations

Group = dict[str, list[Evaluations]]  # the runs by environment

_FEW = 5  # seeds; intervals from fewer are too narrow


def read_groups(arguments: Sequence[str]) -> tuple[dict[str, Group], list[str]]:
    """The groups by label, and notes on runs that do not quite belong together."""
    runs = {
        label: [read_evaluations(path) for path in paths]
        for label, paths in _labelled(arguments).items()
    }
    if len(runs) == 1:
        (members,) = runs.values()
        runs = _by_setting(members, arguments[0])
    groups: dict[str, Group] = {}
    notes: list[str] = []
    for label, members in runs.items():
        group = groups[label] = _by_env(members)
        for env, each in group.items():
            _check_seeds(label, env, each)
            mixed = differing_knobs(run.setting for run in each)
            if mixed:
                notes.append(f"{label} mixes settings on {env}: {', '.join(sorted(mixed))}")
    return groups, notes


def _labelled(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """The run folders of each label."""
    labelled: dict[str, list[Path]] = {}
    seen: set[Path] = set()
    # LABEL=PATH, but for a folder of that name; the same label again adds to its group.
    pairs = [("", a) if os.path.isdir(a) or "=" not in a else a.split("=", 1) for a in arguments]
    parents = [Path(path).resolve().parent for label, path in pairs if not label]
    for label, path in pairs:
        label = label or os.path.relpath(Path(path).resolve(), os.path.commonpath(parents))
        for folder in _run_folders(path):
            if folder.resolve() in seen:
                raise BadInput(f"{folder} is given twice; each run belongs to one group")
            seen.add(folder.resolve())
            labelled.setdefault(label, []).append(folder)
    return labelled


def _run_folders(path: str) -> list[Path]:
    """A run folder, or those in a folder."""
    folder = files.usable(path)
    if not folder.is_dir():
        raise BadInput(f"no folder at {path}; expected a run, a folder of runs, or LABEL=FOLDER")
    if (folder / "config.json").is_file():
        return [folder]
    runs = sorted(p.parent for p in folder.glob("*/config.json") if p.parent.name[0] != ".")
    if not runs:
        raise BadInput(f"{path} has no runs in it: no folder there has a config.json")
    return runs


def _check_seeds(label: str, env: str, runs: Sequence[Evaluations]) -> None:
    """Refuse a group in which a seed appears twice."""
    by_seed: dict[int, Evaluations] = {}
    for run in runs:
        other = by_seed.setdefault(run.seed, run)
        if other is not run:
            twice = f"{label} has {env} with seed {run.seed} twice, {other.path} and {run.path}"
            advice = "to compare the settings in one folder, give it alone: t3d compare FOLDER"
            if not differing_knobs([other.setting, run.setting]):
                advice = "they have the same setting: leave one of them out"
            raise BadInput(f"{twice}; {advice}")


def runs_on(env: str, groups: dict[str, Group]) -> list[Evaluations]:
    """The runs of all groups on an environment."""
    return [run for group in groups.values() for run in group[env]]


def _by_env(runs: Sequence[Evaluations]) -> Group:
    group: Group = {}
    for run in runs:
        group.setdefault(run.env, []).append(run)
    return group


def _by_setting(runs: Sequence[Evaluations], path: str) -> dict[str, list[Evaluations]]:
    """The settings among runs, labelled by the knobs that differ on some environment."""
    names: set[str] = set()
    for each in _by_env(runs).values():
        names |= differing_knobs(run.setting for run in each)
    if not names:
        what = "is one run" if len(runs) == 1 else "has runs of one setting only"
        raise BadInput(f"{path} {what}; name a second run or folder to compare it with")
    settings: dict[str, list[Evaluations]] = {}
    for run in runs:
        settings.setdefault(describe(run.setting, names), []).append(run)
    return settings


def common_envs(groups: dict[str, Group], notes: list[str]) -> list[str]:
    """The environments that all groups have."""
    every = {env: None for group in groups.values() for env in group}  # in order, each once
    envs = [env for env in every if all(env in group for group in groups.values())]
    if not envs:
        have = "; ".join(f"{label} has {', '.join(group)}" for label, group in groups.items())
        raise BadInput(f"no environment is in all groups: {have}")
    left_out = [env for env in every if env not in envs]
    if left_out:
        notes.append(f"left out, as not all groups have it: {', '.join(left_out)}")
    return envs


def common_steps(env: str, runs: Sequence[Evaluations], notes: list[str]) -> list[int]:
    """The steps at which all runs on an environment were evaluated, from 0 on."""
    steps = sorted(set.intersection(*(set(run.points) for run in runs)))
    if len(steps) < 2 or steps[0] != 0:
        advice = "compare runs with the same --eval-every, above 0, that have trained a while"
        raise BadInput(f"the runs on {env} share no evaluations at step 0 and later; {advice}")
    for run in runs:
        if run.seconds[steps[-1]] <= 0:
            raise BadInput(f"{run.path / 'metrics.jsonl'} has evaluations without a time")
    shortest = min(runs, key=lambda run: max(run.points))
    if steps[-1] < max(max(run.points) for run in runs):
        up_to = f"{env} is compared up to step {steps[-1]:,}, the last that all its runs share"
        notes.append(f"{up_to}; the shortest is {shortest.path}")
    return steps


def cautions(groups: dict[str, Group], envs: Sequence[str]) -> list[str]:
    """What makes the numbers less certain than they look."""
    notes = []
    counts = {len(group[env]) for group in groups.values() for env in envs}
    fewest = min(counts)
    if fewest == 1:
        one = "one seed per environment cannot tell a better setting from luck"
        notes.append(f"{one}; train several: t3d train ENV --seeds {_FEW}")
    elif fewest < _FEW:
        few = f"as few as {fewest} seeds per environment"
        notes.append(f"{few}: with fewer than {_FEW}, the intervals are too narrow")
    if len(envs) > 1 and len(counts) > 1:
        notes.append("seeds differ in number: in the IQM and the profile, each run counts the same")
    for one, other in itertools.combinations(groups, 2):
        if any(_has_a_copy(groups[one][env], groups[other][env]) for env in envs):
            notes.append(f"{one} and {other} have the same numbers of a seed: a run and its copy?")
    if len(groups) > 2:
        notes.append(f"{len(groups) - 1} comparisons: p-values are not corrected for their number")
    return notes


def _has_a_copy(one: Sequence[Evaluations], other: Sequence[Evaluations]) -> bool:
    """Whether a run of one group has the seed, the setting and the returns of one of the other."""
    numbers = [[(run.seed, run.setting, run.points) for run in runs] for runs in (one, other)]
    return any(each in numbers[1] for each in numbers[0])
