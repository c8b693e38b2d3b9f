"""The rule that replaces, of places of a model at which somebody did the same.

The old nodes of a place and the new ones are numbered from what they are needed for, so that places
at which the same was done are read alike: they are of one *kind*. In the rule for a kind, what is
the same at all places and says what is computed is kept; what differs is captured. Constants and
attributes of the new nodes are looked for among a few expressions over what the pattern binds. A
number that was read off a shape brings that shape as a condition.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import blake2b
from itertools import chain, permutations
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from dplcli.analysis.numbering import is_commutative
from dplcli.catalog.lint import lint
from dplcli.errors import PatternSyntaxError
from dplcli.ir.operators import (
    AXES,
    DTYPE_ATTRIBUTES,
    FIRST_OPSET,
    MOVED,
    SIZED_BY,
    default_of,
    inputs_of,
    parameter_of,
    schema_of,
)
from dplcli.ir.traversal import behind_identities, is_identity
from dplcli.language.conditions import Condition
from dplcli.language.foldings import first_fitting, foldings, is_like, is_value
from dplcli.language.replacement import RewriteRule, check_attributes, parse_replacement
from dplcli.language.text import bound_names, captures_of, literal, read_pattern
from dplcli.passes.pattern_writer import (
    KEPT_ATTRIBUTES,
    NodePlace,
    NoRuleError,
    Operand,
    PatternWriter,
    Slot,
    attribute_text,
    attributes_of,
    leaf_word,
    node_word,
    number_at,
    operator_text,
    value_text,
)
from dplcli.passes.rewriter import reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.analysis.pairing import Difference
    from dplcli.ir import Node, OpSchema, SchemaLibrary, Value
    from dplcli.ir.types import Tensor

    Array: TypeAlias = NDArray[Any]


# What was done at one place.


_MOST_NODES = 60
"""Places of more nodes are no pattern that anything else is like."""

_FARTHEST = 6
"""How many nodes that stay may lie between the old ones and a value that the new ones read."""


class ChangedPlace(NodePlace):
    """Nodes of the first model, and what replaces them in the second.

    Args:
        difference: The old nodes and the new ones.
        around: How many nodes above the old ones are part of the pattern, although they stay.

    Attributes:
        made: The new nodes, producers first.
        made_args: What each of them reads.
        constants: The constants that they read, by where they stand.
        results: What replaces each output.
        stays: Whether nodes of the pattern stay, since others read what they make.

    Raises:
        NoRuleError: No rule can say it.
    """

    def __init__(self, difference: Difference, around: int = 0) -> None:
        super().__init__()
        _check(difference)
        self.difference = difference
        self.made: list[Node] = []
        self.made_args: list[list[Operand]] = []
        self.constants: dict[Slot, Tensor] = {}
        self.results: list[Operand] = []
        self._new_numbers: dict[Node, int] = {}
        self._forms: dict[Node, str] = {}
        copies = all(map(is_identity, difference.removed))
        self._inside = {n for n in difference.removed if copies or not is_identity(n)}
        for wanted in dict.fromkeys(self._needed()):
            self._inside |= self._path_to(wanted)
        for _ in range(around):
            read = (value for node in self._inside for value in node.inputs if value is not None)
            makers = {self.origin(value).producer for value in read}
            self._inside |= {m for m in makers if m is not None and _is_plain_node(m)}
        self.stays = not self._inside <= {*difference.removed}
        outputs = sorted(
            dict.fromkeys((self.origin(old), new) for old, new in difference.outputs),
            key=lambda pair: (self._form_of(pair[0].producer), pair[0].index),
        )
        for old, _ in outputs:
            self._visit(old)
        for old, new in outputs:
            operands = self._known(old), self._new_operand(new, (-1, len(self.outputs)))
            if operands[0] not in self.outputs:
                self.outputs.append(operands[0])
                self.results.append(operands[1])
        for node in (*self.nodes, *self.made):
            values_of(node)  # raises for what no rule can say
        if self.apart():
            raise NoRuleError("the nodes have nothing but constants in common, which is no pattern")

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with places of the same kind."""
        return (
            len(self.nodes),
            *((node.qualified_op, len(node.outputs)) for node in (*self.nodes, *self.made)),
            *map(tuple, (*self.args, *self.made_args, self.outputs, self.results)),
            tuple(frozenset(stated_values(node)) for node in self.made),
            tuple(leaf.is_constant for leaf in self.leaves),
        )

    def origin(self, value: Value) -> Value:
        """Look through Identity nodes, unless they are what is replaced."""
        return value if value.producer in self._inside else behind_identities(value)

    def _needed(self) -> Iterator[Value]:
        """Yield the values of the first model that the new nodes read or that replace others."""
        added = set(self.difference.added)
        read = [v for node in self.difference.added for v in node.inputs]
        for value in (*read, *(new for _, new in self.difference.outputs)):
            if value is None or value.producer in added or value.constant is not None:
                continue
            original = self.difference.originals.get(value)
            if original is None:
                raise NoRuleError(f"{value.name!r} is not in the first model")
            yield self.origin(original)

    def _path_to(self, wanted: Value) -> set[Node]:
        """Return the nodes that stay between the old ones and a value that they depend on."""
        if wanted.producer in self._inside:
            return set()
        ring = sorted(self._inside, key=lambda node: node.position)
        paths: dict[Node, set[Node]] = {node: set() for node in ring}
        for _ in range(_FARTHEST):
            above = []
            for node in ring:
                for value in map(self.origin, filter(None, node.inputs)):
                    if value is wanted:
                        return paths[node]
                    maker = value.producer
                    if maker is None or maker in paths or maker.graph is not node.graph:
                        continue
                    if _is_plain_node(maker):
                        paths[maker] = {maker, *paths[node]}
                        above.append(maker)
            ring = above
        raise NoRuleError(self._why_unread(wanted))

    def _why_unread(self, wanted: Value) -> str:
        maker = wanted.producer
        for node in self.difference.removed:
            if maker is not None and (node.qualified_op, [*node.inputs]) == (
                maker.qualified_op,
                [*maker.inputs],
            ):
                return "another node that computes the same took its place"
        return "the new nodes read a value that the old ones do not depend on"

    # -- the old nodes -----------------------------------------------------------------------------

    def _form_of(self, node: Node | None) -> str:
        """Number *node* by all that it computes from inside, as far as structure goes."""
        if node is None or node not in self._inside:
            return ""
        if node not in self._forms:
            args = [self._outline(node, slot, v) for slot, v in enumerate(inputs_of(node))]
            if is_commutative(node):
                args.sort()
            said = "\n".join([node.qualified_op, *args])  # the same in every run, unlike hash()
            self._forms[node] = blake2b(said.encode(), digest_size=8).hexdigest()
        return self._forms[node]

    def _outline(self, node: Node, slot: int, value: Value | None) -> str:
        if value is None:
            return "4 none"
        origin = self.origin(value)
        if origin.producer in self._inside:
            return f"0 node {self._form_of(origin.producer)} {origin.index}"
        if number_at(node, slot, origin) is not None:
            return "3 number"
        return "2 constant" if origin.is_constant else "1 other"

    def _visit(self, value: Value) -> None:
        node = self.origin(value).producer
        if node is None or node not in self._inside or node in self.numbered:
            return
        slots = list(enumerate(inputs_of(node)))
        if is_commutative(node):  # in an order that places of one kind share
            slots.sort(key=lambda item: self._outline(node, *item))
        for _, read in slots:
            if read is not None:
                self._visit(read)
        self.add(node, slots)

    def _known(self, value: Value) -> Operand:
        operand = self.operand_of(value)
        if operand is None:
            raise NoRuleError(self._why_unread(value))
        return operand

    # -- the new ones ------------------------------------------------------------------------------

    def _new_operand(self, value: Value | None, slot: Slot) -> Operand:
        if value is None:
            return ("none",)
        tensor = value.constant
        if tensor is not None:
            self.constants[slot] = tensor
            return ("const", *slot)
        if value.producer in self.difference.added:
            return ("new", self._new(value.producer), value.index)
        return self._known(self.difference.originals[value])

    def _new(self, node: Node) -> int:
        if node not in self._new_numbers:
            read = list(node.inputs)
            if is_commutative(node):  # constants last, so that more places are of one kind
                read.sort(key=lambda value: value is not None and value.constant is not None)
            for value in read:
                if value is not None and value.producer in self.difference.added:
                    self._new(value.producer)
            if schema_of(node) is None and not node.domain:
                version = node.graph.opset_imports.get("", 0)
                raise NoRuleError(f"opset {version} of the standard has no {node.op_type}")
            number = self._new_numbers[node] = len(self.made)
            self.made.append(node)
            args = [self._new_operand(value, (number, slot)) for slot, value in enumerate(read)]
            while args and args[-1] == ("none",):
                args.pop()
            self.made_args.append(args)
        return self._new_numbers[node]


