"""Random small graphs, patterns and rules for the property tests."""

from __future__ import annotations

import gc
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Term: TypeAlias = tuple[object, ...]

UNARY = ("Relu", "Neg", "Sigmoid", "Identity")
BINARY = ("Add", "Sub", "Mul")
COMMUTATIVE = {"Add", "Mul", "Sum"}
OMITTING = ("Clip", "Clip", "Sum")
"""Operators of up to three inputs: any but the first may be omitted, or the last ones only."""
SOURCES = ("a", "b", "k")
"""Two inputs and a constant."""


class _LateError(BaseException):
    """The time is up; nothing in between may catch it."""


def _slowness() -> float:
    """Return how much slower this machine is just now than the one the limits were set on.

    A machine that is shared, or old, takes several times as long for the same work; a limit is to
    catch work that explodes, not such a machine.
    """
    start = time.process_time()
    words = [f"{number:x}" for number in range(20_000)]
    assert len(dict(zip(words, sorted(words), strict=True))) == len(words)
    return max(1.0, (time.process_time() - start) / 0.006)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the block takes more than *seconds* of this process's own time, or overflows.

    A slower machine has as much more. The block is stopped then; and nothing of its stack is
    shown, which may hold very long patterns. The garbage collector waits meanwhile: what it takes
    depends on all that other tests have left.
    """

    def give_up(*_: object) -> None:
        raise _LateError

    is_collecting = gc.isenabled()
    gc.disable()
    previous = signal.signal(signal.SIGPROF, give_up)
    limit = seconds * _slowness()
    signal.setitimer(signal.ITIMER_PROF, limit, 1)
    problem = ""
    try:
        yield
    except _LateError:
        problem = f"still running after {limit:.1f} s"
    except RecursionError:
        problem = "the stack overflowed"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
        if is_collecting:
            gc.enable()
    if problem:
        raise pytest.fail.Exception(problem, pytrace=False) from None


FOUR_TIMES = 9
"""So many times the processor's time may four times as much take: its square would take 16."""


def growth(prepared: Callable[[int], Callable[[], object]], few: int) -> float:
    """Return how many times the processor's time four times as much as *few* takes.

    Counting calls does not show what one call goes through: a search in a list, a copy of a tuple.

    Args:
        prepared: Prepares the work on so many; what it returns is timed, at its best of three.
        few: How many.
    """
    least = []
    for count in (few, 4 * few):
        taken = []
        for _ in range(3):
            work = prepared(count)
            gc.disable()
            start = time.process_time()
            work()
            taken.append(time.process_time() - start)
            gc.enable()
        least.append(min(taken))
    return least[1] / least[0]


@dataclass(frozen=True)
class Step:
    """One node: what it is called, its operator and what it reads, "" where it omits an input."""

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
def graphs(draw: st.DrawFn, max_nodes: int = 8, *, omitting: bool = False) -> RandomGraph:
    """Draw a graph; its last value is an output, and perhaps others.

    Values that nobody reads yet are preferred: else nearly every match would be refused.

    Args:
        draw: As for all strategies.
        max_nodes: The most nodes it has.
        omitting: Whether nodes may omit inputs; of such graphs the types make no sense.
    """
    values = list(SOURCES)
    unread: list[str] = []
    steps = []
    for number in range(draw(st.integers(2, max_nodes))):
        op = draw(st.sampled_from(UNARY + BINARY + (OMITTING * 4 if omitting else ("Sum",))))
        count = 1 if op in UNARY else 2 if op in BINARY else 3
        if omitting and op in OMITTING:
            count = draw(st.integers(1, 3))
        reads = tuple(_read(draw, unread, values) for _ in range(count))
        if op == "Clip" and count == 3 and draw(st.booleans()):  # all of them
            reads = (reads[0], "", reads[2])
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


