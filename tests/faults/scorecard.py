"""Provoke every fault and print the scorecard: python tests/faults/scorecard.py [ROW ...].

With `--keep FILE` it writes what it has counted, and with which commit, after every part of a row,
and counts only what is not in the file yet: it takes hours, and may be stopped at any time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.common import Row
from faults.rows import ROWS
from helpers.runs import TESTS


def main() -> int:
    """Run all of every row, or of those that are named; 1 if a case fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", metavar="ROW", nargs="*", help="R1, R2 ...; all, if none is named")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="a file for what was counted")
    typed = parser.parse_args()
    counted: list[dict[str, Any]] = []
    if typed.keep and typed.keep.exists():
        counted = json.loads(typed.keep.read_text())
    now = commit()
    print("| row | what | passed | seconds |\n|---|---|---|---|", flush=True)
    for name in typed.rows or ROWS:
        row = ROWS[name]
        for part in range(row.parts):
            key = {"row": name, "part": part, "commit": now}
            if not any(key.items() <= each.items() for each in counted):
                counted.append(key | counts(name, row, part))
                if typed.keep:
                    typed.keep.write_text(json.dumps(counted, indent=1))
        of_row = [each for each in counted if (each["row"], each["commit"]) == (name, now)]
        passed, cases, seconds = (
            sum(each[what] for each in of_row) for what in ("passed", "cases", "seconds")
        )
        print(f"| {name} | {row.what} | {passed}/{cases} | {seconds} |", flush=True)
    return 1 if any(each["wrong"] for each in counted if each["commit"] == now) else 0


def counts(name: str, row: Row, part: int) -> dict[str, Any]:
    """Run the cases of a row, or of one of its parts."""
    began, cases, wrong = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/.config"  # not the user's own
        of_parts = {"part": part} if row.parts > 1 else {}
        for what, why in row.cases(row.full // row.parts, Path(folder), **of_parts):
            cases += 1
            if why:
                wrong.append(f"{what}: {why}")
                print(f"{name}: {wrong[-1]}", file=sys.stderr, flush=True)
            elif sys.stderr.isatty():
                print(f"\r{name} part {part}, case {cases}", end="\r", file=sys.stderr)
    seconds = round(time.monotonic() - began)
    return {"passed": cases - len(wrong), "cases": cases, "seconds": seconds, "wrong": wrong}


def commit() -> str:
    """The commit of this code; with a + if files have changed since."""
    git = ["git", "-C", str(TESTS)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    changed = [*git, "diff", "--quiet", "HEAD", "--", ".", "../src"]
    return head.stdout.strip() + "+" * subprocess.run(changed, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
