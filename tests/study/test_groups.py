import shutil
from pathlib import Path

import pytest

import t3d
from helpers.groups import group, run_folder
from t3d.study.compare import compare


def test_labels_name_groups_and_add_to_them(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / f"run{n}", [0.0, float(n)], seed=n) for n in range(3)]
    result = compare([f"old={runs[0]}", f"old={runs[1]}", f"new={runs[2]}"])
    assert {label: numbers["scores"] for label, numbers in result["groups"].items()} == {
        "old": {"Pendulum-v1": {"0": 0.0, "1": 1.0}},
        "new": {"Pendulum-v1": {"2": 2.0}},
    }
    # A folder may have such a name; folders of one name go by what is above them.
    one, two = group(tmp_path / "a" / "tau=1", [1.0]), group(tmp_path / "b" / "tau=1", [2.0])
    assert list(compare([one, two])["groups"]) == ["a/tau=1", "b/tau=1"]


def test_one_folder_alone_is_compared_by_its_settings(tmp_path: Path) -> None:
    for env, discount in (("Pendulum-v1", 0.9), ("Hopper-v5", 0.99)):
        for seed in (0, 1):
            for tau in (0.01, 0.5):
                path = tmp_path / f"{env}-{seed}-{tau}"
                # As an environment's preset sets other knobs, only what differs on one counts.
                run_folder(path, [0.0, 1.0], env, seed, tau=tau, discount=discount)
    result = compare([str(tmp_path)])
    assert list(result["groups"]) == ["tau 0.01", "tau 0.5"]
    assert result["baseline"] == "tau 0.01"
    for numbers in result["groups"].values():
        assert {env: list(seeds) for env, seeds in numbers["scores"].items()} == {
            "Hopper-v5": ["0", "1"],
            "Pendulum-v1": ["0", "1"],
        }
        assert numbers["IQM"]["low"] <= numbers["IQM"]["value"] <= numbers["IQM"]["high"]


def test_bad_input_is_named(tmp_path: Path) -> None:
    one, two = group(tmp_path / "one", [1.0, 2.0]), group(tmp_path / "two", [3.0])
    hopper = group(tmp_path / "hopper", [3.0], "Hopper-v5")
    odd = str(run_folder(tmp_path / "odd" / "run", [0.0, 1.0], every=70).parent)
    lone = str(run_folder(tmp_path / "lone", [0.0, 1.0]))
    late = str(run_folder(tmp_path / "late", [0.0]))
    mixed = group(tmp_path / "mixed", [1.0])
    run_folder(tmp_path / "mixed" / "other", [0.0, 1.0, 2.0], tau=0.5)
    copies = group(tmp_path / "copies", [1.0])
    run_folder(tmp_path / "copies" / "copy", [0.0, 1.0, 2.0])
    (tmp_path / "empty").mkdir()
    timeless = run_folder(tmp_path / "timeless", [0.0, 1.0])
    records = '{"kind": "evaluation", "step": 0, "mean": 1}\n'
    (timeless / "metrics.jsonl").write_text(records + records.replace("0", "100"))
    nothing, broken = (run_folder(tmp_path / name, []) for name in ("nothing", "broken"))
    (broken / "metrics.jsonl").write_text("nonsense\n")
    bad = {
        ("nowhere", two): "no folder at nowhere",
        ("a=nowhere", two): "no folder at nowhere",
        (one, str(tmp_path / "empty")): "empty has no runs in it",
        (one, str(nothing)): "has no evaluation yet",
        (one, str(broken)): "line 1 is no record",
        (one, str(timeless)): "has evaluations without a time",
        (one, two, one): "is given twice",
        (one, f"x={one}"): "is given twice",
        (one,): "has runs of one setting only",
        (lone,): "lone is one run; name a second run or folder",
        (one, copies): "they have the same setting: leave one of them out",
        (one, mixed): "mixed has Pendulum-v1 with seed 0 twice",
        (one, hopper): "no environment is in all groups: one has Pendulum-v1; hopper has Hopper",
        (one, odd): "the runs on Pendulum-v1 share no evaluations at step 0 and later",
        (one, late): "the runs on Pendulum-v1 share no evaluations at step 0 and later",
    }
    for arguments, message in bad.items():
        with pytest.raises(t3d.T3DError) as error:
            compare(arguments)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_what_is_left_out_cut_short_or_mixed_is_noted(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0])
    group(tmp_path / "one", [1.0], "Hopper-v5")
    run_folder(tmp_path / "two" / "short", [0.0, 1.0])
    run_folder(tmp_path / "two" / "other", [0.0, 1.0, 2.0], seed=1, tau=0.5)
    notes = compare([one, str(tmp_path / "two")])["notes"]
    assert "left out, as not all groups have it: Hopper-v5" in notes
    assert "two mixes settings on Pendulum-v1: tau" in notes
    (cut,) = [note for note in notes if "up to step 100" in note]
    assert cut.endswith(f"the shortest is {tmp_path / 'two' / 'short'}")


def test_a_copy_of_a_run_in_another_group_is_noted(tmp_path: Path) -> None:
    copied = "one and two have the same numbers of a seed: a run and its copy?"
    one = group(tmp_path / "one", [1.0, 2.0])
    two = str(shutil.copytree(one, tmp_path / "two"))
    assert copied in compare([one, two])["notes"]
    shutil.rmtree(two)
    group(tmp_path / "two", [1.5, 2.5])
    assert copied not in compare([one, two])["notes"]
