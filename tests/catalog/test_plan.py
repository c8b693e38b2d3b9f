"""Plans as text: what is written is read back, by whichever of the two ways it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog.plan import Plan, PlanEntry, plan_schema, read_plan, write_plan
from dplcli.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

HASH = "0123456789abcdef" * 4
NAMES = st.one_of(
    st.sampled_from(
        [
            *("y", "no", "null", "True", "~", "", "1", "1e3", "/a/b.c-d", "onnx::Conv_1", "a b"),
            *('q"u\\o', "a: b", "a #b", "{x}", "\\U0000000A", "../r.yaml", "...", ".inf", "- a"),
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
ENTRIES = st.lists(st.builds(PlanEntry, NAMES, NAMES, NAMES, NAMES, NAMES), max_size=4)


def plan_of(*entries: PlanEntry) -> Plan:
    """Return a plan for some model."""
    return Plan("m.onnx", HASH, ("rules.yaml",), entries)


def read(folder: Path, text: str) -> Plan:
    """Read *text* as a plan."""
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return read_plan(path)


def slowly(text: str) -> str:
    """Spell the entries in a way that only YAML reads."""
    return text.replace("  - {rule: ", "  -  {rule: ")


def without_notes(entries: tuple[PlanEntry, ...]) -> list[PlanEntry]:
    """Return what a program reads of entries."""
    return [entry._replace(note="", line=0) for entry in entries]


@given(entries=ENTRIES)
def test_what_is_written_is_read_back(tmp_path: Path, entries: list[PlanEntry]) -> None:
    """Whatever the names, and the same, line for line, whether or not YAML is asked."""
    plan = plan_of(*entries)
    text = write_plan(plan, "plan.yaml")

    found, again = read(tmp_path, text), read(tmp_path, slowly(text))

    assert found.entries == again.entries
    assert without_notes(found.entries) == without_notes(tuple(entries))
    assert found._replace(entries=(), path=None) == plan._replace(entries=())


def test_everything_of_a_plan_is_read_back(tmp_path: Path) -> None:
    """The opset, catalogues with odd names, the place of each entry."""
    entries = (PlanEntry("r", "main", "y", "Add"), PlanEntry("r", "main/l.body", "z", "own.Op"))
    plan = Plan("my net.onnx", HASH, ("../a b.yaml", "fuse"), entries, opset=18)

    found = read(tmp_path, write_plan(plan, "plan.yaml"))

    assert without_notes(found.entries) == list(entries)
    assert found._replace(entries=(), path=None) == plan._replace(entries=())
    assert [found.place(entry) for entry in found.entries] == ["plan.yaml:18", "plan.yaml:19"]


@pytest.mark.parametrize(
    "edit",
    [
        ("  - {rule: r", "  # why not\n  - {rule: r"),
        ("  - {rule: r", "\n  - {rule: r"),
        ("applications:\n", "applications:  # all\n"),
        (", scope: main", ""),
        (
            "  - {rule: r, scope: main, root: {output: y, op_type: Add}}",
            "  - rule: r\n    root:\n      output: y\n      op_type: Add",
        ),
        ("scope: main, root: {output: y, op_type: Add}", "root: {op_type: Add, output: y}"),
        ("  - {", "- {"),
    ],
    ids=["comment", "blank", "comment-behind", "no-scope", "block", "order", "indent"],
)
def test_an_entry_may_be_written_otherwise(tmp_path: Path, edit: tuple[str, str]) -> None:
    """It is YAML, after all."""
    entry = PlanEntry("r", "main", "y", "Add")
    text = write_plan(plan_of(entry), "plan.yaml")
    assert edit[0] in text

    assert without_notes(read(tmp_path, text.replace(*edit)).entries) == [entry]


@pytest.mark.parametrize("word", ["null", "true", "~", "1", "[]"])
def test_what_is_no_string_is_refused_however_it_is_read(tmp_path: Path, word: str) -> None:
    """A word that YAML reads as something else is no name."""
    text = write_plan(plan_of(PlanEntry("r", "main", "y", "Add")), "plan.yaml")

    with pytest.raises(CatalogError, match=r"plan\.yaml:16:"):
        read(tmp_path, text.replace("output: y", f"output: {word}"))


def test_a_character_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """It is no YAML."""
    text = write_plan(plan_of(PlanEntry("r", "main", "y", "Add")), "plan.yaml")

    with pytest.raises(CatalogError, match=r"plan\.yaml:\d+:\d+: not valid YAML"):
        read(tmp_path, text.replace("output: y", 'output: "\\UFFFFFFFF"'))


def test_a_note_stays_in_its_line(tmp_path: Path) -> None:
    """Names of nodes may hold anything; a comment ends with its line and is not endless."""
    entry = PlanEntry("r", "main", "y", "Add", note="Add 'a\nb: [' " + "x" * 1000)
    text = write_plan(plan_of(entry), "plan.yaml")

    assert len(text.splitlines()) == 16
    assert max(map(len, text.splitlines())) < 300
    assert without_notes(read(tmp_path, text).entries) == [entry._replace(note="")]


def test_the_schema_describes_what_is_written() -> None:
    """Every key of the file, and no other."""
    schema = plan_schema()

    assert set(schema["properties"]) == {"schema", "model", "opset", "catalogues", "applications"}
    assert schema["additionalProperties"] is False
    item = schema["$defs"]["ApplicationItem"]
    assert set(item["properties"]) == {"rule", "scope", "root"}
    assert item["required"] == ["rule", "root"]
