"""Pictures of both pages, for the README: python docs/screenshots.py (a minute or two).

Trains three seeds on Pendulum-v1, writes their report and the page of `t3d explain`, and takes the
pictures in chromium.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import t3d
from t3d.cli.main import main

IMAGES = Path(__file__).parent / "images"


def take(page: Page, path: Path, name: str, at: str) -> None:
    """A picture of the window, scrolled to an element."""
    page.goto(path.as_uri())
    page.locator(at).evaluate("element => element.scrollIntoView({behavior: 'instant'})")
    page.screenshot(path=IMAGES / name)
    print(IMAGES / name)


def draw() -> None:
    """Write both pages from real runs, and take their pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = [str(Path(folder) / f"Pendulum-v1-seed{seed}") for seed in range(3)]
        for seed, run in enumerate(runs):
            t3d.train("Pendulum-v1", run=run, seed=seed, quiet=True)
        report, explain = Path(folder) / "report.html", Path(folder) / "explain.html"
        main(["report", *runs, "--out", str(report)])
        main(["explain", "--out", str(explain)])
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1080, "height": 1000}, reduced_motion="reduce")
        take(page, explain, "explain.png", "#step-8")
        take(page, report, "report.png", "header")
        browser.close()


if __name__ == "__main__":
    draw()
