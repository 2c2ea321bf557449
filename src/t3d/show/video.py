"""A film of one episode, as mp4 and GIF."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t3d.errors import T3DError
from t3d.play.collect import Policy
from t3d.play.envs import EnvSource, make
from t3d.randomness import derived_seed

_GIF_SIDE = 240  # pixels; a GIF is for a README, the mp4 for a close look
_GIF_SPEED = 20  # frames per second


def record(
    policy: Policy, source: EnvSource, out: Path, seed: int = 0, max_episode_steps: int = 0
) -> tuple[list[Path], float]:
    """Film the first test episode of a seed; returns the files and the episode's return."""
    try:
        import imageio.v3 as imageio
        import imageio_ffmpeg  # noqa: F401
    except ModuleNotFoundError as error:
        raise T3DError("videos need an extra: pip install 't3d[video]'") from error
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
    frames, total, speed = _film(policy, source, seed, max_episode_steps)
    files = [out.with_suffix(".mp4"), out.with_suffix(".gif")]
    step = max(1, round(speed / _GIF_SPEED))
    small = [_smaller(frame) for frame in frames[::step]]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        film = _even(np.stack(frames))
        imageio.imwrite(files[0], film, fps=speed, codec="libx264", macro_block_size=1)
        imageio.imwrite(files[1], np.stack(small), duration=1000 * step / speed, loop=0)
    except OSError as error:
        raise T3DError(f"{files[0]} cannot be written: {error}") from error
    return files, total


def _film(
    policy: Policy, source: EnvSource, seed: int, max_episode_steps: int
) -> tuple[list[NDArray[Any]], float, float]:
    env = make(source, max_episode_steps=max_episode_steps, render_mode="rgb_array")
    try:
        speed = float(env.metadata.get("render_fps") or 30)
        state, _ = env.reset(seed=derived_seed(seed, "test", 0))
        frames, total, ended = [_frame(env.render(), env.name)], 0.0, False
        while not ended:
            state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
            frames.append(_frame(env.render(), env.name))
            total += reward
            ended = terminated or truncated
    finally:
        env.close()
    return frames, total, speed


def _frame(rendered: Any, name: str) -> NDArray[Any]:
    frame = np.asarray(rendered)
    if frame.ndim != 3 or frame.dtype != np.uint8:
        raise T3DError(f"{name} renders {type(rendered).__name__}; expected an RGB picture")
    return frame


def _even(frames: NDArray[Any]) -> NDArray[Any]:
    """Cut to even sides, which the video format wants."""
    return frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]


def _smaller(frame: NDArray[Any]) -> NDArray[Any]:
    from PIL import Image

    picture = Image.fromarray(frame)
    picture.thumbnail((_GIF_SIDE, _GIF_SIDE))
    return np.asarray(picture)