def spell(term: Term) -> str:  # noqa: PLR0911  # a case per kind
    """Write a term: name, any, absent, const, line, call, or, and.

    A call's operator may be several: ``Clip | Sum``.
    """
    match term:
        case ("name", str(name)):
            return name
        case ("any",):
            return "_"
        case ("absent",):
            return "None"
        case ("const",):
            return "const()"
        case ("line", int(number)):
            return f"n{number}"
        case ("call", str(op), *args):
            op = f"({op})" if "|" in op else op
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
    if step.op not in OMITTING or all(other.op != "Clip" for other in graph.steps):
        args = (draw(_near(graph, read, depth - 1, lines)) for read in reads)
        return ("call", step.op, *args)
    op = draw(st.sampled_from((step.op, "Clip | Sum", "Sum | Clip")))
    padded = [*reads, "", ""][: max(len(reads), draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        padded = draw(st.permutations(padded))
    return ("call", op, *(draw(_near_or_absent(graph, read, depth - 1, lines)) for read in padded))


@st.composite
def _near_or_absent(
    draw: st.DrawFn, graph: RandomGraph, value: str, depth: int, lines: dict[str, int]
) -> Term:
    """Draw a term for an input that may be omitted, mostly a fitting one."""
    if not value:
        return draw(st.sampled_from([("absent",), ("absent",), ("any",), ("name", "x")]))
    term = draw(_near(graph, value, depth, lines))
    kind = draw(st.sampled_from(("term",) * 6 + ("or", "ro", "absent")))
    if kind == "absent":
        return ("absent",)
    return (
        ("or", term, ("absent",))
        if kind == "or"
        else ("or", ("absent",), term)
        if kind == "ro"
        else term
    )


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


NAMES = ("x", "y", "z", "_", "_k")


@st.composite
def language_texts(draw: st.DrawFn) -> str:
    """Draw a text that uses any of the words of the language, mostly in the right way."""
    lines: list[str] = []
    names: list[str] = []
    for number in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 4)):
            names.append(draw(st.sampled_from((f"n{number}", f"_{number}"))))
            lines.append(f"{names[-1]} = {draw(language_terms(2, tuple(names[:-1])))}")
        else:
            own = draw(st.permutations((f"p{number}", f"_q{number}", "_")))
            lines.append(f"{', '.join(own)} = Split({draw(language_terms(1, tuple(names)))})")
            names += [name for name in own if name != "_"]
    count = draw(st.sampled_from((1, 1, 1, 2, 3)))
    outputs = ", ".join(draw(language_terms(3, tuple(names))) for _ in range(count))
    return "\n".join([*lines, outputs])


_TERMS = (
    *("Relu({})", "Relu({})", "Relu({})", "Add({}, {})", "Add({}, {})", "Sub({}, {})"),
    *("({op})({})", "({op})({}, ...)", "optional({op})({})", "repeat({op}, {}, min=1)"),
    *("({}) | ({})", "({}) & ({})", "({}) ^ ({})", "({}) >> ({})", "~({})", "-({})"),
    *("({}) + ({})", "({}) - ({})", "({}) * ({})", "({}) / ({})", "({}) @ ({})", "({}) ** ({})"),
    *("repeat(Add, {}, {}, max=3)", "dominates({}, {}, {})", "({}).dominates({})"),
    *("same_shape({}, {})", "({}).same_shape_as({})", "({}).used_by({})", "({}).used_by({}, 1)"),
    *("({}).only_used_by({})", "({}).only_used_by({}, index=0)", "({}).has_rank(1, 2)"),
    *("({}).has_type('float32[n, 3]')", "({}).has_shape(n, _, 3)", "({}).has_dtype('int8')"),
    *("Concat(unordered({}, {}))", "Concat(unordered({}, {}), ...)", "Split({})[1]"),
    *("function([{}], {})({})", "function(..., ({}, {}))({})", "if_({}, ({}, {}), {})"),
    *("LeakyRelu({}, alpha=0.5, **k)", "LeakyRelu({}, **_)", "Transpose({}, perm=[1, 0])"),
)
_CALLEES = ("Relu", "Neg", "com.x.F", 'op(kind="elementwise")', "op()", "Relu | Neg", 'call("f")')


@st.composite
def language_terms(draw: st.DrawFn, depth: int, names: tuple[str, ...]) -> str:
    """Draw the text of a term that may use *names*."""
    leaves = (*NAMES, *names, *names, "None", "2.0", "-1", "const()", "const(w)", "input('i')")
    if not depth or not draw(st.integers(0, 3)):
        return draw(st.sampled_from(leaves))
    form = draw(st.sampled_from(_TERMS))
    parts = [draw(language_terms(depth - 1, names)) for _ in range(form.count("{}"))]
    callee = draw(st.sampled_from((*_CALLEES, 'Relu | op(kind="reduction")')))
    return form.format(*parts, op=callee)


# -- the whole language ----------------------------------------------------------------------

