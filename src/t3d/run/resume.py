"""Resume a run from its newest valid checkpoint, as if it had never stopped."""

from collections.abc import Callable
from contextlib import ExitStack

from t3d.base.errors import BadInput
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint
from t3d.run.checkpoint import State, Valid
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock
from t3d.run.loop import Run
from t3d.run.store import DiskStore


def resume(maker: EnvMaker, folder: RunFolder, waiting: Callable[[], None] = lambda: None) -> Run:
    """The run of a folder, ready to train; `run.notes` says what is not as it was.

    `waiting` is called if the agent takes long to prepare.
    """
    with ExitStack() as undo:
        lock = Lock(folder)
        undo.callback(lock.release)
        valid = checkpoint.newest_valid(folder)
        if valid and checkpoint.is_finished(valid.manifest, maker.config.steps):
            step = valid.manifest.step
            raise BadInput(
                f"{folder} is finished at step {step}; go further with --steps {2 * step}"
            )
        run = Run(maker, folder)
        undo.callback(run.close)
        run.agent.prepare(waiting)
        if valid is None:  # it stopped before its first checkpoint
            folder.best_agent.unlink(missing_ok=True)
            run.collector.reset()
            run.open(DiskStore(folder, lock), run.progress)
        else:
            _restore(run, folder, valid, lock)
        undo.pop_all()
    return run


def _restore(run: Run, folder: RunFolder, valid: Valid, lock: Lock) -> None:
    """Put a run where a checkpoint was taken."""
    step, position = valid.manifest.step, valid.manifest.metrics
    state = State(run.agent, run.memory, run.collector)
    progress = checkpoint.load(valid, folder, state)
    store = DiskStore(folder, lock, position.bytes)
    run.open(store, progress)
    run.learning.measures = dict(progress.measured)
    for damaged, why in valid.damaged.items():
        checkpoint.quarantine(damaged)
        run.notes.append(f"{why}; back to the checkpoint of step {step:,}")
    if not store.metrics.matches(position):
        run.notes.append(f"{folder.metrics_path} is not what it was at step {step:,}")
    differences = checkpoint.differences(valid.manifest, run.agent)
    if run.config.collectors and run.config.staleness:
        run.notes.append("the collectors begin new episodes")
    else:
        differences += [
            f"environment {index} is not deterministic: it begins a new episode"
            for index in run.collector.lost
        ]
    progress.not_bit_exact += [f"at step {step:,} {each}" for each in differences]
    if differences:
        changes = "; ".join(differences)
        run.notes.append(f"{changes}: from here on not bit for bit an uninterrupted run")
