"""What a drawing of a model shows: sheets of nodes in boxes that open and close.

A *sheet* is a graph to draw: the main graph, the body of a function, the body of an If, Loop or
Scan. Its nodes lie in *boxes*: module scopes, which exporters write into names or metadata, and
chunks, neighbours in topological order, where a box would hold too much to look at. A call is a
box, too: it opens into the sheet of its function, which is there once however many calls there are.

Constants are no nodes here, nor is what computes one for a single reader, such as the
DequantizeLinear of a weight: both belong to who reads them.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dplcli.errors import DplError, UsageError, did_you_mean
from dplcli.escaping import one_line
from dplcli.ir.model import ORIGIN_KEY, called_function, scope_of
from dplcli.ir.operators import OP_KINDS, RANDOM_OPS, kind_of, schema_of
from dplcli.ir.printer import short_float
from dplcli.ir.traversal import captured_values
from dplcli.ir.types import Tensor
from dplcli.passes.records import CODEGEN_KEY, COMPOSITE_KEY, is_partition, is_region, read_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Function, Graph, Model, Node, TensorType, Value

    Item: TypeAlias = "Box | Node"

MOST_ITEMS = 150
"""A box with more items is cut into chunks."""

AT_FIRST = 60
"""So many items may be seen when a picture is opened."""

KINDS = (*OP_KINDS, "other", "function", "partition", "region")
"""The classes of nodes, which have colours: those of operators, unknown ones, and calls."""

_DEEPEST = 24
_CHUNK = 100
_LEAST_CHUNK = 32
_LONGEST_SCOPE = 4_000


class Box:
    """Nodes and boxes that are drawn as one until somebody opens it.

    Attributes:
        label: What is written on it.
        kind: ``sheet``, ``scope``, ``repeat`` (layers that are alike), ``shapes`` (what computes
            sizes) or ``chunk``.
        items: What is in it, in topological order of the first node of each.
        size: How many nodes are in it, at any depth.
        first: The place of its first node in the sheet.
    """

    def __init__(self, label: str, kind: str, items: list[Item], first: int) -> None:
        self.label = label
        self.kind = kind
        self.items = items
        self.first = first
        self.size: int = sum(item.size if isinstance(item, Box) else 1 for item in items)

    def boxes(self) -> Iterator[Box]:
        """Iterate over the boxes in it at any depth, outer ones first."""
        pending = [self]
        while pending:
            box = pending.pop()
            inner = [item for item in box.items if isinstance(item, Box)]
            yield from inner
            pending += inner

    def nodes(self) -> Iterator[Node]:
        """Iterate over the nodes in it at any depth, in no order."""
        for box in (self, *self.boxes()):
            yield from (item for item in box.items if not isinstance(item, Box))


@dataclass(eq=False)
class Sheet:
    """A graph, or a part of one, to draw.

    Attributes:
        graph: The graph.
        title: Its name for readers.
        nodes: The nodes that are drawn or folded, in topological order.
        folded: By node that is not drawn: the drawn node that it belongs to.
        inputs: The values that come from outside.
        outputs: The values that leave.
        root: All that is drawn.
        paths: By node that is drawn, the modules that it lies in.
        function: The function that it is the body of.
    """

    graph: Graph
    title: str
    nodes: list[Node]
    folded: dict[Node, Node]
    inputs: list[Value]
    outputs: list[Value]
    root: Box
    paths: Mapping[Node, tuple[str, ...]]
    function: Function | None = None


@dataclass
class Picture:
    """A model to draw.

    Attributes:
        label: The model's name.
        sheets: By graph, in order of discovery; the first one is what is shown at first.
        given: The inputs of functions that every call gives a constant.
    """

    label: str
    sheets: dict[Graph, Sheet] = field(default_factory=dict)
    given: set[Value] = field(default_factory=set)

    @property
    def main(self) -> Sheet:
        """The sheet that is shown at first."""
        return next(iter(self.sheets.values()))

    @property
    def node_count(self) -> int:
        """How many nodes there are, those of each function once."""
        return sum(len(sheet.nodes) for sheet in self.sheets.values())

    def is_constant(self, value: Value) -> bool:
        """Tell whether a value is drawn with who reads it."""
        maker, sheet = value.producer, self.sheets.get(value.graph)
        is_folded = maker is not None and sheet is not None and maker in sheet.folded
        return value.is_constant or value in self.given or is_folded

    def bodies(self, node: Node) -> list[tuple[str, Sheet]]:
        """Return what a node opens into, each with the name of the attribute; "" for a call."""
        function = called_function(node)
        if function is not None:
            return [("", self.sheets[function.body])]
        return [(name, self.sheets[graph]) for name, graph in node.subgraphs.items()]

    def kind(self, node: Node) -> str:
        """Return the class of a node, one of :data:`KINDS`."""
        function = called_function(node)
        if function is None:
            return (kind_of(node.op_type) if not node.domain else None) or "other"
        if is_partition(function):
            return "partition"
        return "region" if is_region(function) else "function"


def picture_of(
    model: Model, label: str, scope: str | None = None, layers: Sequence[Sequence[Node]] = ()
) -> Picture:
    """Return the picture of a model, or of a part of it.

    Args:
        model: The model.
        label: Its name.
        scope: The part: a module scope such as ``encoder/layer.0``, or a function by its name.
        layers: Parts of the main graph that are alike, which are drawn as one.

    Raises:
        UsageError: There is no such part.
    """
    picture = Picture(label)
    first = _sheet(model.graph, layers=layers) if scope is None else _part(model, scope)
    pending = deque([first])
    known = {first.graph}
    while pending:
        sheet = pending.popleft()
        picture.sheets[sheet.graph] = sheet
        for node in sheet.nodes:
            called = called_function(node)
            for body in node.subgraphs.values() if called is None else (called.body,):
                if body not in known:
                    known.add(body)
                    pending.append(_sheet(body, called))
    _note_given(picture)
    return picture


def _note_given(picture: Picture) -> None:
    """Find the inputs of functions that are constants, also through functions that pass them on."""
    calls: dict[Sheet, list[Node]] = {}
    for sheet in picture.sheets.values():
        for node in sheet.nodes:
            for _, called in picture.bodies(node):
                calls.setdefault(called, []).append(node)
    called_in = {
        sheet: dict.fromkeys(called for node in sheet.nodes for _, called in picture.bodies(node))
        for sheet in picture.sheets.values()
    }
    pending = deque(dict.fromkeys(calls))
    waiting = set(pending)
    while pending:
        sheet = pending.popleft()
        waiting.discard(sheet)
        before = len(picture.given)
        for slot, value in enumerate(sheet.inputs if sheet.function is not None else ()):
            nodes = calls[sheet]
            given = [node.inputs[slot] if slot < len(node.inputs) else None for node in nodes]
            if all(one is not None and picture.is_constant(one) for one in given):
                picture.given.add(value)
        if len(picture.given) > before:  # so what it calls may be given more constants, too
            later = [called for called in called_in[sheet] if called not in waiting]
            pending += later
            waiting.update(later)


def _name_of(function: Function) -> str:
    return f"{function.domain}::{function.name}"


def rule_of(function: Function) -> dict[str, str]:
    """Return which rule and which target a function was made for, as far as it says so."""
    keys = {"rule": COMPOSITE_KEY, "target": CODEGEN_KEY}
    return {name: function.metadata[key] for name, key in keys.items() if key in function.metadata}


def _part(model: Model, scope: str) -> Sheet:
    for function in model.functions.values():
        if scope in {_name_of(function), function.name}:
            return _sheet(function.body, function)
    whole = _sheet(model.graph)
    path = _scope_meant(scope, whole, list(model.functions.values()))
    inside = {node for node, found in whole.paths.items() if found[: len(path)] == path}
    nodes = [node for node in whole.nodes if whole.folded.get(node, node) in inside]
    drawn = [node for node in nodes if node not in whole.folded]
    members = set(nodes)
    reads = dict.fromkeys(value for node in drawn for value in values_read(node))
    made = [value for node in drawn for value in node.outputs if value is not None]
    return replace(
        whole,
        title="/".join(path),
        nodes=nodes,
        inputs=[v for v in reads if v.producer not in members and not v.is_constant],
        outputs=[v for v in made if v.returned_by or any(u not in members for u, _ in v.uses)],
        root=_boxed(drawn, whole.paths),
    )


_MOST_PLACES = 5


def _scope_meant(scope: str, whole: Sheet, functions: Sequence[Function]) -> tuple[str, ...]:
    """Return the scope of that name; the outermost modules may be left out of it."""
    wanted = tuple(part for part in scope.split("/") if part)
    known = {path[:end] for path in whole.paths.values() for end in range(1, len(path) + 1)}
    meant = {path for path in known if wanted and path[-len(wanted) :] == wanted}
    if wanted in meant or len(meant) == 1:
        return wanted if wanted in meant else meant.pop()
    if meant:
        places = sorted("/".join(path) for path in meant)
        more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
        raise UsageError(
            f"--scope {scope}: {len(places)} scopes have this name",
            hint=f"pass one of {', '.join(places[:_MOST_PLACES])}{more}",
        )
    names = {"/".join(path) for path in known} | set(map(_name_of, functions))
    hint = _meant(scope, names) or "the model has no scopes and no functions"
    if not wanted:
        raise UsageError(f"--scope {scope!r}: no name is given", hint=hint)
    raise UsageError(f"--scope {scope}: no scope and no function has this name", hint=hint)


def _meant(name: str, names: Iterable[str]) -> str:
    """Return what may be meant by a name, or what there is; "" if there is nothing."""
    places = sorted(names)
    some = f"there are {', '.join(places[:_MOST_PLACES])}, …" if places else ""
    return did_you_mean(name, places) or some


def _sheet(
    graph: Graph, function: Function | None = None, layers: Sequence[Sequence[Node]] = ()
) -> Sheet:
    # A Constant that nobody outside looks for is only a constant.
    nodes = [
        node
        for node in graph
        if node.op_type != "Constant"
        or node.domain
        or any(value.returned_by for value in node.outputs if value is not None)
    ]
    folded = _folded(nodes)
    drawn = [node for node in nodes if node not in folded]
    stated = [scope_path(node) for node in drawn]
    is_told = sum(map(bool, stated)) * _FEW >= len(stated)
    paths = dict(zip(drawn, stated if is_told else _of_weights(drawn), strict=True))
    boxed = _with_sizes(_as_one(paths, layers), _of_sizes(drawn), _alike(layers))
    return Sheet(
        graph,
        scope_of(graph) if function is None else _name_of(function),
        nodes,
        folded,
        inputs=[value for value in graph.inputs if not value.is_constant],
        outputs=list(dict.fromkeys(graph.outputs)),
        root=_boxed(drawn, boxed, _alike(layers)),
        paths=paths,
        function=function,
    )


SHAPES = "shape arithmetic"


def _with_sizes(
    paths: Mapping[Node, tuple[str, ...]], sizes: Iterable[Node], alike: str
) -> Mapping[Node, tuple[str, ...]]:
    """Return the modules of nodes with a group for what computes sizes in each.

    What lies between layers that are alike, and in none of them, is in one group beside them.
    """
    layered = next((path for path in paths.values() if alike and alike in path), (alike,))
    outer = layered[: layered.index(alike)]
    grouped = {}
    for node in sizes:
        path = paths[node]
        is_between = alike and alike not in path and path[: len(outer)] == outer
        grouped[node] = (*(outer if is_between else path), SHAPES)
    return {**paths, **grouped}


def _of_sizes(nodes: Iterable[Node]) -> set[Node]:
    """Find the nodes that compute with the sizes of tensors, and with nothing else.

    What sizes make and is no size itself, such as a mask of numbers, is none of them.
    """
    found: set[Node] = set()
    for node in nodes:
        reads = [value for value in values_read(node) if not value.is_constant]
        is_plain = not node.domain and not node.subgraphs and node.op_type not in RANDOM_OPS
        if node.op_type in {"Shape", "Size"} or (reads and all(v.producer in found for v in reads)):
            types = [value.known_type() for value in node.outputs if value is not None]
            if is_plain and all(kind is None or _may_be_size(kind) for kind in types):
                found.add(node)
    return found


def _may_be_size(kind: TensorType) -> bool:
    is_float = (kind.dtype or "").startswith(("float", "bfloat"))
    return not is_float or (kind.shape is not None and len(kind.shape) <= 1)


def values_read(node: Node) -> list[Value]:
    """Return the values that a node reads, or its bodies read from round it; each once."""
    given = [value for value in node.inputs if value is not None]
    return list(dict.fromkeys(given + captured_values(node)))


# Constants belong to who reads them.


def _folded(nodes: list[Node]) -> dict[Node, Node]:
    """Find what computes a constant for one reader, and the reader that is drawn."""
    constant: set[Node] = set()
    for node in nodes:
        is_plain = not node.domain and not node.subgraphs and node.op_type not in RANDOM_OPS
        given = (value for value in node.inputs if value is not None)
        if is_plain and all(value.is_constant or value.producer in constant for value in given):
            constant.add(node)
    members = set(nodes)
    folded: dict[Node, Node] = {}
    for node in reversed(nodes):
        made = [value for value in node.outputs if value is not None]
        readers = {user for value in made for user, _ in value.iter_uses()}
        if node in constant and len(readers) == 1 and not any(v.returned_by for v in made):
            (reader,) = readers
            if reader in members:
                folded[node] = folded.get(reader, reader)
    return folded


# Boxes: scopes, and chunks of what has none.


def scope_path(node: Node) -> tuple[str, ...]:
    """Return the modules that *node* lies in, outermost first; none if nothing says so.

    Exporters write it into names, ``/encoder/layer.0/Add``, or PyTorch's newer one into metadata.
    A call that dpl made, or what a rule made, lies where the nodes did that it took the place of.
    """
    metadata = node.remarks.metadata
    if "pkg.torch.onnx.name_scopes" in metadata:
        return _of_scopes(metadata["pkg.torch.onnx.name_scopes"])
    if "namespace" in metadata:
        return _nested([part.partition(":")[0] for part in metadata["namespace"].split("/")])
    names = [entry.name for entry in read_entries(node)]
    if not names:
        names = metadata[ORIGIN_KEY].split(", ") if ORIGIN_KEY in metadata else [node.name]
    return _common([tuple(filter(None, name.split("/")[:-1]))[:_DEEPEST] for name in names])


def _of_scopes(text: str) -> tuple[str, ...]:
    """Read a list of qualified module names, as PyTorch writes it: ``['', 'm', 'm.fc', 'op']``."""
    try:
        names = ast.literal_eval(text) if len(text) <= _LONGEST_SCOPE else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    return _nested(names)


def _nested(names: list[str]) -> tuple[str, ...]:
    """Cut off of each module's name that of the module round it; the last one is the node's."""
    found, outer = [], ""
    for name in names[:-1]:
        name = name.strip()  # noqa: PLW2901  # as the file has it
        if name:
            found.append(name.removeprefix(f"{outer}."))
            outer = name
    return tuple(found[:_DEEPEST])


_FEW = 20
"""Where not one in so many nodes has a scope, the names of weights are asked."""

_MODULES = re.compile(r"[A-Za-z_]\w*(\.\w+){2,}")


def _of_weights(nodes: list[Node]) -> list[tuple[str, ...]]:
    """Guess the modules of nodes from the weights that they read: ``encoder.layer.3.fc.bias``.

    PyTorch's newer exporter names nodes by their operators alone. It writes them in the order in
    which modules run, so what reads no such weight lies in the module that is round its neighbours.
    """
    found = {node: path for node in nodes if (path := _of_parameters(node))}
    for node in nodes:
        readers = {user for value in node.outputs if value for user, _ in value.iter_uses()}
        tensors = [value.constant for value in node.inputs if value is not None]
        has_matrix = any(tensor is not None and len(tensor.shape) > 1 for tensor in tensors)
        if node not in found and len(readers) == 1 and has_matrix:
            (reader,) = readers
            if reader in found:  # the bias, behind the product that it belongs to
                found[node] = found[reader]
    following: list[tuple[str, ...]] = [()]
    for node in reversed(nodes):
        following.append(found.get(node, following[-1]))
    paths, before = [], tuple[str, ...]()
    for node, behind in zip(nodes, reversed(following), strict=False):
        before = found.get(node, before)
        paths.append(found.get(node) or _between(before, behind))
    return paths


def _between(before: tuple[str, ...], behind: tuple[str, ...]) -> tuple[str, ...]:
    """Return the module round both; of two blocks one after the other, the first one."""
    common = _common([before, behind])
    nexts = [path[len(common)] for path in (before, behind) if len(path) > len(common)]
    stems = {name.rstrip("0123456789") for name in nexts}
    return before[: len(common) + 1] if len(nexts) > len(stems) == 1 else common


def _of_parameters(node: Node) -> tuple[str, ...]:
    given = [value for value in node.inputs if value is not None]
    for maker in [value.producer for value in given if value.producer is not None]:
        inputs = [value for value in maker.inputs if value is not None]
        if all(value.is_constant for value in inputs):  # the DequantizeLinear of a weight
            given += inputs
    names = [value.name for value in given if value.is_initializer]
    paths = []
    for name in filter(_MODULES.fullmatch, names):
        path: list[str] = []
        for part in name.split(".")[:-1]:
            if part.isdigit() and path:
                path[-1] += f".{part}"
            else:
                path.append(part)
        paths.append(tuple(path[:_DEEPEST]))
    return _common(paths)


def _alike(layers: Sequence[Sequence[Node]]) -> str:
    return f"{len(layers)} alike layers" if layers else ""


def _as_one(
    paths: Mapping[Node, tuple[str, ...]], layers: Sequence[Sequence[Node]]
) -> Mapping[Node, tuple[str, ...]]:
    """Return the modules of nodes with a group for each layer, and one round all of them."""
    own = [[node for node in layer if node in paths] for layer in layers]
    scopes = [_common([paths[node] for node in layer]) for layer in own]
    outer = (*_common(scopes), _alike(layers))
    layered = {
        node: (*outer, f"layer {number}", *paths[node][len(scope) :])
        for number, (layer, scope) in enumerate(zip(own, scopes, strict=True))
        for node in layer
    }
    return {**paths, **layered}


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    found = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        found.append(parts[0])
    return tuple(found)


class _Scope:
    """A module scope, while nodes are put in."""

    def __init__(self) -> None:
        self.inner: dict[str, _Scope] = {}
        self.nodes: list[tuple[int, Node]] = []

    def box(self, label: str, kind: str, repeated: str) -> Box:
        """Return it as a box; a scope that holds a single thing is left out."""
        items: list[tuple[int, Item]] = [*self.nodes]
        for name, scope in self.inner.items():
            special = {SHAPES: "shapes", repeated: "repeat"}
            box = scope.box(name, special.get(name, "scope"), repeated)
            only = box.items[0]
            if len(box.items) > 1:
                items.append((box.first, box))
            elif isinstance(only, Box) and only.kind in {"scope", "shapes"}:
                only.label = f"{name}/{only.label}"
                items.append((only.first, only))
            else:
                items.append((box.first, only))
        items.sort(key=lambda item: item[0])
        first = items[0][0] if items else 0
        return Box(label, kind, [item for _, item in items], first)


def _boxed(nodes: list[Node], paths: Mapping[Node, tuple[str, ...]], repeated: str = "") -> Box:
    """Put the nodes of a sheet into boxes; the scope of layers that are alike is *repeated*."""
    top = _Scope()
    for number, node in enumerate(nodes):
        scope = top
        for part in paths[node]:
            scope = scope.inner.setdefault(part, _Scope())
        scope.nodes.append((number, node))
    root = top.box("", "sheet", repeated)
    places = {node: number for number, node in enumerate(nodes)}

    def place(item: Item) -> int:
        return item.first if isinstance(item, Box) else places[item]

    while (only := _only_box(root)) is not None:
        items = [*(item for item in root.items if item is not only), *only.items]
        sizes = [item for item in items if isinstance(item, Box) and item.kind == "shapes"]
        if len(sizes) > 1:
            items = [item for item in items if item not in sizes]
            inside = sorted((each for box in sizes for each in box.items), key=place)
            items.append(Box(SHAPES, "shapes", inside, place(inside[0])))
        items.sort(key=place)
        root = Box("", "sheet", items, 0)
    for box in (root, *root.boxes()):
        if len(box.items) > MOST_ITEMS:
            box.items = _chunks(_between_scopes(box.items, places), places)
    return root


def _between_scopes(items: list[Item], places: Mapping[Node, int]) -> list[Item]:
    """Cut what stands between scopes into chunks: a scope is found where the model has it."""
    found: list[Item] = []
    for is_scope, run in groupby(items, key=lambda item: isinstance(item, Box)):
        loose = list(run)
        found += loose if is_scope or len(loose) <= _CHUNK else _chunks(loose, places, _CHUNK)
    return found


def _only_box(root: Box) -> Box | None:
    """Return the scope that holds most of a sheet while no other is beside it: it says nothing."""
    inner = [item for item in root.items if isinstance(item, Box) and item.kind != "shapes"]
    if len(inner) != 1 or inner[0].kind == "repeat" or inner[0].size * 2 <= root.size:
        return None
    return inner[0]


def _chunks(items: list[Item], places: Mapping[Node, int], most: int = MOST_ITEMS) -> list[Item]:
    """Cut *items* into runs, where few values cross the cut, until there are *most* at most."""
    crossing = _crossing(items)
    first = [item.first if isinstance(item, Box) else places[item] for item in items]
    while len(items) > most:
        # Of what is left: runs as long as those before would put a few more than *most* into one.
        levels = math.ceil(math.log(len(items)) / math.log(_CHUNK))
        length = max(_LEAST_CHUNK, math.ceil(len(items) ** (1 / levels)))
        cuts = [0]
        while len(items) - cuts[-1] > length * 5 // 4:
            window = range(cuts[-1] + length * 3 // 4, cuts[-1] + length * 5 // 4)
            cuts.append(min(window, key=lambda cut: (crossing[cut], abs(cut - cuts[-1] - length))))
        ends = zip(cuts, [*cuts[1:], len(items)], strict=True)
        chunks = [Box("", "chunk", items[start:end], first[start]) for start, end in ends]
        for box in chunks:
            box.label = f"nodes {box.first + 1:,} to {box.first + box.size:,}"
        items = [*chunks]
        first, crossing = [first[cut] for cut in cuts], [crossing[cut] for cut in cuts]
    return items


def _crossing(items: list[Item]) -> list[int]:
    """Count the values that cross from before each item to it or behind it."""
    place: dict[Node, int] = {}
    for number, item in enumerate(items):
        for node in item.nodes() if isinstance(item, Box) else (item,):
            place[node] = number
    change = [0] * (len(items) + 1)
    for node, made_at in place.items():
        for value in node.outputs:
            uses = () if value is None else value.iter_uses()
            last = max((place.get(user, made_at) for user, _ in uses), default=made_at)
            if last > made_at:
                change[made_at + 1] += 1
                change[last + 1 if last + 1 < len(change) else -1] -= 1
    return list(accumulate(change))


# What is open.


class Opened(NamedTuple):
    """Which boxes and nodes of a picture are open: those of a sheet alike wherever it is drawn.

    Attributes:
        boxes: The boxes.
        nodes: The calls, and the nodes with bodies.
    """

    boxes: set[Box]
    nodes: set[Node]


def opened(
    picture: Picture, names: Sequence[str] = (), depth: int | None = None, most: int = 1_500
) -> Opened:
    """Choose what is open.

    Args:
        picture: The picture.
        names: What to open, with all round it: scopes, functions and nodes by name.
        depth: How many levels to open; None for as many as can be looked at.
        most: How many items may be seen.

    Raises:
        UsageError: Nothing has such a name, or more would be seen.
    """
    found = _to_depth(picture, 0)
    levels = range(1, 100) if depth is None else range(depth, depth + 1)
    for level in levels:
        deeper = _to_depth(picture, level, with_calls=depth is not None)
        if depth is None and (deeper == found or _seen(picture, deeper) > AT_FIRST):
            break
        found = deeper
    for name in names:
        _open(picture, name, found)
    seen = _seen(picture, found)
    if seen > most:
        raise UsageError(
            f"{seen:,} nodes and groups would be drawn, more than {most:,}",
            hint="open less: a smaller --depth, fewer --open, or a part with --scope NAME",
        )
    return found


def _to_depth(picture: Picture, depth: int, *, with_calls: bool = False) -> Opened:
    found = Opened(set(), set())
    level: list[Item] = list(picture.main.root.items)
    for _ in range(depth):
        inner: list[Item] = []
        for item in level:
            if isinstance(item, Box):
                is_quiet = item.kind in {"repeat", "shapes"}
                if item not in found.boxes and (with_calls or not is_quiet):
                    found.boxes.add(item)
                    inner += item.items
            elif with_calls and item not in found.nodes:
                bodies = picture.bodies(item)
                if bodies:
                    found.nodes.add(item)
                inner += [each for _, sheet in bodies for each in sheet.root.items]
        level = inner
    return found


def _seen(picture: Picture, found: Opened) -> int:
    """Count the items that are seen; no more than a million, as functions may nest."""
    count = 0
    pending: list[Box] = [picture.main.root]
    while pending and count < 10**6:
        box = pending.pop()
        for item in box.items:
            count += 1
            if isinstance(item, Box):
                pending += [item] if item in found.boxes else []
            elif item in found.nodes:
                pending += [sheet.root for _, sheet in picture.bodies(item)]
    return count


def _open(picture: Picture, name: str, found: Opened) -> None:
    """Open what has a name, and all round it."""
    wanted = name.strip("/")
    if not wanted:
        raise UsageError(f"--open {name!r}: no name is given")
    known: set[str] = set()
    hits = 0
    for sheet in picture.sheets.values():
        around: list[tuple[Box, str, tuple[Box, ...]]] = [(sheet.root, "", ())]
        while around:
            box, path, outer = around.pop()
            for item in box.items:
                if isinstance(item, Box):
                    inner = f"{path}/{item.label}" if path else item.label
                    names = {inner, item.label}
                    around.append((item, inner, (*outer, item)))
                else:
                    names = {item.name.strip("/"), item.op_type, item.label}
                    if (called := called_function(item)) is not None:
                        names |= {_name_of(called), called.name}
                    names = names if picture.bodies(item) else set()
                known |= names
                if wanted in names or any(wanted.endswith(f"/{name}") for name in names if name):
                    hits += 1
                    found.boxes.update((*outer, item) if isinstance(item, Box) else outer)
                    if not isinstance(item, Box):
                        found.nodes.add(item)
                    _open_callers(picture, sheet, found)
    if not hits:
        hint = _meant(wanted, known - {""}) or "nothing in the picture opens"
        raise UsageError(f"--open {name}: no group, function or node has this name", hint=hint)


def _open_callers(picture: Picture, sheet: Sheet, found: Opened) -> None:
    """Open the first place at which *sheet* is drawn."""
    seen = {sheet}
    while sheet is not picture.main:
        for other in picture.sheets.values():
            caller = next(
                (n for n in other.nodes if any(s is sheet for _, s in picture.bodies(n))), None
            )
            if caller is not None and other not in seen:
                found.nodes.add(caller)
                found.boxes.update(box for box in other.root.boxes() if caller in box.nodes())
                break
        else:
            return
        sheet = other
        seen.add(sheet)


# The numbers that quantised tensors stand for.


class QuantisedRange(NamedTuple):
    """What a quantised tensor can hold.

    Attributes:
        role: The tensor, as the operator calls it.
        low: The smallest number; over all channels.
        high: The largest one.
        how: The element type and the size of a step.
    """

    role: str
    low: float
    high: float
    how: str


def quantised_ranges(node: Node) -> list[QuantisedRange]:
    """Return the ranges that the constant scales and zero points of a node mean.

    A scale and a zero point belong to the tensor before them among the inputs, or to the output
    (``y_scale``), as ONNX orders them in all operators of this kind.
    """
    schema = schema_of(node)
    if schema is None or not any(name.endswith("_scale") for name in schema.inputs):
        return []
    given = dict(zip(schema.inputs, node.inputs, strict=False))
    found = []
    for name, value in given.items():
        role = name.removesuffix("_scale")
        if role == name or value is None or value.constant is None:
            continue
        zero = given.get(f"{role}_zero_point")
        kind = _type_of_quantised(node, given.get(role), zero)
        scale, offset = _numbers(value), np.zeros(1) if zero is None else _numbers(zero)
        if kind not in _INTEGERS or scale is None or offset is None:
            continue
        low, high = _INTEGERS[kind]
        with np.errstate(all="ignore"):
            try:
                ends = np.stack([(low - offset) * scale, (high - offset) * scale])
            except ValueError:  # of other sizes: no valid model
                continue
        if not ends.size or not np.isfinite(ends).all():
            continue
        step = f"{scale.min():.4g}"
        if scale.max() > scale.min():
            step = f"{step} to {scale.max():.4g} ({scale.size} of them)"
        how = f"{kind}, in steps of {step}"
        found.append(QuantisedRange(role, float(ends.min()), float(ends.max()), how))
    return found


_INTEGERS = {
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (2, 4, 8, 16)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (2, 4, 8, 16, 32)},
}
"""The smallest and the largest integer of each type that tensors are quantised to."""


def _type_of_quantised(node: Node, tensor: Value | None, zero: Value | None) -> str:
    """Return the element type; that of QuantizeLinear's result where nothing says another."""
    if zero is not None and zero.constant is not None:
        return zero.constant.dtype
    value, other = tensor, ""
    if node.op_type == "QuantizeLinear":
        value, other = node.outputs[0], "uint8"
    known = None if value is None else value.known_type()
    return (known and known.dtype) or other


