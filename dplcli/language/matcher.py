"""How a pattern meets a graph: complete backtracking, without recursion.

A pattern is compiled once, into one step per pattern object. The search is that of Warren's
abstract machine (D. H. D. Warren, *An Abstract Prolog Instruction Set*, SRI 309, 1983) over
dataflow graphs. The order of preference is TVM's (``src/relax/ir/dataflow_matcher.cc``): left
alternative first, operands as written first. TVM commits to the first success of a part; this
search returns to it.

The words:

* **part**: a pattern object. **Step**: a part, compiled; it matches one value. A
  :class:`RestStep` does the part of a step that has to wait.
* **goal**: a step and the value that it is to match (None is an omitted input). **Goals** are a
  linked list ``(step, value, rest)``; a step that succeeds returns the goals that are left. The
  search is over when none is left.
* **slot**: where a search keeps what a step is bound to. Steps of one name share a slot. (The
  inputs of a node have *places*.)
* **bind**: to put a value, a node or a dimension into a slot. **Claim**: to take a node into the
  match; two node patterns never claim the same node.
* **choice**: goals to try if those at hand fail, with the length that the trail had.
* **trail**: what was bound or changed, in order, so that going back to a choice can undo it.
* **defer**: to leave a decision until everything else is bound. The goal ``SETTLE``, which is the
  last one, makes these decisions.
* **prune**: to see early that a step cannot match: ``heads`` are the operators that its node may
  have, ``required`` are the operators and edges that every match needs somewhere in the graph; a
  leaf is *decided* with the node that reads it, before the goals that are left.
* **budget**: the number of goals that a search may run; messages call them steps.
* **chain**: what ``repeat`` matches. **Link**: one step of it, of one node or more. **Hole**: what
  the link reads of the chain above it. **Progress**: how many links there are.
* **region**: the nodes between a parent and the child that it dominates.
* **anchor**: a part that two outputs of a pattern share; the second output is looked for below it.
* **root**: the node at which a search begins.

A match, goal by goal, where no leaf is decided before its turn. The graph is ``p = MatMul(a, b)``,
``q = MatMul(c, k)``, ``s = Add(p, q)``, where only ``k`` is a constant. The pattern is
``Add(MatMul(x, const(w)), y)``, the root is ``s``::

    Add(MatMul(x, const(w)), y) at s   binds s; leaves a choice: the operands swapped
    MatMul(x, const(w)) at p           binds p
    x at a                             binds a
    const(w) at b                      fails: undoes a and p, takes the choice
    MatMul(x, const(w)) at q           binds q
    x at c                             binds c
    const(w) at k                      binds k
    y at p                             binds p: a match

A negation is a search inside the search, which must fail. It begins with nothing claimed and
nothing deferred, since its nodes are not those of the match; the trail brings both back. Here the
graph is ``r = Relu(a)``, ``m = Mul(r, a)``, the pattern is ``Mul(~Relu(x), x)`` and the root ``m``.
The negation is deferred, since ``x`` is bound outside of it, too::

    Mul(~Relu(x), x) at m              binds m; leaves a choice: the operands swapped
    ~Relu(x) at r                      is deferred
    x at a                             binds a
    (settle)                           leaves a choice: to go on; claimed and deferred are emptied
    Relu(x) at r                       binds r
    x at a                             is bound to a
    (settle)                           nothing was deferred inside
    (cut) at r                         fails: drops the choice to go on, takes the one before it
    ~Relu(x) at a                      holds: no Relu makes a; m is the only node claimed again
    x at r                             binds r
    (settle)                           nothing is left to decide: a match

A chain grows link by link, as long as it can. The slots of a link are unbound before the next one
is matched, for each link binds them anew; its nodes stay claimed. The graph is ``c = Neg(a)``,
``d = Neg(c)``, ``s = Sub(d, c)``, the pattern is ``Sub(repeat(Neg, x), x)`` and the root ``s``::

    Sub(repeat(Neg, x), x) at s        binds s
    repeat(Neg, x) at d                no link yet; leaves a choice: to end at d
    Neg(_) at d                        binds d
    _ at c                             binds c
    (after a link) at d                one link, unbinds both; leaves a choice: to end at c
    Neg(_) at c                        binds c
    _ at a                             binds a
    (after a link) at c                two links, unbinds both; a is no Neg, so the chain ends here
    x at a                             binds a
    x at c                             fails: c is not a; one link again, c is not claimed any more
    (end) at c                         goes on to what the chain ends in
    x at c                             binds c
    x at c                             is bound to c: a match
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from dplcli.errors import PassError, counted
from dplcli.ir import Node, Tensor, TensorType, Value
from dplcli.ir.operators import (
    COMMUTATIVE,
    DTYPE_ATTRIBUTES,
    MOVED,
    OP_KINDS,
    beyond_default,
    default_of,
    equal_axes,
    from_the_first,
    has_unknown_parameter,
    inputs_of,
    parameter_of,
    slot_of,
)
from dplcli.ir.printer import print_attribute, print_numbers
from dplcli.ir.traversal import behind_identities, is_identity, is_read_only_by, users
from dplcli.ir.types import DTYPE_CODES
from dplcli.language.pattern import (
    ANY_DOMAIN,
    WAIVED,
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    EdgePattern,
    FunctionName,
    FunctionPattern,
    InputPattern,
    NotPattern,
    OpKind,
    OpName,
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
    taken_parts,
    visible_parts,
)
from dplcli.language.text import (
    check_pattern,
    identity_of,
    is_closed,
    letters_of,
    parts_at_value,
    variadic_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Attribute, Function, Graph, Shape
    from dplcli.language.pattern import AttributeValue, Callee, DFPattern, ExactValue

    Deferred: TypeAlias = "tuple[Step, Value | None, Deferred] | None"

    Goals: TypeAlias = "tuple[Step, Value | None, Goals] | None"

    Outcome: TypeAlias = Goals | Literal[False]

    Action: TypeAlias = "Callable[[State, Value | None, Goals], Outcome]"

    OnFailure: TypeAlias = "Callable[[Step, Value | None, State, Goals], None]"

    OpKey: TypeAlias = tuple[str, str]

    Ops: TypeAlias = frozenset[OpKey]

    Requirement: TypeAlias = Ops | tuple[Ops, Ops]

    Sort: TypeAlias = "OpKey | Fingerprint | ConstantSort | bool | None"

    Fingerprint: TypeAlias = tuple[OpKey, tuple[Sort, ...]]


# The anchors of a pattern with several outputs.


def find_anchors(pattern: OutputsPattern) -> list[list[tuple[DFPattern, int]]]:
    """For each output, list the parts that it shares with outputs before it, nearest first.

    Each comes with the number of edges between its value and the output's.
    """
    seen: set[object] = set()
    anchors = []
    for output in pattern.outputs:
        needed = sorted(_needed(output), key=lambda item: item[1])
        anchors.append([item for item in needed if identity_of(item[0]) in seen])
        seen.update(identity_of(part) for part in visible_parts(output))
    return anchors


def _needed(output: DFPattern) -> Iterator[tuple[DFPattern, int]]:
    """Yield each part that every match of *output* binds, with its distance above the output."""
    pending = deque([(output, 0)])
    seen: set[int] = set()
    while pending:
        part, distance = pending.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if not isinstance(part, (AbsentPattern, VariadicPattern)):
            yield part, distance
        match part:
            case CallPattern():
                pending.extend((arg, distance + 1) for arg in part.args)
            case OutputPattern():
                pending.append((part.node, distance))
            case OrPattern():
                pass  # a match may bind the one side or the other
            case _:
                pending.extend((side, distance) for side in parts_at_value(part))
        if isinstance(part, EdgePattern):
            pending.append((part.producer, distance + 1))


# Compare the attributes of a node with those of a pattern.


def attribute_equals(node: Node, name: str, expected: AttributeValue | None) -> bool:
    """Tell whether an attribute, or its default, equals what a pattern states; None is any value.

    Floats are compared as float32, and an element type may be given by its name
    (``to="float32"``). Axes are counted from either end, if the rank is known. A tensor equals a
    list of its numbers, or its only number. An attribute that a function's caller supplies is
    unknown, hence unequal. Where the node's opset has an input instead, its value is compared if it
    is constant.
    """
    attribute = parameter_of(node, name)
    if attribute is None or attribute.ref:
        return False
    value = attribute.value
    if expected is None:
        return True
    if attribute.kind in {"float", "floats", "tensor"}:
        return _floats_equal(value, expected)
    if attribute.kind == "int" and isinstance(expected, str) and name in DTYPE_ATTRIBUTES:
        return value == DTYPE_CODES.get(expected)
    if type(value) is not type(expected):
        return False
    same = value == expected
    return same or from_the_first(node, name, value) == from_the_first(node, name, expected)


def _floats_equal(value: object, expected: AttributeValue) -> bool:
    items = expected if isinstance(expected, tuple) else (expected,)
    if isinstance(value, Tensor):
        value = tuple(value.numpy().tolist()) if value.shape == (len(items),) else ()
    elif isinstance(value, tuple) != isinstance(expected, tuple):
        return False
    values = value if isinstance(value, tuple) else (value,)
    if len(values) != len(items) or any(isinstance(item, str) for item in items):
        return False
    try:
        with np.errstate(over="ignore"):
            return np.array_equal(
                np.asarray(values, dtype=np.float32), np.asarray(items, dtype=np.float32)
            )
    except (OverflowError, ValueError):
        return False


def _is_same(name: str, one: Node, other: Node) -> bool:
    """Tell whether nodes have the same attribute, or the first has none; no tensors are the same.

    Axes are counted from either end.
    """
    attribute, its = parameter_of(one, name), parameter_of(other, name)
    if attribute is None or its is None:
        return attribute is None
    if isinstance(attribute.value, Tensor) or isinstance(its.value, Tensor):
        return False
    same = attribute.value == its.value
    return same or from_the_first(one, name, attribute.value) == from_the_first(
        other, name, its.value
    )


# How far above its root a pattern looks.


def reach_of(pattern: DFPattern) -> int | None:
    """Return how many nodes lie on the longest way from a match's root up to its leaves.

    A change further above a node cannot make the pattern match there, or no longer match.
    None if there is no such number, or if the pattern looks elsewhere than upwards.
    """
    reach: dict[int, int] = {}
    for part in all_parts(pattern):
        if isinstance(part, (RepeatPattern, DominatorPattern, OutputsPattern, UnusedPattern)):
            return None
        if isinstance(part, CallPattern) and (part.op.parts or part.bodies):
            return None
        below = max((reach[id(inner)] for inner in part.parts), default=0)
        if isinstance(part, EdgePattern):
            below = max(below, reach[id(part.producer)] + 1)
        reach[id(part)] = below + isinstance(part, CallPattern)
    return reach[id(pattern)]


# The state of a search.


class StepFailure(NamedTuple):
    """A step that failed, to explain it.

    Attributes:
        step: The step.
        value: The value that it failed at.
        words: What was expected, and what was found; None if any value would have done.
        slots: What each slot was bound to.
    """

    step: Step
    value: Value | None
    words: tuple[str, str] | None
    slots: list[object]


class StepBudgetExceededError(PassError):
    """The search at one root took more steps than allowed."""


class State:
    """What a search has bound, and the choices that it can go back to.

    Attributes:
        graph: The scope of the match; nodes outside it are leaves.
        slots: What each slot is bound to: a Node for node patterns, a Value for leaves, a
            dimension for dimension variables; None while unbound.
        claimed: The nodes bound so far: different node patterns bind different nodes.
        noted: Further parts of the match: Identity nodes looked through (some more than once), and
            constants in chains.
        deferred: Goals that are decided only when everything else is bound, as a linked list.
        negations: How many negations the search is inside of.
        unavailable: Nodes that no further output may be: other matches have them.
        explains: Whether a step that fails says why.
        forgiven: The failure that the search went on without, to explain; None if there is none.
        words: What was expected where the last step failed, and what was found; None if any
            value would have been accepted.
        budget: Most goals to run.
        spent: Goals run so far; some steps charge for more work.
        subject: The value that the search began with.
        trail: What to undo, in order: slots that were bound, functions that undo anything else.
        choices: Goals to try next, each with the length of the trail to go back to.
    """

    __slots__ = (
        *("budget", "choices", "claimed", "deferred", "graph", "negations", "noted", "slots"),
        *("explains", "forgiven", "spent", "subject", "trail", "unavailable", "words"),
    )

    def __init__(self, graph: Graph, slot_count: int, budget: int, subject: Value) -> None:
        self.subject = subject
        self.graph = graph
        self.slots: list[object] = [None] * slot_count
        self.claimed: set[Node] = set()
        self.noted: list[Node | Value] = []
        self.deferred: Deferred = None
        self.negations = 0
        self.unavailable: Container[Node] = ()
        self.explains = False
        self.forgiven: StepFailure | None = None
        self.words: tuple[str, str] | None = None
        self.budget = budget
        self.spent = 0
        self.trail: list[int | Callable[[], object]] = []
        self.choices: list[tuple[Goals, int]] = []

    def bind(self, slot: int, subject: object) -> None:
        """Bind a leaf or a dimension."""
        self.slots[slot] = subject
        self.trail.append(slot)

    def bind_node(self, slot: int, node: Node) -> None:
        """Bind a node pattern."""
        self.slots[slot] = node
        self.trail.append(slot)
        self.claimed.add(node)

    def claim(self, node: Node) -> None:
        """Take *node* into the match without binding a slot to it."""
        self.claimed.add(node)
        self.trail.append(partial(self.claimed.discard, node))

    def reset(self, slot: int, subject: object = None) -> None:
        """Bind a slot again, or unbind it; a node that it was bound to stays claimed."""
        self.trail.append(partial(self.slots.__setitem__, slot, self.slots[slot]))
        self.slots[slot] = subject

    def note(self, thing: Node | Value) -> None:
        """Note an Identity node that is looked through, or a constant in a chain."""
        self.noted.append(thing)
        self.trail.append(self.noted.pop)

    def change(self, name: str, value: object) -> None:
        """Set an attribute until the search goes back."""
        self.trail.append(partial(setattr, self, name, getattr(self, name)))
        setattr(self, name, value)

    def defer(self, step: Step, value: Value | None) -> None:
        """Let *step* decide on *value* when everything else is bound."""
        self.change("deferred", (step, value, self.deferred))

    def refuse(self, expected: str, there: str) -> Literal[False]:
        """Fail, and keep what was expected and what was found; asked only if it *explains*."""
        self.words = expected, there
        return False

    def choose(self, ways: Sequence[Goals]) -> Outcome:
        """Return the first of *ways* and leave the others as choices; False if there are none."""
        if not ways:
            return False
        mark = len(self.trail)
        self.choices.extend((way, mark) for way in reversed(ways[1:]))
        return ways[0]

    def charge(self, steps: int) -> None:
        """Count *steps* against the budget.

        Raises:
            StepBudgetExceededError: They are more than are left.
        """
        self.spent += steps
        if self.spent > self.budget:
            raise StepBudgetExceededError(
                f"the search took more than {self.budget:,} steps",
                hint="make the pattern more specific, or raise the budget",
            )

    def undo(self, mark: int) -> None:
        """Undo everything since the trail had length *mark*."""
        trail, slots = self.trail, self.slots
        while len(trail) > mark:
            entry = trail.pop()
            if isinstance(entry, int):
                self.claimed.discard(slots[entry])
                slots[entry] = None
            else:
                entry()


def _named(node: Node) -> str:
    return f"{node.qualified_op} {node.label!r}"


def describe(value: Value | None) -> str:
    """Describe a value for a message: the node that makes it, or what it is."""
    if value is None:
        return "nothing: the input is omitted"
    origin = behind_identities(value)
    node = origin.producer
    if node is not None and not origin.is_constant:
        which = f" (output {origin.index})" if origin.index else ""
        return f"{_named(node)}{which}"
    if origin.is_constant:
        tensor = origin.constant
        shape = "" if tensor is None else f" {tensor.dtype}{list(tensor.shape)}"
        return f"the constant {origin.name!r}{shape}"
    if origin.is_initializer:
        return f"the input {origin.name!r}, which has a default"
    return f"the input {origin.name!r}"


# Steps.
#
# A step is given the value to match (None where an input is omitted) and the goals that remain. It
# returns the goals to go on with, or False. It may bind slots and leave choices in the State.


_MOST_REQUIREMENTS = 32


class Step(ABC):
    """One compiled pattern object.

    Attributes:
        pattern: The pattern object it was compiled from.
        slot: Its slot, if it has one.
        stands_for: The step that is bound in its place, if it binds nothing itself.
        heads: The operators whose nodes can match it; None if any value might.
        required: What every match needs of the graph: operators (a set to choose from), and edges
            (a pair of such sets: of what makes a value, and of what reads it).
        is_decided: Whether :meth:`run` leaves neither goals nor choices, so that it may be asked
            before its turn.
    """

    is_decided = False

    def __init__(self, pattern: DFPattern, slot: int = 0) -> None:
        self.pattern = pattern
        self.slot = slot
        self.stands_for: Step | None = None
        self.heads: Ops | None = None
        self.required: frozenset[Requirement] = frozenset()

    def stand_for(self, inner: Step, *others: Step) -> None:
        """Bind nothing itself: *inner* is bound in its place. All *others* must match, too."""
        self.stands_for = inner
        self.heads = inner.heads
        self.required = inner.required.union(*(other.required for other in others))

    @abstractmethod
    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try to match *value*; return the goals left, or False."""

    def is_plausible(self, value: Value | None) -> bool:
        """Tell cheaply whether *value* might match; if not, it cannot match."""
        if self.heads is None:
            return True
        node = None if value is None else value.producer
        if node is None:
            return False
        return (node.domain, node.op_type) in self.heads or is_identity(node)

    def bound_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return what it is bound to: for a node pattern all outputs of the node."""
        step = self
        while step.stands_for is not None:
            step = step.stands_for
        return step.own_values_in(slots)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:  # noqa: ARG002  # most bind nothing
        """Return what its own slot is bound to."""
        return []


class RestStep(Step):
    """The rest of what a step does, as a goal of its own that is run later.

    Args:
        pattern: The pattern object of the step.
        action: Does the rest, as :meth:`Step.run` does.
    """

    def __init__(self, pattern: DFPattern, action: Action) -> None:
        super().__init__(pattern)
        self.action = action

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Do the rest."""
        return self.action(state, value, rest)


