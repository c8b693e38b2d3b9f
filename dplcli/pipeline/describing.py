"""Write the rule for places of one kind, at which the same was done.

What is the same at all of them and says what is computed is kept; what differs is captured.
Constants and attributes of the new nodes are looked for among a few expressions over what the
pattern binds. A number that was read off a shape brings that shape as a condition.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import combinations, islice, permutations
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from dplcli.analysis.numbering import is_commutative
from dplcli.catalog.lint import lint
from dplcli.dpl.conditions import Condition, Expression, UnknownFactError
from dplcli.dpl.pattern import OpName
from dplcli.dpl.replacement import (
    RewriteRule,
    check_attributes,
    parse_replacement,
    possible_attributes,
)
from dplcli.dpl.text import captures_of, literal, read_pattern
from dplcli.errors import PatternSyntaxError
from dplcli.ir.operators import (
    AXES,
    DTYPE_ATTRIBUTES,
    FIRST_OPSET,
    MOVED,
    SIZED_BY,
    default_of,
    parameter_of,
)
from dplcli.ir.types import DTYPE_NAMES, Tensor
from dplcli.passes import learn
from dplcli.passes.learn import PatternNames, leaf_word, node_word, shortest
from dplcli.passes.rewriter import reachable
from dplcli.pipeline.changes import (
    ChangedPlace,
    NoRuleError,
    Operand,
    Slot,
    attributes_of,
    stated_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.rule import RewriteEscapePolicy
    from dplcli.ir import Node, Value
    from dplcli.onnx_io import OnnxSchemas

    Array: TypeAlias = NDArray[Any]


_MOST_WRITTEN = 16
"""Most elements of a constant that a rule writes down."""

_NEAR = 5e-6
"""How near a number that is not plain must be to the one learned from."""

_ROUNDING = 1e-4
"""How far a constant may be from an expression: tools compute in other types and orders."""

_WAIVED = frozenset({"momentum", "round_mode", "saturate"})
"""Attributes that are not named at their default: nothing else in a model for use has them."""

_IMPLIED = frozenset({"hidden_size", "kernel_shape"})
"""Attributes without a default that say again what the shape of a weight says."""

_MOST_GUESSES = 3000
"""How many expressions are tried for one constant or attribute."""


_NO_SIZES = frozenset({"dilations", "pads", "repeats", "strides"})
"""Numbers that say how far steps go, or how much is added to a size."""

_CUTTING = {"Slice": "axes", "Split": "axis"}
"""Operators with sizes of their first input, and what their axes are called."""

_ENDLESS = 2**31 - 1
"""Exporters end a Slice here, or beyond, if it ends with the axis."""

_OF_ONE = (
    *("transpose({})", "squeeze({})", "-{}", "1 / {}", "sqrt({})", "rsqrt({})", "exp({})"),
    *(f"unsqueeze({{}}, {axes})" for axes in ([0], [1], [-1], [0, 1], [1, 2], [0, 1, 2])),
)
"""What tools make of one constant, the likely things first."""


class _Guess(NamedTuple):
    """An expression that may be what was computed.

    Attributes:
        text: The expression.
        constants: The operands whose data it needs.
        attributes: The attributes, by node and name, that it needs.
        is_sized: Whether sizes or axes of them are written in it.
    """

    text: str
    constants: tuple[Operand, ...] = ()
    attributes: tuple[tuple[int, str], ...] = ()
    is_sized: bool = False


class RuleWriter:
    """Writes the rule of one kind of place.

    Args:
        places: The places.
        schemas: The operators.
        general: Whether attributes are captured where the new nodes can be described by them,
            rather than kept.
        carries: Whether new nodes take over the attributes of old ones, also such as no place has.

    Raises:
        NoRuleError: What the new nodes have cannot be described.
    """

    def __init__(
        self, places: Sequence[ChangedPlace], schemas: OnnxSchemas, *, general: bool, carries: bool
    ) -> None:
        self.places = places
        self.first = places[0]
        self.schemas = schemas
        self.general = general
        self.carries = carries
        self.names = PatternNames(())
        self.node_names, self.leaf_names = names_at(self.first, self.names)
        self.attributes = _in_common([list(map(attributes_of, p.nodes)) for p in places])
        self.made_attributes = _in_common([list(map(stated_attributes, p.made)) for p in places])
        self.captured: dict[tuple[int, str], str] = {}
        self.data: set[int] = set()
        self.number_names: dict[Slot, str] = {}
        self.carried: dict[int, tuple[int, str]] = {}
        self.where: list[str] = []
        self.stated = self._stated()

    def _stated(self) -> set[int]:
        """Return the whole numbers that the old nodes state."""
        return _whole(
            [known for values in self.attributes for known, *_ in values.values()],
            [*self.first.numbers.values()],
            [small_data(leaf.constant) for leaf in self.first.leaves if leaf.constant is not None],
        )

    # -- what the expressions may use --------------------------------------------------------------

    def name_of(self, operand: Operand) -> str:
        """Return the name of a value in the pattern, and give it one if it has none."""
        kind, number, *rest = operand
        if kind == "leaf":
            return self.leaf_names[number]
        if kind == "node":
            if rest[0]:
                raise NoRuleError(f"the new nodes read output {rest[0]} of an old node")
            return self.node_names[number]
        key = number, rest[0]
        if key not in self.number_names:
            word = leaf_word(self.first.nodes[number], rest[0])
            self.number_names[key] = self.names.new(word)
        return self.number_names[key]

    def capture(self, number: int, attribute: str) -> str:
        """Return the name that an attribute of the pattern is captured by."""
        key = number, attribute
        if key not in self.captured:
            self.captured[key] = self.names.new(attribute)
        return self.captured[key]

    def fitting(
        self, guesses: Iterator[_Guess], fits: Callable[[object, int], bool]
    ) -> _Guess | None:
        """Return the first guess that gives what it should at every place."""
        for guess in islice(guesses, _MOST_GUESSES):
            captures = {self.captured[key]: key[1] for key in guess.attributes}
            try:
                expression = Expression(guess.text, "replacement", captures)
            except PatternSyntaxError:
                continue
            try:
                if all(
                    fits(expression.value(self._bound(place, guess)), number)
                    for number, place in enumerate(self.places)
                ):
                    return guess
            except (UnknownFactError, ValueError, TypeError):
                continue
        return None

    def _bound(self, place: ChangedPlace, guess: _Guess) -> dict[str, Value]:
        bound = {self.name_of(operand): place.value(operand) for operand in guess.constants}
        for key in guess.attributes:
            bound[self.captured[key]] = place.value(("node", key[0], 0))
        return bound

    def take(self, guess: _Guess) -> str:
        """Use a guess: what it needs becomes part of the pattern."""
        leaves = [operand[1] for operand in guess.constants if operand[0] == "leaf"]
        self.data |= {*leaves}
        for leaf in leaves if guess.is_sized else ():
            shape = self._shape(leaf)
            is_whole = guess.text.startswith("reshape")
            self._demand(leaf, range(len(shape)) if shape and is_whole else ())
        return guess.text

    # -- attributes of the new nodes ---------------------------------------------------------------

    def pair_nodes(self) -> None:
        """Choose for each new node an old one of its operator, whose attributes it keeps."""
        taken: set[int] = set()
        for made, node in enumerate(self.first.made if self.carries else ()):
            alike = [
                (len(self._same_attributes(old, made)), -old)
                for old, other in enumerate(self.first.nodes)
                if old not in taken and other.qualified_op == node.qualified_op
            ]
            if not alike or not self.attributes[-max(alike)[1]]:
                continue
            old = -max(alike)[1]
            taken.add(old)
            self.carried[made] = old, ""

    def _same_attributes(self, old: int, made: int) -> set[str]:
        """Return the attributes that an old node and a new one have in common at every place."""
        values = [attributes_of(place.made[made]) for place in self.places]
        return {
            name
            for name, known in self.attributes[old].items()
            if all(name in v and v[name] == k for v, k in zip(values, known, strict=True))
        }

    def attribute_texts(self, made: int) -> list[str]:
        """Write the attributes of a new node."""
        texts, same = [], set()
        if made in self.carried:
            old, _ = self.carried[made]
            same = self._same_attributes(old, made)
            if same:
                word = self.names.new("attrs")
                self.carried[made] = old, word
                texts.append(f"**{word}")
            else:
                del self.carried[made]
        for name, values in self.made_attributes[made].items():
            if name not in same:
                texts.append(f"{name}={self._attribute(made, name, values)}")
        return texts

    def _attribute(self, made: int, name: str, wanted: Sequence[object]) -> str:
        carried = {old for old, _ in self.carried.values()}
        keys = [key for key in self._captures() if key[0] not in carried]
        guess = None
        is_same = all(value == wanted[0] for value in wanted)
        if self.general or not is_same:
            guess = self.fitting(
                self._attribute_guesses(name, keys, is_same=is_same),
                lambda value, number: _is_value(value, wanted[number]),
            )
        if guess is not None:
            return self.take(guess)
        if not is_same:
            raise NoRuleError(f"nothing says what the attribute {name} of the new node should be")
        self._bring_shapes(self.first.made[made], self.first.made_args[made], name, wanted[0])
        return _literal(wanted[0])

    def _captures(self) -> list[tuple[int, str]]:
        return [(number, name) for number, known in enumerate(self.attributes) for name in known]

    def _attribute_guesses(
        self, name: str, keys: Sequence[tuple[int, str]], *, is_same: bool
    ) -> Iterator[_Guess]:
        for number, slot in self.first.numbers:
            if not self._is_kept(number, slot):
                operand = ("number", number, slot)
                yield _Guess(f"{self.name_of(operand)}.value", (operand,))
        alike = [key for key in keys if key[1] == name]
        for key in alike if is_same else sorted(keys, key=lambda key: key[1] != name):
            yield _Guess(self.capture(*key), (), (key,))
        if name == "perm":
            for one, other in permutations(alike, 2):
                p, q = self.capture(*one), self.capture(*other)
                yield _Guess(f"[{p}[i] for i in {q}]", (), (one, other))
            for key in alike:
                yield _Guess(f"inverse({self.capture(*key)})", (), (key,))

    # -- constants of the new nodes ----------------------------------------------------------------

    def constant_text(self, slot: Slot) -> str:
        """Write a constant that a new node reads, or that replaces an output."""
        tensors = [place.constants[slot] for place in self.places]
        arrays = [tensor.numpy() for tensor in tensors]
        leaf = next((n for n in range(len(self.leaf_names)) if self._is_leaf(n, tensors)), None)
        if leaf is not None:
            return self.leaf_names[leaf]
        is_same = all(
            tensor.dtype == tensors[0].dtype
            and np.array_equal(array, arrays[0], equal_nan=array.dtype.kind == "f")
            for tensor, array in zip(tensors, arrays, strict=True)
        )
        is_number = arrays[0].dtype.kind in "iuf"
        is_short = is_same and is_number and slot[0] >= 0 and arrays[0].ndim <= 1
        is_short = is_short and arrays[0].size <= _MOST_WRITTEN
        if is_short and (arrays[0].size == 1 or not self.general):
            return self._written(slot, arrays[0])
        guess = self.fitting(
            (g for g in self._constant_guesses(tensors) if self._may_make(g, tensors[0])),
            lambda value, number: _is_array(value, arrays[number]),
        )
        if guess is not None:
            return f"const({self.take(guess)})"
        if is_short:
            return self._written(slot, arrays[0])
        what = f"a constant of {tensors[0].dtype} {list(tensors[0].shape)}"
        raise NoRuleError(f"no expression was found for {what} of the new nodes")

    def _written(self, slot: Slot, array: Array) -> str:
        """Write a short constant down; its type is that of an operand beside it."""
        beside = [v for v in self.first.made[slot[0]].inputs if v is not None and not v.is_constant]
        dtypes = {known.dtype for known in (v.known_type() for v in beside) if known is not None}
        if array.dtype.kind in "iu" and array.dtype != np.int64 and array.dtype.name not in dtypes:
            raise NoRuleError(f"a rule cannot write a constant of {array.dtype} beside other types")
        node, args = self.first.made[slot[0]], self.first.made_args[slot[0]]
        self._bring_shapes(node, args, leaf_word(node, slot[1]), array, slot[1])

        def written(item: Any) -> str:  # noqa: ANN401  # nested lists of numbers
            if isinstance(item, list):
                return f"[{', '.join(map(written, item))}]"
            is_float = array.dtype.kind == "f"
            return _number_text(shortest(array.dtype.type(item))) if is_float else repr(item)

        return written(array.tolist())

    def _may_make(self, guess: _Guess, wanted: Tensor) -> bool:
        """Tell whether a guess can make so many elements, before it is parsed and computed."""
        sizes = [self._size(operand) for operand in guess.constants]
        if guess.text.startswith("concat("):
            return sum(sizes) == wanted.size
        return max(sizes) <= wanted.size <= math.prod(sizes)

    def _is_leaf(self, number: int, tensors: Sequence[Tensor]) -> bool:
        leaves = [place.leaves[number].constant for place in self.places]
        return all(
            leaf is not None
            and (leaf.dtype, leaf.shape) == (tensor.dtype, tensor.shape)
            and np.array_equal(leaf.numpy(), tensor.numpy())
            for leaf, tensor in zip(leaves, tensors, strict=True)
        )

    def _constant_guesses(self, tensors: Sequence[Tensor]) -> Iterator[_Guess]:
        """Yield what tools fold: constants added, scaled, turned, joined, normalised."""
        operands: list[Operand] = [
            ("leaf", n) for n, leaf in enumerate(self.first.leaves) if leaf.is_constant
        ]
        operands += [("number", *slot) for slot in self.first.numbers]
        data = {operand: f"{self.name_of(operand)}.value" for operand in operands}
        yield from (_Guess(text, (operand,)) for operand, text in data.items())
        shape = list(tensors[0].shape)
        for operand, text in data.items():
            yield _Guess(f"cast({text}, {tensors[0].dtype!r})", (operand,))
            for key in self._captures():
                if key[1] == "perm":
                    yield _Guess(f"transpose({text}, {self.capture(*key)})", (operand,), (key,))
            for function in _OF_ONE:
                is_sized = function.startswith("unsqueeze")
                yield _Guess(function.format(text), (operand,), is_sized=is_sized)
            if all(tensor.shape == tensors[0].shape for tensor in tensors):
                yield _Guess(f"reshape({text}, {shape})", (operand,), is_sized=True)
        yield from self._pair_guesses(data)
        yield from self._normalised(data)
        large = [operand for operand in operands if self._size(operand) > 1]
        for count in (2, 3, 4):
            for parts in combinations(large, count):
                for axis in (0, -1):
                    texts = ", ".join(data[part] for part in parts)
                    yield _Guess(f"concat([{texts}], {axis})", parts)

    def _size(self, operand: Operand) -> int:
        tensor = self.first.value(operand).constant
        return 0 if tensor is None else tensor.size

    @staticmethod
    def _pair_guesses(data: Mapping[Operand, str]) -> Iterator[_Guess]:
        for (one, a), (other, b) in permutations(data.items(), 2):
            for sign in "*+-/":
                yield _Guess(f"{a} {sign} {b}", (one, other))
            rank = f"{a.removesuffix('.value')}.rank"
            for axis in (0, 1):
                for sign in "*/":
                    yield _Guess(f"{a} {sign} along({b}, {axis}, {rank})", (one, other))
            if one[0] == "leaf":
                yield _Guess(f"{a} + reshape({b}, [-1])", (one, other))

    def _normalised(self, data: Mapping[Operand, str]) -> Iterator[_Guess]:
        """Yield what becomes of weights and biases that a batch normalisation is folded into."""
        for number, node in enumerate(self.first.nodes):
            own = [operand for operand in self.first.args[number][1:] if operand in data]
            if node.qualified_op != "BatchNormalization" or len(own) < 4:  # noqa: PLR2004
                continue
            scale, shift, mean, var = (data[operand] for operand in own)
            key = (number, "epsilon")
            factor = f"({scale} / sqrt({var} + {self.capture(*key)}))"
            yield _Guess(f"{shift} - {mean} * {factor}", tuple(own), (key,))
            for other, text in data.items():
                name, uses = text.removesuffix(".value"), (other, *own)
                for axis in (0, 1):
                    moved = f"along({factor[1:-1]}, {axis}, {name}.rank)"
                    yield _Guess(f"{text} * {moved}", uses, (key,))
                yield _Guess(f"({text} - {mean}) * {factor} + {shift}", uses, (key,))

    # -- the shapes that numbers were read off -----------------------------------------------------

    def _bring_shapes(
        self, node: Node, args: Sequence[Operand], name: str, value: object, slot: int | None = None
    ) -> None:
        """Demand the shapes that numbers of a rule were read off.

        Sizes of a result are those of an axis that is cut, or the sizes equal to them. Where one is
        equal to none it was made of several, and all are demanded, as they are for a whole shape.
        An attribute may be a size, too, such as that of a window over all; and an axis that only a
        new node states was counted in a rank.

        Args:
            node: A node of the first place.
            args: What it reads.
            name: What the numbers are called.
            value: The numbers.
            slot: The input that they are; None for an attribute.

        Raises:
            NoRuleError: The numbers are of other axes at other places.
        """
        is_new = node in self.first.made
        numbers = _whole(value) - (self.stated if is_new and slot is None else set())
        sized = () if node.domain else SIZED_BY.get(node.op_type, ())
        if name in AXES:
            for leaf in self._leaves_above(args) if is_new and numbers - self.stated else ():
                if not self.first.leaves[leaf].is_constant:
                    self._demand(leaf, ())
            return
        is_size = slot in sized
        if name in DTYPE_ATTRIBUTES | _NO_SIZES or not (is_size or slot is None):
            return
        numbers = {number for number in numbers if 1 < number < _ENDLESS}
        if is_size and numbers and node.op_type in _CUTTING and args[0][0] == "leaf":
            self._demand(args[0][1], self._axes_cut(node), is_ranked=False)
            return
        others = [arg for number, arg in enumerate(args) if number != slot]
        shapes = {leaf: self._shape(leaf) or [] for leaf in self._leaves_above(others)}
        missing = numbers - {size for shape in shapes.values() for size in shape if size}
        is_whole = name == "shape" and _whole(value).isdisjoint({0, -1})
        every = is_size and (missing or is_whole)
        for leaf, shape in shapes.items():
            axes = [axis for axis, size in enumerate(shape) if every or size in numbers]
            if axes and (is_size or not self.first.leaves[leaf].is_constant):
                self._demand(leaf, axes)

    def _demand(self, leaf: int, axes: Iterable[int], *, is_ranked: bool = True) -> None:
        """Demand sizes of a leaf, and its rank unless the axes are counted as those of a node."""
        shape = self._shape(leaf)
        if shape is not None:
            name = self.leaf_names[leaf]
            texts = [f"{name}.rank == {len(shape)}"] if is_ranked else []
            texts += [f"{name}.shape[{a}] == {shape[a]}" for a in axes if shape[a] is not None]
            self.where += [text for text in texts if text not in self.where]

    def _shape(self, leaf: int) -> list[int | None] | None:
        """Return the sizes of a leaf, None where places differ or nobody knows them."""
        types = [place.leaves[leaf].known_type() for place in self.places]
        shapes = [known.shape for known in types if known is not None and known.shape is not None]
        if len(shapes) < len(types) or len({*map(len, shapes)}) > 1:
            return None
        return [
            sizes[0] if isinstance(sizes[0], int) and len({*sizes}) == 1 else None
            for sizes in zip(*shapes, strict=True)
        ]

    def _leaves_above(self, operands: Iterable[Operand]) -> list[int]:
        """Return the leaves that values are made of, but for those that are sizes themselves."""
        args = {"node": self.first.args, "new": self.first.made_args}

        def above(operand: Operand) -> Iterable[Operand]:
            return args[operand[0]][operand[1]] if operand[0] in args else ()

        leaves = sorted(item[1] for item in reachable(operands, above) if item[0] == "leaf")
        read = [(self.first.nodes[n], slot) for n, slot in self.first.readers]
        return [n for n in leaves if read[n][1] not in SIZED_BY.get(read[n][0].op_type, ())]

    def _axes_cut(self, node: Node) -> tuple[int, ...]:
        """Return the axes of its data that a node cuts."""
        is_new = node in self.first.made
        number = (self.first.made if is_new else self.first.nodes).index(node)
        axes = {_axes_of((p.made if is_new else p.nodes)[number]) for p in self.places}
        if len(axes) > 1:
            raise NoRuleError(f"the numbers of {node.op_type} are of other axes at other places")
        return axes.pop()

    # -- the texts ---------------------------------------------------------------------------------

    def replacement(self) -> str:
        """Write the replacement; what it needs of the pattern is known afterwards."""
        self.pair_nodes()
        uses = Counter(arg for args in self.first.made_args for arg in args)
        uses.update(new for _, new in self.first.outputs)
        lines: list[str] = []
        texts: dict[int, str] = {}

        def text_of(operand: Operand) -> str:
            match operand:
                case ("new", number, index):
                    is_single = len(self.first.made[number].outputs) == 1
                    return texts[number] if is_single else f"{texts[number]}[{index}]"
                case ("const", *slot):
                    return self.constant_text((slot[0], slot[1]))
                case ("none",):
                    return "None"
                case _:
                    return self.name_of(operand)

        for number, (node, args) in enumerate(
            zip(self.first.made, self.first.made_args, strict=True)
        ):
            operands = [*map(text_of, args), *self.attribute_texts(number)]
            text = f"{_operator(node)}({', '.join(operands)})"
            is_last = number == len(self.first.made) - 1 and len(self.first.outputs) == 1
            is_short = is_last or len(text) < _LONG
            if len(node.outputs) == 1 and uses["new", number, 0] == 1 and is_short:
                texts[number] = text
            else:
                texts[number] = self.names.new(f"new_{node_word(node)}")
                lines.append(f"{texts[number]} = {text}")
        lines.append(", ".join(text_of(new) for _, new in self.first.outputs))
        return "\n".join(lines) + "\n"

    def pattern(self) -> str:
        """Write the pattern."""
        lines = []
        for number, node in enumerate(self.first.nodes):
            operands = self._operands(number)
            operands += self._named(number, node, operands)
            lines.append(f"{self.node_names[number]} = {_operator(node)}({', '.join(operands)})")
        outputs = [self._text_of(old) for old, _ in self.first.outputs]
        return "\n".join([*lines, ", ".join(outputs)]) + "\n"

    def _text_of(self, operand: Operand) -> str:
        index = f"[{operand[2]}]" if operand[2] else ""
        return f"{self.node_names[operand[1]]}{index}"

    def _operands(self, number: int) -> list[str]:
        texts: list[str] = []
        named: list[str] = []
        args = self.first.args[number]
        for slot in range(len(args) - 1, -1, -1):
            literal = self._moved(number, slot) if not texts else ""
            if literal:
                named.insert(0, literal)
            else:
                texts.insert(0, self._operand(number, slot))
        return texts + named

    def _moved(self, number: int, slot: int) -> str:
        """Write an input as the attribute that it was, if it is a constant to keep; else ""."""
        node, operand = self.first.nodes[number], self.first.args[number][slot]
        moved = {} if node.domain else {m.slot: m.attribute for m in MOVED.get(node.op_type, ())}
        if slot not in moved or operand[0] != "leaf" or is_commutative(node):
            return ""
        kept = self._kept_data(operand[1])
        if kept is None or kept.ndim > 1:
            return ""
        self._bring_shapes(node, self.first.args[number], moved[slot], kept, slot)
        return f"{moved[slot]}={literal(kept.tolist())}"

    def _kept_data(self, leaf: int) -> Array | None:
        """Return what a constant is at every place, if the new nodes do not read it."""
        if leaf in self.data or self.leaf_names[leaf] in self.used:
            return None
        tensors = [place.leaves[leaf].constant for place in self.places]
        if tensors[0] is None or tensors[0].size > _MOST_WRITTEN:
            return None
        arrays = [None if tensor is None else tensor.numpy() for tensor in tensors]
        data = arrays[0]
        if data is None or data.dtype.kind not in "iufb":
            return None
        same = all(array is not None and np.array_equal(array, data) for array in arrays)
        return data if same else None

    def _operand(self, reader: int, place: int) -> str:
        operand = self.first.args[reader][place]
        match operand:
            case ("none",):
                return "None"
            case ("node", *_):
                return self._text_of(operand)
            case ("leaf", number):
                name = self.leaf_names[number]
                kept = self._kept_data(number)
                if kept is not None:
                    node, args = self.first.nodes[reader], self.first.args[reader]
                    self._bring_shapes(node, args, leaf_word(node, place), kept, place)
                    said = f"list({name}.value)" if kept.ndim else f"{name}.value"
                    condition = f"{said} == {literal(kept.tolist())}"
                    if kept.ndim < 2 and condition not in self.where:  # noqa: PLR2004
                        self.where.append(condition)
                return f"const({name})" if kept is not None or number in self.data else name
            case _:
                _, number, slot = operand
                values = [place.numbers[number, slot] for place in self.places]
                name = self.number_names.get((number, slot), "")
                if name not in self.used or not name:
                    if self._is_kept(number, slot):
                        return literal(values[0])
                    name = self.name_of(operand)
                    condition = f"is_close({name}, {literal(values[0])}, {_NEAR})"
                    if all(value == values[0] for value in values) and condition not in self.where:
                        self.where.append(condition)
                return f"const({name})"

    def _is_kept(self, number: int, slot: int) -> bool:
        """Tell whether a number is plain and the same at every place, so that it is written."""
        values = [place.numbers[number, slot] for place in self.places]
        same = all(value == values[0] for value in values)
        return same and (isinstance(values[0], int) or learn.is_plain(values[0]))

    def _named(self, number: int, node: Node, operands: Sequence[str]) -> list[str]:
        """Write the attributes of an old node: those carried, captured, and kept."""
        carrier = next((m for m, (old, _) in self.carried.items() if old == number), None)
        same = set() if carrier is None else self._same_attributes(number, carrier)
        texts = []
        named = set()
        for name, values in self.attributes[number].items():
            key = (number, name)
            is_used = key in self.captured and self.captured[key] in self.used
            if (name in same and not is_used) or (name in _WAIVED and not is_used):
                continue
            named.add(name)
            if is_used or any(value != values[0] for value in values):
                texts.append(f"{name}={self.capture(*key)}")
            else:
                self._bring_shapes(node, self.first.args[number], name, values[0])
                texts.append(f"{name}={_literal(values[0], name)}")
        op = OpName(node.op_type, node.domain)
        others = possible_attributes(op, (None, None), self.schemas).keys() - named
        if carrier is None:
            schemas = list(self.schemas.versions(node.op_type, node.domain))
            newest = max(schemas, key=lambda schema: schema.since).defaults if schemas else {}
            newer = (others & learn.KEPT_ATTRIBUTES & newest.keys()) - self.attributes[
                number
            ].keys()
            texts += [f"{name}={_literal(newest[name].value, name)}" for name in sorted(newer)]
            others -= newer
            # Refuse nodes with attributes that no place states, and that have no default to
            # keep.
            stated = {name for place in self.places for name in attributes_of(place.nodes[number])}
            for name in sorted(set(others) - stated - _IMPLIED):
                if any(name in schema.attributes for schema in schemas) and not any(
                    name in schema.defaults for schema in schemas
                ):
                    usual = default_of(node, name)
                    if usual is not None:  # what the operator's page says
                        texts.append(f"{name}={_literal(usual.value, name)}")
                        others -= {name}
                        continue
                    fact = f"{self.node_names[number]}.attrs.{name}"
                    self.where.append(f'value_or({fact}, "unset") == "unset"')
        others -= {text.partition("=")[0] for text in operands if "=" in text and text[0].isalpha()}
        if others:
            texts.append(f"**{'_' if carrier is None else self.carried[carrier][1]}")
        return texts

    def rule(self, name: str) -> RewriteRule:
        """Make the rule.

        Raises:
            NoRuleError: It cannot be made.
        """
        replacement = self.replacement()
        self.used = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*\b(?!=)", replacement))
        pattern = self.pattern()
        if any(node.op_type == "Cast" for node in self.first.nodes):
            self.where += [
                f"{self.name_of(new)}.dtype == {self.name_of(old)}.dtype"
                for old, new in self.first.outputs
                if new[0] in {"leaf", "node"}
            ]
        # Whether nodes of the pattern stay, since others read what they make.
        is_read = any(
            len(place.nodes) > len(set(place.difference.removed) & set(place.nodes))
            for place in self.places
        )
        new = self._first_opset(self.first.made)
        opsets = (new, None) if new > FIRST_OPSET else (None, None)
        escape: RewriteEscapePolicy | None = "keep" if is_read else None
        try:
            read, _ = read_pattern(pattern, self.schemas)
            captures = captures_of(read)
            becomes = parse_replacement(replacement, read, self.schemas)
            check_attributes(read, becomes.carried)
            where = tuple(Condition(text, captures) for text in self.where)
            rule = RewriteRule(name, read, becomes, where=where, escape=escape, opsets=opsets)
        except PatternSyntaxError as error:
            raise NoRuleError(f"no rule can say it: {error.message}") from error
        for problem in lint(rule, self.schemas):
            if problem.severity == "error":
                raise NoRuleError(f"no rule can say it: {problem.message}")
        return rule

    def _first_opset(self, nodes: Iterable[Node]) -> int:
        """Return the first opset that has all operators of *nodes*, and takes what they state."""
        firsts = [0]
        for node in nodes:
            versions = [] if node.domain else list(self.schemas.versions(node.op_type, ""))
            fitting = [
                v.since
                for v in versions
                if v.min_inputs <= len(node.inputs)
                and node.attributes.keys() <= v.attributes.keys()
            ]
            firsts += [min(fitting)] if fitting else []
        return max(firsts)


_LONG = 60
"""A part of a replacement that is longer gets a line and a name."""


def names_at(place: ChangedPlace, names: PatternNames) -> tuple[list[str], list[str]]:
    """Name the nodes of a pattern, then what they read from outside."""
    nodes = [names.new(node_word(node)) for node in place.nodes]
    leaves = [names.new(leaf_word(place.nodes[n], slot)) for n, slot in place.readers]
    return nodes, leaves


def _operator(node: Node) -> str:
    """Write an operator.

    Raises:
        NoRuleError: Its name is no word of the language.
    """
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if any(not word.isidentifier() or iskeyword(word) for word in name.split(".")):
        raise NoRuleError(f"a rule cannot write the name of the operator {name!r}")
    return name


def _in_common(places: Sequence[Sequence[Mapping[str, object]]]) -> list[dict[str, list[object]]]:
    """Turn attributes by place and node into values for all places, by node and name."""
    common = []
    for nodes in zip(*places, strict=True):
        names = [name for name in nodes[0] if all(name in node for node in nodes)]
        common.append({name: [node[name] for node in nodes] for name in names})
    return common


def _whole(*values: object) -> set[int]:
    """Return the whole numbers in some values."""
    numbers: set[int] = set()
    for value in values:
        if isinstance(value, np.ndarray):
            numbers |= {*value.reshape(-1).tolist()} if value.dtype.kind in "iu" else set()
        elif isinstance(value, (tuple, list)):
            numbers |= _whole(*value)
        elif type(value) is int:
            numbers.add(value)
    return numbers


def _axes_of(node: Node) -> tuple[int, ...]:
    """Return the axes that a node cuts; those of a Slice may be all, from the first on."""
    stated = parameter_of(node, _CUTTING[node.op_type])
    if stated is not None:
        return stated.value if isinstance(stated.value, tuple) else (cast("int", stated.value),)
    starts = parameter_of(node, "starts")
    return tuple(range(len(cast("tuple[int, ...]", starts.value)))) if starts is not None else ()


def _is_value(value: object, wanted: object) -> bool:
    """Tell whether an expression gives an attribute's value."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.reshape(()).item() if value.size == 1 else value.tolist()
    if isinstance(wanted, tuple):
        return isinstance(value, (list, tuple)) and tuple(value) == wanted
    if isinstance(wanted, float) and isinstance(value, (int, float)):
        return math.isclose(value, wanted, rel_tol=1e-6)
    return type(value) is type(wanted) and value == wanted


