"""The other side of the oracle: graphs and patterns in Relax, and TVM's algorithm in a few lines.

A :class:`Part` is one pattern object. It can be written as text for dpl, built in
``tvm.relax.dpl``, and read by the two references: :class:`Committed`, which decides as TVM does,
and :class:`Complete`, which tries everything in dpl's order of preference.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import dpl

from tests.support.strategies import RandomGraph, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    Bound = dict["Part", str]

RELAX_OPS = {
    "Relu": "relax.nn.relu",
    "Neg": "relax.negative",
    "Sigmoid": "relax.sigmoid",
    "Tanh": "relax.tanh",
    "Add": "relax.add",
    "Sub": "relax.subtract",
    "Mul": "relax.multiply",
    "Div": "relax.divide",
    "Max": "relax.maximum",
}
UNARY = ("Relu", "Neg", "Sigmoid", "Tanh")
BINARY = ("Add", "Sub", "Mul", "Div", "Max")
TVM_COMMUTES = frozenset({"Add", "Mul"})
ONNX_COMMUTES = frozenset({"Add", "Mul", "Max"})


# -- graphs ----------------------------------------------------------------------------------------


def graph_of(text: str, outputs: str = "o") -> RandomGraph:
    """Read ``r=Relu(a) o=Add(r,k)``, a graph over inputs a, b and the constant k."""
    found = re.findall(r"(\w+)=(\w+)\(([\w,]*)\)", text)
    steps = tuple(Step(name, op, tuple(reads.split(","))) for name, op, reads in found)
    return RandomGraph(steps, tuple(outputs.split()))


class RelaxGraph:
    """A graph built in Relax, nothing normalised away: an Identity is a variable bound to another.

    Attributes:
        module: The module; its function is ``main``, of one dataflow block.
    """

    def __init__(self, graph: RandomGraph) -> None:
        """Build *graph*."""
        builder = relax.BlockBuilder()
        *inputs, constant = graph.sources
        tensor = relax.TensorType((2,), "float32")
        self._values: dict[str, Any] = {name: relax.Var(name, tensor) for name in inputs}
        parameters = list(self._values.values())
        self._values[constant] = relax.const(np.array([2, 3], "float32"))
        with builder.function("main", parameters):
            with builder.dataflow():
                for step in graph.steps:
                    self._values[step.name] = builder.emit(self._value_of(step), step.name)
                results = [self._values[name] for name in graph.outputs]
                result = relax.Tuple(results) if len(results) > 1 else results[0]
                output = builder.emit_output(result)
            builder.emit_func_output(output)
        self.module: Any = builder.get()
        self._bindings = relax.analysis.get_var2val(self.module["main"])
        self._names = [
            (self._bindings.get(value, value), name)
            for name, value in self._values.items()
            if graph.origin(name) == name
        ]

    def _value_of(self, step: Step) -> Any:  # noqa: ANN401  # TVM has no types
        reads = [self._values[name] for name in step.reads]
        return reads[0] if step.op == "Identity" else relax_call(step, reads)

    def match(self, pattern: Any, root: str) -> list[tuple[Any, str]] | None:  # noqa: ANN401
        """Match at one value: each pattern object that took part, with the value's name.

        Patterns of operators are left out. The name is that of the value behind Identity nodes.
        """
        found = pattern.extract_matched_expr(self._values[root], self._bindings)
        if found is None:
            return None
        return [
            (part, name)
            for part, value in found.items()
            for known, name in self._names
            if value.same_as(known)
        ]


def relax_call(step: Step, reads: Sequence[Any]) -> Any:  # noqa: ANN401
    """Build the call that a node is, of values or of calls."""
    return relax.Call(tvm.ir.Op.get(RELAX_OPS[step.op]), reads)


# -- patterns --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """One pattern object.

    Attributes:
        kind: name, any, const, input, call, or, and, not.
        word: What a leaf is called, or "".
        ops: The operators of a call, in order of preference.
        parts: What it is made of.
        rest: Whether a call may have further inputs.
    """

    kind: str
    word: str = ""
    ops: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    rest: bool = False

    def fits(self, step: Step) -> bool:
        """Tell whether a node has as many inputs as a call demands."""
        more = len(step.reads) - len(self.parts)
        return more == 0 or (self.rest and more > 0)


@dataclass(frozen=True, repr=False)
class PartPattern:
    """Lines ``n0 = …`` and a root; the leaves called alike are one object."""

    lines: tuple[Part, ...]
    root: Part

    def __repr__(self) -> str:
        """Write it as a pattern."""
        assigned = [
            f"n{number} = {self._spell(line, owner=line)}" for number, line in enumerate(self.lines)
        ]
        return "\n".join([*assigned, self._spell(self.root)])

    def _spell(self, part: Part, owner: Part | None = None) -> str:
        if part in self.lines and part is not owner:
            return f"n{self.lines.index(part)}"
        inner = [self._spell(child) for child in part.parts]
        match part.kind:
            case "call":
                callee = f"({' | '.join(part.ops)})" if len(part.ops) > 1 else part.ops[0]
                return f"{callee}({', '.join(inner + ['...'] * part.rest)})"
            case "or" | "and":
                return f"({inner[0]} {'|' if part.kind == 'or' else '&'} {inner[1]})"
            case "not":
                return f"~{inner[0]}"
            case "const" | "input":
                quote = '"' if part.word and part.kind == "input" else ""
                return f"{part.kind}({quote}{part.word}{quote})"
            case _:
                return part.word or "_"

    @property
    def named(self) -> dict[str, Part]:
        """The parts that have a name in the text."""
        found = {part.word: part for part in self.objects() if part.word}
        found.update({f"n{number}": line for number, line in enumerate(self.lines)})
        return found

    def objects(self) -> list[Part]:
        """Return every part once."""
        found: dict[Part, None] = {}
        pending = [self.root]
        while pending:
            part = pending.pop()
            found[part] = None
            pending.extend(child for child in part.parts if child not in found)
        return list(found)


def read_pattern(text: str) -> PartPattern:
    """Read what a :class:`PartPattern` writes."""
    *assigned, last = ast.parse(text).body
    lines: dict[str, Part] = {}
    leaves: dict[str, Part] = {}

    def read(node: ast.expr) -> Part:
        match node:
            case ast.Name("_"):
                return Part("any")
            case ast.Name(word):
                return lines.get(word) or leaves.setdefault(word, Part("name", word))
            case ast.BinOp(left, sign, right):
                kind = "or" if isinstance(sign, ast.BitOr) else "and"
                return Part(kind, parts=(read(left), read(right)))
            case ast.UnaryOp(ast.Invert(), inner):
                return Part("not", parts=(read(inner),))
            case ast.Call(ast.Name("const" | "input" as kind), words):
                word = "".join(ast.unparse(word) for word in words).strip("'")
                key = f"{kind} {word}"
                return leaves.setdefault(key, Part(kind, word)) if word else Part(kind)
            case ast.Call(callee, args):
                rest = bool(args) and ast.unparse(args[-1]) == "..."
                parts = tuple(read(arg) for arg in args[: len(args) - rest])
                ops = tuple(ast.unparse(callee).split(" | "))
                return Part("call", ops=ops, parts=parts, rest=rest)
            case _:
                raise AssertionError(ast.unparse(node))

    for line in assigned:
        assert isinstance(line, ast.Assign)
        lines[ast.unparse(line.targets[0])] = read(line.value)
    assert isinstance(last, ast.Expr)
    return PartPattern(tuple(lines.values()), read(last.value))


def relax_pattern(root: Part) -> tuple[Any, dict[Part, Any]]:
    """Build a pattern in TVM; return it and TVM's object for each part."""
    made: dict[Part, Any] = {}

    def build(part: Part) -> Any:  # noqa: ANN401
        if part not in made:
            made[part] = _relax_part(part, [build(child) for child in part.parts])
        return made[part]

    return build(root), made


