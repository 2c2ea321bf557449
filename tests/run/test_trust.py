import json
import os
import pty
import select
import sys
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers import broken_envs
from helpers.runs import trained
from t3d.cli.main import main
from t3d.run import trust
from t3d.run.folder import RunFolder

MODULE = """
from pathlib import Path
import gymnasium
Path("mark").touch()
def make(**more): return gymnasium.make("Pendulum-v1", **more)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run by somebody else, with the module that it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_granted", set())
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    (tmp_path / "strange.py").write_text(MODULE)
    run = trained(tmp_path / "run", steps=30)
    config = run / "config.json"
    config.write_text(config.read_text().replace("Pendulum-v1", "strange:make"))
    return run


def test_without_a_terminal_the_code_of_a_stranger_is_refused_and_named(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(stranger)]) == 2
    source = stranger.parent / "strange.py"
    expected = f"{stranger} names the environment strange:make, which runs {source}"
    assert capsys.readouterr().err == f"t3d: {expected}; if you trust it, add --trust\n"
    assert "strange" not in sys.modules
    with pytest.raises(t3d.BadInput, match="if you trust it, pass trust=True, or the object"):
        t3d.evaluate(stranger)
    assert t3d.evaluate(stranger, env="Pendulum-v1", episodes=1).mean < 0
    assert not Path("mark").exists()


def test_an_agents_file_of_a_stranger_is_refused_as_the_folder_is(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stranger.parent / "agent.safetensors"
    t3d.T3D(3, [-2.0], [2.0], t3d.Config(env="strange:make", hidden=(4,))).save(file)
    assert main(["eval", str(file), "--episodes", "1"]) == 2
    expected = f"{file} names the environment strange:make, which runs "
    assert expected in capsys.readouterr().err
    assert main(["eval", str(file), "--episodes", "1", "--env", "Pendulum-v1"]) == 0
    assert not Path("mark").exists()
    assert main(["eval", str(file), "--episodes", "1", "--trust"]) == 0
    assert Path("mark").exists()


@pytest.mark.parametrize(
    ("knob", "value", "role"),
    [
        ("wrap", ["strange:Wrapper", "factor=2"], "wrapper strange:Wrapper"),
        ("eval_env", "strange:make", "environment strange:make"),
        ("env_kwargs", {"env_id": ["strange:make"]}, "argument strange:make"),
        ("eval_env_kwargs", {"env_id": "strange:make"}, "argument strange:make"),
        ("wrap", ["t3d.run:x", "of=strange:make"], "wrapper t3d.run:x"),
    ],
)
def test_the_wrappers_variants_and_arguments_of_a_stranger_are_refused_and_named(
    stranger: Path, capsys: pytest.CaptureFixture[str], knob: str, value: Any, role: str
) -> None:
    path = stranger / "config.json"
    config = json.loads(path.read_text()) | {"env": "Pendulum-v1", knob: value}
    path.write_text(json.dumps(config))
    for command in ("eval", "record", "resume"):
        assert main([command, str(stranger)]) == 2
        assert f"{stranger} names the {role}, which runs " in capsys.readouterr().err
    with pytest.raises(t3d.BadInput, match=f"names the {role}, which runs "):
        t3d.evaluate(stranger)
    if not knob.startswith("eval"):
        with pytest.raises(t3d.BadInput, match=f"names the {role}, which runs "):
            t3d.make_env(stranger)
    assert t3d.load(stranger, which="last").config.env == "Pendulum-v1"
    assert not Path("mark").exists()


def test_what_is_trusted_once_is_not_asked_for_again(stranger: Path) -> None:
    assert main(["eval", str(stranger), "--episodes", "1", "--trust"]) == 0
    assert Path("mark").exists()
    trust._granted.clear()
    assert main(["eval", str(stranger), "--episodes", "1"]) == 0
    with t3d.make_env(stranger) as env:
        assert env.name == "strange:make"
    # It is the name and the file that are trusted: neither another name nor another file.
    config = stranger / "config.json"
    config.write_text(config.read_text().replace("strange:make", "strange:Path"))
    assert main(["eval", str(stranger)]) == 2
    config.write_text(config.read_text().replace("strange:Path", "strange:make"))
    trust._granted.clear()
    del sys.modules["strange"]
    Path("elsewhere").mkdir()
    Path("strange.py").rename("elsewhere/strange.py")
    os.chdir("elsewhere")
    assert main(["eval", str(stranger)]) == 2


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 2), (b"\n", 2), (b"\x04", 2)])
def test_on_a_terminal_the_user_is_asked(
    stranger: Path, answer: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard, terminal = pty.openpty()
    with open(os.dup(terminal)) as stdin, open(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", stderr)
        os.write(keyboard, answer)
        assert main(["eval", str(stranger), "--episodes", "1"]) == code
        stderr.flush()
        question = f"which runs {stranger.parent / 'strange.py'}. Do you trust it? [y/N]"
        shown = ""  # a read returns what is there: it may be the echo of the answer alone
        while question not in shown and select.select([keyboard], [], [], 10)[0]:
            shown += os.read(keyboard, 10_000).decode()
    os.close(keyboard)
    assert question in shown
    assert Path("mark").exists() == (code == 0)


def test_what_was_trained_here_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_granted", set())
    run = trained(tmp_path / "run", broken_envs.Calm, steps=30)
    trust._granted.clear()
    assert RunFolder(run).config().env == "helpers.broken_envs:Calm"
    assert len(t3d.evaluate(run, episodes=1).returns) == 1


def test_where_nothing_can_be_remembered_training_and_its_score_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_granted", set())
    run = trained(tmp_path / "run", broken_envs.Calm, steps=30)
    assert len(t3d.evaluate(run, episodes=1).returns) == 1
