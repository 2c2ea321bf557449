"""The docs say what the code does: links, names of files, line numbers, pictures, defaults."""

import dataclasses
import re
import runpy
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any
from xml.etree import ElementTree

import pytest

import t3d
from helpers.runs import TINY
from t3d.base.other_names import own_name
from t3d.config import Config, knob_types
from t3d.play.envs import EnvMaker
from t3d.presets import PRESETS
from t3d.run.loop import Run

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "fifteen-steps.md"
TD7 = DOCS / "td7.md"
STEPS = range(1, 16)
CLASSES = {1: "class ReplayBuffer", 2: "class Actor", 3: "class Critic"}
TD7_STEPS = [*"1234ABC56789D", "10", "11", "12", "13", "14", "15", "E"]  # in the order of the page
TD7_CLASSES = {"1": "class Prioritized", "2": "class Actor", "3": "class Critic"}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]


def section(step: int) -> str:
    """The section of the page about a step, with its heading."""
    match = re.search(rf"^## Step {step}: .*?(?=^## )", PAGE.read_text("utf-8"), re.M | re.S)
    assert match, f"{PAGE.name} has no '## Step {step}: ...'"
    return match.group()


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_steps_are_in_order() -> None:
    headings = re.findall(r"^## Step (\d+): \S", PAGE.read_text("utf-8"), re.M)
    assert headings == [str(step) for step in STEPS]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_has_its_equation_and_picture(step: int) -> None:
    text = section(step)
    assert re.search(r"^\$\$\n.+\n\$\$$", text, re.M), f"step {step} has no equation"
    pictures = re.findall(r"^!\[(.+)\]\((.+)\)$", text, re.M)
    assert [path for _, path in pictures] == [f"steps/step-{step:02}.svg"]
    assert (DOCS / pictures[0][1]).is_file()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_links_to_its_line_of_code(step: int) -> None:
    links = re.findall(r"\[learn/([\w/]+\.py), step (\d+)\]\((.+?)#L(\d+)\)", section(step))
    assert len(links) == 1, f"step {step} has {len(links)} links to its code; expected one"
    name, number, path, line = links[0]
    assert int(number) == step
    source = (DOCS / path).resolve()
    assert source == ROOT / "src/t3d/learn" / name
    mark = CLASSES.get(step, f"# Step {step}:")
    lines = source.read_text("utf-8").splitlines()
    right = [at for at, text in enumerate(lines, 1) if re.search(rf"{mark}(?!\w)", text)]
    assert right == [int(line)], (
        f"step {step} links to {name}#L{line}, but '{mark}' is at line {right}: make figures"
    )


