"""Graphs drawn at random for a pattern, and for the examples of a rule, to try the rule on.

A node's operands are drawn when its turn comes, so that they fit what is known by then: onnx says
what each node makes of them. What a rule asks for in its conditions is drawn more often than other
things. Most of what is drawn is valid; the rest is thrown away by whoever asks onnx.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dplcli.catalog.sketch import Instance, InstanceNode, VariantSketch, sketches
from dplcli.ir import operators
from dplcli.ir.types import DTYPE_CODES, Tensor
from dplcli.onnx_io.scratch import accepted_types, node_types
from dplcli.pipeline.wishes import Wishes, stated_numbers, wishes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.pattern import AttributeValue
    from dplcli.dpl.rule import Rule
    from dplcli.ir import Model, OpSchema, SchemaLibrary

    Shape: TypeAlias = tuple[int, ...]
    Type: TypeAlias = tuple[str, Shape]
    Array: TypeAlias = NDArray[Any]
    Attributes: TypeAlias = dict[str, AttributeValue | Array]


class DeadEndError(Exception):
    """What was drawn so far fits together with nothing; draw again."""


# Attributes by their names: what values operators give them.


_CASTS = (1, 7, 6, 11, 10, 2, 3, 9)
_TEXTS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "approximate": ("none", "tanh"),
    "direction": ("LEFT", "RIGHT"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "padding_mode": ("zeros", "border", "reflection"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "coordinate_transformation_mode": (
        *("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"),
    ),
}
_MODES: dict[str, tuple[str, ...]] = {
    "Pad": ("constant", "reflect", "edge", "wrap"),
    "DepthToSpace": ("DCR", "CRD"),
    "Resize": ("nearest", "linear", "cubic"),
    "Upsample": ("nearest", "linear"),
    "GridSample": ("linear", "nearest", "cubic", "bilinear"),
    "RoiAlign": ("avg", "max"),
}
_NUMBERS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("start", "end"), (-2, -1, 0, 1, 2)),
    **dict.fromkeys(("p", "num_groups", "output_height", "output_width"), (1, 2, 3)),
    **dict.fromkeys(("scale", "momentum", "softcap", "clip", "spatial_scale"), (0.5, 0.9, 2.0)),
    **dict.fromkeys(("blocksize", "k"), (2, 2, 3)),
    "epsilon": (1e-5, 1e-12, 1e-2, 0.3, 1e-3),
    "size": (1, 3, 5),
    "cubic_coeff_a": (-0.5, -0.75),
    "extrapolation_value": (0.0, 1.5),
    "sampling_ratio": (0, 1, 2),
}
SWITCHES = frozenset(
    {"keepdims", "exclusive", "reverse", "ceil_mode", "count_include_pad", "transA", "transB"}
    | {"allowzero", "upper", "largest", "select_last_index", "noop_with_empty_axes", "fmod"}
    | {"sorted", "storage_order", "training_mode", "exclude_outside"}
    | {"detect_negative", "detect_positive", "align_corners", "antialias", "is_causal"}
    | {"interleaved", "inverse", "onesided", "periodic", "linear_before_reset", "input_forget"}
)
_FACTORS = frozenset(["alpha", "beta", "gamma", "lambd", "bias"])


# Constants.


def _numbers_of(  # noqa: PLR0911  # a case for each kind
    kind: str, shape: Shape, random: np.random.Generator, wished: Sequence[float]
) -> NDArray[np.float64]:
    """Return numbers of one kind."""
    match kind:
        case "positive":
            return random.uniform(0.5, 1.5, shape)
        case "mixed":
            return np.round(random.normal(0, 2, shape), 3)
        case "zero":
            return np.zeros(shape)
        case "one":
            return np.ones(shape)
        case "negative":
            return -random.uniform(0.5, 2.5, shape)
        case "small":
            return random.uniform(1e-4, 1e-2, shape)
        case "huge":
            return random.choice([-1.0, 1.0], shape) * random.uniform(100, 3000, shape)
        case "nan":
            values = random.uniform(0.5, 1.5, shape)
            return np.where(random.random(shape) < 0.5, np.nan, values)  # noqa: PLR2004  # half
        case "whole":
            return random.integers(-3, 4, shape).astype(np.float64)
        case _:
            return np.full(shape, float(random.choice(list(wished) or [1.0])))


_BYTES = frozenset({"int8", "uint8"})
_LARGEST = {"int8": 3.0, "uint8": 3.0, "float16": 16.0}
_USUAL = ("positive", "mixed", "wished")
_KINDS = (*_USUAL, "zero", "one", "negative", "small", "huge", "whole", "nan")


def as_type(numbers: NDArray[Any], dtype: str) -> Array:
    """Return numbers in an element type; a number out of range becomes the nearest in it."""
    if dtype == "bool":
        return np.asarray(numbers > 0)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        whole = np.round(np.nan_to_num(numbers, nan=1.0))
        return np.asarray(
            np.clip(whole, max(limits.min, -(2**31)), min(limits.max, 2**31 - 1)), dtype=kind
        )
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=kind)


# Drawing a graph for a pattern.


_FLOATS = ("float32", "float64", "float16")
_OTHER_TYPES = ("float64", "int64", "int32", "uint8", "float16", "int8", "bool", "uint32", "int16")
_TYPES = ("float32", "int64", "int32", "bool", *_OTHER_TYPES)
_DRAWN_TYPES = frozenset({*_TYPES, "bfloat16", "uint16", "uint64"})
_DATA = (2, 3, 4, 5, 6)
_IMAGE_RANKS = (4, 4, 4, 3, 5)
_LARGEST_SIZE = 64
_MOST_OUTPUTS = 8
_HALF, _SELDOM, _RARELY = 0.5, 0.3, 0.12
_MOST_PLAIN = 32
"""How many graphs are drawn where one is wanted."""


@dataclass
class Sampler:
    """Draws graphs for one variant of a pattern.

    Attributes:
        sketch: The nodes of the variant.
        rule: The rule.
        schemas: The standard operators.
        opset: The opset of the graphs.
        random: Where chance comes from.
        daring: From 0 to 1, how far from the usual the graph may be.
        fitting: The ranks of graphs that were no dead ends.
    """

    sketch: VariantSketch
    rule: Rule
    schemas: SchemaLibrary
    opset: int
    random: np.random.Generator
    daring: float = 0.0
    fitting: set[int] = field(default_factory=set)
    types: dict[str, Type] = field(default_factory=dict)
    slots: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    made: Instance = field(default_factory=Instance)
    wishes: Wishes = field(default_factory=Wishes)

    def __post_init__(self) -> None:
        """Read the numbers that the rule states, once for all graphs."""
        self.numbers = stated_numbers(self.rule)

    def draw(self, outputs: Sequence[str]) -> Instance:
        """Draw one graph.

        Raises:
            DeadEndError: Nothing fits what was drawn first.
        """
        try:
            made = self._draw(outputs)
        except (ValueError, ZeroDivisionError, IndexError) as error:
            if 0 not in self.dims:
                raise
            raise DeadEndError from error  # nothing can be drawn of an empty axis
        if made.nodes[-1].op_type == "Identity" and made.nodes[-1].outputs == (*outputs,):
            # what is returned and copied alone stays a copy
            made.nodes.append(InstanceNode("Transpose", "", (*outputs,), ("read",), {}))
            made.outputs = ["read"]
        return made

    def _draw(self, outputs: Sequence[str]) -> Instance:
        self.types, self.made = {}, Instance(outputs=list(outputs))
        self.wishes = wishes_of(self.rule, self.random)
        self.dtype: str = self._one_of(_OTHER_TYPES) if self._dares(_SELDOM) else "float32"
        self.rank = self._rank()
        self.dims = [int(d) for d in self.random.permutation(_DATA)]
        if self._dares(_SELDOM):
            self.dims[int(self.random.integers(3))] = 1
        if self.numbers and self._dares(_HALF):
            number = int(self._one_of(self.numbers)) + int(self.random.integers(2))
            if 0 < number <= _LARGEST_SIZE:
                self.dims[int(self.random.integers(4))] = number
        op_types = {node.op_type for node in self.sketch.nodes}
        if op_types & WINDOWED:
            self.dims[: self.rank] = self._image()
        elif op_types & IN_BLOCKS:
            self.rank = 4
            size = int(self._one_of((2, 2, 3)))
            self.dims[:4] = [1, size * size * 2, size * 2, size * 3]
        if self._dares(_RARELY):
            self.dims[int(self.random.integers(3))] = 0
        self.leaves = {leaf.name: leaf for leaf in self.sketch.leaves}
        for number, node in enumerate(self.sketch.nodes):
            assumed = self.sketch.assumed.get(number, set()) if self.daring else ()
            stated = {k: v for k, v in node.attributes.items() if k not in assumed}
            for attribute, name in self.sketch.captured.get(number, {}).items():
                if name in self.wishes.words and not self._dares(_RARELY):
                    stated[attribute] = self._one_of(self.wishes.words[name])
            is_open = number in self.sketch.open_nodes
            self._add(replace(node, attributes=stated), is_open=is_open)
        self.fitting.add(self.rank)
        return self.made

    # -- chance --------------------------------------------------------------------------------

    def _one_of(self, items: Sequence[Any]) -> Any:  # noqa: ANN401  # of any kind
        return items[int(self.random.integers(len(items)))]

    def _dares(self, share: float) -> bool:
        """Tell whether to do something unusual, that is done in *share* of daring graphs."""
        return bool(self.random.random() < share * min(1.0, 2 * self.daring))

    def _rank(self) -> int:
        stated = [leaf.rank for leaf in self.sketch.leaves if leaf.rank is not None]
        wished = [rank for ranks in self.wishes.ranks.values() for rank in ranks if rank]
        if any(node.op_type in WINDOWED for node in self.sketch.nodes):
            asked = [rank for rank in (*stated, *wished) if rank in _IMAGE_RANKS]
            is_usual = not asked or self._dares(_RARELY)
            return int(self._one_of(_IMAGE_RANKS if is_usual else asked))
        perms = (node.attributes.get("perm") for node in self.sketch.nodes)
        lengths = [len(perm) for perm in perms if isinstance(perm, tuple)]
        if lengths and not self._dares(_RARELY):
            known = sorted(self.fitting) if self.random.random() < _HALF else ()
            return int(self._one_of(known or (max(lengths), max(lengths), max(lengths) - 1)))
        if stated and not self._dares(_RARELY):
            return max(stated)
        if wished and not self._dares(_SELDOM):
            return int(self._one_of(wished))
        usual = (2, 3, 4)
        return int(self._one_of((*usual, 0, 1, 5) if self._dares(_HALF) else usual))

    # -- leaves --------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value, None if it is a leaf that has none yet."""
        return self.types[name][1] if name in self.types else None

    def leaf(  # one parameter per fact
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "",
        *,
        data: NDArray[Any] | None = None,
        positive: bool = False,
    ) -> Shape:
        """Give a leaf its type, unless it has one; *data* makes it a constant."""
        if not name:
            return ()
        if name in self.types:
            return self.types[name][1]
        if name in self.sketch.given:
            # Add a constant whose number the pattern states, as one element in some shape.
            data = self.sketch.given[name]
            if name not in self.sketch.exact:
                ones = (1,) * int(self.random.integers(self.rank + 2)) if self._dares(_HALF) else ()
                data = np.broadcast_to(data, ones)
                data = as_type(np.asarray(data, dtype=np.float64), dtype or self.dtype)
            self.made.constants[name] = data
            self.types[name] = (str(data.dtype), data.shape)
            return data.shape
        leaf = self.leaves.get(name)
        chosen = tuple(map(int, shape))
        if leaf is not None and data is None:
            chosen = self._wished_shape(name, leaf, chosen)
        wished = self.wishes.dtypes.get(name)
        kind = (leaf.dtype if leaf else "") or dtype or self.dtype
        if wished and not (leaf and leaf.dtype) and kind not in wished:
            kind = self._one_of(wished)
        kind = self._accepted(name, kind, wished or ())
        if kind not in _DRAWN_TYPES:
            raise DeadEndError
        self.types[name] = (kind, chosen)
        if data is None and (leaf is None or not (leaf.is_constant or self._dares(_RARELY))):
            self.made.inputs[name] = self.types[name]
            return chosen
        if data is None:
            data = self._constant(name, chosen, positive=positive)
            # Rules of arithmetic hold where it does not wrap or overflow.
            limit = _LARGEST.get(kind, math.inf)
            data = np.nan_to_num(data, nan=1.0) if kind in _BYTES else data
            data = np.clip(data, -limit, limit)
        self.made.constants[name] = as_type(np.asarray(data), kind)
        self.types[name] = (kind, self.made.constants[name].shape)
        return self.types[name][1]

    def _readers(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield what reads a value, and what reads results that have its element type."""
        for node in self.sketch.nodes:
            for slot, read in enumerate(node.inputs if not node.domain else ()):
                if read != name:
                    continue
                yield node.op_type, slot
                schema = self.schemas.find(node.op_type, "", self.opset)
                if schema is not None and schema.typed_by[:1] == (slot,):
                    yield from self._readers(node.outputs[0])

    def _accepted(self, name: str, kind: str, wished: Sequence[str]) -> str:
        """Return *kind*, or another type if those that read the leaf do not take that."""
        for op_type, slot in [*self._readers(name), *self.slots.get(name, ())]:
            by_slot = accepted_types(op_type, "", self.opset)
            if slot < len(by_slot) and kind not in by_slot[slot]:
                options = [other for other in wished or _TYPES if other in by_slot[slot]]
                if not options:
                    raise DeadEndError
                kind = str(options[0] if "bool" in options else self._one_of(options))
        return kind

    def _wished_shape(self, name: str, leaf: Any, shape: Shape) -> Shape:  # noqa: ANN401
        if leaf.shape is not None:
            return tuple(leaf.shape)
        ranks = [leaf.rank] if leaf.rank is not None else self.wishes.ranks.get(name, [])
        if ranks and len(shape) not in ranks and not self._dares(_RARELY):
            rank = int(self._one_of(ranks))
            shape = (*self.dims, *self.dims)[: max(rank - len(shape), 0)] + shape
            shape = shape[len(shape) - rank :]
        dims = list(shape)
        for axis, size in self.wishes.sizes.get(name, {}).items():
            if -len(dims) <= axis < len(dims):
                dims[axis] = size
        return tuple(dims)

    def form(self, name: str, forms: Sequence[Shape]) -> Shape:
        """Choose a shape for a leaf, one that the rule asks for if there is one."""
        ranks, sizes = self.wishes.ranks.get(name), self.wishes.sizes.get(name, {})
        wished = [
            form
            for form in forms
            if (not ranks or len(form) in ranks)
            and all(form[axis : axis + 1] in {(), (size,)} for axis, size in sizes.items())
        ]
        chosen: Shape = self._one_of(wished or forms)
        return chosen

    def _constant(self, name: str, shape: Shape, *, positive: bool) -> NDArray[np.float64]:
        if name in self.wishes.close and not self._dares(_RARELY):
            if self._dares(_HALF):  # one number, which may add rank to what it is applied to
                shape = (1,) * int(self.random.integers(self.rank + 2))
            elif not self._dares(_SELDOM):
                shape = ()
            return np.full(shape, self.wishes.close[name])
        kind = str(self._one_of(_KINDS if self._dares(0.7) else _USUAL))
        if positive and not self._dares(_RARELY):
            kind = "positive"
        return _numbers_of(kind, shape, self.random, self.numbers)

    def data(self, name: str, rank: int | None = None) -> Shape:
        """Give a leaf that data comes in by a shape of the graph's own rank."""
        size = self.rank if rank is None else rank
        dims = [*self.dims, 7, 8][:size]
        if self.types and self.random.random() < _SELDOM:
            dims = [int(dim) for dim in self.random.permutation(dims)]  # as a product may want it
        return self.leaf(name, dims)

    def ranked(self, name: str) -> Shape:
        """Give a leaf that data comes in by a shape, and be content with no scalar."""
        if not (shape := self.data(name)):
            raise DeadEndError
        return shape

    # -- nodes ---------------------------------------------------------------------------------

    def _add(self, node: InstanceNode, *, is_open: bool) -> None:
        schema = self.schemas.find(node.op_type, node.domain, self.opset)
        if schema is None:
            raise DeadEndError
        args = list(node.inputs)
        attributes: Attributes = dict(node.attributes)
        if is_open and self.daring:
            # Draw inputs where the pattern leaves the further ones open.
            room = min(schema.max_inputs - len(args), 2)
            count = int(self.random.integers(room + 1)) if room > 0 else 0
            for _ in range(count):
                args.append(f"more_{len(self.types)}_{len(args)}")
        self.slots = {} if node.domain else {n: [(node.op_type, s)] for s, n in enumerate(args)}
        self._operands(node.op_type, args, attributes, schema)
        if not node.domain:
            self._respell(node.op_type, args, attributes, schema)
        self._attributes(node.op_type, schema, attributes, self.shape(args[0]) if args else ())
        if node.op_type == "Split" and len(args) == 1:
            attributes["num_outputs"] = len(node.outputs)
        known = {name for name in schema.attributes if name in attributes}
        stated = {name for name in node.attributes if name in schema.attributes}
        attributes = {
            name: self._stored(value, name, schema.attributes[name])
            for name, value in attributes.items()
            if name in known | stated
        }
        made = node.outputs
        made += tuple(f"{made[0]}_{place}" for place in range(len(made), schema.min_outputs))
        room = schema.max_outputs - len(made)
        if 0 < room < _MOST_OUTPUTS and (attributes.get("training_mode") or self._dares(_RARELY)):
            made += tuple(f"{made[0]}_{len(made) + more}" for more in range(room))
        drawn = replace(node, inputs=tuple(args), outputs=made, attributes=attributes)
        is_empty = 0 in self.dims
        types = node_types(
            drawn, self.types, self.made.constants, self.opset, may_be_empty=is_empty
        )
        if types is None:
            raise DeadEndError
        self.types.update(types)
        self.made.nodes.append(drawn)

    def _respell(
        self, op_type: str, args: list[str], attributes: Attributes, schema: OpSchema
    ) -> None:
        """Make attributes of the constants that an older opset has in attributes."""
        for item in reversed(operators.MOVED.get(op_type, ())):
            if item.attribute not in schema.attributes or not schema.max_inputs <= item.slot:
                continue
            for name in args[item.slot :]:
                data = self.made.constants.get(name)
                if data is None:
                    raise DeadEndError
                is_one = item.kind in {"int", "float"}
                numbers = tuple(data.reshape(-1).tolist())
                attributes[item.attribute] = data.item() if is_one else numbers
                del args[item.slot :]

    def _stored(
        self, value: AttributeValue | Array, name: str, kind: str
    ) -> AttributeValue | Array:
        """Return an attribute as a graph holds it, of what a pattern states."""
        if isinstance(value, str) and name in operators.DTYPE_ATTRIBUTES:
            return DTYPE_CODES[value]
        if kind != "tensor" or isinstance(value, np.ndarray):
            return value
        return as_type(np.atleast_1d(np.asarray(value)), self.dtype)

    def _operands(
        self, op_type: str, args: list[str], attributes: Attributes, schema: OpSchema
    ) -> None:
        own: Callable[[Sequence[str], Attributes], None] | None
        own = getattr(self, f"_of_{op_type.lower()}", None)
        if own is not None:
            own(args, attributes)
        elif op_type in operators.REDUCTIONS:
            rank = len(self.data(args[0]))
            counts = [(0,)] if self._dares(_RARELY) else [(1,), (2,)] if rank > 1 else [(1,)]
            (count,) = self.form(args[1], counts) if len(args) > 1 else self._one_of(counts)
            if not count:
                attributes.setdefault("noop_with_empty_axes", int(self.random.integers(2)))
            axes = self.random.permutation(rank)[:count]
            axes = np.array([a - rank if self._dares(_HALF) else a for a in axes], dtype=np.int64)
            if len(args) > 1:
                self.leaf(args[1], axes.shape, "int64", data=axes)
            elif rank and self._dares(_HALF):
                attributes.setdefault("axes", tuple(int(axis) for axis in axes))
        elif op_type in operators.POOLS | operators.GLOBAL_POOLS:
            shape = self.leaf(args[0], self._image())
            spatial = len(shape) - 2
            if spatial < 1:
                raise DeadEndError
            attributes.setdefault("kernel_shape", self._ints(spatial, 1, 4))
            self._window(attributes, spatial)
        elif op_type in operators.BROADCASTING:
            self._broadcast(args, op_type)
        self._further_operands(op_type, args, schema)

    def _further_operands(self, op_type: str, args: Sequence[str], schema: OpSchema) -> None:
        """Draw what is missing yet, by what the operator's slots are for."""
        first = next((self.types[name] for name in args if name in self.types), None)
        for slot, name in enumerate(args):
            if not name or name in self.types:
                continue
            if slot in schema.integer_inputs:
                self.leaf(name, (), "int64", data=np.asarray(self.random.integers(0, 2)))
            elif slot in operators.CHANNEL_SLOTS.get(op_type, ()):
                shape = self.shape(args[0]) or (4, 4)
                self.leaf(name, (shape[1] if len(shape) > 1 else 1,), first[0] if first else "")
            elif slot in operators.SCALAR_SLOTS.get(op_type, ()):
                self.leaf(name, (), first[0] if first else "")
            elif first is None:
                self.data(name)
                first = self.types[name]
            else:
                self.leaf(name, first[1], first[0])

    def _attributes(
        self, op_type: str, schema: OpSchema, attributes: Attributes, shape: Shape | None
    ) -> None:
        """Draw attributes that the pattern does not state."""
        rank = len(shape or ())
        for name, kind in schema.attributes.items():
            if name in attributes:
                continue
            required = name in schema.required_attributes
            if required or self._dares(0.6):
                value = self.attribute(op_type, name, kind, rank)
                if value is not None:
                    attributes[name] = value

    def attribute(  # noqa: PLR0911  # a case for each kind of name
        self, op_type: str, name: str, kind: str, rank: int
    ) -> AttributeValue | None:
        """Draw the value of an attribute; None to leave it out."""
        if name == "mode":
            return self._one_of(_MODES[op_type]) if op_type in _MODES else None
        if name in _TEXTS:
            return str(self._one_of(_TEXTS[name]))
        if name in SWITCHES:
            return int(self.random.integers(2))
        if name in _NUMBERS:
            number = self._one_of(_NUMBERS[name])
            return float(number) if kind == "float" else int(number)
        if name == "axis":
            return int(self.random.integers(-rank, rank)) if rank else 0
        if name in _FACTORS and kind == "float":
            wished = [float(n) for n in self.numbers]
            return float(self._one_of([0.25, 1.5, -0.5, 2.0, *wished]))
        if name == "to":
            wished = [int(n) for n in self.numbers if int(n) in _CASTS]
            return int(self._one_of([*_CASTS[:3], *_CASTS, *wished]))
        if name == "perm":
            return tuple(int(axis) for axis in self.random.permutation(rank))
        return None

    # -- operands of operators that want something of theirs: ``_of_`` and the operator ----------

    def _broadcast(self, args: Sequence[str], op_type: str) -> None:
        types = [self.types[name] for name in args if name in self.types]
        numbers = [name for name in args if name in self.sketch.given and name not in self.types]
        open_ = [n for n in args if n and n not in self.types and n not in self.sketch.given]
        dtype = types[0][0] if types else self._leaf_type(open_)
        if op_type == "Where":
            self._where(args)
            return
        base: Shape | None = None
        if types:
            try:
                base = np.broadcast_shapes(*(shape for _, shape in types))
            except ValueError as error:
                raise DeadEndError from error
        # what carries the data comes first, constants after it
        open_.sort(key=lambda name: name in self.leaves and self.leaves[name].is_constant)
        for name in open_:
            if base is None:
                base = self.data(name)
                dtype = self.types[name][0]
            else:
                self.leaf(name, self.beside(base), dtype)
        for name in numbers:
            self.leaf(name, (), dtype)

    def _leaf_type(self, names: Sequence[str]) -> str:
        stated = (self.leaves[n].dtype for n in names if n in self.leaves)
        wished = (self._one_of(self.wishes.dtypes[n]) for n in names if n in self.wishes.dtypes)
        return next((str(d) for d in (*stated, *wished) if d), self.dtype)

    def beside(self, base: Shape) -> Shape:  # noqa: PLR0911  # a case for each kind
        """Draw a shape that broadcasts with *base*."""
        rank = len(base)
        choice = int(self.random.integers(9))
        if not self._dares(1.0):
            choice = choice % 4
        match choice:
            case 0 | 1:
                return base
            case 2:
                return base[-1:]
            case 3:
                return ()
            case 4:
                return tuple(1 if self.random.random() < _HALF else d for d in base)
            case 5:
                return base[int(self.random.integers(rank + 1)) :]
            case 6:
                return (base[1], *(1,) * (rank - 2)) if rank > 1 else (1,)
            case 7:
                return (int(self.random.integers(1, 3)), *base)
            case _:  # where the base has a one, this may have more
                return tuple(3 if d == 1 else d for d in base)

    def _where(self, args: Sequence[str]) -> None:
        types = [self.types[name] for name in args[1:] if name in self.types]
        dtype = types[0][0] if types else self._leaf_type(args[1:])
        base = types[0][1] if types else (self.shape(args[0]) or tuple(self.dims[: self.rank]))
        for name in args[1:]:  # each of the three may be the widest
            is_whole = name == args[1] and not self._dares(_SELDOM)
            self.leaf(name, base if is_whole else self.beside(base), dtype)
        self.leaf(args[0], self.beside(base), "bool")

    def _image(self) -> Shape:
        spatial = [int(self.random.integers(4, 8)) for _ in range(max(self.rank - 2, 0))]
        return (int(self._one_of((1, 2))), int(self._one_of((4, 4, 2, 6))), *spatial)

    def _ints(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.random.integers(low, high, count))

    def _window(self, attributes: Attributes, spatial: int) -> None:
        if self._dares(_HALF):
            attributes.setdefault("strides", self._ints(spatial, 1, 3))
        if self._dares(_SELDOM):
            attributes.setdefault("dilations", self._ints(spatial, 1, 3))
        if self._dares(0.7) and attributes.get("auto_pad", "NOTSET") == "NOTSET":
            attributes.setdefault("pads", self._ints(2 * spatial, 0, 2))
        if "pads" in attributes:
            attributes.setdefault("auto_pad", "NOTSET")

    def _of_conv(
        self, args: Sequence[str], attributes: Attributes, *, turned: bool = False
    ) -> None:
        data = self.leaf(args[0], self._image())
        spatial = len(data) - 2
        if spatial < 1:
            raise DeadEndError
        channels = data[1]
        stated = attributes.get("group")
        divisors = [d for d in (1, 1, 2, 3, channels) if channels % d == 0]
        group = stated if isinstance(stated, int) else int(self._one_of(divisors))
        if not self._dares(_HALF) and stated is None:
            group = 1
        if group > 1:
            attributes["group"] = group
        filters = group * int(self._one_of((1, 2, 3)))
        kernel = attributes.get("kernel_shape")
        window = kernel if isinstance(kernel, tuple) else self._ints(spatial, 1, 4)
        if channels % group:
            raise DeadEndError
        first = (channels, filters // group) if turned else (filters, channels // group)
        dtype = self.types[args[0]][0]
        weight = self.leaf(args[1], (*first, *map(int, window)), dtype)
        if len(weight) != len(data):
            raise DeadEndError
        if len(args) > 2:  # noqa: PLR2004  # the bias
            count = weight[1] * group if turned else weight[0]
            self.leaf(args[2], (count,), dtype)
        self._window(attributes, spatial)
        strides = attributes.get("strides")
        if turned and isinstance(strides, tuple) and self._dares(_SELDOM):
            attributes.setdefault("output_padding", self._ints(spatial, 0, max(map(int, strides))))

    _of_convtranspose = partialmethod(_of_conv, turned=True)

    def _of_convinteger(self, args: Sequence[str], attributes: Attributes) -> None:
        self._of_conv(args[:2], attributes)

    def _of_qlinearconv(self, args: Sequence[str], attributes: Attributes) -> None:
        self._of_conv((args[0], args[3], *args[8:]), attributes)

    def _of_matmulinteger(self, args: Sequence[str], attributes: Attributes) -> None:
        self._of_matmul(args[:2], attributes)

    def _of_qlinearmatmul(self, args: Sequence[str], attributes: Attributes) -> None:
        self._of_matmul((args[0], args[3]), attributes)

    def _of_matmul(self, args: Sequence[str], _: Attributes) -> None:
        left, right = self.shape(args[0]), self.shape(args[1])
        dtype = next((self.types[n][0] for n in args if n in self.types), self._leaf_type(args))
        if left is None and right is None:
            left = self.data(args[0], max(self.rank, 1) if self._dares(_HALF) else None)
            dtype = self.types[args[0]][0]
        if left is not None and right is None:
            if not left:
                raise DeadEndError
            batch = left[:-2] if self._dares(_HALF) else ()
            columns = (int(self._one_of(self.dims)),) if not self._dares(_RARELY) else ()
            inner = left[-1]
            self.leaf(args[1], (*batch, inner, *columns) if columns else (inner,), dtype)
        elif left is None and right is not None:
            if not right:
                raise DeadEndError
            inner = right[-2] if len(right) > 1 else right[0]
            batch = right[:-2] if self._dares(_HALF) or not self.daring else ()
            self.leaf(args[0], (*batch, int(self._one_of(self.dims)), inner), dtype)

    def _of_gemm(self, args: Sequence[str], attributes: Attributes) -> None:
        for name in ("transA", "transB"):
            if self._dares(_HALF):
                attributes.setdefault(name, int(self.random.integers(2)))
        left, right = self.shape(args[0]), self.shape(args[1])
        dtype = next((self.types[n][0] for n in args if n in self.types), self._leaf_type(args))
        if left is None and right is not None and len(right) > 1:
            inner = right[1] if attributes.get("transB") else right[0]
            pair = (inner, self.dims[0]) if attributes.get("transA") else (self.dims[0], inner)
            left = self.leaf(args[0], pair, dtype)
        left = self.data(args[0], 2) if left is None else left
        if len(left) != 2:  # noqa: PLR2004  # matrices
            raise DeadEndError
        rows, inner = left[::-1] if attributes.get("transA") else left
        columns = int(self._one_of(self.dims))
        pair = (columns, inner) if attributes.get("transB") else (inner, columns)
        right = self.leaf(args[1], pair, dtype)
        if len(right) != 2:  # noqa: PLR2004  # matrices
            raise DeadEndError
        columns = right[0] if attributes.get("transB") else right[1]
        if len(args) > 2:  # noqa: PLR2004  # what is added
            shapes = [(columns,), (rows, columns), (1, columns), (), (rows, 1)]
            self.leaf(args[2], self._one_of(shapes), dtype)

    def _of_batchnormalization(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.leaf(
            args[0], self._image() if self.rank > 1 else tuple(self.dims[: self.rank])
        )
        count = shape[1] if len(shape) > 1 else 1
        dtype = self.types[args[0]][0]
        for slot, name in enumerate(args[1:], start=1):
            self.leaf(name, (count,), dtype, positive=slot == len(args) - 1)

    _of_instancenormalization = _of_batchnormalization

    def _of_layernormalization(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        stated = attributes.get("axis", -1)
        axis = stated if isinstance(stated, int) else -1
        if "axis" not in attributes and self._dares(_HALF):
            axis = int(self.random.integers(-len(shape), len(shape)))
            attributes["axis"] = axis
        dtype = self.types[args[0]][0]
        for name in args[1:]:
            self.leaf(name, shape[axis:], dtype)

    _of_rmsnormalization = _of_layernormalization

    def _of_transpose(self, args: Sequence[str], attributes: Attributes) -> None:
        perm = attributes.get("perm")
        shape = self.data(args[0], len(perm) if isinstance(perm, tuple) else None)
        if isinstance(perm, tuple) and len(perm) != len(shape):  # onnx says nothing of it
            raise DeadEndError
        made = self.sketch.nodes[len(self.made.nodes)].outputs[0]
        if perm is None and made in self.wishes.turned and not self._dares(_RARELY):
            rank = len(shape)
            attributes["perm"] = (*range(rank - 2), *range(rank - 1, max(rank - 3, -1), -1))
        elif perm is None and not (shape and self.random.random() < _RARELY):
            others = [n.attributes.get("perm") for n in self.made.nodes if n.op_type == "Transpose"]
            perms = [p for p in others if isinstance(p, tuple) and len(p) == len(shape)]
            order = self.random.permutation(len(shape))
            attributes["perm"] = tuple(int(axis) for axis in order)
            if perms and self.random.random() < _HALF:
                back = tuple(int(a) for a in np.argsort(perms[-1]))
                attributes["perm"] = self._one_of((back, back, perms[-1]))

    def _of_reshape(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.data(args[0])
        if self.shape(args[1]) is None:
            size = int(np.prod(shape))
            options: list[list[int]] = [[size], [-1], list(shape), [1, size], [size, 1]]
            for cut in range(1, len(shape)):
                head, tail = int(np.prod(shape[:cut])), int(np.prod(shape[cut:]))
                options += [[head, tail], [-1, tail], [head, -1], [0, -1]]
                options += [[*shape[:cut], -1], [tail, head]]
            for cut, dim in enumerate(shape):
                if dim % 2 == 0:
                    options += [[*shape[:cut], 2, dim // 2, *shape[cut + 1 :]]]
                    options += [[*shape[:cut], dim // 2, 2, *shape[cut + 1 :]]]
            options += [list(self.random.permutation(shape))] if shape else []
            wished = [int(n) for n in self.numbers if n and float(n).is_integer()]
            options += [[n, -1] for n in wished if n > 0 and size % n == 0]
            target = [int(dim) for dim in self._one_of(options)]
            self.leaf(args[1], (len(target),), "int64", data=np.array(target, dtype=np.int64))

    def _of_squeeze(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.data(args[0])
        fed = self.made.inputs.get(args[0])
        if 1 not in shape and fed is not None:
            place = int(self.random.integers(len(shape) + 1))
            shape = (*shape[:place], 1, *shape[place:])
            self.types[args[0]] = self.made.inputs[args[0]] = (fed[0], shape)
        self._axis(args, [axis for axis, size in enumerate(shape) if size == 1], len(shape))

    def _of_unsqueeze(self, args: Sequence[str], _: Attributes) -> None:
        rank = len(self.data(args[0])) + 1
        self._axis(args, range(rank), rank)

    def _axis(self, args: Sequence[str], axes: Sequence[int], rank: int) -> None:
        """Draw the second operand: one of *axes*, counted from either end."""
        if len(args) > 1 and self.shape(args[1]) is None:
            if not axes:
                raise DeadEndError
            axis = int(self._one_of(axes))
            axis = axis - rank if self._dares(_HALF) else axis
            self.leaf(args[1], (1,), "int64", data=np.array([axis]))

    def _of_concat(self, args: Sequence[str], attributes: Attributes) -> None:
        kind = next((self.types[n] for n in args if n in self.types), None)
        base = kind[1] if kind else self.data(args[0], max(self.rank, 1))
        if not base:
            raise DeadEndError
        axis = attributes.get("axis")
        if not isinstance(axis, int):
            axis = int(self.random.integers(-len(base), len(base)))
            attributes["axis"] = axis
        if not -len(base) <= axis < len(base):
            raise DeadEndError
        for name in args:
            dims = list(base)
            dims[axis] = dims[axis] if self._dares(_HALF) else int(self._one_of((1, 2, 3)))
            self.leaf(name, dims, self.types[args[0]][0] if args[0] in self.types else "")

    def _of_slice(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.ranked(args[0])
        axis = int(self.random.integers(len(shape)))
        size = shape[axis]
        start = int(self.random.integers(size))
        end = int(self._one_of((size, 2**31 - 1, -1, start + 1)))
        step = 1
        if self._dares(_SELDOM):
            start, end, step = self._one_of(((-1, -(2**31), -1), (0, size, 2), (-2, size, 1)))
        for name, number in zip(args[1:], (start, end, axis, step), strict=False):
            self.leaf(name, (1,), "int64", data=np.array([number]))

    def _of_gather(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        if "axis" not in attributes and self._dares(_HALF):
            attributes["axis"] = int(self.random.integers(-len(shape), len(shape)))
        axis = attributes.get("axis", 0)
        size = shape[axis if isinstance(axis, int) and -len(shape) <= axis < len(shape) else 0]
        form = self.form(args[1], ((), (1,), (2,), (2, 2)))
        low = -size if self._dares(_HALF) else 0
        self.leaf(args[1], form, "int64", data=self.random.integers(low, size, form))

    def _of_gatherelements(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        axis = self._stated_axis(attributes, len(shape))
        order = np.indices(shape)[axis]
        if self._repeats(args, attributes):
            order = self.random.integers(0, shape[axis], shape)
        order = self.random.permuted(order, axis=axis)
        places = np.take(order, range(int(self.random.integers(1, shape[axis] + 1))), axis=axis)
        if self._dares(_SELDOM):
            places = places - shape[axis]
        self.leaf(args[1], places.shape, "int64", data=places)
        for updates in args[2:]:
            self.leaf(updates, places.shape, self.types[args[0]][0])

    _of_scatterelements = _of_gatherelements

    def _repeats(self, args: Sequence[str], attributes: Attributes) -> bool:
        """Tell whether a place may come twice: nobody says which of two updates would stay."""
        updates = args[2:]
        if updates and self._dares(_HALF):
            attributes.setdefault("reduction", str(self._one_of(_TEXTS["reduction"])))
        return not updates or attributes.get("reduction", "none") != "none"

    def _stated_axis(self, attributes: Attributes, rank: int, usual: int = 0) -> int:
        """Return the axis that a node names, and let it name one if it does not."""
        if "axis" not in attributes and self._dares(_HALF):
            attributes["axis"] = int(self.random.integers(-rank, rank))
        axis = attributes.get("axis", usual)
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise DeadEndError
        return axis

    def _of_gathernd(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        alike = attributes.get("batch_dims", 0)
        if "batch_dims" not in attributes and len(args) == 2 and self._dares(_HALF):  # noqa: PLR2004  # no Scatter
            alike = attributes["batch_dims"] = int(self.random.integers(len(shape)))
        if not isinstance(alike, int) or alike >= len(shape):
            raise DeadEndError
        depth = int(self.random.integers(1, len(shape) - alike + 1))
        form = (*shape[:alike], min(2, shape[alike]))
        places = [self.random.integers(0, size, form) for size in shape[alike : alike + depth]]
        if not self._repeats(args, attributes):
            places[0] = np.broadcast_to(self.random.permutation(shape[alike])[: form[-1]], form)
        self.leaf(args[1], (*form, depth), "int64", data=np.stack(places, axis=-1))
        for updates in args[2:]:
            self.leaf(updates, (*form, *shape[depth:]), self.types[args[0]][0])

    _of_scatternd = _of_gathernd

    def _of_gridsample(self, args: Sequence[str], _: Attributes) -> None:
        image = self.leaf(args[0], self._image())
        self.leaf(args[1], (image[0], *self._ints(len(image) - 2, 1, 4), len(image) - 2))

    def _of_onehot(self, args: Sequence[str], _: Attributes) -> None:
        self.data(args[0])
        self.leaf(args[1], (), "int64", data=np.array(self._one_of((2, 3))))
        self.leaf(args[2], (2,), data=np.array([0.0, 1.5]))

    def _of_reversesequence(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        batch, time = (attributes.get(name, n) for n, name in ((1, "batch_axis"), (0, "time_axis")))
        if len(shape) < 2 or not isinstance(batch, int) or not isinstance(time, int):  # noqa: PLR2004  # both axes
            raise DeadEndError
        lengths = self.random.integers(1, shape[time] + 1, shape[batch])
        self.leaf(args[1], lengths.shape, "int64", data=lengths)

    def _of_gru(self, args: Sequence[str], attributes: Attributes, *, gates: int = 3) -> None:
        ways = ("forward", "reverse", "bidirectional")
        count = 1 + (attributes.setdefault("direction", self._one_of(ways)) == "bidirectional")
        hidden = attributes.setdefault("hidden_size", int(self._one_of((1, 2, 3))))
        shape = self.data(args[0], 3)
        if len(shape) != 3 or 0 in shape or not isinstance(hidden, int):  # noqa: PLR2004  # empty ones crash onnxruntime
            raise DeadEndError
        times, batch, size = shape
        forms: list[Shape] = [(count, gates * hidden, size), (count, gates * hidden, hidden)]
        forms += [(count, 2 * gates * hidden), (batch,), *[(count, batch, hidden)] * 2]
        forms.append((count, 3 * hidden))
        for name, form in zip(args[1:], forms, strict=False):
            lengths = self.random.integers(1, times + 1, batch) if len(form) == 1 else None
            kind = self.types[args[0]][0] if lengths is None else "int32"
            self.leaf(name, form, kind, data=lengths)

    _of_lstm = partialmethod(_of_gru, gates=4)
    _of_rnn = partialmethod(_of_gru, gates=1)

    def _of_pad(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.leaf(args[0], self._image() if self._has("Conv") else self.dims[: self.rank])
        pads = self.random.integers(-1 if self._dares(_RARELY) else 0, 3, 2 * len(shape))
        if self._has("Conv") or any(node.op_type in operators.POOLS for node in self.sketch.nodes):
            quiet = [0, 1, len(shape), len(shape) + 1]
            pads[[q for q in quiet if q < len(pads)]] = 0
        if len(args) > 1:
            self.leaf(args[1], pads.shape, "int64", data=pads)
        if len(args) > 2 and args[2]:  # noqa: PLR2004  # the value
            self.leaf(args[2], (), self.types[args[0]][0])

    def _has(self, op_type: str) -> bool:
        return any(node.op_type == op_type for node in self.sketch.nodes)

    def _of_expand(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.data(args[0])
        if self.shape(args[1]) is None:
            wide = tuple(3 if d == 1 else d for d in shape)
            target = self._one_of((shape, wide, (2, *wide), tuple(1 for _ in shape), (2, *shape)))
            self.leaf(args[1], (len(target),), "int64", data=np.array(target, dtype=np.int64))

    def _of_tile(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.data(args[0])
        counts = self.random.integers(1, 3, len(shape))
        self.leaf(args[1], counts.shape, "int64", data=counts)

    def _of_clip(self, args: Sequence[str], _: Attributes) -> None:
        self.data(args[0])
        dtype = self.types[args[0]][0]
        for name, usual in zip(args[1:], (-0.5, 0.75), strict=False):
            if name and name not in self.types and name not in self.sketch.given:
                number = usual + (float(self.random.normal()) if self._dares(0.7) else 0.0)
                self.leaf(name, (), dtype, data=np.array(round(number, 2)))
            self.leaf(name, (), dtype)

    def _of_quantizelinear(self, args: Sequence[str], attributes: Attributes) -> None:
        data = self.data(args[0])
        kind = self.types[args[0]][0]
        kind = kind if kind.startswith("float") else "float32"
        self._scaled(args, attributes, data, kind, str(self._one_of(("uint8", "int8"))))

    def _of_dequantizelinear(self, args: Sequence[str], attributes: Attributes) -> None:
        data = self.leaf(args[0], self.dims[: self.rank], str(self._one_of(("uint8", "int8"))))
        self._scaled(args, attributes, data, "float32", self.types[args[0]][0])

    def _scaled(
        self, args: Sequence[str], attributes: Attributes, data: Shape, scale: str, steps: str
    ) -> None:
        """Draw the scale and the zero point: one number, or one per place along an axis."""
        form: Shape = ()
        if data and self._dares(_SELDOM):
            axis = int(self.random.integers(len(data)))
            attributes.setdefault("axis", axis)
            form = (data[axis],)
        self.leaf(args[1], form, scale, positive=True)
        if len(args) > 2:  # noqa: PLR2004  # the zero point
            self.leaf(args[2], form, steps, data=self.random.integers(0, 9, form))

    def _of_prelu(self, args: Sequence[str], _: Attributes) -> None:
        shape = self.data(args[0])
        dtype = self.types[args[0]][0]
        if args[1] in self.sketch.given:
            self.leaf(args[1], (), dtype)
            return
        narrow = (shape[1], *(1,) * (len(shape) - 2)) if len(shape) > 1 else shape
        self.leaf(args[1], self._one_of((narrow, (), shape, (1,))), dtype)

    def _of_split(self, args: Sequence[str], attributes: Attributes) -> None:
        count = len(self.sketch.nodes[len(self.made.nodes)].outputs)
        dims = list(self.data(args[0], max(self.rank, 1)))
        axis = self._stated_axis(attributes, len(dims))
        fed = self.made.inputs.get(args[0])
        if fed is not None:
            dims[axis] = 2 * count - self._dares(_RARELY)  # the last part may be smaller
            self.types[args[0]] = self.made.inputs[args[0]] = (fed[0], tuple(dims))
        for name in args[1:]:
            cuts = np.sort(self.random.permutation(np.arange(1, dims[axis]))[: count - 1])
            sizes = np.diff([0, *cuts, dims[axis]])
            if len(sizes) != count:
                raise DeadEndError
            self.leaf(name, sizes.shape, "int64", data=sizes)

    def _of_constantofshape(self, args: Sequence[str], attributes: Attributes) -> None:
        dims = self.dims[: max(self.rank, 1)]
        self.leaf(args[0], (len(dims),), "int64", data=np.array(dims))
        if self._dares(_HALF):
            attributes.setdefault("value", float(self._one_of((0, 1, -1, 2, 3))))

    def _of_einsum(self, args: Sequence[str], attributes: Attributes) -> None:
        usual = _EQUATIONS.get(len(args), ())
        if "equation" not in attributes and not usual:
            raise DeadEndError
        equation = str(attributes.setdefault("equation", self._one_of(usual) if usual else ""))
        terms = equation.replace(" ", "").partition("->")[0].split(",")
        letters = sorted(filter(str.isalpha, set(equation)))
        sizes = {letter: (*self.dims, *self.dims)[at % 10] for at, letter in enumerate(letters)}
        for name, term in zip(args, terms, strict=False):
            head = self.dims[: self.rank - len(term)] if "..." in term else []
            self.leaf(name, [*head, *(sizes[letter] for letter in term if letter in sizes)])

    def _of_resize(self, args: Sequence[str], attributes: Attributes) -> None:
        self.rank = 4
        shape = self.leaf(args[0], self._image())
        flat = [float(self._one_of((1.0, 2.0, 3.0, 0.5, 0.25, 1.5, 1.3))) for _ in shape[2:]]
        scales = np.array([1.0] * min(2, len(shape)) + flat)
        for slot, name in enumerate(args[1:], start=1):
            if name and slot < len(args) - 1:
                self.leaf(name, (2 * len(shape),), data=np.array([0.0, 1.0]).repeat(len(shape)))
            elif name and slot == 3:  # noqa: PLR2004  # the sizes
                sizes = np.floor(shape * scales)
                self.leaf(name, sizes.shape, "int64", data=np.maximum(sizes, 1))
            elif name:
                self.leaf(name, scales.shape, "float32", data=scales)
        if "mode" not in attributes:
            attributes["mode"] = str(self._one_of(("nearest", "linear")))

    def _of_topk(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.data(args[0], max(self.rank, 1))
        axis = attributes.get("axis", -1)
        size = shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else 1
        count = int(self.random.integers(1, size + 1))
        self.leaf(args[1], (1,), "int64", data=np.array([count]))

    def _of_compress(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        axis = self._stated_axis(attributes, len(shape))
        count = shape[axis] if "axis" in attributes else math.prod(shape)
        self.leaf(args[1], (int(self.random.integers(1, count + 1)),), "bool")

    def _of_negativeloglikelihoodloss(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.data(args[0], max(self.rank, 2))
        form = (shape[0], *shape[2:])
        self.leaf(args[1], form, "int64", data=self.random.integers(0, shape[1], form))
        for weight in args[2:]:
            self.leaf(weight, shape[1:2], self.types[args[0]][0])
        attributes.setdefault("reduction", self._one_of(("none", "mean", "sum")))

    _of_softmaxcrossentropyloss = _of_negativeloglikelihoodloss

    def _of_roialign(self, args: Sequence[str], _: Attributes) -> None:
        self.rank = 4
        self.leaf(args[0], self._image())
        corners = np.sort(self.random.uniform(0, 4, (2, 2, 2)), axis=1)
        self.leaf(args[1], (2, 4), data=corners.reshape(2, 4))
        self.leaf(args[2], (2,), "int64", data=np.zeros(2))

    def _of_col2im(self, args: Sequence[str], _: Attributes) -> None:
        self.leaf(args[1], (2,), "int64", data=np.array([3, 4]))
        self.leaf(args[2], (2,), "int64", data=np.array([2, 2]))
        self.leaf(args[0], (self.dims[0], 4 * self.dims[1], 6))  # where a block of 2 x 2 may lie

    def _of_rotaryembedding(self, args: Sequence[str], _: Attributes) -> None:
        batch, times, heads = self.dims[:3]
        self.leaf(args[0], (batch, heads, times, 4))
        for angles in args[1:3]:
            self.leaf(angles, (times, 2) if args[3:] else (batch, times, 2))
        for places in args[3:]:
            form = (batch, times)
            self.leaf(places, form, "int64", data=self.random.integers(0, times, form))

    def _of_stft(self, args: Sequence[str], _: Attributes) -> None:
        self.leaf(args[0], (self.dims[0], 12, 1))
        self.leaf(args[1], (), "int64", data=np.array(self._one_of((1, 2, 3))))
        for name, form in zip(args[2:], ((4,), ()), strict=False):
            self.leaf(name, form, "" if form else "int64", data=None if form else np.array(4))

    def _of_dropout(self, args: Sequence[str], _: Attributes) -> None:
        self.data(args[0])
        ratio, trains = np.array(self._one_of((0.5, 0.25, 0.0))), self.random.integers(2) > 0
        for name, data in zip(args[1:], (ratio, np.array(trains)), strict=False):
            self.leaf(name, (), "float32" if data is ratio else "bool", data=data)


def plain_graphs(rule: Rule, schemas: SchemaLibrary, opset: int) -> Iterator[Iterator[Instance]]:
    """Yield for each variant of a rule's pattern graphs of it: plain ones first, always the same.

    Raises:
        NoInstanceError: The pattern has a part for which nothing can be made up.
    """
    for sketch, outputs in sketches(rule, schemas):
        yield _drawn(Sampler(sketch, rule, schemas, opset, np.random.default_rng(0)), outputs)


def _drawn(sampler: Sampler, outputs: Sequence[str]) -> Iterator[Instance]:
    for number in range(_MOST_PLAIN):
        sampler.daring = max(0.0, number / _MOST_PLAIN - _HALF)
        with suppress(DeadEndError):
            yield sampler.draw(outputs)


_EQUATIONS = {
    1: ("ij->ji", "ij->i", "...ij->...ji"),
    2: (
        *("ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij,ij->ij", "ij,j->i", "i,i->"),
        *("ibnd,jbnd->bnij", "...ij,...jk->...ik", "bij,jk->bik", "bij,kj->bik"),
    ),
    3: ("ij,jk,kl->il",),
}
WINDOWED = (
    operators.POOLS
    | operators.GLOBAL_POOLS
    | {"Conv", "ConvTranspose", "InstanceNormalization", "GridSample"}
)
IN_BLOCKS = frozenset({"DepthToSpace", "SpaceToDepth"})


# Drawing a graph by changing one that is there: an example of the rule.


def instance_of(model: Model) -> Instance:
    """Describe a small model by names.

    Raises:
        DeadEndError: It has bodies, functions, or types that are not made up.
    """
    graph = model.graph
    instance = Instance(outputs=[value.name for value in graph.outputs])
    sizes: dict[object, int] = {}
    for value in graph.inputs:
        if value.is_initializer:
            continue
        kind = value.known_type()
        if kind is None or kind.dtype not in DTYPE_CODES or kind.shape is None:
            raise DeadEndError
        shape = tuple(
            dim if isinstance(dim, int) else sizes.setdefault(dim, 2 + len(sizes))
            for dim in kind.shape
        )
        instance.inputs[value.name] = (kind.dtype, shape)
    for value in graph.initializers:
        instance.constants[value.name] = _data_of(value.constant)
    for node in graph:
        if node.op_type == "Constant" and node.outputs[0] is not None:
            instance.constants[node.outputs[0].name] = _data_of(node.outputs[0].constant)
            continue
        attributes: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            item = attribute.value
            attributes[name] = item.numpy() if isinstance(item, Tensor) else item
            if attribute.ref or not isinstance(
                attributes[name], (int, float, str, tuple, np.ndarray)
            ):
                raise DeadEndError
        read, made = (
            tuple("" if v is None else v.name for v in side) for side in (node.inputs, node.outputs)
        )
        instance.nodes.append(InstanceNode(node.op_type, node.domain, read, made, attributes))
    return instance


def _data_of(tensor: Tensor | None) -> Array:
    if tensor is None or tensor.dtype not in _DRAWN_TYPES:
        raise DeadEndError
    return np.asarray(tensor.numpy())


def changed_at_random(
    graph: Instance, rule: Rule, schemas: SchemaLibrary, opset: int, random: np.random.Generator
) -> Instance:
    """Return *graph* with one to three things changed."""
    changed = graph
    for _ in range(int(random.integers(1, 4))):
        match int(random.integers(6)):
            case 0 | 1:
                changed = _with_constant(changed, stated_numbers(rule), random)
            case 2:
                sizes = sorted({d for _, shape in changed.inputs.values() for d in shape})
                if sizes:
                    old = int(random.choice(sizes))
                    changed = resized(changed, old, int(random.integers(1, 7)))
            case 3:
                changed = _with_attribute(changed, rule, schemas, opset, random)
            case 4:
                changed = _with_narrow_input(changed, random)
            case _:
                changed = retyped(changed, _FLOATS, str(random.choice(_FLOATS)))
    return changed


def _with_constant(
    graph: Instance, wished: Sequence[float], random: np.random.Generator
) -> Instance:
    if not graph.constants:
        return graph
    name = str(random.choice(sorted(graph.constants)))
    old = graph.constants[name]
    if old.dtype.kind == "f":
        kind = str(random.choice(_KINDS))
        numbers = _numbers_of(kind, old.shape, random, wished)
    elif old.dtype.kind in "iu" and old.size:
        numbers = old.astype(np.float64).reshape(-1)
        numbers[int(random.integers(old.size))] += float(random.choice([-1, 1]))
        if old.min() >= 0:  # a place counted from the end is another kind of graph
            numbers = np.maximum(numbers, 0)
        numbers = numbers.reshape(old.shape)
    else:
        return graph
    return _with_data(graph, name, as_type(numbers, str(old.dtype)))


def _with_attribute(
    graph: Instance, rule: Rule, schemas: SchemaLibrary, opset: int, random: np.random.Generator
) -> Instance:
    at = int(random.integers(len(graph.nodes)))
    node = graph.nodes[at]
    schema = schemas.find(node.op_type, node.domain, opset)
    if schema is None or not schema.attributes:
        return graph
    name = str(random.choice(sorted(schema.attributes)))
    attributes = dict(node.attributes)
    old = attributes.get(name)
    if name in attributes and random.random() < _SELDOM:
        del attributes[name]
    elif isinstance(old, tuple) and old and isinstance(old[0], int):
        attributes[name] = tuple(int(n) for n in random.permutation(old))
    else:
        sampler = Sampler(VariantSketch({}, schemas), rule, schemas, opset, random, daring=1.0)
        value = sampler.attribute(node.op_type, name, schema.attributes[name], 4)
        if value is None:
            return graph
        attributes[name] = value
    return _with_node(graph, at, attributes=attributes)


def _with_narrow_input(graph: Instance, random: np.random.Generator) -> Instance:
    """Give one input, or constant, one element along an axis, so that it is broadcast."""
    names = [name for name, (_, shape) in graph.inputs.items() if shape]
    if not names:
        return graph
    name = str(random.choice(names))
    dtype, shape = graph.inputs[name]
    axis = int(random.integers(len(shape)))
    return _with_input(graph, name, dtype, (*shape[:axis], 1, *shape[axis + 1 :]))


def resized(graph: Instance, old: int, new: int) -> Instance:
    """Return *graph* with *new* wherever a size was *old*: of inputs, constants, and lists."""
    inputs = {
        name: (dtype, tuple(new if d == old else d for d in shape))
        for name, (dtype, shape) in graph.inputs.items()
    }
    constants: dict[str, Array] = {}
    for name, data in graph.constants.items():
        if data.dtype.kind in "iu" and data.ndim == 1:
            constants[name] = np.where(data == old, np.asarray(new, data.dtype), data)
            continue
        changed = data
        for axis, size in enumerate(data.shape):
            if size == old:
                changed = np.take(changed, np.arange(new) % old, axis=axis)
        constants[name] = changed
    return replace(graph, inputs=inputs, constants=constants)


def retyped(graph: Instance, old: Collection[str], new: str) -> Instance:
    """Return *graph* with the type *new* wherever inputs and constants are of *old* types."""
    inputs = {
        name: (new if kind in old else kind, shape) for name, (kind, shape) in graph.inputs.items()
    }
    constants = {
        name: as_type(data, new) if str(data.dtype) in old else data
        for name, data in graph.constants.items()
    }
    return replace(graph, inputs=inputs, constants=constants)


# Making a graph simpler, one step at a time: what is wrong with a rule shows best in a small graph.


def simpler(graph: Instance) -> Iterator[Instance]:
    """Yield graphs that are simpler than *graph* in one thing, those that save most first."""
    for kind in {kind: None for kind, _ in graph.inputs.values() if kind != "float32"}:
        yield retyped(graph, [kind], "float32")
    for name, data in graph.constants.items():
        if data.dtype.kind == "f":  # fed, if the rule allows it: a pattern may ask for a constant
            others = {other: kept for other, kept in graph.constants.items() if other != name}
            fed = {**graph.inputs, name: (str(data.dtype), data.shape)}
            yield replace(graph, inputs=fed, constants=others)
    yield from _without_axes(graph)
    shapes = [shape for _, shape in graph.inputs.values()]
    shapes += [data.shape for data in graph.constants.values()]
    sizes = sorted({d for shape in shapes for d in shape if d > 1}, reverse=True)
    for size in sizes:
        for new in range(1, min(size, 4)):
            yield resized(graph, size, new)
    for name, (dtype, shape) in graph.inputs.items():
        for axis, size in enumerate(shape):
            for new in range(1, min(size, 3)):
                yield _with_input(graph, name, dtype, (*shape[:axis], new, *shape[axis + 1 :]))
    yield from _plainer_attributes(graph)
    yield from _plainer_constants(graph)


def _without_axes(graph: Instance) -> Iterator[Instance]:
    """Drop the first axis of everything that has the most, or of one operand."""
    ranks = [len(shape) for _, shape in graph.inputs.values()]
    ranks += [data.ndim for data in graph.constants.values() if data.dtype.kind == "f"]
    most = max(ranks, default=0)
    if most > 0:
        inputs = {
            name: (kind, shape[1:] if len(shape) == most else shape)
            for name, (kind, shape) in graph.inputs.items()
        }
        longest = {
            name: data[0]
            for name, data in graph.constants.items()
            if data.ndim == most and len(data) and data.dtype.kind == "f"
        }
        yield replace(graph, inputs=inputs, constants=graph.constants | longest)
    for name, (kind, shape) in graph.inputs.items():
        if shape:
            yield _with_input(graph, name, kind, shape[1:])
            yield _with_input(graph, name, kind, shape[:-1])
    for name, data in graph.constants.items():
        if data.ndim and data.size and data.dtype.kind == "f":
            yield _with_data(graph, name, data[0])


def _plainer_attributes(graph: Instance) -> Iterator[Instance]:
    for at, node in enumerate(graph.nodes):
        for name, value in node.attributes.items():
            without = {key: kept for key, kept in node.attributes.items() if key != name}
            yield _with_node(graph, at, attributes=without)
            plainer: list[AttributeValue] = []
            if isinstance(value, tuple) and value and all(isinstance(n, int) for n in value):
                if name != "perm":
                    plainer = [(0,) * len(value), (1,) * len(value)]
                    low = [1 if isinstance(n, int) and n > 1 else n for n in value]
                    plainer.append(tuple(low))
            elif isinstance(value, int) and name not in {"to", "axis"}:
                plainer = [number for number in (0, 1) if number < value]
            elif isinstance(value, int) and name == "axis":
                plainer = [number for number in (0, 1, -1) if abs(number) < abs(value)]
            elif isinstance(value, float):
                plainer = [number for number in (1.0, 0.5) if len(repr(value)) > len(repr(number))]
            for simple in plainer:
                if simple != value:
                    yield _with_node(graph, at, attributes={**node.attributes, name: simple})


def _with_node(graph: Instance, at: int, **changes: Any) -> Instance:  # noqa: ANN401  # fields
    node = replace(graph.nodes[at], **changes)
    return replace(graph, nodes=[*graph.nodes[:at], node, *graph.nodes[at + 1 :]])


def _with_input(graph: Instance, name: str, dtype: str, shape: Shape) -> Instance:
    return replace(graph, inputs={**graph.inputs, name: (dtype, shape)})


def _with_data(graph: Instance, name: str, data: Array) -> Instance:
    return replace(graph, constants={**graph.constants, name: data})


def _plainer_constants(graph: Instance) -> Iterator[Instance]:
    for name, data in graph.constants.items():
        if data.dtype.kind != "f":
            continue
        options = [np.full(data.shape, number) for number in (0.0, 1.0, 2.0, -1.0)]
        options += [np.round(data), np.round(data, 1)]
        cost = _untidiness(data)
        for option in options:
            plain = as_type(option, str(data.dtype))
            if _untidiness(plain) < cost:
                yield _with_data(graph, name, plain)


def _untidiness(data: Array) -> int:
    numbers = data.reshape(-1).tolist()
    return sum(len(f"{number:g}") for number in numbers) + len(set(numbers))
