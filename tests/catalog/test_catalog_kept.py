"""Rules read before are used again, as long as all that they were made of says the same."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dplcli.catalog import read_catalogs
from dplcli.ir import Graph
from dplcli.passes.select import select_matches
from tests.support.helpers import SCHEMAS, model_from_text, taken

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.language import PatternRule

OUTER = """dpl: 1
target: t
include: [inner.yaml]
patterns:
  - name: outer
    pattern: ${what}
    where: ["x.rank == 2"]
"""
INNER = """dpl: 1
fragments:
  what: Relu(x)
"""
GRAPH = "only_here (float[2,3] a) => (float[2,3] b) { b = Relu (a) }"


def written(folder: Path, outer: str = OUTER, inner: str = INNER) -> Path:
    """Write a catalogue and what it includes."""
    (folder / "inner.yaml").write_text(inner, encoding="utf-8")
    path = folder / "outer.yaml"
    path.write_text(outer, encoding="utf-8")
    return path


def read(path: Path, *, allow_code: bool = False) -> PatternRule:
    """Read the one rule of a catalogue."""
    (rule,) = read_catalogs([str(path)], SCHEMAS, allow_code=allow_code).patterns
    return rule


def test_the_same_text_gives_the_same_rule(tmp_path: Path) -> None:
    """With the pattern that was compiled for it."""
    path = written(tmp_path)

    assert read(path) is read(path)


def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    """Its own text counts, and so do its name and what it includes."""
    before = read(written(tmp_path))

    condition = read(written(tmp_path, OUTER.replace("2", "3")))
    fragment = read(written(tmp_path, inner=INNER.replace("Relu", "Abs")))
    renamed = read(written(tmp_path).rename(tmp_path / "other.yaml"))

    assert [item.text for item in condition.where] == ["x.rank == 3"]
    assert repr(fragment.pattern) == "Abs(x)"
    assert renamed.origin == "other.yaml:5"
    assert before.origin == "outer.yaml:5"
    assert repr(read(written(tmp_path)).pattern) == repr(before.pattern) == "Relu(x)"


def test_what_may_import_code_is_made_anew(tmp_path: Path) -> None:
    """The code may have changed."""
    path = written(tmp_path)

    assert read(path, allow_code=True) is not read(path, allow_code=True)


def test_each_thread_has_rules_of_its_own(tmp_path: Path) -> None:
    """Conditions have a place to work in."""
    path, found = written(tmp_path), list[object]()
    thread = threading.Thread(target=lambda: found.append(read(path)))
    thread.start()
    thread.join(60)

    assert found != []
    assert found[0] is not read(path)


@pytest.mark.long
def test_a_rule_keeps_no_model(tmp_path: Path) -> None:
    """What it was asked about is gone with whoever asked."""
    rule, model = read(written(tmp_path)), model_from_text(GRAPH)
    assert taken(select_matches(model, [rule])) == ["outer: b"]
    assert is_alive("only_here")

    del model

    assert not is_alive("only_here")


def is_alive(name: str) -> bool:
    """Tell whether a graph of this name is still there."""
    gc.collect()
    return any(isinstance(item, Graph) and item.name == name for item in gc.get_objects())


def test_other_policies_share_the_compiled_pattern(tmp_path: Path) -> None:
    """Policies say what becomes of a match, not what one is."""
    rule = read(written(tmp_path))

    other = rule.with_policies(constants="embed", order="program")

    assert (other.constants, other.escape, other.order) == ("embed", "refuse", "program")
    assert other.matcher is rule.matcher
    assert replace(rule, order="program").matcher is not rule.matcher
