"""Catalogue files: what they say, and how they are found."""

from pathlib import Path
from textwrap import dedent

import pytest

from dplcli.catalog import (
    find_catalog,
    read_catalogs,
    shipped_catalogs,
)
from dplcli.errors import CatalogError
from tests.support.helpers import SCHEMAS, catalog_rules

ONE = """\
dpl: 1
target: t
patterns:
  - name: r
    pattern: Relu(x)
"""


def write(folder: Path, text: str, name: str = "c.yaml") -> Path:
    """Write a catalogue."""
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return path


def test_everything_a_rule_may_say() -> None:
    """Each key of the format ends up in the rule."""
    (found,) = catalog_rules("""
        dpl: 1
        target: my.target
        doc: All of them.
        constants: embed
        patterns:
          - name: r
            doc: One.
            pattern: |
              c = Conv(x, w)
              Relu(c)
            where: [x.rank == 4]
            constants: lift
            escape: refuse
            order: outermost
            attrs: {Version: "3"}
    """)
    assert (found.target, found.name, found.qualified_name) == ("my.target", "r", "my.target.r")
    assert (found.doc, found.constants, dict(found.metadata)) == ("One.", "lift", {"Version": "3"})
    assert [condition.text for condition in found.where] == ["x.rank == 4"]


def test_defaults() -> None:
    """A rule takes its policy for constants from the file, and that is auto if not stated."""
    assert catalog_rules(ONE)[0].constants == "auto"
    assert catalog_rules(ONE.replace("target: t", "target: t\nconstants: lift"))[0].constants == (
        "lift"
    )


def test_priorities() -> None:
    """A rule has the priority of its file unless it has its own, also 0."""
    more = (
        "  - {name: a, pattern: Neg(x), priority: 0}\n  - {name: b, pattern: Abs(x), priority: 9}"
    )
    text = ONE.replace("target: t", "target: t\npriority: 3") + more
    assert [rule.priority for rule in catalog_rules(text)] == [3, 0, 9]
    assert catalog_rules(ONE)[0].priority == 0


def test_listed_order_is_kept() -> None:
    """Rules come in the order of the file, and of the files."""
    names = [rule.name for rule in catalog_rules(ONE + "  - {name: a, pattern: Neg(x)}\n")]
    assert names == ["r", "a"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks(tmp_path: Path, ending: str, mark: str) -> None:
    """A file from another editor loads too."""
    path = tmp_path / "c.yaml"
    path.write_bytes((mark + ONE.replace("\n", ending)).encode())
    assert [rule.name for rule in read_catalogs([str(path)], SCHEMAS).patterns] == ["r"]


def test_a_file_given_twice_counts_once(tmp_path: Path) -> None:
    """The same file by two spellings of its path is read once."""
    path = write(tmp_path, ONE)
    again = tmp_path / "." / "c.yaml"
    assert len(read_catalogs([str(path), str(again)], SCHEMAS).patterns) == 1


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    """A name defined twice, in one file or two, is an error that names both places."""
    twice = write(tmp_path, ONE + "  - name: r\n    pattern: Neg(x)\n")
    with pytest.raises(CatalogError, match=r"c\.yaml:6:.*c\.yaml:4"):
        read_catalogs([str(twice)], SCHEMAS)
    first, second = write(tmp_path, ONE, "a.yaml"), write(tmp_path, ONE, "b.yaml")
    with pytest.raises(CatalogError, match=r"b\.yaml:4:.*a\.yaml:4"):
        read_catalogs([str(first), str(second)], SCHEMAS)


def test_duplicate_name_has_a_column_and_a_caret(tmp_path: Path) -> None:
    """A duplicate name is pointed at like every other error of a catalogue."""
    path = write(tmp_path, ONE + "  - name: r\n    pattern: Neg(x)\n")
    with pytest.raises(CatalogError, match=r"^c\.yaml:6:\d+: ") as caught:
        read_catalogs([str(path)], SCHEMAS)
    assert caught.value.message.rstrip().endswith("^")


def test_one_name_in_two_targets_is_fine(tmp_path: Path) -> None:
    """Rules of different targets may share a name."""
    first = write(tmp_path, ONE, "a.yaml")
    second = write(tmp_path, ONE.replace("target: t", "target: u"), "b.yaml")
    found = read_catalogs([str(first), str(second)], SCHEMAS).patterns
    assert [rule.qualified_name for rule in found] == ["t.r", "u.r"]


def test_shipped_catalogues_load() -> None:
    """Every catalogue that comes with dpl is found by name, and loads."""
    names = shipped_catalogs()
    assert names
    for name in names:
        found = read_catalogs([str(find_catalog(name))], SCHEMAS)
        assert found.patterns or found.rewrites
        assert find_catalog(f"{name}.yaml") == find_catalog(name)


def test_a_path_goes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the name at hand is what is meant."""
    name = shipped_catalogs()[0]
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ONE, name)
    assert find_catalog(name).resolve() == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", ".", "nowhere/c.yaml", "../conv_relu", "x" * 5000, "a\0b", "/etc", "c.onnx"]
)
def test_what_is_no_catalogue_is_not_found(name: str) -> None:
    """Whatever the name, a catalogue that does not exist is one error."""
    with pytest.raises(CatalogError):
        read_catalogs([name], SCHEMAS)


def test_missing_catalogue_gets_a_guess() -> None:
    """The error for a misspelt shipped name says what was meant."""
    name = shipped_catalogs()[0]
    with pytest.raises(CatalogError) as caught:
        find_catalog(name[:-1])
    assert caught.value.hint == f"did you mean {name!r}?"
