import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import t3d
from helpers.runs import resumed, same_bits, trained
from t3d.run.folder import RunFolder

GOLDEN = Path(__file__).parent / "golden"  # a run of two environments, by format 2


def test_a_checkpoint_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    run = shutil.copytree(GOLDEN, tmp_path / "run")
    facts = t3d.inspect(run)
    assert facts["step"] == 60
    assert facts["digest"] == "ffb7cb3d430a5df694a8573120c173bf7b7d06ff99eadfbb0b54d1259b33cff9"
    assert sorted(p.name for p in run.iterdir()) == sorted(p.name for p in GOLDEN.iterdir())
    resumed(run, steps=90)
    assert t3d.inspect(run)["step"] == 90


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("uninterrupted") / "run", steps=90)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to step 60. Copy it before you change it."""
    return trained(tmp_path_factory.mktemp("good") / "run")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("manifest.json", b"{}"),
        ("manifest.json", b"[]"),
        ("collector.safetensors", b"12345678"),
        ("memory-rows-0000000000.safetensors", b""),
        ("agent.safetensors", b"\x80\x04pickle"),
        ("more.safetensors", b""),
    ],
)
def test_a_damaged_checkpoint_is_named_and_quarantined_and_the_one_before_is_taken(
    tmp_path: Path, good: Path, uninterrupted: Path, name: str, damage: bytes
) -> None:
    run = shutil.copytree(good, tmp_path / "run")
    (run / "checkpoints" / "step-000000000060" / name).write_bytes(damage)
    facts = t3d.inspect(run)
    assert facts["step"] == 40
    assert not facts["checkpoints"]["step-000000000060"]["valid"]
    assert name in facts["checkpoints"]["step-000000000060"]["why"]
    (note,) = resumed(run, steps=90)
    assert name in note
    assert note.endswith("back to the checkpoint of step 40")
    damaged = run / "checkpoints" / ".damaged-step-000000000060" / name
    assert damaged.read_bytes() == damage
    assert t3d.inspect(run)["digest"] == t3d.inspect(uninterrupted)["digest"]
    assert same_bits(uninterrupted, run)


def test_when_no_checkpoint_is_valid_every_damaged_file_is_named(
    tmp_path: Path, good: Path
) -> None:
    run = shutil.copytree(good, tmp_path / "run")
    for checkpoint in RunFolder(run).all_checkpoints():
        (checkpoint / "agent.safetensors").write_bytes(b"")
    with pytest.raises(t3d.BadInput, match=r"no checkpoint of .* is valid: .*60.*damaged.*; .*40"):
        resumed(run, steps=90)


def test_unchanged_pieces_are_linked_from_the_checkpoint_before_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "t3d.learn.replay.blocks.BLOCK_BYTES", 10 * 28
    )  # ten rows of the pendulum's
    run = trained(tmp_path / "run", steps=100, keep_checkpoints=5)
    inodes = {
        checkpoint.name[-3:]: {file.name: file.stat().st_ino for file in checkpoint.iterdir()}
        for checkpoint in RunFolder(run).all_checkpoints()
    }
    shared = {name for name in inodes["100"] if inodes["100"][name] == inodes["060"].get(name)}
    assert shared == {
        f"memory-rows-{i:010d}.safetensors" for i in range(0, 60, 10)
    }  # 60 of 100 rows
    for one, other in itertools.pairwise(inodes):
        assert not set(inodes[one].values()) & set(inodes[other].values())
    resumed(run, steps=110)
    trained(tmp_path / "uninterrupted", steps=110, keep_checkpoints=5)
    assert same_bits(run, tmp_path / "uninterrupted")


@pytest.mark.parametrize("capacity", [10, 25, 30, 37])
def test_pieces_of_a_memory_that_has_wrapped_around_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    monkeypatch.setattr("t3d.learn.replay.blocks.BLOCK_BYTES", 4 * 28)
    knobs: Any = {"capacity": capacity, "checkpoint_every": 7, "keep_checkpoints": 20}
    trained(tmp_path / "pieces", steps=90, **knobs)
    monkeypatch.undo()
    trained(tmp_path / "single", steps=90, **knobs)
    for parts, single in zip(
        RunFolder(tmp_path / "pieces").all_checkpoints(),
        RunFolder(tmp_path / "single").all_checkpoints(),
        strict=True,
    ):
        for table in ("rows", "ends"):
            pieces = [load_file(file) for file in sorted(parts.glob(f"memory-{table}-*"))]
            one = load_file(single / f"memory-{table}-0000000000.safetensors")
            for name, array in one.items():
                together = np.concatenate([piece[name] for piece in pieces])
                np.testing.assert_array_equal(together, array)


def test_a_damaged_piece_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t3d.learn.replay.blocks.BLOCK_BYTES", 10 * 28)
    run = trained(tmp_path / "run")
    piece = run / "checkpoints" / "step-000000000040" / "memory-rows-0000000010.safetensors"
    piece.write_bytes(piece.read_bytes()[:-1] + b"!")
    resumed(run, steps=80)
    checkpoints = t3d.inspect(run)["checkpoints"]
    assert all(state["valid"] for state in checkpoints.values()), checkpoints
