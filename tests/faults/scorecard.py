"""Provoke every fault and print the scorecard: python tests/faults/scorecard.py [ROW ...]."""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.rows import ROWS


def main() -> int:
    """Run all of every row, or of those that are named; 1 if a case fails."""
    failed = 0
    print("| row | what | passed | seconds |\n|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or ROWS:
        row = ROWS[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CONFIG_HOME"] = f"{folder}/.config"  # not the user's own
            cases = []
            for case in row.cases(row.full, Path(folder)):
                cases.append(case)
                if case[1]:
                    print(f"{name}: {case[0]}: {case[1]}", file=sys.stderr, flush=True)
                elif sys.stderr.isatty():
                    print(f"\r{name} {len(cases)} of about {row.full}", end="\r", file=sys.stderr)
        passed = sum(not wrong for _, wrong in cases)
        failed += len(cases) - passed
        took = time.monotonic() - began
        print(f"| {name} | {row.what} | {passed}/{len(cases)} | {took:.0f} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
