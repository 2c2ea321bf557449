import subprocess
import sys

import t3d


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
        "Diverged",
        "Episode",
        "Evaluation",
        "FusedT3D",
        "ReplayBuffer",
        "RunFailed",
        "T3D",
        "T3DError",
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
    }
    assert not heavy & loaded_by("import t3d")
    assert not heavy & loaded_by("from t3d.cli.main import main; main(['--help'])")
    assert not heavy & loaded_by("from t3d.cli.main import main; main(['--version'])")


def test_the_learner_loads_no_optional_part() -> None:
    optional = {"gymnasium", "matplotlib", "imageio_ffmpeg", "PIL", "tensorboard", "rich"}
    assert not optional & loaded_by("import t3d; t3d.T3D; t3d.ReplayBuffer")


def test_training_loads_nothing_of_other_commands() -> None:
    assert not {"optuna", "ray"} & loaded_by("import t3d; t3d.train; t3d.load")
