"""Compile a pattern into steps: one per pattern object, in a single iterative walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dplcli.dpl.anchors import find_anchors
from dplcli.dpl.call_steps import CallParts, CallStep, OutputStep
from dplcli.dpl.callee import FunctionName, FunctionPattern, OpKind, OpName
from dplcli.dpl.chain_steps import ChainStep, EdgeStep, RepeatStep
from dplcli.dpl.logic_steps import NotStep
from dplcli.dpl.output_steps import Anchor, OutputsStep
from dplcli.dpl.pattern import (
    WAIVED,
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    EdgePattern,
    InputPattern,
    NotPattern,
    OrPattern,
    OutputPattern,
    OutputsPattern,
    RepeatPattern,
    SameShapePattern,
    TypedPattern,
    WildcardPattern,
)
from dplcli.dpl.program import Program
from dplcli.dpl.region_steps import DominatorStep
from dplcli.dpl.scope_steps import ResultsStep
from dplcli.dpl.scoping import all_parts, check_pattern, is_closed
from dplcli.dpl.steps import (
    AbsentStep,
    AndStep,
    AnyStep,
    ConstantStep,
    InputStep,
    LeafStep,
    NotedStep,
    OrStep,
    SharedStep,
    Step,
)
from dplcli.dpl.type_steps import SameShapeStep, TypedStep, TypeStep
from dplcli.ir.op_kinds import OP_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.dpl.callee import Callee
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.steps import OpKey

_NODES = (CallPattern, OutputPattern)
_MANY_NEGATIONS = 64
"""Beyond it negations are all decided at the end, without a look at which could be earlier."""
_LEAVES = (WildcardPattern, AbsentPattern, ConstantPattern, InputPattern)


def compile_pattern(pattern: DFPattern, *, prune: bool = True, notes_all: bool = False) -> Program:
    """Compile *pattern*.

    Args:
        pattern: What to compile.
        prune: Whether steps may tell cheaply that a value cannot match; without, every mismatch
            shows at the very step that finds it.
        notes_all: Whether parts without a name are bound, too, unless they were read from a text:
            for functions that ask by pattern object.

    Raises:
        PatternSyntaxError: The pattern makes no sense.
    """
    check_pattern(pattern)
    return _Compiler(pattern, prune=prune, notes_all=notes_all).program()


class _Compiler:
    def __init__(self, pattern: DFPattern, *, prune: bool, notes_all: bool) -> None:
        self.pattern = pattern
        self.prune = prune
        self.notes_all = notes_all
        self.order = all_parts(pattern)
        self.steps: dict[int, Step] = {}
        self.made: list[Step] = []
        self.slot_count = 0
        self.slots_by_name: dict[str, int] = {}
        self.names: dict[str, list[tuple[int, int]]] = {}
        self.output_slots: tuple[int, ...] = ()
        self.negations = sum(isinstance(part, NotPattern) for part in self.order)
        self.parents: dict[int, int] = {}
        for part in self.order:
            for child in part.parts:
                self.parents[id(child)] = self.parents.get(id(child), 0) + 1

    def program(self) -> Program:
        for part in self.order:
            step = self._compile(part)
            self.made.append(step)
            shared = part.name or self.parents.get(id(part), 0) > 1 or self._is_noted(part)
            if shared and not isinstance(part, _NODES + _LEAVES):
                step = SharedStep(step, self._named_slot(part.name))
                self.made.append(step)
            if not self.prune:
                step.heads = None
            self.steps[id(part)] = step
        attributes = {
            step.call.attributes_name: step.attributes_slot
            for step in self.made
            if isinstance(step, CallStep) and step.attributes_slot is not None
        }
        return Program(
            root=self.steps[id(self.pattern)],
            steps=self.steps,
            slot_count=self.slot_count,
            names=tuple((name, tuple(slots)) for name, slots in self.names.items()),
            attribute_names=tuple(attributes.items()),
            leaves=tuple(step for step in self.made if isinstance(step, LeafStep)),
            output_slots=self.output_slots,
            defers=any(isinstance(p, (NotPattern, SameShapePattern)) for p in self.order),
        )

    def _is_noted(self, part: DFPattern) -> bool:
        """Tell whether a function may ask for *part* by the object, which was made in Python."""
        return self.notes_all and part.place is None

    def _slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1

    def _leaf_slot(self, name: str) -> int:
        """Return a slot of its own for an unnamed leaf, the name's slot for a named one."""
        if not name:
            return self._slot()
        if name not in self.slots_by_name:
            self.slots_by_name[name] = self._slot()
            self.names.setdefault(name, []).append((self.slots_by_name[name], 0))
        return self.slots_by_name[name]

    def _named_slot(self, name: str) -> int:
        slot = self._slot()
        if name:
            self.names.setdefault(name, []).append((slot, 0))
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
            case WildcardPattern():
                if (
                    not part.name
                    and self.parents.get(id(part), 0) <= 1
                    and part is not self.pattern
                ):
                    is_noted = self._is_noted(part)
                    return NotedStep(part, self._slot()) if is_noted else AnyStep(part)
                return LeafStep(part, self._leaf_slot(part.name))
            case AbsentPattern():
                return AbsentStep(part)
            case ConstantPattern():
                return ConstantStep(part, self._leaf_slot(part.name), part.value, part.exact)
            case InputPattern():
                return InputStep(part, self._leaf_slot(part.name), part.source)
            case CallPattern():
                return self._compile_call(part)
            case OutputPattern():
                return self._compile_output(part)
            case OrPattern():
                return OrStep(part, self._step(part.left), self._step(part.right))
            case AndPattern():
                return AndStep(part, self._step(part.left), self._step(part.right))
            case NotPattern():
                few = self.negations <= _MANY_NEGATIONS
                closed = few and is_closed(part, self.pattern)
                return NotStep(part, self._step(part.pattern), is_closed=closed)
            case TypedPattern():
                return self._compile_typed(part)
            case SameShapePattern():
                return SameShapeStep(part, self._step(part.pattern), self._step(part.other))
            case EdgePattern():
                return EdgeStep(part, self._step(part.producer), self._step(part.consumer))
            case RepeatPattern():
                return self._compile_repeat(part)
            case DominatorPattern():
                path = compile_pattern(part.path)
                return DominatorStep(part, self._step(part.parent), path, self._step(part.child))
            case OutputsPattern():
                return self._compile_outputs(part)

    def _compile_output(self, part: OutputPattern) -> OutputStep:
        call = cast("CallStep", self._step(part.node))
        if part.name:
            self.names.setdefault(part.name, []).append((call.slot, part.index))
        return OutputStep(part, call, part.index)

    def _compile_call(self, part: CallPattern) -> CallStep:
        slot = self._slot()
        if part.name:
            self.names.setdefault(part.name, []).append((slot, 0))
        for index, name in enumerate(part.output_names, start=1):
            if name:
                self.names.setdefault(name, []).append((slot, index))
        args = tuple(self._step(arg) for arg in part.args)
        return CallStep(part, slot, self._call_parts(part, args))

    def _call_parts(self, part: CallPattern, args: tuple[Step, ...]) -> CallParts:
        named = part.attributes_name not in {"", WAIVED}
        return CallParts(
            ops=_ops_of(part.op.choices),
            functions=tuple(
                self._results(part, choice)
                for choice in part.op.choices
                if isinstance(choice, (FunctionName, FunctionPattern))
            ),
            args=args,
            bodies=tuple(
                (name, ResultsStep(part, None, None, [self._step(p) for p in results]))
                for name, results in part.bodies
            ),
            attributes_slot=self._word_slot(f"**{part.attributes_name}") if named else None,
        )

    def _results(self, part: CallPattern, choice: FunctionName | FunctionPattern) -> ResultsStep:
        if isinstance(choice, FunctionName):
            return ResultsStep(part, choice, None, ())
        params = None if choice.params is None else [self._step(p) for p in choice.params]
        return ResultsStep(part, choice, params, [self._step(p) for p in choice.results])

    def _compile_typed(self, part: TypedPattern) -> Step:
        dims: list[tuple[str, int] | None] = []
        for dim in part.shape or ():
            if isinstance(dim, str):
                dims.append(("variable", self._word_slot(f"dimension {dim}")))
            else:
                dims.append(None if dim is None else ("number", dim))
        check = TypeStep(part, None if part.shape is None else tuple(dims))
        inner = self._step(part.pattern)
        return check if type(inner) is AnyStep else TypedStep(part, inner, check)

    def _compile_repeat(self, part: RepeatPattern) -> Step:
        step = RepeatStep(part, self._slot(), self._step(part.base))
        first = self.slot_count
        others = tuple(self._step(arg) for arg in part.step.args[1:])
        parts = self._call_parts(part.step, (*others, ChainStep(step)))
        node = CallStep(part.step, self._slot(), parts)
        node.is_rotated = True
        if not self.prune:
            node.heads = None
        inside = {id(p) for arg in part.step.args[1:] for p in all_parts(arg)}
        own = [self.steps[key] for key in inside if key in self.steps]
        leaves = [s for s in own if isinstance(s, (LeafStep, CallStep, SharedStep))]
        constants = tuple(s.slot for s in leaves if isinstance(s, ConstantStep))
        fresh = {node.slot, *(s.slot for s in leaves)}
        fresh |= set(range(first, self.slot_count))
        fresh |= {self._word_slot(f"dimension {letter}") for letter in _letters(part.step.args[1:])}
        step.set_node(node, tuple(sorted(fresh)), constants)
        return step

    def _compile_outputs(self, part: OutputsPattern) -> Step:
        self.output_slots = tuple(self._slot() for _ in part.outputs)
        anchors = [
            [Anchor(self._step(shared), distance) for shared, distance in of_output]
            for of_output in find_anchors(part)
        ]
        outputs = [self._step(output) for output in part.outputs]
        return OutputsStep(part, outputs, self.output_slots, anchors)


def _letters(parts: Iterable[DFPattern]) -> set[str]:
    """Return the dimension variables in *parts*."""
    typed = (p for part in parts for p in all_parts(part) if isinstance(p, TypedPattern))
    return {dim for part in typed for dim in part.shape or () if isinstance(dim, str)}


def _ops_of(choices: tuple[Callee, ...]) -> frozenset[OpKey] | None:
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
