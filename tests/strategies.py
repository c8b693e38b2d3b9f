"""Random small graphs, patterns and rules for the property tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    Term: TypeAlias = tuple[object, ...]

UNARY = ("Relu", "Neg", "Sigmoid", "Identity")
BINARY = ("Add", "Sub", "Mul")
COMMUTATIVE = {"Add", "Mul", "Sum"}
SOURCES = ("a", "b", "k")
"""Two inputs and a constant."""


@dataclass(frozen=True)
class Step:
    """One node: what it is called, its operator and what it reads."""

    name: str
    op: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class RandomGraph:
    """A graph of float[2] values."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sources: tuple[str, ...] = SOURCES

    def text(self) -> str:
        """Write it as ONNX text."""
        a, b, k = self.sources
        outputs = ", ".join(f"float[2] {name}" for name in self.outputs)
        body = " ".join(f"{s.name} = {s.op} ({', '.join(s.reads)})" for s in self.steps)
        return (
            f"g (float[2] {a}, float[2] {b}) => ({outputs}) <float[2] {k} = {{2, 3}}> {{ {body} }}"
        )

    def producer(self, name: str) -> Step | None:
        """Return the node that makes a value."""
        return next((step for step in self.steps if step.name == name), None)

    def origin(self, name: str) -> str:
        """Return the value behind Identity nodes."""
        step = self.producer(name)
        while step is not None and step.op == "Identity":
            name = step.reads[0]
            step = self.producer(name)
        return name

    def with_steps(self, steps: Sequence[Step]) -> RandomGraph:
        """Return the same graph with other nodes."""
        return replace(self, steps=tuple(steps))


def _read(draw: st.DrawFn, unread: list[str], values: list[str]) -> str:
    prefer_unread = bool(unread) and draw(st.integers(0, 3)) > 0
    return draw(st.sampled_from(unread if prefer_unread else values))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8) -> RandomGraph:
    """Draw a graph; its last value is an output, and perhaps others.

    Values that nobody reads yet are preferred: else nearly every match would be refused.
    """
    values = list(SOURCES)
    unread: list[str] = []
    steps = []
    for number in range(draw(st.integers(2, max_nodes))):
        op = draw(st.sampled_from(UNARY + BINARY + ("Sum",)))
        count = 1 if op in UNARY else 2 if op in BINARY else 3
        reads = tuple(_read(draw, unread, values) for _ in range(count))
        steps.append(Step(f"v{number}", op, reads))
        unread = [name for name in unread if name not in reads] + [f"v{number}"]
        values.append(f"v{number}")
    outputs = dict.fromkeys(unread)
    if not draw(st.integers(0, 3)):
        outputs[draw(st.sampled_from([step.name for step in steps]))] = None
    return RandomGraph(tuple(steps), tuple(outputs))


@dataclass(frozen=True)
class RandomPattern:
    """Lines ``n0 = …`` and a last term; see :func:`spell` for the terms."""

    lines: tuple[Term, ...]
    last: Term

    def text(self) -> str:
        """Write it as a pattern."""
        assigned = [f"n{number} = {spell(term)}" for number, term in enumerate(self.lines)]
        return "\n".join([*assigned, spell(self.last)])


def spell(term: Term) -> str:
    """Write a term: name, any, const, line, call, or, and."""
    match term:
        case ("name", str(name)):
            return name
        case ("any",):
            return "_"
        case ("const",):
            return "const()"
        case ("line", int(number)):
            return f"n{number}"
        case ("call", str(op), *args):
            return f"{op}({', '.join(spell(arg) for arg in args)})"  # type: ignore[arg-type]
        case ("or" | "and" as sign, tuple(left), tuple(right)):
            return f"({spell(left)} {'|' if sign == 'or' else '&'} {spell(right)})"
        case _:
            raise AssertionError(term)


@st.composite
def calls(draw: st.DrawFn, depth: int, lines: int) -> Term:
    """Draw a node pattern."""
    op = draw(st.sampled_from((*UNARY, *BINARY, "Sum")))
    count = 1 if op in UNARY else 2 if op in BINARY else 3
    return ("call", op, *(draw(terms(depth - 1, lines)) for _ in range(count)))