class AnyStep(Step):
    """A wildcard that nothing else refers to."""

    is_decided = True

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Accept whatever is present."""
        return False if value is None else rest


class ValueStep(Step):
    """A step whose slot holds a value, as seen behind Identity nodes."""

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the value."""
        bound = slots[self.slot]
        return [] if bound is None else [bound]  # type: ignore[list-item]  # it binds values

    def same(self, state: State, value: Value, rest: Goals) -> Outcome:
        """Demand that *value* is the one bound before."""
        bound: Any = state.slots[self.slot]
        if bound is value:
            return rest
        name = self.pattern.name or "the same pattern"
        return state.explains and state.refuse(
            f"{describe(bound)}, which {name} stands for elsewhere", describe(value)
        )


class UnnamedStep(ValueStep):
    """A wildcard without a name, bound for a function that holds the pattern object."""

    is_decided = True

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept and bind whatever is present."""
        if value is not None and state.slots[self.slot] is None:
            state.bind(self.slot, behind_identities(value))
        return False if value is None else rest


class LeafStep(ValueStep):
    """A leaf that binds the value, whatever makes it."""

    is_decided = True

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value, or compare it with the one bound before."""
        if value is None:
            return False
        producer = value.producer
        if producer is not None and producer.op_type == "Identity":
            value = behind_identities(value)
        if state.slots[self.slot] is None:
            state.bind(self.slot, value)
            return rest
        return self.same(state, value, rest)


class HoleStep(LeafStep):
    """What a link of a chain reads of the chain above it, as it reads it: Identity nodes included.

    The chain goes on there, and takes them in.
    """

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value, or compare what is behind Identity nodes with what was bound before."""
        bound: Any = state.slots[self.slot]
        if value is None or bound is not None:
            is_same = value is not None and behind_identities(bound) is behind_identities(value)
            return rest if is_same else super().run(state, value, rest)
        state.bind(self.slot, value)
        return rest


class ChoosyLeafStep(LeafStep):
    """A leaf that demands something of the value: a constant or an input."""

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value if it is of the right sort."""
        if value is None or not self.accepts(behind_identities(value)):
            return state.explains and state.refuse(self.sort, self.describe_found(value))
        return super().run(state, value, rest)

    def describe_found(self, value: Value | None) -> str:
        """Say what stands there instead."""
        return describe(value)

    @property
    @abstractmethod
    def sort(self) -> str:
        """What it accepts, for a message."""

    @abstractmethod
    def accepts(self, value: Value) -> bool:
        """Tell whether *value*, seen behind Identity nodes, is of the right sort."""


class ConstantStep(ChoosyLeafStep):
    """A constant, perhaps of one given number or of exact data."""

    pattern: ConstantPattern

    def is_plausible(self, value: Value | None) -> bool:
        """Tell whether it is a constant; to explain, that is told in its turn."""
        if not self.is_decided:
            return True
        return value is not None and behind_identities(value).is_constant

    @property
    def sort(self) -> str:
        """A constant, perhaps with its value."""
        if self.pattern.value is not None:
            return f"the constant {self.pattern.value!r}"
        return "a constant" if self.pattern.exact is None else f"the constant {self.pattern!r}"

    def describe_found(self, value: Value | None) -> str:
        """Show a short constant's data, which may be what differs."""
        tensor = None if value is None else behind_identities(value).constant
        if tensor is None or tensor.size > _SHOWN or tensor.is_external:
            return describe(value)
        return f"{describe(value)} = {print_numbers(tensor)}"

    def accepts(self, value: Value) -> bool:
        """Accept a constant that is as demanded."""
        number, exact = self.pattern.value, self.pattern.exact
        if number is None and exact is None:
            return value.is_constant
        tensor = value.constant
        if tensor is None:
            return False
        if exact is not None:
            return equals_exactly(tensor, exact)
        assert number is not None  # noqa: S101  # one of the two is given
        return tensor.size == 1 and equals_number(tensor.numpy().reshape(()), number)


class AxesStep(ConstantStep):
    """Whole numbers that may be axes, as the node that reads them counts them.

    Args:
        step: The step for the constant.
        reader: The slot of the node.
        place: Which input of it they are.
    """

    def __init__(self, step: ConstantStep, reader: int, place: int) -> None:
        super().__init__(step.pattern, step.slot)
        self.is_decided = step.is_decided
        self.reader = reader
        self.place = place
        self.exact = step.pattern.exact
        self.axes: Any = [step.pattern.value] if self.exact is None else self.exact.items

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept the numbers as written, or the same axes counted from the other end."""
        tensor = None if value is None else behind_identities(value).constant
        node = state.slots[self.reader]
        if tensor is None or not isinstance(node, Node) or tensor.size != len(self.axes):
            return super().run(state, value, rest)
        stated = self.exact or tensor
        if (tensor.dtype, tensor.shape) != (stated.dtype, stated.shape):
            return super().run(state, value, rest)
        numbers = tensor.numpy().reshape(-1).tolist()
        if numbers == self.axes or not equal_axes(node, self.place, numbers, self.axes):
            return super().run(state, value, rest)
        return LeafStep.run(self, state, value, rest)


def are_whole_numbers(part: DFPattern) -> bool:
    """Tell whether *part* is a constant of whole numbers, one or a list of them."""
    if not isinstance(part, ConstantPattern):
        return False
    if part.exact is None:
        return isinstance(part.value, int)
    return part.exact.dtype in {"int32", "int64"} and len(part.exact.shape) == 1


_SHOWN = 8


def equals_exactly(tensor: Tensor, exact: ExactValue) -> bool:
    """Compare element type, shape and bytes."""
    if tensor.dtype != exact.dtype or tensor.shape != exact.shape:
        return False
    data = tensor.numpy()
    if data.dtype.kind in "OUS":
        items = (item.decode() if isinstance(item, bytes) else str(item) for item in data.flat)
        return "\0".join(items).encode() == exact.data
    return np.ascontiguousarray(data).tobytes() == exact.data


def equals_number(scalar: np.ndarray[tuple[()], np.dtype[np.generic]], number: float) -> bool:
    """Compare a 0-d array with a number in the array's own dtype.

    A number that an integer dtype cannot hold equals nothing. For a float dtype the number is
    rounded first, since exporters round what they write.
    """
    if scalar.dtype == np.object_ or scalar.dtype.kind in "SU":
        return False
    if scalar.dtype.kind in "iub":
        return bool(int(scalar) == number)
    try:
        with np.errstate(over="ignore"):
            return bool(scalar == np.asarray(float(number)).astype(scalar.dtype))
    except OverflowError:
        return False


class InputStep(ChoosyLeafStep):
    """A graph or function input that carries no data."""

    pattern: InputPattern

    @property
    def sort(self) -> str:
        """An input, perhaps a certain one."""
        source = self.pattern.source
        return f"the input {source!r}" if source else "an input without data"

    def accepts(self, value: Value) -> bool:
        """Accept an input without an initializer."""
        if not value.is_graph_input or value.is_initializer:
            return False
        return self.pattern.source in {"", value.name}


class AbsentStep(Step):
    """An omitted input."""

    is_decided = True

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept only nothing."""
        if value is None:
            return rest
        return state.explains and state.refuse("no input", describe(value))