def _numbers(value: Value) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if value.constant is None:
        return None
    try:
        return value.constant.numpy().astype(np.float64).reshape(-1)
    except (DplError, ValueError, TypeError):
        return None


# Words and numbers.


def summary(nodes: Iterable[Node], longest: int) -> str:
    """Say which operators are the most frequent: ``Conv 20, Relu 18, …``, as many as fit."""
    counts = Counter(node.op_type for node in nodes).most_common()
    words = [f"{one_line(op_type, longest)} {count:,}" for op_type, count in counts]
    fits = [sum(map(len, words[:kept])) + 2 * kept < longest for kept in range(1, len(words) + 1)]
    kept = max(1, sum(fits))
    return ", ".join([*words[:kept], *["…"] * (kept < len(words))])


def attribute_texts(node: Node) -> dict[str, str]:
    """Return the attributes of a node as text, its bodies left out."""
    return {
        name: f"${each.ref} of the function" if each.ref else one_line(_text(each.value), 300)
        for name, each in node.attributes.items()
        if name not in node.subgraphs
    }


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value[:64])) + ", …" * (len(value) > 64)  # noqa: PLR2004  # how a reader wants numbers cut
    if isinstance(value, float):
        return str(short_float(value))
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)} {' '.join(facts_of(value).first)}"
    return str(value)