@st.composite
def terms(draw: st.DrawFn, depth: int, lines: int) -> Term:
    """Draw a term that may refer to the first *lines* lines."""
    leaves: list[Term] = [("name", "x"), ("name", "y"), ("any",), ("const",)]
    leaves += [("line", number) for number in range(lines)]
    kind = draw(st.sampled_from(("leaf", "leaf", "call", "call", "or", "and"))) if depth else "leaf"
    if kind == "leaf":
        return draw(st.sampled_from(leaves))
    if kind == "call":
        return draw(calls(depth, lines))
    return (kind, draw(terms(depth - 1, lines)), draw(terms(depth - 1, lines)))


@st.composite
def patterns(draw: st.DrawFn) -> RandomPattern:
    """Draw a pattern with up to two assigned lines and a node at its root."""
    count = draw(st.integers(0, 2))
    lines = tuple(draw(calls(1, number)) for number in range(count))
    return RandomPattern(lines, draw(calls(2, count)))


@st.composite
def near_patterns(draw: st.DrawFn, graph: RandomGraph) -> RandomPattern:
    """Draw a pattern that follows part of *graph*, generalised and perhaps wrong somewhere."""
    root = draw(st.sampled_from(graph.steps))
    inner = [step for step in graph.steps if step.name != root.name and step.op != "Identity"]
    chosen = draw(st.lists(st.sampled_from(inner), max_size=2, unique=True)) if inner else []
    chosen.sort(key=graph.steps.index)
    lines: dict[str, int] = {}
    terms_of_lines = []
    for step in chosen:
        terms_of_lines.append(draw(_near_call(graph, step, 1, dict(lines))))
        lines[step.name] = len(lines)
    return RandomPattern(tuple(terms_of_lines), draw(_near_call(graph, root, 3, lines)))


@st.composite
def _near_call(
    draw: st.DrawFn, graph: RandomGraph, step: Step, depth: int, lines: dict[str, int]
) -> Term:
    reads = draw(st.permutations(step.reads)) if step.op in COMMUTATIVE else step.reads
    args = (draw(_near(graph, read, depth - 1, lines)) for read in reads)
    return ("call", step.op, *args)


@st.composite
def _near(
    draw: st.DrawFn, graph: RandomGraph, value: str, depth: int, lines: dict[str, int]
) -> Term:
    """Draw a term that mostly fits *value*."""
    origin = graph.origin(value)
    if origin in lines and draw(st.integers(0, 4)):
        return ("line", lines[origin])
    made = graph.producer(value)
    leaf: Term = draw(st.sampled_from([("name", "x"), ("name", "y"), ("any",), ("const",)]))
    if made is None or depth <= 0:
        fitting: list[Term] = [("name", f"w_{origin}"), ("name", f"w_{origin}"), ("any",)]
        return draw(st.sampled_from([*fitting, leaf]))
    if made.op == "Identity" and draw(st.integers(0, 3)):
        return draw(_near(graph, made.reads[0], depth, lines))
    call = draw(_near_call(graph, made, depth, lines))
    kind = draw(st.sampled_from(("call",) * 6 + ("or", "ro", "and", "leaf")))
    if kind in {"call", "leaf"}:
        return call if kind == "call" else leaf
    other = leaf if draw(st.booleans()) else draw(terms(1, 0))
    if kind == "ro":
        return ("or", other, call)
    return (kind, call, ("any",) if kind == "and" and draw(st.booleans()) else other)


@st.composite
def subgraph_patterns(draw: st.DrawFn, graph: RandomGraph) -> tuple[str, str, set[str]]:
    """Draw a pattern that describes part of *graph*: its text, its root and its nodes."""
    nodes = [step for step in graph.steps if step.op != "Identity"]
    root = draw(st.sampled_from(nodes)) if nodes else graph.steps[0]
    chosen = {root.name}
    for step in reversed(graph.steps):
        if step.name in chosen:
            for read in step.reads:
                made = graph.producer(read)
                if made is not None and made.op != "Identity" and draw(st.integers(0, 3)):
                    chosen.add(read)
    lines = [
        f"n_{step.name} = {step.op}({', '.join(_named(read, chosen) for read in step.reads)})"
        for step in graph.steps
        if step.name in chosen
    ]
    return "\n".join([*lines, f"n_{root.name}"]), root.name, chosen


def _named(value: str, chosen: set[str]) -> str:
    return f"n_{value}" if value in chosen else f"x_{value}"
