"""A real browser for the pages."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# Nothing but the page: a browser that looks for updates and accounts would only be refused.
_ALONE = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "no chromium on this machine: make test installs it"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=_ALONE)
        yield opened
        opened.close()


class Opened:
    """A page in the browser, which must have no errors and must not load anything else."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.trouble = page, []  # type: Page, list[str]
        page.on("console", lambda message: self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", self._check_request)
        page.goto(address)

    def _check_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "http://127.0.0.1:")):
            self.trouble.append(f"asks for {request.url}")

    def overflow(self) -> int:
        """Pixels that stick out to the right."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return pixels

    def data(self) -> Any:
        """The data in the page."""
        return self.page.evaluate("JSON.parse(document.getElementById('data').textContent)")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Any]:
    """Opens a file or an address; errors in the page fail the test at its end."""
    pages: list[Opened] = []

    def opened(where: Path | str, width: int = 1440, **options: Any) -> Opened:
        address = where.as_uri() if isinstance(where, Path) else where
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.set_default_timeout(20_000)
        pages.append(Opened(page, address))
        return pages[-1]

    yield opened
    for each in pages:
        each.page.close()
        assert each.trouble == []
