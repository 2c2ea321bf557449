"""Write the table and the picture of docs/minutes.md from benchmarks/results/minutes.

python benchmarks/draw_minutes.py
"""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from t3d.show import plots

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGE = DOCS / "minutes.md"
BEGIN, END = "<!-- minutes -->\n", "<!-- end -->"

Groups = dict[tuple[str, str], list[dict[str, Any]]]


def groups() -> Groups:
    """The runs of each environment and name, in the order of their seeds."""
    by_task: Groups = defaultdict(list)
    for path in sorted((HERE / "results" / "minutes").glob("*.json")):
        run = json.loads(path.read_text())
        by_task[run["env"], run["name"]].append(run)
    return by_task


def table(by_task: Groups) -> str:
    """A row for each environment and name."""
    lines = [
        "| environment | score | preset | minutes: median (each seed) | steps: median |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (env, name), runs in by_task.items():
        minutes = [run["passed"][0] if run["passed"] else float("inf") for run in runs]
        steps = [run["passed"][2] if run["passed"] else float("inf") for run in runs]
        middle, each = _shown(statistics.median(minutes)), ", ".join(map(_shown, minutes))
        step = statistics.median(steps)
        count = "" if step == float("inf") else f"{step:,.0f}"
        score = f"{runs[0]['score']:,.0f}"
        lines.append(f"| {env} | {score} | `{name}` | {middle} ({each}) | {count} |")
    return "\n".join(lines) + "\n"


def _shown(minutes: float) -> str:
    return "not passed" if minutes == float("inf") else f"{minutes:.1f}"


def draw(by_task: Groups) -> None:
    """Return against minutes of training, a line for each seed."""
    envs = list(dict.fromkeys(env for env, _ in by_task))
    figure = plots.new_figure(6.5 * len(envs), 4.2)
    for axes, env in zip(figure.subplots(1, len(envs), squeeze=False)[0], envs):
        named = [(name, runs) for (of, name), runs in by_task.items() if of == env]
        for colour, (name, runs) in enumerate(named):
            for number, run in enumerate(runs):
                label = {"label": f"{name}, {len(runs)} seeds"} if number == 0 else {}
                minutes, _, _, returns = zip(*run["curve"])
                axes.plot(minutes, returns, color=f"C{colour}", lw=1.2, alpha=0.8, **label)
        score = named[0][1][0]["score"]
        axes.axhline(score, color="grey", lw=1, ls="--")
        axes.text(0, score, f" {score:,.0f}, the paper's score", va="bottom", color="grey")
        axes.set(title=env, xlabel="minutes of training, two cores", ylabel="return")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    plots.save(figure, DOCS / "images" / "minutes")


def with_table(text: str, rows: str) -> str:
    """The page with a table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def main() -> None:
    """Write both."""
    by_task = groups()
    draw(by_task)
    PAGE.write_text(with_table(PAGE.read_text(), table(by_task)))


if __name__ == "__main__":
    main()
