"""The docs say what the code does: links, line numbers, pictures and defaults."""

import dataclasses
import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from t3d.config import Config
from t3d.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "fifteen-steps.md"
STEPS = range(1, 16)
CLASSES = {1: "class ReplayBuffer", 2: "class Actor", 3: "class Critic"}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def section(step: int) -> str:
    """What the page says about a step, its heading included."""
    found = re.search(rf"^## Step {step}: .*?(?=^## )", PAGE.read_text("utf-8"), re.M | re.S)
    assert found, f"{PAGE.name} has no '## Step {step}: ...'"
    return found.group()


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


def test_the_script_that_sets_the_links_agrees() -> None:
    script, text = runpy.run_path(str(DOCS / "link_steps.py")), PAGE.read_text("utf-8")
    assert script["linked"](text) == text
    assert script["linked"](re.sub(r"#L\d+", "#L1", text)) == text


def test_the_pictures_are_what_the_script_draws(tmp_path: Path) -> None:
    script = runpy.run_path(str(DOCS / "draw_steps.py"))
    script["draw"](tmp_path)
    names = [f"step-{step:02}.svg" for step in STEPS]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert sorted(path.name for path in (DOCS / "steps").iterdir()) == names
    for name in names:
        drawn = (tmp_path / name).read_text("utf-8")
        kept = (DOCS / "steps" / name).read_text("utf-8")
        assert drawn == kept, f"docs/steps/{name} is stale: run python docs/draw_steps.py"
        picture = ElementTree.fromstring(drawn)
        assert picture.get("role") == "img"
        for part in ("title", "desc"):
            assert picture.findtext(f"{{http://www.w3.org/2000/svg}}{part}")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name
)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", link):
            continue  # another site
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}: no such heading"


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
