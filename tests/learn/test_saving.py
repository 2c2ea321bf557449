"""State and files: what is saved comes back to the bit, and no file is trusted."""

import json
import pickle
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from helpers.agents import HIGH, LOW, agent_memory, changed
from helpers.agents import small_agent as agent
from helpers.agents import small_config as config
from helpers.images import LAYOUT, image_agent, image_batch, image_states
from t3d import T3D, Batch, FusedT3D, ReplayBuffer, T3DError
from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite
from t3d.base.numbers import Array
from t3d.learn.replay.sampling import Rows, Uniform


@pytest.fixture(scope="module")
def buffer() -> ReplayBuffer:
    return agent_memory()


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what an agent's file says of itself, and leave its numbers."""
    about = json.loads(files.header(path).metadata["t3d"])
    change(about)
    save_file(load_file(path), path, metadata={"t3d": json.dumps(about)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("done", [0, 3, 4])
def test_a_loaded_agent_continues_bit_for_bit_like_the_saved_one(
    buffer: ReplayBuffer, tmp_path: Path, dtype: torch.dtype, done: int
) -> None:
    learner = agent(dtype, seed=4)
    learner.train(buffer, done)
    learner.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    assert loaded.dtype == dtype
    assert loaded.config == learner.config
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    for each in (learner, loaded):
        each.train(buffer, 5)
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    states = np.random.default_rng(0).normal(size=(4, 3))
    assert (learner.select_action(states) == loaded.select_action(states)).all()


def test_a_state_dict_is_a_copy(buffer: ReplayBuffer) -> None:
    learner = agent()
    state = learner.state_dict()
    copy = {key: value.clone() for key, value in state.items()}
    learner.train(buffer, 2)
    assert changed(copy, state) == set()
    before = learner.state_dict()
    learner.load_state_dict(state)
    state["actor.layers.0.weight"].zero_()
    assert "actor.layers.0.weight" in changed(before, learner.state_dict())
    assert bool(learner.state_dict()["actor.layers.0.weight"].any())


def test_a_loaded_state_dict_makes_another_agent_the_same(buffer: ReplayBuffer) -> None:
    learner, other = agent(seed=1), agent(seed=2)
    learner.train(buffer, 3)
    other.load_state_dict(learner.state_dict())
    for each in (learner, other):
        each.train(buffer, 3)
    assert changed(learner.state_dict(), other.state_dict()) == set()


def without(state: dict[str, Tensor], key: str) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name != key}


SPOILERS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "a weight is missing": lambda s: without(s, "critic_target.twin2.0.weight"),
    "a moment is missing": lambda s: without(s, "critic_optimizer.twin2.4.bias.exp_avg_sq"),
    "the counter is missing": lambda s: without(s, "updates"),
    "a stream is missing": lambda s: without(s, "generator.smoothing"),
    "something is too much": lambda s: {**s, "temperature": torch.zeros(1)},
    "a weight has another shape": lambda s: {**s, "critic.twin1.4.bias": torch.zeros(2)},
    "a stream has another shape": lambda s: {**s, "generator.smoothing": torch.zeros(3).long()},
    "a count is negative": lambda s: {**s, "updates": torch.tensor(-1)},
    "a count of Adam is no number": lambda s: {
        **s,
        "critic_optimizer.twin1.0.weight.step": torch.tensor(torch.nan),
    },
    "a sampler that has none gets a state": lambda s: {**s, "sampler.priority": torch.ones(3)},
    "a stream is not whole numbers": lambda s: {**s, "generator.smoothing": torch.zeros(6)},
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    buffer: ReplayBuffer, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    learner, other = agent(seed=1), agent(seed=2)
    other.train(buffer, 3)
    before = learner.state_dict()
    with pytest.raises(T3DError):
        learner.load_state_dict(spoil(other.state_dict()))
    assert changed(before, learner.state_dict()) == set()


def test_an_agent_of_another_size_is_refused() -> None:
    with pytest.raises(T3DError, match="of shape"):
        agent().load_state_dict(agent(hidden=(8, 7)).state_dict())
    with pytest.raises(T3DError, match="missing or unexpected"):
        agent().load_state_dict(agent(hidden=(8,)).state_dict())


def test_the_file_is_a_header_and_numbers_and_nothing_that_can_run(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["t3d"])
    assert about["layout"]["vector"] == 3
    assert header.keys() == agent().state_dict().keys()
    # The tensors fill the rest of the file, end to end: there is no room for anything else.
    extents = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    ends = [end for _, end in extents]
    assert [start for start, _ in extents] == [0, *ends[:-1]]
    assert 8 + length + ends[-1] == len(raw)


class Bomb:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("content", ["empty", "garbage", "pickle", "cut short", "absent", "folder"])
def test_a_file_that_is_no_agent_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path, fuse = tmp_path / "agent.safetensors", tmp_path / "fuse"
    agent().save(path)
    valid = path.read_bytes()
    path.unlink()
    contents = {
        "empty": b"",
        "garbage": bytes(range(256)) * 20,
        "pickle": pickle.dumps(Bomb(fuse)),
        "cut short": valid[:-1],
    }
    if content in contents:
        path.write_bytes(contents[content])
    elif content == "folder":
        path.mkdir()
    with pytest.raises(T3DError) as refusal:
        T3D.load(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not fuse.exists()


def test_a_safetensors_file_of_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "memory.safetensors"
    ReplayBuffer(3, 3, 2).save(path)
    with pytest.raises(T3DError) as refusal:
        T3D.load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "meta"])
