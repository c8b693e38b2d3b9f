"""A real browser for the pages: Chromium through Playwright; skipped where either is missing."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[..., Any]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start a browser, once for all tests of a process."""
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser is installed ({', '.join(NAMES)})")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if is_root else []
        )
        yield started
        started.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:  # noqa: ANN401  # Playwright's
    """Return a function that opens a file; nothing may be complained of, or asked of a network."""
    pages = []
    complaints: list[str] = []
    asked: list[str] = []
    allowed: list[str] = []

    def opened(
        path: Path,
        fragment: str = "",
        *,
        width: int = 1400,
        height: int = 900,
        scheme: str = "light",
    ) -> Any:  # noqa: ANN401  # Playwright's
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        address = path.as_uri()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}{fragment}")
        page.wait_for_selector("body[data-ready]")
        allowed.append(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []
    assert {address.partition("#")[0] for address in asked} <= set(allowed)
