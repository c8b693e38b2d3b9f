"""The contract of a function: all that the author of its kernel has to know."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dplcli.errors import counted
from dplcli.ir import Tensor
from dplcli.ir.model import calls_in
from dplcli.ir.operators import COMMUTATIVE, commutes, possible_attributes, schema_of
from dplcli.ir.printer import print_attribute, print_numbers, short_float
from dplcli.ir.types import GRAPH_KINDS, PLAIN_KINDS
from dplcli.keys import keys
from dplcli.language import pattern as patterns
from dplcli.language.pattern import all_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value
    from dplcli.language import PatternRule

Plain: TypeAlias = int | float | str | tuple["Plain", ...]
"""What an attribute can hold, as JSON can say it."""

# Who calls the functions of a model, and what they are given, through any number of functions.


class CallSites:
    """The calls of every function of a model.

    Args:
        model: The model.

    Attributes:
        calls: The nodes that call each function, in order of the file.
    """

    def __init__(self, model: Model) -> None:
        self.calls = calls_in(model)
        self._functions = {function.body: function for function in self.calls}

    def origins(self, call: Node, slot: int) -> list[Value | None]:
        """Return what may arrive in an input of *call*; None stands for an omitted one.

        An input of a function round the call is whatever the calls of that function give it.
        """
        origins: dict[Value | None, None] = {}
        pending = [(call, slot)]
        seen = set(pending)
        while pending:
            node, index = pending.pop()
            value = node.inputs[index] if index < len(node.inputs) else None
            outer = None if value is None else self._formal(value)
            if outer is None:
                origins[value] = None
                continue
            further = [(again, outer[1]) for again in self.calls[outer[0]]]
            pending += [place for place in further if place not in seen]
            seen.update(further)
        return list(origins)

    def _formal(self, value: Value) -> tuple[Function, int] | None:
        """Return which input of which function *value* is; None if it is none."""
        function = self._functions.get(value.graph)
        if function is None or not value.is_graph_input:
            return None
        return function, function.body.inputs.index(value)


COMPOSITE_KEY = "Composite"
TARGET_KEY = "Codegen"
"""Metadata keys of a function that a partition wrote."""

_MOST_VALUES = 16


@dataclass(frozen=True)
class PortContract:
    """An input or an output of a function.

    Attributes:
        name: Its name in the function.
        dtypes: The element types it has in the calls; those allowed, where there are no calls.
        ranks: Its ranks, likewise.
        unknown: How many of the values that it gets have no known type or rank.
        is_constant: Whether it is constant in every call; None if that is not known.
        values: The numbers that it is, each once, if it is a constant of one element in every call;
            at most sixteen.
        distinct: How many different ones there are.
    """

    name: str
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    unknown: int = 0
    is_constant: bool | None = None
    values: tuple[Plain, ...] = ()
    distinct: int = 0


@dataclass(frozen=True)
class AttributeContract:
    """An attribute that a call gives.

    Attributes:
        name: Name under which the function declares it.
        kind: ``int``, ``floats``, …, as ONNX calls it.
        node: Number of the body's node that reads it; -1 if none does, and the rule computes it.
        reads: As which of its attributes.
        is_given: Whether every call gives it.
        values: The values given, each once, in order of appearance; at most sixteen.
        distinct: How many different values there are.
        default: What the operator does without it, where the standard says so.
    """

    name: str
    kind: str
    node: int
    reads: str
    is_given: bool = field(default=True, kw_only=True)
    values: tuple[Plain, ...] = ()
    distinct: int = 0
    default: Plain | None = None


@dataclass(frozen=True)
class BodyNode:
    """One operator of a function's body.

    Attributes:
        op_type: Operator.
        domain: Its domain; "" is the standard one.
        inputs: Names of what it reads; "" is an omitted input.
        outputs: Names of what it makes.
        references: The function's attribute behind each attribute of the operator.
        attributes: The attributes that are the same in every call, as text.
    """

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    references: Mapping[str, str]
    attributes: Mapping[str, str]

    @property
    def qualified_op(self) -> str:
        """``Conv``, or ``com.microsoft.Gelu``."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class Parts:
    """The parts of a function that some other function of its rule lacks.

    Attributes:
        operators: Operators of its body.
        inputs: Inputs of it.
    """

    operators: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@keys(
    "domain name rule target doc calls opsets=named_opsets inputs attributes outputs body parts "
    "conditions variations"
)
@dataclass(frozen=True)
class FunctionContract:
    """A function that a kernel can stand for.

    Attributes:
        domain: Its domain.
        name: Its name, which is the same for the same form of a rule in every model.
        rule: The rule it was made by (TVM's *Composite*); "" for a region, which calls functions
            of rules.
        target: Who is to supply the kernel (TVM's *Codegen*).
        doc: What the rule is, for a reader; only where it is known.
        calls: How many nodes call it; None where there is no model.
        opsets: The opsets that its body is written in.
        inputs: Its inputs, in order.
        attributes: Its attributes.
        outputs: Its outputs, in order.
        body: Its operators, in order.
        parts: What sets it off from others of its rule.
        conditions: What the rule asks besides, as text; only where it is known.
        variations: What a match may have beyond this, in sentences; only without a model.
    """

    domain: str
    name: str
    rule: str
    target: str
    doc: str = field(default="", kw_only=True)
    calls: int | None
    opsets: Mapping[str, int]
    inputs: tuple[PortContract, ...]
    attributes: tuple[AttributeContract, ...]
    outputs: tuple[PortContract, ...]
    body: tuple[BodyNode, ...]
    parts: Parts = Parts()
    conditions: tuple[str, ...] = ()
    variations: tuple[str, ...] = ()

    @property
    def named_opsets(self) -> Mapping[str, int]:
        """The opsets that its body is written in; the standard one is ``ai.onnx``."""
        return {domain or "ai.onnx": number for domain, number in self.opsets.items()}

    def reader_of(self, attribute: AttributeContract) -> str:
        """``Conv.strides``, or who computes what no node reads."""
        if attribute.node < 0:
            return "computed by the rule"
        return f"{self.body[attribute.node].op_type}.{attribute.reads}"

    @property
    def origin(self) -> str:
        """``rule dnnl.conv2d_relu``, or ``region of 3 partitions``."""
        count = len(self.body)
        region = f"region of {count} partition{'' if count == 1 else 's'}"
        return f"rule {self.rule}" if self.rule else region


