import subprocess
import sys
from pathlib import Path

import pytest

import t3d
from helpers.runs import TINY


def test_the_public_names_are_these() -> None:
    expected = {
        "Actor",
        "Agent",
        "BadInput",
        "Batch",
        "BrokenAgent",
        "BrokenEnvironment",
        "BrokenWatcher",
        "CannotWrite",
        "Config",
        "Critic",
        "Curriculum",
        "Diverged",
        "Episode",
        "Evaluation",
        "FusedT3D",
        "LearningRateSchedule",
        "LiveCurve",
        "ReplayBuffer",
        "RunFailed",
        "SaveAgents",
        "Start",
        "StopAfter",
        "StopAtReturn",
        "StopAtSuccess",
        "StopWithoutImprovement",
        "T3D",
        "T3DError",
        "TD7",
        "Training",
        "Watcher",
        "__version__",
        "evaluate",
        "inspect",
        "load",
        "make_env",
        "resume",
        "train",
    }
    assert set(t3d.__all__) == expected
    for name in t3d.__all__:
        assert getattr(t3d, name) is not None


def loaded_by(code: str) -> set[str]:
    probe = f"{code}\nimport sys\nprint('LOADED', *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_import_and_help_load_nothing_heavy() -> None:
    heavy = {
        "torch",
        "gymnasium",
        "matplotlib",
        "imageio_ffmpeg",
        "PIL",
        "mujoco",
        "numpy",
        "numba",
        "optuna",
        "ray",
        "mlflow",
        "trackio",
        "wandb",
    }
    assert not heavy & loaded_by("import t3d")
    assert not heavy & loaded_by("from t3d.cli.main import main; main(['--help'])")
    assert not heavy & loaded_by("from t3d.cli.main import main; main(['--version'])")


def test_training_says_something_before_it_loads_anything_heavy() -> None:
    for words in (["train", "Pendulum-v1", "--steps", "1e4"], ["resume", "runs/none"]):
        start = "import sys; sys.modules.update(dict.fromkeys(['gymnasium', 'numpy']))"
        code = f"{start}; from t3d.cli.main import main; main({words})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 1  # those are not to be imported
        what = "Pendulum-v1, 10,000 steps" if words[0] == "train" else "runs/none"
        assert done.stdout == f"{what}: loading PyTorch ...\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("doctor", "Pendulum-v1"),
        ("doctor --json", "Pendulum-v1"),
        ("eval runs/none", "runs/none"),
        ("eval runs/none --json", "runs/none"),
        ("record runs/none", "runs/none"),
        ("tune --trials 3", "Pendulum-v1, 3 trials"),
        ("sweep Pendulum-v1 Hopper-v5", "Pendulum-v1 Hopper-v5"),
    ],
)
def test_so_do_the_others_that_load_it_and_not_where_a_script_reads(line: str, what: str) -> None:
    start = "import sys; sys.modules.update(dict.fromkeys(['gymnasium', 'numpy']))"
    code = f"{start}; from t3d.cli.main import main; main({line.split()})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first = f"{what}: loading PyTorch ...\n"
    if line.split()[0] in ("tune", "sweep"):
        assert done.stdout == first
    else:
        assert done.stderr.startswith(first)
        assert done.stdout == ""


def test_the_learner_loads_no_optional_part() -> None:
    optional = {"gymnasium", "matplotlib", "imageio_ffmpeg", "PIL", "tensorboard", "rich"}
    assert not optional & loaded_by("import t3d; t3d.T3D; t3d.ReplayBuffer")


def test_training_loads_nothing_of_other_commands() -> None:
    others = {"optuna", "ray", "mlflow", "trackio", "wandb"}
    assert not others & loaded_by("import t3d; t3d.train; t3d.load")


def test_training_on_the_fast_engine_and_loading_load_no_more_of_pytorch_than_needed(
    tmp_path: Path,
) -> None:
    knobs = {**TINY, "engine": "fused", "quiet": True, "run": str(tmp_path / "run")}
    loaded = loaded_by(f"import t3d\nt3d.train(**{knobs})")
    assert "torch" in loaded
    assert not {"torch._dynamo", "sympy"} & loaded
