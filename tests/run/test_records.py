import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.runs import trained
from t3d.run.folder import RunFolder
from t3d.run.records import KINDS, MetricsFile, Record, of_kind, record_of

GOLDEN = Path(__file__).parent / "golden"
NOW = {"step": 40, "seconds": 1.5}
LINES: list[dict[str, Any]] = [
    {
        **{"kind": "episode", "env": 1, "episode": 2, "length": 15, "return": -9.5},
        **{"success": 1, "info": {"cost": 0.5}},
    },
    {
        **{"kind": "train", "updates": 20, "memory": 40, "critic_loss": 0.5, "my_own": None},
        **{"exploration": 0.1, "saturation": 0.0, "steps_per_second": 20.0},
        **{"success_rate": 0.25},
    },
    {
        **{"kind": "evaluation", "mean": -9.0, "std": 1.0, "estimated_Q": -1.0, "true_Q": -2.0},
        **{"cut_off": 0.8, "best_mean": -9.0, "best_step": 40},
        **{"returns": [-8.0, -10.0], "lengths": [15, 15]},
        **{"success": 0.5, "info": {"cost": 0.5, "steps": 3.0}},
    },
    {"kind": "warning", "name": "saturated", "text": "lower --learning-rate"},
    {"kind": "restart", "env": 0, "episode": 3, "why": "was killed"},
    {
        **{"kind": "collectors", "collector": 3, "playing": 7, "of": 8, "why": "was lost"},
        **{"text": "collector 3 was lost; 7 of 8 play"},
    },
    {"kind": "stop", "watcher": "StopAtReturn", "reason": "a mean return of 300"},
    {"kind": "change", "knob": "tau", "text": "tau was 0.005, is 0.01"},
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["kind"])
def test_a_line_becomes_a_record_and_the_same_line_again(line: dict[str, Any]) -> None:
    line = line | NOW
    record = record_of(line)
    assert type(record) is KINDS[line["kind"]]
    assert (record.kind, record.step, record.seconds) == (line["kind"], 40, 1.5)
    assert record.to_json() == line
    assert list(record.to_json())[:2] == ["kind", "step"]
    assert list(record.to_json())[-1] == "seconds"


def test_every_kind_is_tested_here() -> None:
    assert [line["kind"] for line in LINES] == list(KINDS)


def test_the_fields_have_names() -> None:
    episode, training = (record_of(line | NOW) for line in LINES[:2])
    assert isinstance(episode, t3d.Episode)
    assert (episode.return_, episode.length) == (-9.5, 15)
    assert isinstance(training, t3d.Training)
    assert training.measures == {"critic_loss": 0.5, "my_own": None}


def test_a_name_in_a_strangers_info_is_made_safe_to_print() -> None:
    info = {"\x1b[2Jclear": 1, "x" * 5000: 2, "a\nb": 3}
    record = record_of({"kind": "episode", "step": 1, "return": 0, "info": info})
    assert isinstance(record, t3d.Episode)
    assert record.info == {r"\x1b[2Jclear": 1, "x" * 64: 2, r"a\nb": 3}
    assert record_of(record.to_json()) == record


def test_the_records_of_a_folder_are_its_lines(tmp_path: Path) -> None:
    for run in (GOLDEN, trained(tmp_path / "run")):  # an earlier version wrote fewer numbers
        folder = RunFolder(run)
        assert [record.to_json() for record in folder.records()] == list(folder.metrics())


def test_a_run_writes_every_field(tmp_path: Path) -> None:
    run = RunFolder(trained(tmp_path / "run"))
    for line in run.metrics():
        names = {field.name.removesuffix("_") for field in fields(KINDS[line["kind"]])}
        # Pendulum's info is empty.
        missing = names - line.keys() - {"measures", "info", "success", "success_rate"}
        # A saturation is measured once there are updates.
        assert missing <= {"saturation"} if line["kind"] == "train" else not missing


