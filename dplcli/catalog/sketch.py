"""What nodes a pattern asks for: sketches of graphs, each for one way through its alternatives."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.ir.operators import MOVED, VECTORS
from dplcli.language.pattern import (
    ANY_DOMAIN,
    STANDARD_DOMAIN,
    WAIVED,
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    EdgePattern,
    InputPattern,
    NotPattern,
    OpKind,
    OpName,
    OrPattern,
    OutputPattern,
    OutputsPattern,
    RepeatPattern,
    TypedPattern,
    VariadicPattern,
    WildcardPattern,
    all_parts,
    taken_parts,
    visible_parts,
)
from dplcli.language.text import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dplcli.ir import SchemaLibrary
    from dplcli.language.pattern import AttributeValue, Callee, DFPattern, OpPattern
    from dplcli.language.rule import Rule


# Each combination of a pattern's choices (alternatives, optional parts) is a variant. Shapes, types
# and constants that the pattern does not state are drawn (`dplcli.pipeline.sampling`).


MOST_VARIANTS = 16
"""How many variants of a pattern are made up at most."""

_MOST_CHOICES = 8
_MOST_TRIED = 1 << 8
_PARTS = 4
"""Into how many a Split cuts, where nothing says it."""

_MOST_OUTPUTS = 64
"""So many outputs of a node are made up: no operator but Split has more than a few."""

_LONGEST_WAY = 48
_KIND_EXAMPLES = {
    "": ("Relu", "Exp"),
    "elementwise": ("Relu", "Exp", "Neg"),
    "broadcast": ("Add", "Mul", "Sub"),
    "injective": ("Flatten", "Transpose"),
    "reduction": ("ReduceMax", "ReduceSum"),
    "out-fusable": ("MatMul",),
    "opaque": ("CumSum",),
}
_REQUIRED: dict[str, dict[str, AttributeValue]] = {
    "Cast": {"to": 1},
    "Concat": {"axis": 0},
}


class NoInstanceError(Exception):
    """No graph can be made up for the pattern."""


@dataclass(frozen=True)
class InstanceNode:
    """One node of an instance, by names."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue | NDArray[Any]]


@dataclass
class Instance:
    """A made-up graph.

    Attributes:
        nodes: Its nodes, in topological order.
        inputs: Element type and shape of each graph input.
        constants: The initializers.
        outputs: Names of its outputs.
    """

    nodes: list[InstanceNode] = field(default_factory=list)
    inputs: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)


def sketches(
    rule: Rule, schemas: SchemaLibrary, *, of_each: bool = False
) -> Iterator[tuple[VariantSketch, list[str]]]:
    """Yield the variants of a rule's pattern, each with the names of its outputs.

    Args:
        rule: The rule.
        schemas: The standard operators.
        of_each: Whether each choice by itself comes before the combinations.

    Raises:
        NoInstanceError: The pattern has a part for which nothing can be made up.
    """
    ways: dict[int | str, int] = {}
    for part in taken_parts(rule.pattern):
        if isinstance(part, (OrPattern, VariadicPattern)):
            ways[id(part)] = 2 if isinstance(part, OrPattern) else 3  # none, one and two inputs
        elif isinstance(part, CallPattern):
            ways[_choice_of(part)] = len(_operators(part.op))
    choices = [(key, count) for key, count in ways.items() if count > 1]
    variants: Iterator[Mapping[int | str, int]] = (
        dict(zip((key for key, _ in choices), variant, strict=False))
        for variant in itertools.product(*(range(count) for _, count in choices[:_MOST_CHOICES]))
    )
    if of_each:
        alone = [{key: way} for key, count in choices for way in range(count)]
        variants = itertools.chain(alone, variants)
    seen: list[list[InstanceNode]] = []
    for taken in itertools.islice(variants, _MOST_TRIED):
        sketch = VariantSketch(taken, schemas)
        try:
            outputs = sketch.values_of(rule.pattern)
        except RecursionError as error:
            raise NoInstanceError("the pattern is nested too deeply") from error
        if len(seen) == (2 * MOST_VARIANTS if of_each else MOST_VARIANTS):
            return
        if sketch.nodes not in seen:
            seen.append(sketch.nodes)
            yield sketch, outputs


def _operators(op: OpPattern) -> list[Callee]:
    """Return the operators to try where a pattern allows several; of a class, some."""
    operators: list[Callee] = []
    for choice in op.choices:
        examples = _KIND_EXAMPLES[choice.kind] if isinstance(choice, OpKind) else ()
        operators += [OpName(name) for name in examples] or [choice]
    return operators


def _choice_of(part: DFPattern) -> int | str:
    """Return the key of what may be chosen at *part*: a variable is one operator everywhere."""
    return part.op.name or id(part) if isinstance(part, CallPattern) else id(part)


@dataclass
class _Leaf:
    name: str
    is_constant: bool
    dtype: str = ""
    rank: int | None = None
    shape: tuple[int, ...] | None = None


