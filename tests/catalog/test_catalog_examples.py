"""Examples in a file of their own: beside the catalogue, or with the tests."""

from pathlib import Path

import pytest

from dplcli import pipeline
from dplcli.catalog import read_catalogs, shipped_catalogs
from dplcli.catalog.finding import examples_file
from dplcli.errors import CatalogError
from tests.cli.support import ROOT
from tests.support.helpers import SCHEMAS

CATALOGUE = """\
dpl: 1
target: t
patterns:
  - name: r_relu
    pattern: Relu(x)
    examples: [{before: own}]
  - name: r_tanh
    pattern: Tanh(x)
rewrites:
  - name: twice
    pattern: Abs(Abs(x))
    replacement: Abs(x)
"""
EXAMPLES = """\
dpl: 1
examples:
  - for_each: {op: {relu: {is: Relu}, tanh: {is: Tanh}}}
    rule: r_${op}
    before: |
      ${op.is} is here
  - rule: r_tanh
    before: other
    after: unchanged
  - rule: twice
    before: two
"""


def write(folder: Path, examples: str | None = EXAMPLES) -> str:
    """Write a catalogue and, if there are some, its examples."""
    (folder / "c.yaml").write_text(CATALOGUE)
    if examples is not None:
        (folder / "c.examples.yaml").write_text(examples)
    return str(folder / "c.yaml")


def test_examples_are_read_only_when_asked_for(tmp_path: Path) -> None:
    """Matching does not need them, so a broken file of examples does no harm there."""
    path = write(tmp_path, "nonsense")

    assert [len(rule.examples) for rule in read_catalogs([path], SCHEMAS).rules] == [1, 0, 0]
    with pytest.raises(CatalogError, match=r"c\.examples\.yaml: is not a file of examples"):
        read_catalogs([path], SCHEMAS, with_examples=True)


def test_examples_belong_to_the_rules_they_name(tmp_path: Path) -> None:
    """After those in the catalogue, in order, with the line they are written at."""
    relu, tanh, twice = read_catalogs([write(tmp_path)], SCHEMAS, with_examples=True).rules

    assert [(e.before, e.after, e.origin) for e in relu.examples] == [
        ("own", "any", "c.yaml:6"),
        ("Relu is here\n", "any", "c.examples.yaml:5"),
    ]
    assert [(e.before, e.after, e.origin) for e in tanh.examples] == [
        ("Tanh is here\n", "any", "c.examples.yaml:5"),
        ("other", "unchanged", "c.examples.yaml:8"),
    ]
    assert [e.before for e in twice.examples] == ["two"]


def test_a_catalogue_without_such_a_file(tmp_path: Path) -> None:
    """Nothing is missing."""
    path = write(tmp_path, None)

    assert read_catalogs([path], SCHEMAS, with_examples=True).rules[1].examples == ()


def test_the_commands_about_catalogues_read_them(tmp_path: Path) -> None:
    """``show``, ``check`` and ``test`` all go through here."""
    rules = pipeline.load_catalog_rules([write(tmp_path)])

    assert [len(rule.examples) for rule in rules] == [2, 2, 1]


@pytest.mark.parametrize(
    ("examples", "says"),
    [
        ("dpl: 1\n", "the key 'examples' is missing"),
        ("dpl: 2\nexamples: []\n", "c.examples.yaml:1:1: dpl:"),
        ("dpl: 1\nexamples: [{rule: r_relu}]\n", "the key 'before' is missing"),
        ("dpl: 1\nexamples: [{before: x}]\n", "the key 'rule' is missing"),
        ("dpl: 1\nexamples: [{rule: r_relo, before: x}]\n", "c.yaml has no rule 'r_relo'"),
        ("dpl: 1\nexamples: [{rule: r_relu, befor: x}]\n", "unknown key 'befor'"),
        ("dpl: 1\nexamples: [{rule: r_relu, before: '${x}'}]\n", "no variable or fragment 'x'"),
        (
            "dpl: 1\nexamples: [{for_each: {a: [relu, tan]}, rule: 'r_${a}', before: x}]\n",
            "c.yaml has no rule 'r_tan' (for a=tan)",
        ),
        (
            "dpl: 1\nexamples: [{for_each: {a: [b]}, rule: r_relu, before: x}]\n",
            "the variable 'a' is not used",
        ),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, examples: str, says: str) -> None:
    """With file, line and column."""
    with pytest.raises(CatalogError) as caught:
        read_catalogs([write(tmp_path, examples)], SCHEMAS, with_examples=True)

    assert says in caught.value.message
    assert caught.value.message.startswith("c.examples.yaml:")


def test_examples_of_shipped_catalogues_are_with_the_tests() -> None:
    """Each file of them belongs to a catalogue, is found by it, and is not in the wheel."""
    files = sorted((ROOT / "tests" / "catalogues").glob("*.examples.yaml"))
    catalogues = [ROOT / "patterns" / file.name.replace(".examples", "") for file in files]

    assert len(files) > 5
    assert {path.stem for path in catalogues} <= set(shipped_catalogs())
    assert [examples_file(path) for path in catalogues] == files
    assert not list((ROOT / "patterns").glob("*.examples.yaml"))