@keys("of model? catalogue? functions notes", "dpl.contract/1")
@dataclass(frozen=True)
class Contract:
    """The functions of a model, or of catalogues, for whoever writes kernels.

    Attributes:
        label: Name of the model, or names of the catalogues.
        functions: The functions.
        is_of_model: Whether the functions are in a file; else they are what rules may write.
        notes: By rule, what is not known of it without a model, and why.
    """

    label: str
    functions: tuple[FunctionContract, ...]
    is_of_model: bool = True
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def of(self) -> Literal["model", "catalogue"]:
        """Whose functions they are."""
        return "model" if self.is_of_model else "catalogue"

    @property
    def model(self) -> str:
        """The name of the model, if it is of one."""
        return self.label if self.is_of_model else ""

    @property
    def catalogue(self) -> str:
        """The names of catalogues, if it is of these."""
        return "" if self.is_of_model else self.label


def contract_of(model: Model, label: str) -> Contract:
    """Return the contract of every function of *model* that a partition wrote."""
    written = [
        f for f in model.functions.values() if {COMPOSITE_KEY, TARGET_KEY} & f.metadata.keys()
    ]
    sites = CallSites(model)
    functions = [_function(function, sites) for function in written]
    return Contract(label, with_parts(functions))


def with_parts(functions: Iterable[FunctionContract]) -> tuple[FunctionContract, ...]:
    """Tell the functions of each rule apart: note what not all of them have."""
    functions = list(functions)
    by_rule: dict[tuple[str, str], list[FunctionContract]] = {}
    for function in functions:
        by_rule.setdefault((function.domain, function.rule), []).append(function)
    return tuple(
        replace(function, parts=_parts(function, by_rule[function.domain, function.rule]))
        if function.rule
        else function
        for function in functions
    )