@dataclass
class VariantSketch:
    """The nodes of one variant, and its leaves without shapes yet.

    Attributes:
        taken: Which choice is taken where the pattern leaves one, by the part of the pattern.
        schemas: The standard operators.
        nodes: The nodes made so far.
        leaves: What they read from outside.
        given: The constants whose numbers the pattern states.
        values: The name of the value that stands for a part.
        stand_ins: Values that take the place of wildcards.
        exact: Those of *given* whose type and shape the pattern states, too.
        open_nodes: Which nodes may have further inputs.
        assumed: By node, the attributes that it needs and the pattern does not state.
        captured: By node, the names of attributes that the pattern binds.
        rests: By node, the name that binds all its other attributes.
        ways: Which alternatives the nodes are of, in words.
        last_outputs: By node of the pattern, the last output that is chosen by its number.
    """

    taken: Mapping[int | str, int]
    schemas: SchemaLibrary
    nodes: list[InstanceNode] = field(default_factory=list)
    leaves: list[_Leaf] = field(default_factory=list)
    given: dict[str, NDArray[Any]] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    stand_ins: dict[int, str] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    open_nodes: set[int] = field(default_factory=set)
    assumed: dict[int, set[str]] = field(default_factory=dict)
    captured: dict[int, dict[str, str]] = field(default_factory=dict)
    rests: dict[int, str] = field(default_factory=dict)
    ways: set[str] = field(default_factory=set)
    last_outputs: dict[object, int] = field(default_factory=dict)

    # -- nodes ---------------------------------------------------------------------------------

    def values_of(self, pattern: DFPattern) -> list[str]:
        """Add what *pattern* needs, and return the names of its outputs."""
        for part in all_parts(pattern):
            if isinstance(part, OutputPattern):
                node = identity_of(part.node)
                self.last_outputs[node] = max(self.last_outputs.get(node, 0), part.index)
        if isinstance(pattern, OutputsPattern):
            return [self.value(output) for output in pattern.outputs]
        return [self.value(pattern)]

    def value(self, part: DFPattern) -> str:
        """Add what *part* needs, unless it is there, and return the name of its value."""
        name = self.stand_ins.get(id(part)) or self.values.get(id(part))
        if name is None:
            name = self.values[id(part)] = self._make(part)
        return name

    def _make(self, part: DFPattern) -> str:  # noqa: C901, PLR0911, PLR0912  # a case per kind
        match part:
            case WildcardPattern() | InputPattern():
                return self._leaf(part.name, is_constant=False)
            case ConstantPattern():
                return self._constant(part)
            case AbsentPattern():
                return ""
            case NotPattern():
                return self._leaf("", is_constant=False)
            case CallPattern():
                return self._call(part, self._arguments(part))[0]
            case OutputPattern():
                first = self.value(part.node)
                return first if part.index == 0 else f"{first}_{part.index}"
            case OrPattern():
                side = part.right if self.taken.get(id(part)) else part.left
                if not isinstance(side, OrPattern):  # which says of each of its own sides
                    self.ways.add(shorten(repr(side), _LONGEST_WAY, placeholder=" …"))
                return self.value(side)
            case AndPattern():
                inner = [part.left, part.right]
                inner.sort(key=lambda p: not isinstance(p, (CallPattern, ConstantPattern)))
                return self.value(inner[0])
            case TypedPattern():
                return self._typed(part)
            case EdgePattern():
                return self._joined(part.producer, part.consumer)
            case RepeatPattern():
                end = self.value(part.base)
                for _ in range(max(part.least, 1)):
                    outside = self.values
                    hole = identity_of(part.hole)
                    holes = (p for p in all_parts(part.step) if identity_of(p) == hole)
                    self.values = outside | {id(p): end for p in holes}
                    end, self.values = self.value(part.step), outside
                return end
            case DominatorPattern():
                return self._joined(part.parent, part.child)
            case OutputsPattern():
                raise NoInstanceError("several outputs inside a pattern")
            case _:  # it says more of its first part
                return self.value(part.parts[0])

    def _arguments(self, part: CallPattern) -> list[str]:
        """Add the arguments of a node; one that takes any number of inputs gets a few leaves."""
        arguments: list[str] = []
        for arg in part.args:
            if isinstance(arg, VariadicPattern):
                word = arg.name or f"more_{len(self.leaves)}"
                names = [f"{word}_{n}" for n in range(self.taken.get(id(arg), 1))]
                self.ways.add(f"*{arg.name or '_'} {'full' if names else 'empty'}")
                arguments += [
                    self._leaf(name, is_constant=False) if each is None else self._make(each)
                    for name, each in zip(names, [arg.element] * len(names), strict=True)
                ]
            else:
                arguments.append(self.value(arg))
        return arguments

    def _joined(self, upper: DFPattern, lower: DFPattern) -> str:
        """Let the wildcards of *lower* stand for *upper*, unless *lower* reads it already."""
        name = self.value(upper)
        for part in visible_parts(lower):
            if isinstance(part, WildcardPattern) and not part.name:
                self.stand_ins[id(part)] = name
        return self.value(lower)

    def _call(self, part: CallPattern, args: list[str]) -> list[str]:
        choice = _operators(part.op)[self.taken.get(_choice_of(part), 0)]
        if part.bodies or not isinstance(choice, OpName):
            raise NoInstanceError("calls of functions and bodies of nodes are not made up")
        op_type, domain = choice.op_type, choice.domain
        if domain == ANY_DOMAIN and op_type in self.schemas.op_types(STANDARD_DOMAIN):
            domain = STANDARD_DOMAIN
        if domain and not self.schemas.versions(op_type, domain):
            raise NoInstanceError(f"nothing is known of {domain}.{op_type}")
        stated = self._read_by_name(op_type, part, args)
        versions = list(self.schemas.versions(op_type, domain))
        while versions and len(args) < versions[-1].min_inputs:
            args.append(self._leaf("", is_constant=False))
        while args and not args[-1]:
            args.pop()
        attributes = dict(_REQUIRED.get(op_type, {})) | stated
        self.assumed[len(self.nodes)] = attributes.keys() - stated
        self.captured[len(self.nodes)] = dict(part.captures)
        if part.attributes_name not in {"", WAIVED}:
            self.rests[len(self.nodes)] = part.attributes_name
        count = self._count_outputs(part, op_type, args, attributes)
        if part.rest:
            self.open_nodes.add(len(self.nodes))
        is_again = any(part.name in node.outputs for node in self.nodes)  # in a later step
        name = f"made_{len(self.nodes)}" if is_again or not part.name else part.name
        outputs = [name, *(f"{name}_{index}" for index in range(1, count))]
        self.nodes.append(InstanceNode(op_type, domain, tuple(args), tuple(outputs), attributes))
        return outputs

    def _count_outputs(
        self,
        part: CallPattern,
        op_type: str,
        args: list[str],
        attributes: dict[str, AttributeValue],
    ) -> int:
        """Return how many outputs a node has: a wrong number would crash onnx's inference."""
        count = 1 + max(len(part.output_names), self.last_outputs.get(identity_of(part), 0))
        if op_type == "Split" and len(args) == 1:
            parts = attributes.setdefault("num_outputs", max(count, _PARTS))
            count = parts if isinstance(parts, int) else 0
        elif op_type == "Split" and args[1] in self.given:
            count = max(count, self.given[args[1]].size)
        if not 0 < count <= _MOST_OUTPUTS:
            raise NoInstanceError(f"a node with {count:,} outputs is not made up")
        return count

    def _read_by_name(
        self, op_type: str, part: CallPattern, args: list[str]
    ) -> dict[str, AttributeValue]:
        """Put among *args* what *part* names and the newest opset reads; return the attributes."""
        if len(_operators(part.op)) > 1:
            self.ways.add(op_type)
        stated, captured = dict(part.attributes), dict(part.captures)
        for item in MOVED.get(op_type, ()):
            for name in {item.name: "", item.attribute: ""}:
                if name in stated:
                    data = np.array(stated.pop(name), dtype=item.dtype)
                    arg = self._given("", data if op_type not in VECTORS else data.reshape(-1))
                elif name in captured:
                    arg = self._leaf(captured[name], is_constant=True)
                else:
                    continue
                args += [""] * (item.slot - len(args))
                args.insert(item.slot, arg)
        return stated

    # -- leaves --------------------------------------------------------------------------------

    def _leaf(self, name: str, *, is_constant: bool) -> str:
        label = name or f"leaf_{len(self.leaves)}"
        if not name or all(leaf.name != name for leaf in self.leaves):
            self.leaves.append(_Leaf(label, is_constant))
        return label

    def _constant(self, part: ConstantPattern) -> str:
        if part.value is None and part.exact is None:
            return self._leaf(part.name, is_constant=True)
        if part.exact is None:
            return self._given(part.name, np.array(part.value, dtype="float32"))
        name = self._given(part.name, np.array(part.exact.items, dtype=part.exact.dtype))
        self.exact.add(name)
        return name

    def _given(self, name: str, data: NDArray[Any]) -> str:
        name = name or f"number_{len(self.given)}"
        self.given[name] = data
        if data.dtype.kind == "i":
            self.exact.add(name)
        return name

    def _typed(self, part: TypedPattern) -> str:
        name = self.value(part.pattern)
        for leaf in self.leaves:
            if leaf.name != name:
                continue
            if part.dtypes:
                leaf.dtype = part.dtypes[0]
            if part.ranks:
                leaf.rank = part.ranks[0]
            if part.shape is not None:
                leaf.shape = tuple(dim if isinstance(dim, int) else 4 for dim in part.shape)
        return name
