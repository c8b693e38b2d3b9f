"""A picture of a model as one page of HTML: the graph as data, and the scripts that draw it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dplcli.escaping import json_text, one_line
from dplcli.ir.model import NODES_KEY, called_function, scope_of
from dplcli.ir.operators import schema_of
from dplcli.ir.traversal import captured_values
from dplcli.passes.records import UNDO_KEY, read_entries
from dplcli.report.page import allowed, inert_json, static, templates
from dplcli.report.picture import (
    KINDS,
    Box,
    ConstantFacts,
    attribute_texts,
    facts_of,
    rule_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from dplcli.ir import Node, Value
    from dplcli.ir.types import Tensor
    from dplcli.report.picture import Opened, Picture, Sheet

    Key = TypeVar("Key", bound=Hashable)

    Marks: TypeAlias = Mapping[tuple[str, str], str]

SCHEMA = "dpl.view/1"

NO_MARKS: Marks = MappingProxyType({})
"""Nothing is to be seen of any node."""

SCRIPTS = (
    *("dagre.min.js", "data.js", "layout.js", "draw.js", "camera.js", "details.js", "search.js"),
    "main.js",
)
"""In order: each may use what those before it define."""

_LONGEST_NAME = 400
_LONGEST_METADATA = 300
_MOST_METADATA = 12
_MOST_ENTRIES = 40
_MOST_BYTES = 1 << 30
"""So much of all constants is read for what is shown of their numbers."""


def view_page(
    picture: Picture, opened: Opened, notes: Iterable[str] = (), marks: Marks = NO_MARKS
) -> str:
    """Return the page that shows *picture*.

    Args:
        picture: What is drawn.
        opened: The boxes that are open at first.
        notes: What a reader should know.
        marks: What is to be seen of nodes, by their scope and the name of their first output.
    """
    record = view_record(picture, opened, notes, marks)
    scripts = [static(name) for name in SCRIPTS]
    return (
        templates()
        .get_template("view.html.j2")
        .render(
            title=picture.label,
            style=static("view.css"),
            policy=allowed(*scripts),
            scripts=scripts,
            data=inert_json(json_text(record, indent=0).replace("\n", "")),
        )
    )


def view_record(
    picture: Picture, opened: Opened, notes: Iterable[str] = (), marks: Marks = NO_MARKS
) -> dict[str, Any]:
    """Return all that the page knows of a picture, for JSON.

    What occurs often is a number there: the place in ``ops``, ``types``, ``values``, ``consts``,
    ``boxes``, ``sheets`` or ``nodes``, or -1.
    """
    return _Record(picture, opened, marks).written(list(notes))


class _Numbers:
    """Numbers for things, in order of their first mention."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __getitem__(self, key: Hashable) -> int:
        return self.of.setdefault(key, len(self.of))


