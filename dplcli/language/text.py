"""The text spelling of patterns and replacements: Python expressions, parsed, never executed."""

from __future__ import annotations

import ast
import json
import math
import operator
from collections import Counter
from dataclasses import replace
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dplcli.errors import PatternSyntaxError, counted, did_you_mean
from dplcli.ir.operators import DTYPE_ATTRIBUTES, MOVED, canonical_domain
from dplcli.ir.types import DTYPE_CODES
from dplcli.language import pattern
from dplcli.language.expression import (
    TextReader,
    missing_output,
    place_of,
    read_array,
    read_attribute,
    read_dimension,
    read_dotted,
    read_literal,
    read_number,
    read_shape,
    read_text,
    read_word,
    signed,
    wrong,
)
from dplcli.language.pattern import (
    WAIVED,
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    EdgePattern,
    FunctionName,
    InputPattern,
    NotPattern,
    OpName,
    OpPattern,
    OrPattern,
    OutputPattern,
    OutputsPattern,
    RepeatPattern,
    SameShapePattern,
    TypedPattern,
    UnusedPattern,
    VariadicPattern,
    WildcardPattern,
    all_parts,
    hidden_parts,
    reachable,
    shown_parts,
    unknown_dtype,
    visible_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Dim, OpSchema, SchemaLibrary
    from dplcli.language.pattern import AttributeValue

    Spell: TypeAlias = Callable[[DFPattern], str]

    ReadWord: TypeAlias = "Callable[[PatternReader, ast.Call], DFPattern]"

    ReadMethod: TypeAlias = "Callable[[PatternReader, ast.Call, DFPattern], DFPattern]"


def wrong_part(part: DFPattern, message: str, hint: str | None = None) -> PatternSyntaxError:
    """Make the error that points at *part*, if it was read from a text."""
    if part.place is None:
        return PatternSyntaxError(message, hint=hint)
    return PatternSyntaxError(message, line=part.place.line, column=part.place.column, hint=hint)


# Refuse node patterns that fit no version of their operator.


def check_operators(pattern: DFPattern, schemas: SchemaLibrary) -> None:
    """Compare a pattern that was made in Python with the schemas of the operators it names.

    Raises:
        PatternSyntaxError: Nodes of it fit no version of their operator.
    """
    for part in all_parts(pattern):
        if isinstance(part, CallPattern):
            for op in part.op.choices:
                if not isinstance(op, OpName):
                    continue
                known = schemas.op_types(op.domain)
                if known and op.op_type not in known:
                    hint = did_you_mean(op.op_type, sorted(known))
                    raise wrong_part(part, f"unknown operator {op.op_type!r}", hint)
            check_call(part, schemas)
        elif isinstance(part, OutputPattern):
            message = missing_output(part.node.op.choices, part.index, schemas)
            if message:
                raise wrong_part(part, message)


def check_call(call: CallPattern, schemas: SchemaLibrary) -> None:
    """Compare *call* with the schemas of the operators it names.

    Raises:
        PatternSyntaxError: Too many or too few inputs, or an attribute that does not exist, or
            cannot have such a value.
    """
    for op in call.op.choices:
        if not isinstance(op, OpName):
            continue
        versions = list(schemas.versions(op.op_type, op.domain))
        inputs = {name for schema in versions for name in schema.inputs}
        attributes = schemas.attributes_of(op.op_type, op.domain)
        named = [*call.attributes, *((name, None) for name, _ in call.captures)]
        for name, value in named if attributes is not None else ():
            if name not in attributes and name not in inputs:  # type: ignore[operator]  # not None
                hint = did_you_mean(name, sorted(attributes or ()))
                raise wrong_part(call, f"{op.op_type} has no attribute {name!r}", hint)
            if name in DTYPE_ATTRIBUTES and isinstance(value, str) and value not in DTYPE_CODES:
                raise wrong_part(call, *unknown_dtype(value))
        mistakes = (wrong_kind(op, name, value, versions) for name, value in call.attributes)
        if (mistake := next(filter(None, mistakes), None)) is not None:
            raise wrong_part(call, mistake)
        if not versions:
            continue
        renamed = {item.attribute: item.name for item in MOVED.get(op.op_type, ())}
        by_name = {renamed.get(name, name) for name, _ in named} & inputs
        given = sum(not isinstance(arg, VariadicPattern) for arg in call.args)
        given += sum(any(name not in schema.attributes for schema in versions) for name in by_name)
        most = max(schema.max_inputs for schema in versions)
        fewest = min(schema.min_inputs for schema in versions)
        if given > most:
            raise wrong_part(
                call, f"{op.op_type} takes at most {counted(most, 'input')}, not {given}"
            )
        if given < fewest and not (call.rest or call.is_variadic):
            hint = "write ... as the last argument if the others do not matter"
            least = counted(fewest, "input")
            raise wrong_part(call, f"{op.op_type} takes at least {least}, not {given}", hint)


_NUMERIC = {"int": (int,), "float": (int, float)}
_LIST_OF = {"ints": (int,), "floats": (int, float), "strings": (str,)}


def wrong_kind(op: OpName, name: str, value: object, versions: Iterable[OpSchema]) -> str:
    """Say that no version of an operator has such a value of an attribute; "" if one has."""
    kinds = {schema.attributes[name] for schema in versions if name in schema.attributes}
    if not kinds or any(is_of_kind(name, value, kind) for kind in kinds):
        return ""
    return f"{op.op_type}: {name} is {' or '.join(sorted(kinds))}, not {value!r}"


def is_of_kind(name: str, value: object, kind: str) -> bool:
    """Tell whether an attribute can have a value; an element type may be given by its name."""
    if kind == "int" and isinstance(value, str):
        return name in DTYPE_ATTRIBUTES
    if kind in _NUMERIC:
        return isinstance(value, _NUMERIC[kind])
    if kind in _LIST_OF:
        items = value if isinstance(value, (tuple, list)) else (None,)
        return all(isinstance(item, _LIST_OF[kind]) for item in items)
    return kind != "string" or isinstance(value, str)


# Which names a pattern binds, and which patterns make no sense.


_DEEPEST_PATH = 16


def names_of(part: DFPattern) -> Iterator[str]:
    """Yield the names that *part* itself binds."""
    if part.name:
        yield part.name
    if isinstance(part, CallPattern):
        yield from (name for name in part.output_names if name)
        yield from (name for _, name in part.captures)


def letters_of(part: DFPattern) -> Iterator[str]:
    """Yield the dimension variables that *part* itself names."""
    if isinstance(part, TypedPattern):
        yield from (dim for dim in part.shape or () if isinstance(dim, str))


def bound_names(pattern: DFPattern) -> frozenset[str]:
    """Return every name that a match of *pattern* may bind to a value."""
    return frozenset(name for part in visible_parts(pattern) for name in names_of(part))


def captures_of(pattern: DFPattern) -> dict[str, str]:
    """Return the attribute that each captured name stands for."""
    calls = (part for part in visible_parts(pattern) if isinstance(part, CallPattern))
    return {name: attribute for call in calls for attribute, name in call.captures}


def operators_of(pattern: DFPattern) -> dict[str, OpPattern]:
    """Return each operator variable, with the operators that it may be."""
    calls = (part for part in visible_parts(pattern) if isinstance(part, CallPattern))
    return {call.op.name: call.op for call in calls if call.op.name}


def variadic_names(pattern: DFPattern) -> frozenset[str]:
    """Return every ``*name``."""
    names = (p.name for p in visible_parts(pattern) if isinstance(p, VariadicPattern))
    return frozenset(names) - {""}


def attribute_names(pattern: DFPattern) -> frozenset[str]:
    """Return every ``**name``."""
    names = (p.attributes_name for p in visible_parts(pattern) if isinstance(p, CallPattern))
    return frozenset(names) - {"", WAIVED}


def is_closed(part: NotPattern | UnusedPattern, pattern: DFPattern) -> bool:
    """Tell whether nothing inside a negation is bound outside it, in the whole *pattern*."""
    (denied,) = hidden_parts(part)
    inside = all_parts(denied)
    outside = _outside(pattern, part)
    if {id(p) for p in inside} & {id(p) for p in outside}:
        return False
    return not _shared_words(inside) & _shared_words(outside)


def _outside(pattern: DFPattern, owner: DFPattern) -> list[DFPattern]:
    """List the pattern objects reached without going from *owner* to its hidden parts."""
    return reachable([pattern], lambda part: shown_parts(part) if part is owner else part.parts)


def _shared_words(parts: Iterable[DFPattern]) -> set[str]:
    words: set[str] = set()
    for part in parts:
        words.update(names_of(part))
        words.update(f"dimension {letter}" for letter in letters_of(part))
        if isinstance(part, CallPattern):
            words |= _attribute_word(part)
            words |= {f"operator {part.op.name}"} if part.op.name else set()
    return words


def _attribute_word(call: CallPattern) -> set[str]:
    return set() if call.attributes_name in {"", WAIVED} else {f"**{call.attributes_name}"}


_IS_SOUND = "_is_sound"


def check_pattern(pattern: DFPattern) -> None:
    """Refuse a pattern that makes no sense.

    Raises:
        PatternSyntaxError: Says why, and where if the pattern was read from a text.
    """
    if _IS_SOUND in vars(pattern):  # it was checked when it was read, and does not change
        return
    parts = all_parts(pattern)
    readers = Counter(id(inner) for part in parts for inner in part.parts)
    for part in parts:
        if isinstance(part, OutputsPattern):
            _check_outputs(part, pattern)
        if isinstance(part, RepeatPattern):
            _check_step(part)
        if isinstance(part, (RepeatPattern, DominatorPattern, VariadicPattern)):
            _check_apart(part, pattern, readers)
    _check_paths(parts)
    _check_names(parts)
    _check_compared(pattern, parts)
    _check_variables(parts)
    values, attributes = bound_names(pattern), attribute_names(pattern)
    for name in sorted(values & attributes):
        part = next(p for p in parts if isinstance(p, CallPattern) and p.attributes_name == name)
        raise wrong_part(part, f"{name!r} cannot stand for attributes and for a value")
    vars(pattern)[_IS_SOUND] = True


def _check_step(chain: RepeatPattern) -> None:
    """Refuse a step that may take no node, so that its chain would never end."""
    _check_made(chain.step)
    hole = identity_of(chain.hole)
    if any(identity_of(part) == hole for part in reachable([chain.step], parts_at_value)):
        raise wrong_part(chain, f"{chain.step!r} may be no node, and a step of a chain is one")


def check_roots(pattern: DFPattern) -> None:
    """Refuse a pattern for a rule that makes no sense, or whose output no node of it makes.

    Raises:
        PatternSyntaxError: Says why, and where if the pattern was read from a text.
    """
    check_pattern(pattern)
    _check_sorts(all_parts(pattern))
    if not isinstance(pattern, OutputsPattern):
        _check_made(pattern)


def _check_made(output: DFPattern) -> None:
    """Refuse an output that no node of the pattern makes."""
    at_output = reachable([output], parts_at_value)
    if not any(isinstance(p, (CallPattern, OutputPattern, RepeatPattern)) for p in at_output):
        what = f"{output!r} is made by no node of the pattern, so it never matches"
        hint = f"write the node that makes it, or that reads it: Relu({output!r})"
        raise wrong_part(output, what, hint)


def parts_at_value(part: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of *part* that match the very value that it matches."""
    match part:
        case OrPattern() | AndPattern():
            return part.parts
        case TypedPattern() | SameShapePattern() | UnusedPattern():
            return (part.pattern,)
        case EdgePattern():
            return (part.consumer,)
        case DominatorPattern():
            return (part.child,)
        case _:
            return ()


_ANY = _NODE, _CONSTANT, _INPUT = "a node", "a constant", "an input"
_SORTS: dict[type, tuple[str, ...]] = {
    AbsentPattern: (),
    VariadicPattern: (),
    ConstantPattern: (_CONSTANT,),
    InputPattern: (_INPUT,),
    OutputPattern: (_NODE,),
}
"""What may make a value that a part matches, if not anything may."""


def _check_sorts(parts: Sequence[DFPattern]) -> None:
    """Refuse ``p & q``, and what is said of a type, if no value can be like this."""
    sorts: dict[int, frozenset[str]] = {}
    facts: dict[int, _Facts] = {}
    for part in parts:
        sides = [sorts[id(side)] for side in parts_at_value(part)]
        join = frozenset.union if isinstance(part, OrPattern) else frozenset.intersection
        sorts[id(part)] = join(*sides) if sides else _own_sorts(part)
        if isinstance(part, AndPattern):
            nodes = isinstance(part.left, CallPattern) and isinstance(part.right, CallPattern)
            if nodes and part.left is not part.right and sides == [{_NODE}] * 2:
                what = "both sides of & are nodes of their own, so no value is both"
                raise wrong_part(part, what, "write (Add | Sub)(x, y) for one of two operators")
            if not sorts[id(part)] and all(sides):
                what = f"no value is {min(sides[0])} and {min(sides[1])}"
                raise wrong_part(part, what, "write | for one or the other")
            _check_edges(part)
        facts[id(part)] = _facts_of(part, [facts[id(side)] for side in parts_at_value(part)])
    _check_types(parts, facts)


def _own_sorts(part: DFPattern) -> frozenset[str]:
    """Return what may make a value that *part*, a leaf or a node, matches.

    A Constant is a node that makes a constant, and what an Identity copies may be anything.
    """
    named = part.op.choices if isinstance(part, CallPattern) else ()
    open_names = {"Constant", "Identity"}
    if named and all(isinstance(c, OpName) and c.op_type not in open_names for c in named):
        return frozenset({_NODE})
    return frozenset(_SORTS.get(type(part), _ANY))


_Facts: TypeAlias = "dict[str, frozenset[object]]"
"""What is said of the type of a value, and what it allows."""


def _facts_of(part: DFPattern, sides: Sequence[_Facts]) -> _Facts:
    """Return what every value that *part* matches is, as far as the pattern says it of a type."""
    if isinstance(part, OrPattern):
        left, right = sides
        return {word: left[word] | right[word] for word in left.keys() & right.keys()}
    dtypes: Sequence[str] | None = None
    ranks: Sequence[int] | None = None
    shape: Sequence[Dim] | None = None
    if isinstance(part, TypedPattern):
        dtypes, ranks, shape = part.dtypes, part.ranks, part.shape
    elif isinstance(part, ConstantPattern) and part.exact is not None:
        dtypes, shape = (part.exact.dtype,), part.exact.shape
    if shape is not None:
        ranks = (len(shape),)
    sizes = [(f"sizes of dimension {n}", (d,)) for n, d in enumerate(shape or ()) if type(d) is int]
    said = [("element types", dtypes), ("ranks", ranks), *sizes]
    own: _Facts = {word: frozenset(allowed) for word, allowed in said if allowed is not None}
    return _joined([*sides, own])


def _joined(facts: Iterable[_Facts]) -> _Facts:
    """Return what all of *facts* allow."""
    joined: _Facts = {}
    for each in facts:
        joined |= {word: joined.get(word, allowed) & allowed for word, allowed in each.items()}
    return joined


def _check_types(parts: Sequence[DFPattern], facts: Mapping[int, _Facts]) -> None:
    """Refuse statements about the type of one value that exclude each other."""
    needed = reachable(parts[-1:], lambda p: () if isinstance(p, OrPattern) else shown_parts(p))
    is_needed = {id(part) for part in needed}
    of_names: dict[str, _Facts] = {}
    for part in parts:
        said = facts[id(part)]
        if not said:
            continue
        leaves = reachable([part], parts_at_value) if id(part) in is_needed else ()
        names = [leaf.name for leaf in leaves if _is_leaf(leaf)]
        if len(names) == 1 and names[0]:  # the same value elsewhere, too
            said = of_names[names[0]] = _joined([of_names.get(names[0], {}), said])
        for word, allowed in said.items():
            if not allowed:
                what = f"no value has such {word} at once: {part!r}"
                raise wrong_part(part, what, "write | for one or the other")


def _check_edges(part: AndPattern) -> None:
    """Refuse ``p & ~p.used_by(q)``: the edge stands for the node that reads ``p``."""
    for side, other in (part.parts, part.parts[::-1]):
        edge = other.pattern if isinstance(other, NotPattern) else other
        here = {identity_of(p) for p in reachable([side], parts_at_value) if p is not edge}
        while isinstance(edge, EdgePattern):
            if identity_of(edge.producer) in here:
                whole, value, reader = (repr(p).splitlines()[-1] for p in (edge, *edge.parts))
                what = f"{whole} is the node that reads {value}, and no value reads itself"
                hint = f"write {value}.not_used_by({reader})"
                raise wrong_part(other, what, hint if edge is not other else None)
            edge = edge.producer


def identity_of(part: DFPattern) -> object:
    """Return a key that is equal for parts that are bound together: leaves of one name."""
    return part.name if _is_leaf(part) and part.name else id(part)


def _check_outputs(part: OutputsPattern, pattern: DFPattern) -> None:
    """Refuse several outputs inside a pattern, outputs that nothing makes, and an output twice."""
    if part is not pattern:
        raise wrong_part(part, "several outputs can only be the whole pattern")
    for output in part.outputs:
        _check_made(output)
    if len({id(output) for output in part.outputs}) < len(part.outputs):
        raise wrong_part(part, "the outputs of a pattern are different ones")


def _check_paths(parts: Iterable[DFPattern]) -> None:
    """Refuse paths and repeated parts that are nested too deeply."""
    depths: dict[int, int] = {}
    for part in parts:
        depth = max((depths[id(inner)] for inner in part.parts), default=0)
        if isinstance(part, (DominatorPattern, RepeatPattern, VariadicPattern)):
            inner_depth = max((depths[id(inner)] for inner in hidden_parts(part)), default=-1)
            depth = max(depth, inner_depth + 1)
        if depth > _DEEPEST_PATH:
            raise wrong_part(part, "parts that are matched anew each time are nested too deeply")
        depths[id(part)] = depth


def _check_names(parts: Iterable[DFPattern]) -> None:
    """Refuse one name for two patterns; two leaves of one name are one value, though.

    Attributes of one name, of two nodes, have one value: `Concat(x, Concat(y, axis=a), axis=a)`.
    """
    first: dict[str, DFPattern] = {}
    captured: dict[str, str] = {}
    for part in parts:
        bound = part.captures if isinstance(part, CallPattern) else ()
        again = {name for attribute, name in bound if captured.get(name) == attribute}
        captured |= {name: attribute for attribute, name in bound}
        for name in names_of(part):
            if name in again:
                continue
            other = first.setdefault(name, part)
            is_same = _is_leaf(other) and _is_leaf(part)
            is_same = is_same and len({type(p) is VariadicPattern for p in (other, part)}) == 1
            if other is not part and not is_same:
                raise wrong_part(part, f"{name!r} names two patterns; use one pattern object twice")


def _check_variables(parts: Iterable[DFPattern]) -> None:
    """Refuse what stands for operators, or for several inputs, where it cannot."""
    arguments: set[int] = set()
    operators: dict[str, OpPattern] = {}
    names = {name for part in parts for name in names_of(part)}
    for part in parts:
        if not isinstance(part, CallPattern):
            continue
        arguments |= {id(arg) for arg in part.args}
        if part.is_variadic and part.rest:
            raise wrong_part(part, "write *_ instead of ... beside a *name")
        name = part.op.name
        if name and (name in names or operators.setdefault(name, part.op) != part.op):
            raise wrong_part(part, f"{name!r} stands for an operator and for something else")
    for part in parts:
        if isinstance(part, VariadicPattern) and id(part) not in arguments:
            raise wrong_part(part, f"{part!r} is not an argument of a node")


def _is_leaf(part: DFPattern) -> bool:
    leaves = (WildcardPattern, ConstantPattern, InputPattern, VariadicPattern)
    return isinstance(part, leaves)


def _check_apart(part: DFPattern, pattern: DFPattern, readers: Mapping[int, int]) -> None:
    """Refuse a name that stands both inside and outside of a path or repeated part."""
    hidden = hidden_parts(part)
    inside = reachable(hidden)
    words = _shared_words(inside)
    if all(readers[id(p)] == 1 for p in inside) and not words:
        return
    outside = _outside(pattern, part)
    shared = words & _shared_words(outside)
    objects = {id(p) for p in inside} & {id(p) for p in outside}
    if shared or objects:
        what = "the path" if isinstance(part, DominatorPattern) else "a repeated part"
        name = repr(min(shared).rpartition(" ")[2]) if shared else "one pattern"
        raise wrong_part(
            part, f"{name} is used in {what}, which is matched anew each time, and outside it"
        )


def _check_compared(pattern: DFPattern, parts: Iterable[DFPattern]) -> None:
    """Refuse to compare a shape with that of a part that is matched nowhere."""
    reached = reachable(
        [pattern], lambda p: (p.pattern,) if isinstance(p, SameShapePattern) else p.parts
    )
    matched, names = {id(part) for part in reached}, {part.name for part in reached} - {""}
    for part in parts:
        if not isinstance(part, SameShapePattern) or id(part.other) in matched:
            continue
        if part.other.name not in names:
            raise wrong_part(part, f"{part.other!r} is compared with, but matched nowhere")


# The text spelling of patterns: a subset of Python's expressions, parsed and never executed.


_FOREIGN_METHODS = frozenset({"fork_to", "dup", "has_attr", "has_ty", "optional", "match", "named"})
"""Methods of TVM's patterns, and of ours in Python, that the text form does not have."""

_IN_PYTHON = {
    "absent": "None",
    "is_call": 'call("f", x)',
    "is_const": "const(w)",
    "is_function": "function([a, b], body)(x, y)",
    "is_if": "if_(condition, then, otherwise)",
    "is_input": 'input("x")',
    "is_op": "Relu(x)",
    "rest": "*others",
    "wildcard": "x",
}
"""How the text form spells what Python's functions make."""

_SIGNS: dict[type[ast.operator], Callable[[DFPattern, DFPattern], DFPattern]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}
"""The signs that combine two patterns, as in Python."""


def parse_pattern(text: str, schemas: SchemaLibrary) -> DFPattern:
    """Read the text form of a pattern; see :func:`read_pattern`."""
    return read_pattern(text, schemas)[0]


def read_pattern(
    text: str | Sequence[ast.stmt], schemas: SchemaLibrary
) -> tuple[DFPattern, tuple[str, ...]]:
    """Read the text form of a pattern; also return the names of the lines that it does not use.

    Args:
        text: Lines ``name = expression``, then one expression, or several separated by commas; or
            these, parsed.
        schemas: The standard operators, to refuse those that do not exist.

    Raises:
        PatternSyntaxError: With line, column and, if possible, what was meant.
    """
    reader = PatternReader(schemas)
    pattern = reader.read(text)
    check_pattern(pattern)
    return pattern, reader.unused_in(pattern)


class PatternReader(TextReader[DFPattern]):
    """Reads the text of one pattern; :data:`SPELLINGS` says how words and methods are read.

    Attributes:
        assigned: What each assigned name or label stands for.
        wildcards: What each name that is not assigned stands for.
    """

    what = side = "pattern"
    result = "the value that the pattern makes"

    def __init__(self, schemas: SchemaLibrary) -> None:
        super().__init__(schemas)
        self.assigned: dict[str, DFPattern] = {}
        self.wildcards: dict[str, WildcardPattern | VariadicPattern] = {}

    def conclude(self, last: ast.expr) -> DFPattern:
        """Read the outputs."""
        if not isinstance(last, ast.Tuple):
            return self.pattern(last)
        if not last.elts:
            raise wrong(last, "the pattern has no outputs")
        outputs = tuple(self.pattern(item) for item in last.elts)
        return outputs[0] if len(outputs) == 1 else OutputsPattern(outputs, place=place_of(last))

    def unused_in(self, pattern: DFPattern) -> tuple[str, ...]:
        """Return the names of the lines that *pattern* does not use."""
        needed = {id(part) for part in all_parts(pattern)}
        used = (
            id(part.node if isinstance(part, OutputPattern) else part)
            for part in self.assigned.values()
        )
        pairs = zip(self.assigned, used, strict=True)
        unused = [name for name, part in pairs if part not in needed]
        return (*unused, *(self.operators.keys() - operators_of(pattern).keys()))

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Read a line."""
        if isinstance(target, ast.Tuple):
            self._assign_outputs(target, value)
            return
        name = self._new_name(target)
        if self._is_operator(value):
            self.operators[name] = self.op(value).named(name)
            return
        pattern = self.pattern(value)
        if name in self.wildcards:
            raise wrong(target, f"{name!r} is named inside its own pattern")
        is_nameable = not isinstance(pattern, (WildcardPattern, AbsentPattern, OutputsPattern))
        if is_nameable and not pattern.name and not name.startswith("_"):
            pattern = replace(pattern, name=name)
        self.assigned[name] = pattern

    def _assign_outputs(self, target: ast.Tuple, value: ast.expr) -> None:
        """Read ``y, mean, _ = LayerNormalization(x, scale)``."""
        blank = [isinstance(item, ast.Name) and item.id == "_" for item in target.elts]
        names = [
            "" if is_blank else self._new_name(item)
            for item, is_blank in zip(target.elts, blank, strict=True)
        ]
        repeated = {name for name in names if name and names.count(name) > 1}
        if repeated or not any(names):
            raise wrong(target, "each output needs a name of its own, or _")
        node = self.pattern(value)
        if not isinstance(node, CallPattern):
            raise wrong(value, "only a node has several outputs to name")
        self.check_output(node.op.choices, len(names) - 1, target)
        clash = next((name for name in names if name in self.wildcards), None)
        if clash is not None:
            raise wrong(target, f"{clash!r} is named inside its own pattern")
        bound = ["" if name.startswith("_") else name for name in names]
        node = replace(node, name=bound[0] or node.name, output_names=tuple(bound[1:]))
        for index, name in enumerate(names):
            if name:
                output = OutputPattern(node, index, place=node.place)
                self.assigned[name] = output if index else node

    def _new_name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise wrong(target, "only a name can be assigned")
        name = target.id
        if name in self.assigned or name in self.wildcards or name in self.operators:
            raise wrong(target, f"{name!r} has a meaning already")
        if name == "_" or name in self.op_types:
            raise wrong(target, f"{name!r} cannot be used as a name")
        return name

    def pattern(self, node: ast.expr) -> DFPattern:  # noqa: C901, PLR0911, PLR0912  # a case per kind
        """Read an expression."""
        place = place_of(node)
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value=None):
                return AbsentPattern(place=place)
            case ast.Constant(value=bool()):
                raise wrong(node, "a truth value is not a pattern")
            case ast.Constant(value=int() | float() as number):
                return ConstantPattern(value=number, place=place)
            case ast.List():
                return replace(_whole_numbers(node), place=place)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=bool())):
                raise wrong(node.operand, "a truth value is not a pattern")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return ConstantPattern(value=-number, place=place)
            case ast.UnaryOp(op=ast.Invert()):
                return replace(~self.pattern(node.operand), place=place)
            case ast.BinOp() if type(node.op) in _SIGNS:
                combine = _SIGNS[type(node.op)]
                left, right = self.pattern(node.left), self.pattern(node.right)
                return replace(combine(left, right), place=place)
            case ast.Subscript():
                return self._output(node)
            case ast.Call():
                return self._call(node)
            case _ if (operation := signed(node)) is not None:
                op_type, operands = operation
                call = pattern.is_op(op_type)(*map(self.pattern, operands))
                return replace(call, place=place)
            case _:
                has_words = isinstance(node, (ast.BoolOp, ast.UnaryOp))
                hint = "write p & q, p | q, ~p for and, or, not" if has_words else None
                raise wrong(node, f"{ast.unparse(node)!r} is not a pattern", hint)

    def _name(self, node: ast.Name) -> DFPattern:
        name = node.id
        if name == "_":
            return WildcardPattern(place=place_of(node))
        if name in self.assigned:
            return self.assigned[name]
        if name in self.op_types or name in self.operators:
            raise wrong(node, f"the operator {name!r} needs arguments", f"write {name}(…)")
        return self._leaf(node, WildcardPattern)

    def _leaf(self, node: ast.Name, kind: type[WildcardPattern | VariadicPattern]) -> DFPattern:
        """Return what stands for any value, or for any values, of a name."""
        bound = "" if node.id.startswith("_") else node.id
        leaf = kind(name=bound, place=place_of(node))
        if node.id == "_":
            return leaf
        other = self.wildcards.setdefault(node.id, leaf)
        if type(other) is not kind:
            raise wrong(node, f"{node.id!r} stands for one value and for several")
        return other

    def _argument(self, node: ast.expr) -> DFPattern:
        """Read an argument of a node, which may be ``*name`` or ``*name.each(Relu(_))``."""
        if not isinstance(node, ast.Starred):
            return self.pattern(node)
        name, element = node.value, None
        match name:
            case ast.Call(func=ast.Attribute(value=inner, attr="each"), args=[each], keywords=[]):
                name, element = inner, self.pattern(each)
            case _:
                pass
        if not isinstance(name, ast.Name):
            usage = "write *name, *_ or *name.each(Relu(_))"
            raise wrong(node, "only a name can take several inputs", usage)
        if name.id in self.op_types or name.id in self.assigned or name.id in self.operators:
            raise wrong(node, f"{name.id!r} has a meaning already")
        leaf = self._leaf(name, VariadicPattern)
        assert isinstance(leaf, VariadicPattern)  # noqa: S101  # as asked
        return leaf if element is None else replace(leaf, element=element, place=place_of(node))

    def _output(self, node: ast.Subscript) -> DFPattern:
        pattern = self.pattern(node.value)
        if not isinstance(pattern, CallPattern):
            raise wrong(node, "only a node has outputs to choose from")
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if type(index) is not int:
            raise wrong(node.slice, "an output is chosen by its number, from 0 on")
        self.check_output(pattern.op.choices, index, node)
        return OutputPattern(pattern, index, place=place_of(node))

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> DFPattern:
        _refuse_repetition(node)
        match node.func:
            case ast.Name(id=word) if word in _WORDS:
                return replace(_WORDS[word](self, node), place=place_of(node))
            case ast.Name(id="optional"):
                raise wrong(node, "optional takes an operator first", "write optional(Relu)(x)")
            case ast.Name(id="unordered"):
                what = "unordered stands in a call, as its only argument"
                raise wrong(node, what, "write Concat(unordered(a, b))")
            case ast.Name(id="call"):
                if not node.args:
                    raise wrong(node, 'write call("name", x, ...)')
                op = OpPattern((FunctionName(read_text(node.args[0])),))
                rest = ast.Call(node.func, node.args[1:], node.keywords)
                return self.call_op(op, ast.copy_location(rest, node))
            case ast.Name(id="op" | "function"):
                raise wrong(node, f"{ast.unparse(node)} needs arguments", "write op()(x, ...)")
            case ast.Call(func=ast.Name(id="optional")):
                return self._optional(node, node.func)
            case ast.Attribute(value=inner, attr=method) if method in _METHODS:
                part = _METHODS[method](self, node, self.pattern(inner))
                return replace(part, place=place_of(node))
        return self.call_op(self.op(node.func), node)

    def several(self, node: ast.expr) -> Any:  # noqa: ANN401  # a pattern or a tuple of them
        """Read a pattern, or several in brackets."""
        if isinstance(node, ast.Tuple):
            return tuple(self.pattern(item) for item in node.elts)
        return self.pattern(node)

    def exactly(self, count: int, node: ast.Call, usage: str) -> list[DFPattern]:
        """Read the arguments of a call that must have *count* of them and no keywords."""
        if len(node.args) != count or node.keywords:
            raise wrong(node, f"write {usage}")
        return [self.pattern(arg) for arg in node.args]

    # -- callees -------------------------------------------------------------------------------

    def op(self, node: ast.expr) -> OpPattern:
        """Read a callee."""
        inner = node.func if isinstance(node, ast.Call) else None
        if isinstance(inner, ast.Name) and inner.id in _IN_PYTHON:
            node = inner
        match node:
            case ast.Name():
                return self.operators.get(node.id) or self._named_op(node)
            case ast.BinOp(op=ast.BitOr()):
                return self.op(node.left) | self.op(node.right)
            case ast.Call(func=ast.Name(id="op")):
                return self._op_of_kind(node)
            case ast.Call(func=ast.Name(id="function")):
                return self._function(node)
            case ast.Call(func=ast.Name(id="call"), args=[name], keywords=[]):
                return OpPattern((FunctionName(read_text(name)),))
            case ast.Attribute(value=ast.Name() | ast.Attribute()):
                return self._foreign_op(node)
            case ast.Attribute(attr=method):
                hint = did_you_mean(method, _METHODS)
                raise wrong(node, f"patterns have no method {method!r}", hint)
            case _:
                raise wrong(node, f"{ast.unparse(node)!r} is not an operator")

    def is_callee(self, node: ast.expr) -> bool:
        """Tell whether *node* is meant for an operator, rather than for a pattern."""
        match node:
            case ast.BinOp(op=ast.BitOr()):
                return self.is_callee(node.left) and self.is_callee(node.right)
            case ast.Call(func=ast.Name(id=word)):
                return word in {"op", "function"} or (word == "call" and len(node.args) == 1)
            case _:
                is_assigned = isinstance(node, ast.Name) and node.id in self.assigned
                return isinstance(node, (ast.Name, ast.Attribute)) and not is_assigned

    def _is_operator(self, node: ast.expr) -> bool:
        """Tell whether *node* is an operator, or a choice of them, without arguments."""
        match node:
            case ast.Name():
                return node.id in self.op_types
            case ast.BinOp(op=ast.BitOr()):
                return self._is_operator(node.left) or self._is_operator(node.right)
            case ast.Attribute():
                first = node
                while isinstance(first, ast.Attribute):
                    first = first.value  # type: ignore[assignment]  # of a dotted name
                names = {*self.assigned, *self.wildcards}
                return isinstance(first, ast.Name) and first.id not in names
            case _:
                return isinstance(node, ast.Call) and ast.unparse(node.func) == "op"

    def _foreign_op(self, node: ast.Attribute) -> OpPattern:
        domain, op_type = read_dotted(node)
        owned = domain in self.assigned or domain in self.wildcards
        hint = did_you_mean(op_type, _METHODS)
        if not hint and "." not in domain and op_type.startswith(("has_", "is_")):
            hint = f"there are {', '.join(sorted(_METHODS))}; const({domain}) is a constant"
        if owned or op_type in _FOREIGN_METHODS or (hint and "." not in domain):
            raise wrong(node, f"patterns have no method {op_type!r}", hint)
        return self.foreign_op(node)

    def _named_op(self, node: ast.Name) -> OpPattern:
        if node.id in self.op_types:
            return pattern.is_op(node.id)
        if node.id in self.assigned:
            raise wrong(node, f"{node.id!r} is a pattern and takes no arguments")
        more = ["optional", "unordered", "call", "function", "op"]
        if node.id in _IN_PYTHON:
            hint = f"that is Python: in a text it is {_IN_PYTHON[node.id]}"
            raise wrong(node, f"unknown operator {node.id!r}", hint)
        raise self.unknown_op(node, [*_WORDS, *more])

    def _op_of_kind(self, node: ast.Call) -> OpPattern:
        _refuse_repetition(node)
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if len(node.args) == 1 and named.keys() == {"domain"}:
            return self._op_of_domain(read_text(node.args[0]), named["domain"], node)
        if node.args or set(named) - {"kind"}:
            usage = 'write op(), op(kind="elementwise") or op("Gelu", domain=any)'
            raise wrong(node, usage)
        kind = read_text(named["kind"]) if named else ""
        try:
            return pattern.is_op(kind=kind)
        except ValueError as error:
            raise wrong(node, str(error)) from error

    def _op_of_domain(self, op_type: str, domain: ast.expr, node: ast.Call) -> OpPattern:
        """Read ``op("Gelu", domain=any)``, or an operator of a domain that is no dotted name."""
        if isinstance(domain, ast.Name) and domain.id == "any":
            return pattern.is_op(op_type, pattern.ANY_DOMAIN)
        of = canonical_domain(read_text(domain))
        known = self.schemas.op_types(of)
        if known and op_type not in known:
            hint = did_you_mean(op_type, sorted(known))
            raise wrong(node, f"unknown operator {op_type!r}", hint)
        return pattern.is_op(op_type, of)

    def _function(self, node: ast.Call) -> OpPattern:
        usage = 'write function([a, b], body) or function(..., body, metadata={"Composite": "f"})'
        _refuse_repetition(node)
        if len(node.args) != 2 or {k.arg for k in node.keywords} - {"metadata"}:  # noqa: PLR2004  # inputs, body
            raise wrong(node, usage)
        inputs, body = node.args
        params: list[DFPattern] | None = None
        if isinstance(inputs, (ast.List, ast.Tuple)):
            params = [self.pattern(item) for item in inputs.elts]
        elif not isinstance(inputs, ast.Constant) or inputs.value is not ...:
            raise wrong(inputs, usage)
        metadata = read_literal(node.keywords[0].value) if node.keywords else {}
        if not isinstance(metadata, dict) or not all(
            isinstance(item, str) for pair in metadata.items() for item in pair
        ):
            raise wrong(node.keywords[0].value, "metadata are texts by name")
        return pattern.is_function(params, self.several(body), metadata)

    # -- operators -----------------------------------------------------------------------------

    def call_op(self, op: OpPattern, node: ast.Call, *first: DFPattern) -> CallPattern:
        """Read a call of *op*; the patterns *first* are put before its arguments."""
        args = list(node.args)
        rest = bool(args) and isinstance(args[-1], ast.Constant) and args[-1].value is ...
        if rest:
            args.pop()
        match args:
            case [ast.Call(func=ast.Name(id="unordered"), args=inner, keywords=[])]:
                is_unordered, args = True, inner
            case _:
                is_unordered = False
        patterns = (*first, *map(self._argument, args))
        attributes, captures, attributes_name = self._attributes(node.keywords)
        call = CallPattern(
            op,
            patterns,
            rest=rest,
            is_unordered=is_unordered,
            attributes=attributes,
            captures=captures,
            attributes_name=attributes_name,
            place=place_of(node),
        )
        check_call(call, self.schemas)
        return call

    def _attributes(
        self, keywords: Sequence[ast.keyword]
    ) -> tuple[tuple[tuple[str, AttributeValue], ...], tuple[tuple[str, str], ...], str]:
        """Read ``name=value`` and ``**{"a name": value}``, ``name=capture``, and ``**attrs``."""
        attributes: dict[str, AttributeValue] = {}
        captures: dict[str, str] = {}
        attributes_name = ""
        for keyword in keywords:
            pairs = [(keyword.arg, keyword.value)]
            if isinstance(keyword.value, ast.Dict) and keyword.arg is None:
                keys = [None if key is None else read_text(key) for key in keyword.value.keys]
                pairs = list(zip(keys, keyword.value.values, strict=True))
            for name, value in pairs:
                if name is None:
                    if attributes_name:
                        raise wrong(value, "the other attributes are bound to one name only")
                    attributes_name = read_word(value) or "_"
                    continue
                if name in attributes or name in captures:
                    raise wrong(value, f"the attribute {name!r} is given twice")
                if isinstance(value, ast.Name):
                    captures[name] = self._captured(value)
                else:
                    attributes[name] = read_attribute(value)
        return tuple(attributes.items()), tuple(captures.items()), attributes_name

    def _captured(self, node: ast.Name) -> str:
        """Read the name that an attribute is bound to."""
        if node.id in self.op_types or node.id.startswith("_"):
            raise wrong(node, f"{node.id!r} cannot be used as a name")
        if node.id in self.assigned or node.id in self.wildcards:
            raise wrong(node, f"{node.id!r} has a meaning already")
        if node.id in DTYPE_CODES:
            raise wrong(node, f"{node.id!r} is an element type", f'write "{node.id}"')
        return node.id

    def _optional(self, node: ast.Call, word: ast.Call) -> DFPattern:
        if len(word.args) != 1 or word.keywords or not node.args:
            raise wrong(node, "optional takes an operator, then its inputs", "optional(Relu)(x)")
        base = self.pattern(node.args[0])
        outer = ast.copy_location(ast.Call(word.args[0], node.args[1:], node.keywords), node)
        extended = self.call_op(self.op(word.args[0]), outer, base)
        return OrPattern(base, extended, place=place_of(node))


def _whole_numbers(node: ast.List) -> DFPattern:
    """Read ``[0, -1]``: a shape, axes or pads, as ONNX stores them."""
    try:
        items = ast.literal_eval(node)
    except ValueError as error:
        hint = "several outputs stand without brackets: Relu(x), Neg(y)"
        raise wrong(node, "a list stands for whole numbers", hint) from error
    if not all(type(item) is int for item in items):
        hint = f"write is_value({ast.unparse(node)}), with the dtype that it must have"
        raise wrong(node, "a list stands for whole numbers", hint)
    try:
        return pattern.is_value(np.array(items, dtype=np.int64))
    except OverflowError as error:
        raise wrong(node, "int64 cannot hold all items") from error


def _refuse_repetition(node: ast.Call) -> None:
    seen: set[str] = set()
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg in seen:
            raise wrong(keyword.value, f"{keyword.arg!r} is given twice")
        seen.add(keyword.arg or "")


# How each kind of pattern is read and written.
#
# Each word and method calls the Python function of the same name.


def _read_const(_reader: PatternReader, node: ast.Call) -> DFPattern:
    if len(node.args) > 1 or node.keywords:
        raise wrong(node, "write const() or const(name)")
    name = read_word(node.args[0]) if node.args else ""
    if name.startswith("_"):
        raise wrong(node, f"{name!r} cannot be used as a name")
    return pattern.is_const(name=name)


def _read_value(_reader: PatternReader, node: ast.Call) -> DFPattern:
    usage = 'write is_value([1.0, 2.0], dtype="float32")'
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    if len(node.args) != 1 or set(named) - {"dtype", "shape"}:
        raise wrong(node, usage)
    items = read_literal(node.args[0])
    try:
        dtype = read_text(named["dtype"]) if "dtype" in named else None
        if dtype is not None and dtype not in DTYPE_CODES:
            raise wrong(node, *unknown_dtype(dtype))
        array = read_array(items, dtype)
        if "shape" in named:
            array = array.reshape(read_shape(named["shape"]))
    except (ValueError, TypeError, OverflowError) as error:
        raise wrong(node, f"not an array: {error}", usage) from error
    return pattern.is_value(array)


def _write_constant(part: ConstantPattern, _spell: Spell) -> str:
    if part.exact is not None:
        items = literal(part.exact.items)
        shape = f", shape={list(part.exact.shape)}" if 0 in part.exact.shape else ""
        return f'is_value({items}, dtype="{part.exact.dtype}"{shape})'
    return f"const({part.name})" if part.value is None else literal(part.value)


def _read_input(_reader: PatternReader, node: ast.Call) -> DFPattern:
    if len(node.args) > 1 or node.keywords:
        raise wrong(node, 'write input() or input("name")')
    return pattern.is_input(read_text(node.args[0]) if node.args else "")


def _read_if(reader: PatternReader, node: ast.Call) -> DFPattern:
    if len(node.args) != 3 or node.keywords:  # noqa: PLR2004  # as the usage says
        raise wrong(node, "write if_(condition, then, otherwise)")
    condition = reader.pattern(node.args[0])
    return pattern.is_if(condition, *(reader.several(arg) for arg in node.args[1:]))


def _write_call(part: CallPattern, spell: Spell) -> str:
    """Write ``Conv(x, w, group=1, **attrs)`` or ``if_(c, (a, b), d)``."""
    if not part.bodies:
        items = [*_written_arguments(part, part.args, spell), *_written_attributes(part)]
        if isinstance(part.op.choices[0], FunctionName) and len(part.op.choices) == 1:
            return f"call({', '.join([json.dumps(part.op.choices[0].name), *items])})"
        return f"{part.op.spelled(spell)}({', '.join(items)})"
    texts = [spell(part.args[0])]
    for _, results in part.bodies:
        text = ", ".join(map(spell, results))
        texts.append(text if len(results) == 1 else f"({text})")
    return f"if_({', '.join(texts)})"


def _written_arguments(call: CallPattern, args: Sequence[DFPattern], spell: Spell) -> list[str]:
    texts = [spell(arg) for arg in args]
    if call.is_unordered:
        texts = [f"unordered({', '.join(texts)})"]
    return [*texts, "..."] if call.rest else texts


def _written_attributes(call: CallPattern) -> list[str]:
    bound = [f"**{call.attributes_name}"] if call.attributes_name else []
    captured = [spelled_keyword(attribute, name) for attribute, name in call.captures]
    return [*spelled_attributes(call.attributes), *captured, *bound]


def _write_several(part: VariadicPattern, spell: Spell) -> str:
    """Write ``*name`` or ``*name.each(Relu(_))``."""
    each = "" if part.element is None else f".each({spell(part.element)})"
    return f"*{part.name or '_'}{each}"


def _write_output(part: OutputPattern, spell: Spell) -> str:
    """Write ``node[1]``, or the name that the node gives to the output."""
    names = (part.node.name, *part.node.output_names)
    given = names[part.index] if 0 < part.index < len(names) else ""
    return given or f"{spell(part.node)}[{part.index}]"


def _write_pair(sign: str) -> Callable[[OrPattern | AndPattern, Spell], str]:
    return lambda part, spell: f" {sign} ".join(_operand(side, spell) for side in part.parts)


def _operand(part: DFPattern, spell: Spell) -> str:
    """Write *part*, in brackets where an operator or method beside it needs them."""
    text = spell(part)
    is_number = text[:1].isdigit() or text.startswith("-")
    has_sign = isinstance(part, (OrPattern, AndPattern, NotPattern)) and not text.isidentifier()
    return f"({text})" if is_number or has_sign else text


def _stated(method: str, read: Callable[[ast.expr], object]) -> ReadMethod:
    """Return a reader of a method about a value's type; *read* reads each argument."""

    def read_method(_reader: PatternReader, node: ast.Call, inner: DFPattern) -> DFPattern:
        if node.keywords:
            raise wrong(node, "takes no keywords")
        if not node.args and method != "has_shape":
            raise wrong(node, f"{method} takes what is allowed", 'x.has_dtype("float32")')
        args = [read(arg) for arg in node.args]
        try:
            typed: DFPattern = getattr(inner, method)(*args)
        except ValueError as error:
            raise wrong(node, str(error)) from error
        return typed

    return read_method


def _read_dtypes(reader: PatternReader, node: ast.Call, inner: DFPattern) -> DFPattern:
    for arg in node.args:
        dtype = read_text(arg)
        if dtype not in DTYPE_CODES:
            raise wrong(node, *unknown_dtype(dtype))
    return _stated("has_dtype", read_text)(reader, node, inner)


def _read_type(reader: PatternReader, node: ast.Call, inner: DFPattern) -> DFPattern:
    if len(node.args) != 1:
        raise wrong(node, 'write x.has_type("float32[n, 4]")')
    dtype = read_text(node.args[0]).partition("[")[0].strip()
    if dtype not in {"", "?", "_"} | DTYPE_CODES.keys() and dtype.isidentifier():
        raise wrong(node, *unknown_dtype(dtype))
    return _stated("has_type", read_text)(reader, node, inner)


def _write_typed(part: TypedPattern, spell: Spell) -> str:
    inner = _operand(part.pattern, spell)
    dims = ", ".join("_" if dim is None else str(dim) for dim in part.shape or ())
    if part.shape is not None and (part.dtypes or any(map(iskeyword, letters_of(part)))):
        dtype = part.dtypes[0] if part.dtypes else "?"
        return f'{inner}.has_type("{dtype}[{dims}]")'
    if part.shape is not None:
        return f"{inner}.has_shape({dims})"
    if part.ranks is not None:
        return f"{inner}.has_rank({', '.join(map(str, part.ranks))})"
    return f"{inner}.has_dtype({', '.join(json.dumps(d) for d in part.dtypes or ())})"


def _read_edge(reader: PatternReader, node: ast.Call, inner: DFPattern) -> DFPattern:
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    indices = [*node.args[1:], *named.values()]
    assert isinstance(node.func, ast.Attribute)  # noqa: S101  # it is a method
    word = node.func.attr
    if not node.args or len(indices) > 1 or set(named) - {"index"}:
        raise wrong(node, f"write a.{word}(b) or a.{word}(b, 0)")
    index = read_number(indices[0]) if indices else None
    edge: DFPattern = getattr(inner, word)(reader.pattern(node.args[0]), index)
    return edge


def _write_edge(part: EdgePattern | UnusedPattern, spell: Spell) -> str:
    if isinstance(part, UnusedPattern):
        word, value = "not_used_by", part.pattern
    else:
        word, value = "only_used_by" if part.only else "used_by", part.producer
    index = "" if part.index is None else f", {part.index}"
    return f"{_operand(value, spell)}.{word}({spell(part.consumer)}{index})"


_STEPS = "a step of several nodes: repeat(Relu(Conv(_, w)), x), or repeat(Add(Relu(h), h), h=x)"


def _read_repeat(reader: PatternReader, node: ast.Call) -> DFPattern:
    own = {k.arg: read_number(k.value) for k in node.keywords if k.arg in {"min", "max"}}
    others = [keyword for keyword in node.keywords if keyword.arg not in own]
    first, args = next(iter(node.args), None), node.args[1:]
    if first is None or (reader.is_callee(first) and not args):
        raise wrong(node, "write repeat(Cast, x, min=0, max=8)", _STEPS)
    try:
        chain = pattern.repeat("", None, min=own.get("min", 0), max=own.get("max"))
    except ValueError as error:
        raise wrong(node, str(error)) from error
    if reader.is_callee(first):
        base = reader.pattern(args[0])
        inner = ast.copy_location(ast.Call(node.func, args[1:], others), node)
        step: DFPattern = reader.call_op(reader.op(first), inner, chain.hole)
        return replace(chain, step=step, base=base)
    ends = [*args, *(keyword.value for keyword in others)]
    if len(ends) > 1 or not all(keyword.arg for keyword in others):
        raise wrong(node, "a chain of steps ends in one value", _STEPS)
    step = reader.pattern(first)
    try:
        hole = pattern.hole_of(step, *[keyword.arg or "" for keyword in others] or [""])
    except ValueError as error:
        raise wrong(first, str(error), _STEPS) from error
    base = reader.pattern(ends[0]) if ends else WildcardPattern()
    return replace(chain, step=step, hole=hole, base=base)


def _write_repeat(part: RepeatPattern, spell: Spell) -> str:
    """Write ``repeat(Cast, p, min=1, max=8)``."""
    bounds = [f"min={part.least}"] if part.least else []
    bounds += [] if part.most is None else [f"max={part.most}"]
    link, base = part.link, spell(part.base)
    if link is None:
        end = f"{part.hole.name}={base}" if part.hole.name else base
        return f"repeat({', '.join([spell(part.step), end, *bounds])})"
    args = _written_arguments(link, link.args[1:], spell)
    items = [link.op.spelled(spell), base, *args, *bounds]
    return f"repeat({', '.join([*items, *_written_attributes(link)])})"


def _read_dominated(reader: PatternReader, node: ast.Call, inner: DFPattern) -> DFPattern:
    if not node.args or len(node.args) > 2 or node.keywords:  # noqa: PLR2004  # child and path
        raise wrong(node, "write child.dominates(parent, path)")
    return inner.dominates(*(reader.pattern(arg) for arg in node.args))


class Spelling(NamedTuple):
    """How one kind of pattern is spelled.

    Attributes:
        kind: The kind.
        write: Writes a pattern of the kind; the function it is given writes its parts.
        words: The reader of each word that makes one: ``const(w)``.
        methods: The reader of each method that makes one: ``x.has_rank(4)``.
    """

    kind: type
    write: Callable[[Any, Spell], str]
    words: Mapping[str, ReadWord] = {}
    methods: Mapping[str, ReadMethod] = {}


SPELLINGS = (
    Spelling(WildcardPattern, lambda part, _spell: part.name or "_"),
    Spelling(VariadicPattern, _write_several),
    Spelling(AbsentPattern, lambda _part, _spell: "None"),
    Spelling(ConstantPattern, _write_constant, {"const": _read_const, "is_value": _read_value}),
    Spelling(
        InputPattern,
        lambda part, _spell: f"input({json.dumps(part.source) if part.source else ''})",
        {"input": _read_input},
    ),
    Spelling(CallPattern, _write_call, {"if_": _read_if}),
    Spelling(OutputPattern, _write_output),
    Spelling(OrPattern, _write_pair("|")),
    Spelling(AndPattern, _write_pair("&")),
    Spelling(NotPattern, lambda part, spell: f"~{_operand(part.pattern, spell)}"),
    Spelling(
        TypedPattern,
        _write_typed,
        methods={
            "has_dtype": _read_dtypes,
            "has_rank": _stated("has_rank", read_number),
            "has_shape": _stated("has_shape", read_dimension),
            "has_type": _read_type,
        },
    ),
    Spelling(
        SameShapePattern,
        lambda part, spell: f"same_shape({spell(part.pattern)}, {spell(part.other)})",
        {
            "same_shape": lambda reader, node: SameShapePattern(
                *reader.exactly(2, node, "same_shape(a, b)")
            )
        },
        {
            "same_shape_as": lambda reader, node, inner: SameShapePattern(
                inner, *reader.exactly(1, node, "a.same_shape_as(b)")
            )
        },
    ),
    Spelling(EdgePattern, _write_edge, methods={"used_by": _read_edge, "only_used_by": _read_edge}),
    Spelling(UnusedPattern, _write_edge, methods={"not_used_by": _read_edge}),
    Spelling(RepeatPattern, _write_repeat, {"repeat": _read_repeat}),
    Spelling(
        DominatorPattern,
        lambda part, spell: f"dominates({', '.join(map(spell, part.parts))})",
        {
            "dominates": lambda reader, node: DominatorPattern(
                *reader.exactly(3, node, "dominates(parent, path, child)")
            )
        },
        {"dominates": _read_dominated},
    ),
    Spelling(OutputsPattern, lambda part, spell: ", ".join(map(spell, part.outputs))),
)
_WORDS = {word: read for term in SPELLINGS for word, read in term.words.items()}
_METHODS = {method: read for term in SPELLINGS for method, read in term.methods.items()}
_WRITERS = {term.kind: term.write for term in SPELLINGS}


def write_part(part: DFPattern, spell: Spell) -> str:
    """Write *part*; *spell* writes its parts."""
    return _WRITERS[type(part)](part, spell)


# Write a pattern as text, its objects that are used twice on lines of their own.
#
# The text reads back as an equal pattern, which is also what "equal" means for patterns. Where an
# object has no name its line gets a label, which starts with an underscore and binds nothing.


_DEEPEST = 24
"""Levels of nesting before a part moves to a line of its own."""


def write_pattern(root: DFPattern) -> str:
    """Write the lines of *root*."""
    return _Writer(root).text()


DFPattern.write = staticmethod(write_pattern)


def own_line(part: DFPattern) -> str:
    """Return the left side of the assignment that names *part* (``conv``, ``y, mean``), or ""."""
    match part:
        case CallPattern() if part.output_names:
            return ", ".join(name or "_" for name in (part.name, *part.output_names))
        case ConstantPattern(value=None, exact=None) | WildcardPattern() | VariadicPattern():
            return ""
        case InputPattern() if part.name == part.source:
            return ""
        case _:
            return part.name


class _Writer:
    def __init__(self, root: DFPattern) -> None:
        self.root = root
        self.order = all_parts(root)
        self.uses: dict[int, int] = {}
        for part in self.order:
            for child in part.parts:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
        chains = (part for part in self.order if isinstance(part, RepeatPattern))
        self.left_out = {id(chain.link) for chain in chains}
        self.optional: dict[int, CallPattern] = {}
        for part in self.order:  # what can be written with ``optional``: x | Relu(x)
            node = part.right if isinstance(part, OrPattern) else None
            is_plain = isinstance(node, CallPattern) and not (
                node.bodies or node.is_unordered or node.op.parts or own_line(node)
            )
            if not is_plain or not isinstance(node, CallPattern) or self.uses[id(node)] > 1:
                continue
            is_named = isinstance(node.op.choices[0], OpName)
            if is_named and node.args and node.args[0] is part.parts[0]:
                self.left_out.add(id(node))
                self.optional[id(part)] = node
                self.uses[id(part.parts[0])] -= 1
        self.texts: dict[int, str] = {}
        self.depths: dict[int, int] = {}
        variables = {p.op.name: p.op for p in self.order if isinstance(p, CallPattern)}
        self.lines = [
            f"{name} = {replace(op, name='').spelled(self._spelled)}"
            for name, op in variables.items()
            if name
        ]
        self.labels = 0

    def _spelled(self, part: DFPattern) -> str:
        return self.texts[id(part)]

    def text(self) -> str:
        for part in self.order:
            if id(part) not in self.left_out:
                self._write(part)
        return "\n".join([*self.lines, self.texts[id(self.root)]])

    def _text_of(self, part: DFPattern) -> str:
        node = self.optional.get(id(part))
        if node is None:
            return write_part(part, self._spelled)
        callee = node.op.spelled(self._spelled)
        arguments = write_part(node, self._spelled).removeprefix(callee)
        return f"optional({callee.removeprefix('(').removesuffix(')')}){arguments}"

    def _write(self, part: DFPattern) -> None:
        text = self._text_of(part)
        link = part.link if isinstance(part, RepeatPattern) else None
        parts = part.parts if link is None else (part.parts[0], *link.args[1:])
        shown = [child for child in parts if id(child) not in self.left_out]
        depth = 1 + max((self.depths[id(child)] for child in shown), default=0)
        line = own_line(part)
        is_alike = isinstance(part, (AbsentPattern, OutputPattern, VariadicPattern)) or (
            _is_leaf(part) and part.name  # where two equal ones mean what one means
        )
        shared = not is_alike and self.uses.get(id(part), 0) > 1
        if line.startswith("_,") or (not line and (shared or depth > _DEEPEST)):
            self.labels += 1
            line = f"_{self.labels}{line.removeprefix('_')}"
        if not line:
            self.texts[id(part)] = text
            self.depths[id(part)] = depth
            return
        if text != "_":
            self.lines.append(f"{line} = {text}")
        self.texts[id(part)], self.depths[id(part)] = line.partition(",")[0], 0


def spelled_attributes(attributes: tuple[tuple[str, AttributeValue], ...]) -> list[str]:
    """Write ``name=value`` for each."""
    return [spelled_keyword(name, literal(value)) for name, value in attributes]


def spelled_keyword(name: str, text: str) -> str:
    """Write ``name=text``, or ``**{"a name": text}`` where the name cannot be a keyword."""
    is_keyword = name.isidentifier() and not iskeyword(name)
    return f"{name}={text}" if is_keyword else f"**{{{json.dumps(name)}: {text}}}"


def literal(value: object) -> str:
    """Write a number, a text or a list as Python does; an infinity becomes ``1e999``."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "1e999" if value > 0 else "-1e999" if value < 0 else '"nan"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
