"""How a resumed run's config differs from that of its checkpoint.

Every checkpoint holds the config that it was trained with, in its agent's file.
"""

import json
import shlex
from collections.abc import Collection
from typing import Any

from t3d.base.arguments import words
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
    texts: dict[str, str] = {}
    for name, now in vars(config).items():
        before = getattr(then, name)
        if now == before or name in FREE:
            continue
        where = f" at step {valid.manifest.step:,}" if valid else ""
        what = f"{name} was {_shown(before)}{where}, is {_shown(now)}"
        if name == "env_backend" and "batched" in (before, now):
            advice = f"resume with --env-backend {before}"
            raise BadInput(
                f"{what}; the episodes of a batch cannot be continued elsewhere: {advice}"
            )
        if name in FIXED:
            back = "" if name in wanted else f"put it back in {folder.path / 'config.json'}, or "
            raise BadInput(f"{what}; {name} cannot change during a run: {back}train a new one")
        if name not in wanted:
            command = f"t3d resume {folder} --set {shlex.quote(f'{name}={_typed(now)}')}"
            edited = f"{folder.path / 'config.json'} was edited: {what}"
            raise BadInput(f"{edited}; put it back, or change it on purpose: {command}")
        texts[name] = f"{name} was {_shown(before)}, is {_shown(now)}"
    return texts | _new_end(valid.manifest, then, config) if valid else {}


def _typed(value: Any) -> str:
    """A value as it is typed after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(words(value))
    return ",".join(map(str, value)) or "[]" if isinstance(value, tuple) else str(value)


def _shown(value: Any) -> str:
    return "none" if value in ((), {}) else _typed(value)


def _new_end(manifest: Manifest, then: Config, now: Config) -> dict[str, str]:
    """What a run has by now, and would not have if it had known of its new end from the start."""
    step = manifest.step
    if then.steps == now.steps:
        return {}
    what = f"steps was {then.steps:,}, is {now.steps:,}"
    if manifest.updates and now.learning_rate_schedule != "constant":
        return {"steps": f"{what}: a run of so many has other learning rates up to here"}
    if step < min(then.steps, now.steps):
        return {}
    if step >= now.steps:
        return {"steps": f"{what}: it has played as many already"}
    extra = []
    # With one environment, the last evaluation does not wait for the end of the episode.
    due = _due(now.eval_every, step, now) and not now.single_env
    if manifest.progress.evaluated_at == step and not due:
        extra.append("evaluation")
    if not _due(now.log_every, step, now):
        extra.append("training record")
    if not extra:
        return {}
    return {"steps": f"{what}: a run of so many has no {' and no '.join(extra)} here"}


def _due(every: int, step: int, config: Config) -> bool:
    """Whether something is done every so many steps at this one, wherever the run ends."""
    return every > 0 and step // every > (step - config.all_envs) // every
