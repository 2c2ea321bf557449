"""`t3d inspect`: what a run is, where it stands, and whether its files are valid."""

from pathlib import Path

from t3d.base.errors import T3DError
from t3d.run import checkpoint
from t3d.run.folder import RunFolder
from t3d.run.lock import is_locked
from t3d.run.records import Json


def inspect(path: str | Path) -> Json:
    """What a run is, where it stands, which checkpoints are valid, and a digest of its state.

    Two runs with the same digest are the same run: same networks, optimisers, memory, random
    streams, environments and metrics, to the last bit. `bit_exact` is whether nothing is known that
    sets the run apart from an uninterrupted one; `checked` is what was tried to know it.
    """
    folder = RunFolder.open(path)
    config, about = folder.config(), folder.about()
    facts: Json = {
        "run": str(folder.path),
        "env": config.env,
        "preset": about["preset"],
        "origin": about["origin"],
        "seed": config.seed,
        "engine": config.engine,
        "steps": config.steps,
        "training": is_locked(folder),
        "checkpoints": {each.name: _checked(each) for each in folder.all_checkpoints()},
    }
    any_valid = any(state["valid"] for state in facts["checkpoints"].values())
    valid = checkpoint.newest_valid(folder) if any_valid else None
    if valid is None:
        return facts | {"step": None, "finished": False, "digest": None}
    manifest, progress = valid.manifest, valid.manifest.progress
    return facts | {
        "step": manifest.step,
        "updates": manifest.updates,
        "finished": checkpoint.is_finished(manifest, config.steps),
        "best_mean": progress.best_mean,
        "best_step": progress.best_step,
        "bit_exact": not progress.not_bit_exact,
        "not_bit_exact": progress.not_bit_exact,
        "checked": list(progress.checked.values()),
        "made_by": manifest.made_by,
        "digest": checkpoint.digest(valid, folder),
    }


def _checked(path: Path) -> Json:
    try:
        manifest = checkpoint.check(path)
    except T3DError as error:
        return {"valid": False, "why": str(error)}
    return {"valid": True, "bytes": sum(part.bytes for part in manifest.files.values())}
