"""What environments show becomes rows of numbers."""

import re
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

import t3d
from helpers import seeing_envs
from t3d import Config, T3DError
from t3d.base.extras import how_to_install
from t3d.base.observation import Image, Layout
from t3d.play.envs import EnvMaker, GuardedEnv

Array = NDArray[Any]


def begun(source: Any, **knobs: Any) -> tuple[GuardedEnv, Array]:
    env = EnvMaker(source, Config(**knobs)).make()
    return env, env.reset(seed=3)[0]


def shown_by(env: GuardedEnv) -> Any:
    inside: Any = env.unwrapped
    return inside.look()


def test_vectors_are_joined_in_the_order_of_their_space() -> None:
    env, row = begun(seeing_envs.Sensors)
    assert env.layout == Layout(3)
    assert row.dtype == np.float32
    assert row[0] == 0  # "a", the count, comes before "b", where Gymnasium sorts the names
    row, *_ = env.step(np.zeros(1, np.float32))
    assert row.tolist() == [1, row[1], 1]


def test_tuples_are_joined_too() -> None:
    env, row = begun(seeing_envs.Pair)
    assert env.layout == Layout(3)
    assert row[1:].tolist() == [0, 7]


@pytest.mark.parametrize("kind", [seeing_envs.Camera, seeing_envs.ChannelsFirst])
def test_an_image_is_a_row_of_bytes_channel_by_channel(kind: Any) -> None:
    env, row = begun(kind)
    assert env.layout == Layout(0, (Image(3, 32, 40),))
    assert row.dtype == np.uint8
    shown = shown_by(env)
    image = shown if kind is seeing_envs.ChannelsFirst else np.moveaxis(shown, 2, 0)
    assert np.array_equal(row.reshape(3, 32, 40), image)
    assert env.observation_space.contains(row)


def test_grey_is_what_the_eye_sees() -> None:
    env, row = begun(seeing_envs.Camera, grey=True)
    assert env.layout == Layout(0, (Image(1, 32, 40),))
    square = round(0.299 * 255 + 0.587 * 200 + 0.114 * 50)
    assert set(np.unique(row)) == {0, square}
    env, row = begun(seeing_envs.Grey, grey=True)
    assert np.array_equal(row.reshape(32, 40), shown_by(env))


def test_a_smaller_image_is_the_mean_of_its_pixels() -> None:
    class Large(seeing_envs.Camera):
        observation_space = gym.spaces.Box(0, 255, (64, 96, 3), np.uint8)

        def look(self) -> Any:
            image = np.zeros((64, 96, 3), np.uint8)
            image[::2, :, 1] = 200
            return image

    env, row = begun(Large, image_size=32)
    assert env.layout == Layout(0, (Image(3, 32, 32),))
    assert np.unique(row.reshape(3, -1)[1]).tolist() == [100]
    assert not row.reshape(3, -1)[[0, 2]].any()


def test_a_stack_has_the_last_frames_and_begins_with_the_first_several_times() -> None:
    env, row = begun(seeing_envs.Camera, frame_stack=3, grey=True)
    assert env.layout == Layout(0, (Image(1, 32, 40),), 3)
    frames = [row.reshape(3, -1)]
    assert np.array_equal(frames[0][0], frames[0][2])
    for _ in range(4):
        frames.append(env.step(np.ones(1, np.float32))[0].reshape(3, -1))
        assert np.array_equal(frames[-1][:2], frames[-2][1:])
        assert not np.array_equal(frames[-1][2], frames[-1][1])
    row, _ = env.reset(seed=4)
    assert len(np.unique(row.reshape(3, -1), axis=0)) == 1


def test_images_and_vectors_stand_together_in_a_row() -> None:
    env, row = begun(seeing_envs.Robot, frame_stack=2)
    back, front = Image(1, 36, 36), Image(3, 32, 40)
    assert env.layout == Layout(4, (back, front), 2)
    for _ in range(2):
        row, *_ = env.step(np.ones(1, np.float32))
    shown = shown_by(env)
    frames = row[: 2 * env.layout.frame_size].reshape(2, -1)
    assert np.array_equal(np.unique(frames[0][: 36 * 36]), [1])  # the frame before
    assert np.array_equal(frames[1][: 36 * 36], shown["back"].reshape(-1))
    newest = frames[1][36 * 36 :].reshape(3, 32, 40)
    assert np.array_equal(newest, np.moveaxis(shown["front"], 2, 0))
    vector = row[2 * env.layout.frame_size :].copy().view(np.float32)
    assert vector.tolist() == [*shown["joints"], 20.5]


def test_an_action_is_repeated_and_its_rewards_are_added() -> None:
    env, _ = begun(seeing_envs.Camera, action_repeat=3)
    one, _ = begun(seeing_envs.Camera)
    action = np.full(1, 0.1, np.float32)
    single = [one.step(action) for _ in range(3)]
    row, reward, *_ = env.step(action)
    assert reward == pytest.approx(sum(step[1] for step in single))
    assert np.array_equal(row, single[-1][0])
    env.step(action)
    assert env.step(action)[3]  # an episode of eight steps is over in the third