def _check(difference: Difference) -> None:
    """Refuse what cannot be a pattern."""
    if not difference.removed:
        raise NoRuleError("nodes were added, and none there before makes what they make")
    if not difference.outputs:
        raise NoRuleError("nobody reads what they make; dpl rewrite drops such nodes by itself")
    if len(difference.removed) > _MOST_NODES:
        raise NoRuleError(f"more than {_MOST_NODES} connected nodes changed at once")
    for node in (*difference.removed, *difference.added):
        if node.subgraphs:
            raise NoRuleError(f"{node.qualified_op} {node.label!r} has a body of its own")


def _is_plain_node(node: Node) -> bool:
    """Tell whether a pattern can have *node* as a part that stays."""
    output = node.outputs[0] if node.outputs else None
    return not node.subgraphs and output is not None and output.constant is None


def values_of(node: Node) -> dict[str, object]:
    """Return the values of the attributes of *node*, those by default included.

    Raises:
        NoRuleError: No rule can say one of them.
    """
    attributes = attributes_of(node)
    for name, attribute in attributes.items():
        if attribute.ref or not isinstance(attribute.value, (int, float, str, tuple)):
            raise NoRuleError(f"{node.qualified_op} {node.label!r}: no rule can say its {name}")
    return {name: attribute.value for name, attribute in attributes.items()}


