import re
import sys
from pathlib import Path

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
