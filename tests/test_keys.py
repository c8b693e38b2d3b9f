"""What a class says of its JSON: the walker of values and that of types read it alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jsonschema
import pytest

from dplcli.cli.schema import documents_known
from dplcli.keys import keys
from dplcli.report.json import parts_of
from dplcli.report.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Point(NamedTuple):
    """A point."""

    x: int
    is_far: bool


@keys("... -x")
class Flag(Point):
    """All but the number."""


@keys("kind *=point")
class Named(NamedTuple):
    """A point with a kind."""

    kind: str
    point: Point | None


@keys(
    "title=name size.first=ends.0 size.last=ends.1 xs=points.x many=points.len lone.x=point.x "
    "flag file named words? count numbers",
    "dpl.sample/1",
)
@dataclass(frozen=True)
class Sample:
    """A sample.

    Attributes:
        name: What it is called,
            on two lines.
    """

    name: str
    ends: tuple[int, int]
    points: Sequence[Point]
    point: Point | None
    flag: Flag
    file: Path | None
    named: Named
    words: tuple[str, ...] = ()
    numbers: Mapping[str, float] | None = None

    @property
    def count(self) -> int:
        """How many ``words`` there are; see :class:`Point`."""
        return len(self.words)


SAMPLE = Sample(
    "n",
    (1, 2),
    [Point(1, is_far=True), Point(2, is_far=False)],
    Point(3, is_far=True),
    Flag(1, is_far=True),
    Path("/a/b"),
    Named("k", Point(4, is_far=False)),
    ("w",),
    {"inf": float("inf"), "one": 1.0},
)
BARE = Sample("n", (1, 2), [], None, Flag(1, is_far=False), None, Named("k", None))


def test_a_value_is_written_by_the_keys_of_its_class() -> None:
    """Other names, parts of parts, objects inside, all keys of a part; paths without folders."""
    assert parts_of(SAMPLE) == {
        "schema": "dpl.sample/1",
        "title": "n",
        "size": {"first": 1, "last": 2},
        "xs": [1, 2],
        "many": 2,
        "lone": {"x": 3},
        "flag": {"far": True},
        "file": "b",
        "named": {"kind": "k", "x": 4, "far": False},
        "words": ["w"],
        "count": 1,
        "numbers": {"inf": "inf", "one": 1.0},
    }
    bare = parts_of(BARE)
    assert (bare["lone"], bare["named"], bare["numbers"]) == ({"x": None}, {"kind": "k"}, None)
    assert "words" not in bare


def test_the_schema_allows_what_is_written_and_nothing_else() -> None:
    """A key more, a key less and another type are mistakes, also inside."""
    judge = jsonschema.Draft202012Validator(json_schema([Sample]))
    for sample in (SAMPLE, BARE):
        assert list(judge.iter_errors({"dpl_version": "1", **parts_of(sample)})) == []
    whole: dict[str, Any] = {"dpl_version": "1", **parts_of(SAMPLE)}
    wrong: list[dict[str, Any]] = [
        {"new": 1},
        {"count": "1"},
        {"size": {"first": 1}},
        {"flag": {"far": True, "x": 1}},
        {"numbers": {"one": "1"}},
    ]
    assert all(list(judge.iter_errors(whole | change)) for change in wrong)


def test_a_schema_tells_what_the_class_says() -> None:
    """Of a field in the list of attributes, of a property in its docstring; without marks."""
    properties = json_schema([Sample])["properties"]
    assert properties["title"]["description"] == "What it is called, on two lines."
    assert properties["count"]["description"] == "How many words there are; see Point."


@pytest.mark.parametrize("name", documents_known())
def test_every_document_has_a_schema(name: str) -> None:
    """Each path that a class names leads to something whose type is known."""
    jsonschema.Draft202012Validator.check_schema(documents_known()[name][1]())
