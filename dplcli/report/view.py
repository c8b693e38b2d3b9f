"""A picture of a model as one page of HTML: the graph as data, and the scripts that draw it."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dplcli.escaping import json_text, one_line
from dplcli.ir.model import NODES_KEY, called_function, scope_of
from dplcli.ir.operators import schema_of
from dplcli.ir.traversal import captured_values
from dplcli.keys import keys
from dplcli.passes.records import UNDO_KEY, read_entries
from dplcli.report.document import DrawnPatterns, key_of
from dplcli.report.page import allowed, inert_json, static, templates
from dplcli.report.picture import (
    KINDS,
    Box,
    ConstantFacts,
    Picture,
    attribute_texts,
    facts_of,
    quantised_ranges,
    rule_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from markupsafe import Markup

    from dplcli.ir import Node, Value
    from dplcli.ir.types import Tensor
    from dplcli.report.document import Drawn, NodeKey
    from dplcli.report.picture import Opened, Sheet

    Key = TypeVar("Key", bound=Hashable)


SCHEMA = "dpl.view/1"


class ViewData(NamedTuple):
    """What the page of dpl view draws; rows refer to each other by their numbers.

    Attributes:
        title: What is drawn.
        kinds: Classes of operators.
        nodes: A row for each node.
        boxes: A row for each group of nodes.
        sheets: The graphs.
        values: A row for each value.
        ops: A row for each operator.
        consts: A row for each constant.
        types: Types of values.
        notes: What a reader should know.
        open: The dimensions of inputs on which costs that are not known depend.
    """

    title: str
    kinds: list[str]
    nodes: list[list[Any]]
    boxes: list[list[Any]]
    sheets: list[dict[str, Any]]
    values: list[list[Any]]
    ops: list[list[Any]]
    consts: Sequence[Any] = ()
    types: Sequence[str] = ()
    notes: Sequence[str] = ()
    open: Sequence[str] = ()

    def as_page(self) -> dict[str, Any]:
        """Return it as a page holds it."""
        return {"schema": SCHEMA, **self._asdict()}


SCRIPTS = (
    *("dagre.min.js", "data.js", "colours.js", "layout.js", "draw.js", "camera.js", "details.js"),
    *("search.js", "pane.js", "pair.js", "main.js"),
)
"""In order: each may use what those before it define."""

_LONGEST_NAME = 400
_LONGEST_METADATA = 300
_MOST_METADATA = 12
_MOST_ENTRIES = 40
_LONGEST_STEP = 600
_MOST_IN_STEP = 60
_MOST_BYTES = 1 << 30
"""So much of all constants is read for what is shown of their numbers."""


class NodeFigures(NamedTuple):
    """What is to be seen of nodes beside what the model says.

    Attributes:
        marks: Words, such as 'added'; see :class:`dplcli.report.document.DrawnModel`.
        errors: Errors, as shares of the tolerance.
        costs: Floating-point operations.
        open_sizes: The dimensions of inputs on which costs that are not known depend.
    """

    marks: Mapping[NodeKey, str] = MappingProxyType({})
    errors: Mapping[NodeKey, float] = MappingProxyType({})
    costs: Mapping[Node, int] = MappingProxyType({})
    open_sizes: Sequence[str] = ()


def view_page(
    picture: Picture, opened: Opened, notes: Iterable[str] = (), figures: NodeFigures | None = None
) -> str:
    """Return the page that shows *picture*; the rest is as :func:`view_data` takes it."""
    scripts = [static(name) for name in SCRIPTS]
    return (
        templates()
        .get_template("view.html.j2")
        .render(
            title=picture.label,
            style=static("view.css"),
            policy=allowed(*scripts),
            scripts=scripts,
            data=packed(view_data(picture, opened, notes, figures).as_page()),
        )
    )


@keys("model=label *=data", SCHEMA)
class Viewed(NamedTuple):
    """What the page of dpl view draws; rows refer to each other by their numbers."""

    label: str
    picture: Picture
    opened: Opened
    notes: Sequence[str]
    figures: NodeFigures

    @property
    def data(self) -> ViewData:
        """All that the page knows."""
        return view_data(*self[1:])


def packed(record: object) -> Markup:
    """Return data as a page holds it."""
    return inert_json(json_text(record, indent=0).replace("\n", ""))


def view_data(
    picture: Picture, opened: Opened, notes: Iterable[str] = (), figures: NodeFigures | None = None
) -> ViewData:
    """Return all that a page knows of a picture.

    What occurs often is a number there: the place in ``ops``, ``types``, ``values``, ``consts``,
    ``boxes``, ``sheets`` or ``nodes``, or -1.

    Args:
        picture: What is drawn.
        opened: The boxes that are open at first.
        notes: What a reader should know.
        figures: What is to be seen of nodes.
    """
    return _Record(picture, opened, figures or NodeFigures()).written(list(notes))


def pattern_record(patterns: DrawnPatterns) -> dict[str, Any]:
    """Return all that a page knows of patterns: each is a group, in which its parts lead to it."""
    values, ops = _Numbers(), _Numbers()
    nodes: list[list[object]] = []
    boxes: list[list[object]] = [["", "sheet", -1, 0, 1]]
    for number, (title, trace) in enumerate(zip(patterns.titles, patterns.traces, strict=True)):
        boxes.append([_name(title), "scope", 0, 0, int(number == 0)])
        outer: dict[int, int] = {}
        for place, line in enumerate(trace.lines):
            outer[line.depth] = len(nodes)
            output = values[str(number), str(place)]
            if line.depth:
                reader: Any = nodes[outer[line.depth - 1]]
                reader[2].append(output)
            more = {
                "mark": _MARKS_OF_PARTS.get(line.status, ""),
                "doc": one_line(line.found or line.status, _LONGEST_STEP),
            }
            nodes.append([ops[line.pattern], _name(line.place), [], [output], len(boxes) - 1, more])
    return ViewData(
        title="patterns",
        kinds=[*KINDS, "part"],
        nodes=nodes,
        boxes=boxes,
        sheets=[{"title": "patterns", "root": 0, "inputs": [], "outputs": [], "given": []}],
        values=[["", -1] for _ in values.of],
        ops=[[_name(text), len(KINDS), [], []] for text in ops.of],
    ).as_page()


_MARKS_OF_PARTS = {"matched": "fits", "failed": "does not fit"}


def beside_record(shown: Sequence[Picture | DrawnPatterns], drawn: Drawn) -> dict[str, Any]:
    """Return which nodes of two pictures belong together, and the steps between them.

    Nodes go by their numbers in :func:`view_data` or :func:`pattern_record`. A step that is about
    nothing that is drawn, such as a Constant, is left out.

    Args:
        shown: The pictures.
        drawn: What is known of them.
    """
    numbers = [_numbers_in(each) for each in shown]
    pairs: dict[tuple[int, int], None] = {}
    is_apart = any(isinstance(model, DrawnPatterns) for model in drawn.models)
    if len(numbers) > 1:
        first, second = numbers
        said = [(one, other) for one, other in drawn.pairs if one in first and other in second]
        pairs = dict.fromkeys((first[one], second[other]) for one, other in said)
        graphs = [_nodes_of(each) for each in shown if isinstance(each, Picture)]
        for keys in (_values_in, _named_in) if len(graphs) > 1 else ():
            _add_shared(pairs, *map(keys, graphs))
        _add_shared(pairs, first, second)
    steps: list[list[object]] = []
    for step in drawn.steps:
        sides = [
            [known[key] for key in keys if key in known][:_MOST_IN_STEP]
            for known, keys in zip(numbers, step.nodes, strict=False)
        ]
        if any(sides):
            title, text = one_line(step.title, _LONGEST_NAME), one_line(step.text, _LONGEST_STEP)
            steps.append([title, text, *sides])
    begins = bool(steps) and drawn.begins
    return {"pairs": sorted(pairs), "steps": steps, "apart": is_apart, "begins": begins}


def _numbers_in(shown: Picture | DrawnPatterns) -> dict[NodeKey, int]:
    if isinstance(shown, DrawnPatterns):
        parts = [(str(n), str(k)) for n, t in enumerate(shown.traces) for k in range(len(t.lines))]
        return {key: number for number, key in enumerate(parts)}
    return {key_of(node): number for number, node in enumerate(_nodes_of(shown))}


def _values_in(nodes: list[Node]) -> dict[tuple[str, ...], int]:
    """Return the nodes by their operator and what they make."""
    return {(node.qualified_op, *key_of(node)): number for number, node in enumerate(nodes)}


def _named_in(nodes: list[Node]) -> dict[tuple[str, ...], int]:
    """Return the nodes that alone have their name, which stays if what they make is renamed."""
    keys = [(scope_of(node.graph), node.qualified_op, node.name) for node in nodes]
    counts = Counter(keys)
    return {key: number for number, key in enumerate(keys) if key[-1] and counts[key] == 1}


def _add_shared(
    pairs: dict[tuple[int, int], None], first: Mapping[Key, int], second: Mapping[Key, int]
) -> None:
    """Pair what has one key on both sides, if neither has a partner yet."""
    taken = [{pair[side] for pair in pairs} for side in (0, 1)]
    for key, number in first.items():
        other = second.get(key)
        if other is not None and number not in taken[0] and other not in taken[1]:
            pairs[number, other] = None


def _nodes_of(picture: Picture) -> list[Node]:
    return [node for sheet in picture.sheets.values() for node in sheet.nodes]


class _Numbers:
    """Numbers for things, in order of their first mention."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __getitem__(self, key: Hashable) -> int:
        return self.of.setdefault(key, len(self.of))


