"""Which behaviours of its operators the runs of a place showed.

A model that is cut out is instrumented: it also gives what its nodes read and give. Nodes in bodies
are watched in onnx's evaluator, as often as they run. What is told of each run is how near it came
to each piece (:mod:`dplcli.verify.behaviours`), and which rows of its tables it read.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx

from dplcli.analysis.extract import made_name
from dplcli.ir.operators import BROADCASTING, CONTROL_FLOW
from dplcli.onnx_io.convert import all_scopes
from dplcli.verify.behaviours import (
    GUARDS,
    Call,
    casts_anything,
    choices,
    ends_of,
    is_listed,
    is_whole_type,
    pieces_of,
)
from dplcli.verify.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    from dplcli.verify.behaviours import Piece
    from dplcli.verify.values import Array, Feed

_MOST_DRAWS = 24
"""How many numbers to draw are kept of a piece that was met more than once."""

_FIRST_RUNS = 12
"""How many runs are watched whether something is missing or not: one may be revoked later."""

_FLOAT_TYPES = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
    }
)

_SPARE = 2
"""How many more runs are kept that reached a piece."""

_EXCUSED = 1e-9
"""How far a run stayed from a piece if what differed there was excused."""

_MOST_STEPS = 20_000
"""How many nodes run in bodies before the evaluator is stopped; large ones count for several."""

_ELEMENTS, _PAIRS = 1 << 12, 1 << 7
"""How many elements take onnx's evaluator as long as a small node, and how many pairs of elements:
it compares boxes in a loop of Python."""

_AT_ONCE = 1 << 22
"""How many elements of tables are compared at once."""

_MOST_WIDE = 1 << 16
"""Of how many elements constants are taken in float64; larger ones are weights."""

_TRUE = "dpl/true"

_NEAR = 1e-5, 1e-6
"""The relative difference, and that to the largest number, of rows that are the same but for
rounding."""


class PieceKey(NamedTuple):
    """A piece of a node.

    Attributes:
        side: 0 for the original, 1 for the candidate.
        value: The first result of the node.
        piece: The name of the piece.
    """

    side: int
    value: str
    piece: str


@dataclass
class Met:
    """A piece that a run met.

    Attributes:
        op_type: The operator.
        form: Its attributes but for bodies, its types, and single numbers that are stored.
        piece: It, with all numbers to draw that were met.
        distance: How near a run came.
        fed: What that was fed.
        spare: What a few other runs were fed that reached it: the first may be revoked.
        is_possible: Whether ranges leave it open.
        is_inner: Whether the node stands in a body, which may run any number of times.
        is_of_sizes: Whether all that it reads follows from sizes and constants alone.
        condition: The first value that it reads.
    """

    op_type: str
    form: tuple[object, ...]
    piece: Piece
    distance: float = math.inf
    fed: Mapping[str, Feed] | None = None
    spare: list[Mapping[str, Feed]] = field(default_factory=list)
    is_possible: bool = True
    is_inner: bool = False
    is_of_sizes: bool = False
    condition: str = ""

    @property
    def kind(self) -> object:
        """What it shares with the same in other nodes."""
        form = () if self.piece.unless == "fewer" else (self.op_type, *self.form)
        return self.piece.name, self.piece.unless, form

    def note(self, distance: float, fed: Mapping[str, Feed]) -> None:
        """Note how near a run came, and what that was fed."""
        if distance < self.distance or self.fed is None:
            self.distance, self.fed = distance, fed
        elif not distance and all(fed is not other for other in (self.fed, *self.spare)):
            self.spare.append(fed)

    def revoke(self, fed: Mapping[str, Feed]) -> None:
        """Forget a run that reached it."""
        self.spare = [other for other in self.spare if other is not fed]
        if not self.distance and self.fed is fed:
            self.fed = self.spare.pop() if self.spare else fed
            self.distance = _EXCUSED if self.fed is fed else 0.0


@dataclass
class _Table:
    """A stored value that a node chooses rows from.

    Attributes:
        data: It.
        axis: Along which axis.
        within: The interval of the indices.
        chosen: Whether each row was chosen.
    """

    data: Array
    axis: int
    within: Interval
    chosen: NDArray[np.bool_]

    def may_choose(self) -> NDArray[np.bool_]:
        """Tell of each row whether an index may choose it, counted from either end."""
        rows = np.arange(len(self.chosen))
        low, high = self.within.low, self.within.high
        from_end = rows - len(rows)
        return ((low <= rows) & (rows <= high)) | ((low <= from_end) & (from_end <= high))


class Known(NamedTuple):
    """What is known of the values of a model before it runs.

    Attributes:
        within: Says in what interval a value lies.
        is_size: Tells whether a value follows from sizes and constants alone.
        is_whole: Tells whether floats are whole numbers, as behind a Round.
        is_multiple: Tells whether a value is made of multiples of a step, as behind a
            DequantizeLinear.
        is_settled: Tells whether a value of a body follows from sizes and constants alone, so that
            it is the same in each run.
        is_main: Whether they are values of a main graph.
    """

    within: Callable[[str], Interval] = lambda _: Interval()
    is_size: Callable[[str], bool] = lambda _: False
    is_whole: Callable[[str], bool] = lambda _: False
    is_multiple: Callable[[str, Array], bool] = lambda _name, _step: False
    is_settled: Callable[[str], bool] = lambda _: False
    is_main: bool = False


@dataclass
class PlaceCoverage:
    """What the runs of a place showed.

    Attributes:
        met: The pieces met so far.
        tables: Of each model, the tables, by node and operand.
        runs: How often each model was watched.
        is_sized: Whether other sizes were tried: what follows from sizes shows there, or nowhere.
        undefined: What was fed to runs in which a Cast of the original read what is anything, or
            what rounding decides, as a whole number or a truth value.
    """

    met: dict[PieceKey, Met] = field(default_factory=dict)
    tables: tuple[dict[str, _Table], dict[str, _Table]] = field(default_factory=lambda: ({}, {}))
    runs: list[int] = field(default_factory=lambda: [0, 0])
    is_sized: bool = False
    undefined: list[Mapping[str, Feed]] = field(default_factory=list)
    _wanted: dict[tuple[int, str], NDArray[np.bool_]] | None = None

    def is_open(self, side: int) -> bool:
        """Tell whether a run of one model may show something that none has shown."""
        return (
            self.runs[side] < _FIRST_RUNS
            or bool(self.undefined and not side)
            or any(self.met[key].distance for key in self._asked())
            or any(left.any() for left in self._left().values())
        )

    def add(self, side: int, call: Call, fed: Mapping[str, Feed], known: Known) -> None:
        """Note what one node did in one run.

        Args:
            side: Its model.
            call: The node, and what it read and gave.
            fed: What the place was fed.
            known: What is known of its values.
        """
        self._choose(side, call, known)
        if not side and casts_anything(call):
            self.undefined.append(fed)
        pieces = pieces_of(call)
        if not pieces:
            return
        # Sizes are tried by themselves; what is not reached in bodies is told from the other model.
        is_shared = not known.is_main or all(
            is_stored or not name or known.is_size(name)
            for name, is_stored in zip(call.node.input, call.stored, strict=True)
        )
        name, is_settled = name_of(call.node), known.is_settled(name_of(call.node))
        for piece in pieces:
            if is_shared and known.is_main and piece.unless == "fewer":
                continue  # no size wraps around, and what divides one often leaves nothing over
            if is_shared and piece.unless == "never":
                piece = piece._replace(unless="alike")  # noqa: PLW2901  # the same piece, asked for less
            key = PieceKey(side, name, piece.name)
            met = self.met.get(key)
            if met is None:
                met = self.met[key] = Met(
                    call.node.op_type,
                    _form(call),
                    piece,
                    is_inner=not known.is_main,
                    is_of_sizes=is_shared and known.is_main,
                    condition=next(iter(call.node.input), ""),
                )
            if met.distance and met.is_possible:  # more may be known than when it was met first
                met.is_possible = _is_possible(piece, call, known)
            if piece.draws != met.piece.draws:
                draws = dict.fromkeys((*met.piece.draws, *piece.draws))
                met.piece = met.piece._replace(draws=tuple(draws)[:_MOST_DRAWS])
            if met.is_possible and (met.distance or len(met.spare) < _SPARE):
                met.note(piece.distance(call.values), fed)
                met.is_possible = not (met.distance and is_settled)

    def revoke(self, fed: Mapping[str, Feed]) -> None:
        """Forget what one run reached: what differed there was excused, not judged."""
        for met in self.met.values():
            met.revoke(fed)

    def missing(self, made: Sequence[set[str]]) -> list[PieceKey]:
        """Return the pieces that no run reached.

        Args:
            made: What the nodes of each part give: other pieces are of places it was joined to.
        """
        return [key for key in self._asked(made) if self.met[key].distance]

    def count(self, made: Sequence[set[str]]) -> tuple[int, int]:
        """Return how many pieces and rows were reached, and how many have to be."""
        asked = self._asked(made)
        total = len(asked) + sum(int(rows.sum()) for rows in self._wanted_rows().values())
        left = sum(int(rows.sum()) for rows in self._left().values())
        left += sum(self.met[key].distance > 0 for key in asked)
        return total - left, total

    def behaviours(self, made: Sequence[set[str]]) -> Iterator[tuple[str, bool]]:
        """Yield each piece that has to be reached, in words, and whether some run reached it."""
        for key in self._asked(made):
            met = self.met[key]
            yield f"{met.op_type} is {key.piece}", not met.distance

    def _asked(self, made: Sequence[set[str]] | None = None) -> list[PieceKey]:
        """Return the pieces that have to be reached: some only if one model alone has them."""
        counts: Counter[tuple[object, int]] = Counter()
        inner: set[object] = set()
        for key, met in self.met.items():
            if met.is_possible:
                counts[met.kind, key.side] += 1
                if met.is_inner:
                    inner.add(met.kind)
        asked = {
            key
            for key, met in self.met.items()
            if met.is_possible
            and not (met.is_of_sizes and self.is_sized)
            and _is_asked(met, counts[met.kind, 0], counts[met.kind, 1], is_inner=met.kind in inner)
        }
        # What a guard chooses is as possible as that the guard is true.
        guards = {key for key, met in self.met.items() if met.op_type in GUARDS} - asked
        chosen = {
            key
            for key in asked
            if self.met[key].op_type == "Where"
            and key._replace(value=self.met[key].condition) in guards
        }
        asked -= chosen
        return [
            key
            for key in self.met
            if key in asked and (made is None or key.value in made[key.side])
        ]

    def _choose(self, side: int, call: Call, known: Known) -> None:
        """Note which rows of stored tables a node chose, unless sizes alone choose them."""
        for slot, at, axis in choices(call):
            name = call.node.input[slot]
            if not call.stored[at] or call.stored[slot] or known.is_size(name):
                continue
            data, index = call.values[at], call.values[slot]
            if not (isinstance(data, np.ndarray) and isinstance(index, np.ndarray)):
                continue
            if not data.ndim or not data.shape[axis]:
                continue
            name = f"{name_of(call.node)}.{at}"
            table = self.tables[side].get(name)
            if table is None:
                is_chosen = np.zeros(data.shape[axis], bool)
                table = _Table(data, axis, known.within(call.node.input[slot]), is_chosen)
                self.tables[side][name] = table
                self._wanted = None
            index = index[..., 0] if call.node.op_type == "GatherND" and index.ndim else index
            table.chosen[np.ravel(index).astype(np.int64) % data.shape[axis]] = True

    def _wanted_rows(self) -> dict[tuple[int, str], NDArray[np.bool_]]:
        """Tell of each row whether it has to be chosen: those that differ between the models."""
        if self._wanted is None:
            ours, theirs = (dict(own) for own in self.tables)
            for name, table in self.tables[0].items():
                if other := next((n for n, t in theirs.items() if _is_same(table, t)), None):
                    del ours[name], theirs[other]
            self._wanted = {
                (side, name): table.may_choose()
                for side, own in enumerate((ours, theirs))
                for name, table in own.items()
            }
            for (mine, one), (its, other_table) in zip(ours.items(), theirs.items(), strict=False):
                if one.data.shape == other_table.data.shape:
                    differing = _differing_rows(one.data, other_table.data, one.axis)
                    self._wanted[0, mine] &= differing
                    self._wanted[1, its] &= differing
        return self._wanted

    def _left(self) -> dict[tuple[int, str], NDArray[np.bool_]]:
        """Tell of each row whether it has to be chosen and no run did."""
        return {
            (side, name): rows & ~self.tables[side][name].chosen
            for (side, name), rows in self._wanted_rows().items()
        }

    def missing_rows(self) -> dict[tuple[int, str], list[int]]:
        """Return by model and table the rows that no run chose and that have to be, in order."""
        return {
            key: np.flatnonzero(left).tolist() for key, left in self._left().items() if left.any()
        }

    def rows_to_choose(self) -> list[int]:
        """Return the rows that are missing of some table, in order."""
        return sorted(set[int]().union(*self.missing_rows().values()))


def _is_asked(one: Met, ours: int, theirs: int, *, is_inner: bool) -> bool:
    """Tell whether a piece has to be reached.

    Args:
        one: The piece.
        ours: How many nodes of the original may do what is alike.
        theirs: How many of the candidate.
        is_inner: Whether one of these is in a body.
    """
    if one.piece.unless == "never":
        return True
    if ours and theirs and is_inner:
        return False  # as in a loop that is unrolled
    return ours != theirs if one.piece.unless == "alike" else ours < theirs


def _is_possible(piece: Piece, call: Call, known: Known) -> bool:
    """Tell whether a piece can be reached, as far as is known of what a node reads and gives."""
    read = zip(call.values, call.stored, strict=False)
    holds_none = any(is_stored and np.size(value) == 0 for value, is_stored in read)
    if holds_none and call.node.op_type in BROADCASTING:
        return False  # whatever else it reads, it gives no element
    names = (*call.node.input, *call.node.output)
    within = [
        _of_type(known.within(name) if name else Interval(), dtype)
        for name, dtype in zip(names, call.types, strict=False)
    ]
    return piece.is_possible(within) and not _is_between(piece, call, known)


def _is_between(piece: Piece, call: Call, known: Known) -> bool:
    """Tell whether a piece lies between the numbers that a node can read."""
    read = call.node.input[0]
    if call.node.op_type == "QuantizeLinear":
        return piece.name.endswith("tie") and known.is_multiple(read, call.values[1])
    return piece.name.endswith(("tie", "fraction")) and known.is_whole(read)


def _of_type(interval: Interval, dtype: np.dtype[Any] | None) -> Interval:
    """Return an interval without what its type does not hold."""
    if dtype is None or dtype.kind in "OUSb" or not is_whole_type(dtype):
        return interval
    low, high = ends_of(dtype)
    return Interval(max(interval.low, low), min(interval.high, high))


def _is_same(one: _Table, other: _Table) -> bool:
    """Tell whether two tables hold the same but for rounding."""
    is_alike = one.data.shape == other.data.shape and one.data.dtype == other.data.dtype
    return is_alike and not _differing_rows(one.data, other.data, one.axis).any()


def _form(call: Call) -> tuple[object, ...]:
    own = [item for item in call.node.attribute if item.type != onnx.AttributeProto.GRAPH]
    numbers = [
        value.reshape(-1)[0]
        for value, is_stored in zip(call.values, call.stored, strict=False)
        if is_stored and isinstance(value, np.ndarray) and value.size == 1
    ]
    types = [None if dtype is None else dtype.name for dtype in call.types]
    return (*sorted(item.SerializeToString() for item in own), *types, *numbers)


def name_of(node: NodeProto) -> str:
    """Return what the first result of a node is called in the model that it was cut out of."""
    return str(next(filter(None, node.output), "")).removeprefix(made_name(""))


def _differing(one: Array, other: Array) -> Array:
    """Return where two tables of one shape differ, rounding aside."""
    if one.dtype.kind in "OUS":
        return np.asarray(one != other)
    relative, absolute = _NEAR
    with np.errstate(all="ignore"):
        bound = absolute * float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
        return ~np.isclose(one, other, rtol=relative, atol=bound, equal_nan=True)


def _differing_rows(one: Array, other: Array, axis: int) -> NDArray[np.bool_]:
    """Tell of each row whether two tables of one shape differ; large ones are read in parts."""
    count = one.shape[axis]
    differing = np.zeros(count, bool)
    if one is other:
        return differing
    step = max(1, _AT_ONCE * count // max(one.size, 1))
    rest = tuple(at for at in range(one.ndim) if at != axis % one.ndim)
    for start in range(0, count, step):
        some = (*[slice(None)] * (axis % one.ndim), slice(start, start + step))
        differing[start : start + step] = _differing(one[some], other[some]).any(rest)
    return differing


# What a run shows: nodes of main graphs as outputs, nodes of bodies in onnx's evaluator.


def show_inner(model: ModelProto) -> None:
    """Let a model also give what the nodes of its main graph read and give that have pieces."""
    graph = model.graph
    known = {info.name for info in (*graph.input, *graph.output)}
    known |= {tensor.name for tensor in graph.initializer}
    made = {name for node in graph.node for name in node.output if name}
    weights = _float_weights(model)
    for node in graph.node:
        if is_listed(node) and weights.isdisjoint(node.input if node.op_type == "MatMul" else ()):
            for name in (*node.input, *node.output):
                if name in made and name not in known:
                    known.add(name)
                    graph.output.add(name=name)


def _float_weights(model: ModelProto) -> set[str]:
    """Return the stored floats: products of them do not wrap around, and are not decoded."""
    return {tensor.name for tensor in model.graph.initializer if tensor.data_type in _FLOAT_TYPES}


def calls_of(
    model: ModelProto,
    values: Mapping[str, Array],
    table: Callable[[onnx.TensorProto], Array | None] = onnx.numpy_helper.to_array,
) -> Iterator[Call]:
    """Yield the nodes of a main graph that have pieces, as they ran.

    Args:
        model: The model.
        values: What it was fed and gave, by name.
        table: Gives what the model stores; None if that cannot be read.
    """
    weights = _float_weights(model)
    nodes = [
        node
        for node in model.graph.node
        if is_listed(node)
        and node.op_type != "Loop"
        and weights.isdisjoint(node.input if node.op_type == "MatMul" else ())
    ]
    read = {name for node in nodes for name in node.input}
    arrays: dict[str, Array | None] = {
        tensor.name: table(tensor) for tensor in model.graph.initializer if tensor.name in read
    }
    arrays |= values
    constants = _constants(model)
    for node in nodes:
        yield _call(node, [arrays.get(n) for n in (*node.input, *node.output)], constants)


def _constants(model: ModelProto) -> set[str]:
    """Return the names of what is stored or follows from it alone, in bodies too."""
    scopes = [*all_scopes(model.graph)]
    names = {tensor.name for scope in scopes for tensor in scope.initializer}
    names |= {item.values.name for scope in scopes for item in scope.sparse_initializer}
    for scope in scopes:
        for node in scope.node:
            if node.op_type not in CONTROL_FLOW and names.issuperset(filter(None, node.input)):
                names.update(node.output)
    return names - {""}


def settled_in_bodies(model: ModelProto, is_size: Callable[[str], bool]) -> set[str]:
    """Return the names of what in bodies follows from sizes and constants alone.

    That is the same in each run, whatever is fed, unless sizes are others: these are tried by
    themselves. What goes round in a Loop follows from them if it does at first and after a turn.

    Args:
        model: A model that was cut out.
        is_size: Tells whether a value of its main graph does.
    """
    names = _constants(model)
    names |= {name for node in model.graph.node for name in node.input if is_size(name)}
    for node in model.graph.node:
        _settle(node, names)
    plain = [node for node in model.graph.node if node.op_type not in CONTROL_FLOW]
    return names.difference(*(node.output for node in plain))


def _settle(node: NodeProto, names: set[str]) -> None:
    """Add what a node gives, if it is settled; for one with bodies, what is settled in these."""
    if node.op_type not in CONTROL_FLOW:
        if node.op_type in {"Shape", "Size"} or names.issuperset(filter(None, node.input)):
            names.update(node.output)
        return
    own = name_of(node)
    for item in node.attribute:
        if item.type != onnx.AttributeProto.GRAPH:
            continue
        ends = _going_round(node, item.g) if node.op_type == "Loop" else {}
        settled = {into for into, (first, _) in ends.items() if not first or first in names}
        while True:
            inner = names | settled
            for each in item.g.node:
                _settle(each, inner)
            kept = {into for into in settled if ends[into][1] in inner}
            if kept == settled:
                break
            settled = kept
        names |= inner
        if node.op_type == "Loop" and item.g.input[0].name in settled:
            names.add(own)
    if node.op_type == "If" and node.input[0] in names:
        names.add(own)


def _going_round(node: NodeProto, body: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """Return for what goes round in a Loop what it is at first, and after a turn.

    The number of turns follows from how often it may go round, and from the condition.
    """
    into = [value.name for value in body.input]
    firsts = node.input
    lasts = [value.name for value in (body.output[0], *body.output)]
    return {name: (one, last) for name, one, last in zip(into, firsts, lasts, strict=False)}


def _call(node: NodeProto, arrays: Sequence[Any], constants: set[str]) -> Call:
    """Return a node as it ran, its numbers in float64."""
    types = [array.dtype if isinstance(array, np.ndarray) else None for array in arrays]
    stored = [name in constants for name in node.input]
    wide = [
        array.astype(np.float64)
        if isinstance(array, np.ndarray)
        and array.dtype.kind not in "OUS"
        and not (at < len(stored) and stored[at] and array.size > _MOST_WIDE)
        else array
        for at, array in enumerate(arrays)
    ]
    return Call(node, wide, types, stored)


def _with_conditions(model: ModelProto) -> ModelProto:
    """Return a model whose Loops have a condition: onnx's evaluator takes none for false."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for scope in all_scopes(copy.graph):
        for node in scope.node:
            if node.op_type == "Loop" and not node.input[1]:
                node.input[1] = _TRUE
    copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), _TRUE))  # noqa: FBT003  # a number like others
    return copy


