"""Commands that write a page for the browser: report, explain."""

import contextlib
from pathlib import Path

from t3d.cli import say
from t3d.cli.options import Argument, Command, Option, parse, whole_number
from t3d.cli.runs import RUNS


def report(words: list[str]) -> int:
    """Show runs on a page for the browser; --watch follows them live."""
    options = [
        Option("out", "page to write; by default in the run folder, or in runs/", None, "FILE"),
        Option("watch", "serve the page on localhost, and update it while runs train", False),
        Option("port", "port to serve it on; 0 = any free one", 0, "N", whole_number),
    ]
    typed = parse(Command("report", f"{report.__doc__}", RUNS, {"options": options}), words)
    if typed.watch:
        from t3d.show.watch import serve

        with contextlib.suppress(KeyboardInterrupt):
            serve(typed.runs, typed.port, lambda at: print(f"{at}  (Ctrl-C to end)", flush=True))
        return 0
    from t3d.show import report as pages

    folder = Path(typed.runs[0]) if len(typed.runs) == 1 else Path("runs")
    say.line(pages.report(typed.runs, Path(typed.out or folder / "report.html")))
    return 0


def explain(words: list[str]) -> int:
    """Walk through one real update, step by step, in the browser."""
    run = Argument(
        "run", "RUN", "a run folder; without one, a tiny agent is trained first", "optional"
    )
    out = Option("out", "page to write; by default explain.html in the run folder", None, "FILE")
    typed = parse(Command("explain", f"{explain.__doc__}", run, {"options": [out]}), words)
    from t3d.show import explain as pages

    path = Path(typed.out or Path(typed.run or ".") / "explain.html")
    say.line(pages.explain(typed.run, path, say.console()))
    return 0