class InputRow:
    """The inputs that a node offers to its arguments, and what is found out of them once.

    A search tries many ways to share a row out. Each holds the row and places in it, since copies
    would cost a wide node the square of its width.

    Args:
        inputs: The inputs, None where one is omitted.
    """

    def __init__(self, inputs: Sequence[Value | None]) -> None:
        self.inputs = inputs
        self._fitting: dict[Step, Sequence[int]] = {}

    def __len__(self) -> int:
        """Count the inputs, omitted ones too."""
        return len(self.inputs)

    def fitting(self, step: Step) -> Sequence[int]:
        """Return the places, in order, of the inputs that *step* might match."""
        if step.heads is None:
            return range(len(self.inputs))
        found = self._fitting.get(step)
        if found is None:
            plausible = enumerate(map(step.is_plausible, self.inputs))
            found = self._fitting[step] = [place for place, fits in plausible if fits]
        return found

    def first_omitted(self, start: int) -> int:
        """Return the first place from *start* on of an omitted input; their number if none is."""
        at = bisect_left(self.omitted, start)
        return self.omitted[at] if at < len(self.omitted) else len(self.inputs)

    @cached_property
    def omitted(self) -> list[int]:
        """The places of omitted inputs, in order."""
        return [place for place, value in enumerate(self.inputs) if value is None]

    @cached_property
    def origins(self) -> tuple[Value | None, ...]:
        """The inputs as seen behind Identity nodes."""
        return tuple([value and behind_identities(value) for value in self.inputs])


