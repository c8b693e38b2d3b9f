"""The same data and the same positions as of the thorough reading."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dplcli.catalog import quick_yaml
from tests.cli.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def thorough(text: str) -> Any:  # noqa: ANN401  # YAML holds anything
    """Read *text* with the parser that keeps positions itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return YAML(typ="rt").load(text)


def quick(text: str) -> Any:  # noqa: ANN401  # YAML holds anything
    """Read *text* quickly; None if it is unusual."""
    try:
        return quick_yaml.read(text)
    except (quick_yaml.UnusualTextError, YAMLError):
        return None


def assert_same(found: Any, expected: Any) -> None:  # noqa: ANN401  # YAML holds anything
    """Compare data, and the positions of all items."""
    if not hasattr(found, "lc"):
        assert found == expected
        assert isinstance(expected, type(found))
        return
    assert (found.lc.line, found.lc.col) == (expected.lc.line or 0, expected.lc.col or 0)
    keys = list(found) if isinstance(found, dict) else list(range(len(found)))
    assert keys == (list(expected) if isinstance(found, dict) else list(range(len(expected))))
    facts = ("key", "value") if isinstance(found, dict) else ("item",)
    for key in keys:
        for fact in facts:
            assert getattr(found.lc, fact)(key) == getattr(expected.lc, fact)(key)
        assert_same(found[key], expected[key])


SHIPPED = sorted((ROOT / "patterns").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_catalogs_are_usual(path: Path) -> None:
    """All that dpl ships is read quickly."""
    text = path.read_text(encoding="utf-8")
    found = quick(text)
    assert found is not None
    assert_same(found, thorough(text))


SCALARS = """\
octal: 0o17
hexadecimal: 0x1F
grouped: 1_000
words: [yes, on, no, off, y]
float: 1e3
infinite: .inf
nothing: ~
zeros: 012
truth: True
sexagesimal: 1:30
quoted: 'it''s'
escaped: "a\\n\\u00e9"
folded: >-
  one
  two

  three
literal: |
  x
    y
"""


def test_scalars() -> None:
    """Numbers are those of YAML 1.2, and text is what it was."""
    assert_same(quick(SCALARS), thorough(SCALARS))


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [*x]\n",
        "a: 1\na: 2\n",
        "a: 2020-01-01\n",
        "<<: {a: 1}\nb: 2\n",
        "a: !!str 1\n",
        "%YAML 1.1\n---\na: yes\n",
        "a: =\n",
        "[1, 2]: 3\n",
        "a:\nb: 1\n",
        "a:\tb\n",
        "a: x\u2028  b: y\n",
        "a: >#x\n  y\n",
    ],
)
def test_what_is_unusual(text: str) -> None:
    """What the quick reading might take in another way is left to the thorough one."""
    assert quick(text) is None


@pytest.mark.parametrize("text", ["a: " + "[" * 60_000, "- " * 60_000, "{a: " * 60_000])
def test_what_nests_deeply(text: str) -> None:
    """libyaml, which would overflow its stack, is not asked."""
    assert quick(text) is None


TEXTS = [path.read_text(encoding="utf-8")[:1500] for path in SHIPPED] + [SCALARS]
BITS = [*"\n :-[]{},'\"|>#&*!?%@`=~<\\é0aeE.+_\t\x85\u2028\ufeff\x7f", "- ", ": ", "\n  ", "---\n"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a part of a catalogue with a few characters changed."""
    text: str = draw(st.sampled_from(TEXTS))
    begin = draw(st.integers(0, len(text) - 1))
    text = text[begin : begin + draw(st.integers(1, 300))]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(BITS)) + text[at + draw(st.integers(0, 2)) :]
    return text


@given(mutated())
@settings(max_examples=100, deadline=None)
def test_mutated(text: str) -> None:
    """Whatever both take is the same; few texts are taken by libyaml alone."""
    found = quick(text)
    try:
        expected = None if found is None else thorough(text)
    except YAMLError:
        return
    if found is not None:
        assert_same(found, expected)


def test_aliases() -> None:
    """An alias is what the anchor stands at, its positions included."""
    text = "a: &x\n  - {b: 1}\nc: *x\nd: [&y e, *y]\n"
    found = quick(text)
    assert found["c"] is found["a"]
    assert_same(found, thorough(text))
