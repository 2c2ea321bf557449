"""Point the code links of docs/fifteen-steps.md at the right lines: `python docs/link_steps.py`."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "fifteen-steps.md"
CODE = "../src/t3d/learn"
# Where each step is, and the text that its line has.
CLASSES = {
    1: ("replay/memory.py", "class ReplayBuffer"),
    2: ("networks.py", "class Actor"),
    3: ("networks.py", "class Critic"),
}


def link(step: int) -> str:
    """The Markdown link to the first line of a step."""
    file, mark = CLASSES.get(step, ("t3d.py", f"# Step {step}:"))
    lines = (DOCS / CODE / file).read_text("utf-8").splitlines()
    (line,) = [at for at, text in enumerate(lines, 1) if re.search(rf"{mark}(?!\w)", text)]
    return f"[learn/{file}, step {step}]({CODE}/{file}#L{line})"


def linked(text: str) -> str:
    """A page with all its links to steps made right."""
    return re.sub(r"\[learn/[\w/]+\.py, step (\d+)\]\([^)]*\)", lambda m: link(int(m[1])), text)


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(linked(PAGE.read_text("utf-8")), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