WIDTHS = {"a": 2, "b": 4, "k": 2}
"""The sources of rich graphs, two inputs and a constant, with their only dimension."""

OPERANDS = {
    **dict.fromkeys(("Relu", "Neg", "LeakyRelu", "Identity", "Split"), 1),
    **dict.fromkeys(("Add", "Sub", "Mul", "Concat"), 2),
    "Sum": 3,
}
FEATURES = (
    *("not", "repeat", "edge", "optional", "kind", "shape", "unordered", "outputs", "region"),
    *("unread", "each", "steps"),
)
"""What a rich pattern may use besides calls, names, alternatives and conjunctions."""


@dataclass(frozen=True)
class RichNode:
    """A node that may have several outputs, called by the first of them."""

    outputs: tuple[str, ...]
    op: str
    reads: tuple[str, ...]
    alpha: float = 0.0

    @property
    def name(self) -> str:
        """The name of its first output."""
        return self.outputs[0]

    def text(self) -> str:
        """Write it as ONNX text."""
        attributes = {"Concat": " <axis = 0>", "LeakyRelu": f" <alpha = {self.alpha}>"}
        stated = "" if self.op == "LeakyRelu" and not self.alpha else attributes.get(self.op, "")
        return f"{', '.join(self.outputs)} = {self.op}{stated} ({', '.join(self.reads)})"


@dataclass(frozen=True)
class RichGraph:
    """A graph of vectors; *prefix* stands before the names of its sources."""

    nodes: tuple[RichNode, ...]
    outputs: tuple[str, ...]
    prefix: str = ""

    def text(self, also: RichGraph | None = None) -> str:
        """Write it as ONNX text, perhaps with another graph beside it."""
        graphs = [self] if also is None else [also, self]
        inputs = ", ".join(f"float[2] {g.prefix}a, float[4] {g.prefix}b" for g in graphs)
        constants = ", ".join(f"float[2] {g.prefix}k = {{2, 3}}" for g in graphs)
        outputs = ", ".join(f"float[{g.width(n)}] {n}" for g in graphs for n in g.outputs)
        body = " ".join(node.text() for g in graphs for node in g.nodes)
        return f"g ({inputs}) => ({outputs}) <{constants}> {{ {body} }}"

    def producer(self, value: str) -> RichNode | None:
        """Return the node that makes a value."""
        return next((node for node in self.nodes if value in node.outputs), None)

    def origin(self, value: str) -> str:
        """Return the value behind Identity nodes."""
        node = self.producer(value)
        while node is not None and node.op == "Identity":
            value = node.reads[0]
            node = self.producer(value)
        return value

    def width(self, value: str) -> int:
        """Return the only dimension of a value."""
        node = self.producer(value)
        if node is None:
            return WIDTHS[value.removeprefix(self.prefix)]
        if node.op == "Concat":
            return sum(map(self.width, node.reads))
        return self.width(node.reads[0]) // (2 if node.op == "Split" else 1)

    def renamed(self, prefix: str) -> RichGraph:
        """Return the same graph with *prefix* before every name."""
        nodes = [
            replace(
                node,
                outputs=tuple(prefix + name for name in node.outputs),
                reads=tuple(prefix + name for name in node.reads),
            )
            for node in self.nodes
        ]
        return RichGraph(tuple(nodes), tuple(prefix + name for name in self.outputs), prefix)


@st.composite
def rich_graphs(draw: st.DrawFn, *, max_nodes: int = 7, identity: bool = True) -> RichGraph:
    """Draw a graph with several outputs, nodes of several outputs, chains and diamonds."""
    graph = RichGraph((), ())
    unread: list[str] = []
    values = list(WIDTHS)
    ops = [op for op in OPERANDS if identity or op != "Identity"]
    for number in range(draw(st.integers(2, max_nodes))):
        op = draw(st.sampled_from((*ops, "Relu", "Add")))
        first = _read(draw, unread, values)
        if op == "Identity" and not draw(st.integers(0, 2)):
            first = draw(st.sampled_from(tuple(WIDTHS)))
        if op == "Split" and graph.width(first) % 2:
            op = "Neg"
        fitting = [v for v in values if op == "Concat" or graph.width(v) == graph.width(first)]
        fresh = [v for v in unread if v in fitting]
        reads = [first, *(_read(draw, fresh, fitting) for _ in range(OPERANDS[op] - 1))]
        names = (f"v{number}", f"w{number}") if op == "Split" else (f"v{number}",)
        alpha = draw(st.sampled_from((0.0, 0.5))) if op == "LeakyRelu" else 0.0
        node = RichNode(names, op, tuple(reads), alpha)
        graph = replace(graph, nodes=(*graph.nodes, node))
        unread = [name for name in unread if name not in reads] + list(names)
        values += names
    outputs = dict.fromkeys(unread)
    if not draw(st.integers(0, 3)):
        outputs[draw(st.sampled_from(values[len(WIDTHS) :]))] = None
    return replace(graph, outputs=tuple(outputs))


