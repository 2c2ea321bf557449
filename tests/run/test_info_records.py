"""The environment's info in the records of a run."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.broken_envs import Calm
from helpers.runs import Recorder, in_memory, metrics_without_time, resumed, same_bits, trained
from helpers.telling_envs import Goals, Telling, Winner
from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.run.doctor import glance
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.tensorboard import TensorBoard


def test_episodes_and_evaluations_have_the_means_and_the_success() -> None:
    run = in_memory(Telling, engine="reference", num_envs=2, eval_episodes=2)
    episodes, evaluations = run.records.of("episode"), run.records.of("evaluation")
    assert len(episodes) == 12
    for line in (*episodes, *evaluations):
        assert line["info"].keys() == {"cost", "count", "near"}
        assert line["info"]["count"] == 3.0
    assert {line["success"] for line in episodes} == {0, 1}
    assert all(line["success"] in (0, 0.5, 1) for line in evaluations)


def test_the_rate_of_training_is_over_the_last_hundred_episodes() -> None:
    run = in_memory(
        Goals, engine="reference", steps=600, random_steps=600, log_every=50, eval_every=0
    )
    successes: list[int] = []
    for line in run.records.lines:
        if line["kind"] == "episode":
            successes.append(line["success"])
        if line["kind"] == "train":
            recent = successes[-100:]
            assert line["success_rate"] == pytest.approx(sum(recent) / len(recent))
    assert len(successes) == 120


def test_a_run_without_an_info_has_the_lines_that_it_always_had() -> None:
    for line in in_memory(Calm, engine="reference").records.lines:
        assert not {"info", "success", "success_rate"} & line.keys()


@pytest.mark.parametrize("steps", [28, 33, 40])
def test_a_resumed_run_has_the_same_means_and_rates(tmp_path: Path, steps: int) -> None:
    trained(tmp_path / "whole", Telling, num_envs=2, engine="reference")
    config = Config.from_dict(vars(RunFolder(tmp_path / "whole").config()))
    folder = RunFolder(tmp_path / "cut")
    with closing(Run.start(EnvMaker(Telling, config), folder, {})) as run:
        assert not run.loop(lambda: run.collector.steps >= steps)
    resumed(tmp_path / "cut", Telling)
    assert metrics_without_time(tmp_path / "cut") == metrics_without_time(tmp_path / "whole")
    assert same_bits(tmp_path / "cut", tmp_path / "whole")


def test_the_digest_does_not_depend_on_the_info(tmp_path: Path) -> None:
    digests = set()
    for name, choice in (("all", "all"), ("one", "cost"), ("none", "none")):
        run = trained(tmp_path / name, Telling, log_info=choice, engine="reference")
        digests.add(t3d.inspect(run)["digest"])
    assert len(digests) == 1
    lines = {name: metrics_without_time(tmp_path / name) for name in ("all", "one", "none")}
    assert lines["all"] != lines["one"] != lines["none"]


def test_a_changed_choice_is_recorded_and_counts_for_the_whole_episode(tmp_path: Path) -> None:
    config = Config.from_dict(
        vars(
            RunFolder(
                trained(tmp_path / "run", Telling, log_info="none", engine="reference")
            ).config()
        )
    )
    assert config.log_info == "none"
    resumed(tmp_path / "run", Telling, steps=90, log_info="count")
    changes = [line for line in RunFolder(tmp_path / "run").metrics() if line["kind"] == "change"]
    assert "log_info was none, is count" in [line["text"] for line in changes]
    *_, last = RunFolder(tmp_path / "run").records(t3d.Episode)
    assert last.info == {"count": 3.0}


class Wild(Calm):
    """An info with everything that no record can hold."""

    def step(self, action: Any) -> Any:
        info: dict[Any, Any] = {"big": 10**400, "nan": float("nan"), "array": np.ones(9), 3: 1}
        info |= {"large": 3e38, "\x1b[31m": 1, "x" * 10_000: 1, "turns": [1, "one"][self.count % 2]}
        info |= {f"many{i}": i for i in range(100)}
        return *super().step(action)[:4], info


def test_no_info_breaks_a_run_or_its_records(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder, folder = Recorder(), RunFolder(tmp_path / "run")
    config = Config(
        env="-", engine="reference", steps=30, random_steps=30, eval_every=0, eval_episodes=1
    )
    with closing(Run.start(EnvMaker(Wild, config), folder, {})) as run:
        for watcher in (recorder, TensorBoard()):
            run.watchers.append(watcher)
        assert run.loop()
    records = list(folder.records(t3d.Episode))
    assert [record.info for record in records] == [line["info"] for line in recorder.of("episode")]
    info = records[0].info
    assert len(info) == 30  # of 32 names, two never had a number that can be recorded
    assert (info["large"], info[r"\x1b[31m"], info["x" * 64], info["turns"]) == (3e38, 1, 1, 1)
    events = EventAccumulator(str(folder.tensorboard)).Reload()
    assert [e.value for e in events.Scalars("episode/info/many7")] == [7.0] * 6
    assert "evaluation/info/turns" in events.Tags()["scalars"]


def test_a_run_can_stop_at_a_success_rate() -> None:
    def stopped(source: Any, rate: float) -> str | None:
        config = Config(
            env="-", engine="reference", steps=30, random_steps=30, eval_every=10, eval_episodes=10
        )
        with closing(Run.start(EnvMaker(source, config))) as run:
            run.watchers.append(t3d.StopAtSuccess(rate))
            run.loop()
            return run.stopped_by.reason if run.stopped_by else None

    assert stopped(Winner, 0.95) == "a success rate of 100 %, the goal was 95 %"
    assert stopped(Goals, 0.95) is None
    with pytest.raises(
        t3d.BrokenWatcher, match=r"StopAtSuccess.*the environment reports no success"
    ):
        stopped(Calm, 0.95)
    for rate in (95, -0.1, "most"):
        with pytest.raises(t3d.BadInput, match=r"^rate is "):
            t3d.StopAtSuccess(rate)  # type: ignore[arg-type]


def test_a_name_that_the_info_lacks_is_noted_before_training() -> None:
    notes = glance(EnvMaker(Telling, Config(log_info="cots,near")), 0.1)
    assert [note for note in notes if "info" in note] == [
        "--log-info has 'cots', which is no number of the environment's info; did you mean 'cost'?"
    ]
    notes = glance(EnvMaker(Wild, Config()), 0.1)
    assert any("numbers, of which a run records the first 32; choose" in note for note in notes)
    odd = [note for note in notes if "of the environment's info" in note]
    assert odd == [
        "'big' of the environment's info is never a finite number: left out",
        "'nan' of the environment's info is never a finite number: left out",
        "'turns' of the environment's info is not always a number: a str is left out",
    ]
    notes = glance(EnvMaker(Wild, Config(log_info="many39,many38")), 0.1)
    assert not [note for note in notes if "info" in note]
    assert not [note for note in glance(EnvMaker(Telling, Config()), 0.1) if "info" in note]
