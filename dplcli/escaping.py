r"""Names, texts and messages are anybody's: making them safe to show, in every form of report.

A character that cannot be seen is shown as Python writes it: ``\x1b``, ``\u202e``, ``\n``. So
are names that error messages quote, and ``--node`` and the like find a node by it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_LONGEST = 200
_UNUSUAL = {kept: re.compile(f"[^ -~{kept}]") for kept in ("", "\n", "\t\n")}
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>#!|~&@:$]|(?<=www)\.")
# Services that read what a program prints act on some lines of it. GitHub takes "::error::" after
# blanks at the beginning of a line. It takes "##[error]" wherever it stands, as Azure Pipelines
# takes "##vso[…]" and TeamCity "##teamcity[…]". The last character of such a beginning is escaped.
_COMMAND = re.compile(r"^[^\S\n]*:(:)|##[\w.-]*(\[)", re.MULTILINE)


def visible(text: str, longest: int | None = None) -> str:
    r"""Return *text* with what cannot be seen, or must not be in a file, as ``\x1b`` and the like.

    Line feeds and tabs stay. What is longer than *longest* loses its middle.
    """
    return _shortened(_printable(text, kept="\t\n"), longest)


def one_line(text: str, longest: int | None = _LONGEST) -> str:
    """Return *text* as one line of at most *longest* characters, its middle left out if need be."""
    return _shortened(_printable(text), longest)


def inert(text: str, before: str = "") -> str:
    r"""Return *text* with nothing that a terminal, or a service that reads output, obeys.

    Line feeds and tabs stay. ``::error::`` becomes ``:\x3aerror::``, which can still be read: a
    blank in front would not help, and a character that cannot be seen would be copied along.

    Args:
        text: What is to be printed: lines, or parts of them.
        before: What has been printed of the first line.
    """
    return _disarmed(visible(text), _escaped, before)


def inert_markup(text: str) -> str:
    """Return HTML, XML or Markdown of ours, whose texts are escaped, for standard output."""
    return _disarmed(text, _reference)


def json_text(data: object, indent: int = 1) -> str:
    r"""Return *data* as JSON, line by line, with ``\u001b`` and the like for what cannot be seen.

    What a parser reads is *data*, exactly.
    """
    text = _lines(data, indent) + "\n"
    return _disarmed(_printable(text, _json_escaped, kept="\n"), _json_escaped)


def _lines(data: object, indent: int) -> str:
    """Write JSON; an item of a long list takes one line, which is soon written and soon found."""
    if not indent or not isinstance(data, dict) or not any(map(_is_long, data.values())):
        return json.dumps(data, indent=indent, ensure_ascii=False)
    blanks, members = " " * indent, []
    one_line = json.JSONEncoder(ensure_ascii=False).encode
    for key, value in data.items():
        if _is_long(value):
            items = ",\n".join([f"{blanks}{blanks}{one_line(item)}" for item in value])
            text = f"[\n{items}\n{blanks}]"
        else:
            text = json.dumps(value, indent=indent, ensure_ascii=False)
            text = text.replace("\n", f"\n{blanks}")
        members.append(f"{blanks}{one_line(key)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}"


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > _LONGEST


def markdown(text: str) -> str:
    """Return *text* as one line that Markdown takes for nothing but text."""
    return _ACTIVE.sub(lambda found: _reference(found[0]), one_line(text))


def code(text: str) -> str:
    """Return *text* as code in Markdown, where no name, number or address becomes a link."""
    return f"<code>{markdown(text)}</code>" if text else ""


def _shortened(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() and char.isprintable() else ascii(char)[1:-1]


def _json_escaped(char: str) -> str:
    code_units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code_units[at : at + 4]}" for at in range(0, len(code_units), 4))


def _reference(char: str) -> str:
    return f"&#{ord(char)};"


def _printable(text: str, escape: Callable[[str], str] = _escaped, kept: str = "") -> str:
    """Escape what Python does not call printable: controls, marks of direction, odd blanks."""
    if text.isprintable():
        return text
    return _UNUSUAL[kept].sub(
        lambda found: found[0] if found[0].isprintable() else escape(found[0]), text
    )


def _disarmed(text: str, escape: Callable[[str], str], before: str = "") -> str:
    """Escape the character that makes the beginning of a line a command for another program."""
    line, start = before + text, len(before)
    if "::" not in line and "##" not in line:
        return text
    pieces = []
    for found in _COMMAND.finditer(line):
        at = found.start(found.lastindex or 0)
        if at >= len(before):
            pieces += [line[start:at], escape(line[at])]
            start = at + 1
    return "".join([*pieces, line[start:]])
