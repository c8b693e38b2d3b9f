"""Learn rules that replace from a model and from what somebody made of it.

Places of one kind, with the same operators wired in the same way, give one rule. What is the same
at all of them and says what is computed is kept; what differs is captured. Constants and attributes
of the new nodes are looked for among a few expressions over what the pattern binds. Each rule is
tried on graphs made up for it. What all of them make of the first model is compared with the second
one by structure, and with the first one in onnxruntime.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, islice, permutations
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from dplcli.analysis.numbering import is_commutative
from dplcli.analysis.pairing import find_differences
from dplcli.catalog.catalog import write_catalog
from dplcli.catalog.lint import lint
from dplcli.catalog.sketch import NoInstanceError
from dplcli.dpl.conditions import Condition, Expression, UnknownFactError
from dplcli.dpl.pattern import CallPattern, ConstantPattern, OpName
from dplcli.dpl.replacement import (
    RewriteRule,
    check_attributes,
    parse_replacement,
    possible_attributes,
)
from dplcli.dpl.rule import Example
from dplcli.dpl.text import all_parts, bound_names, captures_of, literal, read_pattern
from dplcli.errors import DplError, PatternSyntaxError, counted
from dplcli.files import temporary_folder
from dplcli.ir.model import RULE_KEY
from dplcli.ir.operators import (
    AXES,
    DTYPE_ATTRIBUTES,
    FIRST_OPSET,
    MOVED,
    SIZED_BY,
    parameter_of,
)
from dplcli.ir.types import DTYPE_NAMES, Tensor
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc, staged
from dplcli.onnx_io.scratch import model_from_text, text_of_model
from dplcli.outcomes import LearnedRewrite, LeftPlaces, RewritesOutcome, Trial
from dplcli.passes import learn
from dplcli.passes.learn import PatternNames, leaf_word, node_word, shortest
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from dplcli.passes.rewriter import claim, reachable
from dplcli.passes.select import select_matches
from dplcli.pipeline.changes import (
    ChangedPlace,
    NoRuleError,
    Operand,
    Slot,
    attributes_of,
    read_place,
    stated_attributes,
)
from dplcli.pipeline.proving import (
    DEFAULT_TRIALS,
    Trier,
    exemption_of,
    same_structure,
    unknown_operator,
)
from dplcli.pipeline.writing import check_result, say_nothing
from dplcli.settings import LearnSettings
from dplcli.verify import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.analysis.pairing import Difference
    from dplcli.dpl.rule import Opsets, RewriteEscapePolicy
    from dplcli.ir import Model, Node, Value
    from dplcli.outcomes import Delivery
    from dplcli.passes.rewrite import Rewriting
    from dplcli.pipeline.writing import Progress

    Array: TypeAlias = NDArray[Any]

# One kind of place: what is kept and what is captured, and how the new nodes are described by it.


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


_NO_SIZES = frozenset({"pads", "repeats"})
"""Numbers that say how much is added to a size."""

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


class _RuleWriter:
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
        self.node_names, self.leaf_names = _names_at(self.first, self.names)
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
            [_small(leaf.constant) for leaf in self.first.leaves if leaf.constant is not None],
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
        An attribute of a new node that no old one states may be a size, too; and an axis was
        counted in a rank.

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
        is_size = slot in sized and name not in _NO_SIZES
        if name in DTYPE_ATTRIBUTES or not (is_size or slot is None):
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
            if axes:
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


def _names_at(place: ChangedPlace, names: PatternNames) -> tuple[list[str], list[str]]:
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


# All kinds of places: from the most frequent on, each proved, until nothing new is learned.


DEFAULT_BUDGET: int = LearnSettings.options["budget"].default

_MOST_AROUND = 1
"""How many nodes above the old ones are looked at, if a rule is wrong without them."""

_MOST_FOR_A_KIND = 16
"""How often rules for places of one kind are tried, all that are narrowed on the way included."""

_MANY = 5
"""After so many graphs on which a rule is wrong it gets all conditions, not the fewest."""

_MOST_NAMED = 3
"""Most nodes that a text names."""

_LONGEST_EXAMPLE = 1500
"""Longer examples, in characters, show nothing to a reader."""

_MOST_ROUNDS = 4
"""How often what is left is looked at again, with the rules so far applied."""

_MOST_APART = 3
"""How many rules are made of places of one kind that differ in numbers or attributes."""

_FREE_APPLICATIONS = 20
"""A rule may be applied so often, and twice for each match in the first model, to try it."""

_FEW_TRIALS = 60
"""On so many graphs a rule is tried first: most that are wrong show it there."""

_FEWEST = 10
"""A rule that was right on fewer graphs is not proved."""

_FRESH_SETS = 2
"""On so many sets of graphs a rule is tried last, of which nothing was learned before."""


class _Refusal(NamedTuple):
    """Why there is no rule for places of a kind, and the graph on which one was wrong."""

    reason: str
    counterexample: str = ""


_IDLE = _Refusal("the rule learned from it does not apply")


_Applied: TypeAlias = "tuple[Model, Rewriting, list[Difference]]"
"""The first model rewritten, what was done, and where it differs from the second one."""


@dataclass(eq=False)
class _Learner:
    """Learns the rules between two models.

    Attributes:
        before: The file of the first model.
        after: The second model.
        name: What to call the rules; "" for names made of the operators.
        most: On how many graphs each rule is tried.
        budget: How often rules are tried, all in all.
        takes_unproved: Whether rules that are not proved count, too.
        say: Told what is going on.
        tried: How often rules were tried.
        limit: When those of the kind that is looked at are given up.
        sets: How many sets of graphs were drawn to have the last word.
        changed: The values that differ at first, and whether they are new ones.
    """

    before: Path
    after: Model
    name: str
    most: int
    budget: int
    takes_unproved: bool
    say: Progress
    tried: int = 0
    limit: int = 0
    sets: int = 0
    learned: list[LearnedRewrite] = field(default_factory=list)
    unproved: list[LearnedRewrite] = field(default_factory=list)
    refusals: dict[tuple[object, ...], _Refusal] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    changed: set[tuple[bool, str]] = field(default_factory=set)
    schemas: OnnxSchemas = field(default_factory=OnnxSchemas)

    @cached_property
    def original(self) -> Model:
        """The first model, as it was."""
        return load_model(self.before)

    @property
    def is_spent(self) -> bool:
        """Whether no rule is tried any more."""
        return self.tried >= self.budget

    def run(self) -> _Applied:
        """Learn, and apply what was learned: rules of more nodes first, then the frequent ones."""
        model, done, differences = self._apply()
        self.changed = {name for each in differences for name in _names_of(each)}
        for _ in range(_MOST_ROUNDS):
            learned = self._learn_from(filter(self.is_left, differences))
            if not learned:
                break
            self.learned += learned
            self.learned.sort(key=lambda item: (-item.rule.largest_match, -item.places))
            model, done, differences = self._apply()
        used = [item for item in self.learned if done.counts.get(item.rule.name)]
        if len(used) < len(self.learned):
            self.learned = used
            return self._apply()
        return model, done, differences

    def is_left(self, difference: Difference) -> bool:
        """Tell whether no rule explains a difference, rather than that a rule made it."""
        return any(name in self.changed for name in _names_of(difference))

    def _apply(self) -> _Applied:
        """Apply the rules to the first model, and compare with the second."""
        self.say("comparing the models")
        model = load_model(self.before)
        done = rewrite(model, [item.rule for item in self.learned])
        nearness = is_near if self.learned else None
        return model, done, find_differences(model, self.after, is_near=nearness)

    def _checked(self, rule: RewriteRule) -> RewriteRule:
        """Apply a rule alone to the first model; if it matches what it makes, let it do so once.

        Raises:
            NoRuleError: It does not apply, or without an end.
        """
        most = _FREE_APPLICATIONS + 2 * len(select_matches(self.original, [rule]).matches)
        try:
            done = rewrite(load_model(self.before), [rule], most=most)
        except RewriteLimitError as error:
            if rule.once:
                raise NoRuleError(error.message) from error
            return self._checked(replace(rule, once=True))
        except DplError as error:
            raise NoRuleError(error.message) from error
        if not done.counts.get(rule.name):
            why = f": {done.refused[0].reason}" if done.refused else ""
            raise NoRuleError(f"the rule learned from it does not apply{why}")
        return rule

    def _learn_from(self, differences: Iterable[Difference]) -> list[LearnedRewrite]:
        groups: dict[tuple[object, ...], list[ChangedPlace]] = defaultdict(list)
        for difference in differences:
            if any(RULE_KEY in node.remarks.metadata for node in difference.removed):
                continue
            try:
                place = read_place(difference)
            except NoRuleError:
                continue
            if place.kind not in self.refusals:
                groups[place.kind].append(place)
        learned = []
        kinds = sorted(groups.items(), key=lambda item: -len(item[1]))
        for number, (kind, places) in enumerate(kinds, start=1):
            shown = learn.list_nodes(places[0].nodes, _MOST_NAMED)
            where = f"{counted(len(places), 'place')} like {shown}"
            self.say(f"learning from {where} ({number} of {len(kinds)} kinds)")
            self.refusals[kind] = _IDLE
            try:
                candidates = [self._learn_kind(places)]
            except NoRuleError as error:
                self.refusals[kind] = _Refusal(str(error), error.counterexample)
                candidates = [*self._learn_apart(kind, places)]
            for item in candidates:
                self.names.add(item.rule.name)
                if self.takes_unproved or item.trial.verdict == "passed":
                    learned.append(item)
                else:
                    self.unproved.append(item)
                    reason = f"the rule learned from it is not proved: {item.trial.reason}"
                    self.refusals[kind] = _Refusal(reason)
        return learned

    def _learn_apart(
        self, kind: tuple[object, ...], places: Sequence[ChangedPlace]
    ) -> Iterator[LearnedRewrite]:
        """Learn a rule for each of the largest groups of places that agree in their numbers.

        Not if they differ at each of many places: a rule would only say the place again.
        """
        groups: dict[str, list[ChangedPlace]] = defaultdict(list)
        for place in places:
            attributes = [attributes_of(node) for node in (*place.nodes, *place.made)]
            small = [(slot, _small(tensor)) for slot, tensor in place.constants.items()]
            groups[repr((sorted(place.numbers.items()), attributes, small))].append(place)
        parts = sorted(groups.values(), key=len, reverse=True)
        is_each = len(parts) == len(places) > _MOST_APART
        why = f"only the {_MOST_APART} most frequent of {len(parts)} variants were tried"
        why = f"each of the {len(places)} places has numbers of its own" if is_each else why
        if len(parts) > _MOST_APART:
            refusal = self.refusals[kind]
            self.refusals[kind] = refusal._replace(reason=f"{refusal.reason}; {why}")
        for part in [] if is_each or len(parts) == 1 else parts[:_MOST_APART]:
            with suppress(NoRuleError):
                yield self._learn_kind(part)

    def _learn_kind(self, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Learn one rule: the most general one that is not refuted.

        What lies above the old nodes may be what makes it right: Relu(x) is x if x is a Relu.

        Raises:
            NoRuleError: There is none.
        """
        if self.is_spent:
            raise NoRuleError(self._spent)
        self.limit = min(self.budget, self.tried + _MOST_FOR_A_KIND)
        wrong: list[Trial] = []
        try:
            for rule, wider in self._candidates(places):
                learned = self._proved(self._spared(rule, wider), wider)
                if learned.trial.verdict != "failed":
                    return learned
                wrong.append(learned.trial)
                if self.tried >= self.limit:
                    break
        except NoRuleError:
            if not wrong:
                raise
        reason = f"the rule learned from it is wrong: {wrong[0].reason}"
        raise NoRuleError(reason, wrong[0].counterexample)

    @property
    def _spent(self) -> str:
        return f"the budget of {counted(self.budget, 'trial')} was spent"

    def _spared(self, rule: RewriteRule, places: Sequence[ChangedPlace]) -> RewriteRule:
        """Add conditions that hold at all places, and not where the second model is as before."""
        beyond = [
            match
            for match in select_matches(self.original, [rule]).matches
            if not any((False, value.name) in self.changed for value in match.outputs)
        ]
        holding = _holding(rule, places) if beyond else []
        conditions = {texts: _with_conditions(rule, [texts]).where for texts in holding}
        refused = [
            {
                texts
                for texts, where in conditions.items()
                if any(condition.unmet_by(match.bound) is not None for condition in where)
            }
            for match in beyond
        ]
        return _with_conditions(rule, _cover(list(filter(None, refused)), holding))

    def _candidates(
        self, places: Sequence[ChangedPlace]
    ) -> Iterator[tuple[RewriteRule, Sequence[ChangedPlace]]]:
        """Yield rules, the most general one first, and the places that each is learned from.

        Raises:
            NoRuleError: There is none.
        """
        shown = learn.list_nodes(places[0].nodes, _MOST_NAMED)
        doc = f"Learned from {counted(len(places), 'place')}, one at {shown}."
        for around in range(_MOST_AROUND + 1):
            wider = [read_place(one.difference, around) for one in places] if around else places
            if len({place.kind for place in wider}) > 1:
                return
            name = claim(self.name or _word(wider[0]), {*self.names})
            reasons = []
            seen: set[str] = set()
            writer: _RuleWriter | None = None
            for general, carries in ((True, True), (False, True), (False, False)):
                if not carries and not (writer and writer.carried):
                    break  # it would be the same rule
                writer = _RuleWriter(wider, self.schemas, general=general, carries=carries)
                try:
                    rule = self._checked(writer.rule(name))
                except NoRuleError as error:
                    reasons.append(error)
                    continue
                text = f"{rule.pattern!r}{rule.becomes}"
                if text not in seen:
                    yield replace(rule, doc=doc), wider
                seen.add(text)
            if len(reasons) > 1:
                raise reasons[-1]

    def _proved(self, rule: RewriteRule, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Try a rule; add conditions that hold at all places as long as a graph shows it wrong.

        They are as few as refuse all those graphs. It is tried last on graphs that had no say in
        them.
        """
        general = _holding(rule, places)
        holding = [*_holding(rule, places, is_sized=True), *general]
        refused: list[set[_Texts]] = []
        before: list[_Texts] = []
        chosen: list[_Texts] = []
        while True:
            trial = self._trial(_with_conditions(rule, chosen))
            if trial.verdict == "passed" or self.tried >= self.limit:
                break
            if trial.verdict != "failed":  # the last conditions may keep all graphs out
                refused = [each - ({*chosen} - {*before}) for each in refused]
                if chosen == before:
                    break
            elif (odd := exemption_of(trial.reason)) and odd not in rule.excepted:
                rule = replace(rule, excepted=(*rule.excepted, odd))  # it says for what it is wrong
                continue
            elif refusing := self._refusing(rule, holding, trial.counterexample):
                refused.append(refusing)
            elif (opsets := self._opsets_without(rule, trial.counterexample)) != rule.opsets:
                own = self.original.graph.opset_imports[""]  # does it matter?
                here = replace(_with_conditions(rule, chosen), opsets=(own, own))
                if self._on_graphs(here, min(self.most, _FEW_TRIALS), 0).verdict == "failed":
                    break
                rule = replace(rule, opsets=opsets)
                refused, before, chosen = [], [], []
                continue
            else:
                break
            if not all(refused):
                break
            is_last = len(refused) == _MANY
            before, chosen = chosen, general if is_last else _cover(refused, holding, general)
        return LearnedRewrite(cast("RewriteRule", trial.rule), len(places), trial)

    def _trial(self, rule: RewriteRule) -> Trial:
        """Try a rule, with an example, on few graphs; then on many of which nothing was learned."""
        self.say(f"trying {rule.name} on graphs made up for it")
        rule = replace(rule, examples=tuple(self._example(rule)))
        trial = self._on_graphs(rule, min(self.most, _FEW_TRIALS), 0)
        graphs = 0
        for _ in range(_FRESH_SETS):
            if trial.verdict != "passed":
                return trial
            self.sets += 1
            trial = self._on_graphs(rule, self.most, self.sets)
            graphs += trial.graphs
        if trial.verdict == "passed" and graphs < min(self.most, _FEWEST):
            reason = f"only {counted(graphs, 'graph')} could be made up for it"
            return replace(trial, verdict="not tried", reason=reason, graphs=graphs)
        return replace(trial, graphs=graphs)

    def _on_graphs(self, rule: RewriteRule, most: int, seed: int) -> Trial:
        """Try a rule on its example and a set of graphs, if that is within the budget."""
        trial = Trial(rule, "made up", "no graph", "not tried", self._spent)
        if self.is_spent:
            return trial
        self.tried += 1
        for trial in Trier(self.schemas, most, seed).trials(rule):
            if trial.verdict == "failed":
                shown = trial.counterexample or rule.examples[0].before
                return replace(trial, counterexample=shown)
        return trial

    @staticmethod
    def _refusing(rule: RewriteRule, holding: Sequence[_Texts], counterexample: str) -> set[_Texts]:
        """Return the conditions that keep a rule from a graph; none if there is no graph."""
        if not counterexample:
            return set()
        shown = model_from_text(counterexample, "counterexample")
        return {
            texts
            for texts in holding
            if not select_matches(shown, [_with_conditions(rule, [texts])]).matches
        }

    def _opsets_without(self, rule: RewriteRule, counterexample: str) -> Opsets:
        """Leave out the opset of a counterexample, and those beyond, if the model is of another."""
        here, (first, last) = self.original.graph.opset_imports.get("", 0), rule.opsets
        if not counterexample or not here:
            return rule.opsets
        wrong = model_from_text(counterexample, "counterexample").graph.opset_imports.get("", 0)
        if wrong < here and (first is None or first <= wrong):
            return wrong + 1, last
        return (
            (first, wrong - 1) if wrong > here and (last is None or wrong <= last) else rule.opsets
        )

    def _example(self, rule: RewriteRule) -> Iterator[Example]:
        """Show what a rule does on a small graph; constants that it computes are not shown."""
        try:
            model = next(Trier(self.schemas).models(rule), None)
            if model is None:
                return
            before = f"{text_of_model(model)}\n"
            if len(before) > _LONGEST_EXAMPLE or not rewrite(model, [rule], most=1).rounds:
                return
            after = f"{text_of_model(model)}\n"
            is_exact = same_structure(model_from_text(after, "after"), model)
            is_short = is_exact and ".value" not in rule.becomes
            yield Example(before=before, after=after if is_short else "any")
        except (NoInstanceError, DplError):
            return


def _small(tensor: Tensor) -> object:
    return tensor.numpy().tolist() if tensor.size <= _MOST_WRITTEN else None


def _word(place: ChangedPlace) -> str:
    """Name the rule for places of a kind."""
    old, new = place.nodes, place.made
    if len(new) == 1 and new[0].op_type not in {node.op_type for node in old}:
        return node_word(new[0])
    name = learn.rule_name(old)
    return f"{name}_to_{learn.rule_name(new)}" if new else f"drop_{name}"


def _names_of(difference: Difference) -> Iterator[tuple[bool, str]]:
    """Yield what its nodes make, by name, and whether they are the new ones."""
    for is_new, nodes in ((False, difference.removed), (True, difference.added)):
        yield from ((is_new, v.name) for node in nodes for v in node.outputs if v is not None)


_Texts: TypeAlias = tuple[str, ...]
"""Conditions that go together."""


def _cover(
    refused: Sequence[set[_Texts]], texts: Sequence[_Texts], preferred: Sequence[_Texts] = ()
) -> list[_Texts]:
    """Choose conditions that each set has one of: the likeliest, which are last.

    One that is not preferred is chosen for a set without any that is.
    """
    chosen: list[_Texts] = []
    for item in refused:
        if item.isdisjoint(chosen):
            chosen.append(max(item & {*preferred} or item, key=texts.index))
    return chosen


def _with_conditions(rule: RewriteRule, chosen: Iterable[_Texts]) -> RewriteRule:
    captures, there = captures_of(rule.pattern), {condition.text for condition in rule.where}
    fresh = [text for text in dict.fromkeys(chain(*chosen)) if text not in there]
    return replace(rule, where=(*rule.where, *(Condition(text, captures) for text in fresh)))


def _holding(
    rule: RewriteRule, places: Sequence[ChangedPlace], *, is_sized: bool = False
) -> list[_Texts]:
    """Return the conditions that hold at all places: those on single sizes, or all others."""
    every = (_sizes if is_sized else _conditions)(rule, places[0])
    texts = [(text,) if isinstance(text, str) else text for text in every]
    return [each for each in texts if all(_holds(rule, text, places) for text in each)]


def _conditions(rule: RewriteRule, place: ChangedPlace) -> Iterator[str | _Texts]:
    """Yield what could be demanded of the values that a rule binds; the likely ones are last."""
    bound = _bound_at(rule, place)
    nodes, leaves, numbers = (
        [name for name, operand in bound.items() if operand[0] == kind]
        for kind in ("node", "leaf", "number")
    )
    constants = [leaf for leaf in leaves if f"const({leaf})" in repr(rule.pattern)] + numbers
    types = {name: place.value(bound[name]).known_type() for name in [*leaves, *numbers]}
    ranks = {
        name: len(known.shape)
        for name, known in types.items()
        if known is not None and known.shape is not None
    }
    vectors = [leaf for leaf in leaves if ranks.get(leaf) == 1]
    yield from (f"{leaf}.is_const" for leaf in leaves if leaf not in constants)
    for leaf in vectors:
        for other in leaves:
            if other != leaf:
                yield f"{leaf}.rank == 1", f"{leaf}.shape[0] == {other}.shape[-1]"
    yield from (f"same_shape({one}, {other})" for one, other in combinations(leaves, 2))
    for name, known in types.items():
        if known is not None and known.dtype is not None:
            yield f'{name}.dtype == "{known.dtype}"'
        if name in ranks and name not in constants:
            yield f"{name}.rank == {ranks[name]}"
    for root in (name for name in nodes if bound[name] in dict(place.outputs)):
        yield from (f"{leaf}.dtype == {root}.dtype" for leaf in leaves)
        yield from (f"same_shape({leaf}, {root})" for leaf in leaves)
        yield from (f"shaped_like({root}, {other})" for other in [*nodes, *leaves] if other != root)
    yield from (f"{name}.rank == {ranks[name]}" for name in constants if name in ranks)


def _sizes(rule: RewriteRule, place: ChangedPlace) -> Iterator[_Texts]:
    """Yield the sizes of the values that a rule binds."""
    for name, operand in _bound_at(rule, place).items():
        known = place.value(operand).known_type() if operand[0] == "leaf" else None
        shape = (known and known.shape) or ()
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                yield f"{name}.rank == {len(shape)}", f"{name}.shape[{axis}] == {size}"


def _holds(rule: RewriteRule, text: str, places: Sequence[ChangedPlace]) -> bool:
    condition = Condition(text, captures_of(rule.pattern))
    return all(
        condition.unmet_by({n: p.value(o) for n, o in _bound_at(rule, p).items()}) is None
        for p in places
    )


def _bound_at(rule: RewriteRule, place: ChangedPlace) -> dict[str, Operand]:
    """Return what each name of a learned rule stands for: names are given in the same order."""
    nodes, leaves = _names_at(place, PatternNames(()))
    operands: dict[str, Operand] = {name: ("node", n, 0) for n, name in enumerate(nodes)}
    operands |= {name: ("leaf", n) for n, name in enumerate(leaves)}
    for part in all_parts(rule.pattern):
        if isinstance(part, CallPattern) and part.name in nodes:
            for slot, arg in enumerate(part.args):
                if isinstance(arg, ConstantPattern) and arg.name not in operands:
                    operands[arg.name] = ("number", nodes.index(part.name), slot)
    bound = bound_names(rule.pattern)
    return {name: operand for name, operand in operands.items() if name in bound}


@paused_gc()
def learn_rewrites(  # noqa: PLR0913  # all but the models by keyword
    before: Path,
    after: Path,
    *,
    name: str = "",
    trials: int = DEFAULT_TRIALS,
    budget: int = DEFAULT_BUDGET,
    unproved: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> RewritesOutcome:
    """Learn the rules that lead from one model to another, and verify what they make of it.

    Args:
        before: The first model.
        after: What somebody made of it.
        name: What to call the rules; "" for names made of the operators.
        trials: On how many graphs each rule is tried.
        budget: How often rules are tried, all in all.
        unproved: Whether rules that are not proved count, too.
        verify: Whether to compare the first model with what the rules make of it in onnxruntime.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A model cannot be used.
    """
    say = progress or say_nothing
    say(f"reading {before.name} and {after.name}")
    learner = _Learner(before, load_model(after), name, trials, budget, unproved, say)
    model, done, differences = learner.run()
    of_none = [difference for difference in differences if learner.is_left(difference)]
    left = Counter(_left(each, learner.refusals) for each in of_none)
    changed = sum(item.places for item in learner.learned)
    rules = [item.rule for item in learner.learned]
    return RewritesOutcome(
        before=before.name,
        after=after.name,
        learned=tuple(learner.learned),
        unproved=tuple(learner.unproved),
        explained=min(changed, sum(done.counts.values())),
        left=tuple(LeftPlaces(what, count, shown) for (what, shown), count in left.most_common()),
        beyond=len(differences) - len(of_none),
        spent=budget if learner.is_spent else None,
        delivery=_delivery(before, model, learner.schemas, say) if rules and verify else None,
        yaml=_catalogue(learner, f"Learned from {before.name} and {after.name}."),
    )


def _catalogue(learner: _Learner, doc: str) -> str:
    """Write the rules; those that do not count are commented out."""
    every = [*learner.learned, *learner.unproved]
    comments = {
        item.rule.name: f"Not proved: {item.trial.reason}."
        for item in every
        if item.trial.verdict != "passed"
    }
    off = {item.rule.name for item in learner.unproved}
    rules = [item.rule for item in every]
    return write_catalog(rules, doc=doc, comments=comments, off=off) if rules else ""


def _delivery(
    before: Path, rewritten: Model, schemas: OnnxSchemas, say: Progress
) -> Delivery | str:
    """Compare a model with what rules made of it; return why that was impossible, if it was."""
    try:
        with temporary_folder() as folder, staged(rewritten, folder / before.name) as written:
            delivery = check_result(before, written.path, Check(), say)
    except DplError as error:
        return error.message
    alien = "" if delivery.is_sound else unknown_operator(load_model(before), rewritten, schemas)
    return alien or delivery


def _what(difference: Difference) -> str:
    both = difference.removed, difference.added
    old, new = (Counter(node.op_type for node in nodes) for nodes in both)

    def said(ops: Counter[str]) -> str:
        texts = [op if count == 1 else f"{count} {op}" for op, count in ops.items()]
        return ", ".join([*texts[:5], *(["…"] if len(texts) > 5 else [])])  # noqa: PLR2004

    return f"{said(old) or 'nothing'} -> {said(new) or 'nothing'}"


def _left(
    difference: Difference, refusals: Mapping[tuple[object, ...], _Refusal]
) -> tuple[str, str]:
    """Return what is left and why, and the graph on which the rule learned from it is wrong."""
    try:
        reason, counterexample = refusals.get(read_place(difference).kind, _IDLE)
    except NoRuleError as error:
        reason, counterexample = str(error), ""
    return f"{_what(difference)}: {reason}", counterexample