@dataclass(frozen=True)
class ConstantFacts:
    """What is shown of a constant.

    Attributes:
        first: Its first elements.
        low: The smallest finite element; None if there is none, or it is no number.
        high: The largest one.
        bins: How many elements lie in each sixteenth of the range.
        looked_at: How many elements were looked at.
        odd: How many of them are infinite or no numbers.
        why_not: Why nothing is known, or "".
    """

    first: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    bins: tuple[int, ...] = ()
    looked_at: int = 0
    odd: int = 0
    why_not: str = ""


_FIRST = 8
_BINS = 16
_MOST_ELEMENTS = 1 << 20


def facts_of(tensor: Tensor) -> ConstantFacts:
    """Look at the numbers of a tensor; of a very large one, at evenly spaced ones."""
    try:
        data = tensor.numpy().reshape(-1)
    except DplError as error:
        return ConstantFacts(why_not=one_line(error.message))
    if data.dtype.kind in "OSUT":
        return ConstantFacts(tuple(one_line(str(item), 40) for item in data[:_FIRST]))
    step = max(1, -(-data.size // _MOST_ELEMENTS))
    seen = data[::step]
    if data.dtype.kind == "c":
        return ConstantFacts(tuple(map(str, data[:_FIRST].tolist())), looked_at=seen.size)
    shown = data[:_FIRST].tolist()
    first = tuple(f"{item:.6g}" if isinstance(item, float) else str(item) for item in shown)
    with np.errstate(all="ignore"):
        numbers = seen.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return ConstantFacts(first, looked_at=seen.size, odd=numbers.size)
    low, high = float(finite.min()), float(finite.max())
    bins: tuple[int, ...] = ()
    if low < high and math.isfinite(high - low) and (high - low) / _BINS > 0:
        scaled = ((finite - low) / (high - low) * _BINS).astype(np.int64).clip(0, _BINS - 1)
        bins = tuple(np.bincount(scaled, minlength=_BINS).tolist())
    return ConstantFacts(first, low, high, bins, numbers.size, numbers.size - finite.size)