class _Record:
    """The data of a page while it is collected."""

    def __init__(self, picture: Picture, opened: Opened, figures: NodeFigures) -> None:
        self.picture = picture
        self.opened = opened
        self.figures = figures
        self.ops, self.types, self.values = _Numbers(), _Numbers(), _Numbers()
        self.constants = _Numbers()
        self.examples: dict[str, Node] = {}
        sheets = picture.sheets.values()
        self.sheets = {sheet: number for number, sheet in enumerate(sheets)}
        self.nodes = {node: number for number, node in enumerate(_nodes_of(picture))}
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

    def written(self, notes: list[str]) -> ViewData:
        """Collect everything; values and constants are numbered as they are met."""
        nodes = [self._node(node, sheet) for sheet in self.sheets for node in sheet.nodes]
        sheets = [self._sheet(sheet) for sheet in self.sheets]
        values = [self._value(value) for value in self.values.of]
        return ViewData(
            title=_name(self.picture.label),
            kinds=list(KINDS),
            nodes=nodes,
            boxes=self.box_rows,
            sheets=sheets,
            values=values,
            ops=[self._op(name, kind) for name, kind in self.ops.of],
            consts=list(map(self._constant, self.constants.of)),
            types=list(self.types.of),
            notes=[one_line(note, 1_000) for note in notes],
            open=list(map(_name, self.figures.open_sizes)),
        )

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
        roles: list[Iterable[str]] = [(), ()]
        if function is not None:
            body = function.body
            roles = [(value.name for value in ends) for ends in (body.inputs, body.outputs)]
        elif schema is not None:
            roles = [schema.inputs, schema.outputs]
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
            "mark": self.figures.marks.get(key_of(node), ""),
            "numbers": self._numbers_of(node),
            "ranges": [
                [_name(found.role), _short(found.low), _short(found.high), found.how]
                for found in quantised_ranges(node)
            ],
        }
        return {key: item for key, item in found.items() if item}

    def _numbers_of(self, node: Node) -> dict[str, float | None]:
        """Return the numbers that nodes are coloured by."""
        found: dict[str, float | None] = {}
        if node in self.figures.costs:
            found["cost"] = self.figures.costs[node]
        if self.figures.errors and (error := self.figures.errors.get(key_of(node))) is not None:
            found["error"] = _short(error)
        if ranges := quantised_ranges(node):
            found["range"] = _short(max(max(abs(r.low), abs(r.high)) for r in ranges))
        return found

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
        known = value.known_type()
        number = -1 if known is None else self.types[one_line(str(known), 200)]
        tensor = value.constant
        row: list[object] = [_name(value.name), number]
        return row if tensor is None else [*row, self.constants[tensor]]

    def _constant(self, tensor: Tensor) -> list[object]:
        self._left -= 4 * tensor.size
        facts = ConstantFacts(why_not="not read: the model's constants are too large")
        if self._left >= 0:
            facts = facts_of(tensor)
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


def _name(text: str) -> str:
    return one_line(text, _LONGEST_NAME)


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.6g}")