def _parts(function: FunctionContract, siblings: Sequence[FunctionContract]) -> Parts:
    operators = Counter(node.qualified_op for node in function.body)
    common = operators.copy()
    for other in siblings:
        common &= Counter(node.qualified_op for node in other.body)
    shared = set.intersection(*({port.name for port in other.inputs} for other in siblings))
    own = operators - common
    return Parts(
        tuple(own.elements()),
        tuple(port.name for port in function.inputs if port.name not in shared),
    )


def _function(function: Function, sites: CallSites) -> FunctionContract:
    body = function.body
    calls = sites.calls[function]
    return FunctionContract(
        function.domain,
        function.name,
        function.metadata.get(COMPOSITE_KEY, ""),
        function.metadata.get(TARGET_KEY, function.domain),
        len(calls),
        dict(sorted(body.opset_imports.items())),
        tuple(_input(value, slot, calls, sites) for slot, value in enumerate(body.inputs)),
        tuple(_attributes(function, calls)),
        tuple(
            _port(
                value.name, (each.outputs[n] if n < len(each.outputs) else None for each in calls)
            )
            for n, value in enumerate(body.outputs)
        ),
        tuple(body_node(node) for node in body),
    )


def _input(formal: Value, slot: int, calls: Sequence[Node], sites: CallSites) -> PortContract:
    given = [value for call in calls for value in sites.origins(call, slot)]
    constant = bool(given) and all(value is not None and value.is_constant for value in given)
    values = dict.fromkeys(_numbers(given) if constant else ())
    return replace(
        _port(formal.name, given),
        is_constant=constant if calls else None,
        values=tuple(values)[:_MOST_VALUES],
        distinct=len(values),
    )


def _numbers(given: Iterable[Value | None]) -> list[Plain]:
    """Return the numbers that constants of one element are; none if one of them has more."""
    numbers: list[Plain] = []
    for value in given:
        tensor = None if value is None else value.constant
        if tensor is None or tensor.is_external or tensor.size != 1:
            return []
        number = tensor.numpy().reshape(-1).tolist()[0]
        is_exact = tensor.dtype == "float64" and math.isfinite(number)
        numbers.append(float(number) if is_exact else _plain(number))
    return numbers


def _port(name: str, values: Iterable[Value | None]) -> PortContract:
    types = [None if value is None else value.known_type() for value in values]
    dtypes = dict.fromkeys(kind.dtype for kind in types if kind and kind.dtype)
    ranks = {len(kind.shape) for kind in types if kind and kind.shape is not None}
    unknown = sum(kind is None or kind.dtype is None or kind.shape is None for kind in types)
    return PortContract(name, tuple(dtypes), tuple(sorted(ranks)), unknown)


def _attributes(function: Function, calls: Sequence[Node]) -> Iterable[AttributeContract]:
    readers = _readers(function.body)
    for name in function.attributes:
        given = [call.attributes.get(name) for call in calls]
        values = dict.fromkeys(plain(attribute) for attribute in given if attribute is not None)
        told = (tuple(values)[:_MOST_VALUES], len(values))
        reader = readers.get(name, (next((a.kind for a in given if a is not None), ""), -1, name))
        yield AttributeContract(name, *reader, *told, is_given=None not in given)


def _readers(body: Graph) -> dict[str, tuple[str, int, str]]:
    """Describe each attribute of the function: its kind, and which nodes read it under which name.

    A node inside the body of an If or a Loop counts as that If or Loop.
    """
    numbers = {node: number for number, node in enumerate(body)}
    readers: dict[str, tuple[str, int, str]] = {}
    for graph in body.and_inner():
        for node in graph:
            outer = node
            while outer.graph is not body and outer.graph.owner is not None:
                outer = outer.graph.owner
            for reads, attribute in node.attributes.items():
                if attribute.ref:
                    readers.setdefault(attribute.ref, (attribute.kind, numbers[outer], reads))
    return readers


def body_node(node: Node) -> BodyNode:
    """Describe one node of a function's body."""
    return BodyNode(
        node.op_type,
        node.domain,
        tuple("" if value is None else value.name for value in node.inputs),
        tuple("" if value is None else value.name for value in node.outputs),
        {name: a.ref for name, a in node.attributes.items() if a.ref},
        {name: _fixed(a) for name, a in node.attributes.items() if not a.ref},
    )


