"""What is in a page, for tests."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"input", "meta"}


class Page(HTMLParser):
    """What is in a page: its tags, whether they nest, its text and its scripts."""

    def __init__(self, text: str) -> None:
        """Read *text*."""
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.text = ""
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself, as those of SVG do."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Compare with what is open."""
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep the text, and what stands in scripts."""
        self.text += data
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.tags[-1][1], data))

    @property
    def record(self) -> dict[str, Any]:
        """The data."""
        ((_, text),) = [script for script in self.scripts if "type" in script[0]]
        found: dict[str, Any] = json.loads(text)
        return found

    @property
    def policy(self) -> str:
        """What the page lets a browser do."""
        (policy,) = [
            attributes["content"] or ""
            for tag, attributes in self.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        return policy
