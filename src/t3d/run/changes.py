"""How a resumed run's config differs from that of its checkpoint.

Every checkpoint holds the config that it was trained with, in its agent's file.
"""

import shlex
from collections.abc import Collection
from typing import Any

from t3d.base.errors import BadInput
from t3d.config import FIXED, FREE, Config
from t3d.learn.saving import saved_config
from t3d.run.checkpoint import Valid
from t3d.run.folder import RunFolder
from t3d.run.manifest import Manifest


def changes(
    folder: RunFolder, valid: Valid | None, config: Config, wanted: Collection[str]
) -> dict[str, str]:
    """How a config differs from that of the checkpoint: by knob, in words that are to be recorded.

    A change to a fixed knob is refused, and so is a change that is not `wanted`: somebody has
    edited config.json. A run without a checkpoint starts again, so there is nothing to record.
    """
    then = saved_config(valid.path / "agent.safetensors") if valid else folder.config()
    words: dict[str, str] = {}
    for name, now in vars(config).items():
        before = getattr(then, name)
        if now == before or name in FREE:
            continue
        where = f" at step {valid.manifest.step:,}" if valid else ""
        what = f"{name} was {_typed(before)}{where}, is {_typed(now)}"
        if name in FIXED:
            back = "" if name in wanted else f"put it back in {folder.path / 'config.json'}, or "
            raise BadInput(f"{what}; {name} cannot change during a run: {back}train a new one")
        if name not in wanted:
            command = f"t3d resume {folder} --set {shlex.quote(f'{name}={_typed(now)}')}"
            edited = f"{folder.path / 'config.json'} was edited: {what}"
            raise BadInput(f"{edited}; put it back, or change it on purpose: {command}")
        words[name] = f"{name} was {_typed(before)}, is {_typed(now)}"
    return words | _new_end(valid.manifest, then, config) if valid else {}


def _typed(value: Any) -> str:
    """A value as it is typed after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _new_end(manifest: Manifest, then: Config, now: Config) -> dict[str, str]:
    """What a run has at its old end, and would not have if it had known of the new one."""
    step = manifest.step
    if then.steps == now.steps or step < min(then.steps, now.steps):
        return {}
    what = f"steps was {then.steps:,}, is {now.steps:,}"
    if step >= now.steps:
        return {"steps": f"{what}: it has played as many already"}
    extra = []
    if manifest.progress.evaluated_at == step and not _due(now.eval_every, step, now):
        extra.append("evaluation")
    if not _due(now.log_every, step, now):
        extra.append("training record")
    if not extra:
        return {}
    return {"steps": f"{what}: a run of so many has no {' and no '.join(extra)} here"}


def _due(every: int, step: int, config: Config) -> bool:
    """Whether something is done every so many steps at this one, wherever the run ends."""
    return every > 0 and step // every > (step - config.all_envs) // every