def test_the_steps_of_td7_link_to_their_lines_of_code() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\((\S+?\.py)#L(\d+)\) \|", TD7.read_text("utf-8"), re.M)
    assert [step for step, _, _ in rows] == TD7_STEPS
    for step, path, line in rows:
        source = (DOCS / path).resolve()
        mark = TD7_CLASSES.get(step, rf"Step {step} \((?:as|changed|new)")
        lines = source.read_text("utf-8").splitlines()
        right = [at for at, text in enumerate(lines, 1) if re.search(rf"{mark}\b", text)]
        assert right == [int(line)], f"step {step} links to {path}#L{line}: make figures"
        if step not in TD7_CLASSES:
            assert source.name == "td7.py"
            same, row = "(as in TD3)" in lines[int(line) - 1], f"[{step}]({path}#L{line}) |"
            (told,) = [text for text in TD7.read_text("utf-8").splitlines() if row in text]
            assert ("| the same |" in told) == same, f"step {step} is the same as TD3's, or not"


@pytest.mark.parametrize("page", [PAGE, TD7], ids=lambda page: page.name)
def test_the_script_that_sets_the_links_agrees(page: Path) -> None:
    script, text = runpy.run_path(str(DOCS / "link_steps.py")), page.read_text("utf-8")
    assert script["linked"](text) == text
    assert script["linked"](re.sub(r"#L\d+", "#L1", text)) == text


@pytest.mark.parametrize(
    ("name", "folder", "names"),
    [
        ("draw_steps.py", "steps", [f"step-{step:02}.svg" for step in STEPS]),
        ("draw_td7.py", "td7", ["copies.svg", "networks.svg"]),
    ],
)
def test_the_pictures_are_what_the_script_draws(
    name: str, folder: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DOCS)
    runpy.run_path(str(DOCS / name))["draw"](tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert sorted(path.name for path in (DOCS / folder).iterdir()) == names
    for file in names:
        drawn = (tmp_path / file).read_text("utf-8")
        committed = (DOCS / folder / file).read_text("utf-8")
        assert drawn == committed, f"docs/{folder}/{file} is stale: run python docs/{name}"
        picture = ElementTree.fromstring(drawn)
        assert picture.get("role") == "img"
        for part in ("title", "desc"):
            assert picture.findtext(f"{{http://www.w3.org/2000/svg}}{part}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", link):
            continue  # another site
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Such as `play/envs.py`, from the root of the repository or of the package."""
    for name in re.findall(r"`((?:\w+/)+(?:[\w.-]+\.\w+)?)`", page.read_text("utf-8")):
        if name.startswith(("runs/", "checkpoints/", "tensorboard/")):
            continue  # a run's own
        places = (ROOT / name, ROOT / "src/t3d" / name)
        assert any(place.exists() for place in places), f"{page.name} names {name}: no such file"


def test_the_tree_in_the_readme_is_that_of_the_package() -> None:
    tree = re.search(r"^    src/t3d/\n((?:      .+\n)+)", (ROOT / "README.md").read_text(), re.M)
    assert tree
    package, room = ROOT / "src/t3d", ""
    rooms = set()
    for line in tree[1].splitlines():
        inner = line.startswith(" " * 8)
        names = re.match(r"((?: ?[\w.]+(?:\.py|/))+)(?:  |$)", line.strip())
        assert names, f"README's tree has a line without a name: {line}"
        for name in names[1].split():
            if not inner:
                room = name
                rooms.add(name)
            path = package / (room if inner else "") / name
            assert path.exists(), f"README's tree has {name}, which is not in {path.parent}"
    there = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    assert there <= rooms, f"README's tree has no {there - rooms}"


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_a_step_crosses_the_files_that_are_listed(engine: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = re.search(r"^\| \| files \|$(.+?)^$", text, re.M | re.S)
    assert table
    listed = set(re.findall(r"`(\w[\w/]+\.py)`", table[1]))
    config = Config(engine=engine, **TINY | {"max_episode_steps": 0})  # type: ignore[arg-type]
    crossed: set[str] = set()
    package = Path(t3d.__file__).parent

    def note(frame: FrameType, event: str, value: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(package):
            crossed.add(path.relative_to(package).as_posix())

    with closing(Run.start(EnvMaker("Pendulum-v1", config))) as run:
        while run.collector.steps < 25:  # beyond the random steps
            run.step()
        sys.settrace(note)
        try:
            run.step()
        finally:
            sys.settrace(None)
    crossed = {file for file in crossed if not file.startswith("base/")}
    assert not {file for file in crossed if not file.startswith("learn/fused/")} - listed
    if engine == "reference":
        assert not {file for file in listed if not file.startswith("learn/fused/")} - crossed


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        *(DOCS / f"{name}.md" for name in ("doors", "notes", "coming-from", "python")),
    ],
    ids=lambda page: page.name,
)
def test_the_python_of_the_docs_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = t3d.train

    def train_a_little(env: Any, **knobs: Any) -> Any:
        return trained(env, quiet=True, **knobs | TINY)

    monkeypatch.setattr(t3d, "train", train_a_little)
    blocks = re.findall(r"^```python\n(.+?)^```$", page.read_text("utf-8"), re.M | re.S)
    assert blocks
    short = {"episodes=100": "episodes=1", "steps=200_000": "steps=70"}
    for block in blocks:
        for long, instead in short.items():
            block = block.replace(long, instead)
        exec(compile(block, page.name, "exec"), {})


def test_the_names_of_other_libraries_lead_to_the_knobs_of_the_table() -> None:
    text = (DOCS / "coming-from.md").read_text("utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", text.partition("## Names of hyper")[2], re.M)
    assert len(rows) > 15
    for knob, others in rows:
        knobs = set(re.findall(r"\w+", knob)) & knob_types.keys()
        assert knobs, f"{knob} is no knob"
        for other in re.findall(r"`([a-z_]+)`", others):
            assert own_name(other) in knobs, f"{other} leads to {own_name(other)}"


def test_what_does_not_go_with_td7_ends_with_the_message_of_the_table(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(--\S+)(?: (\S+))?` \| (td7 .+) \|$", TD7.read_text(), re.M)
    assert len(rows) == 5
    for option, value, message in rows:
        knob = option[2:].replace("-", "_")
        knobs = {knob: int(value) if value.isdigit() else value or True}
        with pytest.raises(t3d.BadInput) as error:
            t3d.train("Pendulum-v1", agent="td7", run=tmp_path / "run", quiet=True, **knobs)  # type: ignore[arg-type]
        assert str(error.value) == message


def test_the_presets_of_td7_have_the_knobs_of_the_table() -> None:
    text = TD7.read_text("utf-8")
    rows = re.findall(r"^\| `--([\w-]+)` .*\| (.+) \| (.+) \| (.+) \|$", text, re.M)
    of_table = {row[0]: row[1:] for row in rows}
    for column, preset in enumerate(("default", "td7", "td7-slim")):
        config = dataclasses.replace(Config(), **PRESETS[preset].knobs)
        knobs = ("agent", "hidden", "embedding", "random_steps")
        for name, knob in zip(("algorithm", "hidden", "embedding", "random-steps"), knobs):
            value = getattr(config, knob)
            shown = f"{value:,}" if isinstance(value, int) else str(value).strip("()")
            assert of_table[name][column] == shown
        given = {name.replace("_", "-") for name in PRESETS[preset].knobs} - {"agent"}
        assert given <= of_table.keys()


def test_the_table_of_defaults_is_true() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)
    assert rows
    paper = dataclasses.replace(Config(), **PRESETS["paper-2018"].knobs)

    def read(written: str, like: Any) -> Any:
        if isinstance(like, tuple):
            return tuple(type(like[0])(item) for item in written.split(", "))
        return type(like)(written.replace(",", ""))

    for knob, default, published in rows:
        for config, written in ((Config(), default), (paper, published)):
            value = getattr(config, knob)
            assert read(written, value) == value, f"{PAGE.name} says {knob} is {written}"