def test_a_good_agent_on_a_missing_device_says_that_the_device_is_missing(
    tmp_path: Path, device: str
) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    assert T3D.load(path, device="cpu").config.device == "cpu"
    with pytest.raises(BadInput, match=f"^device '{device}' cannot be used: .*; cpu always can$"):
        T3D.load(path, device=device)
    rewrite(path, lambda about: about["config"].update(device=device))  # its own device is missing
    with pytest.raises(BadInput, match=f"^device '{device}' cannot be used: "):
        T3D.load(path)
    assert T3D.load(path, device="cpu").config.device == "cpu"


def test_a_loaded_agent_acts_to_the_bit_whatever_the_bounds(tmp_path: Path) -> None:
    agent = T3D(3, [0.1, -0.3], [0.7, 1.1])  # numbers that float32 has to round
    agent.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    states = np.random.default_rng(0).normal(size=(1000, 3))
    assert np.array_equal(agent.select_action(states), loaded.select_action(states))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=r"nowhere/agent.safetensors cannot be written: No such"):
        agent().save(tmp_path / "nowhere" / "agent.safetensors")


def test_an_agent_with_images_is_saved_and_loaded(tmp_path: Path) -> None:
    learner = image_agent(normalize_observations=True)
    learner.observe(image_states(50).numpy())
    learner.update(learner.perceive(image_batch()), torch.zeros(6, 1))
    learner.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    assert loaded.layout == LAYOUT
    assert loaded.perception.normalizer.count == 50
    rows = image_states(5, seed=9).numpy()
    assert np.array_equal(loaded.select_action(rows), learner.select_action(rows))
    alone = loaded.select_action(rows[0])
    np.testing.assert_allclose(alone, loaded.select_action(rows)[0], atol=1e-6)
    assert changed(learner.state_dict(), loaded.state_dict()) == set()


# A subclass with one more network, and without a line about saving.


