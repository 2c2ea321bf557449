import shutil
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.runs import in_memory, trained
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.loop import Run


def test_a_run_that_does_not_fit_on_the_disk_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(
        t3d.CannotWrite, match=r"this run may take .* kB and .* has 1 kB; free some"
    ):
        trained(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_run_may_take_on_the_disk_is_about_what_it_takes(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=100, hidden=(64, 64))
    taken = sum(file.stat().st_size for file in run.rglob("*.safetensors"))
    config = RunFolder(run).config()
    planned = Run(EnvMaker(config.env, config))
    assert 0.9 * taken <= planned.parts.disk_bytes() <= 2 * taken
    planned.close()


def test_a_memory_that_does_not_fit_is_refused_with_the_largest_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("t3d.run.build.available_memory", lambda: 10_000_000)
    with pytest.raises(t3d.BadInput) as refused:
        in_memory(capacity=10**6, steps=10**6)
    assert "would take 28 MB; 10 MB of RAM is free" in str(refused.value)
    assert "use --capacity 321428 or less, or --replay-on-disk" in str(refused.value)
    # Rows that will not be filled need no room, and a file needs no RAM.
    in_memory(capacity=10**6)
    Run(EnvMaker("Pendulum-v1", t3d.Config(replay_on_disk=True))).close()


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"batch_size": 10**7}, "a batch of 10,000,000 would take .* use --batch-size 7.* or less"),
        ({"hidden": (65_536, 65_536)}, "networks of hidden .* would take 2.* use a smaller"),
        (
            {"critic_hidden": (65_536, 65_536)},
            r"networks of hidden \(256, 256\) and \(65536, 65536\) would take 1",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_what_cannot_fit_into_memory_is_refused_before_it_is_allocated(
    engine: str, knobs: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t3d.run.build.available_memory", lambda: 10_000_000_000)
    with pytest.raises(t3d.BadInput, match=message):
        in_memory(**({"engine": engine, "hidden": (256, 256)} | knobs))
