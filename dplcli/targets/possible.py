"""What can be said of a function before there is a model: from its rule and a made-up example."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from dplcli.dpl.callee import OpKind, OpName
from dplcli.dpl.pattern import (
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    NotPattern,
    OrPattern,
    RepeatPattern,
    TypedPattern,
)
from dplcli.dpl.scoping import all_parts
from dplcli.ir import Tensor
from dplcli.ir.operators import COMMUTATIVE, schema_of
from dplcli.targets.contract import (
    AttributeContract,
    BodyNode,
    FunctionContract,
    PortContract,
    body_node,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl import PatternRule
    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Function, Node, OpSchema

Allowed = TypeVar("Allowed", str, int)

_GRAPHS = frozenset({"graph", "graphs"})


def possible_function(rule: PatternRule, function: Function, call: Node) -> FunctionContract:
    """Return the contract of what *rule* writes for one form of its pattern.

    Args:
        rule: The rule.
        function: What it wrote for a made-up model.
        call: The call of it there.
    """
    known = _known_ports(rule.pattern)
    inputs = [value.name for value in function.body.inputs]
    outputs = [value.name for value in function.body.outputs]
    return FunctionContract(
        function.domain,
        rule.name,
        rule.qualified_name,
        rule.target,
        None,
        {},
        tuple(known.get(name, PortContract(name)) for name in inputs),
        tuple(_attributes(rule, function, call)),
        tuple(PortContract(name) for name in outputs),
        tuple(_body_node(node, rule.pattern) for node in function.body),
        conditions=tuple(_conditions(rule)),
        variations=tuple(dict.fromkeys(_variations(rule, function))),
        doc=rule.doc,
    )


def _body_node(node: Node, pattern: DFPattern) -> BodyNode:
    """Describe a node; of a constant that was made up, too, nothing is known."""
    found = body_node(node)
    if node.op_type != "Constant" or node.domain:
        return found
    value = node.attributes.get("value")
    tensor = None if value is None else value.value
    if isinstance(tensor, Tensor) and _is_fixed(tensor, pattern):
        return found
    return replace(found, attributes={"value": "as in the model"})


def _is_fixed(tensor: Tensor, pattern: DFPattern) -> bool:
    """Tell whether the pattern asks for the number, or for the very data."""
    data = tensor.numpy()
    for part in all_parts(pattern):
        if not isinstance(part, ConstantPattern):
            continue
        if part.exact is not None and part.exact.data == data.tobytes():
            return True
        if part.value is not None and data.size == 1 and data.item() == np.float32(part.value):
            return True
    return False


def _conditions(rule: PatternRule) -> Iterable[str]:
    """Say what bounds the matches besides the pattern."""
    yield from (condition.text for condition in rule.where)
    first, last = rule.opsets
    if first is not None:
        yield f"opset >= {first}"
    if last is not None:
        yield f"opset <= {last}"
    if rule.check is not None:
        yield "a Python function accepts it"


def _variations(rule: PatternRule, function: Function) -> Iterable[str]:
    """Say what a match may have beyond the made-up one."""
    for node in function.body:
        if not node.domain and node.op_type in COMMUTATIVE:
            yield f"the operands of {node.op_type} may be swapped"
    for part in all_parts(rule.pattern):
        yield from _variations_of(part)


def _variations_of(part: DFPattern) -> Iterable[str]:
    match part:
        case RepeatPattern():
            yield f"{part.step.op.alternatives(repr)} may be repeated"
        case DominatorPattern():
            yield "the region may have further operators"
        case CallPattern():
            if part.rest:
                op = part.op.alternatives(repr)
                yield f"{op} may have further inputs, which the function has, too"
            kinds = [choice for choice in part.op.choices if isinstance(choice, OpKind)]
            yield from (f"any operator may stand for {kind.spelled()}" for kind in kinds)
        case _:
            return


def _known_ports(pattern: DFPattern) -> Mapping[str, PortContract]:
    """Return what the pattern says of each value that it names, whatever form it takes."""
    found: dict[str, list[_Occurrence]] = {}
    certain = _certain_parts(pattern)
    for part in all_parts(pattern):
        for child in () if isinstance(part, TypedPattern) else part.parts:
            occurrence = _occurrence(child, is_certain=id(part) in certain)
            found.setdefault(occurrence.name, []).append(occurrence)
    return {
        name: PortContract(
            name,
            _agreed([(o.dtypes, o.is_certain) for o in of_name]),
            _agreed([(o.ranks, o.is_certain) for o in of_name]),
            0,
            _is_constant(of_name) or None,
        )
        for name, of_name in found.items()
        if name
    }


class _Occurrence(NamedTuple):
    """A place where a pattern reads a value, and what it says of it there.

    Attributes:
        name: The value's name, or "".
        dtypes: The element types allowed; empty if all are.
        ranks: The ranks allowed; empty if all are.
        is_constant: Whether it must be constant.
        is_certain: Whether the place is in every form of the pattern.
    """

    name: str
    dtypes: tuple[str, ...]
    ranks: tuple[int, ...]
    is_constant: bool
    is_certain: bool


def _occurrence(part: DFPattern, *, is_certain: bool) -> _Occurrence:
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    while isinstance(part, TypedPattern) and not part.name:
        dtypes = part.dtypes or dtypes
        ranks = part.ranks or (ranks if part.shape is None else (len(part.shape),))
        part = part.pattern
    return _Occurrence(part.name, dtypes, ranks, isinstance(part, ConstantPattern), is_certain)


def _certain_parts(pattern: DFPattern) -> set[int]:
    """Return the parts that every form of the pattern has."""
    found: set[int] = set()
    pending = [pattern]
    while pending:
        part = pending.pop()
        if isinstance(part, (OrPattern, NotPattern)) or id(part) in found:
            continue
        found.add(id(part))
        pending += part.parts
    return found


def _agreed(said: Sequence[tuple[tuple[Allowed, ...], bool]]) -> tuple[Allowed, ...]:
    """Return what a certain place allows, else what all places together do; () is everything."""
    certain = next((allowed for allowed, is_certain in said if allowed and is_certain), ())
    if certain or not all(allowed for allowed, _ in said):
        return certain
    return tuple(dict.fromkeys(one for allowed, _ in said for one in allowed))


def _is_constant(places: Iterable[_Occurrence]) -> bool:
    places = list(places)
    return any(place.is_constant and place.is_certain for place in places) or all(
        place.is_constant for place in places
    )


def _attributes(rule: PatternRule, function: Function, call: Node) -> Iterable[AttributeContract]:
    """List every attribute that the operators of the body can have, under unique names."""
    fixed = _fixed_attributes(rule.pattern)
    taken: set[str] = set()
    for number, node, schema in _known_operators(function):
        for reads, kind in sorted(schema.attributes.items()):
            if kind in _GRAPHS:
                continue
            name = _unique(reads, taken)
            stated = node.attributes.get(reads)
            given = None if stated is None else call.attributes.get(stated.ref)
            is_fixed = given is not None and (node.op_type, reads) in fixed
            default = schema.defaults.get(reads)
            yield AttributeContract(
                name,
                kind,
                number,
                reads,
                (plain(given),) if is_fixed and given is not None else (),
                int(is_fixed),
                None if default is None else plain(default),
                is_given=reads in schema.required_attributes,
            )


def _known_operators(function: Function) -> Iterable[tuple[int, Node, OpSchema]]:
    """Return the operators of a body with their schemas; constants have no attributes to give."""
    for number, node in enumerate(function.body):
        schema = schema_of(node)
        if schema is not None and node.op_type != "Constant":
            yield number, node, schema


def _unique(name: str, taken: set[str]) -> str:
    """Return *name*, or the first of ``name_1``, ``name_2``, … that is free, and take it."""
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


def _fixed_attributes(pattern: DFPattern) -> set[tuple[str, str]]:
    """Return the attributes that the pattern asks to be something wherever it has the operator."""
    stated: dict[str, list[set[str]]] = {}
    for part in all_parts(pattern):
        for choice in part.op.choices if isinstance(part, CallPattern) else ():
            if isinstance(choice, OpName) and isinstance(part, CallPattern):
                stated.setdefault(choice.op_type, []).append({name for name, _ in part.attributes})
    return {(op, name) for op, names in stated.items() for name in set.intersection(*names)}