class Curious(T3D):
    """Predicts next states, too."""

    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.predictor = nn.Linear(self.state_dim, self.state_dim, dtype=self.dtype)
        self.make_optimizer(self.predictor)

    def actor_loss(self, batch: Batch) -> Tensor:
        loss = (self.predictor(batch.state) - batch.next_state).square().mean()
        optimizer = self.optimizers["predictor"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return super().actor_loss(batch)


def test_one_more_network_is_saved_and_loaded_without_further_code(
    buffer: ReplayBuffer, tmp_path: Path
) -> None:
    learner = Curious(3, LOW, HIGH, config())
    learner.train(buffer, 4)
    learner.save(tmp_path / "agent.safetensors")
    loaded = Curious.load(tmp_path / "agent.safetensors")
    assert "predictor.weight" in loaded.state_dict()
    assert "predictor_optimizer.weight.exp_avg" in loaded.state_dict()
    for each in (learner, loaded):
        each.train(buffer, 3)
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    with pytest.raises(BadInput, match=r"is not a T3D agent: .*predictor.* missing or unexpected"):
        T3D.load(tmp_path / "agent.safetensors")


def test_a_folder_is_refused_with_the_file_to_name(tmp_path: Path) -> None:
    agent = T3D(3, LOW, HIGH, config())
    for load in (agent.load, T3D.load):
        with pytest.raises(BadInput, match=r"is a folder; name a file, of a run .*/best.safet"):
            load(tmp_path)


class Log(Uniform):
    """Remembers every TD error: its state grows."""

    wants_td_errors = True

    def __init__(self) -> None:
        self.errors = np.zeros(0, np.float32)

    def learned(self, rows: Rows, td_errors: Array) -> None:
        self.errors = np.append(self.errors, td_errors)

    def state_dict(self) -> dict[str, Array]:
        return {"errors": self.errors}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        self.errors = arrays["errors"].copy()


class Logging(T3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.sampler = Log()


class FusedLogging(FusedT3D):
    def build(self, weights: np.random.Generator) -> None:
        super().build(weights)
        self.sampler = Log()


@pytest.mark.parametrize("kind", [Logging, FusedLogging])
def test_the_state_of_a_sampler_may_grow(
    buffer: ReplayBuffer, tmp_path: Path, kind: type[T3D]
) -> None:
    path = tmp_path / "agent.safetensors"
    learner, other = kind(3, LOW, HIGH, config()), kind(3, LOW, HIGH, config(seed=2))
    learner.train(buffer, 3)
    learner.save(path)
    loaded = kind.load(path)
    other.restore(path)
    for each in (learner, loaded, other):
        each.train(buffer, 2)
    assert learner.state_dict()["sampler.errors"].shape == (5 * 16,)
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    assert changed(learner.state_dict(), other.state_dict()) == set()


def test_a_sampler_that_cannot_load_a_state_is_named_and_nothing_changes(
    buffer: ReplayBuffer,
) -> None:
    learner, other = Logging(3, LOW, HIGH, config()), Logging(3, LOW, HIGH, config(seed=2))
    other.train(buffer, 3)
    before = learner.state_dict()
    with pytest.raises(BadInput, match="the sampler Log cannot load its state: 'errors'"):
        learner.load_state_dict(without(other.state_dict(), "sampler.errors"))
    assert changed(before, learner.state_dict()) == set()


def test_an_agent_restores_the_state_of_a_file_that_fits(
    buffer: ReplayBuffer, tmp_path: Path
) -> None:
    path = tmp_path / "agent.safetensors"
    learner, fused = agent(seed=1), FusedT3D(3, LOW, HIGH, config(seed=2))
    learner.train(buffer, 3)
    learner.save(path)
    fused.restore(path)
    assert changed(learner.state_dict(), fused.state_dict()) == set()
    other = agent(hidden=(8, 7))
    before = other.state_dict()
    with pytest.raises(BadInput, match=r"agent.safetensors is not a T3D agent: actor.* of shape"):
        other.restore(path)
    assert changed(before, other.state_dict()) == set()


# Files that lie.


@pytest.mark.parametrize(
    "change",
    [
        {"vector": 150_000_000, "frame_stack": -450_000_000},
        {"vector": float("inf")},
        {"vector": -1},
        {"vector": 2**31 - 1},
        {"images": [[0, 32, 32]]},
        {"images": [[1, 32]]},
        {"images": [[3, 2**31 - 1, 2**31 - 1]]},
        {"images": [[1, 8, 8]] * 40},
        {"images": 5},
        {"frame_stack": "2"},
    ],
)
def test_a_file_with_a_layout_that_makes_no_sense_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "agent.safetensors"
    image_agent().save(path)
    rewrite(path, lambda about: about["layout"].update(change))
    with pytest.raises(BadInput, match="is not a T3D agent") as refusal:
        T3D.load(path)
    assert "\n" not in str(refusal.value)


LIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an unknown knob": (lambda a: a["config"].update(taau=1), "unknown knob 'taau'"),
    "a knob out of range": (lambda a: a["config"].update(tau=7), "tau is 7; expected"),
    "huge networks": (lambda a: a["config"].update(hidden=[65_536] * 6), "missing or unexpected"),
    "a wide layer": (lambda a: a["config"].update(hidden=[8, 65_536]), "of shape"),
    "too many layers": (
        lambda a: a["config"].update(hidden=[1] * 900),
        "arrays for 900 layers and images",
    ),
    "another precision": (lambda a: a.update(dtype="float64"), "expected torch.float64"),
    "no precision": (lambda a: a.update(dtype="float16"), "dtype is 'float16'; expected float32"),
    "more actions": (lambda a: a.update(low=[0.0] * 9, high=[1.0] * 9), "of shape"),
    "bounds of text": (lambda a: a.update(low="a", high="b"), "action bound is 'a'"),
    "no bounds": (lambda a: a.pop("low"), "low"),
    "another body": (lambda a: a["config"].update(body="layer_norm"), "missing or unexpected"),
    "statistics": (
        lambda a: a["config"].update(normalize_observations=True),
        "normalizer.count, normalizer.mean, normalizer.squares",
    ),
}


@pytest.mark.parametrize("engine", [T3D, FusedT3D])
@pytest.mark.parametrize(("change", "message"), LIES.values(), ids=LIES)
def test_a_file_whose_numbers_are_not_those_of_its_config_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str, engine: type[T3D]
) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    rewrite(path, change)
    with pytest.raises(BadInput) as refusal:
        engine.load(path)
    assert f"{path} is not a T3D agent: " in str(refusal.value)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_metadata_that_never_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    save_file(load_file(path), path, metadata={"t3d": "[" * 200_000})
    with pytest.raises(BadInput, match="is not a T3D agent") as refusal:
        T3D.load(path)
    assert "\n" not in str(refusal.value)


