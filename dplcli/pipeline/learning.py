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
from dataclasses import replace
from itertools import combinations, islice, permutations
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dplcli.analysis.numbering import is_commutative, same_structure
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
from dplcli.ir.operators import FIRST_OPSET, MOVED
from dplcli.ir.types import DTYPE_NAMES, Tensor
from dplcli.onnx_io import OnnxSchemas, load_model, paused_gc, staged
from dplcli.onnx_io.scratch import model_from_text, text_of_model
from dplcli.outcomes import LearnedRewrite, LeftPlaces, RewritesOutcome
from dplcli.passes import learn
from dplcli.passes.learn import PatternNames, leaf_word, node_word, shortest
from dplcli.passes.rewrite import RewriteLimitError, rewrite
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
    unknown_operator,
)
from dplcli.pipeline.writing import check_result, say_nothing
from dplcli.verify import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.analysis.pairing import Difference
    from dplcli.dpl.rule import Opsets, RewriteEscapePolicy
    from dplcli.ir import Model, Node, Value
    from dplcli.outcomes import Delivery, Trial
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
    """

    text: str
    constants: tuple[Operand, ...] = ()
    attributes: tuple[tuple[int, str], ...] = ()


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
        self.data |= {operand[1] for operand in guess.constants if operand[0] == "leaf"}
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
                texts.append(f"{name}={self._attribute(name, values)}")
        return texts

    def _attribute(self, name: str, wanted: Sequence[object]) -> str:
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
                yield _Guess(function.format(text), (operand,))
            if all(tensor.shape == tensors[0].shape for tensor in tensors):
                yield _Guess(f"reshape({text}, {shape})", (operand,))
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
            operands += self._named(number, node)
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
                texts.insert(0, self._operand(args[slot]))
        return texts + named

    def _moved(self, number: int, slot: int) -> str:
        """Write an input as the attribute that it was, if it is a constant to keep; else ""."""
        node, operand = self.first.nodes[number], self.first.args[number][slot]
        moved = {} if node.domain else {m.slot: m.attribute for m in MOVED.get(node.op_type, ())}
        if slot not in moved or operand[0] != "leaf" or is_commutative(node):
            return ""
        kept = self._kept_data(operand[1])
        return "" if kept is None or kept.ndim > 1 else f"{moved[slot]}={literal(kept.tolist())}"

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

    def _operand(self, operand: Operand) -> str:
        match operand:
            case ("none",):
                return "None"
            case ("node", *_):
                return self._text_of(operand)
            case ("leaf", number):
                name = self.leaf_names[number]
                kept = self._kept_data(number)
                if kept is not None:
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

    def _named(self, number: int, node: Node) -> list[str]:
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
            versions = list(self.schemas.versions(node.op_type, node.domain))
            newest = max(versions, key=lambda schema: schema.since).defaults if versions else {}
            newer = (others & learn.KEPT_ATTRIBUTES & newest.keys()) - self.attributes[
                number
            ].keys()
            texts += [f"{name}={_literal(newest[name].value, name)}" for name in sorted(newer)]
            others -= newer
            # Refuse nodes with attributes that no place states, and that have no default to
            # keep.
            node = self.first.nodes[number]
            schemas = list(self.schemas.versions(node.op_type, node.domain))
            stated = {name for place in self.places for name in attributes_of(place.nodes[number])}
            for name in sorted(set(others) - stated - _IMPLIED):
                if any(name in schema.attributes for schema in schemas) and not any(
                    name in schema.defaults for schema in schemas
                ):
                    fact = f"{self.node_names[number]}.attrs.{name}"
                    self.where.append(f'value_or({fact}, "unset") == "unset"')
        others -= {
            text.partition("=")[0]
            for text in self._operands(number)
            if "=" in text and text[0].isalpha()
        }
        if others:
            texts.append(f"**{'_' if carrier is None else self.carried[carrier][1]}")
        return texts

    def rule(self, name: str) -> RewriteRule:
        """Make the rule.

        Raises:
            NoRuleError: It cannot be made.
        """
        replacement = self.replacement()
        self.used = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", replacement))
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


_MOST_AROUND = 1
"""How many nodes above the old ones are looked at, if a rule is wrong without them."""

_MOST_COUNTEREXAMPLES = 8
"""After so many graphs on which a rule is wrong, no conditions are looked for any more."""

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

_SEEDS = 3
"""How many sets of graphs are drawn where a rule applies to few of each."""


class _Refusal(NamedTuple):
    """Why there is no rule for places of a kind, and the graph on which one was wrong."""

    reason: str
    counterexample: str = ""


_IDLE = _Refusal("the rule learned from it does not apply")


class _Applied(NamedTuple):
    """What the rules make of the first model, and what is left of the difference.

    Attributes:
        model: The first model, rewritten.
        done: What was done.
        differences: Where it differs from the second model.
    """

    model: Model
    done: Rewriting
    differences: list[Difference]


class _Learner:
    """Learns the rules between two models.

    Args:
        before: The file of the first model.
        after: The file of the second.
        name: What to call the rules; "" for names made of the operators.
        trials: On how many graphs each rule is tried.
        say: Told what is going on.
    """

    def __init__(self, before: Path, after: Path, name: str, trials: int, say: Progress) -> None:
        self.before = before
        self.say = say
        say(f"reading {before.name} and {after.name}")
        self.original = load_model(before)
        self.after = load_model(after)
        self.name = name
        self.schemas = OnnxSchemas()
        self.most = trials
        few = [Trier(self.schemas, _FEW_TRIALS)] if trials > _FEW_TRIALS else []
        self.triers = few + [Trier(self.schemas, trials, seed) for seed in range(_SEEDS)]
        self.learned: list[LearnedRewrite] = []
        self.refusals: dict[tuple[object, ...], _Refusal] = {}
        self.names: set[str] = set()
        self.changed: set[tuple[bool, str]] = set()

    def run(self) -> _Applied:
        """Learn, and apply what was learned."""
        applied = self._apply()
        self.changed = {name for each in applied.differences for name in _names_of(each)}
        for _ in range(_MOST_ROUNDS):
            found = self._learn_from(filter(self.is_left, applied.differences))
            if not found:
                break
            self.learned += found
            applied = self._sorted()
        idle = [item for item in self.learned if not applied.done.counts.get(item.rule.name)]
        if idle:
            for item in idle:
                self.learned.remove(item)
            applied = self._apply()
        return applied

    def is_left(self, difference: Difference) -> bool:
        """Tell whether no rule explains a difference, rather than that a rule made it."""
        return any(name in self.changed for name in _names_of(difference))

    def _sorted(self) -> _Applied:
        """Put the most frequent rules first, or the largest if that leaves fewer places."""
        self.learned.sort(key=lambda item: -item.places)
        applied = self._apply()
        if not applied.differences or len(self.learned) == 1:
            return applied
        frequent = list(self.learned)
        self.learned.sort(key=lambda item: -item.rule.largest_match)
        other = self._apply()
        if len(other.differences) < len(applied.differences):
            return other
        self.learned = frequent
        return applied

    def _apply(self) -> _Applied:
        """Apply the rules to the first model, and compare with the second."""
        self.say("comparing the models")
        model = load_model(self.before)
        done = rewrite(model, [item.rule for item in self.learned])
        nearness = is_near if self.learned else None
        return _Applied(model, done, find_differences(model, self.after, is_near=nearness))

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
            where = f"{counted(len(places), 'place')} like {_listed(places[0].nodes)}"
            self.say(f"learning from {where} ({number} of {len(kinds)} kinds)")
            self.refusals[kind] = _IDLE
            try:
                learned.append(self._learn_kind(places))
            except NoRuleError as error:
                self.refusals[kind] = _Refusal(str(error), error.counterexample)
                learned += self._learn_apart(kind, places)
        return learned

    def _learn_apart(
        self, kind: tuple[object, ...], places: Sequence[ChangedPlace]
    ) -> Iterator[LearnedRewrite]:
        """Learn a rule for each group of places that agree in their numbers and attributes.

        Not if they differ at each of many places: a rule would only say the place again.
        """
        # Group places that agree in their numbers and attributes, the largest groups first.
        groups: dict[str, list[ChangedPlace]] = defaultdict(list)
        for place in places:
            attributes = [attributes_of(node) for node in (*place.nodes, *place.made)]
            small = [
                (slot, t.numpy().tolist())
                for slot, t in place.constants.items()
                if t.size <= _MOST_WRITTEN
            ]
            groups[repr((sorted(place.numbers.items()), attributes, small))].append(place)
        parts = sorted(groups.values(), key=len, reverse=True)
        if len(parts) > _MOST_APART and len(parts) == len(places):
            self._add_reason(kind, f"each of the {len(places)} places has numbers of its own")
            return
        for part in parts[:_MOST_APART] if len(parts) > 1 else []:
            with suppress(NoRuleError):
                yield self._learn_kind(part)
        if len(parts) > _MOST_APART:
            tried = f"only the {_MOST_APART} most frequent of {len(parts)} variants were tried"
            self._add_reason(kind, tried)

    def _add_reason(self, kind: tuple[object, ...], reason: str) -> None:
        refusal = self.refusals[kind]
        self.refusals[kind] = refusal._replace(reason=f"{refusal.reason}; {reason}")

    def _learn_kind(self, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Learn one rule: the most general one that is not refuted.

        What lies above the old nodes may be what makes it right: Relu(x) is x if x is a Relu.

        Raises:
            NoRuleError: There is none.
        """
        wrong: list[tuple[LearnedRewrite, Sequence[ChangedPlace]]] = []
        for around in range(_MOST_AROUND + 1):
            try:
                wider = [read_place(one.difference, around) for one in places] if around else places
                if len({place.kind for place in wider}) > 1:
                    break
                for learned in self._candidates(wider):
                    if learned.trial.verdict != "failed":
                        self.names.add(learned.rule.name)
                        return self._spared(learned, wider)
                    wrong.append((learned, wider))
            except NoRuleError:
                if not wrong:
                    raise
        for learned, wider in wrong:  # sizes are asked for only if nothing else makes a rule right
            texts = _holding(learned.rule, wider, is_sized=True)
            sized = self._covered(learned, texts, len(wider))
            if sized is not None:
                self.names.add(sized.rule.name)
                return sized
        trial = wrong[0][0].trial
        raise NoRuleError(
            f"the rule learned from it is wrong: {trial.reason}", trial.counterexample
        )

    def _spared(self, learned: LearnedRewrite, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Add conditions that hold at all places, and not where the second model is as before."""
        rule = learned.rule
        beyond = [
            match
            for match in select_matches(self.original, [rule]).matches
            if not any((False, value.name) in self.changed for value in match.outputs)
        ]
        if not beyond:
            return learned
        holding = _holding(rule, places)
        conditions = {text: Condition(text, captures_of(rule.pattern)) for text in holding}
        refused = [
            {text for text in holding if conditions[text].unmet_by(match.bound) is not None}
            for match in beyond
        ]
        chosen = _cover(list(filter(None, refused)), holding)
        if not chosen:
            return learned
        spared = self._tried(_with_conditions(rule, chosen), len(places))
        if spared.trial.verdict == "failed":
            spared = self._narrowed(spared, places)
        return learned if spared.trial.verdict == "failed" else spared

    def _candidates(self, places: Sequence[ChangedPlace]) -> Iterator[LearnedRewrite]:
        """Yield rules, the most general one first; some may be refuted.

        Raises:
            NoRuleError: There is none.
        """
        place = places[0]
        if self.name:
            word = self.name
        elif len(place.made) == 1 and place.made[0].op_type not in {
            node.op_type for node in place.nodes
        }:
            word = node_word(place.made[0])
        elif place.made:
            word = f"{learn.rule_name(place.nodes)}_to_{learn.rule_name(place.made)}"
        else:
            word = f"drop_{learn.rule_name(place.nodes)}"
        number, name = 1, word
        while name in self.names:
            number += 1
            name = f"{word}_{number}"
        doc = f"Learned from {counted(len(places), 'place')}, one at {_listed(places[0].nodes)}."
        reasons = []
        writer: _RuleWriter | None = None
        for general, carries in ((True, True), (False, True), (False, False)):
            if not carries and not (writer and writer.carried):
                break  # it would be the same rule
            writer = _RuleWriter(places, self.schemas, general=general, carries=carries)
            try:
                rule = self._checked(writer.rule(name))
            except NoRuleError as error:
                reasons.append(error)
                continue
            learned = self._tried(replace(rule, doc=doc), len(places))
            is_wrong = learned.trial.verdict == "failed"
            yield self._narrowed(learned, places) if is_wrong else learned
        if len(reasons) > 1:
            raise reasons[-1]

    def _tried(self, rule: RewriteRule, places: int, *, is_draft: bool = False) -> LearnedRewrite:
        """Try a rule, with an example of what it does; a draft on few graphs only."""
        self.say(f"trying {rule.name} on graphs made up for it")
        rule = replace(rule, examples=tuple(self._example(rule)))
        trials: list[Trial] = []
        graphs = 0
        for trier in self.triers[:1] if is_draft else self.triers:
            trials = list(trier.trials(rule))
            graphs += sum(trial.graphs for trial in trials)
            if any(trial.verdict != "passed" for trial in trials) or graphs >= self.most:
                break
        wrong = [trial for trial in trials if trial.verdict == "failed"]
        # A rule that is wrong for odd numbers alone says so.
        odd = exemption_of(wrong[-1].reason) if wrong else None
        if odd is not None and odd not in rule.excepted:
            told = replace(rule, excepted=(*rule.excepted, odd))
            return self._tried(told, places, is_draft=is_draft)
        untried = (trial for trial in trials if trial.verdict == "not tried")
        trial = wrong[-1] if wrong else next(untried, trials[-1])
        if wrong and rule.examples and not trial.counterexample:  # its own example is one
            trial = replace(trial, counterexample=rule.examples[0].before)
        return LearnedRewrite(rule, places, trial)

    def _opsets_without(self, rule: RewriteRule, counterexample: str) -> Opsets:
        """Leave out the opset of a counterexample, and those beyond, if the model is of another."""
        if not counterexample:
            return rule.opsets
        wrong = model_from_text(counterexample, "counterexample").graph.opset_imports.get("", 0)
        here, (first, last) = self.original.graph.opset_imports.get("", 0), rule.opsets
        if wrong < here and (first is None or first <= wrong):
            return wrong + 1, last
        return (
            (first, wrong - 1) if wrong > here and (last is None or wrong <= last) else rule.opsets
        )

    def _strictest(self, rule: RewriteRule, holding: Sequence[str], places: int) -> LearnedRewrite:
        """Try a rule with all conditions, and without the opsets at which it is wrong even so."""
        while True:
            strictest = self._tried(_with_conditions(rule, holding), places, is_draft=True)
            opsets = self._opsets_without(rule, strictest.trial.counterexample)
            if strictest.trial.verdict != "failed" or opsets == rule.opsets:
                return strictest
            rule = replace(rule, opsets=opsets)

    def _narrowed(self, learned: LearnedRewrite, places: Sequence[ChangedPlace]) -> LearnedRewrite:
        """Add conditions that make the rule right, of those that hold at all places."""
        holding = _holding(learned.rule, places)
        strictest = self._strictest(learned.rule, holding, len(places))
        if strictest.trial.verdict == "failed":
            return learned
        wrong = learned
        if strictest.rule.opsets != learned.rule.opsets:
            rule = replace(learned.rule, opsets=strictest.rule.opsets)
            wrong = self._tried(rule, len(places))
            if wrong.trial.verdict == "passed":
                return wrong
        covered = self._covered(wrong, holding, len(places))
        if covered is None:
            strictest = self._tried(strictest.rule, len(places))
        return covered or (strictest if strictest.trial.verdict == "passed" else learned)

    def _covered(
        self, wrong: LearnedRewrite, holding: Sequence[str], places: int
    ) -> LearnedRewrite | None:
        """Add as few conditions as make a rule right; None if they do not.

        They are chosen by the graphs on which the rule is wrong: each must be refused by one.
        """
        rule = wrong.rule
        refused: list[set[str]] = []
        chosen: list[str] = []
        for _ in range(_MOST_COUNTEREXAMPLES):
            if wrong.trial.counterexample:
                shown = model_from_text(wrong.trial.counterexample, "counterexample")
                refused.append(
                    {
                        t
                        for t in holding
                        if not select_matches(shown, [_with_conditions(rule, [t])]).matches
                    }
                )
            elif wrong.trial.verdict == "failed":  # its own example says that, which all have
                break
            if not refused or not all(refused):
                break
            before, chosen = chosen, _cover(refused, holding)
            wrong = self._tried(_with_conditions(rule, chosen), places)
            if wrong.trial.verdict == "passed":
                return wrong
            if wrong.trial.verdict == "not tried":  # a condition that keeps all graphs out
                refused = [each - ({*chosen} - {*before}) for each in refused]
                chosen = before
        return None

    def _example(self, rule: RewriteRule) -> Iterator[Example]:
        """Show what a rule does on a small graph; constants that it computes are not shown."""
        try:
            model = next(self.triers[0].models(replace(rule, examples=())), None)
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


def _names_of(difference: Difference) -> Iterator[tuple[bool, str]]:
    """Yield what its nodes make, by name, and whether they are the new ones."""
    for is_new, nodes in ((False, difference.removed), (True, difference.added)):
        yield from ((is_new, v.name) for node in nodes for v in node.outputs if v is not None)


def _listed(nodes: Sequence[Node]) -> str:
    texts = [f"{node.op_type} {node.label!r}" for node in nodes[:3]]
    return ", ".join(texts) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")  # noqa: PLR2004


def _cover(refused: Sequence[set[str]], texts: Sequence[str]) -> list[str]:
    """Choose few texts such that each of the sets has one of them, the last ones first."""
    left = list(refused)
    chosen: list[str] = []
    while left:
        best = max(reversed(texts), key=lambda text: sum(text in item for item in left))
        chosen.append(best)
        left = [item for item in left if best not in item]
    return chosen


def _with_conditions(rule: RewriteRule, texts: Iterable[str]) -> RewriteRule:
    captures = captures_of(rule.pattern)
    return replace(rule, where=(*rule.where, *(Condition(text, captures) for text in texts)))


def _holding(
    rule: RewriteRule, places: Sequence[ChangedPlace], *, is_sized: bool = False
) -> list[str]:
    """Return the conditions that hold at all places; on request those on single sizes, too."""
    sizes = _sizes(rule, places[0]) if is_sized else ()
    every = (*sizes, *_conditions(rule, places[0]))
    return [text for text in every if _holds(rule, text, places)]


def _conditions(rule: RewriteRule, place: ChangedPlace) -> Iterator[str]:
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
        yield from (f"{leaf}.shape[0] == {other}.shape[-1]" for other in leaves if other != leaf)
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


def _sizes(rule: RewriteRule, place: ChangedPlace) -> Iterator[str]:
    """Yield the sizes of the values that a rule binds."""
    for name, operand in _bound_at(rule, place).items():
        known = place.value(operand).known_type() if operand[0] == "leaf" else None
        for axis, size in enumerate((known and known.shape) or ()):
            if isinstance(size, int):
                yield f"{name}.shape[{axis}] == {size}"


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
    verify: bool = True,
    progress: Progress | None = None,
) -> RewritesOutcome:
    """Learn the rules that lead from one model to another, and verify what they make of it.

    Args:
        before: The first model.
        after: What somebody made of it.
        name: What to call the rules; "" for names made of the operators.
        trials: On how many graphs each rule is tried.
        verify: Whether to compare the first model with what the rules make of it in onnxruntime.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A model cannot be used.
    """
    say = progress or say_nothing
    learner = _Learner(before, after, name, trials, say)
    model, done, differences = learner.run()
    of_none = [difference for difference in differences if learner.is_left(difference)]
    left = Counter(_left(each, learner.refusals) for each in of_none)
    changed = sum(item.places for item in learner.learned)
    rules = [item.rule for item in learner.learned]
    comments = {item.rule.name: _comment(item.trial) for item in learner.learned}
    doc = f"Learned from {before.name} and {after.name}."
    return RewritesOutcome(
        before=before.name,
        after=after.name,
        learned=tuple(learner.learned),
        explained=min(changed, sum(done.counts.values())),
        left=tuple(LeftPlaces(what, count, shown) for (what, shown), count in left.most_common()),
        beyond=len(differences) - len(of_none),
        delivery=_delivery(before, model, learner.schemas, say) if rules and verify else None,
        yaml=write_catalog(rules, doc=doc, comments=comments) if rules else "",
    )


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


def _comment(trial: Trial) -> str:
    """Say in the catalogue if a rule is not proved."""
    return f"Not proved: {trial.reason}." if trial.verdict == "not tried" else ""


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
