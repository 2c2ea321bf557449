"""A film of one episode, as mp4 and GIF."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from t3d.errors import T3DError
from t3d.play.collect import Policy
from t3d.play.envs import EnvSource, GuardedEnv, make, missing_extra
from t3d.randomness import derived_seed

_GIF_SIDE = 240  # pixels; a GIF is for a README, the mp4 for a close look
_GIF_SPEED = 20  # frames per second


def record(
    policy: Policy, source: EnvSource, out: Path, seed: int = 0, max_episode_steps: int = 0
) -> tuple[list[Path], float]:
    """Film the first test episode of a seed; returns the files and the episode's return."""
    try:
        import imageio_ffmpeg
        from PIL import Image
    except ModuleNotFoundError as error:
        raise T3DError("videos need an extra: pip install 't3d[video]'") from error
    _draw_without_a_screen()
    frames, total, speed = _film(policy, source, seed, max_episode_steps)
    mp4, gif = out.with_suffix(".mp4"), out.with_suffix(".gif")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        height, width = (side // 2 * 2 for side in frames[0].shape[:2])  # the format wants even
        size = (width, height)
        writer = imageio_ffmpeg.write_frames(str(mp4), size, fps=speed, macro_block_size=1)
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame[:height, :width]))
        writer.close()
        every = max(1, round(speed / _GIF_SPEED))
        pictures = [Image.fromarray(frame) for frame in frames[::every]]
        for picture in pictures:
            picture.thumbnail((_GIF_SIDE, _GIF_SIDE))
        duration = 1000 * every / speed  # milliseconds per picture
        pictures[0].save(gif, save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    except OSError as error:
        raise T3DError(f"{mp4} cannot be written: {error}") from error
    return [mp4, gif], total


def _draw_without_a_screen() -> None:
    """Tell pygame and MuJoCo to, unless there is a screen or someone chose otherwise."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not ("DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _film(
    policy: Policy, source: EnvSource, seed: int, max_episode_steps: int
) -> tuple[list[NDArray[Any]], float, float]:
    env = make(source, max_episode_steps=max_episode_steps, render_mode="rgb_array")
    speed = float(env.metadata.get("render_fps") or 30)
    state, _ = env.reset(seed=derived_seed(seed, "test", 0))
    frames, total, ended = [_picture(env)], 0.0, False
    while not ended:
        state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
        frames.append(_picture(env))
        total += reward
        ended = terminated or truncated
    env.close()
    return frames, total, speed


def _picture(env: GuardedEnv) -> NDArray[Any]:
    try:
        picture = np.asarray(env.render())
    except DependencyNotInstalled as error:
        raise T3DError(missing_extra(env.name, error)) from error
    except Exception as error:  # whatever a graphics driver comes up with
        reason = " ".join(str(error).split())
        advice = (
            "without a screen, install libegl1 or libosmesa6 and set MUJOCO_GL to egl or osmesa"
        )
        raise T3DError(f"{env.name} cannot be rendered: {reason}; {advice}") from error
    if picture.ndim != 3 or picture.dtype != np.uint8:
        raise T3DError(f"{env.name} renders {picture.dtype}{picture.shape}; expected RGB pictures")
    return picture
