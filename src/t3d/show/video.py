"""A video of one episode, as mp4 and GIF."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from t3d.base.errors import BadInput, CannotWrite
from t3d.base.randomness import derived_seed
from t3d.play.envs import EnvMaker, GuardedEnv, missing_extra
from t3d.play.evaluate import Policy

_GIF_SIDE = 240  # pixels; the GIF is for a README, the mp4 for a closer look
_GIF_SPEED = 20  # frames per second


def record(policy: Policy, maker: EnvMaker, out: Path, seed: int = 0) -> tuple[list[Path], float]:
    """Record the first test episode of a seed; returns the files and the episode's return."""
    try:
        import imageio_ffmpeg
        from PIL import Image
    except ModuleNotFoundError as error:
        raise BadInput("videos need an extra: pip install 't3d[video]'") from error
    stem = out.with_suffix("") if out.suffix in (".mp4", ".gif") else out
    mp4, gif = Path(f"{stem}.mp4"), Path(f"{stem}.gif")
    env = _renderable(maker)
    speed = float(env.metadata.get("render_fps") or 30)
    every = max(1, round(speed / _GIF_SPEED))
    thumbnails: list[Image.Image] = []
    writer, total = None, 0.0
    try:
        # Frame by frame to the encoder: all frames of an episode may not fit into memory.
        for number, (frame, so_far) in enumerate(_play(policy, env, seed)):
            height, width = (side // 2 * 2 for side in frame.shape[:2])  # the format wants even
            if writer is None:
                out.parent.mkdir(parents=True, exist_ok=True)
                for path in (mp4, gif):  # a link or a pipe there would lead elsewhere
                    path.unlink(missing_ok=True)
                size = (width, height)
                writer = imageio_ffmpeg.write_frames(str(mp4), size, fps=speed, macro_block_size=1)
                writer.send(None)
            writer.send(np.ascontiguousarray(frame[:height, :width]))
            if number % every == 0:
                thumbnails.append(Image.fromarray(frame))
                thumbnails[-1].thumbnail((_GIF_SIDE, _GIF_SIDE))
            total = so_far
        assert writer is not None
        writer.close()
        later, duration = thumbnails[1:], 1000 * every / speed  # milliseconds per frame
        thumbnails[0].save(gif, save_all=True, append_images=later, duration=duration, loop=0)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise CannotWrite(f"{mp4} cannot be written: {reason}") from error
    finally:
        env.close()
    return [mp4, gif], total


def _renderable(maker: EnvMaker) -> GuardedEnv:
    """An environment that renders frames."""
    env = maker.make(render_mode="rgb_array")
    if "rgb_array" not in env.metadata.get("render_modes", []):
        env.close()
        raise BadInput(f"{env.name} has no render mode rgb_array; add one to record a video of it")
    return env


def _play(policy: Policy, env: GuardedEnv, seed: int) -> Iterator[tuple[NDArray[Any], float]]:
    """Each frame of an episode, with the return so far."""
    state, _ = env.reset(seed=derived_seed(seed, "test", 0))
    total, ended = 0.0, False
    yield _frame(env), total
    while not ended:
        state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
        total += reward
        ended = terminated or truncated
        yield _frame(env), total


def _frame(env: GuardedEnv) -> NDArray[Any]:
    try:
        frame = np.asarray(env.render())
    except DependencyNotInstalled as error:
        raise BadInput(missing_extra(env.name, error)) from error
    except Exception as error:  # whatever a graphics driver raises
        reason = " ".join(str(error).split()) or type(error).__name__
        if "mujoco" in type(env.unwrapped).__module__:
            reason += (
                "; without a screen, install libegl1 or libosmesa6 and set MUJOCO_GL to either"
            )
        raise BadInput(f"{env.name} cannot be rendered: {reason}") from error
    if frame.ndim != 3 or frame.dtype != np.uint8:
        raise BadInput(f"{env.name} renders {frame.dtype}{frame.shape}; expected RGB frames, uint8")
    return frame
