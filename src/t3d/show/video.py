"""A video of one episode, as mp4 and GIF."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite
from t3d.base.extras import how_to_install
from t3d.base.randomness import derived_seed
from t3d.play.envs import EnvMaker, GuardedEnv, missing_extra, raise_interrupt
from t3d.play.evaluate import Policy

if TYPE_CHECKING:
    from PIL.Image import Image

_GIF_SIDE = 240  # pixels; the GIF is for a README, the mp4 for a closer look
_GIF_SPEED = 20  # frames per second
_SPEED = 30.0  # of an environment that says nothing, or nothing that makes sense
_SPEEDS = 0.1, 1000.0  # what makes sense


def record(policy: Policy, maker: EnvMaker, out: Path, seed: int = 0) -> tuple[list[Path], float]:
    """Record the first test episode of a seed; returns the files and the episode's return."""
    try:
        import imageio_ffmpeg
        import PIL.Image  # noqa: F401  `_picture` needs it
    except ModuleNotFoundError as error:
        raise BadInput(f"videos need an extra: {how_to_install('video')}") from error
    stem = out.with_suffix("") if out.suffix in (".mp4", ".gif") else out
    mp4, gif = files.usable(f"{stem}.mp4"), Path(f"{stem}.gif")
    env = _renderable(maker)
    speed = _speed(env)
    every = max(1, round(speed / _GIF_SPEED))
    thumbnails: list[Image] = []
    writer, size, total, complete = None, (0, 0), 0.0, False
    try:
        # Frame by frame to the encoder: all frames of an episode may not fit into memory.
        for number, (picture, so_far) in enumerate(_play(policy, env, seed)):
            if writer is None:
                out.parent.mkdir(parents=True, exist_ok=True)
                for path in (mp4, gif):  # a link or a pipe there would lead elsewhere
                    path.unlink(missing_ok=True)
                size = picture.width // 2 * 2, picture.height // 2 * 2  # the format wants even
                writer = imageio_ffmpeg.write_frames(
                    str(mp4), size, fps=speed, macro_block_size=1, ffmpeg_log_level="quiet"
                )
                writer.send(None)
            writer.send(np.ascontiguousarray(picture.crop((0, 0, *size))))
            if number % every == 0:
                picture.thumbnail((_GIF_SIDE, _GIF_SIDE))
                thumbnails.append(picture)
            total = so_far
        assert writer is not None
        writer.close()
        later, duration = thumbnails[1:], 1000 * every / speed  # milliseconds per frame
        thumbnails[0].save(gif, save_all=True, append_images=later, duration=duration, loop=0)
        if mp4.stat().st_size == 0:
            raise OSError("the encoder wrote nothing")
        complete = True
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise CannotWrite(f"{mp4} cannot be written: {reason}") from error
    finally:
        env.close()
        if writer is not None and not complete:
            writer.close()
            with suppress(OSError):  # no half of a video
                mp4.unlink()
    return [mp4, gif], total


def _renderable(maker: EnvMaker) -> GuardedEnv:
    """An environment that renders frames."""
    env = maker.make(render_mode="rgb_array")
    modes = _metadata(env).get("render_modes", [])
    if isinstance(modes, (list, tuple)) and "rgb_array" not in modes:
        env.close()
        raise BadInput(f"{env.name} has no render mode rgb_array; add one to record a video of it")
    return env


def _metadata(env: GuardedEnv) -> Mapping[str, Any]:
    """What an environment says about itself; nothing, if that cannot be read."""
    metadata: Any = None
    with suppress(Exception):  # it may be a property
        metadata = env.metadata
    return metadata if isinstance(metadata, Mapping) else {"render_modes": None}


def _speed(env: GuardedEnv) -> float:
    """The frames per second of an environment."""
    lowest, highest = _SPEEDS
    try:
        speed = float(_metadata(env).get("render_fps"))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return _SPEED
    return speed if lowest <= speed <= highest else _SPEED  # nan is neither


def _play(policy: Policy, env: GuardedEnv, seed: int) -> Iterator[tuple["Image", float]]:
    """Each frame of an episode, all in the size of the first one, with the return so far."""
    state, _ = env.reset(seed=derived_seed(seed, "test", 0))
    total, ended = 0.0, False
    picture = _picture(env)
    size = picture.size
    yield picture, total
    while not ended:
        state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
        total += reward
        ended = terminated or truncated
        picture = _picture(env)
        yield picture if picture.size == size else picture.resize(size), total


def _picture(env: GuardedEnv) -> "Image":
    """The environment as it looks now."""
    from PIL import Image

    try:
        rendered = env.render()
        frame = np.asarray(rendered)
    except DependencyNotInstalled as error:
        raise BadInput(missing_extra(env.name, error)) from error
    except BaseException as error:  # whatever the environment or a graphics driver raises
        raise_interrupt(error)
        reason = " ".join(str(error).split()) or type(error).__name__
        if "mujoco" in type(env.unwrapped).__module__:
            reason += (
                "; without a screen, install libegl1 or libosmesa6 and set MUJOCO_GL to either"
            )
        raise BadInput(f"{env.name} cannot be rendered: {reason}") from error
    rgb = _as_rgb(frame)
    if rgb is None:
        what = "None" if rendered is None else f"{frame.dtype}{frame.shape}"
        raise BadInput(f"{env.name} renders {what}; expected RGB frames, uint8(height, width, 3)")
    return Image.fromarray(rgb)


def _as_rgb(frame: NDArray[Any]) -> NDArray[np.uint8] | None:
    """A frame as bytes (height, width, 3); None if it is no picture.

    Grey ones, transparent ones and floats, from 0 to 1 or to 255, are pictures too.
    """
    if frame.ndim == 2:
        frame = frame[..., None]
    if frame.ndim != 3 or frame.shape[2] not in (1, 3, 4) or min(frame.shape[:2]) < 2:
        return None
    frame = frame[..., :3]
    if frame.dtype == bool:
        frame = frame * np.uint8(255)
    elif frame.dtype.kind == "f":
        frame = np.nan_to_num(frame)
        frame = frame * 255 if frame.max() <= 1 else frame
    elif frame.dtype.kind not in "iu":
        return None
    levels = frame if frame.dtype == np.uint8 else np.clip(np.round(frame), 0, 255)
    return np.ascontiguousarray(np.broadcast_to(levels, (*levels.shape[:2], 3)), np.uint8)
