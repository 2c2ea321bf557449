"""What can be typed, and the errors for what cannot."""

import shlex
from typing import Any

import pytest

from t3d.base.knobs import flag
from t3d.cli.knobs import FIRST, read_knobs
from t3d.cli.options import Argument, Command, Option, UsageError, one_of, parse, read, whole_number
from t3d.config import SCOPES, Config, knob_types
from t3d.presets import PRESETS, resolve

COMMAND = Command(
    "bake",
    "Bake cakes.",
    Argument("cakes", "CAKE", "one or more cakes", "many"),
    {
        "options": [
            Option("oven", "which oven", "left", "NAME", one_of("left", "right")),
            Option("for_minutes", "how long", 40, "N", whole_number),
            Option("glaze", "glaze them", True),
            Option("cream", "which cream", None, "NAME"),
            Option("layers", "fillings", (), "NAME", many=True),
            Option("note", "a note; again for more", (), "TEXT", repeated=True),
            Option(
                *("with", "extras; again for more", (), "NAME"),
                many=True,
                repeated=True,
                choices=("salt", "pepper"),
            ),
        ]
    },
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a", {}),
        ("a b", {"cakes": ("a", "b")}),
        ("a --oven right b", {"cakes": ("a", "b"), "oven": "right"}),
        ("--oven=right a", {"oven": "right"}),
        ("--for-minutes 5 a", {"for_minutes": 5}),
        ("--for_minutes 5 a", {"for_minutes": 5}),
        ("--for_minutes=5 a", {"for_minutes": 5}),
        ("--for-minutes -5 a", {"for_minutes": -5}),
        ("--for-minutes 5 --for-minutes 6 a", {"for_minutes": 6}),
        ("--no-glaze a", {"glaze": False}),
        ("--no_glaze --glaze a", {"glaze": True}),
        ("a --layers x y --glaze", {"layers": ["x", "y"], "glaze": True}),
        ("a --layers=x y", {"layers": ["x", "y"]}),
        ("a --note one --note two=2 b", {"cakes": ("a", "b"), "note": ["one", "two=2"]}),
        ("a --with x=1 y --glaze --with z", {"with": ["x=1", "y", "z"], "glaze": True}),
        ("--glaze -- --odd", {"cakes": ("--odd",), "glaze": True}),
    ],
)
def test_options_can_be_typed_in_any_order(line: str, expected: dict[str, Any]) -> None:
    typed = read(COMMAND, line.split())
    assert typed == {"cakes": ("a",)} | expected  # what was not typed is not there
    defaults = {option.name: option.default for option in COMMAND.all_options}
    assert vars(parse(COMMAND, line.split())) == defaults | typed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "bake needs one or more cakes: t3d bake CAKE [CAKE ...]"),
        ("a --oven", "--oven needs a value: --oven NAME (t3d bake --help)"),
        ("a --layers", "--layers needs a value: --layers NAME ... (t3d bake --help)"),
        ("a --with --glaze", "--with needs a value: salt, pepper (t3d bake --help)"),
        ("a --oven --glaze", "--oven needs a value: --oven NAME (t3d bake --help)"),
        ("a --oven rigth", "--oven is 'rigth'; expected one of: left, right; did you mean 'right'"),
        (
            "a --for-minutes 1.5",
            "--for-minutes is '1.5'; expected a whole number (t3d bake --help",
        ),
        ("a --for-minutes=", "--for-minutes is ''; expected a whole number"),
        ("a --glaze=yes", "--glaze takes no value; type --glaze or --no-glaze"),
        ("a --no-glaze=1", "--glaze takes no value; type --glaze or --no-glaze"),
        ("a --glase", "bake has no option '--glase'; did you mean '--glaze'?"),
        ("a --no-glase", "bake has no option '--no-glase'; did you mean '--no-glaze'?"),
        ("a --gla", "bake has no option '--gla'"),
        ("a --zzz=1", "bake has no option '--zzz'; t3d bake --help lists all"),
        ("a -x", "bake has no option '-x'; t3d bake --help lists all"),
        ("a --oven=", "--oven is ''; expected one of: left, right"),
        ("a --cream=", "--cream is ''; expected a value: --cream NAME (t3d bake --help)"),
        ("--cakes a", "bake takes CAKE without --cakes: t3d bake CAKE [CAKE ...]"),
    ],
)
def test_a_usage_error_names_the_option_and_what_to_do(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(COMMAND, line.split())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_command_takes_as_many_arguments_as_it_has() -> None:
    one = Command("eat", "", Argument("cake", "CAKE", "a cake"))
    assert read(one, ["a"]) == {"cake": "a"}
    with pytest.raises(UsageError, match=r"^eat: 'b' is one argument too many \(t3d eat --help\)$"):
        read(one, ["a", "b"])
    with pytest.raises(UsageError, match=r"^eat needs a cake: t3d eat CAKE$"):
        read(one, [])
    with pytest.raises(UsageError, match=r"^eat: an argument is ''; expected a cake$"):
        read(one, [""])
    optional = Command("eat", "", Argument("cake", "CAKE", "a cake", "optional"))
    assert read(optional, []) == {"cake": None}
    with pytest.raises(UsageError, match=r"^rest: 'a' is one argument too many"):
        read(Command("rest", ""), ["a"])


def test_the_same_typed_knobs_give_the_same_config_with_any_preset() -> None:
    typed = "--no-twins --hidden 400 300 --exploration-noise 0.1 0.2 --steps 1e6 --seed 1_000"
    expected = {
        "twins": False,
        "hidden": (400, 300),
        "exploration_noise": (0.1, 0.2),
        "steps": 1_000_000,
        "seed": 1000,
    }
    for preset in PRESETS:
        parsed = read_knobs("train", "", [], ["Ant-v5", "--preset", preset, *typed.split()])
        base = resolve("Ant-v5", preset)[1]
        assert (parsed.preset, parsed.config) == (preset, Config(**(vars(base) | expected)))
        assert parsed.knobs == {"env", *expected}


@pytest.mark.parametrize("words", [["--algorithm", "td7"], ["--agent=td7"], ["--algorithm=td7"]])
def test_the_agent_is_called_algorithm_too(words: list[str]) -> None:
    parsed = read_knobs("train", "Train.", [], ["Hopper-v5", *words])
    assert parsed.config.agent == "td7"
    assert parsed.knobs == {"env", "agent"}


@pytest.mark.parametrize("knob", sorted(set(knob_types) - {"env"}))
def test_every_knob_can_be_typed_as_its_flag_says(knob: str) -> None:
    others: dict[str, Any] = {"collectors": 3, "hidden": (7, 8), "exploration_noise": (0.5, 0.25)}
    others |= {"env_kwargs": {"a": 5, "b": "x y"}, "eval_env_kwargs": {"a": 6}}
    others |= {
        "actor_hidden": (7,),
        "critic_hidden": (8, 9),
        "encoder_hidden": (6,),
        "track": ("mlflow", "wandb"),
    }
    others |= {"wrap": ("a:B", "c=[1, 2]", "d:E"), "eval_env": "a:b"}
    default = getattr(Config(), knob)
    texts = {"engine": "fused", "exploration": "ou", "train_after": "episode"}
    texts |= {"env_backend": "processes", "device": "cuda:1", "ray": "ray://a host:1?x=1"}
    value: Any = texts.get(knob) or others.get(knob)
    if value is None:
        value = not default if isinstance(default, bool) else default
    value = getattr(Config(**{knob: value}), knob)
    typed = read_knobs("train", "", [], shlex.split(flag(knob, value)))
    assert getattr(typed.config, knob) == value
    assert typed.knobs == {knob}


def test_collectors_of_a_preset_can_be_typed_away(tmp_path: Any) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text('why = "x"\nenv = "Hopper-v5"\n[knobs]\ncollectors = 3')
    words = ["--preset", str(preset)]
    assert read_knobs("train", "", [], words).config.collectors == 3
    assert read_knobs("train", "", [], words).config.env == "Hopper-v5"
    assert read_knobs("train", "", [], [*words, "--collectors", "None"]).config.collectors is None


def page(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        read_knobs("train", "Train.", [], words)
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 100])
def test_all_help_explains_every_knob_under_its_scope(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    help_text = page(["--help-all"], capsys)
    assert max(map(len, help_text.splitlines())) <= columns
    sections = dict(zip(SCOPES, help_text.split("\n\n")[-len(SCOPES) :], strict=True))
    for name, field in Config.__dataclass_fields__.items():
        if name != "env":
            words = " ".join(sections[field.metadata["scope"]].split())
            option = flag(name, getattr(Config(), name)).split()[0].replace("--no-", "--")
            assert option in words.replace("--[no-]", "--")
            assert field.metadata["help"] in words
    for scope, text in sections.items():
        assert text.startswith(f"{SCOPES[scope]}:\n")


def test_help_explains_the_first_knobs_and_names_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = page(["Pendulum-v1", "--help"], capsys)
    assert "the defaults; those of knobs are from preset Pendulum-v1." in " ".join(text.split())
    assert "  --hidden N ...             units of each hidden layer [64 64]\n" in text
    assert len(text.splitlines()) <= 48  # a screen
    explained, _, named = text.partition("all other knobs")
    for name in set(knob_types) - {"env"}:
        option = f" --{name.replace('_', '-')}"
        assert (f"{option} " in explained) == (name in FIRST)
        assert (f"{option} " in named.replace("\n", " ")) == (name not in FIRST)


def test_help_shows_the_defaults_of_the_typed_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert "units of each hidden layer [400 300]" in page(["-h", "--preset", "paper-2018"], capsys)
    assert "--[no-]pixels" in page(["--preset", "Pendulum-v1-pixels", "--help-all"], capsys)
    # Help comes, whatever else was typed.
    for nonsense in (["--preset", "none"], ["--tua"], ["--tau"], ["a", "b"]):
        assert "preset Pendulum-v1." in page([*nonsense, "--help"], capsys)


def test_a_plain_command_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        parse(COMMAND, ["--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "usage: t3d bake CAKE [CAKE ...] [options]",
        "",
        "Bake cakes.",
        "",
        "  CAKE                       one or more cakes",
        "",
        "options:",
        "  --oven NAME                which oven [left]",
        "  --for-minutes N            how long [40]",
        "  --[no-]glaze               glaze them [on]",
        "  --cream NAME               which cream",
        "  --layers NAME ...          fillings",
        "  --note TEXT                a note; again for more",
        "  --with NAME ...            extras; again for more",
    ]