@dataclass(frozen=True)
class RichPattern:
    """Lines ``n0 = …`` and the outputs; see :func:`spell_rich` for the terms."""

    lines: tuple[Term, ...]
    outputs: tuple[Term, ...]

    def text(self) -> str:
        """Write it as a pattern."""
        assigned = [f"n{number} = {spell_rich(term)}" for number, term in enumerate(self.lines)]
        return "\n".join([*assigned, ", ".join(map(spell_rich, self.outputs))])


def spell_rich(term: Term) -> str:
    """Write a term.

    * ``("name", x)``, ``("any",)``, ``("const",)``, ``("line", 0)``, ``("out", line, index)``
    * ``("call", ops, args, rest, unordered, alpha)``, ops being names, or ``op()``
    * ``("or", p, q)``, ``("and", p, q)``, ``("not", p)``, ``("optional", op, p, args)``
    * ``("repeat", op, base, args, least, most)``, ``("steps", step, base, least, most)``
    * ``("edge", producer, consumer, only, index)``
    * ``("unread", p, consumer, index)``, ``("each", p)`` as an argument
    * ``("shape", p, dim)``, ``("same", p, other)``
    * ``("region", parent, path, child)``
    """
    name, *rest = term
    speller = {
        "name": lambda word: word,
        "any": lambda: "_",
        "const": lambda: "const()",
        "line": lambda number: f"n{number}",
        "out": lambda number, index: f"n{number}[{index}]",
        "call": _spell_call,
        "or": lambda p, q: f"({spell_rich(p)} | {spell_rich(q)})",
        "and": lambda p, q: f"({spell_rich(p)} & {spell_rich(q)})",
        "not": lambda p: f"(~{spell_rich(p)})",
        "optional": lambda op, *args: f"optional({op})({', '.join(map(spell_rich, args))})",
        "repeat": _spell_repeat,
        "steps": lambda step, base, least, most: (
            f"repeat({spell_rich(step)}, hole={spell_rich(base)}, min={least}, max={most})"
        ),
        "edge": _spell_edge,
        "unread": _spell_unread,
        "each": lambda p: f"*_.each({spell_rich(p)})",
        "shape": lambda p, dim: f"{spell_rich(p)}.has_shape({dim})",
        "same": lambda p, q: f"same_shape({spell_rich(p)}, {spell_rich(q)})",
        "region": lambda *parts: f"dominates({', '.join(map(spell_rich, parts))})",
    }
    text: str = speller[name](*rest)  # type: ignore[index, operator]
    return text


def _spell_call(
    ops: tuple[str, ...], args: tuple[Term, ...], rest: object, unordered: object, alpha: float
) -> str:
    inner = ", ".join(map(spell_rich, args))
    items = [f"unordered({inner})" if unordered else inner] if args else []
    items += ["..."] if rest else []
    items += [f"alpha={alpha}"] if alpha else []
    callee = ops[0] if len(ops) == 1 else f"({' | '.join(ops)})"
    return f"{callee}({', '.join(items)})"


def _spell_repeat(op: str, base: Term, args: tuple[Term, ...], least: int, most: int) -> str:
    inner = ", ".join(map(spell_rich, (base, *args)))
    return f"repeat({op}, {inner}, min={least}, max={most})"


def _spell_edge(producer: Term, consumer: Term, only: object, index: int | None) -> str:
    if index is None:
        sign = ">>" if only else "^"
        return f"({spell_rich(producer)} {sign} {spell_rich(consumer)})"
    word = "only_used_by" if only else "used_by"
    return f"{spell_rich(producer)}.{word}({spell_rich(consumer)}, {index})"


def _spell_unread(value: Term, consumer: Term, index: int | None) -> str:
    slot = "" if index is None else f", {index}"
    return f"{spell_rich(value)}.not_used_by({spell_rich(consumer)}{slot})"