def _fixed(attribute: Attribute) -> str:
    """Write an attribute of the body as text.

    A short tensor is written with its numbers: a kernel has to know them, and is not given them.
    """
    tensor = attribute.value
    text = print_attribute(attribute)
    if not isinstance(tensor, Tensor) or tensor.is_external or tensor.size > _MOST_VALUES:
        return text
    return f"{text} = {print_numbers(tensor)}"


def plain(attribute: Attribute) -> Plain:
    """Return the value of an attribute as JSON can say it; of a tensor or graph, its text."""
    if attribute.kind not in PLAIN_KINDS:
        return print_attribute(attribute)
    return _plain(attribute.value)


def _plain(value: object) -> Plain:
    match value:
        case tuple():
            return tuple(_plain(item) for item in value)
        case float():
            return short_float(value) if math.isfinite(value) else str(value)
        case int() | str():
            return value
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case _:
            return str(value)


# What can be said of a function before there is a model: from its rule and a made-up example.


Allowed = TypeVar("Allowed", str, int)


def possible_function(
    rule: PatternRule,
    function: Function,
    call: Node,
    more: Iterable[tuple[str, int, str]] = (),
) -> FunctionContract:
    """Return the contract of what *rule* writes for one form of its pattern.

    Args:
        rule: The rule.
        function: What it wrote for a made-up model.
        call: The call of it there.
        more: The functions of forms in which an operator has more inputs: it, how many, the name.
    """
    longer = [
        f"with {counted(count, 'further input')} of {op_type} it is called {name}"
        for op_type, count, name in more
    ]
    # What the pattern says of each value that it names, whatever form it takes.
    occurrences: dict[str, list[_Occurrence]] = {}
    certain = _certain_parts(rule.pattern)
    for part in all_parts(rule.pattern):
        for child in () if isinstance(part, patterns.TypedPattern) else part.parts:
            occurrence = _occurrence(child, is_certain=id(part) in certain)
            occurrences.setdefault(occurrence.name, []).append(occurrence)
    ports = {
        name: PortContract(
            name,
            _agreed([(o.dtypes, o.is_certain) for o in of_name]),
            _agreed([(o.ranks, o.is_certain) for o in of_name]),
            0,
            any(place.is_constant and place.is_certain for place in of_name)
            or all(place.is_constant for place in of_name)
            or None,
        )
        for name, of_name in occurrences.items()
        if name
    }
    return FunctionContract(
        function.domain,
        function.name,
        rule.qualified_name,
        rule.target,
        None,
        {},
        tuple(ports.get(value.name, PortContract(value.name)) for value in function.body.inputs),
        tuple(_possible_attributes(rule, function, call)),
        tuple(PortContract(value.name) for value in function.body.outputs),
        tuple(_body_node(node, rule.pattern) for node in function.body),
        conditions=tuple(_conditions(rule)),
        variations=(*dict.fromkeys(_variations(rule, function)), *longer),
        doc=rule.doc,
    )


def _body_node(node: Node, pattern: patterns.DFPattern) -> BodyNode:
    """Describe a node; the data of a constant counts only if the pattern asks for it."""
    body = body_node(node)
    if node.op_type != "Constant" or node.domain:
        return body
    value = node.attributes.get("value")
    tensor = None if value is None else value.value
    if isinstance(tensor, Tensor) and _is_fixed(tensor, pattern):
        return body
    return replace(body, attributes={"value": "as in the model"})


def _is_fixed(tensor: Tensor, pattern: patterns.DFPattern) -> bool:
    """Tell whether the pattern asks for this number, or for these very data."""
    data = tensor.numpy()
    for part in all_parts(pattern):
        if not isinstance(part, patterns.ConstantPattern):
            continue
        if part.exact is not None and part.exact.data == data.tobytes():
            return True
        if part.value is not None and data.size == 1 and data.item() == np.float32(part.value):
            return True
    return False


def _conditions(rule: PatternRule) -> Iterable[str]:
    """Say what bounds the matches besides the pattern."""
    yield from (condition.text for condition in rule.where)
    for sign, opset in zip((">=", "<="), rule.opsets, strict=True):
        if opset is not None:
            yield f"opset {sign} {opset}"
    if rule.check is not None:
        yield "a Python function accepts it"


