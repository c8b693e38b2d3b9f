"""Compile a pattern into steps: one per pattern object, in a single iterative walk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from dplcli.dpl.call_steps import CallStep, OutputStep
from dplcli.dpl.pattern import (
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    InputPattern,
    OrPattern,
    OutputPattern,
    TypedPattern,
    WildcardPattern,
)
from dplcli.dpl.steps import (
    AbsentStep,
    AndStep,
    AnyStep,
    ConstantStep,
    InputStep,
    LeafStep,
    OrStep,
    SharedStep,
    Step,
    TypedStep,
    TypeStep,
)

if TYPE_CHECKING:
    from dplcli.dpl.pattern import DFPattern


@dataclass(frozen=True)
class Program:
    """A compiled pattern.

    Attributes:
        root: The step for the whole pattern.
        slot_count: How many slots a search needs.
        names: Each name in the pattern, with the slots it may be bound in.
        calls: The step of each node pattern.
        leaves: The step of each leaf that binds a value.
    """

    root: Step
    slot_count: int
    names: tuple[tuple[str, tuple[int, ...]], ...]
    calls: tuple[CallStep, ...]
    leaves: tuple[LeafStep, ...]

    @cached_property
    def constant_slots(self) -> tuple[int, ...]:
        """The slots of constants that no other leaf shares."""
        others = {leaf.slot for leaf in self.leaves if not isinstance(leaf, ConstantStep)}
        slots = {leaf.slot for leaf in self.leaves if isinstance(leaf, ConstantStep)}
        return tuple(sorted(slots - others))

    @cached_property
    def other_slots(self) -> tuple[int, ...]:
        """The slots of the leaves that are not constants."""
        return tuple(leaf.slot for leaf in self.leaves if not isinstance(leaf, ConstantStep))


def children(pattern: DFPattern) -> tuple[DFPattern, ...]:
    """Return the patterns that *pattern* is directly made of, left to right."""
    match pattern:
        case WildcardPattern() | AbsentPattern() | ConstantPattern() | InputPattern():
            return ()
        case CallPattern():
            return pattern.args
        case OutputPattern():
            return (pattern.node,)
        case OrPattern() | AndPattern():
            return (pattern.left, pattern.right)
        case TypedPattern():
            return (pattern.pattern,)


def post_order(pattern: DFPattern) -> list[DFPattern]:
    """List every pattern object once, parts before wholes, left to right."""
    ordered: dict[int, DFPattern] = {}
    pending: list[tuple[DFPattern, bool]] = [(pattern, False)]
    while pending:
        current, expanded = pending.pop()
        if id(current) in ordered:
            continue
        if expanded:
            ordered[id(current)] = current
            continue
        pending.append((current, True))
        pending.extend((child, False) for child in reversed(children(current)))
    return list(ordered.values())


def compile_pattern(pattern: DFPattern) -> Program:
    """Compile *pattern*."""
    return _Compiler(pattern).program()


_COMPOUND = (OrPattern, AndPattern, TypedPattern)


class _Compiler:
    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = pattern
        self.order = post_order(pattern)
        self.steps: dict[int, Step] = {}
        self.slot_count = 0
        self.slots_by_name: dict[str, int] = {}
        self.names: dict[str, list[int]] = {}
        self.parents: dict[int, int] = {}
        for part in self.order:
            for child in children(part):
                self.parents[id(child)] = self.parents.get(id(child), 0) + 1

    def program(self) -> Program:
        for part in self.order:
            step = self._compile(part)
            if isinstance(part, _COMPOUND) and (part.name or self.parents.get(id(part), 0) > 1):
                step = SharedStep(step, self._leaf_slot(part.name))
            self.steps[id(part)] = step
        steps = list(self.steps.values())
        return Program(
            root=self.steps[id(self.pattern)],
            slot_count=self.slot_count,
            names=tuple((name, tuple(slots)) for name, slots in self.names.items()),
            calls=tuple(step for step in steps if isinstance(step, CallStep)),
            leaves=tuple(step for step in steps if isinstance(step, LeafStep)),
        )

    def _slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1

    def _leaf_slot(self, name: str) -> int:
        """Return a slot of its own for an unnamed leaf, the name's slot for a named one."""
        if not name:
            return self._slot()
        if name not in self.slots_by_name:
            self.slots_by_name[name] = self._slot()
            self.names.setdefault(name, []).append(self.slots_by_name[name])
        return self.slots_by_name[name]

    def _compile(self, part: DFPattern) -> Step:  # noqa: C901, PLR0911  # a case per kind
        match part:
            case WildcardPattern():
                if not part.name and self.parents.get(id(part), 0) == 1:
                    return AnyStep(part, 0)
                return LeafStep(part, self._leaf_slot(part.name))
            case AbsentPattern():
                return AbsentStep(part, 0)
            case ConstantPattern():
                return ConstantStep(part, self._leaf_slot(part.name), part.value)
            case InputPattern():
                return InputStep(part, self._leaf_slot(part.name), part.source)
            case CallPattern():
                return self._compile_call(part)
            case OutputPattern():
                call = cast("CallStep", self.steps[id(part.node)])
                return OutputStep(part, 0, call, part.index)
            case OrPattern():
                return OrStep(part, 0, self.steps[id(part.left)], self.steps[id(part.right)])
            case AndPattern():
                return AndStep(part, 0, self.steps[id(part.left)], self.steps[id(part.right)])
            case TypedPattern():
                return self._compile_typed(part)

    def _compile_call(self, part: CallPattern) -> Step:
        slot = self._slot()
        if part.name:
            self.names.setdefault(part.name, []).append(slot)
        return CallStep(
            part,
            slot,
            ops=part.op.ops,
            args=[self.steps[id(arg)] for arg in part.args],
            rest=part.rest,
            attributes=part.attributes,
        )

    def _compile_typed(self, part: TypedPattern) -> Step:
        dims: list[tuple[str, int] | None] = []
        for dim in part.shape or ():
            if isinstance(dim, str):
                dims.append(("variable", self._dimension_slot(dim)))
            else:
                dims.append(None if dim is None else ("number", dim))
        shape = None if part.shape is None else tuple(dims)
        check = TypeStep(part, part.dtypes, part.ranks, shape)
        inner = self.steps[id(part.pattern)]
        return check if isinstance(inner, AnyStep) else TypedStep(part, 0, inner, check)

    def _dimension_slot(self, letter: str) -> int:
        key = f"dimension {letter}"
        if key not in self.slots_by_name:
            self.slots_by_name[key] = self._slot()
        return self.slots_by_name[key]