def test_pixels_show_the_environment_rendered() -> None:
    env, row = begun("Pendulum-v1", pixels=True, grey=True, image_size=48)
    assert env.layout == Layout(0, (Image(1, 48, 48),))
    assert row.std() > 5
    after, *_ = env.step(np.full(1, 2.0, np.float32))
    assert not np.array_equal(row, after)


def space(observation: Any) -> Any:
    return type("Bad", (seeing_envs.Camera,), {"observation_space": observation})


BOX = gym.spaces.Box
UINT8 = np.uint8


@pytest.mark.parametrize(
    ("observation", "knobs", "message"),
    [
        (
            gym.spaces.Dict({"a": gym.spaces.Dict({"b": BOX(0, 1, (2,))})}),
            {},
            "has nested observations, 'a' is a Dict or Tuple; flatten it",
        ),
        (
            gym.spaces.Dict({"a": BOX(0, 1, (2,)), "mode": gym.spaces.Discrete(3)}),
            {},
            "has Discrete observations in 'mode'; T3D learns from Boxes",
        ),
        (gym.spaces.Discrete(4), {}, "has Discrete observations; T3D learns from Boxes"),
        (gym.spaces.Dict({}), {}, "has empty observations"),
        (
            BOX(0, 1, (48, 48, 3), np.float32),
            {},
            "has images of type float32; give uint8 from 0 to 255 (from 0 to 1, multiply by 255)",
        ),
        (
            BOX(0, 255, (48, 48, 7), UINT8),
            {},
            "has images of shape (48, 48, 7), 7 channels; expected 1 to 4, or a stack of 3s or 4s",
        ),
        (BOX(0, 255, (48, 48, 48), UINT8), {}, "48 channels; expected 1 to 4"),
        (
            BOX(0, 255, (20, 48, 3), UINT8),
            {},
            "has an image of 20 x 48; expected at least 32; enlarge with --image-size 32",
        ),
        (BOX(0, 255, (48, 48, 4), UINT8), {"grey": True}, "an image of 4 channels; grey needs 3"),
        (BOX(0, 1, (5,)), {"grey": True}, "has no image, which grey is for; leave it out, or"),
        (BOX(0, 1, (5,)), {"image_size": 48}, "has no image, which image_size is for"),
        (BOX(0, 1, (5, 2)), {}, "has observations of shape (5, 2); flatten them"),
    ],
)
def test_what_cannot_be_seen_is_refused_in_one_line(
    observation: Any, knobs: dict[str, Any], message: str
) -> None:
    with pytest.raises(T3DError) as caught:
        EnvMaker(space(observation), Config(**knobs)).make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (np.zeros((32, 40, 3)), "image has type float64; expected uint8"),
        (np.zeros((32, 41, 3), UINT8), "image has shape (32, 41, 3); expected (32, 40, 3)"),
        (None, "image is a NoneType, not numbers: None"),
    ],
)
def test_an_image_that_is_not_as_promised_is_named(shown: Any, message: str) -> None:
    class Changes(seeing_envs.Camera):
        def look(self) -> Any:
            return super().look() if self.count < 2 else shown

    env, _ = begun(Changes)
    env.step(np.zeros(1, np.float32))
    with pytest.raises(T3DError) as caught:
        env.step(np.zeros(1, np.float32))
    assert message in str(caught.value)
    assert "episode seed 3, step 2" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda shown: shown.pop("joints"), "observation lacks 'joints'"),
        (lambda shown: shown.update(joints=np.zeros(2)), "observation 'joints' has shape (2,)"),
        (lambda shown: shown.update(joints=[0, np.nan, 0]), "observation 'joints'[1] is nan"),
        (lambda shown: shown.update(joints="bent"), "observation 'joints' is a str, not numbers"),
        (lambda shown: shown.update(front=np.zeros(3)), "image 'front' has type float64"),
    ],
)
def test_a_part_that_is_not_as_promised_is_named(change: Any, message: str) -> None:
    class Changes(seeing_envs.Robot):
        def look(self) -> Any:
            shown = super().look()
            if self.count:
                change(shown)
            return shown

    env, _ = begun(Changes)
    with pytest.raises(T3DError) as caught:
        env.step(np.zeros(1, np.float32))
    assert message in str(caught.value)


def test_a_dict_that_is_none_is_named() -> None:
    class Changes(seeing_envs.Robot):
        def look(self) -> Any:
            return super().look() if not self.count else [1, 2]

    env, _ = begun(Changes)
    with pytest.raises(T3DError, match="observation is a list; expected a dict"):
        env.step(np.zeros(1, np.float32))


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    with pytest.raises(
        T3DError, match=re.escape(f"image_size needs an extra: {how_to_install('image')}")
    ):
        EnvMaker(seeing_envs.Camera, Config(image_size=48)).make()


def test_pixels_of_what_cannot_be_rendered_are_refused() -> None:
    with pytest.raises(T3DError, match="cannot be made with"):
        EnvMaker(seeing_envs.Camera, Config(pixels=True)).make()


def test_the_layout_goes_through_json() -> None:
    import json

    layout = Layout(4, (Image(1, 36, 36), Image(3, 32, 40)), 2)
    assert Layout.from_json(json.loads(json.dumps(layout._asdict()))) == layout
    assert layout.size == 2 * (36 * 36 + 3 * 32 * 40) + 16
    assert t3d.T3D(Layout(2), [-1], [1]).state_dim == 2
