import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.commands import TINY_FLAGS, assert_refused, wait_for_step
from helpers.runs import TINY, read_json, same_bits, same_bits_and_records, t3d_process
from t3d.cli import say
from t3d.cli.main import COMMANDS, main
from t3d.run.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    t3d.train("Pendulum-v1", run=path, quiet=True, **TINY)
    return path


def test_train_says_the_score_the_files_and_what_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert main(["train", "Pendulum-v1", *TINY_FLAGS, "--run", str(path)]) == 0
    output = capsys.readouterr().out
    assert re.search(
        r"Score: -[\d,.]+ ± [\d,.]+, best agent \(of step \d+\), 10 test episodes \(seed 0\)",
        output,
    )
    assert "step 60 of 60" in output  # plain lines, as this is no terminal
    assert "\x1b" not in output
    for name in ("curve.png", "curve.svg", "episode.mp4", "episode.gif"):
        assert (path / name).stat().st_size > 1000
    assert f"t3d eval {path}" in output
    # The score is what the command for it prints.
    assert main(["eval", str(path), "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert f"Score: {score['mean']:,.1f}" in output
    # The preset of the environment, but for what was typed.
    knobs = read_json(path / "config.json")
    assert knobs["tau"] == 0.01
    assert knobs["hidden"] == [8, 8]


def test_minutes_and_watchers_stop_a_run_and_resume_continues_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    words = [*TINY_FLAGS, "--no-video", "--run", str(path)]
    assert main(["train", "Pendulum-v1", *words, "--minutes", "0"]) == 0
    assert "StopAfter stops the run: 0 minutes are over" in capsys.readouterr().out
    never = [*words[:-1], str(tmp_path / "never"), "--eval-every", "0", "--minutes", "0"]
    assert main(["train", "Pendulum-v1", *never]) == 0
    assert "never --episodes 100 --agent last " in capsys.readouterr().out
    assert RunFolder(path).score() is not None
    resume = ["resume", str(path), "--no-video", "--watcher", "t3d:StopAtReturn", "goal=-1e9"]
    assert main(resume) == 0
    output = capsys.readouterr().out
    assert "StopAtReturn stops the run: a mean return of" in output
    assert f"saved; resume with: t3d resume {path} --watcher t3d:StopAtReturn goal=-1e9\n" in output
    assert main(resume[:3]) == 0
    assert t3d.inspect(path)["step"] == 60


def test_a_watcher_that_raises_shows_its_own_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "import t3d\n\nclass Broken(t3d.Watcher):\n    def on_step(self, step):\n        step / 0\n"
    )
    (tmp_path / "broken_watcher.py").write_text(code)
    words = ["train", "Pendulum-v1", *TINY_FLAGS, "--no-video", "--run", "run"]
    assert main([*words, "--watcher", "broken_watcher:Broken"]) == 2
    *traceback, last = capsys.readouterr().err.splitlines()
    assert last.startswith("t3d: watcher Broken, on_step() raised ZeroDivisionError: division by")
    again = "t3d resume run --watcher broken_watcher:Broken"
    assert last.endswith(f"saved at step 1, resume with: {again}")
    assert traceback[0] == "Traceback (most recent call last):"
    assert "    step / 0" in traceback
    assert t3d.inspect("run")["step"] == 1


def test_an_error_of_a_ready_watcher_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "Pendulum-v1", *TINY_FLAGS, "--no-video", "--run", str(tmp_path / "run")]
    assert main([*words, "--watcher", "t3d:StopAtSuccess", "rate=0.9"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the environment reports no success" in line


def test_after_a_signal_the_command_to_resume_has_the_watchers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import signal, t3d\n\nclass Rings(t3d.Watcher):\n    def on_step(self, step):\n"
    (tmp_path / "rings.py").write_text(f"{code}        signal.raise_signal(signal.SIGTERM)\n")
    words = ["train", "Pendulum-v1", *TINY_FLAGS, "--no-video", "--run", "run"]
    assert main([*words, "--watcher", "rings:Rings"]) == 143
    *_, last = capsys.readouterr().out.splitlines()
    assert last.endswith("resume run --watcher rings:Rings")


def test_a_watcher_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    words = ["train", "Pendulum-v1", *TINY_FLAGS, "--run", str(path)]
    assert_refused([*words, "--watcher", "t3d:Config"], "a watcher is a Config; expected", capsys)
    assert_refused([*words, "--minutes", "soon"], "--minutes is 'soon'; expected a number", capsys)
    assert_refused([*words, "--minutes", "-1"], "minutes is -1", capsys)
    refused = "--minutes and --watcher follow one run; train without --seeds"
    assert_refused([*words, "--minutes", "1", "--seeds", "2"], refused, capsys)
    assert not path.exists()


def test_train_with_seeds_trains_them_in_parallel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "Pendulum-v1", *TINY_FLAGS, "--seed", "3"]
    assert main([*words, "--seeds", "2", "--run", str(tmp_path / "seeds")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^Pendulum-v1 +2 +-[\d,.]+ +-[\d,.]+ to -[\d,.]+$", output, re.M)
    assert (tmp_path / "seeds" / "curves.png").stat().st_size > 1000
    runs = sorted(path.name for path in (tmp_path / "seeds").iterdir() if path.is_dir())
    assert runs == ["Pendulum-v1-seed3", "Pendulum-v1-seed4"]
    for name in runs:
        alone = [*words, "--seed", name[-1], "--run", str(tmp_path / name), "--no-video"]
        assert main(alone) == 0
        assert same_bits(tmp_path / name, tmp_path / "seeds" / name)
        score = [read_json(path / name / "score.json") for path in (tmp_path, tmp_path / "seeds")]
        assert score[0] == score[1]


def test_eval_gives_mean_std_and_each_episode(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["eval", str(run), "--episodes", "3", "--seed", "1", "--json"])
    score = json.loads(capsys.readouterr().out)
    assert score["mean"] == pytest.approx(sum(score["returns"]) / 3)
    assert len(score["returns"]) == 3
    assert score["std"] > 0
    main(["eval", str(run), "--episodes", "3", "--seed", "1"])
    output = capsys.readouterr().out
    assert f"mean {score['mean']:,.2f}" in output
    assert output.count("episode ") == 3
    main(["eval", str(run), "--episodes", "3", "--seed", "1", "--json", "--eval-envs", "2"])
    assert json.loads(capsys.readouterr().out) == score
    main(["eval", str(run), "--episodes", "3", "--seed", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["returns"] != score["returns"]


def test_compare_prints_a_table_or_json_and_keeps_both_with_a_picture(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    t3d.train("Pendulum-v1", run=other, quiet=True, **(TINY | {"tau": 0.5, "seed": 1}))
    assert main(["compare", f"mine={run}", "other"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("other against mine: not significantly different") for line in output
    )
    assert output[-3:] == ["runs/compare.png", "runs/compare.svg", "runs/compare.json"]
    assert main(["compare", f"mine={run}", "other", "--json", "--out", "it"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison == read_json(tmp_path / "it.json") == read_json(Path("runs/compare.json"))
    assert list(comparison["groups"]) == ["mine", "other"]
    evaluations = [RunFolder(path).records(t3d.Evaluation) for path in (run, other)]
    finals = [list(each)[-1].mean for each in evaluations]
    means = [group["mean"]["value"] for group in comparison["groups"].values()]
    assert means == pytest.approx(finals)
    assert main(["compare", f"mine={run}", "other", "--out", "/proc/no/it"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "/proc/no/it.json cannot be written" in err


def test_presets_lists_all_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    output = capsys.readouterr().out
    for word in ("paper-2018", "author-2020", "Pendulum-v1", "--hidden 400 300"):
        assert word in output


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"t3d {t3d.__version__}\n"
    assert main([]) == 0
    output = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command} " in output


def test_python_dash_m_is_the_command(tmp_path: Path) -> None:
    words = ["train", *TINY_FLAGS, "--steps", "10", "--run", "run", "--no-video"]
    done = subprocess.run(
        [sys.executable, "-m", "t3d", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # What the run records can be typed again, whatever it was started by.
    assert RunFolder(tmp_path / "run").about()["command"] == shlex.join(["t3d", *words])
    refused = subprocess.run([sys.executable, "-m", "t3d", "trian"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr == "t3d: no command is called 'trian'; did you mean 'train'?\n"


def test_what_to_type_next_works_without_t3d_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/elsewhere/pytest"])
    assert say.t3d() == "t3d"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/t3d")])
    assert say.t3d() == ".venv/bin/t3d"
    monkeypatch.setattr("sys.argv", ["t3d"])  # as __main__ sets it
    assert say.t3d() == f"{Path(sys.executable).name} -m t3d"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "no command is called 'trian'; did you mean 'train'?"),
        ("train Pendlum-v1", "did you mean 'Pendulum-v1'?"),
        ("train CartPole-v1", "has Discrete actions"),
        (
            "train CarRacing-v3 --preset default --capacity 999999999 --steps 999999999",
            "the replay memory would take 2.77e+04 GB;",
        ),
        ("train nowhere:Env-v0", "no module 'nowhere'"),
        ("train --tua 0.1", "train has no option '--tua'; did you mean '--tau'?"),
        ("train --tau 7", "tau is 7.0; expected a number above 0 and at most 1"),
        ("train --tau much", "tau is 'much'; expected a number above 0 and at most 1"),
        ("train --steps 1.5", "steps is 1.5; expected a whole number at least 1"),
        ("train --hidden", "--hidden needs a value: --hidden N ..."),
        ("train --actor-hidden", "--actor-hidden needs a value: --actor-hidden N ..."),
        ("train --track", "--track needs a value: wandb, trackio, mlflow"),
        ("train Pendulum-v1 --log-info a b", "the values of --log-info have commas between them"),
        ("train --env-kwargs g=5 g=6", "env_kwargs has g twice; give it once"),
        (
            "train --env-kwargs g=5 Pendulum-v1",
            "an environment goes first: t3d train Pendulum-v1 --env-kwargs ...",
        ),
        ("train --engine warp", "engine is 'warp'; expected one of: auto, reference, fused"),
        ("train --preset papr-2018", "no preset is called 'papr-2018'; did you mean 'paper-2018'"),
        ("train --device cuda:9", "device 'cuda:9' cannot be used"),
        ("train --device gpu", "device 'gpu' cannot be used"),
        ("train --run .", "run folder . exists"),
        ("train Pendulum-v1 Hopper-v5", "train: 'Hopper-v5' is one argument too many"),
        ("train --preset no.toml", "no.toml cannot be read: No such file or directory"),
        ("train --preset ./paper-2018", "paper-2018 cannot be read: No such file"),
        ("tune Pendlum-v1", "did you mean 'Pendulum-v1'?"),
        ("tune --preset no.toml", "no.toml cannot be read: No such file or directory"),
        ("tune --trials 0", "trials is 0; expected at least 1"),
        ("tune --search tua", "tua is no knob; did you mean 'tau'?"),
        ("tune --search seed", "seed has no range to search; expected some of: "),
        ("tune --search tau --tau 0.1", "tau has a fixed value; leave out --tau"),
        ("tune --search learning-rate --learning-rate=1", "learning_rate has a fixed value"),
        ("tune --storage nonsense", "the storage nonsense cannot be used: Could not parse"),
        ("tune --storage sqlite:////no/where.db", "cannot be used: unable to open database file"),
        ("tune --out /proc/no/tune", "/proc/no/tune cannot be written"),
        ("tune --out RUN", "exists and is not the folder of a search; choose another with --out"),
        ("tune --device gpu", "device 'gpu' cannot be used"),
        ("resume RUN --steps many", "--steps is 'many'; expected a whole number (t3d resume --h"),
        (
            "resume RUN --steps 99 --threads 9999",
            "threads is 9999; expected a whole number at least 0 and",
        ),
        ("resume nowhere", "no run folder at nowhere"),
        ("resume", "resume needs a run folder: t3d resume RUN"),
        ("eval nowhere", "no run folder at nowhere"),
        ("eval .", ". is not a run folder: it has no config.json"),
        ("eval RUN --episodes 0", "episodes is 0; expected at least 1"),
        ("eval RUN --seed -1", "seed is -1; expected at least 0"),
        (
            "eval RUN --agent worst",
            "--agent is 'worst'; expected one of: best, last (t3d eval --help)",
        ),
        ("record nowhere", "no run folder at nowhere"),
        ("record RUN --out /proc/no/video", "cannot be written"),
        ("plot", "plot needs one or more run folders: t3d plot RUN [RUN ...]"),
        ("plot nowhere", "no run folder at nowhere"),
        ("plot RUN --out /proc/no/curve", "cannot be written"),
        ("compare", "compare needs folders of runs, runs, or LABEL=FOLDER: t3d compare GROUP"),
        ("compare nowhere RUN", "no folder at nowhere"),
        ("compare RUN", "is one run; name a second run or folder to compare it with"),
        ("compare RUN RUN", "is given twice"),
        ("check", "check needs a run folder: t3d check RUN"),
        ("check nowhere", "no run folder at nowhere"),
        ("check .", ". is not a run folder: it has no config.json"),
        ("check RUN", "max_episode_steps is 15, the known runs have 0: its steps and returns"),
        ("check RUN RUN", "' is one argument too many (t3d check --help)"),
        ("train --seeds 0", "seeds is 0; expected at least 1"),
        ("sweep", "sweep needs a TOML file, the folder of a sweep, or environments: t3d sweep"),
        ("sweep nowhere.toml", "nowhere.toml cannot be read: No such file"),
        ("sweep RUN", "is not the folder of a sweep: it has no sweep.json"),
        ("sweep Pendlum-v1", "did you mean 'Pendulum-v1'?"),
        ("sweep Pendulum-v1 CartPole-v1", "has Discrete actions"),
        ("sweep Pendulum-v1 --sets a=1", "sweep has no option '--sets'; did you mean '--set'?"),
        ("sweep Pendulum-v1 --set tua=1", "unknown knob 'tua'; did you mean 'tau'?"),
        ("sweep Pendulum-v1 --set tau", "--set 'tau'; expected KNOB=VALUE"),
        ("sweep Pendulum-v1 --set tau=0.1,7", "tau is 7; expected a number above 0"),
        ("sweep Pendulum-v1 --set device=cuda:9", "device 'cuda:9' cannot be used"),
        ("sweep Pendulum-v1 --seeds 0", "seeds is 0; expected their number, at least 1"),
        ("sweep Pendulum-v1 --seeds 5,5", "seeds is [5, 5]; expected each seed once"),
        ("sweep Pendulum-v1 --jobs 0", "jobs is 0; expected at least 1"),
        ("sweep RUN --seeds 2", "says what to sweep; leave out --seeds"),
        ("sweep Pendulum-v1 --ray nowhere", "no Ray cluster at nowhere: Invalid address"),
        ("sweep Pendulum-v1 --ray localhost:9", "no Ray cluster at localhost:9: "),
        ("presets all", "presets: 'all' is one argument too many"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: str,
    message: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(run) if word == "RUN" else word for word in words.split()]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("t3d: ")
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_broken_environment_is_one_line_and_exit_code_2(tmp_path: Path, backend: str) -> None:
    words = ["train", "helpers.broken_envs:NanObservation", *TINY_FLAGS, "--env-backend", backend]
    trainer = t3d_process(*words, "--eval-every", "0", "--run", "run", cwd=tmp_path)
    _, err = trainer.communicate(timeout=300)
    assert trainer.returncode == 2
    assert "environment 0 (helpers.broken_envs:NanObservation)" in err
    assert "step 3: observation[1] is nan" in err
    assert err.count("\n") == 1


def test_a_dead_environment_process_ends_the_run_saved_and_named(tmp_path: Path) -> None:
    flags = [*TINY_FLAGS, "--steps", "100000", "--num-envs", "2"]
    flags += ["--env-backend", "processes"]
    flags += ["--env-restarts", "0"]
    trainer = t3d_process("train", *flags, "--run", "run", cwd=tmp_path)
    run = tmp_path / "run"
    wait_for_step(run, 100, trainer)
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(trainer.pid)],
        capture_output=True,
        text=True,
    )
    workers = [line.split()[0] for line in listed.stdout.splitlines() if "spawn_main" in line]
    assert len(workers) == 3  # the first is for evaluations
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, err = trainer.communicate(timeout=300)
    assert trainer.returncode == 2
    assert re.search(r"the process of environment [01] died \(SIGKILL\); saved at step", err)
    assert err.count("\n") == 1
    assert t3d.inspect(run)["step"] >= 100


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    trainer = t3d_process("train", *TINY_FLAGS, "--run", "run", "--no-video", cwd=tmp_path)
    with trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        trainer.stdout.close()
        assert trainer.wait(timeout=300) == 0
    assert t3d.inspect(tmp_path / "run")["step"] == 60


@pytest.mark.parametrize(
    ("sent", "code", "more"),
    [
        (signal.SIGINT, 130, []),
        (signal.SIGTERM, 143, ["--num-envs", "2", "--env-backend", "processes"]),
        pytest.param(
            *(signal.SIGINT, 130, ["--collectors", "2", "--staleness", "0"]),
            marks=[
                pytest.mark.xdist_group("ray"),
                pytest.mark.filterwarnings("ignore::ResourceWarning"),
            ],
        ),
    ],
)
def test_a_signal_saves_and_the_run_resumes_to_the_same_end(
    tmp_path: Path, sent: signal.Signals, code: int, more: list[str]
) -> None:
    flags = [*TINY_FLAGS, *more, "--steps", "1500", "--no-video", "--checkpoint-every", "0"]
    flags += ["--eval-every", "500"]
    run = tmp_path / "stopped"
    trainer = t3d_process("train", *flags, "--run", str(run), cwd=tmp_path)
    wait_for_step(run, 200, trainer)
    trainer.send_signal(sent)
    out, err = trainer.communicate(timeout=300)
    assert trainer.returncode == code, err
    assert f"Stopped and saved. Resume with: t3d resume {run}" in out
    assert err == ""
    stopped_at = RunFolder(run).newest_checkpoint()
    assert stopped_at is not None
    assert stopped_at.name < "step-000000001500"

    assert main(["resume", str(run), "--no-video"]) == 0
    uninterrupted = tmp_path / "uninterrupted"
    if "--collectors" in more:  # in lock-step it is the local run: there is no need for Ray again
        flags = [*flags, "--num-envs", "2", "--collectors", "None"]
    assert main(["train", *flags, "--run", str(uninterrupted)]) == 0
    assert same_bits_and_records(run, uninterrupted)


def test_a_signal_before_the_first_step_saves_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def glance(*_: Any) -> list[str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    monkeypatch.setattr("t3d.run.doctor.glance", glance)
    run = tmp_path / "run"
    assert main(["train", *TINY_FLAGS, "--run", str(run)]) == 143
    assert f"Stopped and saved. Resume with: t3d resume {run}" in capsys.readouterr().out
    assert t3d.inspect(run)["step"] == 0


def test_a_run_that_was_stopped_before_its_score_gets_it_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def stopped(run: Path, **_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("t3d.run.finish.evaluate", stopped)
        assert main(["train", *TINY_FLAGS, "--run", str(run), "--no-video"]) == 130
    assert (
        f"scoring was interrupted. To score the agent: t3d resume {run}" in capsys.readouterr().out
    )
    assert RunFolder(run).score() is None
    before = t3d.inspect(run)["digest"]

    assert main(["resume", str(run), "--no-video"]) == 0
    assert "Score: " in capsys.readouterr().out
    assert RunFolder(run).score() is not None
    assert t3d.inspect(run)["digest"] == before
    assert main(["resume", str(run), "--no-video"]) == 2
    assert "is finished at step 60; train it further with --steps 120" in capsys.readouterr().err


@pytest.mark.parametrize(("engine", "bit_exact"), [("fused", True), ("reference", False)])
def test_resume_takes_another_number_of_threads(
    tmp_path: Path, engine: str, bit_exact: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fused engine gives the same bits with any number; of the reference, the run says so."""
    short, uninterrupted = tmp_path / "short", tmp_path / "uninterrupted"
    knobs = TINY | {"engine": engine}
    t3d.train("Pendulum-v1", run=short, quiet=True, **(knobs | {"steps": 30}))
    resumed = ["resume", str(short), "--steps", "60", "--threads", "2", "--no-video"]
    assert main(resumed) == 0
    assert RunFolder(short).config().threads == 2
    assert t3d.inspect(short)["bit_exact"] is bit_exact
    output = capsys.readouterr().out
    if bit_exact:
        t3d.train("Pendulum-v1", run=uninterrupted, quiet=True, **knobs)
        assert same_bits(short, uninterrupted)
    else:
        assert "threads was 1, is 2; from here on the run is not bit-exact" in output