def _is_array(value: object, wanted: Array) -> bool:
    """Tell whether an expression gives a constant, up to rounding."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return False
    array = np.asarray(value)
    if (array.dtype, array.shape) != (wanted.dtype, wanted.shape):
        return False
    return is_near(array, wanted)


def small_data(tensor: Tensor) -> object:
    """Return the elements of a constant that a rule may write down; None if they are too many."""
    return tensor.numpy().tolist() if tensor.size <= _MOST_WRITTEN else None


def is_near(array: Array, wanted: Array) -> bool:
    """Tell whether two arrays of one type and shape are equal up to rounding."""
    if wanted.dtype.kind != "f" or not wanted.size:
        return bool(np.array_equal(array, wanted))
    scale = float(np.max(np.abs(wanted), initial=0.0))
    with np.errstate(all="ignore"):
        return bool(np.allclose(array, wanted, rtol=_ROUNDING, atol=1e-6 * scale, equal_nan=True))


def _literal(value: object, name: str = "") -> str:
    """Write an attribute's value."""
    if name in {"to", "dtype"} and isinstance(value, int) and 0 <= value < len(DTYPE_NAMES):
        return repr(DTYPE_NAMES[value])
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    return _number_text(shortest(np.float32(value))) if isinstance(value, float) else literal(value)


def _number_text(number: float) -> str:
    """Write a number; an infinity is ``1e999``.

    Raises:
        NoRuleError: It is none.
    """
    if math.isnan(number):
        raise NoRuleError("a rule cannot write nan")
    return literal(number)
