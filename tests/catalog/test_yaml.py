"""The same data and the same positions as of ruamel.yaml's own reading, which is slow."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from dplcli.catalog.yaml import YamlSource
from dplcli.errors import CatalogError
from tests.cli.support import ROOT
from tests.diff.compared import calls_in

if TYPE_CHECKING:
    from pathlib import Path


def thorough(text: str) -> Any:  # noqa: ANN401  # YAML holds anything
    """Read *text* with the parser that keeps positions itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return YAML(typ="rt").load(text)


def assert_same(source: YamlSource, expected: Any, where: tuple[Any, ...] = ()) -> None:  # noqa: ANN401  # YAML
    """Compare data, and the positions of all items."""
    data: Any = source.data
    for key in where:
        data = data[key]
    if not hasattr(expected, "lc"):
        assert data == getattr(expected, "value", expected)
        return
    keys = list(expected) if isinstance(data, dict) else list(range(len(expected)))
    assert (list(data) if isinstance(data, dict) else list(range(len(data)))) == keys
    for key in keys:
        facts = ("key", "value") if isinstance(data, dict) else ("item", "item")
        for fact, is_value in zip(facts, (False, True), strict=True):
            place = getattr(expected.lc, fact)(key)
            assert source.position((*where, key), value=is_value) == place
        assert_same(source, expected[key], (*where, key))


SHIPPED = sorted(
    path for folder in ("patterns", "tests/catalogues") for path in (ROOT / folder).glob("*.yaml")
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_catalogs(path: Path) -> None:
    """All that dpl ships means what ruamel.yaml says, and stands where it says."""
    assert_same(YamlSource(path), thorough(path.read_text(encoding="utf-8")))


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
    assert_same(YamlSource(ROOT / "c.yaml", text=SCALARS), thorough(SCALARS))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("b: &b {a: 1, c: 2}\ny: {<<: *b, a: 3}\n", {"b": {"a": 1, "c": 2}, "y": {"a": 3, "c": 2}}),
        ("y: {<<: [{a: 1}, {a: 2, b: 2}]}\n", {"y": {"a": 1, "b": 2}}),
        ("a: !!str 1\nb: !!int '5'\n", {"a": "1", "b": 5}),
        ("a: =\nb: <<\n", {"a": "=", "b": "<<"}),
        ("a:\nb: ~\n", {"a": None, "b": None}),
        ("a: x\u2028y # z\u2028b: 1\nc: 1\n", {"a": "x\u2028y", "c": 1}),
        ("%YAML 1.2\n---\na: yes\n", {"a": "yes"}),
        ("\ufeffa: 1\n", {"a": 1}),
    ],
)
def test_what_is_unusual(text: str, data: object) -> None:
    """Merges, tags, empty items and characters that end lines elsewhere are what YAML 1.2 says."""
    assert YamlSource(ROOT / "c.yaml", text=text).data == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "c.yaml:2:1: not valid YAML: found duplicate key 'a'"),
        ("a: &x [*x]\n", "c.yaml:1:4: aliases repeat without end"),
        ("[1, 2]: 3\n", "c.yaml:1:1: not valid YAML: a key is a text or a number"),
        ("a: *x\n", "c.yaml:1:4: not valid YAML: found undefined alias 'x'"),
        ("a: {<<: 1}\n", "c.yaml:1:9: not valid YAML: only mappings can be merged"),
        ("a: 1\n---\nb: 2\n", "c.yaml:2:1: not valid YAML: a second document begins"),
        ("%YAML 1.1\n---\na: yes\n", "c.yaml:1:1: not valid YAML: YAML 1.2 is expected"),
        ("a: !x 1\n", "c.yaml:1:4: the tag !x means nothing here"),
        *[(f"a: {'[' * 60_000}", "lists and mappings nest too deeply")],
        *[("- " * 60_000, "lists and mappings nest too deeply")],
        *[("{a: " * 60_000, "lists and mappings nest too deeply")],
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    """What means nothing is refused, where it stands."""
    with pytest.raises(CatalogError) as caught:
        YamlSource(ROOT / "c.yaml", text=text)

    assert message in caught.value.message


def test_aliases() -> None:
    """An alias is what the anchor stands at, its positions included."""
    text = "a: &x\n  - {b: 1}\nc: *x\nd: [&y e, *y]\n"
    source = YamlSource(ROOT / "c.yaml", text=text)
    assert source.data["c"] is source.data["a"]
    assert_same(source, thorough(text))


def test_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    """Half a pair of surrogates stands for a byte; it is read where it is escaped, only there."""
    escape = "\\U0000DCFF"
    path = tmp_path / "a.yaml"
    path.write_text(f"a: \"m{escape}.onnx\"\nb: {escape}\nc: '{escape}'\n", encoding="ascii")
    source = YamlSource(path, "a catalogue", "a:")
    assert source.data == {"a": "m\udcff.onnx", "b": escape, "c": escape}
    assert source.position(("b",), value=True) == (1, 3)


def test_a_place_costs_what_its_text_is_long(tmp_path: Path) -> None:
    """However far down in the file."""

    def cost(rules: int) -> int:
        text = "a:\n" + "  - |\n    Relu(\n      x)\n" * rules
        source = YamlSource(tmp_path / "a.yaml", text=text)
        assert source.position_in_text(2, 2, ("a", rules - 1)) == (3 * rules, 6)
        return calls_in(lambda: source.position_in_text(2, 2, ("a", rules - 1)))

    assert cost(400) == cost(4)
