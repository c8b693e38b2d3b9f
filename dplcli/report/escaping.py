"""Names of outputs are anybody's text: making them safe to show, in every form of report."""

from __future__ import annotations

import re

_LONGEST = 200
# Control characters but for tab and line feed, surrogates and non-characters, which XML forbids;
# and the marks that turn the direction of text round, so that a name cannot pose as another.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
    "\ufdd0-\ufdef\ufffe\uffff]"
)
_LINE = re.compile("[\t\n]")
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>#!|~&@:$]|(?<=www)\.")


def visible(text: str, longest: int | None = None) -> str:
    r"""Return *text* with what cannot be seen, or must not be in a file, as ``\x1b`` and the like.

    Line feeds and tabs stay. What is longer than *longest* loses its middle.
    """
    return _shortened(_UNSEEN.sub(_escape, text), longest)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return *text* as one line of at most *longest* characters, its middle left out if need be."""
    return _shortened(_LINE.sub(_escape, visible(text)), longest)


def markdown(text: str) -> str:
    """Return *text* as one line that Markdown takes for nothing but text."""
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", one_line(text))


def code(text: str) -> str:
    """Return *text* as code in Markdown, where no name, number or address becomes a link."""
    return f"<code>{markdown(text)}</code>" if text else ""


def _shortened(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