def _relax_part(part: Part, inner: list[Any]) -> Any:  # noqa: ANN401, PLR0911  # a case per kind
    match part.kind:
        case "call":
            callee, *others = [dpl.is_op(RELAX_OPS[op]) for op in part.ops]
            for other in others:
                callee |= other
            return callee(*inner, varg_default_wildcard=part.rest)
        case "or":
            return inner[0] | inner[1]
        case "and":
            return inner[0] & inner[1]
        case "not":
            return ~inner[0]
        case "const":
            return dpl.is_const()
        case "input":
            return dpl.is_var(part.word)
        case _:
            return dpl.wildcard()


# -- results ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """One way to match at a root: the nodes that node patterns matched, and what names are bound.

    A node stands there as often as node patterns are bound to it.
    """

    nodes: tuple[str, ...]
    names: tuple[tuple[str, str], ...]

    @property
    def is_injective(self) -> bool:
        """Whether different node patterns are bound to different nodes."""
        return len(set(self.nodes)) == len(self.nodes)


def found_of(bound: Mapping[Part, str], pattern: PartPattern) -> Found:
    """Sum up what the parts of a pattern are bound to."""
    named = pattern.named.items()
    return Found(
        tuple(sorted(bound[part] for part in pattern.objects() if part in bound and part.ops)),
        tuple(sorted((name, bound[part]) for name, part in named if part in bound)),
    )


# -- references ------------------------------------------------------------------------------------


class _Reference:
    def __init__(self, graph: RandomGraph) -> None:
        self.graph = graph

    def accepts(self, leaf: Part, value: str) -> bool:
        """Tell whether a leaf accepts *value*, seen behind Identity nodes."""
        *inputs, constant = self.graph.sources
        if leaf.kind == "const":
            return value == constant
        return leaf.kind != "input" or (value in inputs and leaf.word in {"", value})


class Committed(_Reference):
    """TVM's DFPatternMatcher: each part takes its first success and is never asked again.

    The numbers are those of ``reference/tvm_language.md``. The other bracketing of products and
    quotients (3.5) is missing: TVM tries it only on nested calls, which a dataflow block has not.
    """

    def __init__(self, graph: RandomGraph) -> None:
        """Match in *graph*."""
        super().__init__(graph)
        self.memo: Bound = {}

    def match(self, pattern: PartPattern, root: str) -> Found | None:
        """Match at one value (3.1)."""
        self.memo = {}
        return found_of(self.memo, pattern) if self._visit(pattern.root, root) else None

    def _visit(self, part: Part, value: str) -> bool:
        """Compare with the memo, or match and remember; forget everything on failure (3.2, 3.3)."""
        value = self.graph.origin(value)
        if part in self.memo:
            return self.memo[part] == value
        before = dict(self.memo)
        if self._matches(part, value):
            self.memo[part] = value
            return True
        self.memo = before
        return False

    def _matches(self, part: Part, value: str) -> bool:
        match part.kind:
            case "or":
                return any(self._visit(child, value) for child in part.parts)
            case "and":
                return all(self._visit(child, value) for child in part.parts)
            case "not":
                return not self._visit(part.parts[0], value)
            case "call":
                return self._matches_call(part, value)
            case _:
                return self.accepts(part, value)

    def _matches_call(self, part: Part, value: str) -> bool:
        step = self.graph.producer(value)
        if step is None or step.op not in part.ops or not part.fits(step):
            return False
        return self._all(part, step.reads) or (
            step.op in TVM_COMMUTES and self._all(part, step.reads[::-1])  # 3.4
        )

    def _all(self, part: Part, reads: Sequence[str]) -> bool:
        before = dict(self.memo)
        if all(map(self._visit, part.parts, reads)):
            return True
        self.memo = before
        return False


class Complete(_Reference):
    """Every injective way to match, by trying everything in dpl's order of preference.

    A ``~`` is decided last, when all names are bound; nodes inside it may be those of other parts.

    Args:
        graph: The graph.
        commutes: Operators whose operands may stand in any order.
    """

    def __init__(self, graph: RandomGraph, commutes: AbstractSet[str]) -> None:
        """Match in *graph*."""
        super().__init__(graph)
        self.commutes = commutes

    def match(self, pattern: PartPattern, root: str) -> list[Found]:
        """Return each way to match at one value once, preferred ones first."""
        solved = self._solve(pattern.root, root, {}, {})
        return list(dict.fromkeys(found_of(b, pattern) for b in solved if self._holds(b, {})))

    def _holds(self, bound: Bound, before: Bound) -> bool:
        """Tell whether nothing matches that is denied by what was bound since *before*."""
        return not any(
            self._holds(inner, bound)
            for part, value in bound.items()
            if part.kind == "not" and part not in before
            for inner in self._solve(part.parts[0], value, bound, bound)
        )

    def _solve(self, part: Part, value: str, bound: Bound, before: Bound) -> Iterator[Bound]:
        """Yield *bound*, extended in every way; nodes bound *before* are free to be used again."""
        value = self.graph.origin(value)
        if part in bound:
            if bound[part] == value:
                yield bound
            return
        mine = bound | {part: value}
        match part.kind:
            case "or":
                for child in part.parts:
                    yield from self._solve(child, value, mine, before)
            case "and":
                yield from self._all(part.parts, [value, value], mine, before)
            case "call":
                claimed = {other for key, other in bound.items() if key.ops and key not in before}
                for reads in self._orders(part, value) if value not in claimed else []:
                    yield from self._all(part.parts, reads, mine, before)
            case _:
                if part.kind == "not" or self.accepts(part, value):
                    yield mine

    def _orders(self, part: Part, value: str) -> list[tuple[str, ...]]:
        step = self.graph.producer(value)
        if step is None or step.op not in part.ops or not part.fits(step):
            return []
        if step.op in self.commutes:
            return list(permutations(step.reads, len(part.parts)))
        return [step.reads[: len(part.parts)]]

    def _all(
        self, parts: Sequence[Part], values: Sequence[str], bound: Bound, before: Bound
    ) -> Iterator[Bound]:
        if not parts:
            yield bound
            return
        for more in self._solve(parts[0], values[0], bound, before):
            yield from self._all(parts[1:], values[1:], more, before)
