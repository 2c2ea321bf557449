"""Point the code links of fifteen-steps.md and td7.md at the right lines: `make figures`."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE, TD7 = DOCS / "fifteen-steps.md", DOCS / "td7.md"
CODE = "../src/t3d/learn"
# Where each step is, and the text that its line has. All others are in t3d.py, or in td7.py.
CLASSES = {
    "1": ("replay/memory.py", "class ReplayBuffer"),
    "2": ("networks.py", "class Actor"),
    "3": ("networks.py", "class Critic"),
}
CLASSES_OF_TD7 = {
    "1": ("replay/prioritized.py", "class Prioritized"),
    "2": ("sale.py", "class Actor"),
    "3": ("sale.py", "class Critic"),
}


def address(file: str, mark: str) -> str:
    """The address of the one line of a file that has a mark."""
    lines = (DOCS / CODE / file).read_text("utf-8").splitlines()
    (line,) = [at for at, text in enumerate(lines, 1) if re.search(rf"{mark}(?!\w)", text)]
    return f"{CODE}/{file}#L{line}"


def link(step: str) -> str:
    """The Markdown link to the first line of a step of TD3."""
    file, mark = CLASSES.get(step, ("t3d.py", f"# Step {step}:"))
    return f"[learn/{file}, step {step}]({address(file, mark)})"


def link_of_td7(step: str) -> str:
    """The same for TD7, short enough for a table."""
    file, mark = CLASSES_OF_TD7.get(step, ("td7.py", f"Step {step}(?= [(])"))
    return f"[{step}]({address(file, mark)})"


def linked(text: str) -> str:
    """A page with all its links to steps made right."""
    text = re.sub(r"\[learn/[\w/]+\.py, step (\d+)\]\([^)]*\)", lambda m: link(m[1]), text)
    return re.sub(r"\[([A-Z]|\d+)\]\(\.\./src/[^)]*\)", lambda m: link_of_td7(m[1]), text)


def main() -> None:
    """Rewrite both pages."""
    for page in (PAGE, TD7):
        page.write_text(linked(page.read_text("utf-8")), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