def test_a_file_that_asks_for_huge_networks_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    rewrite(path, lambda about: about["config"].update(hidden=[65_536, 65_536]))  # 100 GB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match="of shape"):
        T3D.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_a_file_imports_no_code(tmp_path: Path) -> None:
    """Neither the agent nor the body that it names, in a process that has not imported them."""
    path, fuse = tmp_path / "agent.safetensors", tmp_path / "fuse"
    (tmp_path / "evil.py").write_text(f"open({str(fuse)!r}, 'w').close()\n")
    agent().save(path)
    rewrite(path, lambda about: about["config"].update(agent="evil:Agent", body="evil:body"))
    code = "import sys, t3d\ntry: t3d.T3D.load(sys.argv[1])\nexcept t3d.T3DError as e: print(e)"
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "network body 'evil:body' is not imported, and no file may do that" in done.stdout
    assert not fuse.exists()


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
def test_load_of_an_agent_changes_that_agent(tmp_path: Path, kind: type[T3D]) -> None:
    """The author's code calls it so: policy.load(file)."""
    saved, other = (kind(3, LOW, HIGH, config(seed=seed)) for seed in (1, 2))
    saved.save(tmp_path / "agent.safetensors")
    assert changed(saved.state_dict(), other.state_dict())
    assert other.load(tmp_path / "agent.safetensors") is other
    assert not changed(saved.state_dict(), other.state_dict())
