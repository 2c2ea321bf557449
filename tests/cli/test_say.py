import os
import subprocess
import sys
from pathlib import Path

from helpers.runs import TESTS

# Light modules only: no PyTorch.
PROGRAM = """
import sys
from helpers.rude_envs import print_much
from t3d.cli.say import own_stdout
with own_stdout() as stdout:
    print_much()
    stdout.write("ours, meanwhile\\n")
    sys.stdout.close()
    sys.stderr.close()
print("ours, after")
print("an error of ours", file=sys.stderr)
"""


def test_what_environments_print_from_python_or_c_goes_to_stderr(tmp_path: Path) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ours, meanwhile\nours, after\n"
    lines = {"an environment says hello", "hello", "hello from C", "an error of ours"}
    assert set(done.stderr.splitlines()) == lines
