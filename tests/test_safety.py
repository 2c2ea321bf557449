"""Nothing that the package loads can run code: no unpickling, no eval, anywhere in the source."""

import ast
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"torch.load", "np.load", "numpy.load", "pickle.loads", "pd.read_pickle"}


def offences(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            names.append(str(node.module))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS | METHODS:
                names.append(called)
            names += [k.arg for k in node.keywords if k.arg == "allow_pickle"]
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_file_cannot_run_what_it_reads(path: Path) -> None:
    assert offences(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from yaml import load",
        "torch.load(path)",
        "eval(text)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_search_finds_what_it_is_for(source: str) -> None:
    assert offences(source)