class _EnoughError(Exception):
    """The evaluator has run long enough."""


def watch_bodies(model: ModelProto, feeds: Mapping[str, Any], see: Callable[[Call], None]) -> None:
    """Run a model in onnx's evaluator, and show each node that has pieces, whenever it runs.

    What the evaluator does not know is not shown.

    Args:
        model: The model, with its weights.
        feeds: What it is fed.
        see: Called with each node as it ran.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  # it takes long to import

    model = _with_conditions(model)
    left, constants = _MOST_STEPS, _constants(model)

    class Watching(ReferenceEvaluator):
        """Shows each node as it ran; bodies are evaluators of the same class."""

        def _init(self) -> None:
            super()._init()
            for op in self.rt_nodes_:
                op.run = _watched(op)

    def _watched(op: Any) -> Callable[..., Any]:  # noqa: ANN401  # it is not typed
        plain, node, turns = op.run, op.onnx_node, 0
        if node.op_type == "Loop":
            body = op.body.run

            def turn(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # passes on what onnx's evaluator is given
                nonlocal turns
                turns += 1
                return body(*args, **kwargs)

            op.body.run = turn

        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # passes on what onnx's evaluator is given
            nonlocal left, turns
            left -= _steps(node, args)
            if left < 0:
                raise _EnoughError
            turns = 0
            outputs = plain(*args, **kwargs)
            if is_listed(node) and not node.domain:
                count = len(node.input) + len(node.output)
                arrays = [np.asarray(v) if _is_number(v) else None for v in (*args, *outputs)]
                arrays += [None] * (count - len(arrays))
                behind = [np.array(turns)] if node.op_type == "Loop" else []
                see(_call(node, [*arrays, *behind], constants))
            return outputs

        return run

    try:
        with np.errstate(all="ignore"):
            Watching(model).run(None, dict(feeds))
    except Exception:  # noqa: BLE001  # whatever the evaluator raises: what follows is not seen
        return


def _steps(node: NodeProto, operands: Sequence[Any]) -> int:
    """Return for how many small nodes one counts in onnx's evaluator."""
    elements = sum(int(np.size(value)) for value in operands if _is_number(value))
    is_looping = node.op_type == "NonMaxSuppression"
    return 1 + (elements**2 // _PAIRS if is_looping else elements // _ELEMENTS)


def _is_number(value: object) -> bool:
    return isinstance(value, (np.ndarray, np.generic, int, float))
