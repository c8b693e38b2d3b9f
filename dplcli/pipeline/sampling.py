"""Graphs drawn at random for a pattern, and for the examples of a rule, to try the rule on.

A node's operands are drawn when its turn comes, so that they fit what is known by then: onnx says
what each node makes of them. What a rule asks for in its conditions is drawn more often than other
things. Most of what is drawn is valid; the rest is thrown away by whoever asks onnx.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dplcli.catalog.sketch import Instance, InstanceNode
from dplcli.errors import VerificationError
from dplcli.ir import operators
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.scratch import build_model, node_types, whole_values
from dplcli.pipeline.drawing import (
    HALF,
    LARGEST_SIZE,
    OF_IMAGES,
    OTHER_TYPES,
    RARELY,
    SELDOM,
    DeadEndError,
    Drawing,
    as_type,
    label_of,
)
from dplcli.pipeline.operands import FORMS, drawn_by_form
from dplcli.pipeline.wishes import wishes_of
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dplcli.ir import Model, OpSchema
    from dplcli.language.pattern import AttributeValue
    from dplcli.pipeline.drawing import Array, Attributes, Shape


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


# Drawing a graph for a pattern.


RUN_LIMIT = Execution(timeout=5.0)
"""Small graphs run in no time; a kernel that does not end is stopped."""

_DATA = (2, 3, 4, 5, 6)
_IMAGE_OF_BLOCKS = [1, 36, 12, 6]
"""What blocks of 2 and of 3 cut evenly."""

_IMAGE_RANKS = (4, 4, 4, 3, 5)
_MOST_OUTPUTS = 8


class Sampler(Drawing):
    """Draws graphs for one variant of a pattern, node by node."""

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
        fed = (leaf.name for leaf in self.sketch.leaves if not leaf.is_constant)
        held = (made.constants[name].dtype.kind for name in fed if name in made.constants)
        if not made.inputs and "f" in held:
            raise DeadEndError  # nothing can be fed
        if made.nodes[-1].op_type == "Identity" and made.nodes[-1].outputs == (*outputs,):
            # what is returned and copied alone stays a copy
            made.nodes.append(InstanceNode("Transpose", "", (*outputs,), ("read",), {}))
            made.outputs = ["read"]
        return made

    def _draw(self, outputs: Sequence[str]) -> Instance:
        self.types, self.made = {}, Instance(outputs=list(outputs))
        self.values, self.usual, self.bound, self.rests = {}, {}, {}, {}
        self.wishes = wishes_of(self.rule, self.random, self.roots, self.twins)
        self.dtype = self.one_of(OTHER_TYPES) if self.dares(SELDOM) else "float32"
        self.rank = self._rank()
        self.dims = [int(d) for d in self.random.permutation(_DATA)]
        if self.dares(SELDOM):
            self.dims[int(self.random.integers(3))] = 1
        if self.numbers and self.dares(HALF):
            number = int(self.one_of(self.numbers)) + int(self.random.integers(2))
            if 0 < number <= LARGEST_SIZE:
                self.dims[int(self.random.integers(4))] = number
        if self.is_of_images:
            self.dims[: self.rank] = self.image()
        elif any(node.op_type in IN_BLOCKS for node in self.sketch.nodes):
            self.rank = 4
            self.dims[:4] = _IMAGE_OF_BLOCKS
        if self.dares(RARELY):
            self.dims[int(self.random.integers(3))] = 0
        for number, node in enumerate(self.sketch.nodes):
            self._draw_node(number, node)
        self.fitting.add(self.rank)
        return self.made

    def _draw_node(self, number: int, node: InstanceNode) -> None:
        """Draw the operands and attributes of a node, and keep what the pattern binds."""
        assumed = self.sketch.assumed.get(number, set()) if self.daring else ()
        stated = {k: v for k, v in node.attributes.items() if k not in assumed}
        captured = self.sketch.captured.get(number, {})
        rest = self.sketch.rests.get(number, "")
        stated |= self._wished_attributes(node, captured, rest, stated)
        daring = self.daring
        if rest in self.rests and not self.dares(RARELY):
            self.daring = 0.0  # the pattern has these attributes elsewhere: no others are drawn
        try:
            self._add(replace(node, attributes=stated), is_open=number in self.sketch.open_nodes)
        finally:
            self.daring = daring
        made = self.made.nodes[-1].attributes
        for attribute, name in captured.items():
            if attribute in made:
                self.bound.setdefault(name, made[attribute])
        if rest:
            named = {*node.attributes, *captured}
            self.rests.setdefault(rest, {n: a for n, a in made.items() if n not in named})

    def _wished_attributes(
        self, node: InstanceNode, captured: Mapping[str, str], rest: str, stated: Attributes
    ) -> Attributes:
        """Return attributes that conditions ask for, or that the pattern has elsewhere, too."""
        schema = self.schemas.find(node.op_type, node.domain, self.opset)
        wished: Attributes = dict(self.rests.get(rest, {}))
        if schema is None or self.dares(RARELY):
            return {}
        for attribute, kind in schema.attributes.items():
            bound = captured.get(attribute, "")
            label = f"{bound or node.outputs[0]}.{attribute}"
            wanted = self.wishes.number(label)
            if attribute in stated:
                continue
            if bound in self.bound:
                wished[attribute] = self.bound[bound]
            elif texts := self.wishes.texts.get(label):
                wished[attribute] = self.one_of(texts)
            elif wanted is not None and kind in {"int", "float"}:
                number = wanted.draw(self.random, is_whole=kind == "int")
                wished[attribute] = int(number) if kind == "int" else float(number)
        return wished

    def _rank(self) -> int:
        stated = [leaf.rank for leaf in self.sketch.leaves if leaf.rank is not None]
        names = {facet.name for facet in self.wishes.ranges}
        wished = [rank for name in names for rank in self.wishes.ranks(name) if rank]
        wished = sorted(wished)
        if self.is_of_images:
            asked = [rank for rank in (*stated, *wished) if rank in _IMAGE_RANKS]
            is_usual = not asked or self.dares(RARELY)
            return int(self.one_of(_IMAGE_RANKS if is_usual else asked))
        perms = (node.attributes.get("perm") for node in self.sketch.nodes)
        lengths = [len(perm) for perm in perms if isinstance(perm, tuple)]
        if lengths and not self.dares(RARELY):
            known = sorted(self.fitting) if self.random.random() < HALF else ()
            return int(self.one_of(known or (max(lengths), max(lengths), max(lengths) - 1)))
        if stated and not self.dares(RARELY):
            return max(stated)
        if wished and not self.dares(SELDOM):
            return int(self.one_of(wished))
        usual = (2, 3, 4)
        return int(self.one_of((*usual, 0, 1, 5) if self.dares(HALF) else usual))

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
        self.slots = {name: [(label_of(node), slot)] for slot, name in enumerate(args)}
        self._operands(node, args, attributes, schema)
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
        if 0 < room < _MOST_OUTPUTS and (attributes.get("training_mode") or self.dares(RARELY)):
            made += tuple(f"{made[0]}_{len(made) + more}" for more in range(room))
        drawn = replace(node, inputs=tuple(args), outputs=made, attributes=attributes)
        is_empty = 0 in self.dims
        data = self.made.constants | self.values
        types = node_types(drawn, self.types, data, self.opset, run_once, may_be_empty=is_empty)
        if types is None:
            raise DeadEndError
        self.types.update(types)
        self.made.nodes.append(drawn)
        self.values |= whole_values(drawn, self.types, data, self.opset)

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
        self, node: InstanceNode, args: list[str], attributes: Attributes, schema: OpSchema
    ) -> None:
        op_type = node.op_type
        own: Callable[[Sequence[str], Attributes], None] | None
        own = None if node.domain else getattr(self, f"_of_{op_type.lower()}", None)
        if form := FORMS.get(label_of(node)):
            drawn_by_form(form, self, args, attributes, len(node.outputs))
            if op_type in OF_IMAGES and not node.domain:
                self._window(op_type, attributes, len(self.types[args[0]][1]) - 2)
        elif node.domain:
            raise DeadEndError  # onnxruntime's own may end a process if their operands do not fit
        elif own is not None:
            own(args, attributes)
        elif op_type in operators.REDUCTIONS:
            self._reduction(args, attributes)
        elif op_type in operators.BROADCASTING:
            self._broadcast(args, op_type)
        self._further_operands(op_type, args, schema)

    def _reduction(self, args: Sequence[str], attributes: Attributes) -> None:
        rank = len(self.data(args[0]))
        count = 0 if self.dares(RARELY) else self.one_of((1, 2) if rank > 1 else (1,))
        if not count:
            attributes.setdefault("noop_with_empty_axes", int(self.random.integers(2)))
        axes = self.random.permutation(rank)[:count]
        axes = np.array([a - rank if self.dares(HALF) else a for a in axes], dtype=np.int64)
        if len(args) > 1:
            self.leaf(args[1], axes.shape, "int64", data=axes)
        elif rank and self.dares(HALF):
            attributes.setdefault("axes", tuple(int(axis) for axis in axes))

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
            if required or self.dares(0.6):
                value = self.attribute(op_type, name, kind, rank)
                if value is not None:
                    attributes[name] = value

    def attribute(  # noqa: PLR0911  # a case for each kind of name
        self, op_type: str, name: str, kind: str, rank: int
    ) -> AttributeValue | None:
        """Draw the value of an attribute; None to leave it out."""
        if name == "mode":
            return self.one_of(_MODES[op_type]) if op_type in _MODES else None
        if name in _TEXTS:
            return str(self.one_of(_TEXTS[name]))
        if name in SWITCHES:
            return int(self.random.integers(2))
        if name in _NUMBERS:
            number = self.one_of(_NUMBERS[name])
            return float(number) if kind == "float" else int(number)
        if name == "axis":
            return int(self.random.integers(-rank, rank)) if rank else 0
        if name in _FACTORS and kind == "float":
            wished = [float(n) for n in self.numbers]
            return float(self.one_of([0.25, 1.5, -0.5, 2.0, *wished]))
        if name == "to":
            wished = [int(n) for n in self.numbers if int(n) in _CASTS]
            return int(self.one_of([*_CASTS[:3], *_CASTS, *wished]))
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
        wished = (self.one_of(self.wishes.texts[n]) for n in names if n in self.wishes.texts)
        return next((str(d) for d in (*stated, *wished) if d), self.dtype)

    def _where(self, args: Sequence[str]) -> None:
        types = [self.types[name] for name in args[1:] if name in self.types]
        dtype = types[0][0] if types else self._leaf_type(args[1:])
        base = types[0][1] if types else (self.shape(args[0]) or tuple(self.dims[: self.rank]))
        for name in args[1:]:  # each of the three may be the widest
            is_whole = name == args[1] and not self.dares(SELDOM)
            self.leaf(name, base if is_whole else self.beside(base), dtype)
        self.leaf(args[0], self.beside(base), "bool")

    def _ints(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.random.integers(low, high, count))

    def _window(self, op_type: str, attributes: Attributes, spatial: int) -> None:
        if spatial < 1:
            raise DeadEndError
        if op_type in operators.POOLS:
            attributes.setdefault("kernel_shape", self._ints(spatial, 1, 4))
        if self.dares(HALF):
            attributes.setdefault("strides", self._ints(spatial, 1, 3))
        if self.dares(SELDOM):
            attributes.setdefault("dilations", self._ints(spatial, 1, 3))
        if self.dares(0.7) and attributes.get("auto_pad", "NOTSET") == "NOTSET":
            attributes.setdefault("pads", self._ints(2 * spatial, 0, 2))
        if "pads" in attributes:
            attributes.setdefault("auto_pad", "NOTSET")
        strides = attributes.get("strides")
        if isinstance(strides, tuple) and self.dares(RARELY):  # which a ConvTranspose alone has
            attributes.setdefault("output_padding", self._ints(spatial, 0, max(map(int, strides))))

    def _of_transpose(self, args: Sequence[str], attributes: Attributes) -> None:
        perm = attributes.get("perm")
        shape = self.data(args[0], len(perm) if isinstance(perm, tuple) else None)
        if isinstance(perm, tuple) and len(perm) != len(shape):  # onnx says nothing of it
            raise DeadEndError
        made = self.sketch.nodes[len(self.made.nodes)].outputs[0]
        if perm is None and made in self.wishes.turned and not self.dares(RARELY):
            rank = len(shape)
            attributes["perm"] = (*range(rank - 2), *range(rank - 1, max(rank - 3, -1), -1))
        elif perm is None and not (shape and self.random.random() < RARELY):
            others = [n.attributes.get("perm") for n in self.made.nodes if n.op_type == "Transpose"]
            perms = [p for p in others if isinstance(p, tuple) and len(p) == len(shape)]
            order = self.random.permutation(len(shape))
            attributes["perm"] = tuple(int(axis) for axis in order)
            if perms and self.random.random() < HALF:
                back = tuple(int(a) for a in np.argsort(perms[-1]))
                attributes["perm"] = self.one_of((back, back, perms[-1]))

    def _repeats(self, args: Sequence[str], attributes: Attributes) -> bool:
        """Tell whether a place may come twice: nobody says which of two updates would stay."""
        updates = args[2:]
        if updates and self.dares(HALF):
            attributes.setdefault("reduction", str(self.one_of(_TEXTS["reduction"])))
        return not updates or attributes.get("reduction", "none") != "none"

    def _of_gathernd(self, args: Sequence[str], attributes: Attributes) -> None:
        shape = self.ranked(args[0])
        alike = attributes.get("batch_dims", 0)
        if "batch_dims" not in attributes and len(args) == 2 and self.dares(HALF):  # noqa: PLR2004  # no Scatter
            alike = attributes["batch_dims"] = int(self.random.integers(len(shape)))
        if not isinstance(alike, int) or alike >= len(shape):
            raise DeadEndError
        depth = int(self.random.integers(1, len(shape) - alike + 1))
        form = shape[:alike]
        if not alike or self.dares(HALF):  # else one place for each of the batch
            form = (*form, min(2, shape[alike]))
        places = [self.random.integers(0, size, form) for size in shape[alike : alike + depth]]
        if not self._repeats(args, attributes):
            places[0] = np.broadcast_to(self.random.permutation(shape[alike])[: form[-1]], form)
        self.leaf(args[1], (*form, depth), "int64", data=np.stack(places, axis=-1))
        for updates in args[2:]:
            self.leaf(updates, (*form, *shape[depth:]), self.types[args[0]][0])

    _of_scatternd = _of_gathernd

    def _of_quantizelinear(self, args: Sequence[str], attributes: Attributes) -> None:
        data = self.data(args[0])
        kind = self.types[args[0]][0]
        kind = kind if kind.startswith("float") else "float32"
        self._scaled(args, attributes, data, kind, str(self.one_of(("uint8", "int8"))))

    def _of_dequantizelinear(self, args: Sequence[str], attributes: Attributes) -> None:
        data = self.leaf(args[0], self.dims[: self.rank], str(self.one_of(("uint8", "int8"))))
        self._scaled(args, attributes, data, "float32", self.types[args[0]][0])

    def _scaled(
        self, args: Sequence[str], attributes: Attributes, data: Shape, scale: str, steps: str
    ) -> None:
        """Draw the scale and the zero point: one number, or one per place along an axis."""
        form: Shape = ()
        if data and self.dares(SELDOM):
            axis = int(self.random.integers(len(data)))
            attributes.setdefault("axis", axis)
            form = (data[axis],)
        self.leaf(args[1], form, scale, positive=True)
        if len(args) > 2:  # noqa: PLR2004  # the zero point
            self.leaf(args[2], form, steps, data=self.random.integers(0, 9, form))

    def _of_einsum(self, args: Sequence[str], attributes: Attributes) -> None:
        usual = _EQUATIONS.get(len(args), ())
        if "equation" not in attributes and not usual:
            raise DeadEndError
        equation = str(attributes.setdefault("equation", self.one_of(usual) if usual else ""))
        terms = equation.replace(" ", "").partition("->")[0].split(",")
        letters = sorted(filter(str.isalpha, set(equation)))
        sizes = {letter: (*self.dims, *self.dims)[at % 10] for at, letter in enumerate(letters)}
        for name, term in zip(args, terms, strict=False):
            head = self.dims[: self.rank - len(term)] if "..." in term else []
            self.leaf(name, [*head, *(sizes[letter] for letter in term if letter in sizes)])

    def _of_resize(self, args: Sequence[str], attributes: Attributes) -> None:
        self.rank = 4
        shape = self.leaf(args[0], self.image())
        flat = [float(self.one_of((1.0, 2.0, 3.0, 0.5, 0.25, 1.5, 1.3))) for _ in shape[2:]]
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
            attributes["mode"] = str(self.one_of(("nearest", "linear")))


def run_once(content: bytes, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model in a process of onnxruntime's own; return nothing if it does not run."""
    from dplcli.verify.run import Runner  # noqa: PLC0415  # loads onnxruntime, elsewhere

    source = ModelSource(Path("made_up.onnx"), content, execution=RUN_LIMIT)
    try:
        outputs = Runner(source, "disable").run(dict(feeds))
    except (RunError, VerificationError):
        return {}
    return {name: leaves[0].data for name, leaves in outputs.items() if len(leaves) == 1}


def model_of(graph: Instance, opset: int) -> Model | None:
    """Make a model of a made-up graph; None if operators and shapes do not fit together."""
    return build_model(graph, opset, run_once)


_EQUATIONS = {
    1: ("ij->ji", "ij->i", "...ij->...ji"),
    2: (
        *("ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij,ij->ij", "ij,j->i", "i,i->"),
        *("ibnd,jbnd->bnij", "...ij,...jk->...ik", "bij,jk->bik", "bij,kj->bik"),
    ),
    3: ("ij,jk,kl->il",),
}
IN_BLOCKS = frozenset({"DepthToSpace", "SpaceToDepth"})