class InputRun:
    """Some inputs of a row, none of them omitted: what a ``*name`` is bound to.

    Args:
        row: The row.
        start: The place of the first one.
        stop: The place behind the last one.
        without: Places between that other arguments have.
    """

    __slots__ = ("row", "start", "stop", "without")

    def __init__(self, row: InputRow, start: int, stop: int, without: Collection[int] = ()) -> None:
        self.row = row
        self.start = start
        self.stop = stop
        self.without = without

    def __len__(self) -> int:
        """Count the inputs."""
        return self.stop - self.start - len(self.without)

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs, as seen behind Identity nodes."""
        there = self.row.origins[self.start : self.stop]
        if self.without:
            there = tuple(
                value for place, value in enumerate(there, self.start) if place not in self.without
            )
        return cast("tuple[Value, ...]", there)


class BoundNames(Mapping[str, "Value | tuple[Value, ...]"]):
    """What names stand for; what a ``*name`` is bound to is listed when somebody asks for it.

    Args:
        single: Names of one value.
        runs: Names of inputs in a row.
    """

    def __init__(self, single: Mapping[str, Value], runs: Mapping[str, InputRun]) -> None:
        self._single = single
        self._runs = runs

    def __getitem__(self, name: str) -> Value | tuple[Value, ...]:
        """Return the value, or the inputs."""
        return self._runs[name].values if name in self._runs else self._single[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter({**self._single, **self._runs})

    def __len__(self) -> int:
        """Count the names."""
        return len({**self._single, **self._runs})


class EachInput(NamedTuple):
    """What each of several inputs is matched with, one after the other, with fresh bindings.

    Attributes:
        element: Matches one of them.
        link: What it binds anew each time.
    """

    element: Step
    link: Link

    def match(self, values: Sequence[Value], at: int, state: State, rest: Goals) -> Outcome:
        """Match one of *values*, each of which comes once, and go on to those behind it."""
        self.link.unbind(state)
        if at == len(values):
            return rest
        go_on = partial(self._behind, values, at, state.deferred)
        state.change("deferred", None)
        behind = RestStep(self.element.pattern, go_on)
        return (self.element, values[at], (SETTLE, None, (behind, None, rest)))

    def _behind(  # the last three are those of an action
        self,
        values: Sequence[Value],
        at: int,
        deferred: Deferred,
        state: State,
        _value: Value | None,
        rest: Goals,
    ) -> Outcome:
        state.change("deferred", deferred)
        return self.match(values, at + 1, state, rest)


class Link(NamedTuple):
    """What a part that is matched again and again binds anew each time.

    Attributes:
        fresh: The slots.
        constants: Those of them that constants are bound in.
    """

    fresh: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()

    def unbind(self, state: State) -> None:
        """Unbind what was bound the last time; nodes and constants stay part of the match."""
        for slot in self.constants:
            constant = state.slots[slot]
            if constant is not None:
                state.note(constant)  # type: ignore[arg-type]  # constants are values
        for slot in self.fresh:
            if state.slots[slot] is not None:
                state.reset(slot)


class VariadicStep(Step):
    """Any number of inputs in a row, which the step of the node gives it.

    Attributes:
        each: What each of them is matched with; None if they may be anything.
    """

    def __init__(self, pattern: DFPattern, slot: int) -> None:
        super().__init__(pattern, slot)
        self.each: EachInput | None = None

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Match nothing by itself."""
        return False

    def take(self, state: State, run: InputRun, rest: Goals) -> Outcome:
        """Bind *run*, or compare it with what was bound before; then match each input."""
        bound = state.slots[self.slot]
        if bound is None:
            state.bind(self.slot, run)
        else:
            assert isinstance(bound, InputRun)  # noqa: S101  # no other step has its slot
            if len(bound) != len(run) or bound.values != run.values:
                return False
        if self.each is None:
            return rest
        return self.each.match([*dict.fromkeys(run.values)], 0, state, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the inputs."""
        bound = slots[self.slot]
        return list(bound.values) if isinstance(bound, InputRun) else []


class OrStep(Step):
    """One of two steps."""

    def __init__(self, pattern: DFPattern, left: Step, right: Step) -> None:
        """Prefer *left*."""
        super().__init__(pattern)
        self.left = left
        self.right = right
        if left.heads is not None and right.heads is not None:
            self.heads = left.heads | right.heads
        self.required = left.required & right.required | _either(left, right)

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try the left step now and the right one later."""
        if not self.left.is_plausible(value):
            return (self.right, value, rest)
        if self.right.is_plausible(value):
            state.choices.append(((self.right, value, rest), len(state.trail)))
        return (self.left, value, rest)


def _either(left: Step, right: Step) -> frozenset[Ops]:
    """Return what a match of either step needs: operators of the one, or operators of the other."""
    first = [needed for needed in left.required if isinstance(needed, frozenset)]
    second = [needed for needed in right.required if isinstance(needed, frozenset)]
    if len(first) * len(second) > _MOST_REQUIREMENTS:
        return frozenset()
    return frozenset(one | other for one in first for other in second)


class SharedStep(ValueStep):
    """A part that has a name or several uses: it matches the same value each time."""

    def __init__(self, inner: Step, slot: int) -> None:
        super().__init__(inner.pattern, slot)
        self.inner = inner
        self.heads = inner.heads
        self.required = inner.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value and match *inner* the first time; compare afterwards."""
        if value is None:
            return (self.inner, value, rest)
        producer = value.producer
        origin = value
        if producer is not None and producer.op_type == "Identity":
            origin = behind_identities(value)
        if state.slots[self.slot] is not None:
            return self.same(state, origin, rest)
        state.bind(self.slot, origin)
        return self.inner.run(state, value, rest)


class AndStep(Step):
    """Two steps at the same value."""

    def __init__(self, pattern: DFPattern, left: Step, right: Step) -> None:
        """Try *left* first."""
        super().__init__(pattern)
        self.left = left
        self.right = right
        self.heads = left.heads if left.heads is not None else right.heads
        if self.heads is not None and right.heads is not None:
            self.heads |= right.heads & _IDENTITY  # which the left one looks through
        self.required = left.required | right.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Demand both."""
        return (self.left, value, (self.right, value, rest))


# The step that assigns inputs to arguments where their order does not matter.


class AssignStep(Step):
    """Assigns the inputs that are left to the arguments that are left, in any order.

    An omitted input stays where it is: only the argument at its place can match it.

    Args:
        call: The node pattern.
        args: The arguments left, each with its place.
        row: The inputs.
        spare: How many further arguments match any input that is present.
        taker: Takes the inputs that no argument gets.

    Attributes:
        gone: The places of the inputs that other arguments have.
        place: Which input the first argument is to get; None for the first that it might match.
    """

    def __init__(
        self,
        call: Step,
        args: Sequence[tuple[int, Step]],
        row: InputRow,
        spare: int,
        taker: VariadicStep | None = None,
    ) -> None:
        super().__init__(call.pattern)
        self.args = args
        self.row = row
        self.spare = spare
        self.taker = taker
        self.gone: tuple[int, ...] = ()
        self.place: int | None = None

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Give the first argument an input, its own if it can; leave the next one as a choice."""
        row = self.row
        if not self.args and self.taker is not None:
            if len(row.omitted) > sum(row.inputs[place] is None for place in self.gone):
                return False
            return self.taker.take(state, InputRun(row, 0, len(row), self.gone), rest)
        if not self.args:
            omitted = len(row.omitted) - sum(row.inputs[place] is None for place in self.gone)
            present = len(row) - len(self.gone) - omitted
            return rest if present >= self.spare else self._no_input(state)
        place = self._first_place() if self.place is None else self.place
        if place is None:
            return self._no_input(state)
        later = self._later_place(place)
        if later is not None:
            way = self._going_on(self.args, self.gone)
            way.place = later
            state.choices.append(((way, None, rest), len(state.trail)))
        following = self._going_on(self.args[1:], (*self.gone, place))
        return (self.args[0][1], row.inputs[place], (following, None, rest))

    def _going_on(self, args: Sequence[tuple[int, Step]], gone: tuple[int, ...]) -> AssignStep:
        step = AssignStep(self, args, self.row, self.spare, self.taker)
        step.gone = gone
        return step

    def _first_place(self) -> int | None:
        """Return the place of the first argument itself if it might match there, or another."""
        home, first = self.args[0]
        is_free = home < len(self.row) and home not in self.gone
        if is_free and first.is_plausible(self.row.inputs[home]):
            return home
        return self._later_place(home)

    def _later_place(self, place: int) -> int | None:
        """Return the place to try after *place*: behind its own the others follow in order."""
        home, first = self.args[0]
        fitting = self.row.fitting(first)
        at = 0 if place == home else bisect_right(fitting, place)
        while at < len(fitting):
            each = fitting[at]
            if each != home and each not in self.gone and self.row.inputs[each] is not None:
                return each
            at += 1
        return None

    def _no_input(self, state: State) -> Literal[False]:
        if not state.explains:
            return False
        left = [v for place, v in enumerate(self.row.inputs) if place not in self.gone]
        wanted = repr(self.args[0][1].pattern) if self.args else "one more input"
        return state.refuse(wanted, _described(left) or "no input left")


class SpreadStep(Step):
    """Gives the inputs that are left, in order, to the arguments that are left.

    Args:
        call: The node pattern.
        args: The arguments left, some of which take any number of inputs.
        row: The inputs.
        start: The place of the first input that is left.
        count: How many the first argument is to take; None for the fewest.
    """

    def __init__(
        self,
        call: Step,
        args: Sequence[Step],
        row: InputRow,
        start: int = 0,
        count: int | None = None,
    ) -> None:
        super().__init__(call.pattern)
        self.args = args
        self.row = row
        self.start = start
        self.count = count

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Give the first argument what it takes; leave the next number of inputs as a choice."""
        row, start = self.row, self.start
        if not self.args:
            return self._misfit(state) if start < len(row) else rest
        first = self.args[0]
        if not isinstance(first, VariadicStep):
            if self._most() <= 0:
                return self._misfit(state)
            return (first, row.inputs[start], (self._behind(1), None, rest))
        count = self._count_from(state, 0) if self.count is None else self.count
        if count is None:
            return self._misfit(state)
        later = self._count_from(state, count + 1)
        if later is not None:
            way = SpreadStep(self, self.args, row, start, later)
            state.choices.append(((way, None, rest), len(state.trail)))
        run = InputRun(row, start, start + count)
        return first.take(state, run, (self._behind(count), None, rest))

    def _behind(self, count: int) -> SpreadStep:
        return SpreadStep(self, self.args[1:], self.row, self.start + count)

    def _most(self) -> int:
        """Return how many inputs the other arguments leave to the first one."""
        needed = sum(not isinstance(arg, VariadicStep) for arg in self.args[1:])
        return len(self.row) - self.start - needed

    def _count_from(self, state: State, least: int) -> int | None:
        """Return the next number of inputs, from *least*, that the first argument might take.

        None if there is none: it takes no omitted input, one that was bound before takes as many
        as then, and the argument behind it has to match the next input.
        """
        most = self._most()
        others = self.args[1:]
        if not any(isinstance(arg, VariadicStep) for arg in others):
            least = max(least, most)
        bound = state.slots[self.args[0].slot]
        if isinstance(bound, InputRun):
            least, most = max(least, len(bound)), min(most, len(bound))
        most = min(most, self.row.first_omitted(self.start) - self.start)
        behind = others[0] if others else None
        if behind is not None and not isinstance(behind, VariadicStep) and not state.explains:
            fitting = self.row.fitting(behind)
            at = bisect_left(fitting, self.start + least)
            least = fitting[at] - self.start if at < len(fitting) else most + 1
        return least if 0 <= least <= most else None

    def _misfit(self, state: State) -> Literal[False]:
        if not state.explains:
            return False
        wanted = repr(self.args[0].pattern) if self.args else "no more inputs"
        return state.refuse(wanted, _described(self.row.inputs[self.start :]) or "no input left")


_MOST_DESCRIBED = 8


def _described(values: Sequence[Value | None]) -> str:
    """Describe the first few of *values*, and say how many more there are."""
    listed = ", ".join(map(describe, values[:_MOST_DESCRIBED]))
    more = len(values) - _MOST_DESCRIBED
    return f"{listed} and {more:,} more" if more > 0 else listed


# Steps for negation, and for choices that are made one by one.


class NotStep(Step):
    """Negation as failure (K. L. Clark, *Negation as Failure*, 1978), decided as late as needed.

    A node inside may be one that another part has claimed: the negation says what the value is
    not, and no node of it is added to the match.

    Args:
        pattern: The pattern compiled.
        inner: What must not match.
        is_closed: Whether nothing inside is bound outside, so that it can be decided at once.
    """

    def __init__(
        self, pattern: NotPattern | UnusedPattern, inner: Step, *, is_closed: bool
    ) -> None:
        super().__init__(pattern)
        self.inner = inner
        self.is_closed = is_closed

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Decide now, or when all names are bound."""
        if value is None:
            return False
        if not self.inner.is_plausible(value):
            return rest
        if self.is_closed:
            return self._deny(state.graph, state, value, rest)
        state.defer(RestStep(self.pattern, partial(self._deny, state.graph)), value)
        return rest

    def _deny(self, graph: Graph, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try to match *inner* in *graph*; if that fails, the search goes on with *rest*."""
        depth, outside = len(state.choices), state.claimed
        state.choices.append((rest, len(state.trail)))
        state.change("claimed", set())
        state.change("deferred", None)
        state.change("negations", state.negations + 1)
        state.change("graph", graph)
        cut = RestStep(self.pattern, partial(self._cut, depth, outside))
        return (self.inner, value, (SETTLE, None, (cut, value, None)))

    def _cut(
        self,
        depth: int,
        outside: AbstractSet[Node],
        state: State,
        value: Value | None,
        _rest: Goals,
    ) -> Outcome:
        """Fail, since *inner* has matched; drop its choices and the one to go on without it."""
        del state.choices[depth:]
        state.change("claimed", outside)
        state.negations -= 1
        if not state.explains or state.negations:  # what fails inside another one is not told
            return False
        return state.refuse(repr(self.pattern), describe(value))


def _settle(state: State, _value: Value | None, rest: Goals) -> Outcome:
    if state.deferred is None:
        return rest
    step, subject, others = state.deferred
    state.change("deferred", others)
    if state.explains:  # it is the step that fails, then
        return (step, subject, (SETTLE, None, rest))
    return step.run(state, subject, (SETTLE, None, rest))


SETTLE = RestStep(WildcardPattern(), _settle)
"""The last goal of a search that may defer decisions."""


class EachStep(Step):
    """Ways to go on, tried one after the other; each is made only when its turn comes.

    Args:
        owner: The step that goes on.
        ways: The ways.
        words: Returns what to say when none is left.
    """

    def __init__(
        self, owner: Step, ways: Iterator[Goals], words: Callable[[], tuple[str, str]]
    ) -> None:
        super().__init__(owner.pattern)
        self.ways = ways
        self.words = words

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Take the next way and leave the others as a choice."""
        way = next(self.ways, None)
        if way is None:
            return state.explains and state.refuse(*self.words())
        state.choices.append(((self, value, rest), len(state.trail)))
        return way


# Steps for patterns of several outputs.


class Anchor(NamedTuple):
    """A part that two outputs share, and how many edges it lies above the second one."""

    step: Step
    distance: int


class OutputsStep(Step):
    """Several outputs: the first is the root's, each other one lies below an anchor.

    Args:
        pattern: The pattern compiled.
        outputs: One step per output.
        slots: Where the values of the outputs are bound.
        anchors: For each output, the parts that it may share with those before it.
    """

    def __init__(
        self,
        pattern: OutputsPattern,
        outputs: Sequence[Step],
        slots: Sequence[int],
        anchors: Sequence[Sequence[Anchor]],
    ) -> None:
        super().__init__(pattern)
        self.outputs = outputs
        self.slots = slots
        self.anchors = anchors
        self.heads = outputs[0].heads
        self.required = frozenset().union(*(step.required for step in outputs))

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the first output."""
        return self._match_output(0, state, value, rest)

    def _match_output(self, number: int, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match one output, then look for the next."""
        if value is None:
            return False
        state.bind(self.slots[number], behind_identities(value))
        following = number + 1
        if following < len(self.outputs):
            pattern = self.outputs[following].pattern
            seek = RestStep(pattern, partial(self._seek_output, following))
            rest = (seek, None, rest)
        return (self.outputs[number], value, rest)

    def _seek_output(self, number: int, state: State, _value: Value | None, rest: Goals) -> Outcome:
        step = self.outputs[number]
        match = RestStep(step.pattern, partial(self._match_output, number))
        ways = (
            (match, candidate, rest)
            for candidate in self._candidates(state, number)
            if step.is_plausible(candidate) and candidate.producer not in state.unavailable
        )
        return EachStep(
            step, ways, lambda: (f"the output {step.pattern!r}", "no value that could be it")
        ).run(state, None, None)

    def _candidates(self, state: State, number: int) -> Iterator[Value]:
        """Yield the values that output *number* may be, in program order."""
        for step, distance in self.anchors[number]:
            level = step.bound_values_in(state.slots)
            if level:
                for _ in range(distance):
                    readers = _readers(level, state.graph)
                    state.charge(len(readers))
                    level = [out for node in readers for out in node.outputs if out is not None]
                yield from level
                return
        for node in state.graph:
            yield from (output for output in node.outputs if output is not None)


def _readers(
    values: Sequence[Value], graph: Graph | None = None, slot: int | None = None
) -> list[Node]:
    """List the nodes of *graph*, or of any, that read one of *values*, perhaps in one slot."""
    pending = list(values)
    readers: dict[Node, None] = {}
    while pending:
        for user, place in pending.pop().iter_uses():
            if graph is not None and user.graph is not graph:
                continue
            if slot in {None, place}:
                readers[user] = None
            if is_identity(user):
                pending += [out for out in user.outputs if out is not None]
    return sorted(readers, key=lambda node: node.position)


# Steps that enter another graph: the body of a node or of a model-local function.


@dataclass(frozen=True, eq=False)
class CompiledBody:
    """The inputs and results that a body must have; its nodes are not part of the match.

    Attributes:
        pattern: The node pattern it belongs to.
        function: The function that may be called; None for a body of a node.
        params: One step per formal input, or None for any.
        results: One step per result, from the first.
    """

    pattern: DFPattern
    function: FunctionName | FunctionPattern | None
    params: Sequence[Step] | None
    results: Sequence[Step]

    def accepts(self, function: Function) -> bool:
        """Tell whether name, metadata and number of inputs are as wanted."""
        if isinstance(self.function, FunctionName):
            return self.function.accepts(function.domain, function.name)
        if self.params is not None and len(self.params) != len(function.body.inputs):
            return False
        wanted = () if self.function is None else self.function.metadata
        return all(function.metadata.get(key) == value for key, value in wanted)

    def step_into(self, graph: Graph | None) -> Step:
        """Return the step that matches one body; None is a body that is missing."""
        return RestStep(self.pattern, partial(self._match, graph))

    def _match(
        self, graph: Graph | None, state: State, _value: Value | None, rest: Goals
    ) -> Outcome:
        """Enter *graph*, match its inputs and results, and leave it."""
        if graph is None or len(self.results) > len(graph.outputs):
            count = 0 if graph is None else len(graph.outputs)
            wanted = f"a body with {len(self.results)} results"
            return state.explains and state.refuse(wanted, f"one with {count}")
        leave = partial(_move_to, state.graph, state.claimed)
        goals: Goals = (RestStep(self.pattern, leave), None, rest)
        formal = () if self.params is None else graph.inputs
        pairs = [
            *zip(self.params or (), formal, strict=False),
            *zip(self.results, graph.outputs, strict=False),
        ]
        for step, subject in reversed(pairs):
            goals = (step, subject, goals)
        return _move_to(graph, set(), state, None, goals)


def _move_to(
    graph: Graph, claimed: AbstractSet[Node], state: State, _value: Value | None, rest: Goals
) -> Goals:
    """Go on in *graph*, where the nodes *claimed* are bound."""
    state.change("graph", graph)
    state.change("claimed", claimed)
    return rest


# The steps that match nodes: operator, attributes and inputs in every order allowed.


_IDENTITY = frozenset({("", "Identity")})


class CallStep(Step):
    """A node pattern: the producer of the value, its operator, attributes and inputs."""

    pattern: CallPattern

    def __init__(  # noqa: PLR0913  # these are the parts of a node pattern
        self,
        pattern: CallPattern,
        slot: int,
        args: tuple[Step, ...],
        *,
        ops: Ops | None,
        functions: tuple[CompiledBody, ...],
        bodies: tuple[tuple[str, CompiledBody], ...],
        attributes_slot: int | None,
        keeps_defaults: bool,
    ) -> None:
        super().__init__(pattern, slot)
        self.ops = ops
        self.functions = functions
        self.args = args
        self.bodies = bodies
        captured = tuple((name, None) for name, _ in pattern.captures)
        self.attributes: tuple[tuple[str, AttributeValue | None], ...]
        self.attributes = pattern.attributes + captured
        self.attributes_slot = attributes_slot
        self.named = {name for name, _ in (*self.attributes, *pattern.bodies)}
        self.keeps_defaults = keeps_defaults and not pattern.attributes_name
        self.peers: tuple[int, ...] = ()
        self.alike: tuple[tuple[str, int], ...] = ()
        self.takers = tuple(arg for arg in args if isinstance(arg, VariadicStep))
        self.least = len(args) - len(self.takers)
        self.is_plain = not (functions or bodies or attributes_slot is not None)
        self.consumed: dict[tuple[str, int], frozenset[int]] = {}
        self.takes_inputs = not (self.attributes or self.keeps_defaults) and ops is not None
        self.anywhere = frozenset(op for domain, op in ops or () if domain == ANY_DOMAIN)
        self.takes_inputs &= not self.anywhere
        self.takes_inputs &= all(domain or op not in MOVED for domain, op in ops or ())
        self.sees_identity = ops is not None and ("", "Identity") in ops
        self.sees_identity |= "Identity" in self.anywhere
        if ops is not None and not functions and not self.anywhere:
            self.heads = ops
            edges = ((arg.heads, ops) for arg in args if arg.heads is not None)
            self.required = frozenset({ops, *edges})
        self.required = self.required.union(*(arg.required for arg in args))

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match output 0 of a node."""
        return self.match_output(0, state, value, rest)

    def match_output(  # noqa: C901, PLR0911  # a guard each
        self, index: int, state: State, value: Value | None, rest: Goals
    ) -> Outcome:
        """Match output *index* of a node."""
        given, node = value, None if value is None else value.producer
        if value is not None and is_identity(node):
            value = self._at_identity(state, value, index, rest)
            node = value.producer
        if value is None or node is None:
            return state.explains and state.refuse(self.title, describe(given))
        is_named = self.ops is None or (node.domain, node.op_type) in self.ops
        is_named = is_named or node.op_type in self.anywhere
        if not (is_named or self.functions):
            return state.explains and state.refuse(self.title, describe(given))
        if node.graph is not state.graph:
            return state.explains and state.refuse(
                f"{self.title} in the same graph", f"{_named(node)} in the graph round it"
            )
        if value.index != index:
            wanted, other = f"output {index} of {self.title}", f"output {value.index}"
            return state.explains and state.refuse(wanted, f"{other} of {_named(node)}")
        bound = state.slots[self.slot]
        if bound is node:
            return rest
        if bound is not None:
            wanted = f"the node that is {self.title} elsewhere in the pattern"
            return state.explains and state.refuse(wanted, _named(node))
        if node in state.claimed:
            return state.explains and state.refuse(
                f"a {self.title} of its own",
                f"{_named(node)}, which another part of the pattern is",
            )
        is_fit = self.takes_inputs and len(node.inputs) == self.least
        inputs = node.inputs if is_fit else self._fitting_inputs(state, node)
        if inputs is None:
            return state.explains and state.refuse(*state.words or (self.title, describe(given)))
        state.bind_node(self.slot, node)
        if self.is_plain:
            return self._match_inputs(node, inputs, state, None, rest)
        return self._match_special(node, inputs, state, rest, is_named=is_named)

    def _match_special(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        state: State,
        rest: Goals,
        *,
        is_named: bool,
    ) -> Outcome:
        """Match what few patterns have: attributes that are bound, variables, bodies, functions."""
        if not self._bind_attributes(state, node):
            return state.explains and state.refuse(self.title, _named(node))
        others = [state.slots[slot] for slot in self.peers]
        ops = {(other.domain, other.op_type) for other in others if isinstance(other, Node)}
        if not ops <= {(node.domain, node.op_type)}:
            wanted = f"the operator that {self.pattern.op.name!r} is elsewhere"
            return state.explains and state.refuse(wanted, _named(node))
        if not self._is_like_others(state, node):
            wanted = f"{self.title} with the attributes that its names are elsewhere"
            return state.explains and state.refuse(wanted, _named(node))
        rest = self._with_bodies(node, rest)
        if not is_named:
            return self._called(state, node, inputs, rest)
        return self._match_inputs(node, inputs, state, None, rest)

    def _is_like_others(self, state: State, node: Node) -> bool:
        """Tell whether *node* has the attributes that its captures stand for elsewhere."""
        for name, slot in self.alike:
            other = state.slots[slot]
            if isinstance(other, Node) and not _is_same(name, other, node):
                return False
        return True

    def _at_identity(self, state: State, value: Value, index: int, rest: Goals) -> Value:
        """Return the value to match: the one that Identity nodes copy, unless one may be meant."""
        if not self.sees_identity:
            return look_through(state, value)
        if self.ops != _IDENTITY:
            behind = RestStep(
                self.pattern,
                partial(self._match_behind, index),
            )
            state.choices.append(((behind, value, rest), len(state.trail)))
        return value

    def _match_behind(self, index: int, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match what the Identity node copies that makes *value*."""
        maker = None if value is None else value.producer
        inner = None if maker is None else maker.inputs[0]
        if maker is None or inner is None:
            return False
        if maker.graph is state.graph:
            state.note(maker)
        return self.match_output(index, state, inner, rest)

    def _match_inputs(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        state: State,
        _value: Value | None,
        rest: Goals,
    ) -> Outcome:
        """Match the inputs in every order allowed."""
        if len(inputs) > 1 and self.args:
            commutes = node.op_type in COMMUTATIVE and not node.domain
            if (commutes or self.pattern.is_unordered) and len(self.takers) < 2:  # noqa: PLR2004  # a pair can be swapped
                return self._permuted(state, inputs, rest)
        if self.takers:
            return (SpreadStep(self, self.args, InputRow(inputs)), None, rest)
        return self._in_order(state, inputs, rest)

    def _bind_attributes(self, state: State, node: Node) -> bool:
        """Bind the attributes that are not named, or compare them with those bound before."""
        slot = self.attributes_slot
        if slot is None:
            return True
        attributes = {n: node.attributes[n] for n in node.attributes if n not in self.named}
        if state.slots[slot] is None:
            state.bind(slot, Attributes(attributes))
            return True
        bound = state.slots[slot]
        return isinstance(bound, Attributes) and bound.values == attributes

    def _with_bodies(self, node: Node, rest: Goals) -> Goals:
        for attribute, body in reversed(self.bodies):
            rest = (body.step_into(node.subgraphs.get(attribute)), None, rest)
        return rest

    def _called(
        self, state: State, node: Node, inputs: Sequence[Value | None], rest: Goals
    ) -> Outcome:
        """Match the function that *node* calls, then the inputs."""
        function = node.graph.model.functions.get((node.domain, node.op_type, node.overload))
        rest = (RestStep(self.pattern, partial(self._match_inputs, node, inputs)), None, rest)
        bodies = (body for body in self.functions if function and body.accepts(function))
        ways = [(body.step_into(function.body), None, rest) for body in bodies]  # type: ignore[union-attr]  # none without
        return (
            state.choose(ways)
            if ways
            else state.explains and state.refuse(self.title, _named(node))
        )

    def _fitting_inputs(  # a guard each
        self, state: State, node: Node
    ) -> Sequence[Value | None] | None:
        """Return as many inputs as there are arguments, or more; omitted ones are None.

        None if the number of inputs or an attribute does not fit.
        """
        inputs: Sequence[Value | None] = node.inputs
        count, wanted = len(inputs), self.least
        if node.op_type in MOVED and not node.domain:
            inputs = inputs_of(node)
            count = len(inputs)
            if not self.pattern.rest and has_unknown_parameter(node):
                return None
        elif count == wanted and not (self.attributes or self.keeps_defaults):
            return inputs
        if self.attributes:
            inputs = self._not_named(node, inputs)
            count = len(inputs)
        while count and inputs[count - 1] is None:
            count -= 1
        if count > wanted and not (self.pattern.rest or self.takers):
            if state.explains:
                more = _described([value for value in inputs[wanted:] if value is not None])
                there = f"{count} at {_named(node)}: also {more}"
                state.refuse(f"{self.title} with {counted(wanted, 'input')}", there)
            return None
        if not self._has_attributes(state, node):
            return None
        fitting = inputs[:count]
        if count < wanted:
            fitting = (*fitting, *[None] * (wanted - count))
        return fitting

    def _has_attributes(self, state: State, node: Node) -> bool:
        """Tell whether *node* has the attributes that are named, and the defaults of others."""
        for name, wants in self.attributes:
            if not attribute_equals(node, name, wants):
                if state.explains:
                    attribute = parameter_of(node, name)
                    shown = "unknown" if attribute is None else print_attribute(attribute)
                    listed = list(wants) if isinstance(wants, tuple) else wants
                    expected = "known" if wants is None else f"= {listed!r}"
                    there = f"{name} = {shown} at {_named(node)}"
                    state.refuse(f"{self.title} with {name} {expected}", there)
                return False
        lost = beyond_default(node, self.named) if self.keeps_defaults else ""
        if lost and state.explains:
            usual, stated = default_of(node, lost), print_attribute(node.attributes[lost])
            wanted = "absent" if usual is None else f"= {print_attribute(usual)}, its default"
            hint = "name it, or write **attrs to carry what is not named, **_ to lose it"
            there = f"{lost} = {stated} at {_named(node)} ({hint})"
            state.refuse(f"{self.title} with {lost} {wanted}", there)
        return not lost

    def _not_named(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Leave out the inputs whose values the pattern gives by name, as attributes."""
        key = (node.op_type, node.graph.opset_imports.get(node.domain, 0))
        consumed = self.consumed.get(key)
        if consumed is None:
            places = (slot_of(node, name) for name, _ in self.attributes)
            consumed = frozenset(place for place in places if place is not None)
            self.consumed[key] = consumed
        if not consumed:
            return inputs
        return [value for place, value in enumerate(inputs) if place not in consumed]

    def _in_order(self, state: State, inputs: Sequence[Value | None], rest: Goals) -> Outcome:
        """Match each input with the argument at its place; what is decided at once is."""
        args = self.args
        for place in range(len(args) - 1, -1, -1):
            step, value = args[place], inputs[place]
            if step.is_decided:
                if step.run(state, value, None) is False:
                    return False
            elif step.heads is None or step.is_plausible(value):
                rest = (step, value, rest)
            else:
                return False
        return rest

    def _permuted(self, state: State, inputs: Sequence[Value | None], rest: Goals) -> Outcome:
        """Try every assignment of inputs to arguments, those as written first.

        An omitted input stays where it is: only the argument at its place can match it.
        """
        if self.takers:
            args = [arg for arg in self.args if not isinstance(arg, VariadicStep)]
            row = InputRow(inputs)
            step = AssignStep(self, tuple(enumerate(args)), row, 0, self.takers[0])
            return (step, None, rest)
        if len(self.args) == 2 and len(inputs) == 2:  # noqa: PLR2004  # the common case
            first, second = self.args
            a, b = inputs
            swapped = a is not None and b is not None
            swapped = swapped and first.is_plausible(b) and second.is_plausible(a)
            if first.is_plausible(a) and second.is_plausible(b):
                if swapped and not (type(first) is AnyStep and type(second) is AnyStep):
                    goals = (first, b, (second, a, rest))
                    state.choices.append((goals, len(state.trail)))
                return self._in_order(state, inputs, rest)
            return self._in_order(state, (b, a), rest) if swapped else False
        wanted = [(slot, arg) for slot, arg in enumerate(self.args) if type(arg) is not AnyStep]
        spare = len(self.args) - len(wanted)
        return AssignStep(self, tuple(wanted), InputRow(inputs), spare).run(state, None, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the outputs of the node."""
        node = slots[self.slot]
        return [] if node is None else [v for v in node.outputs if v is not None]  # type: ignore[attr-defined]  # a node

    @property
    def title(self) -> str:
        """What the pattern calls."""
        op = self.pattern.op
        return op.alternatives(lambda _: "…") if op.name else op.spelled(lambda _: "…")


@dataclass(frozen=True, eq=False)
class Attributes:
    """The attributes of a node that a pattern does not name. It is hashable, as slots demand."""

    values: Mapping[str, Attribute]


class OutputStep(Step):
    """Output *index* of a node pattern."""

    def __init__(self, pattern: DFPattern, call: CallStep, index: int) -> None:
        super().__init__(pattern)
        self.call = call
        self.index = index
        self.heads = call.heads
        self.required = call.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match one output of a node."""
        return self.call.match_output(self.index, state, value, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the output, if the node has it."""
        return [v for v in self.call.bound_values_in(slots) if v.index == self.index]


def look_through(state: State, value: Value) -> Value:
    """Return the value behind Identity nodes, which are noted as part of the match."""
    origin = behind_identities(value)
    while value is not origin:
        producer = value.producer
        assert producer is not None  # noqa: S101  # it has an origin, so it is a copy
        if producer.graph is state.graph:
            state.note(producer)
        value = producer.inputs[0] or origin
    return origin


# Steps for edges between nodes, and for chains of nodes of one kind.


class EdgeStep(Step):
    """A consumer, one of whose inputs is the producer."""

    pattern: EdgePattern

    def __init__(self, pattern: EdgePattern, producer: Step, consumer: Step) -> None:
        super().__init__(pattern)
        self.producer = producer
        self.consumer = consumer
        self.rest_of_edge = RestStep(pattern, self._match_producer)
        self.stand_for(consumer, producer)

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002  # the signature of all programs
        """Match the consumer, whose inputs are few, then look for the producer."""
        return (self.consumer, value, (self.rest_of_edge, value, rest))

    def _match_producer(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        inputs = self._inputs(state, value)
        ways: list[Goals]
        ways = [(self.producer, item, rest) for item in inputs if self.producer.is_plausible(item)]
        if ways or not state.explains:
            return state.choose(ways)
        only = " that nothing else reads" if self.pattern.only else ""
        where = "an input" if self.pattern.index is None else f"input {self.pattern.index}"
        return state.refuse(f"{where} of {describe(value)}{only}", "none")

    def _inputs(self, state: State, value: Value | None) -> list[Value]:
        """Return the inputs of the consumer that may be the producer's value, each once."""
        node = None if value is None else behind_identities(value).producer
        if node is None or node.graph is not state.graph:
            return []
        index = self.pattern.index
        inputs = node.inputs if index is None else node.inputs[index : index + 1]
        fitting = dict.fromkeys(item for item in inputs if item is not None)
        if self.pattern.only:
            return [item for item in fitting if is_read_only_by(behind_identities(item), node)]
        return list(fitting)


class ReaderStep(Step):
    """Any node that reads the value, here or in a body: what ``not_used_by`` denies."""

    pattern: UnusedPattern

    def __init__(self, pattern: UnusedPattern, consumer: Step) -> None:
        super().__init__(pattern)
        self.consumer = consumer

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the consumer at what makes a reader; it is in the graph that the reader is in."""
        if value is None:
            return False
        readers = _readers([behind_identities(value)], slot=self.pattern.index)
        state.charge(len(readers))
        ways: list[Goals] = []
        for node in readers:
            enter = RestStep(self.pattern, partial(_move_to, node.graph, state.claimed))
            made = (output for output in node.outputs if output is not None)
            ways += [(enter, None, (self.consumer, output, rest)) for output in made]
        return state.choose(ways)


class ChainProgress(NamedTuple):
    """How far a chain has grown.

    Attributes:
        links: How many of its steps have matched.
        deferred: What was deferred before the chain began.
    """

    links: int
    deferred: Deferred


class RepeatStep(Step):
    """A chain of links of one kind; the longest chain is tried first.

    Args:
        pattern: The chain.
        progress: The slot of the :class:`ChainProgress`.
        base: What the chain ends in.
        link: One step of the chain.
        hole: The slot of what a link reads of the chain above it.
        own: What each link binds anew.

    Attributes:
        next: The chain above a link.
        ending: The chain's end, left as a choice where the chain can also go on.
    """

    pattern: RepeatPattern

    def __init__(  # noqa: PLR0913, PLR0917  # these are the parts of a chain
        self, pattern: RepeatPattern, progress: int, base: Step, link: Step, hole: int, own: Link
    ) -> None:
        super().__init__(pattern, progress)
        self.base = base
        self.link = link
        self.hole = hole
        self.own = own
        self.next = RestStep(pattern, self._after_link)
        self.ending = RestStep(pattern, self._end)
        self.required = base.required
        if pattern.least:
            self.required |= link.required
            self.heads = link.heads
        elif link.heads is not None and base.heads is not None:
            self.heads = link.heads | base.heads

    def links_in(self, slots: Sequence[object]) -> int:
        """Return how many links the chain has."""
        progress = slots[self.slot] if slots else None
        return progress.links if isinstance(progress, ChainProgress) else 0

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Begin with no link."""
        return self._grow(state, value, rest, 0)

    def _grow(self, state: State, value: Value | None, rest: Goals, count: int) -> Outcome:
        """Match one more link after *count* of them, or else the base."""
        state.reset(self.slot, ChainProgress(count, state.deferred))
        may_end = count >= self.pattern.least and self.base.is_plausible(value)
        may_grow = self.pattern.most is None or count < self.pattern.most
        if not may_grow or not self.link.is_plausible(value):
            if may_end:
                return self._end(state, value, rest)
            link = self.link.title if isinstance(self.link, CallStep) else repr(self.link.pattern)
            wanted = f"{self.pattern.least} or more {link}"
            return state.explains and state.refuse(wanted, f"{count}, then {describe(value)}")
        if may_end:
            state.choices.append(((self.ending, value, rest), len(state.trail)))
        self.own.unbind(state)
        state.change("deferred", None)
        return (self.link, value, (self.next, value, rest))

    def _after_link(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Decide what the link has deferred, then count it and go on above it."""
        if state.deferred is not None:
            return (SETTLE, None, (self.next, value, rest))
        above: Any = state.slots[self.hole]
        if above is None:  # an alternative without the hole
            return state.explains and state.refuse("a step that goes on", describe(value))
        done = state.slots[self.slot]
        assert isinstance(done, ChainProgress)  # noqa: S101  # see _grow
        state.change("deferred", done.deferred)
        return self._grow(state, above, rest, done.links + 1)

    def _end(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Go on to the base, which sees nothing that the last link has bound."""
        self.own.unbind(state)
        return (self.base, value, rest)


# What compiling a pattern gives.


class Demand(NamedTuple):
    """What a graph must have for a pattern to match in it.

    Attributes:
        heads: The operators whose nodes a match can be rooted in; None for any.
        required: Operators (a set to choose from), and edges (a pair of such sets).
    """

    heads: Ops | None
    required: frozenset[Requirement]

    @property
    def operators(self) -> list[Ops]:
        """The operators, without the edges."""
        return [needed for needed in self.required if isinstance(needed, frozenset)]


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
        operators: Each operator variable, with the slots of the nodes that are of it.
        variadic: Each ``*name``, with its slot.
        leaves: The step of each leaf that binds a value.
        output_slots: Where several outputs are bound; empty if there is one.
        defers: Whether a step may defer a decision.
    """

    root: Step
    steps: Mapping[int, Step]
    slot_count: int
    names: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    attribute_names: tuple[tuple[str, int], ...]
    operators: tuple[tuple[str, tuple[int, ...]], ...]
    variadic: tuple[tuple[str, int], ...]
    leaves: tuple[LeafStep, ...]
    output_slots: tuple[int, ...]
    defers: bool

    def start(self, value: Value) -> Goals:
        """Return the goals of a search at *value*."""
        return (self.root, value, (SETTLE, None, None) if self.defers else None)

    @property
    def demand(self) -> Demand:
        """What a graph must have."""
        return Demand(self.root.heads, self.root.required)

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
    def inner_operators(self) -> Ops | None:
        """The operators of the nodes that a match has besides its root; None for any.

        Those of chains and regions are not listed.
        """
        operators: set[OpKey] = set()
        for step in self.steps.values():
            if not isinstance(step, CallStep) or step is self.root:
                continue
            if step.ops is None or step.functions or step.anywhere:
                return None
            operators |= step.ops
        return frozenset(operators)

    def bindings(self, slots: Sequence[object]) -> dict[str, Value]:
        """Return what each name is bound to; names that took no part are missing."""
        values: dict[str, Value] = {}
        for name, choices in self.names:
            for slot, index in choices:
                bound = slots[slot]
                if bound is None:
                    continue
                if isinstance(bound, Value):
                    values[name] = bound
                elif isinstance(bound, Node) and index < len(bound.outputs):
                    output = bound.outputs[index]
                    if output is not None:
                        values[name] = output
                break
        return values

    def bound_attributes(self, slots: Sequence[object]) -> dict[str, Mapping[str, Attribute]]:
        """Return what each ``**name`` is bound to."""
        attributes: dict[str, Mapping[str, Attribute]] = {}
        for name, slot in self.attribute_names:
            bound = slots[slot]
            if isinstance(bound, Attributes):
                attributes[name] = bound.values
        return attributes

    def bound_operators(self, slots: Sequence[object]) -> dict[str, OpName]:
        """Return what each operator variable stands for."""
        operators: dict[str, OpName] = {}
        for name, places in self.operators:
            nodes = (bound for place in places if isinstance(bound := slots[place], Node))
            operators.update((name, OpName(node.op_type, node.domain)) for node in nodes)
        return operators

    def bound_inputs(self, slots: Sequence[object]) -> dict[str, InputRun]:
        """Return what each ``*name`` is bound to."""
        bound = ((name, slots[slot]) for name, slot in self.variadic)
        return {name: inputs for name, inputs in bound if isinstance(inputs, InputRun)}

    def outputs(self, state: State) -> tuple[Value, ...]:
        """Return the values of the pattern's outputs."""
        if not self.output_slots:
            return (state.subject,)
        return tuple(v for slot in self.output_slots if isinstance(v := state.slots[slot], Value))


# The nodes at which a pattern might match, found by operator.


class OpIndex:
    """The nodes of one graph by operator, in topological order.

    Args:
        graph: The graph, which must not be edited while the index is in use.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: dict[OpKey, list[Node]] = {}
        self._merged: dict[Ops, list[Node]] = {}
        for node in graph:
            self._nodes.setdefault((node.domain, node.op_type), []).append(node)

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """How many nodes there are of each operator (domain, type)."""
        return {op: len(nodes) for op, nodes in self._nodes.items()}

    def candidates(self, demand: Demand, *, by_edges: bool = True) -> Sequence[Node]:
        """Return the nodes at which a pattern might match, in topological order.

        Empty if the graph lacks an operator, or an edge between operators, that every match needs.

        Args:
            demand: What every match needs.
            by_edges: Whether to look at edges, too; listing them pays if there are many rules.
        """
        if any(map(self.lacks, demand.operators)):
            return ()
        if by_edges and any(map(self.lacks, demand.required)):
            return ()
        return self.of(demand.heads)

    def lacks(self, needed: Requirement) -> bool:
        """Tell whether the graph has none of the operators, or no such edge."""
        if isinstance(needed, frozenset):
            return self._nodes.keys().isdisjoint(needed)
        return _lacks_edge(self.edges, needed)

    @cached_property
    def edges(self) -> set[tuple[OpKey, OpKey]]:
        """Which operator reads the output of which, Identity nodes seen and looked through."""
        edges: set[tuple[OpKey, OpKey]] = set()
        for op, nodes in self._nodes.items():
            for node in nodes:
                for value in node.inputs:
                    maker = None if value is None else value.producer
                    if maker is not None and maker.op_type == "Identity":
                        edges.add(((maker.domain, maker.op_type), op))  # it may be meant itself
                        maker = behind_identities(value).producer  # type: ignore[arg-type]  # it is made
                    if maker is not None:
                        edges.add(((maker.domain, maker.op_type), op))
        return edges

    def of(self, heads: AbstractSet[OpKey] | None) -> Sequence[Node]:
        """Return the nodes of the operators *heads*, all if it is None, in topological order."""
        if heads is None:
            return list(self.graph)
        present = self._nodes.keys() & heads
        if len(present) == 1:
            return self._nodes[next(iter(present))]
        key = frozenset(present)
        if key not in self._merged:
            nodes = (node for head in present for node in self._nodes[head])
            self._merged[key] = sorted(nodes, key=lambda node: node.position)
        return self._merged[key]


def _lacks_edge(edges: AbstractSet[tuple[OpKey, OpKey]], needed: tuple[Ops, Ops]) -> bool:
    makers, readers = needed
    return not any((maker, reader) in edges for maker in makers for reader in readers)


class OpIndexes:
    """The nodes of several graphs by operator.

    A model may have thousands of bodies and functions, and a rule concerns few of them; asking each
    graph for each rule would cost the product of their numbers.

    Args:
        graphs: The graphs, in order; they must not be edited while the indexes are in use.

    Attributes:
        all: The index of each graph.
    """

    def __init__(self, graphs: Iterable[Graph]) -> None:
        self.all = [OpIndex(graph) for graph in graphs]
        self._having: dict[OpKey, list[int]] = {}
        self._merged: dict[Ops, list[OpIndex]] = {}
        for number, index in enumerate(self.all):
            for op in index.counts:
                self._having.setdefault(op, []).append(number)

    def having(self, ops: Ops | None) -> Sequence[OpIndex]:
        """Return those with a node of one of the operators, in order; all if *ops* is None."""
        if ops is None:
            return self.all
        if ops not in self._merged:
            found = {number for op in self._having.keys() & ops for number in self._having[op]}
            self._merged[ops] = [self.all[number] for number in sorted(found)]
        return self._merged[ops]

    def within(self, demand: Demand) -> Sequence[OpIndex]:
        """Return those in which there may be candidates: with the rarest of what is needed."""
        return min(map(self.having, [demand.heads, *demand.operators]), key=len)

    def lacks(self, needed: Requirement) -> bool:
        """Tell whether no graph has any of the operators, or such an edge."""
        if isinstance(needed, frozenset):
            return self._having.keys().isdisjoint(needed)
        return _lacks_edge(self._edges, needed)

    @cached_property
    def _edges(self) -> set[tuple[OpKey, OpKey]]:
        return {edge for index in self.all for edge in index.edges}


# What a root's operator, and the nodes just above it, tell of the root (S. Schulz,
# *Fingerprint Indexing for Paramodulation and Rewriting*, IJCAR 2012).
#
# Nodes of one fingerprint are alike that far, so a pattern is asked once for each fingerprint
# whether it may match there; most often it may not.


class Fingerprints:
    """The fingerprints of nodes, by number: operators, and of constants their rank.

    Args:
        depth: How many nodes lie one above the other in a fingerprint. If more than one do, nothing
            may be edited while it is in use.
    """

    def __init__(self, depth: int = 1) -> None:
        self._known: dict[Node, int] = {}
        self._above = Fingerprints(depth - 1) if depth > 1 else None
        self._numbers: dict[tuple[object, ...], int] = {}
        self._fingerprints: list[Fingerprint] = []

    def number(self, node: Node) -> int:
        """Return the number of a node's fingerprint."""
        number = self._known.get(node)
        if number is not None:
            return number
        above = self._above
        key: list[object] = [node.domain, node.op_type]
        for value in node.inputs:
            maker = None if value is None else value.producer
            if maker is None:
                key.append(_sort_of_given(value))
            elif above is not None:
                key.append(2 + above.number(maker))  # False and True equal 0 and 1
            else:
                key.append((maker.domain, maker.op_type))
        alike = tuple(key)
        number = self._numbers.get(alike)
        if number is None:
            number = self._numbers[alike] = len(self._fingerprints)
            self._fingerprints.append(
                ((node.domain, node.op_type), tuple(map(self._sort, key[2:])))
            )
        self._known[node] = number
        return number

    def _sort(self, part: Any) -> Sort:  # noqa: ANN401  # what :meth:`number` has put into the key
        return self._above.fingerprint(part - 2) if self._above and type(part) is int else part

    def fingerprint(self, number: int) -> Fingerprint:
        """Return a fingerprint."""
        return self._fingerprints[number]

    def forget(self, node: Node) -> None:
        """Let the fingerprint of *node* be found anew: it is gone, or reads something else."""
        self._known.pop(node, None)

    def forget_readers(self, value: Value) -> None:
        """Let the fingerprints of what reads *value* be found anew."""
        for node, _ in value.iter_uses():
            self.forget(node)

    def may_hold(self, number: int, program: Program) -> bool:
        """Tell whether *program* may match at nodes of a fingerprint; if not, it does not."""
        return _Prospects().may_be(program.root, self._fingerprints[number])


_IDENTITY_OP = ("", "Identity")


class ConstantSort(NamedTuple):
    """A constant that no node makes.

    Attributes:
        rank: Its rank, where that is at hand; else None.
    """

    rank: int | None


_constant_of = cache(ConstantSort)


def _sort_of_given(value: Value | None) -> ConstantSort | bool | None:
    if value is None:
        return None
    if not value.is_constant:
        return False
    stated = value.type_source
    shape = stated.shape if isinstance(stated, TensorType) else None
    return _constant_of(None if shape is None else len(shape))


class _Prospects:
    """Tells whether steps may match values, by what makes these; all that is not known may be.

    A sort is the fingerprint of the node that makes a value, or its operator; of what no node
    makes, a :class:`ConstantSort` or False; None if there is no value.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}

    def may_be(self, step: Step, sort: Sort) -> bool:
        """Tell whether a step may match a value of a sort; a shared part is asked once."""
        key = (id(step), id(sort))
        answer = self._known.get(key)
        if answer is None:
            answer = self._known[key] = self._may_be(step, sort)
        return answer

    def _may_be(self, step: Step, sort: Sort) -> bool:  # noqa: PLR0911  # a case per kind
        op = sort[0] if type(sort) is tuple and type(sort[0]) is tuple else sort
        if op == _IDENTITY_OP:
            return True
        match step:
            case OrStep() | AndStep():
                enough = any if isinstance(step, OrStep) else all
                return enough(self.may_be(part, sort) for part in (step.left, step.right))
            case SharedStep(inner=inner) | OutputsStep(outputs=[inner, *_]):
                return self.may_be(inner, sort)
            case AbsentStep():
                return sort is None
            case ConstantStep():
                return isinstance(op, ConstantSort) or op == ("", "Constant")
            case TypeStep() if isinstance(op, ConstantSort) and op.rank is not None:
                return step.pattern.ranks is None or op.rank in step.pattern.ranks
            case CallStep() if op is not sort:
                return self._may_call(step, *sort)  # type: ignore[misc]  # it is a fingerprint
            case CallStep() if type(op) is not tuple:
                return False
            case LeafStep() | AnyStep() | UnnamedStep():
                return sort is not None
            case _:
                return step.heads is None or op in step.heads

    def _may_call(self, step: CallStep, op: OpKey, sorts: tuple[Sort, ...]) -> bool:
        """Tell whether a step may match a node of an operator whose inputs are of these sorts."""
        is_named = step.ops is None or op in step.ops or op[1] in step.anywhere
        if step.functions or not is_named:
            return bool(step.functions)
        is_moved = not op[0] and op[1] in MOVED
        if is_moved or step.attributes or step.takers:
            return True
        count, args = len(sorts), step.args
        while count and sorts[count - 1] is None:
            count -= 1
        if count > step.least and not step.pattern.rest:
            return False
        sorts = (*sorts[:count], *[None] * (step.least - count))
        commutes = (op[1] in COMMUTATIVE and not op[0]) or step.pattern.is_unordered
        if len(sorts) < 2 or not commutes:  # noqa: PLR2004  # a pair can be swapped
            return all(map(self.may_be, args, sorts))
        if len(args) == len(sorts) == 2:  # noqa: PLR2004  # a pair can be swapped
            return any(all(map(self.may_be, args, order)) for order in (sorts, sorts[::-1]))
        return all(any(self.may_be(arg, sort) for sort in sorts) for arg in args)


# The loop that runs goals, depth first.


def advance(state: State, goals: Goals, on_failure: OnFailure | None = None) -> bool:
    """Run goals and choices until all goals are met; False if no choice is left.

    Raises:
        StepBudgetExceededError: The steps of *state* are spent.
    """
    choices = state.choices
    allowed = state.budget - state.spent
    steps = 0
    while goals is not None:
        steps += 1
        if steps > allowed:
            state.charge(steps)
        step, subject, rest = goals
        following = step.run(state, subject, rest)
        if following is not False:
            goals = following
            continue
        if on_failure is not None:
            on_failure(step, subject, state, rest)
            state.words = None
        if not choices:
            state.spent += steps
            return False
        goals, mark = choices.pop()
        state.undo(mark)
    state.spent += steps
    return True


def fits(program: Program, value: Value, outer: State) -> bool:
    """Tell whether another pattern matches *value*; the goals are charged to *outer*.

    Raises:
        StepBudgetExceededError: The steps of *outer* are spent.
    """
    state = State(outer.graph, program.slot_count, outer.budget - outer.spent, value)
    is_match = advance(state, program.start(value))
    outer.charge(state.spent)
    return is_match


# The step for dominated regions.


class DominatorStep(Step):
    """Relay's dominator pattern (``src/relay/ir/dataflow_matcher.cc``), with visited nodes marked.

    Every way up from the child leads through path nodes to the same parent; leaves do not count.
    Nothing outside reads the parent or a path node.
    """

    def __init__(self, pattern: DominatorPattern, parent: Step, path: Program, child: Step) -> None:
        super().__init__(pattern)
        self.parent = parent
        self.path = path
        self.child = child
        self.stand_for(child, parent)

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the child, then parents from the nearest on; nodes claimed by now are outside."""
        seek = partial(self._seek_parent, frozenset(state.claimed))
        return (self.child, value, (RestStep(self.pattern, seek), value, rest))

    def _seek_parent(
        self, outside: AbstractSet[Node], state: State, value: Value | None, rest: Goals
    ) -> Outcome:
        child = None if value is None else behind_identities(value).producer
        words = partial(self._words, value)
        if child is None or child.graph is not state.graph:
            return state.explains and state.refuse(*words())
        ways = (
            (
                RestStep(self.pattern, partial(_claim, region, outside)),
                None,
                (self.parent, top, rest),
            )
            for region, top in _Walk(self, child, state).regions()
        )
        return EachStep(self, ways, words).run(state, value, None)

    def _words(self, value: Value | None) -> tuple[str, str]:
        pattern = self.parent.pattern
        return f"{pattern!r} above, all of whose uses lead here", f"none above {describe(value)}"


def _claim(
    region: Sequence[Node],
    outside: AbstractSet[Node],
    state: State,
    _value: Value | None,
    rest: Goals,
) -> Outcome:
    """Take the nodes of a region into the match, unless one of them lies outside."""
    for node in region:
        if node in outside:
            return False
        if is_identity(node):
            state.note(node)
        elif node not in state.claimed:
            state.claim(node)
    return rest


class _Walk:
    """Looks for parents above one child."""

    def __init__(self, dominator: DominatorStep, child: Node, state: State) -> None:
        self.dominator = dominator
        self.child = child
        self.state = state
        self.on_path: dict[Node, bool] = {}
        self.leaves: dict[Value, bool] = {}

    def regions(self) -> Iterator[tuple[list[Node], Value]]:
        """Yield each region with a value of its parent, in depth-first order."""
        for candidate in self._upwards():
            plausible = self.dominator.parent.is_plausible
            outputs = [v for v in candidate.outputs if v is not None and plausible(v)]
            region = self._region(candidate) if outputs else None
            if region is not None:
                yield from ((region, output) for output in outputs)

    def _upwards(self) -> Iterator[Node]:
        """Yield every node above the child that path nodes lead to."""
        seen: set[Node] = set()
        pending = list(reversed(self._above(self.child)))
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            self.state.charge(1)
            if not is_identity(node):
                yield node
            if self._is_path(node):
                pending.extend(reversed(self._above(node)))

    def _above(self, node: Node) -> list[Node]:
        """Return the nodes that make the inputs of *node*; leaves do not count."""
        inputs = (value for value in node.inputs if value is not None)
        inner = (value.producer for value in inputs if not self._copies_leaf(value))
        return [node for node in inner if node is not None]

    def _copies_leaf(self, value: Value) -> bool:
        """Tell whether *value* is a leaf, or a copy of one by Identity nodes."""
        copies: list[Value] = []
        current = value
        while current not in self.leaves and is_identity(current.producer):
            copies.append(current)
            source = current.producer.inputs[0] if current.producer is not None else None
            if source is None:
                break
            current = source
        answer = self.leaves.get(current)
        is_leaf = self._is_leaf(current) if answer is None else answer
        self.leaves.update(dict.fromkeys(copies, is_leaf))
        return is_leaf

    def _is_leaf(self, value: Value) -> bool:
        """Tell whether *value* is an input, a constant, or captured."""
        maker = value.producer
        return maker is None or maker.graph is not self.state.graph or value.is_constant

    def _is_path(self, node: Node) -> bool:
        if is_identity(node):
            return True
        answer = self.on_path.get(node)
        if answer is None:
            outputs = (output for output in node.outputs if output is not None)
            answer = any(fits(self.dominator.path, output, self.state) for output in outputs)
            self.on_path[node] = answer
        return answer

    def _region(self, parent: Node) -> list[Node] | None:
        """Return the nodes between *parent* and the child; None if they make no region."""
        region = {self.child: None}
        pending = [self.child]
        while pending:
            node = pending.pop()
            above = self._above(node)
            self.state.charge(1)
            if not above or (node is not self.child and not self._is_path(node)):
                return None
            for upper in above:
                if upper is not parent and upper not in region:
                    region[upper] = None
                    pending.append(upper)
        inner = [parent, *(node for node in region if node is not self.child)]
        if any(_is_read_outside(node, region) for node in inner):
            return None
        return [node for node in region if node is not self.child]


def _is_read_outside(node: Node, region: dict[Node, None]) -> bool:
    for output in node.outputs:
        if output is not None and (
            output.returned_by or any(user not in region for user in users(output))
        ):
            return True
    return False


# Steps that look at types; what is unknown does not match.


class TypeStep(Step):
    """A check of what is known of the value's type; it binds nothing but dimension variables.

    Args:
        pattern: The pattern compiled.
        letters: The slot of each dimension variable.
    """

    pattern: TypedPattern

    def __init__(self, pattern: TypedPattern, letters: Mapping[str, int]) -> None:
        super().__init__(pattern)
        self.letters = letters

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept a type that is known to fit."""
        stated = None if value is None else value.known_type()
        if stated is not None and self._fits(state, stated):
            return rest
        if not state.explains:
            return False
        texts = []
        if self.pattern.dtypes is not None:
            texts.append(f"element type {' or '.join(self.pattern.dtypes)}")
        if self.pattern.ranks is not None:
            texts.append(f"rank {' or '.join(map(str, self.pattern.ranks))}")
        if self.pattern.shape is not None:
            dims = []
            for dim in self.pattern.shape:
                bound = state.slots[self.letters[dim]] if isinstance(dim, str) else None
                dims.append("_" if dim is None else f"{dim}" if bound is None else f"{dim}={bound}")
            texts.append(f"shape [{', '.join(dims)}]")
        return state.refuse(" and ".join(texts), _type_of(value))

    def _fits(self, state: State, stated: TensorType) -> bool:  # noqa: PLR0911  # a guard each
        dtypes, ranks, dims = self.pattern.dtypes, self.pattern.ranks, self.pattern.shape
        if dtypes is not None and stated.dtype not in dtypes:
            return False
        if ranks is None and dims is None:
            return True
        shape = stated.shape
        if shape is None or (ranks is not None and len(shape) not in ranks):
            return False
        if dims is None or len(shape) != len(dims):
            return dims is None
        for wanted, dim in zip(dims, shape, strict=True):
            if wanted is None:
                continue
            if dim is None:
                return False
            slot = self.letters[wanted] if isinstance(wanted, str) else None
            if slot is not None and state.slots[slot] is None:
                state.bind(slot, dim)
            elif dim != (wanted if slot is None else state.slots[slot]):
                return False
        return True


class SameShapeStep(Step):
    """An inner step, and a comparison of shapes when everything is bound."""

    def __init__(self, pattern: DFPattern, inner: Step, other: Step) -> None:
        super().__init__(pattern)
        self.inner = inner
        self.other = other
        self.comparison = RestStep(pattern, self._compare)
        self.stand_for(inner)

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the inner step; the other may not be bound yet."""
        state.defer(self.comparison, value)
        return (self.inner, value, rest)

    def _compare(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        shape = _known_shape(value)
        others = self.other.bound_values_in(state.slots)
        if shape is not None and others and shape == _known_shape(others[0]):
            return rest
        if not state.explains:
            return False
        if not others:
            return state.refuse("the shape of a value that takes no part", _type_of(value))
        sure = "" if _surely_differ(shape, _known_shape(others[0])) else "provably "
        return state.refuse(f"{sure}the shape of {_type_of(others[0])}", _type_of(value))


def _surely_differ(one: Shape | None, other: Shape | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return one is not None and other is not None
    pairs = zip(one, other, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _known_shape(value: Value | None) -> Shape | None:
    stated = None if value is None else value.known_type()
    return None if stated is None or stated.shape is None or None in stated.shape else stated.shape


def _type_of(value: Value | None) -> str:
    stated = None if value is None else value.known_type()
    if value is None or stated is None:
        return f"{describe(value)}, whose type is not known"
    rank = " and unknown rank" if stated.shape is None else ""
    return f"{describe(value)} of type {stated}{rank}"


# Compile a pattern into steps: one per pattern object, in a single iterative walk.


_NODES = (CallPattern, OutputPattern)
_DENYING = (NotPattern, UnusedPattern)
_MANY_NEGATIONS = 64
"""A pattern with more negations decides all of them last: to analyse them takes long."""
_LEAVES = (WildcardPattern, VariadicPattern, AbsentPattern, ConstantPattern, InputPattern)


def compile_pattern(
    pattern: DFPattern,
    *,
    prune: bool = True,
    binds_all: bool = False,
    keeps_defaults: bool = False,
) -> Program:
    """Compile *pattern*.

    Args:
        pattern: What to compile.
        prune: Whether steps may tell cheaply that a value cannot match; without, every mismatch
            shows at the very step that finds it.
        binds_all: Whether to bind parts without a name, for functions that ask for what a pattern
            object is bound to; parts that were read from a text are never asked for.
        keeps_defaults: Whether attributes that the pattern does not name must have their default:
            what takes its place would lose others.

    Raises:
        PatternSyntaxError: The pattern makes no sense.
    """
    check_pattern(pattern)
    compiler = _Compiler(pattern, prune=prune, binds_all=binds_all)
    compiler.keeps_defaults = keeps_defaults
    return compiler.program()


class _Compiler:
    def __init__(self, pattern: DFPattern, *, prune: bool, binds_all: bool) -> None:
        self.pattern = pattern
        self.prune = prune
        self.binds_all = binds_all
        self.keeps_defaults = False
        self.order = all_parts(pattern)
        self.taken = {id(part) for part in taken_parts(pattern)}
        chains = (part for part in self.order if isinstance(part, RepeatPattern))
        self.holes = {identity_of(chain.hole) for chain in chains}
        self.steps: dict[int, Step] = {}
        self.made: list[Step] = []
        self.slot_count = 0
        self.slots_by_name: dict[str, int] = {}
        self.names: dict[str, list[tuple[int, int]]] = {}
        self.operators: dict[str, list[int]] = {}
        self.output_slots: tuple[int, ...] = ()
        self.negations = sum(isinstance(part, _DENYING) for part in self.order)
        self.parents: dict[int, int] = {}
        for part in self.order:
            for child in part.parts:
                self.parents[id(child)] = self.parents.get(id(child), 0) + 1

    def program(self) -> Program:
        for part in self.order:
            step = self._compile(part)
            self.made.append(step)
            shared = part.name or self.parents.get(id(part), 0) > 1 or self._is_asked_for(part)
            if shared and not isinstance(part, _NODES + _LEAVES):
                step = SharedStep(step, self._slot())
                self._bind_name(part.name, step.slot)
                self.made.append(step)
            if not self.prune:
                step.heads = None
                step.is_decided = False
            self.steps[id(part)] = step
        attributes = {
            step.pattern.attributes_name: step.attributes_slot
            for step in self.made
            if isinstance(step, CallStep) and step.attributes_slot is not None
        }
        calls = [step for step in self.made if isinstance(step, CallStep)]
        for step in calls:
            if step.pattern.op.name:
                step.peers = tuple(self.operators[step.pattern.op.name])
            step.alike = tuple(
                (attribute, other.slot)
                for attribute, name in step.pattern.captures
                for other in calls
                if other is not step and any(name == its for _, its in other.pattern.captures)
            )
            step.is_plain = step.is_plain and not (step.peers or step.alike)
        variadic = sorted(variadic_names(self.pattern))
        return Program(
            root=self.steps[id(self.pattern)],
            steps=self.steps,
            slot_count=self.slot_count,
            names=tuple((name, tuple(slots)) for name, slots in self.names.items()),
            attribute_names=tuple(attributes.items()),
            operators=tuple((name, tuple(slots)) for name, slots in self.operators.items()),
            variadic=tuple((name, self.slots_by_name[name]) for name in variadic),
            leaves=tuple(step for step in self.made if isinstance(step, LeafStep)),
            output_slots=self.output_slots,
            defers=any(isinstance(p, (*_DENYING, SameShapePattern)) for p in self.order),
        )

    def _is_asked_for(self, part: DFPattern) -> bool:
        """Tell whether a function may ask what the pattern object *part* is bound to."""
        return self.binds_all and part.place is None

    def _slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1

    def _bind_name(self, name: str, slot: int, index: int = 0) -> None:
        """Let *name* mean what *slot* holds, or output *index* of the node that it holds."""
        if name:
            self.names.setdefault(name, []).append((slot, index))

    def _leaf_slot(self, name: str) -> int:
        """Return the slot of a leaf: all leaves of one name share it, others have their own."""
        if name in self.slots_by_name:
            return self.slots_by_name[name]
        slot = self._slot()
        if name:
            self.slots_by_name[name] = slot
            self._bind_name(name, slot)
        return slot

    def _word_slot(self, word: str) -> int:
        """Return the slot of something that is not a value: a dimension, attributes."""
        if word not in self.slots_by_name:
            self.slots_by_name[word] = self._slot()
        return self.slots_by_name[word]

    def _step(self, part: DFPattern) -> Step:
        return self.steps[id(part)]

    def _compile(self, part: DFPattern) -> Step:  # noqa: C901, PLR0911, PLR0912  # a case per kind
        match part:
            case WildcardPattern() if identity_of(part) in self.holes:
                return HoleStep(part, self._leaf_slot(part.name))
            case WildcardPattern():
                if (
                    not part.name
                    and self.parents.get(id(part), 0) <= 1
                    and part is not self.pattern
                ):
                    is_asked_for = self._is_asked_for(part)
                    return UnnamedStep(part, self._slot()) if is_asked_for else AnyStep(part)
                return LeafStep(part, self._leaf_slot(part.name))
            case VariadicPattern():
                step = VariadicStep(part, self._leaf_slot(part.name))
                if part.element is not None:
                    own = self._bound_anew([part.element])
                    step.each = EachInput(self._step(part.element), own)
                return step
            case AbsentPattern():
                return AbsentStep(part)
            case ConstantPattern():
                return ConstantStep(part, self._leaf_slot(part.name))
            case InputPattern():
                return InputStep(part, self._leaf_slot(part.name))
            case CallPattern():
                return self._compile_call(part)
            case OutputPattern():
                call = cast("CallStep", self._step(part.node))
                self._bind_name(part.name, call.slot, part.index)
                return OutputStep(part, call, part.index)
            case OrPattern():
                return OrStep(part, self._step(part.left), self._step(part.right))
            case AndPattern():
                return AndStep(part, self._step(part.left), self._step(part.right))
            case NotPattern():
                return self._denied(part, self._step(part.pattern))
            case TypedPattern():
                return self._compile_typed(part)
            case SameShapePattern():
                return SameShapeStep(part, self._step(part.pattern), self._step(part.other))
            case EdgePattern():
                return EdgeStep(part, self._step(part.producer), self._step(part.consumer))
            case UnusedPattern():
                return self._compile_unused(part)
            case RepeatPattern():
                return self._compile_repeat(part)
            case DominatorPattern():
                keeps = self.keeps_defaults and id(part) in self.taken
                path = compile_pattern(part.path, keeps_defaults=keeps)
                return DominatorStep(part, self._step(part.parent), path, self._step(part.child))
            case OutputsPattern():
                return self._compile_outputs(part)
            case _:
                raise TypeError(f"no step matches {type(part).__name__}")

    def _compile_call(self, part: CallPattern) -> CallStep:
        slot = self._slot()
        for index, name in enumerate((part.name, *part.output_names)):
            self._bind_name(name, slot, index)
        for _, name in part.captures:  # an expression asks the node's first output for it
            self._bind_name(name, slot)
        if part.op.name:
            self.operators.setdefault(part.op.name, []).append(slot)
        args = tuple(self._read(self._step(arg), slot, n) for n, arg in enumerate(part.args))
        named = part.attributes_name not in {"", WAIVED}
        step = CallStep(
            part,
            slot,
            args,
            ops=_ops_of(part.op.choices),
            functions=tuple(
                self._function_body(part, choice)
                for choice in part.op.choices
                if isinstance(choice, (FunctionName, FunctionPattern))
            ),
            bodies=tuple(
                (name, CompiledBody(part, None, None, list(map(self._step, results))))
                for name, results in part.bodies
            ),
            attributes_slot=self._word_slot(f"**{part.attributes_name}") if named else None,
            keeps_defaults=self.keeps_defaults and id(part) in self.taken,
        )
        if not self.prune:
            step.heads = None
        return step

    def _read(self, step: Step, slot: int, place: int) -> Step:
        """Return *step* for an input of the node in *slot*, which tells what numbers are axes."""
        if isinstance(step, ConstantStep) and are_whole_numbers(step.pattern):
            return AxesStep(step, slot, place)
        pending, seen = [step], {id(step)}
        while pending:
            holder = pending.pop()
            is_read_once = self.parents.get(id(holder.pattern), 0) <= 1
            if not is_read_once or not isinstance(holder, (OrStep, AndStep, NotStep, SharedStep)):
                continue
            for name, inner in [*vars(holder).items()]:
                if isinstance(inner, ConstantStep) and are_whole_numbers(inner.pattern):
                    setattr(holder, name, AxesStep(inner, slot, place))
                elif isinstance(inner, Step) and id(inner) not in seen:
                    seen.add(id(inner))
                    pending.append(inner)
        return step

    def _function_body(
        self, part: CallPattern, choice: FunctionName | FunctionPattern
    ) -> CompiledBody:
        if isinstance(choice, FunctionName):
            return CompiledBody(part, choice, None, ())
        params = None if choice.params is None else list(map(self._step, choice.params))
        return CompiledBody(part, choice, params, list(map(self._step, choice.results)))

    def _compile_typed(self, part: TypedPattern) -> Step:
        check = TypeStep(part, {d: self._word_slot(f"dimension {d}") for d in letters_of(part)})
        inner = self._step(part.pattern)
        if type(inner) is AnyStep:
            return check
        step = AndStep(part, inner, check)  # types may have to be inferred, so they come last
        step.stand_for(inner)
        return step

    def _denied(self, part: NotPattern | UnusedPattern, inner: Step) -> NotStep:
        closed = self.negations <= _MANY_NEGATIONS and is_closed(part, self.pattern)
        return NotStep(part, inner, is_closed=closed)

    def _compile_unused(self, part: UnusedPattern) -> Step:
        inner = self._step(part.pattern)
        denied = self._denied(part, ReaderStep(part, self._step(part.consumer)))
        step = AndStep(part, inner, denied)
        step.stand_for(inner)
        return step

    def _compile_repeat(self, part: RepeatPattern) -> Step:
        base, link, hole = map(self._step, (part.base, part.step, part.hole))
        own = self._bound_anew([part.step])
        return RepeatStep(part, self._slot(), base, link, hole.slot, own)

    def _bound_anew(self, parts: Iterable[DFPattern]) -> Link:
        """Return what is bound inside of *parts*, which are matched again and again."""
        inside = {id(p): p for part in parts for p in all_parts(part)}
        own = [self.steps[key] for key in inside if key in self.steps]
        bound = [s for s in own if isinstance(s, (LeafStep, CallStep, SharedStep, VariadicStep))]
        constants = tuple(s.slot for s in bound if isinstance(s, ConstantStep))
        fresh = {s.slot for s in bound}
        letters = {letter for p in inside.values() for letter in letters_of(p)}
        fresh |= {self._word_slot(f"dimension {letter}") for letter in letters}
        calls = (s for s in bound if isinstance(s, CallStep))
        fresh |= {s.attributes_slot for s in calls if s.attributes_slot is not None}
        return Link(tuple(sorted(fresh)), constants)

    def _compile_outputs(self, part: OutputsPattern) -> Step:
        self.output_slots = tuple(self._slot() for _ in part.outputs)
        anchors = [
            [Anchor(self._step(shared), distance) for shared, distance in of_output]
            for of_output in find_anchors(part)
        ]
        outputs = [self._step(output) for output in part.outputs]
        return OutputsStep(part, outputs, self.output_slots, anchors)


def _ops_of(choices: tuple[Callee, ...]) -> Ops | None:
    """Return the operators that *choices* name; None for any."""
    ops: set[OpKey] = set()
    for choice in choices:
        if isinstance(choice, OpName):
            ops.add((choice.domain, choice.op_type))
        if isinstance(choice, OpKind):
            if not choice.kind:
                return None
            ops.update(("", op_type) for op_type in OP_KINDS[choice.kind])
    return frozenset(ops)


DEFAULT_BUDGET = 100_000


class Matcher:
    """A compiled pattern.

    Args:
        pattern: What to look for.
        budget: Most steps to spend on one root.
        prune: See :func:`compile_pattern`.
        binds_all: See :func:`compile_pattern`.
        keeps_defaults: See :func:`compile_pattern`.
    """

    def __init__(
        self,
        pattern: DFPattern,
        *,
        budget: int = DEFAULT_BUDGET,
        prune: bool = True,
        binds_all: bool = False,
        keeps_defaults: bool = False,
    ) -> None:
        self.program = compile_pattern(
            pattern, prune=prune, binds_all=binds_all, keeps_defaults=keeps_defaults
        )
        self.budget = budget

    def solutions(
        self, root: Node, unavailable: Container[Node] = (), on_failure: OnFailure | None = None
    ) -> Iterator[State]:
        """Yield every way to match the pattern at *root*, preferred ones first.

        The state is reused: read it before asking for the next.

        Args:
            root: The node to match at.
            unavailable: Nodes that none of the outputs may be but the first.
            on_failure: Is told of each step that fails, at which value, and of the goals that were
                left. It may leave a choice.

        Raises:
            StepBudgetExceededError: The search was given up.
        """
        spent = 0
        for subject in root.outputs:
            if subject is None:
                continue
            state = State(root.graph, self.program.slot_count, self.budget, subject)
            state.spent = spent
            state.unavailable = unavailable
            state.explains = on_failure is not None
            goals = self.program.start(subject)
            try:
                while True:
                    if advance(state, goals, on_failure):
                        yield state
                    if not state.choices:
                        break
                    goals, mark = state.choices.pop()
                    state.undo(mark)
            except StepBudgetExceededError as error:
                raise StepBudgetExceededError(
                    f"matching at {root!r} took more than {self.budget:,} steps", hint=error.hint
                ) from error
            spent = state.spent
