"""What all pages and drawings share: templates, and files that stand in a page as they are.

A page's policy (CSP) names its own scripts by their hashes, so a browser runs no others, whatever
a model or a catalogue holds. Data stands in a page as JSON, in which nothing can end a script.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dplcli.escaping import one_line

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def templates() -> Environment:
    """Return the environment of the templates, in which every text is escaped."""
    environment = Environment(
        loader=PackageLoader("dplcli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["line"] = one_line
    return environment


def static(name: str) -> Markup:
    """Return a script or a style sheet of ours, to stand in a page as it is."""
    text = (files("dplcli.report") / "static" / name).read_text(encoding="utf-8")
    text = text.partition("//# sourceMappingURL")[0]
    # minifiers leave such characters in strings; on standard output they would be written like this
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return Markup(text)  # noqa: S704  # our own


def allowed(*scripts: str) -> Markup:
    """Return the sources that a policy lists, so that a browser runs *scripts* and no others."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return Markup(" ".join(f"'sha256-{b64encode(each).decode()}'" for each in digests))  # noqa: S704  # no sign of HTML


def inert_json(text: str) -> Markup:
    """Return JSON for a page: what could end a script is written as an escape."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704  # no markup is left