def _variations(rule: PatternRule, function: Function) -> Iterable[str]:
    """Say what a match may have beyond the made-up one."""
    for node in function.body:
        if (
            not node.domain
            and node.op_type in COMMUTATIVE
            and not commutes(node.domain, node.op_type, len(node.inputs))
        ):
            yield f"the operands of {node.op_type} may be swapped"
    for part in all_parts(rule.pattern):
        match part:
            case patterns.RepeatPattern():
                what = repr(part.step) if part.link is None else part.link.op.alternatives(repr)
                yield f"{what} may be repeated"
            case patterns.DominatorPattern():
                yield "the region may have further operators"
            case patterns.CallPattern():
                if part.rest or part.is_variadic:
                    op = part.op.alternatives(repr)
                    yield f"{op} may have further inputs, which the function has, too"
                kinds = [
                    choice for choice in part.op.choices if isinstance(choice, patterns.OpKind)
                ]
                yield from (f"any operator may stand for {kind.spelled()}" for kind in kinds)
            case _:
                pass


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


def _occurrence(part: patterns.DFPattern, *, is_certain: bool) -> _Occurrence:
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    while isinstance(part, patterns.TypedPattern) and not part.name:
        dtypes = part.dtypes or dtypes
        ranks = part.ranks or (ranks if part.shape is None else (len(part.shape),))
        part = part.pattern
    return _Occurrence(
        part.name, dtypes, ranks, isinstance(part, patterns.ConstantPattern), is_certain
    )


def _certain_parts(pattern: patterns.DFPattern) -> set[int]:
    """Return the parts that every form of the pattern has."""
    certain: set[int] = set()
    pending = [pattern]
    while pending:
        part = pending.pop()
        if isinstance(part, (patterns.OrPattern, patterns.NotPattern)) or id(part) in certain:
            continue
        certain.add(id(part))
        pending += part.parts[:1] if isinstance(part, patterns.UnusedPattern) else part.parts
    return certain


def _agreed(said: Sequence[tuple[tuple[Allowed, ...], bool]]) -> tuple[Allowed, ...]:
    """Return what a certain place allows, else what all places allow together; () is everything."""
    certain = next((allowed for allowed, is_certain in said if allowed and is_certain), ())
    if certain or not all(allowed for allowed, _ in said):
        return certain
    return tuple(dict.fromkeys(one for allowed, _ in said for one in allowed))


def _possible_attributes(
    rule: PatternRule, function: Function, call: Node
) -> Iterable[AttributeContract]:
    """List every attribute that the operators of the body can have, under unique names."""
    fixed = _fixed_attributes(rule.pattern)
    taken = set(rule.computed)
    for name in rule.computed:
        yield AttributeContract(name, call.attributes[name].kind, -1, name)
    for number, node in enumerate(function.body):
        schema = None if node.op_type == "Constant" else schema_of(node)  # it is given none
        if schema is None:
            continue
        for reads in sorted(possible_attributes(node).union(schema.attributes)):
            name, count = reads, 0
            while name in taken:
                count += 1
                name = f"{reads}_{count}"
            taken.add(name)
            kind = schema.attributes.get(reads, "graph")
            if kind in GRAPH_KINDS:
                continue
            stated = node.attributes.get(reads)
            given = None if stated is None else call.attributes.get(stated.ref)
            fixing = given if (node.op_type, reads) in fixed else None
            values = () if fixing is None else (plain(fixing),)
            default = schema.defaults.get(reads)
            told = (values, len(values), None if default is None else plain(default))
            is_given = reads in schema.required_attributes
            yield AttributeContract(name, kind, number, reads, *told, is_given=is_given)


def _fixed_attributes(pattern: patterns.DFPattern) -> set[tuple[str, str]]:
    """Return the attributes that the pattern states wherever it has their operator."""
    stated: dict[str, list[set[str]]] = {}
    for part in all_parts(pattern):
        for choice in part.op.choices if isinstance(part, patterns.CallPattern) else ():
            if isinstance(choice, patterns.OpName) and isinstance(part, patterns.CallPattern):
                stated.setdefault(choice.op_type, []).append({name for name, _ in part.attributes})
    return {(op, name) for op, names in stated.items() for name in set.intersection(*names)}
