"""What a search finds: matches, and the reasons why a find is no match."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from dplcli.ir import Node, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.rule import Rule
    from dplcli.dpl.state import State
    from dplcli.ir import Attribute

Stage: TypeAlias = Literal["where", "check", "escape", "convexity", "overlap", "budget", "prune"]


class Match:
    """One place where a rule's pattern fits; it does not change.

    Attributes:
        rule: The rule.
        root: The node that makes the pattern's (first) output.
        nodes: The nodes matched, in topological order, Identity nodes between them included.
        bindings: What each name of the pattern is bound to: a leaf's value, or output 0 of a
            named node; names that took no part are missing.
        constants: The constants that ``const(…)`` and number leaves matched.
        attributes: What each ``**name`` is bound to.
        outputs: The values of the pattern's outputs.
        escaping: Inner values that something outside reads, where the rule allows that.
        slots: What each step of the compiled pattern is bound to.
    """

    __slots__ = (
        *("rule", "root", "nodes", "bindings", "constants", "attributes", "outputs"),
        *("escaping", "slots"),
    )

    def __init__(  # noqa: PLR0913, PLR0917  # made once for every find, so without detours
        self,
        rule: Rule,
        root: Node,
        nodes: tuple[Node, ...],
        bindings: Mapping[str, Value],
        constants: tuple[Value, ...],
        attributes: Mapping[str, Mapping[str, Attribute]],
        outputs: tuple[Value, ...],
        escaping: tuple[Value, ...] = (),
        slots: tuple[object, ...] = (),
    ) -> None:
        """Note what was found."""
        self.rule: Final = rule
        self.root: Final = root
        self.nodes: Final = nodes
        self.bindings: Final = bindings
        self.constants: Final = constants
        self.attributes: Final = attributes
        self.outputs: Final = outputs
        self.escaping: Final = escaping
        self.slots: Final = slots

    def __repr__(self) -> str:
        """Name the rule and the root."""
        return f"<Match of {self.rule.qualified_name} at {self.root.op_type} {self.root.label!r}>"

    def with_escaping(self, escaping: tuple[Value, ...]) -> Match:
        """Return the same match with other escaping values."""
        return Match(
            self.rule,
            self.root,
            self.nodes,
            self.bindings,
            self.constants,
            self.attributes,
            self.outputs,
            escaping,
            self.slots,
        )

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes that make the outputs, each once."""
        if len(self.outputs) == 1:
            return (self.root,)
        makers = (value.producer for value in self.outputs)
        return tuple(dict.fromkeys(node for node in makers if node is not None))

    def value(self, pattern: DFPattern | str) -> Value | None:
        """Return what a pattern object of the rule, or a name, is bound to.

        None if it took no part. A node pattern is bound to its output 0.

        Raises:
            KeyError: The rule's pattern does not contain it, or does not bind it.
        """
        if isinstance(pattern, str):
            return self.bindings.get(pattern)
        step = self.rule.matcher.program.steps.get(id(pattern))
        if step is None:
            raise KeyError(f"the rule {self.rule.name!r} does not contain {pattern!r}")
        found = step.bound_values_in(self.slots)
        return found[0] if found else None

    def __getitem__(self, key: DFPattern | str) -> Value:
        """Return the value that a pattern object, or a name, is bound to: ``match["x"]``.

        Raises:
            KeyError: It took no part in the match, or the rule's pattern does not bind it.
        """
        found = self.value(key)
        if found is None:
            raise KeyError(f"{key!r} took no part in this match of {self.rule.name!r}")
        return found

    def node(self, pattern: DFPattern | str) -> Node | None:
        """Return the node that makes what *pattern* is bound to; None if there is none."""
        bound = self.value(pattern)
        return None if bound is None else bound.producer

    def reject(self, reason: str, at: Value | Node | None = None) -> Rejection:
        """Refuse the match, from a rule's ``check`` function."""
        return Rejection(self.rule, self.root, "check", reason, self.root if at is None else at)


_POSITION = attrgetter("position")


class Rejection(NamedTuple):
    """Why a pattern that fits at *root* was refused.

    Attributes:
        rule: The rule.
        root: The node it fits at.
        stage: Which test it failed.
        reason: What the test found, for a reader.
        at: The value or node concerned.
    """

    rule: Rule
    root: Node
    stage: Stage
    reason: str
    at: Value | Node | None = None


def read_match(rule: Rule, root: Node, state: State) -> Match | None:
    """Copy a solution out of *state*; None if an output is not made by a node of the match.

    That is so where the root itself is only looked through, or where an output is a leaf. Each
    output is a value of its own.
    """
    if root not in state.claimed:
        return None
    program = rule.matcher.program
    outputs = program.outputs(state)
    if len(outputs) > 1 and not _are_made_by(outputs, state):
        return None
    slots = state.slots
    nodes = state.claimed
    repeated: list[Value] = []
    if state.noted:
        nodes = nodes.union(thing for thing in state.noted if isinstance(thing, Node))
        repeated = [thing for thing in state.noted if isinstance(thing, Value)]
    return Match(
        rule,
        root,
        tuple(sorted(nodes, key=_POSITION)),
        program.bindings(slots),
        _constants(rule, slots, repeated),
        program.bound_attributes(slots) if program.attribute_names else {},
        outputs,
        slots=tuple(slots),
    )


def _are_made_by(outputs: tuple[Value, ...], state: State) -> bool:
    distinct = len(set(outputs)) == len(outputs)
    return distinct and all(value.producer in state.claimed for value in outputs)


def _constants(rule: Rule, slots: list[object], repeated: list[Value]) -> tuple[Value, ...]:
    """Return the values that only constant leaves matched: one a wildcard took is lifted."""
    program = rule.matcher.program
    if not program.constant_slots:
        return ()
    by_other = {slots[slot] for slot in program.other_slots}
    found = dict.fromkeys([*(slots[slot] for slot in program.constant_slots), *repeated])
    return tuple(v for v in found if isinstance(v, Value) and v not in by_other)
