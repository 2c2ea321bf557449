import dataclasses
import json
from pathlib import Path

import pytest

from helpers.sweeps import ENVS, toml
from t3d.base.errors import T3DError
from t3d.cli.knobs import knob_values
from t3d.study.spec import Spec, read_spec, runs_of


def test_runs_are_environments_x_knobs_x_seeds(tmp_path: Path) -> None:
    knobs = {"tau": [0.005, 0.01], "hidden": [[64, 64], [256]]}
    path = toml(tmp_path / "spec.toml", env=ENVS, seeds=[0, 5], knobs=knobs)
    runs = runs_of(read_spec(Path(path)), tmp_path)
    assert len({run.path for run in runs}) == len(runs) == 2 * 2 * 2 * 2
    last = runs[-1]
    assert last.path == tmp_path / "InvertedPendulum-v5-hidden-256-tau-0.01-seed5"
    assert last.setting == "hidden 256, tau 0.01"
    assert (last.config.tau, last.config.hidden, last.config.seed) == (0.01, (256,), 5)
    assert last.preset == last.config.env == "InvertedPendulum-v5"
    assert last.config.learning_rate == 1e-3  # the preset's
    assert runs[0].path.name == "Pendulum-v1-hidden-64x64-tau-0.005-seed0"


def test_variants_are_knobs_that_change_together(tmp_path: Path) -> None:
    text = """
        env = "Pendulum-v1"
        [knobs]
        tau = [0.1, 0.2]
        policy_freq = 3
        [variants.complete]
        [variants."no twins, no delay"]
        twins = false
        policy_freq = 1
    """
    runs = runs_of(read_spec(Path(toml(tmp_path / "spec.toml", text))), tmp_path)
    assert [run.setting for run in runs] == [
        *("complete, tau 0.1", "complete, tau 0.2"),
        *("no twins, no delay, tau 0.1", "no twins, no delay, tau 0.2"),
    ]
    assert [(c.config.twins, c.config.policy_freq, c.config.tau) for c in runs] == [
        *((True, 3, 0.1), (True, 3, 0.2)),
        *((False, 1, 0.1), (False, 1, 0.2)),
    ]
    assert runs[-1].path.name == "Pendulum-v1-no-twins--no-delay-tau-0.2-seed0"


def test_a_list_is_one_value_of_a_knob_that_takes_lists() -> None:
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 2, "knobs": {"hidden": [8, 8]}})
    assert spec.axes() == {}
    assert [run.path.name for run in runs_of(spec, Path("runs"))] == [
        "Pendulum-v1-seed0",
        "Pendulum-v1-seed1",
    ]


def test_a_stored_spec_is_read_back(tmp_path: Path) -> None:
    values = {"env": "Pendulum-v1", "seeds": [4], "knobs": {"tau": [0.1]}}
    spec = Spec.from_dict(values | {"variants": {"complete": {}, "one critic": {"twins": False}}})
    (tmp_path / "sweep.json").write_text(json.dumps(dataclasses.asdict(spec)))
    assert read_spec(tmp_path) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env =", "is not TOML: Invalid value"),
        ('env = "\\udc80"', "is not TOML"),
        ("seeds = 1", "env is None; expected the name of an environment, or a list"),
        ("env = []", "env is []; expected"),
        ('env = ["Pendulum-v1", 3]', "env is ['Pendulum-v1', 3]; expected"),
        ('env = "E"\nsead = 1', "a sweep has no 'sead'; did you mean 'seeds'?"),
        ('env = "E"\nseed = 1', "a sweep has no 'seed'; did you mean 'seeds'?"),
        ('env = "E"\ntau = 1', "a sweep has no 'tau'; knobs go under [knobs]"),
        ('env = "E"\n[knob]\ntau = 1', "a sweep has no 'knob'; did you mean 'knobs'?"),
        ('env = "E"\nknobs = 3', "knobs is 3; expected a table"),
        ('env = "E"\npreset = 3', "preset is 3; expected a name"),
        ('env = "E"\npreset = "papr-2018"', "did you mean 'paper-2018'?"),
        ('env = "E"\nseeds = 0', "seeds is 0; expected their number, at least 1"),
        ('env = "E"\nseeds = []', "seeds is []; expected"),
        ('env = "E"\nseeds = true', "seeds is True; expected"),
        ('env = "E"\nseeds = [1, -1]', "seeds is [1, -1]; expected"),
        ('env = "E"\nseeds = [7, 7]', "seeds is [7, 7]; expected each seed once"),
        ('env = "E"\nseeds = 1000000000000', "runs or more; expected at most 10,000"),
        ('env = "E"\n[knobs]\nseed = 1', "seed is no knob of a sweep; set seeds above [knobs]"),
        ('env = "E"\n[knobs]\nenv = "F"', "env is no knob of a sweep; set env above [knobs]"),
        ('env = "E"\n[knobs]\ntua = 1', "unknown knob 'tua'; did you mean 'tau'?"),
        ('env = "E"\n[knobs]\ntau = []', "tau is an empty list"),
        ('env = "E"\n[knobs]\ntau = [0.1, 7]', "tau is 7; expected a number"),
        ('env = "E"\n[knobs]\ntau = 1979-05-27', "tau is datetime.date(1979, 5, 27); expected"),
        ('env = "E"\n[knobs]\ntau = [0.1, 0.1]', "two runs would be named E-tau-0.1-seed0"),
        ('env = ["E", "E"]', "two runs would be named E-seed0"),
        ('env = "E"\nvariants = 3', "variants is 3; expected tables, [variants.NAME]"),
        ('env = "E"\n[variants]\nv = 3', "variants.v is 3; expected a table, [variants.v]"),
        ('env = "E"\n[variants.v]\ntua = 1', "unknown knob 'tua'; did you mean 'tau'?"),
        ('env = "E"\n[variants.v]\ntau = [1, 2]', "tau is [1, 2]; expected a number"),
        ('env = "E"\n[variants.v]\nthreads = 2', "threads is the same for all runs; take"),
        (
            'env = "E"\n[knobs]\ntau = [0.1, 0.2]\n[variants.v]\ntau = 1',
            "tau is an axis; take it out of [variants.v]",
        ),
        ('env = "E"\n[variants.a-b]\n[variants."a b"]', "two runs would be named E-a-b-seed0"),
        ('env = "E"\n[knobs]\nhidden = [[8], ["x"]]', "hidden is 'x'; expected a whole number"),
    ],
)
def test_a_bad_spec_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = Path(toml(tmp_path / "spec.toml", text))
    with pytest.raises(T3DError) as refused:
        runs_of(read_spec(path), tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_arguments_of_the_environment_can_be_an_axis(tmp_path: Path) -> None:
    knobs = dict([knob_values("env_kwargs=g=5,g=10"), knob_values("wrap=a:B,c=1")])
    spec = Spec.from_dict({"env": "Pendulum-v1", "knobs": knobs})
    runs = runs_of(spec, tmp_path)
    assert [run.config.env_kwargs for run in runs] == [{"g": 5}, {"g": 10}]
    assert {run.config.wrap for run in runs} == {("a:B", "c=1")}
    assert [run.setting for run in runs] == ["env_kwargs g=5", "env_kwargs g=10"]
    assert runs_of(
        Spec.from_dict({"env": "Pendulum-v1", "knobs": {"env_kwargs": {"g": 5}}}), tmp_path
    )