class _Record:
    """The data of a page while it is collected."""

    def __init__(self, picture: Picture, opened: Opened, marks: Marks) -> None:
        self.picture = picture
        self.opened = opened
        self.marks = marks
        self.ops, self.types, self.values = _Numbers(), _Numbers(), _Numbers()
        self.constants = _Numbers()
        self.examples: dict[str, Node] = {}
        sheets = picture.sheets.values()
        self.sheets = {sheet: number for number, sheet in enumerate(sheets)}
        nodes = [node for sheet in sheets for node in sheet.nodes]
        self.nodes = {node: number for number, node in enumerate(nodes)}
        self.boxes: dict[Box, int] = {}
        self.box_of: dict[Node, int] = {}
        self.box_rows: list[list[object]] = []
        for sheet, number in self.sheets.items():
            self._number_boxes(sheet.root, -1, number)
        self._left = _MOST_BYTES

    def _number_boxes(self, root: Box, parent: int, sheet: int) -> None:
        pending = [(root, parent)]
        while pending:
            box, outer = pending.pop()
            number = self.boxes[box] = len(self.boxes)
            is_open = box in self.opened.boxes
            self.box_rows.append([_name(box.label), box.kind, outer, sheet, int(is_open)])
            for item in reversed(box.items):
                if isinstance(item, Box):
                    pending.append((item, number))
                else:
                    self.box_of[item] = number

    def written(self, notes: list[str]) -> dict[str, Any]:
        """Collect everything; values and constants are numbered as they are met."""
        nodes = [
            self._node(node, sheet)
            for sheet in self.picture.sheets.values()
            for node in sheet.nodes
        ]
        sheets = [self._sheet(sheet) for sheet in self.picture.sheets.values()]
        values = [self._value(value) for value in self.values.of]
        return {
            "schema": SCHEMA,
            "title": _name(self.picture.label),
            "kinds": list(KINDS),
            "nodes": nodes,
            "boxes": self.box_rows,
            "sheets": sheets,
            "values": values,
            "ops": [self._op(name, kind) for name, kind in self.ops.of],
            "consts": list(map(self._constant, self.constants.of)),
            "types": list(self.types.of),
            "notes": [one_line(note, 1_000) for note in notes],
        }

    def _node(self, node: Node, sheet: Sheet) -> list[object]:
        drawn = sheet.folded.get(node)
        self.examples.setdefault(node.qualified_op, node)
        row: list[object] = [
            self.ops[node.qualified_op, self.picture.kind(node)],
            _name(node.name),
            [-1 if value is None else self.values[value] for value in node.inputs],
            [-1 if value is None else self.values[value] for value in node.outputs],
            -1 if drawn is not None else self.box_of[node],
        ]
        more = self._more(node)
        if drawn is not None:
            more["folded"] = self.nodes[drawn]
        return [*row, more] if more else row

    def _op(self, name: str, kind: str) -> list[object]:
        """Return an operator or a function: its class, and what it calls inputs and outputs."""
        node = self.examples[name]
        function, schema = called_function(node), schema_of(node)
        if function is not None:
            roles = [
                [v.name for v in ends] for ends in (function.body.inputs, function.body.outputs)
            ]
        else:
            roles = [[], []] if schema is None else [list(schema.inputs), list(schema.outputs)]
        return [_name(name), KINDS.index(kind), *(list(map(_name, names)) for names in roles)]

    def _more(self, node: Node) -> dict[str, Any]:
        remarks = node.remarks
        metadata = {
            _name(key): one_line(text, _LONGEST_METADATA)
            for key, text in list(remarks.metadata.items())[:_MOST_METADATA]
            if key not in {NODES_KEY, UNDO_KEY}
        }
        entries = read_entries(node)
        found: dict[str, Any] = {
            "attributes": {_name(name): text for name, text in attribute_texts(node).items()},
            "metadata": metadata,
            "doc": one_line(remarks.doc, _LONGEST_METADATA),
            "stands": [[_name(entry.op), _name(entry.name)] for entry in entries[:_MOST_ENTRIES]],
            "bodies": [[_name(n), self.sheets[sheet]] for n, sheet in self.picture.bodies(node)],
            "captured": [self.values[v] for v in dict.fromkeys(captured_values(node))],
            "open": int(node in self.opened.nodes),
            "mark": self._mark(node),
        }
        return {key: item for key, item in found.items() if item}

    def _mark(self, node: Node) -> str:
        if not self.marks:
            return ""
        output = next((value.name for value in node.outputs if value is not None), "")
        return self.marks.get((scope_of(node.graph), output), "")

    def _sheet(self, sheet: Sheet) -> dict[str, Any]:
        function = sheet.function
        return {
            "title": _name(sheet.title),
            "root": self.boxes[sheet.root],
            "inputs": [self.values[value] for value in sheet.inputs],
            "outputs": [self.values[value] for value in sheet.outputs],
            "given": [self.values[v] for v in sheet.inputs if v in self.picture.given],
            **({} if function is None else {k: _name(t) for k, t in rule_of(function).items()}),
        }

    def _value(self, value: Value) -> list[object]:
        known = value.inferred_type()
        number = -1 if known is None else self.types[one_line(str(known), 200)]
        tensor = value.constant
        row: list[object] = [_name(value.name), number]
        return row if tensor is None else [*row, self.constants[tensor]]

    def _constant(self, tensor: Tensor) -> list[object]:
        facts = self._facts(tensor)
        row: list[object] = [
            self.types[one_line(f"{tensor.dtype}{list(tensor.shape)}".replace(" ", ""), 200)],
            tensor.size,
            list(facts.first),
            *([] if facts.low is None else [_short(facts.low), _short(facts.high)]),
        ]
        rest: dict[str, object] = {
            "bins": list(facts.bins),
            "looked": facts.looked_at if facts.looked_at < tensor.size else 0,
            "odd": facts.odd,
            "why": facts.why_not,
        }
        rest = {key: item for key, item in rest.items() if item}
        return [*row, rest] if rest else row

    def _facts(self, tensor: Tensor) -> ConstantFacts:
        self._left -= 4 * tensor.size
        if self._left < 0:
            return ConstantFacts(why_not="not read: the model's constants are too large")
        return facts_of(tensor)


def _name(text: str) -> str:
    return one_line(text, _LONGEST_NAME)


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.6g}")