def test_the_records_of_one_kind_are_read_alone(tmp_path: Path) -> None:
    lines = [LINES[0] | NOW, LINES[2] | NOW, {"kind": "episode", "step": 50}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (evaluation,) = RunFolder(tmp_path).records(t3d.Evaluation)
    assert evaluation.mean == -9.0
    with pytest.raises(t3d.BadInput, match=r"line 3 is no record: it has no return"):
        list(RunFolder(tmp_path).records(t3d.Episode))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"mean": None}, "its mean is None; expected a finite number"),
        ({"mean": "much"}, "its mean is 'much'; expected a finite number"),
        ({"best_step": [1]}, r"its best_step is \[1\]; expected a finite number"),
        ({"best_step": 10**999}, r"its best_step is 10+\.\.\.0+; expected a finite number"),
        ({"returns": 3}, "its returns is 3; expected finite numbers"),
        ({"returns": [1, "x"]}, r"its returns is \[1, 'x'\]; expected finite numbers"),
        ({"std": 1e999}, ""),
        ({"success": 1.5}, "its success is 1.5; expected a number from 0 to 1"),
        ({"success": -0.5}, "its success is -0.5; expected a number from 0 to 1"),
        ({"success": "all"}, "its success is 'all'; expected a number from 0 to 1"),
        ({"info": [1]}, r"its info is \[1\]; expected up to 32 finite numbers by name"),
        ({"info": {"x": "y"}}, "its info is {'x': 'y'}; expected up to 32 finite numbers by name"),
        ({"info": {"x": True}}, "its info is {'x': True}; expected up to 32 finite .*"),
        ({"info": {"x": 1e101}}, r"its info is {'x': 1e\+101}; expected up to 32 finite .*"),
        ({"info": {str(i): i for i in range(33)}}, "expected up to 32 finite numbers by name"),
        ({"step": None}, ""),
        ({"kind": None}, ""),
        ({"kind": "warning", "text": 3}, "its text is 3; expected a text"),
    ],
)
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    good = LINES[2] | NOW
    lines = [json.dumps(line) + "\n" for line in (good, good | changed)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    records = RunFolder(tmp_path).records()
    assert next(records).step == 40
    with pytest.raises(t3d.BadInput, match=rf"metrics\.jsonl, line 2 is no record.*{why}$"):
        next(records)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ({"kind": "evaluation", "step": 1}, "mean"),
        ({"kind": "episode", "step": 1}, "return"),
        ({"kind": "train"}, "step"),
    ],
)
def test_a_line_without_what_it_is_about_is_refused(line: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"^it has no {key}$"):
        record_of(line)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["kind"])
def test_a_line_of_another_version_may_lack_fields_and_have_others(line: dict[str, Any]) -> None:
    few: dict[str, Any] = {key: v for key, v in line.items() if key in ("kind", "mean", "return")}
    record = record_of(few | {"step": 40, "a_new_field": "x"})
    assert type(record) is KINDS[line["kind"]]
    assert (record.step, record.seconds) == (40, 0.0)


def test_a_missing_number_is_none_and_a_missing_list_is_empty() -> None:
    record = record_of({"kind": "evaluation", "step": 40, "mean": 1})
    assert isinstance(record, t3d.Evaluation)
    assert (record.mean, record.std, record.best_step, record.returns) == (1.0, None, None, [])


def test_a_kind_of_another_version_is_a_plain_record() -> None:
    record = record_of({"kind": "gossip", "step": 7, "seconds": 2, "about": "you"})
    assert record == Record(step=7, seconds=2.0)
    assert of_kind(t3d.Evaluation, [record]) == []
    assert of_kind(Record, [record]) == [record]


def test_a_measure_that_is_no_number_is_none() -> None:
    values = {"critic_loss": 1e999, "optimiser": "adam", "list": [1], "actor_loss": 2}
    training = record_of({"kind": "train", **values, **NOW})
    assert isinstance(training, t3d.Training)
    nothing = {"critic_loss": None, "optimiser": None, "list": None}
    assert training.measures == nothing | {"actor_loss": 2.0}


def test_a_metrics_file_is_cut_where_a_checkpoint_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    file = MetricsFile(path)
    file.write({"kind": "one"})
    position = file.position()
    file.write({"kind": "two"})
    assert not file.matches(position)
    file.close()
    again = MetricsFile(path, position.bytes)
    assert again.matches(position)
    again.close()
    assert path.read_text() == '{"kind": "one"}\n'


def test_a_number_that_is_not_finite_never_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    file = MetricsFile(path)
    with pytest.raises(ValueError, match="JSON"):
        file.write({"kind": "train", "loss": float("nan")})
    file.close()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    file = MetricsFile(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(t3d.CannotWrite, match=r"metrics.jsonl cannot be written: No space left"):
        file.position()
    monkeypatch.undo()
    file.close()