class _Drawer:
    """Draws terms that follow a graph and mostly fit it."""

    def __init__(self, draw: st.DrawFn, graph: RichGraph, features: Sequence[str]) -> None:
        self.draw = draw
        self.graph = graph
        self.features = features
        self.lines: dict[str, int] = {}
        self.multiple: dict[str, int] = {}
        self.hidden = 0

    def chance(self, one_in: int) -> bool:
        return not self.draw(st.integers(0, one_in - 1))

    def leaf(self, value: str) -> Term:
        """Draw a leaf, often one that is named after the value."""
        own: Term = ("name", f"{'h' if self.hidden else 'x'}_{self.graph.origin(value)}")
        others: list[Term] = [("any",), ("const",)]
        if not self.hidden:
            others += [("name", "x"), ("name", "y")]
        return self.draw(st.sampled_from([own, own, own, ("any",), *others]))

    def term(self, value: str, depth: int) -> Term:
        """Draw a term for *value*."""
        origin = self.graph.origin(value)
        if not self.hidden and origin in self.lines and self.chance(2):
            return ("line", self.lines[origin])
        made = self.graph.producer(origin)
        if not self.hidden and made is not None and made.name in self.multiple and self.chance(2):
            index = made.outputs.index(origin)
            number = self.multiple[made.name]
            return ("out", number, index) if index or self.chance(2) else ("line", number)
        if made is None or depth <= 0 or self.chance(5):
            return self.constrained(self.leaf(value), value, depth)
        if made.outputs[0] != origin:
            return self.leaf(value)
        return self.constrained(self.compound(made, depth), value, depth)

    def compound(self, made: RichNode, depth: int) -> Term:
        """Draw a term for output 0 of a node."""
        kinds = ["call"] * 5 + ["or", "ro", "and"]
        kept = {"repeat", "steps", "edge", "optional", "region"}
        wanted = [f for f in self.features if f in kept]
        kinds += wanted * (8 // max(len(wanted), 1))
        kind = self.draw(st.sampled_from(kinds))
        call = self.call(made, depth)
        if kind in {"call", *kept}:
            return call if kind == "call" else getattr(self, f"_{kind}")(made, depth, call)
        other = self.leaf(made.name) if self.chance(2) else self.call(self.any_node(), 1)
        return ("or", other, call) if kind == "ro" else (kind, call, other)

    def any_node(self) -> RichNode:
        return self.draw(st.sampled_from(self.graph.nodes))

    def call(self, made: RichNode, depth: int) -> Term:
        """Draw a node pattern for a node."""
        reads = list(made.reads)
        unordered = made.op == "Concat" and "unordered" in self.features and self.chance(2)
        if made.op in COMMUTATIVE or unordered:
            reads = self.draw(st.permutations(reads))
        rest = "kind" in self.features and self.chance(6)
        if rest:
            reads = reads[: self.draw(st.integers(0, len(reads)))]
        ops: tuple[str, ...] = (made.op,)
        if made.op != "Identity" and self.chance(5):
            others = {1: ("Relu", "Neg", "Identity"), 2: ("Mul", "Sub"), 3: ("Sum",)}
            other = self.draw(st.sampled_from(others[len(made.reads)]))
            ops = tuple(self.draw(st.permutations((made.op, other))))
        if made.op != "Identity" and "kind" in self.features and self.chance(6):
            kind = "elementwise" if len(made.reads) == 1 and made.op != "Split" else ""
            ops = (f'op(kind="{kind}")' if kind and not self.has_identity else "op()",)
        alpha = made.alpha if made.op == "LeakyRelu" and ops == ("LeakyRelu",) else 0.0
        args = tuple(self.term(read, depth - 1) for read in reads)
        if made.op in {"Concat", "Sum"} and ops == (made.op,) and "each" in self.features:
            start = self.draw(st.integers(0, len(args)))
            stop = self.draw(st.integers(start, len(args)))
            self.hidden += 1
            read = self.draw(st.sampled_from(made.reads))
            above = self.graph.producer(self.graph.origin(read))
            each = self.leaf(read) if above is None or self.chance(3) else self.call(above, 1)
            if "not" in self.features and self.chance(3):
                each = ("and", each, ("not", self.call(self.any_node(), 1)))
            self.hidden -= 1
            args, rest, unordered = (*args[:start], ("each", each), *args[stop:]), False, False
        return ("call", ops, args, rest, unordered and bool(args), alpha)

    @property
    def has_identity(self) -> bool:
        return any(node.op == "Identity" for node in self.graph.nodes)

    def constrained(self, term: Term, value: str, depth: int) -> Term:
        """Perhaps say more of the value, right or wrong."""
        if "not" in self.features and self.chance(5):
            inner = self.leaf(value)
            if depth > 0:
                deeper = self.chance(3)
                inner = self.term(value, depth - 1) if deeper else self.call(self.any_node(), 1)
            denied: Term = ("not", inner)
            return denied if self.chance(3) else ("and", term, denied)
        if "unread" in self.features and self.chance(4):
            readers = [n for n in self.graph.nodes if value in n.reads]
            reader = self.draw(st.sampled_from(readers)) if readers else self.any_node()
            consumer = ("any",) if self.chance(5) else self.call(reader, 1)
            return ("unread", term, consumer, self.draw(st.sampled_from((None, None, 0, 1))))
        if "shape" in self.features and self.chance(4):
            dim = self.draw(st.sampled_from(("n", "n", "m", self.graph.width(value))))
            if self.hidden:
                dim = self.graph.width(value)
            return ("shape", term, dim)
        if "shape" in self.features and not self.hidden and self.chance(6):
            return ("same", term, ("name", self.draw(st.sampled_from(("x", "x_a", "x_b")))))
        return term

    def _optional(self, made: RichNode, depth: int, call: Term) -> Term:
        if len(made.reads) > 1 or self.chance(2):
            return ("optional", self.draw(st.sampled_from(("Relu", "Neg"))), call)
        return ("optional", made.op, self.term(made.reads[0], depth - 1))

    def _repeat(self, made: RichNode, depth: int, call: Term) -> Term:
        if made.op in {"Split", "Identity"}:
            return call
        base, current = made.reads[0], made
        above = self.graph.producer(self.graph.origin(base))
        while above is not None and above.op == made.op and self.chance(2):
            current, base = above, above.reads[0]
            above = self.graph.producer(self.graph.origin(base))
        bottom = self.term(base, depth - 1)
        self.hidden += 1
        args = tuple(self.leaf(read) for read in current.reads[1:])
        if len(args) > 1 and "not" in self.features and self.chance(2):
            args = (args[0], ("not", args[0]))
        if args and "shape" in self.features and self.chance(2):
            args = (("shape", args[0], f"h{len(bottom)}_{current.name}"), *args[1:])
        self.hidden -= 1
        least = self.draw(st.integers(0, 2))
        return ("repeat", made.op, bottom, args, least, least + self.draw(st.integers(0, 3)))

    def _steps(self, made: RichNode, depth: int, call: Term) -> Term:
        """Draw a chain of steps of two nodes, which may read the step before twice."""
        slot = self.draw(st.integers(0, len(made.reads) - 1))
        above = self.graph.producer(self.graph.origin(made.reads[slot]))
        if above is None or {above.op, made.op} & {"Split", "Identity"}:
            return call
        base = self.draw(st.sampled_from(above.reads))
        bottom = self.term(base, depth - 1)
        self.hidden += 1
        origin, hole = self.graph.origin(base), ("name", "hole")

        def args(node: RichNode) -> list[Term]:
            is_hole = [self.graph.origin(r) == origin and not self.chance(4) for r in node.reads]
            return [
                hole if here else self.leaf(r) for here, r in zip(is_hole, node.reads, strict=True)
            ]

        outer = args(made)
        outer[slot] = ("call", (above.op,), tuple(args(above)), False, False, 0.0)
        self.hidden -= 1
        step = ("call", (made.op,), tuple(outer), False, False, 0.0)
        least = self.draw(st.integers(0, 2))
        if "hole" not in spell_rich(step):
            return call
        return ("steps", step, bottom, least, least + self.draw(st.integers(0, 2)))

    def _edge(self, made: RichNode, depth: int, call: Term) -> Term:
        slot = self.draw(st.integers(0, len(made.reads) - 1))
        index = slot if self.chance(3) else None
        producer = self.term(made.reads[slot], depth - 1)
        loose: Term = ("call", (made.op,), (("any",),) * len(made.reads), False, False, 0.0)
        return ("edge", producer, loose if self.chance(2) else call, self.chance(2), index)

    def _above(self, made: RichNode) -> set[str]:
        names = {made.name}
        for node in reversed(self.graph.nodes):
            if node.name in names:
                makers = (self.graph.producer(read) for read in node.reads)
                names |= {maker.name for maker in makers if maker is not None}
        return names - {made.name}

    def _region(self, made: RichNode, _depth: int, call: Term) -> Term:
        inner = [n for n in self.graph.nodes if n.name != made.name and n.op != "Identity"]
        if not inner:
            return call
        above = self._above(made)
        near = [node for node in inner if node.name in above] or inner
        parent = self.call(self.draw(st.sampled_from(near)), 1)
        loose: Term = ("call", (made.op,), (("any",),) * len(made.reads), False, False, 0.0)
        ops = self.draw(st.permutations(sorted({n.op for n in inner})))
        path: Term = ("any",)
        if self.chance(2):
            path = ("call", tuple(ops[:3]), (), True, False, 0.0)
        return ("region", parent, path, loose if self.chance(2) else call)


@st.composite
def rich_patterns(draw: st.DrawFn, graph: RichGraph, features: Sequence[str]) -> RichPattern:
    """Draw a pattern that follows *graph* and may use *features*."""
    drawer = _Drawer(draw, graph, features)
    real = [node for node in graph.nodes if node.op != "Identity"] or list(graph.nodes)
    chosen = draw(st.lists(st.sampled_from(real), max_size=2, unique=True))
    lines: list[Term] = []
    for node in sorted(chosen, key=graph.nodes.index):
        is_call = drawer.chance(3) or len(node.outputs) > 1
        lines.append(drawer.call(node, 2) if is_call else drawer.compound(node, 2))
        target = drawer.multiple if lines[-1][0] == "call" else drawer.lines
        target[node.name] = len(lines) - 1
    count = draw(st.integers(2, 3)) if "outputs" in features else 1
    outputs = []
    for _ in range(count):
        root = draw(st.sampled_from(real))
        outputs.append(
            drawer.call(root, 3) if count > 1 or drawer.chance(4) else drawer.compound(root, 3)
        )
    return RichPattern(tuple(lines), tuple(outputs))


@st.composite
def region_cases(draw: st.DrawFn) -> tuple[RichGraph, RichPattern]:
    """Draw a graph that is a region between a Sub and a Sum, or nearly, and a pattern for it."""
    nodes = [RichNode(("v0",), "Sub", ("a", "k"))]
    if draw(st.booleans()):
        nodes.append(RichNode(("v1",), "Identity", (draw(st.sampled_from(("a", "k", "v0"))),)))
    unread = [n.name for n in nodes if all(n.name not in other.reads for other in nodes)]
    values = ["a", "k", *(node.name for node in nodes), "v0"]
    for number in range(2, 2 + draw(st.integers(0, 4))):
        op = draw(st.sampled_from(("Relu", "Neg", "Identity", "Add", "Mul", "Add")))
        first = draw(st.sampled_from([*unread, *unread, "v0", values[-1]]))
        second = [_read(draw, unread, values)] if OPERANDS[op] > 1 else []
        node = RichNode((f"v{number}",), op, tuple(draw(st.permutations([first, *second]))))
        nodes.append(node)
        unread = [name for name in unread if name not in node.reads] + [node.name]
        values.append(node.name)
    last = RichNode(("z",), "Sum", tuple([*unread, *draw(st.lists(st.sampled_from(values)))][:4]))
    outputs = ["z", *(name for name in unread if name not in last.reads)]
    if draw(st.integers(0, 5)) == 0:
        outputs.append(draw(st.sampled_from([node.name for node in nodes])))
    graph = RichGraph((*nodes, last), tuple(dict.fromkeys(outputs)))
    ops = draw(st.sampled_from((("Relu", "Neg", "Add", "Mul"), ("Relu", "Add"), ("op()",))))
    path = draw(st.sampled_from((("any",), ("call", ops, (), True, False, 0.0))))
    parent = ("call", (draw(st.sampled_from(("Sub", "Sub", "Sub", "Add"))),), *_LOOSE)
    child = ("call", (draw(st.sampled_from(("Sum", "Sum", "Sum", "Mul"))),), *_LOOSE)
    return graph, RichPattern((), (("region", parent, path, child),))


_LOOSE = ((), True, False, 0.0)
"""The arguments, and what else a node pattern says, where it says nothing."""
