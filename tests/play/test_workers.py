import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.broken_envs import Calm
from t3d import Config, T3DError
from t3d.base.errors import BadInput, BrokenEnvironment
from t3d.play.envs import EnvMaker
from t3d.play.vector import Environments
from t3d.play.workers import Workers


def test_a_process_that_hangs_is_restarted_up_to_a_limit() -> None:
    config = Config(num_envs=2, env_backend="processes", env_deadline=1.0, env_restarts=1)
    environments = Environments(EnvMaker("helpers.broken_envs:Stuck", config))
    try:
        environments.reset()
        first = environments.state.copy()
        assert environments.step(np.zeros((2, 2), np.float32)).lost == []
        steps = environments.step(np.zeros((2, 2), np.float32))
        assert steps.lost == [0, 1]
        assert [why for _, why in environments.vector.take_restarts()] == [
            "did not answer within 1 s"
        ] * 2
        assert environments.episode.tolist() == [1, 1]
        assert (environments.state != first).any(axis=1).all()
        environments.step(np.zeros((2, 2), np.float32))
        with pytest.raises(T3DError, match="environment 0 did not answer within 1 s, after 1 rest"):
            environments.step(np.zeros((2, 2), np.float32))
    finally:
        environments.close()


def test_a_process_that_cannot_be_restarted_is_a_broken_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_ONCE", str(tmp_path / "made"))
    config = Config(num_envs=1, env_backend="processes", env="helpers.broken_envs:MadeOnce")
    environments = Environments(EnvMaker("helpers.broken_envs:MadeOnce", config))
    try:
        environments.reset()
        vector = environments.vector
        assert isinstance(vector, Workers)
        vector.processes[0].kill()
        with pytest.raises(BrokenEnvironment, match=r"died \(SIGKILL\), and cannot be restarted"):
            environments.step(np.zeros((1, 2), np.float32))
    finally:
        environments.close()


def test_an_environment_that_cannot_be_sent_to_a_process_is_refused() -> None:
    maker = EnvMaker(lambda: Calm(), Config(env_backend="processes"))
    with pytest.raises(BadInput, match="cannot be sent to a process of its own: "):
        Workers(maker, [0])


def test_a_script_without_a_main_is_told_to_have_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from t3d import Config\n"
        "from t3d.play.envs import EnvMaker\n"
        "from t3d.play.workers import Workers\n"
        "Workers(EnvMaker('Pendulum-v1', Config(env_backend='processes')), [0])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "BadInput: a process of an environment imports this script, which" in done.stderr
    assert 'put the training of the script below: if __name__ == "__main__":' in done.stderr
    assert "bootstrapping phase" not in done.stderr
