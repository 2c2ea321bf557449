"""Where a study is stored: a database of Optuna's, in the folder or at a URL.

Optuna's tables hold numbers and JSON. Nothing is unpickled: the parts of Optuna that would, the
journal storage and the CMA-ES sampler, are not used.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.base.extras import how_to_install
from t3d.base.text import one_line
from t3d.config import Config, search_ranges
from t3d.play.envs import EnvMaker
from t3d.run.lock import alone
from t3d.run.loop import Run
from t3d.study.plan import Plan

try:
    import optuna as optuna
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError
except ModuleNotFoundError as error:
    raise BadInput(f"tune needs an extra: {how_to_install('tune')}") from error

STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)


def open_study(plan: Plan) -> optuna.Study:
    """The study of a plan, new or as it was left. A study of another plan is refused."""
    if plan.trials < 1:
        raise BadInput(f"trials is {plan.trials}; expected at least 1")
    if plan.jobs < 1:
        raise BadInput(f"jobs is {plan.jobs}; expected at least 1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    local, out = plan.storage is None, files.usable(plan.out)
    used = out.exists() and (not out.is_dir() or any(out.glob("[!.]*")))
    if used and not (out / ".folder").is_file():
        raise BadInput(f"{out} exists and is not the folder of a search; choose another with --out")
    if not used:  # a bad environment or knob is an error now, before anything is written
        Run(EnvMaker(plan.base.env, plan.base)).close()
    if local:
        files.require_regular(out / "study.db")
    try:
        storage = None if local else _connect(plan)
        out.mkdir(parents=True, exist_ok=True)
        with alone(out), reading(plan):
            storage = storage or _connect(plan)
            study = optuna.create_study(
                storage=storage,
                study_name=out.name,
                direction="maximize",
                load_if_exists=True,
                # After the first trials, those that stay below the median are pruned.
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=5,
                    n_warmup_steps=max(plan.base.random_steps, plan.base.steps // 3),
                ),
            )
            _check_plan(plan, study)
    except (*STORAGE_ERRORS, ImportError) as error:
        raise BadInput(unreachable(plan, error)) from error
    except OSError as error:
        raise files.cannot_write(out, error) from error
    return study


@contextmanager
def reading(plan: Plan) -> Iterator[None]:
    """Turn whatever Optuna raises on a database that is not its own into one line."""
    try:
        yield
    except (T3DError, OSError, *STORAGE_ERRORS):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        raise BadInput(f"the storage {hide_password(plan.url)} is damaged: {why}") from error


def _connect(plan: Plan) -> optuna.storages.RDBStorage:
    # Several processes may write to one SQLite file; each waits for its turn.
    patience = {"connect_args": {"timeout": 60}} if plan.url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(plan.url, engine_kwargs=patience)
    except (ValueError, LookupError, RuntimeError) as error:
        raise BadInput(unreachable(plan, error)) from error


def unreachable(plan: Plan, error: Exception) -> str:
    """One line about a storage that failed."""
    why = str(error.__cause__ or error).partition("\n")[0]
    return f"the storage {hide_password(plan.url)} cannot be used: {why}"


def hide_password(url: str) -> str:
    """A storage's URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return url


def _check_plan(plan: Plan, study: optuna.Study) -> None:
    """Store the plan and the first trial of a new study, or compare with the stored plan."""
    names = sorted(plan.searched)
    entries = plan.fixed() | {"search": " ".join(names)}
    entries["ranges"] = str({name: search_ranges[name] for name in names})  # versions may differ
    if "plan" not in study.user_attrs:
        study.set_user_attr("plan", entries)
    stored = study.user_attrs["plan"]
    if not isinstance(stored, dict):
        raise BadInput(f"the study of {plan.out} has no plan; choose another with --out")
    # A study of an earlier version lacks the knobs that are new: it has their defaults.
    stored = dataclasses.replace(plan, base=Config()).fixed() | stored
    for name, value in entries.items():
        if stored.get(name) != value:
            has = f"the study of {plan.out} has {stored.get(name)}"
            raise BadInput(f"{name} is {value}, and {has}; choose another with --out")
    if not study.get_trials(deepcopy=False):
        # The first trial is the start itself: no search ends worse.
        study.enqueue_trial({name: plan.fixed()[name] for name in plan.searched})