def stated_values(node: Node) -> dict[str, object]:
    """Return what the file states of a new node, but for what is so by default."""
    schema = schema_of(node)
    usual = {} if schema is None else schema.defaults
    return {
        name: attribute.value
        for name, attribute in node.attributes.items()
        if name not in usual or usual[name].value != attribute.value
    }


# The rule for places of one kind.


Key: TypeAlias = tuple[int, str]
"""An attribute of an old node, by the node's number."""


_MOST_WRITTEN = 16
"""Most elements of a constant that a rule writes down."""

_LONG = 60
"""A part of a replacement that is longer gets a line and a name."""

_FREE = frozenset({"momentum"})
"""Attributes that may be anything: they say what happens in training."""

_NO_SIZES = frozenset({"dilations", "pads", "repeats", "strides"})
"""Numbers that say how far steps go, or how much is added to a size."""

_CUTTING = {"Slice": "axes", "Split": "axis"}
"""Operators with sizes of their first input, and what their axes are called."""

_ENDLESS = 2**31 - 1
"""Exporters end a Slice here, or beyond, if it ends with the axis."""


class RuleWriter(PatternWriter[ChangedPlace]):
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

    nearness = ", 5e-06"

    def __init__(
        self,
        places: Sequence[ChangedPlace],
        schemas: SchemaLibrary,
        *,
        general: bool,
        carries: bool,
    ) -> None:
        super().__init__(places)
        self.schemas = schemas
        self.general = general
        self.known = _in_common([list(map(values_of, place.nodes)) for place in places])
        self.wanted = _in_common([list(map(stated_values, place.made)) for place in places])
        self.captured: dict[Key, str] = {}
        self.captures: dict[str, str] = {}
        self.used: set[str] = set()
        self.bound: dict[str, Operand] = {}
        self.data: set[int] = set()
        self.carried: dict[tuple[str, int], tuple[str, set[str]]] = {}
        if carries:
            self._carry()
        leaves = (_small(leaf.constant) for leaf in self.first.leaves)
        numbers = self.first.numbers.values()
        values = (one for known in self.known for one, *_ in known.values())
        self.stated = _whole(*numbers, *values, *leaves)

    # -- what the expressions may use --------------------------------------------------------------

    def is_free(self, name: str) -> bool:
        """Tell whether the replacement computes with a number."""
        return name in self.used

    def capture(self, key: Key) -> str:
        """Return the name that an attribute of the pattern is captured by."""
        if key not in self.captured:
            name = self.captured[key] = self.named(key[1])
            self.captures[name] = key[1]
            self.stands_for[name] = ("node", key[0], 0)
        return self.captured[key]

    def values_at(self, place: ChangedPlace) -> Callable[[str], Value]:
        """Return what says which value of a place a name stands for."""
        return lambda name: place.value(self.stands_for[name])

    def fitting(
        self, guesses: Iterable[str], fits: Callable[[object, Any], bool], wanted: Sequence[Any]
    ) -> str:
        """Return the first expression that gives what is wanted at every place, and use it; or "".

        What it needs becomes part of the pattern, and sizes in it are asked for.
        """
        bound = [self.values_at(place) for place in self.places]
        expression = first_fitting(guesses, self.captures, fits, [*zip(bound, wanted, strict=True)])
        if expression is None:
            return ""
        used = [self.stands_for[name] for name in expression.names]
        leaves = [operand[1] for operand in used if operand[0] == "leaf"]
        self.data |= {*leaves}
        for leaf in leaves if expression.text.startswith(("reshape", "unsqueeze")) else ():
            is_whole = expression.text.startswith("reshape")
            self._demand(leaf, range(len(self._shape(leaf) or ())) if is_whole else ())
        return expression.text

    # -- attributes of the new nodes ---------------------------------------------------------------

    def _carry(self) -> None:
        """Choose for new nodes an old one of their operator, whose attributes they keep."""
        for made, node in enumerate(self.first.made):
            alike = [
                (len(self._same(old, made)), -old)
                for old, other in enumerate(self.first.nodes)
                if ("node", old) not in self.carried and other.qualified_op == node.qualified_op
            ]
            same, old = max(alike, default=(0, 0))
            if same:
                carried = self.named("attrs"), self._same(-old, made)
                self.carried["node", -old] = self.carried["new", made] = carried

    def _same(self, old: int, made: int) -> set[str]:
        """Return the attributes that an old node and a new one have in common at every place."""
        values = [values_of(place.made[made]) for place in self.places]
        return {
            name
            for name, known in self.known[old].items()
            if all(name in v and v[name] == k for v, k in zip(values, known, strict=True))
        }

    def _new_attributes(self, made: int) -> list[str]:
        """Write the attributes of a new node."""
        word, same = self.carried.get(("new", made), ("", set()))
        wanted = {n: values for n, values in self.wanted[made].items() if n not in same}
        texts = [self._new_attribute(made, name, values) for name, values in wanted.items()]
        return [f"**{word}", *texts] if word else texts

    def _new_attribute(self, made: int, name: str, wanted: Sequence[object]) -> str:
        is_same = _is_one(wanted)
        if self.general or not is_same:
            guesses = self._attribute_guesses(name, is_same=is_same)
            if text := self.fitting(guesses, is_value, wanted):
                return f"{name}={text}"
        if not is_same:
            raise NoRuleError(f"nothing says what the attribute {name} of the new node should be")
        self._bring_shapes(self.first.made[made], self.first.made_args[made], name, wanted[0])
        return attribute_text(name, wanted[0])

    def _attribute_guesses(self, name: str, *, is_same: bool) -> Iterator[str]:
        for slot in self.first.numbers:
            if self.plain_number(*slot) is None:
                yield f"{self.name_of(('number', *slot))}.value"
        free = [(n, known) for n, known in enumerate(self.known) if ("node", n) not in self.carried]
        keys = [(n, word) for n, known in free for word in known if word == name or not is_same]
        yield from map(self.capture, sorted(keys, key=lambda key: key[1] != name))
        if name == "perm":
            turns = [self.capture(key) for key in keys if key[1] == name]
            yield from (f"[{p}[i] for i in {q}]" for p, q in permutations(turns, 2))
            yield from (f"inverse({p})" for p in turns)

    # -- constants of the new nodes ----------------------------------------------------------------

    def constant_text(self, slot: Slot) -> str:
        """Write a constant that a new node reads, or that replaces an output."""
        tensors = [place.constants[slot] for place in self.places]
        arrays = [tensor.numpy() for tensor in tensors]
        for leaf, name in enumerate(self.leaf_names):
            constants = [place.leaves[leaf].constant for place in self.places]
            if all(map(_is_equal, constants, tensors)):
                return name
        is_short = slot[0] >= 0 and arrays[0].dtype.kind in "iuf" and arrays[0].ndim <= 1
        is_short = is_short and arrays[0].size <= _MOST_WRITTEN
        is_short = is_short and all(_is_equal(tensor, tensors[0]) for tensor in tensors)
        if is_short and (arrays[0].size == 1 or not self.general):
            return self._written(slot, arrays[0])
        if text := self.fitting(self._guesses(tensors), is_like, arrays):
            return f"const({text})"
        if is_short:
            return self._written(slot, arrays[0])
        what = f"a constant of {tensors[0].dtype} {list(tensors[0].shape)}"
        raise NoRuleError(f"no expression was found for {what} of the new nodes")

    def _written(self, slot: Slot, array: Array) -> str:
        """Write a short constant down; its type is that of an operand beside it."""
        node, args = self.first.made[slot[0]], self.first.made_args[slot[0]]
        beside = [v.known_type() for v in node.inputs if v is not None and not v.is_constant]
        dtypes = {known.dtype for known in beside if known is not None}
        if array.dtype.kind in "iu" and array.dtype != np.int64 and array.dtype.name not in dtypes:
            raise NoRuleError(f"a rule cannot write a constant of {array.dtype} beside other types")
        self._bring_shapes(node, args, leaf_word(node, slot[1]), array, slot[1])
        return value_text(array.tolist(), array.dtype.type)

    def _guesses(self, tensors: Sequence[Tensor]) -> Iterator[str]:
        leaves = [("leaf", n) for n, leaf in enumerate(self.first.leaves) if leaf.is_constant]
        constants: list[Operand] = [*leaves, *(("number", *slot) for slot in self.first.numbers)]
        values = {self.name_of(operand): self.first.value(operand) for operand in constants}
        sizes = {name: v.constant.size for name, v in values.items() if v.constant is not None}
        keys = [(n, name) for n, known in enumerate(self.known) for name in known]
        perms = [self.capture(key) for key in keys if key[1] == "perm"]
        norms = [
            (*map(self.name_of, args[1:]), self.capture((number, "epsilon")))
            for number, args in enumerate(self.first.args)
            if self.first.nodes[number].qualified_op == "BatchNormalization"
            and {*args[1:]} <= {*constants}
        ]
        shapes = {tensor.shape for tensor in tensors}
        return foldings(sizes, tensors[0], perms, norms, is_shaped=len(shapes) == 1)

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
        """
        is_new = node in self.first.made
        numbers = _whole(value) - (self.stated if is_new and slot is None else set())
        is_size = slot in (() if node.domain else SIZED_BY.get(node.op_type, ()))
        if name in AXES:
            for leaf in self._leaves_above(args) if is_new and numbers - self.stated else ():
                if not self.first.leaves[leaf].is_constant:
                    self._demand(leaf, ())
            return
        if name in DTYPE_ATTRIBUTES | _NO_SIZES or not (is_size or slot is None):
            return
        numbers = {number for number in numbers if 1 < number < _ENDLESS}
        if is_size and numbers and node.op_type in _CUTTING and args[0][0] == "leaf":
            cut = parameter_of(node, _CUTTING[node.op_type])
            every = range(len(self._shape(args[0][1]) or ()))
            axes = every if cut is None else np.atleast_1d(cast("Any", cut.value)).tolist()
            self._demand(args[0][1], axes, is_ranked=False)
            return
        others = [arg for number, arg in enumerate(args) if number != slot]
        shapes = {leaf: self._shape(leaf) or [] for leaf in self._leaves_above(others)}
        missing = numbers - {size for shape in shapes.values() for size in shape if size}
        is_whole = name == "shape" and _whole(value).isdisjoint({0, -1})
        is_every = is_size and (missing or is_whole)
        for leaf, shape in shapes.items():
            axes = [axis for axis, size in enumerate(shape) if is_every or size in numbers]
            if axes and (is_size or not self.first.leaves[leaf].is_constant):
                self._demand(leaf, axes)

    def _demand(self, leaf: int, axes: Iterable[int], *, is_ranked: bool = True) -> None:
        """Demand sizes of a leaf, and its rank unless the axes are counted as those of a node."""
        shape, name = self._shape(leaf), self.leaf_names[leaf]
        if shape is not None:
            self.demand(*[f"{name}.rank == {len(shape)}"] * is_ranked)
            self.demand(*(f"{name}.shape[{a}] == {shape[a]}" for a in axes if shape[a] is not None))

    def _shape(self, leaf: int) -> list[int | None] | None:
        """Return the sizes of a leaf, None where places differ or nobody knows them."""
        types = [place.leaves[leaf].known_type() for place in self.places]
        shapes = [known.shape for known in types if known is not None and known.shape is not None]
        if len(shapes) < len(types) or len({*map(len, shapes)}) > 1:
            return None
        return [
            sizes[0] if isinstance(sizes[0], int) and _is_one(sizes) else None
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

    # -- the texts ---------------------------------------------------------------------------------

    def replacement(self) -> str:
        """Write the replacement; what it needs of the pattern is known afterwards."""
        first = self.first
        uses = Counter(chain(first.results, *first.made_args))
        lines: list[str] = []
        texts: dict[int, str] = {}

        def text_of(operand: Operand) -> str:
            match operand:
                case ("new", number, index):
                    is_single = len(first.made[number].outputs) == 1
                    return texts[number] if is_single else f"{texts[number]}[{index}]"
                case ("const", number, slot):
                    return self.constant_text((number, slot))
                case ("none",):
                    return "None"
                case ("node", _, index) if index:
                    raise NoRuleError(f"the new nodes read output {index} of an old node")
            return self.name_of(operand)

        for number, (node, args) in enumerate(zip(first.made, first.made_args, strict=True)):
            operands = [*map(text_of, args), *self._new_attributes(number)]
            text = f"{operator_text(node)}{', '.join(operands)})"
            is_last = number == len(first.made) - 1 and len(first.outputs) == 1
            is_read_once = len(node.outputs) == 1 and uses["new", number, 0] == 1
            texts[number] = text
            if not (is_read_once and (is_last or len(text) < _LONG)):
                texts[number] = self.named(f"new_{node_word(node)}")
                lines.append(f"{texts[number]} = {text}")
        lines.append(", ".join(map(text_of, first.results)))
        return "\n".join(lines) + "\n"

    def given(self, number: int) -> dict[int, str]:
        """Return the last inputs of a node that were attributes, if they are constants to keep."""
        node, args = self.first.nodes[number], self.first.args[number]
        moved = {} if node.domain else {m.slot: m.attribute for m in MOVED.get(node.op_type, ())}
        given: dict[int, str] = {}
        for place in reversed(range(len(args))):
            kept = self._kept_data(args[place])
            if place not in moved or kept is None or kept.ndim > 1:
                break
            self._bring_shapes(node, args, moved[place], kept, place)
            given[place] = f"{moved[place]}={literal(kept.tolist())}"
        return dict(sorted(given.items()))

    def _kept_data(self, operand: Operand) -> Array | None:
        """Return what a constant is at every place, if the new nodes do not read it."""
        kind, leaf, *_ = *operand, 0
        if kind != "leaf" or leaf in self.data or self.leaf_names[leaf] in self.used:
            return None
        tensors = [place.leaves[leaf].constant for place in self.places]
        first = tensors[0]
        if first is None or first.size > _MOST_WRITTEN or first.numpy().dtype.kind not in "iufb":
            return None
        return first.numpy() if all(_is_equal(tensor, first) for tensor in tensors) else None

    def leaf(self, reader: int, place: int) -> str:
        """Write a value that a node reads from outside; a small constant that is the same stays."""
        node, args = self.first.nodes[reader], self.first.args[reader]
        name, kept = self.name_of(args[place]), self._kept_data(args[place])
        if kept is not None:
            self._bring_shapes(node, args, leaf_word(node, place), kept, place)
            if kept.ndim <= 1:
                said = f"list({name}.value)" if kept.ndim else f"{name}.value"
                self.demand(f"{said} == {literal(kept.tolist())}")
        return f"const({name})" if kept is not None or args[place][1] in self.data else name

    def attributes(self, number: int) -> list[str]:
        """Write the attributes of an old node: those captured and kept, and how others pass.

        What is not named has its default, or is absent: that is so wherever a rule replaces. What a
        later opset says by an attribute is named: there are older ways to say it.
        """
        node, texts = self.first.nodes[number], []
        schema = schema_of(node)
        usual = {} if schema is None else {n: a.value for n, a in schema.defaults.items()}
        if schema is not None:
            texts = [
                attribute_text(name, said.value)
                for version in [*self.schemas.versions(node.op_type, node.domain)][-1:]
                for name in version.defaults
                if name not in schema.attributes and (said := default_of(node, name)) is not None
            ]
        word, same = self.carried.get(("node", number), ("", set()))
        for name, values in self.known[number].items():
            if self.captured.get((number, name)) not in self.used and name in same:
                continue
            is_free = self.captured.get((number, name)) in self.used or name in _FREE
            if is_free or not _is_one(values):
                texts.append(f"{name}={self.capture((number, name))}")
            elif name in KEPT_ATTRIBUTES or name not in usual or usual[name] != values[0]:
                self._bring_shapes(node, self.first.args[number], name, values[0])
                texts.append(attribute_text(name, values[0]))
        return [*texts, f"**{word}"] if word else texts

    def rule(self, name: str) -> RewriteRule:
        """Make the rule.

        Raises:
            NoRuleError: It cannot be made.
        """
        replacement = self.replacement()
        self.used = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*\b(?!=)", replacement))
        pattern = self.pattern() + "\n"
        if any(node.op_type == "Cast" for node in self.first.nodes):
            for old, new in zip(self.first.outputs, self.first.results, strict=True):
                if new[0] in {"leaf", "node"}:
                    self.demand(f"{self.name_of(new)}.dtype == {self.name_of(old)}.dtype")
        firsts = [  # the first opset that has a new operator, and takes what the node states
            min((v.since for v in versions if _takes(v, node)), default=0)
            for node in self.first.made
            for versions in [[] if node.domain else self.schemas.versions(node.op_type, "")]
        ]
        first = max(firsts, default=0)
        try:
            read, _ = read_pattern(pattern, self.schemas)
            names, captures = bound_names(read), captures_of(read)
            names -= self.captures.keys()
            self.bound = {n: o for n, o in self.stands_for.items() if n in names}
            becomes = parse_replacement(replacement, read, self.schemas)
            check_attributes(read, becomes.carried)
            rule = RewriteRule(
                name,
                read,
                becomes,
                where=tuple(Condition(text, captures) for text in self.where),
                escape="keep" if any(place.stays for place in self.places) else None,
                opsets=(first if first > FIRST_OPSET else None, None),
            )
        except PatternSyntaxError as error:
            raise NoRuleError(f"no rule can say it: {error.message}") from error
        for problem in lint(rule, self.schemas):
            if problem.severity == "error":
                raise NoRuleError(f"no rule can say it: {problem.message}")
        return rule


def _takes(schema: OpSchema, node: Node) -> bool:
    is_enough = schema.min_inputs <= len(node.inputs)
    return is_enough and node.attributes.keys() <= schema.attributes.keys()


def _in_common(places: Sequence[Sequence[Mapping[str, object]]]) -> list[dict[str, list[object]]]:
    """Turn attributes by place and node into values for all places, by node and name."""
    common = []
    for nodes in zip(*places, strict=True):
        names = [name for name in nodes[0] if all(name in node for node in nodes)]
        common.append({name: [node[name] for node in nodes] for name in names})
    return common


def _is_one(values: Sequence[object]) -> bool:
    """Tell whether all values are the same."""
    return all(value == values[0] for value in values)


def _whole(*values: object) -> set[int]:
    """Return the whole numbers in some values."""
    every = (one for value in values for one in np.ravel(np.array(value, dtype=object)))
    return {one for one in every if type(one) is int}


def _is_equal(one: Tensor | None, other: Tensor) -> bool:
    if one is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    arrays = one.numpy(), other.numpy()
    return np.array_equal(*arrays, equal_nan=arrays[0].dtype.kind == "f")


def _small(tensor: Tensor | None) -> object:
    """Return the elements of a constant that a rule may write down; None if there are more."""
    return tensor.numpy().tolist() if tensor is not None and tensor.size <= _MOST_WRITTEN else None


def numbers_of(place: ChangedPlace) -> str:
    """Write the numbers and attributes of a place, by which places of one kind differ."""
    nodes = [values_of(node) for node in (*place.nodes, *place.made)]
    constants = [(slot, _small(tensor)) for slot, tensor in place.constants.items()]
    return repr((sorted(place.numbers.items()), nodes, constants))
