"""Which names a pattern binds, and which patterns make no sense."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from dplcli.dpl.callee import FunctionPattern
from dplcli.dpl.pattern import (
    WAIVED,
    AbsentPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    InputPattern,
    NotPattern,
    OutputsPattern,
    RepeatPattern,
    SameShapePattern,
    TypedPattern,
    WildcardPattern,
)
from dplcli.dpl.spelling import parts_first
from dplcli.errors import PatternSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dplcli.dpl.pattern import DFPattern


_DEEPEST_PATH = 16


def all_parts(pattern: DFPattern) -> list[DFPattern]:
    """List every pattern object once, parts before wholes, left to right."""
    return cast("list[DFPattern]", parts_first(pattern))


def visible_parts(pattern: DFPattern) -> list[DFPattern]:
    """List the pattern objects that a match as a whole binds, those in ``~`` and so on left out."""
    return _reachable([pattern])


def hidden_parts(part: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of *part* whose bindings do not leave it."""
    match part:
        case NotPattern():
            return (part.pattern,)
        case RepeatPattern():
            return part.step.args[1:]
        case DominatorPattern():
            return (part.path,)
        case _:
            return ()


def _shown_parts(part: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of *part* whose bindings leave it."""
    match part:
        case NotPattern():
            return ()
        case RepeatPattern():
            return (part.base,)
        case DominatorPattern():
            return (part.parent, part.child)
        case _:
            return part.parts


def _reachable(roots: Iterable[DFPattern]) -> list[DFPattern]:
    found: dict[int, DFPattern] = {}
    pending = list(roots)
    while pending:
        part = pending.pop()
        if id(part) in found:
            continue
        found[id(part)] = part
        pending.extend(_shown_parts(part))
    return list(found.values())


def names_of(part: DFPattern) -> Iterator[str]:
    """Yield the names that *part* itself binds."""
    if part.name:
        yield part.name
    if isinstance(part, CallPattern):
        yield from (name for name in part.output_names if name)


def bound_names(pattern: DFPattern) -> frozenset[str]:
    """Return every name that a match of *pattern* may bind to a value."""
    return frozenset(name for part in visible_parts(pattern) for name in names_of(part))


def attribute_names(pattern: DFPattern) -> frozenset[str]:
    """Return every ``**name``."""
    names = (p.attributes_name for p in visible_parts(pattern) if isinstance(p, CallPattern))
    return frozenset(names) - {"", WAIVED}


def is_closed(part: NotPattern, pattern: DFPattern) -> bool:
    """Tell whether nothing inside a negation is bound outside it, in the whole *pattern*."""
    inside = all_parts(part.pattern)
    outside = _outside(pattern, part)
    if {id(p) for p in inside} & {id(p) for p in outside}:
        return False
    return not _shared_words(inside) & _shared_words(outside)


def _outside(pattern: DFPattern, owner: DFPattern) -> list[DFPattern]:
    """List the pattern objects reached without going from *owner* to its hidden parts."""
    found: dict[int, DFPattern] = {}
    pending = [pattern]
    while pending:
        part = pending.pop()
        if id(part) not in found:
            found[id(part)] = part
            pending.extend(_shown_parts(part) if part is owner else part.parts)
    return list(found.values())


def _shared_words(parts: Iterable[DFPattern]) -> set[str]:
    words: set[str] = set()
    for part in parts:
        words.update(names_of(part))
        if isinstance(part, TypedPattern):
            words.update(f"dimension {dim}" for dim in part.shape or () if isinstance(dim, str))
        if isinstance(part, CallPattern):
            words |= _attribute_word(part)
    return words


def _attribute_word(call: CallPattern) -> set[str]:
    return set() if call.attributes_name in {"", WAIVED} else {f"**{call.attributes_name}"}


def check_pattern(pattern: DFPattern) -> None:
    """Refuse a pattern that cannot mean anything.

    Raises:
        PatternSyntaxError: Says why, and where if the pattern was read from a text.
    """
    parts = all_parts(pattern)
    readers = Counter(id(inner) for part in parts for inner in part.parts)
    for part in parts:
        if isinstance(part, OutputsPattern) and part is not pattern:
            raise _wrong(part, "several outputs can only be the whole pattern")
        if isinstance(part, OutputsPattern):
            _check_outputs(part)
        if isinstance(part, RepeatPattern):
            _check_repeat(part)
        if isinstance(part, (RepeatPattern, DominatorPattern)):
            _check_apart(part, pattern, readers)
    _check_paths(parts)
    _check_names(parts)
    _check_compared(pattern, parts)
    values, attributes = bound_names(pattern), attribute_names(pattern)
    for name in sorted(values & attributes):
        part = next(p for p in parts if isinstance(p, CallPattern) and p.attributes_name == name)
        raise _wrong(part, f"{name!r} cannot stand for attributes and for a value")


def _check_outputs(part: OutputsPattern) -> None:
    """Refuse outputs that no node of the pattern makes, and one output twice."""
    for output in part.outputs:
        if _is_leaf(output) or isinstance(output, AbsentPattern):
            raise _wrong(output, f"the output {output!r} is made by no node of the pattern")
    if len({id(output) for output in part.outputs}) < len(part.outputs):
        raise _wrong(part, "the outputs of a pattern are different ones")


def _check_paths(parts: Iterable[DFPattern]) -> None:
    """Refuse paths inside paths, and repeated parts inside repeated parts, without end."""
    depths: dict[int, int] = {}
    for part in parts:
        depth = max((depths[id(inner)] for inner in part.parts), default=0)
        if isinstance(part, (DominatorPattern, RepeatPattern)):
            inner_depth = max((depths[id(inner)] for inner in hidden_parts(part)), default=-1)
            depth = max(depth, inner_depth + 1)
        if depth > _DEEPEST_PATH:
            raise _wrong(part, "parts that are matched anew each time are nested too deeply")
        depths[id(part)] = depth


def _check_names(parts: Iterable[DFPattern]) -> None:
    """Refuse one name for two things, unless both are leaves: those are then one value."""
    first: dict[str, DFPattern] = {}
    for part in parts:
        for name in names_of(part):
            other = first.setdefault(name, part)
            if other is not part and not (_is_leaf(other) and _is_leaf(part)):
                raise _wrong(part, f"{name!r} names two patterns; use one pattern object twice")


def _is_leaf(part: DFPattern) -> bool:
    return isinstance(part, (WildcardPattern, ConstantPattern, InputPattern))


def _check_repeat(part: RepeatPattern) -> None:
    if any(isinstance(choice, FunctionPattern) for choice in part.step.op.choices):
        raise _wrong(part, "the nodes of a chain are named by operator, not by function body")


def _check_apart(part: DFPattern, pattern: DFPattern, readers: Mapping[int, int]) -> None:
    """Refuse names in a part that is matched anew each time, and anywhere else."""
    hidden = hidden_parts(part)
    inside = _reachable(hidden)
    words = _shared_words(inside)
    if isinstance(part, RepeatPattern):
        words |= _attribute_word(part.step)
    if all(readers[id(p)] == 1 for p in inside) and not words:
        return
    outside = _outside(pattern, part)
    shared = words & _shared_words(outside)
    objects = {id(p) for p in inside} & {id(p) for p in outside}
    if shared or objects:
        what = "the path" if isinstance(part, DominatorPattern) else "a repeated part"
        name = repr(min(shared).removeprefix("dimension ")) if shared else "one pattern"
        raise _wrong(
            part, f"{name} is used in {what}, which is matched anew each time, and outside it"
        )


def _check_compared(pattern: DFPattern, parts: Iterable[DFPattern]) -> None:
    """Refuse to compare a shape with that of something that is matched nowhere."""
    matched: set[int] = set()
    pending: list[DFPattern] = [pattern]
    while pending:
        part = pending.pop()
        if id(part) in matched:
            continue
        matched.add(id(part))
        inner = (part.pattern,) if isinstance(part, SameShapePattern) else part.parts
        pending.extend(inner)
    names = {p.name for p in parts if id(p) in matched} - {""}
    for part in parts:
        if isinstance(part, SameShapePattern) and id(part.other) not in matched:
            if part.other.name in names:
                continue
            raise _wrong(part, f"{part.other!r} is compared with, but matched nowhere")


def _wrong(part: DFPattern, message: str) -> PatternSyntaxError:
    if part.place is None:
        return PatternSyntaxError(message)
    return PatternSyntaxError(message, line=part.place.line, column=part.place.column)
