"""What compiling a pattern gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dplcli.dpl.call_steps import Attributes, CallStep
from dplcli.dpl.logic_steps import SETTLE
from dplcli.dpl.steps import ConstantStep
from dplcli.ir import Node, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, LeafStep, OpKey, Step
    from dplcli.ir import Attribute


@dataclass(frozen=True)
class Program:
    """A compiled pattern.

    Attributes:
        root: The step for the whole pattern.
        steps: By ``id`` of each pattern object, its step.
        slot_count: How many slots a search needs.
        names: Each name in the pattern, with the slots it may be bound in, and which output is
            meant where a slot holds a node.
        attribute_names: Each ``**name``, with its slot.
        leaves: The step of each leaf that binds a value.
        output_slots: Where several outputs are bound; empty if there is one.
        defers: Whether something is decided only at the end.
    """

    root: Step
    steps: Mapping[int, Step]
    slot_count: int
    names: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    attribute_names: tuple[tuple[str, int], ...]
    leaves: tuple[LeafStep, ...]
    output_slots: tuple[int, ...]
    defers: bool

    def start(self, value: Value) -> Goals:
        """Return the goals of a search at *value*."""
        return (self.root, value, (SETTLE, None, None) if self.defers else None)

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

    @cached_property
    def inner_operators(self) -> frozenset[OpKey] | None:
        """The operators of the nodes that a match has besides its root; None for any.

        Those of chains and regions are not listed.
        """
        found: set[OpKey] = set()
        for step in self.steps.values():
            if not isinstance(step, CallStep) or step is self.root:
                continue
            if step.ops is None or step.functions:
                return None
            found |= step.ops
        return frozenset(found)

    def bindings(self, slots: Sequence[object]) -> dict[str, Value]:
        """Return what each name is bound to; names that took no part are missing."""
        found: dict[str, Value] = {}
        for name, choices in self.names:
            for slot, index in choices:
                bound = slots[slot]
                if bound is None:
                    continue
                if type(bound) is Value:
                    found[name] = bound
                elif type(bound) is Node and index < len(bound.outputs):
                    output = bound.outputs[index]
                    if output is not None:
                        found[name] = output
                break
        return found

    def bound_attributes(self, slots: Sequence[object]) -> dict[str, Mapping[str, Attribute]]:
        """Return what each ``**name`` is bound to."""
        found: dict[str, Mapping[str, Attribute]] = {}
        for name, slot in self.attribute_names:
            bound = slots[slot]
            if isinstance(bound, Attributes):
                found[name] = bound.values
        return found

    def outputs(self, state: State) -> tuple[Value, ...]:
        """Return the values of the pattern's outputs."""
        if not self.output_slots:
            return (state.subject,)
        return tuple(v for slot in self.output_slots if isinstance(v := state.slots[slot], Value))
