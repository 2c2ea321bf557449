"""The page stays a page: the algorithm, and nothing else."""

import ast
import inspect

from t3d.learn import t3d as page

LINES = inspect.getsource(page).splitlines()


def test_the_page_has_at_most_150_lines() -> None:
    assert len(LINES) <= 150


def test_step_5_is_above_line_80() -> None:
    (line,) = [number for number, text in enumerate(LINES, 1) if "# Step 5:" in text]
    assert line < 80


def test_the_page_imports_nothing_that_reads_or_writes_files() -> None:
    modules = set()
    for node in ast.walk(ast.parse("\n".join(LINES))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    words = {word for module in modules for word in module.split(".")}
    assert "torch" in words
    assert not words & {"json", "pathlib", "files", "safetensors", "io", "os"}


def test_the_page_says_that_explain_reads_it() -> None:
    assert '`t3d explain` reads the names and the "Step" comments' in (page.__doc__ or "")
