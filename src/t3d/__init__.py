"""T3D: Twin Delayed Deep Deterministic policy gradient (TD3), to read, trust, run and use.

The public names are here, flat. Each is imported when it is first used, so that
`import t3d` and `t3d --help` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t3d.api import evaluate as evaluate
    from t3d.api import inspect as inspect
    from t3d.api import load as load
    from t3d.api import make_env as make_env
    from t3d.api import resume as resume
    from t3d.api import train as train
    from t3d.base.errors import BadInput as BadInput
    from t3d.base.errors import BrokenAgent as BrokenAgent
    from t3d.base.errors import BrokenEnvironment as BrokenEnvironment
    from t3d.base.errors import BrokenWatcher as BrokenWatcher
    from t3d.base.errors import CannotWrite as CannotWrite
    from t3d.base.errors import Diverged as Diverged
    from t3d.base.errors import RunFailed as RunFailed
    from t3d.base.errors import T3DError as T3DError
    from t3d.config import Config as Config
    from t3d.learn.agent import Agent as Agent
    from t3d.learn.fused.agent import FusedT3D as FusedT3D
    from t3d.learn.networks import Actor as Actor
    from t3d.learn.networks import Critic as Critic
    from t3d.learn.perception import Batch as Batch
    from t3d.learn.replay.memory import ReplayBuffer as ReplayBuffer
    from t3d.learn.t3d import T3D as T3D
    from t3d.learn.td7 import TD7 as TD7
    from t3d.run.ready import Curriculum as Curriculum
    from t3d.run.ready import LearningRateSchedule as LearningRateSchedule
    from t3d.run.ready import SaveAgents as SaveAgents
    from t3d.run.ready import StopAfter as StopAfter
    from t3d.run.ready import StopAtReturn as StopAtReturn
    from t3d.run.ready import StopAtSuccess as StopAtSuccess
    from t3d.run.ready import StopWithoutImprovement as StopWithoutImprovement
    from t3d.run.records import Episode as Episode
    from t3d.run.records import Evaluation as Evaluation
    from t3d.run.records import Training as Training
    from t3d.run.start import Start as Start
    from t3d.run.watchers import Watcher as Watcher
    from t3d.show.live import LiveCurve as LiveCurve

__version__ = "0.1.0"

_HOME = {
    "train": "t3d.api",
    "resume": "t3d.api",
    "inspect": "t3d.api",
    "load": "t3d.api",
    "evaluate": "t3d.api",
    "make_env": "t3d.api",
    "Config": "t3d.config",
    "T3DError": "t3d.base.errors",
    "Agent": "t3d.learn.agent",
    "BadInput": "t3d.base.errors",
    "CannotWrite": "t3d.base.errors",
    "RunFailed": "t3d.base.errors",
    "Diverged": "t3d.base.errors",
    "BrokenAgent": "t3d.base.errors",
    "BrokenEnvironment": "t3d.base.errors",
    "BrokenWatcher": "t3d.base.errors",
    "FusedT3D": "t3d.learn.fused.agent",
    "Actor": "t3d.learn.networks",
    "Critic": "t3d.learn.networks",
    "Batch": "t3d.learn.perception",
    "ReplayBuffer": "t3d.learn.replay.memory",
    "T3D": "t3d.learn.t3d",
    "TD7": "t3d.learn.td7",
    "Curriculum": "t3d.run.ready",
    "LearningRateSchedule": "t3d.run.ready",
    "SaveAgents": "t3d.run.ready",
    "StopAfter": "t3d.run.ready",
    "StopAtReturn": "t3d.run.ready",
    "StopAtSuccess": "t3d.run.ready",
    "StopWithoutImprovement": "t3d.run.ready",
    "Episode": "t3d.run.records",
    "Evaluation": "t3d.run.records",
    "Training": "t3d.run.records",
    "Start": "t3d.run.start",
    "Watcher": "t3d.run.watchers",
    "LiveCurve": "t3d.show.live",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "TD3":  # an AttributeError would lose its text in `from t3d import TD3`
        raise ImportError("t3d has no TD3; the author's class is t3d.notes.TD3, T3D's own t3d.T3D")
    if name not in _HOME:
        raise AttributeError(f"module 't3d' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
