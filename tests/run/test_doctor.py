"""The doctor, in environments whose trouble is known."""

import json
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers import broken_envs, odd_envs, seeing_envs
from helpers.commands import assert_refused
from t3d import Config
from t3d.cli.main import main
from t3d.play.envs import EnvMaker
from t3d.run.doctor import Diagnosis, examine, glance

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "threads": 1, "steps": 10_000}
SMALL["random_steps"] = 1_000


def diagnosis(source: Any, **knobs: Any) -> Diagnosis:
    return examine(EnvMaker(source, Config(**SMALL, **knobs)), seconds=0.3)


def test_a_healthy_environment_needs_nothing() -> None:
    well = diagnosis("Pendulum-v1")
    assert well.flags.keys() <= {"num_envs", "env_backend"}  # these a clock decides
    assert well.facts["observation"] == "vector of 3"
    assert well.facts["action"] == "1, each from -2 to 2"
    assert well.facts["time limit"] == "200 steps"
    assert well.facts["deterministic"] == "yes"
    assert well.facts["check_env"] == "no complaints"
    assert well.facts["replay memory"] == "280 kB for 10,000 steps"
    assert well.facts["updates"].endswith("per second, engine fused")
    assert "10,000 steps" in well.facts


def test_a_run_that_would_only_play_at_random_is_advised_against() -> None:
    examined = examine(EnvMaker("Pendulum-v1", Config(**SMALL | {"random_steps": 10_000})), 0.3)
    assert examined.flags["random_steps"] == 1_000
    assert any("nothing would be learned: all 10,000 steps" in text for text in examined.advice)


class Loud(broken_envs.Calm):
    """Large rewards, and observations of which one is far larger than the others."""

    def step(self, action: Any) -> Any:
        _, _, *rest = super().step(action)
        shown = np.array([6e4 * action[0], 0.5, action[1]], np.float32)
        return shown, 500.0 * action[0], *rest


def test_scales_are_judged_and_knobs_named() -> None:
    ill = diagnosis(Loud)
    assert ill.flags["reward_scale"] == 0.001
    assert ill.flags["normalize_observations"] is True
    rewards, observations = ill.advice
    magnitudes = r"rewards have a mean magnitude of \d+ and a largest one of \d+"
    assert re.fullmatch(f"{magnitudes}: use --reward-scale 0.001", rewards)
    scales = r"observation scales differ by up to \S+e\+04 \(largest mean magnitude \S+e\+04\)"
    assert re.fullmatch(f"{scales}: use --normalize-observations", observations)
    # With this advice followed, there is none left.
    better = diagnosis(Loud, reward_scale=0.001, normalize_observations=True)
    assert not {"reward_scale", "normalize_observations"} & better.flags.keys()


class Endless(gym.Env[Any, Any]):
    """It has no time limit, and never ends."""

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.asarray(action, np.float32), float(action[0]), False, False, {}


def test_observations_whose_squares_overflow_are_judged_too() -> None:
    (advice,) = glance(EnvMaker(odd_envs.HugeObservation, Config(max_episode_steps=20)))
    assert "use --normalize-observations" in advice


def test_a_missing_time_limit_is_noticed() -> None:
    ill = diagnosis(Endless)
    assert ill.flags["max_episode_steps"] == 1000
    assert ill.facts["time limit"] == "none"
    assert "max_episode_steps" not in diagnosis(Endless, max_episode_steps=50).flags
    assert any(
        "there is no time limit" in text for text in glance(EnvMaker(Endless, Config()), 0.1)
    )


def test_an_environment_that_is_not_deterministic_is_noticed() -> None:
    assert diagnosis(broken_envs.Lottery).facts["deterministic"].startswith("no: the same seed")


def test_an_environment_that_depends_on_its_past_is_noticed() -> None:
    class Remembers(Endless):
        past = 0.0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.full(1, self.past, np.float32), {}

        def step(self, action: Any) -> Any:
            self.past = float(action[0])
            return super().step(action)

    ill = diagnosis(Remembers, max_episode_steps=20)
    assert ill.facts["deterministic"].startswith("only when new")
    assert ill.flags["remake_envs"] is True
    assert (
        diagnosis(Remembers, max_episode_steps=20, remake_envs=True).facts["deterministic"] == "yes"
    )


def test_images_are_advised_on() -> None:
    class Wide(seeing_envs.Camera):
        observation_space = gym.spaces.Box(0, 255, (96, 96, 3), np.uint8)

        def look(self) -> Any:
            return np.zeros((96, 96, 3), np.uint8)

    ill = diagnosis(Wide)
    assert ill.flags["image_size"] == 48
    assert ill.flags["frame_stack"] == 3
    assert "as advised" in ill.facts
    assert "engine reference (fused has no convolutions" in ill.facts["updates"]
    assert ill.facts["observation"] == "image of 3 x 96 x 96"


def test_rendered_images_are_examined_as_they_will_be_seen() -> None:
    seen = diagnosis("Pendulum-v1", pixels=True, grey=True, image_size=32, frame_stack=3)
    assert seen.facts["observation"] == "image of 1 x 32 x 32, stack of 3"


def test_an_environment_may_write_over_its_last_observation() -> None:
    class Reuses(Endless):
        shown = np.zeros(1, np.float32)

        def step(self, action: Any) -> Any:
            self.shown[0] = action[0]
            return self.shown, 0.5, False, False, {}

    low, _, high = diagnosis(Reuses, max_episode_steps=20).facts["observed"].split()
    assert float(low) < 0 < float(high)


def test_a_memory_that_does_not_fit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t3d.run.doctor.available_memory", lambda: 100_000)
    assert diagnosis("Pendulum-v1").flags["capacity"] == int(0.9 * 100_000 / 28)


def test_the_command_tells_it_in_words_and_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = examine
    monkeypatch.setattr("t3d.run.doctor.examine", lambda maker: real(maker, 0.2))
    assert main(["doctor", "Pendulum-v1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["command"].startswith("t3d train Pendulum-v1")
    assert printed["facts"]["deterministic"] == "yes"
    words = ["doctor", "test_doctor:Endless", "--steps", "5000", "--hidden", "8", "--threads", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "- there is no time limit" in out
    assert "t3d train test_doctor:Endless --steps 5000" in out
    assert "--max-episode-steps 1000" in out.splitlines()[-1]


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(["doctor", "CartPole-v1"], "has Discrete actions", capsys)
