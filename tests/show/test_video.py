import asyncio
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

import t3d
from helpers import broken_envs
from t3d.base.extras import how_to_install
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate
from t3d.show.video import record


def test_a_video_shows_the_complete_episode(tmp_path: Path) -> None:
    agent = t3d.T3D(3, [-2], [2])
    config = t3d.Config(max_episode_steps=30)
    (mp4, gif), total = record(
        agent.select_action, EnvMaker("Pendulum-v1", config), tmp_path / "video", seed=3
    )
    assert imageio_ffmpeg.count_frames_and_secs(str(mp4))[0] == 31
    with Image.open(gif) as pictures:
        assert pictures.size == (240, 240)
        first = np.asarray(pictures.convert("L"), int)
        pictures.seek(10)
        assert np.abs(first - np.asarray(pictures.convert("L"), int)).max() > 100  # it moved
    # It is the first episode that `t3d eval` plays for this seed.
    env = EnvMaker("Pendulum-v1", config).make()
    assert evaluate(agent.select_action, env, range(1), seed=3, purpose="test").returns == [total]


@pytest.mark.parametrize(
    ("module", "extra"), [("imageio_ffmpeg", "video"), ("PIL", "video"), ("pygame", "classic")]
)
def test_without_the_extra_it_says_what_to_install(
    module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    policy = t3d.T3D(3, [-2], [2]).select_action
    with pytest.raises(t3d.T3DError, match=re.escape(how_to_install(extra))):
        record(policy, EnvMaker("Pendulum-v1", t3d.Config()), tmp_path / "video")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_without_pictures_is_refused(tmp_path: Path) -> None:
    agent = t3d.T3D(3, [-1, -1], [1, 1])
    with pytest.raises(t3d.T3DError, match=r"cannot be made with \{'render_mode'"):
        record(agent.select_action, EnvMaker(broken_envs.Calm, t3d.Config()), tmp_path / "video")
    assert list(tmp_path.iterdir()) == []


class Painted(gym.Env[Any, Any]):
    """Three steps, painted in some way."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    facts: ClassVar[Any] = {"render_modes": ["rgb_array"], "render_fps": 10}
    frames: ClassVar[Any] = [np.full((8, 8, 3), 100, np.uint8)]

    def __init__(self, render_mode: str | None = None) -> None:
        self.metadata = self.facts
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return self.frames[self.steps % len(self.frames)]


def filmed(kind: type[Painted], out: Path) -> tuple[int, float, Any]:
    """How many frames and seconds a video has, and the colour of a pixel of its GIF."""
    policy = t3d.T3D(3, [-1, -1], [1, 1]).select_action
    (mp4, gif), total = record(policy, EnvMaker(kind, t3d.Config()), out / "video")
    assert total == 3
    with Image.open(gif) as pictures:
        colour = pictures.convert("RGB").getpixel((2, 2))
    return *imageio_ffmpeg.count_frames_and_secs(str(mp4)), colour


NO_SPEEDS = [0, None, "fast", float("nan"), 1e9, -3, 10**400]


@pytest.mark.parametrize("fps", NO_SPEEDS, ids=[repr(fps)[:5] for fps in NO_SPEEDS])
def test_a_speed_that_makes_no_sense_is_thirty_frames_a_second(fps: Any, tmp_path: Path) -> None:
    class Odd(Painted):
        facts = {"render_modes": ["rgb_array"], "render_fps": fps}  # noqa: RUF012

    frames, seconds, _ = filmed(Odd, tmp_path)
    assert frames == 4
    assert seconds == pytest.approx(4 / 30, abs=0.01)


def test_an_environment_that_says_nothing_about_itself_can_be_filmed(tmp_path: Path) -> None:
    class Silent(Painted):
        facts = None

    assert filmed(Silent, tmp_path)[0] == 4


@pytest.mark.parametrize(
    "frame",
    [
        np.full((9, 7), 100, np.uint8),
        np.full((8, 8, 1), 100, np.int64),
        np.full((8, 8, 4), 100, np.uint8),
        np.full((8, 8, 3), 100 / 255, np.float32),
        np.full((8, 8), 100.2),
    ],
    ids=lambda frame: f"{frame.dtype}{frame.shape}",
)
def test_grey_and_float_frames_are_pictures(frame: Any, tmp_path: Path) -> None:
    class Odd(Painted):
        frames = [frame]  # noqa: RUF012

    assert filmed(Odd, tmp_path)[2] == (100, 100, 100)


def test_frames_that_change_size_are_shown_in_the_size_of_the_first(tmp_path: Path) -> None:
    class Growing(Painted):
        frames = [np.zeros((8 + 3 * k, 8, 3), np.uint8) for k in range(4)]  # noqa: RUF012

    assert filmed(Growing, tmp_path)[0] == 4


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (None, "renders None;"),
        (np.zeros((0, 8, 3)), r"renders float64\(0, 8, 3\);"),
        (np.zeros(5), r"renders float64\(5,\);"),
        ("a picture", r"renders <U9\(\);"),
    ],
)
def test_what_is_no_picture_is_refused_and_leaves_no_half_of_a_video(
    frame: Any, what: str, tmp_path: Path
) -> None:
    class Odd(Painted):
        frames = [*Painted.frames, frame]  # noqa: RUF012

    with pytest.raises(t3d.BadInput, match=f"{what} expected RGB frames"):
        filmed(Odd, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
def test_whatever_rendering_raises_is_one_line(error: type[BaseException], tmp_path: Path) -> None:
    class Leaves(Painted):
        def render(self) -> Any:
            raise error("gone")

    with pytest.raises(t3d.BadInput, match="cannot be rendered: gone"):
        filmed(Leaves, tmp_path)
