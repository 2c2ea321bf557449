"""Resume a run from its newest valid checkpoint, as if it had never stopped."""

from collections.abc import Callable, Collection
from contextlib import ExitStack

from t3d.base.errors import BadInput
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint
from t3d.run.changes import changes
from t3d.run.checkpoint import Progress, State, Valid
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock
from t3d.run.loop import Run
from t3d.run.records import KnobChange
from t3d.run.store import DiskStore


def resume(
    maker: EnvMaker,
    folder: RunFolder,
    waiting: Callable[[], None] = lambda: None,
    changing: Collection[str] = (),
) -> Run:
    """The run of a folder, ready to train; `run.notes` says what is not as it was.

    `waiting` is called if the agent takes long to prepare. `changing` names the knobs that are
    changed on purpose; the config of `maker` is the run's from here on.
    """
    with ExitStack() as undo:
        lock = Lock(folder)
        undo.callback(lock.release)
        valid = checkpoint.newest_valid(folder)
        if valid is None and (origin := folder.origin()):
            what = f"{folder} stopped before it had stored what it took from {origin.path}"
            raise BadInput(f"{what}; remove it, and train again")
        changed = changes(folder, valid, maker.config, changing)
        if valid and checkpoint.is_finished(valid.manifest, maker.config.steps):
            step = valid.manifest.step
            further = f"train it further with --steps {2 * step} (in Python, steps=)"
            raise BadInput(f"{folder} is finished at step {step}; {further}")
        run = Run(maker, folder)
        undo.callback(run.close)
        run.agent.prepare(waiting)
        if valid is None:  # it stopped before its first checkpoint
            folder.best_agent.unlink(missing_ok=True)
            run.collector.reset()
            run.open(DiskStore(folder, lock), run.progress)
        else:
            _restore(run, folder, valid, lock, changed)
        folder.write_config(maker.config)
        if changed:  # or, after a kill, the last checkpoint would have another config than the run
            run.checkpoint()
        undo.pop_all()
    return run


def _restore(
    run: Run, folder: RunFolder, valid: Valid, lock: Lock, changed: dict[str, str]
) -> None:
    """Put a run where a checkpoint was taken; `changed` says which knobs are others, and how."""
    step, position = valid.manifest.step, valid.manifest.metrics
    state = State(run.agent, run.memory, run.collector)
    progress = checkpoint.load(valid, folder, state)
    store = DiskStore(folder, lock, position.bytes)
    run.open(store, progress)
    run.agent.change(**{k: v for k, v in progress.changed.items() if k not in changed})
    run.learning.measures = dict(progress.measured)
    for damaged, why in valid.damaged.items():
        checkpoint.quarantine(damaged)
        run.notes.append(f"{why}; back to the checkpoint of step {step:,}")
    if not store.metrics.matches(position):
        run.notes.append(f"{folder.metrics_path} is not what it was at step {step:,}")
    for knob, text in changed.items():
        run.journal.write(KnobChange, knob=knob, text=text)
    differences = [*changed.values(), *checkpoint.differences(valid.manifest, run.agent)]
    if run.config.collectors and run.config.staleness:
        run.notes.append("the collectors begin new episodes")
    elif run.config.single_env:
        if run.collector.lost:
            what = "the episode in progress was cut and a new one begins"
            differences.append(f"{what}, since nothing is played again in the only environment")
    elif run.config.env_backend == "batched":
        what = "every episode in progress was cut and a new one begins"
        differences.append(f"{what}, since a batch of environments cannot play them again")
    else:
        differences += _compare_episodes(run, progress)
    progress.not_bit_exact += [f"at step {step:,} {each}" for each in differences]
    if differences:
        changes = "; ".join(differences)
        run.notes.append(f"{changes}; from here on the run is not bit-exact")


def _compare_episodes(run: Run, progress: Progress) -> list[str]:
    """The environments that did not repeat their episodes; if all did, that was checked."""
    lost = run.collector.lost
    if not lost:
        what = "the current and the last episode of each environment were played again"
        progress.checked["resuming"] = f"{what} at step {run.collector.steps:,}: the same"
    causes = "it is not deterministic, or carries state over, which remake_envs prevents"
    return [
        f"environment {index} did not repeat its episodes and begins a new one ({causes})"
        for index in lost
    ]
