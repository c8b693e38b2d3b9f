"""The matcher against TVM's own: the wheel of Relax, run live.

On random graphs and patterns TVM must do exactly what :class:`Committed` does, dpl exactly what
:class:`Complete` does, and the two references are then compared: whatever TVM finds dpl must find
too, but for the differences below.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import islice, permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dplcli.language.pattern
from dplcli.errors import PatternSyntaxError
from dplcli.language import PatternRule
from tests.support.helpers import (
    all_bindings,
    check_match,
    find_solutions,
    model_from_text,
    partitioned,
    pattern_of,
    rule,
    selected,
    strides,
    taken,
)
from tests.support.strategies import SOURCES, RandomGraph, Step

pytest.importorskip("tvm", reason="the oracle is TVM's Relax matcher: pip install apache-tvm")

from tvm import relax
from tvm.relax import dpl as tvm_dpl

from tests.oracle.relax_side import (
    BINARY,
    ONNX_COMMUTES,
    TVM_COMMUTES,
    UNARY,
    Committed,
    Complete,
    Found,
    Part,
    PartPattern,
    RelaxGraph,
    found_of,
    graph_of,
    read_pattern,
    relax_call,
    relax_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
HAS_NOT = hasattr(dplcli.language.pattern, "NotPattern")

KNOWN_DIFFERENCES = {
    "backtracking": "TVM never returns into a part that has succeeded; dpl does (language.md 2.1).",
    "preference": "Where both match, TVM may bind otherwise: it gives up an alternative, or the "
    "operands as written, at the first failure of a part, and dpl only when the part has no way "
    "left to match.",
    "injectivity": "Two node patterns may be one node in TVM, never in dpl (language.md 2.2).",
    "commutativity": "TVM commutes add and multiply, dpl whatever ONNX says commutes (2.3).",
    "further inputs": "TVM fails with an IndexError on a pattern of multiply or divide with fewer "
    "arguments before the ... than it reads unasked.",
    "re-association": "TVM matches (p * q) / r also as p * (q / r), in nested calls; dpl does not.",
    "identity": "An Identity is a node that a pattern may name, and the root of nothing else; a "
    "variable bound to a variable is the same value everywhere in TVM.",
    "constants": "A literal is a number of the constant's own type and any rank; TVM compares "
    "type, shape and bytes.",
    "attributes": "A name that no version of the operator has is an error at once; in TVM it "
    "matches nothing.",
    "root": "A match owns the node at its root in dpl; TVM also matches where a wildcard does.",
    "negation": "TVM decides a ~ where it stands, by its committed search; dpl when all names are "
    "bound, by a complete one, and so also refuses more.",
    "overlap": "Among overlapping matches of a rule dpl takes the outermost, as Relay does.",
}
"""Where dpl differs from TVM's Relax matcher and passes, and why."""


# -- random graphs and patterns --------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> RandomGraph:
    """Draw a graph with one, two or three outputs, whose values are mostly read several times."""
    values = list(SOURCES)
    steps = []
    unary = st.sampled_from((*UNARY, "Identity"))
    binary = st.sampled_from((*BINARY, "Add", "Mul", "Add", "Mul", "Max"))
    for number in range(draw(st.integers(3, 7))):
        op = draw(unary if draw(st.integers(0, 2)) == 0 else binary)
        count = 2 if op in BINARY else 1
        reads = tuple(draw(st.sampled_from(values[-3:])) for _ in range(count))
        steps.append(Step(f"v{number}", op, reads))
        values.append(f"v{number}")
    some = st.lists(st.sampled_from(values[3:-1]), max_size=2, unique=True)
    return RandomGraph(tuple(steps), (values[-1], *draw(some)))


@dataclass
class Drawing:
    """Draws one pattern that mostly fits a graph; what is named alike is one object."""

    draw: st.DrawFn
    graph: RandomGraph
    leaves: dict[tuple[str, str], Part] = field(default_factory=dict)
    lines: dict[str, Part] = field(default_factory=dict)
    """By the value that each was drawn to fit."""

    def one_of(self, *choices: Any) -> Any:  # noqa: ANN401
        """Draw one of several things; what stands first is the simplest."""
        return self.draw(st.sampled_from(choices))

    def one_in(self, count: int) -> bool:
        """Draw a yes that is as rare as one in *count*."""
        return self.draw(st.integers(1, count)) == count

    def leaf(self, value: str) -> Part:
        """Draw a leaf that probably fits *value*; a name is mostly that of its value."""
        kind = self.one_of(*["name"] * 15, "any", "const", "input")
        words = {"name": [f"w_{value}"] * 9 + ["x"], "any": [""]}
        word = self.one_of(*words.get(kind, ["", {"const": "c", "input": "a"}.get(kind)]))
        return self.leaves.setdefault((kind, word), Part(kind, word)) if word else Part(kind)

    def part(self, value: str, depth: int) -> Part:
        """Draw a part that probably fits *value*."""
        origin = self.graph.origin(value)
        if origin in self.lines and not self.one_in(4):
            return self.lines[origin]
        if depth <= 0 or self.graph.producer(origin) is None or self.one_in(4):
            return self.leaf(origin)
        return self.node(origin, depth)

    def node(self, origin: str, depth: int) -> Part:
        """Draw a call, an alternative or a conjunction that probably fits *origin*."""
        call = self.call(origin, depth)
        kind = self.one_of("call", "call", "call", "or", "or", "and")
        if kind == "call":
            return call
        reads = self.reads(origin)
        other = self.one_of(origin, *reads) if kind == "or" or self.one_in(20) else origin
        beside = self.leaf(other) if self.one_in(2) else self.part(other, depth - 1)
        if HAS_NOT and self.one_in(6):
            beside = Part("not", parts=(beside,))
        return Part(kind, parts=tuple(self.draw(st.permutations((beside, call)))))

    def reads(self, origin: str) -> list[str]:
        """Return what the node that makes *origin* reads."""
        step = self.graph.producer(origin)
        return [] if step is None else [self.graph.origin(read) for read in step.reads]

    def call(self, origin: str, depth: int) -> Part:
        """Draw a node pattern that probably fits *origin*."""
        step = self.graph.producer(origin)
        assert step is not None
        ops = [step.op]
        if self.one_in(6):
            ops.append(self.one_of(*UNARY) if step.op in UNARY else self.one_of(*BINARY))
            ops = self.draw(st.permutations(ops))[: self.one_of(2, 2, 2, 1)]
        reads = step.reads
        if self.one_in(2 if step.op in ONNX_COMMUTES else 20):
            reads = reads[::-1]
        parts = [self.part(read, depth - 1) for read in reads]
        rest = self.one_in(10)
        if rest and not {"Mul", "Div"} & set(ops):  # TVM crashes there, see "further inputs"
            parts = parts[: self.one_of(*range(len(parts) + 1))]
        return Part("call", ops=tuple(dict.fromkeys(ops)), parts=tuple(parts), rest=rest)

    def pattern(self) -> PartPattern:
        """Draw up to two lines and a root with a node in it."""
        values = [step.name for step in self.graph.steps if step.op != "Identity"]
        assume(values)
        chosen = self.draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
        for value in sorted(chosen, key=values.index):
            self.lines[value] = self.node(value, 1)
        root = self.one_of(*values[::-1])
        return PartPattern(tuple(self.lines.values()), self.call(root, 3))


@st.composite
def cases(draw: st.DrawFn) -> tuple[RandomGraph, PartPattern]:
    """Draw a graph and a pattern."""
    graph = draw(graphs())
    return graph, Drawing(draw, graph).pattern()


# -- the answers -----------------------------------------------------------------------------------


def found_by_tvm(relax_graph: RelaxGraph, pattern: PartPattern, root: str) -> Found | None:
    """Return what TVM finds at one root."""
    root_pattern, made = relax_pattern(pattern.root)
    matched = relax_graph.match(root_pattern, root)
    if matched is None:
        return None
    bound = {part: value for part, own in made.items() for o, value in matched if own.same_as(o)}
    return found_of(bound, pattern)


def found_by_dpl(graph: RandomGraph, pattern: PartPattern) -> dict[str, list[Found]]:
    """Return each solution of dpl once, preferred ones first, by root."""
    found: dict[str, dict[Found, None]] = {root: {} for root in roots_of(graph)}
    for solution in find_solutions(repr(pattern), model_from_text(graph.text())):
        found[solution.root][Found(solution.nodes, solution.bindings)] = None
    return {root: list(solutions) for root, solutions in found.items()}


def roots_of(graph: RandomGraph) -> list[str]:
    """Return the values to match at; an Identity is a root in TVM only."""
    return [step.name for step in graph.steps if step.op != "Identity"]


def compare(graph: RandomGraph, pattern: PartPattern) -> Iterator[str]:
    """Compare everything at every root; name what is found, and fail where nothing explains it."""
    relax_graph, found = RelaxGraph(graph), found_by_dpl(graph, pattern)
    for root in roots_of(graph):
        committed = Committed(graph).match(pattern, root)
        assert found_by_tvm(relax_graph, pattern, root) == committed
        complete = Complete(graph, ONNX_COMMUTES).match(pattern, root)
        check_solutions(found[root], complete)
        if committed is None and not complete:
            continue
        if committed is not None and complete[:1] == [committed]:
            yield "agreement"
        elif any(part.kind == "not" for part in pattern.objects()):
            yield "negation"
        elif committed is None:
            ordered = Complete(graph, TVM_COMMUTES).match(pattern, root)
            yield "backtracking" if ordered else "commutativity"
        elif committed.is_injective:
            assert committed in complete
            yield "preference"
        else:
            yield "injectivity"


def check_solutions(found: list[Found], complete: list[Found]) -> None:
    """Check that dpl found all solutions in order of preference, and no other."""
    assert found == complete


def test_random_patterns() -> None:
    """TVM is the committed reference, dpl the complete one, and every difference is explained."""
    seen: Counter[str] = Counter()

    @settings(max_examples=200)  # most of them are checked to be there below
    @given(cases())
    def check(case: tuple[RandomGraph, PartPattern]) -> None:
        seen.update(compare(*case))

    check()
    assert seen["agreement"] > 100
    assert seen["injectivity"]


DENSE = graph_of(
    "r=Relu(a) m=Mul(a,b) n=Mul(b,a) q=Mul(r,a) p=Sub(r,a) s=Sub(r,r) t=Sub(a,a) u=Sub(m,b)"
    " v=Sub(n,a) w=Sub(m,r) c=Add(a,m) d=Add(n,a) e=Add(r,a) f=Add(r,r) g=Add(m,n) h=Max(a,r)"
    " i=Max(b,m) j=Max(r,r) o=Max(n,r)"
)
"""Relu, Mul and what can be said of them, in most of the ways in which values can coincide."""


def small_patterns(op: str) -> Iterator[PartPattern]:
    """Write every pattern of one node over names, an inner node, or two of these with | or &."""
    x, y = Part("name", "x"), Part("name", "y")

    def terms() -> list[Part]:
        inner = [Part("call", ops=("Relu",), parts=(x,)), Part("call", ops=("Mul",), parts=(x, y))]
        pairs = list(permutations([x, y, *inner], 2))
        return [x, y, *inner, *(Part(kind, parts=pair) for kind in ("or", "and") for pair in pairs)]

    for first, second in product(range(len(terms())), repeat=2):
        yield PartPattern((), Part("call", ops=(op,), parts=(terms()[first], terms()[second])))
    for line in terms()[2:]:
        yield PartPattern((line,), Part("call", ops=(op,), parts=(line, line)))


@pytest.mark.parametrize("stride", strides(4))
@pytest.mark.parametrize("op", ["Add", "Max"])
def test_every_small_pattern(op: str, stride: int) -> None:
    """The same for small patterns over a graph in which most things occur."""
    seen: Counter[str] = Counter()
    for pattern in islice(small_patterns(op), 0, None, stride):
        seen.update(compare(DENSE, pattern))
    expected = {"agreement", "backtracking", "injectivity"}
    expected |= {"Add": {"preference"}, "Max": {"commutativity"}}.get(op, set())
    assert expected <= set(seen)
    assert set(seen) <= set(KNOWN_DIFFERENCES) | {"agreement"}


# -- one pattern, one graph ------------------------------------------------------------------------


def check_both(pattern: str, body: str, *, tvm: str | None, dpl: str | None) -> None:
    """Match at the value o in TVM and in dpl, and compare what the names are bound to.

    Args:
        pattern: The pattern as text, for both.
        body: The nodes of the graph.
        tvm: What TVM binds, as ``x=a y=b``; None if it finds nothing.
        dpl: What dpl's preferred solution binds.
    """
    graph, parts = graph_of(body), read_pattern(pattern)
    assert repr(parts) == pattern
    found, solutions = found_by_tvm(RelaxGraph(graph), parts, "o"), found_by_dpl(graph, parts)["o"]
    assert (spelled(found), spelled(*solutions[:1])) == (tvm, dpl)


def spelled(found: Found | None = None) -> str | None:
    """Write what names are bound to as ``x=a y=b``."""
    return None if found is None else " ".join(f"{name}={value}" for name, value in found.names)


@pytest.mark.parametrize(
    ("body", "tvm", "dpl"),
    [
        ("m=Mul(a,b) o=Add(m,a)", "x=a y=b", "x=a y=b"),
        ("m=Mul(b,a) o=Add(m,a)", None, "x=a y=b"),
        ("m=Mul(a,b) o=Add(m,b)", None, "x=b y=a"),
        ("m=Mul(b,a) o=Add(b,m)", "x=b y=a", "x=b y=a"),
        ("m=Mul(b,a) o=Add(m,k)", None, None),
    ],
)
def test_r1_backtracking_into_operands(body: str, tvm: str | None, dpl: str | None) -> None:
    """R1: TVM keeps the first order in which the inner operands match; dpl tries the other."""
    check_both("Add(Mul(x, y), x)", body, tvm=tvm, dpl=dpl)


@pytest.mark.parametrize(
    ("pattern", "body", "tvm", "dpl"),
    [
        ("Sub((x | Relu(x)), x)", "r=Relu(a) o=Sub(r,a)", None, "x=a"),
        ("Sub((Relu(x) | x), x)", "r=Relu(a) o=Sub(r,a)", "x=a", "x=a"),
        ("Sub((Relu(x) | x), x)", "o=Sub(a,a)", "x=a", "x=a"),
        ("Sub((Relu(x) | x), x)", "r=Relu(a) o=Sub(r,r)", None, "x=r"),
    ],
)
def test_r2_backtracking_into_alternatives(
    pattern: str, body: str, tvm: str | None, dpl: str | None
) -> None:
    """R2: TVM keeps the first alternative that matches; dpl tries the other."""
    check_both(pattern, body, tvm=tvm, dpl=dpl)


def test_preference() -> None:
    """TVM swaps the operands of the Add before it looks for another way to match the first."""
    pattern = "Add(((x & y) | (Relu(x) & z)), (x | Relu(x)))"
    check_both(pattern, "r=Relu(a) o=Add(r,a)", tvm="x=a y=a", dpl="x=a z=r")
    solutions = all_bindings(pattern, graph_of("r=Relu(a) o=Add(r,a)").text())
    assert solutions == ["x=a z=r", "x=a y=a"]


def test_preference_of_an_alternative_that_tvm_cannot_match() -> None:
    """TVM takes the second alternative, since it finds no way to match the first."""
    pattern = "Neg((Sub((x | Relu(x)), x) | y))"
    check_both(pattern, "r=Relu(a) s=Sub(r,a) o=Neg(s)", tvm="y=s", dpl="x=a")


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("o=Add(a,a)", "x=a"),
        ("o=Add(a,b)", None),
        ("r=Relu(a) s=Relu(a) o=Add(r,s)", None),
        ("r=Relu(a) o=Add(r,r)", "x=r"),
        ("r=Identity(a) s=Identity(r) o=Add(s,r)", "x=a"),
    ],
)
def test_r4_a_name_is_one_value(body: str, bound: str | None) -> None:
    """R4: values are compared by identity, not by what they are computed from, in both."""
    check_both("Add(x, x)", body, tvm=bound, dpl=bound)


@pytest.mark.parametrize(
    ("pattern", "tvm"),
    [
        ("Add(Relu(x), Relu(y))", "x=a y=a"),
        ("Add((Relu(x) & Relu(y)), z)", "x=a y=a z=r"),
        ("Add(Relu(x), (Relu(y) | z))", "x=a y=a"),
    ],
)
def test_injectivity(pattern: str, tvm: str) -> None:
    """Two node patterns are one node in TVM; in dpl they are two, so another way must be found."""
    other = "x=a z=r" if "|" in pattern else None
    check_both(pattern, "r=Relu(a) o=Add(r,r)", tvm=tvm, dpl=other)
    check_both("n0 = Relu(x)\nAdd(n0, n0)", "r=Relu(a) o=Add(r,r)", tvm="n0=r x=a", dpl="n0=r x=a")


def test_commutativity() -> None:
    """Max is ordered in TVM."""
    check_both("Max(Relu(x), y)", "r=Relu(b) o=Max(a,r)", tvm=None, dpl="x=b y=a")
    check_both("Max(y, Relu(x))", "r=Relu(b) o=Max(a,r)", tvm="x=b y=a", dpl="x=b y=a")


@pytest.mark.parametrize(("op", "bound"), [("Add", "a=a"), ("Sub", None)])
def test_r12_alternative_callees_commute_by_the_matched_node(op: str, bound: str | None) -> None:
    """R12: (Add | Sub) commutes on an Add and not on a Sub, in both."""
    body = f"r=Relu(b) o={op}(a,r)"
    check_both('(Add | Sub)(Relu(_), input("a"))', body, tvm=bound, dpl=bound)


def test_r11_further_inputs() -> None:
    """R11: what stands before ... may be the last inputs of an Add; too many are no match."""
    check_both("Add(Relu(x), ...)", "r=Relu(b) o=Add(a,r)", tvm="x=b", dpl="x=b")
    check_both("Sub(Relu(x), ...)", "r=Relu(b) o=Sub(a,r)", tvm=None, dpl=None)
    graph = RelaxGraph(graph_of("o=Relu(a)"))
    relu = tvm_dpl.is_op("relax.nn.relu")
    two = relu(tvm_dpl.wildcard(), tvm_dpl.wildcard(), varg_default_wildcard=True)
    assert graph.match(two, "o") is None
    with pytest.raises(PatternSyntaxError, match="at most 1 input"):
        pattern_of("Relu(_, _, ...)")


@pytest.mark.parametrize("pattern", ["Mul(...)", "Mul(x, ...)", "Div(...)"])
def test_further_inputs_crash_tvm(pattern: str) -> None:
    """TVM reads arguments of multiply and divide patterns that need not be there."""
    graph = graph_of("m=Mul(a,b) d=Div(m,b) o=Add(d,b)")
    with pytest.raises(IndexError, match="out of bounds"):
        found_by_tvm(RelaxGraph(graph), read_pattern(pattern), "o")
    assert found_by_dpl(graph, read_pattern(pattern))["o"] == []
    assert found_by_dpl(graph, read_pattern(pattern))["m" if "Mul" in pattern else "d"]


@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        ("Div(Mul(x, y), z)", "d=Div(b,k) o=Mul(a,d)"),
        ("Div(Mul(x, y), z)", "d=Div(a,k) o=Mul(d,b)"),
        ("Mul(x, Div(y, z))", "m=Mul(a,b) o=Div(m,k)"),
        ("Mul(x, Div(y, z))", "m=Mul(b,a) o=Div(m,k)"),
    ],
)
def test_re_association(pattern: str, body: str) -> None:
    """R13: TVM reads nested products and quotients in another order, a dataflow block's never."""
    check_both(pattern, body, tvm=None, dpl=None)
    nested, _ = relax_pattern(read_pattern(pattern).root)
    assert nested.match(nested_call(graph_of(body)))


def nested_call(graph: RandomGraph) -> Any:  # noqa: ANN401
    """Build the last value in Relax as one expression."""
    tensor = relax.TensorType((2,), "float32")
    values = {name: relax.Var(name, tensor) for name in SOURCES}
    for step in graph.steps:
        values[step.name] = relax_call(step, [values[read] for read in step.reads])
    return values[graph.steps[-1].name]


def test_identity() -> None:
    """Both look through an Identity; in dpl it is also a node, and not the root of another's match.

    A pattern ``Identity(x)`` cannot be said in Relax, which has no such operator.
    """
    graph, pattern = graph_of("r=Relu(a) i=Identity(r) o=Neg(i)"), read_pattern("Relu(x)")
    check_both("Neg(Relu(x))", "r=Relu(a) i=Identity(r) o=Neg(i)", tvm="x=a", dpl="x=a")
    assert spelled(found_by_tvm(RelaxGraph(graph), pattern, "i")) == "x=a"
    check_match("Relu(x)", graph.text(), {"r": "x=a"})
    check_match("Identity(x)", graph.text(), {"i": "x=r"})


def test_root() -> None:
    """TVM matches where only a wildcard does; a match of dpl has the node at its root."""
    graph, pattern = graph_of("r=Relu(a) o=Neg(r)"), "Relu(x) | y"
    matched = found_by_tvm(RelaxGraph(graph), read_pattern(pattern), "o")
    assert spelled(matched) == "y=o"
    assert taken(selected(pattern, graph.text())) == ["r: r"]


@pytest.mark.parametrize(
    ("dtype", "shape", "tvm"),
    [("float32", (), True), ("float64", (), False), ("float32", (1,), False), ("int64", (), False)],
)
def test_r5_constants(dtype: str, shape: tuple[int, ...], *, tvm: bool) -> None:
    """R5: TVM compares type and shape too; a literal is that number in the constant's own type."""
    one = relax.const(np.ones(shape, dtype), dtype)
    assert tvm_dpl.is_expr(relax.const(1.0, "float32")).match(one) == tvm
    onnx_type = {"float32": "float", "int64": "int64", "float64": "double"}[dtype]
    dims = f"[{', '.join(map(str, shape))}]" if shape else ""
    text = f"g ({onnx_type}[2] a) => (o) <{onnx_type}{dims} c = {{1}}> {{ o = Mul (a, c) }}"
    check_match("Mul(x, 1.0)", text, {"o": "x=a"})


def test_equal_constants_are_two_values() -> None:
    """Two constants with the same data do not bind one name, in both."""
    p, q = (relax.const(np.ones(1, "float32")) for _ in range(2))
    shared = tvm_dpl.is_const()
    assert not tvm_dpl.is_op("relax.add")(shared, shared).match(relax.op.add(p, q))
    assert tvm_dpl.is_op("relax.add")(shared, shared).match(relax.op.add(p, p))
    text = "g () => (float[1] o) <float[1] p = {1}, float[1] q = {1}> { o = Add (p, OTHER) }"
    check_match("Add(const(c), const(c))", text.replace("OTHER", "q"), {})
    check_match("Add(const(c), const(c))", text.replace("OTHER", "p"), {"o": "c=p"})


CONV = """g (float[1,4,8,8] a, float[4,2,3,3] w) => (o) {
    o = Conv <group=2, pads=[1,1,1,1]> (a, w) }"""


@pytest.mark.parametrize(
    ("in_tvm", "in_dpl", "matches"),
    [
        ({"strides": [1, 1]}, "strides=[1, 1]", True),
        ({"strides": [2, 2]}, "strides=[2, 2]", False),
        ({"groups": 2}, "group=2", True),
        ({"groups": 1}, "group=1", False),
        ({"groups": 2, "dilation": [1, 1]}, "group=2, dilations=[1, 1]", True),
        ({"padding": [1, 1]}, "pads=[1, 1]", False),
        ({"padding": [1, 1, 1, 1]}, "pads=[1, 1, 1, 1]", True),
    ],
)
def test_r6_attributes(in_tvm: dict[str, object], in_dpl: str, *, matches: bool) -> None:
    """R6: attributes are compared with defaults filled in, and as they are stored, in both."""
    pattern = conv2d().has_attr(in_tvm)
    assert pattern.match(conv2d_call()) == matches
    check_match(f"Conv(_, _, {in_dpl})", CONV, {"o": ""} if matches else {})


def test_attributes() -> None:
    """An attribute that no version has matches nothing in TVM, and is refused by dpl."""
    assert not conv2d().has_attr({"stride": [1, 1]}).match(conv2d_call())
    assert conv2d().has_attr({}).match(conv2d_call())
    assert not tvm_dpl.wildcard().has_attr({}).match(relax.Var("x"))
    with pytest.raises(PatternSyntaxError, match="Conv has no attribute 'stride'"):
        pattern_of("Conv(_, _, stride=[1, 1])")


def conv2d() -> Any:  # noqa: ANN401
    """Make a pattern of a convolution."""
    return tvm_dpl.is_op("relax.nn.conv2d")(tvm_dpl.wildcard(), tvm_dpl.wildcard())


def conv2d_call() -> Any:  # noqa: ANN401
    """Build the convolution of CONV in Relax."""
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((4, 2, 3, 3), "float32"))
    return relax.op.nn.conv2d(x, w, padding=(1, 1), groups=2)


NEEDS_NOT = pytest.mark.skipif(not HAS_NOT, reason="dpl has no negation yet")


@NEEDS_NOT
@pytest.mark.parametrize(
    ("pattern", "body", "bound"),
    [
        ("Neg(~Relu(_))", "r=Relu(a) o=Neg(r)", None),
        ("Neg(~Relu(_))", "o=Neg(a)", ""),
        ("Neg(~~Relu(_))", "r=Relu(a) o=Neg(r)", ""),
        ("Neg(~~Relu(_))", "o=Neg(a)", None),
        ("Add(x, ~x)", "o=Add(a,b)", "x=a"),
        ("Add(x, ~x)", "o=Add(a,a)", None),
        ("Sub(x, ~Relu(x))", "r=Relu(a) o=Sub(a,r)", None),
        ("Sub(x, ~Relu(x))", "r=Relu(b) o=Sub(a,r)", "x=a"),
        ("Neg((~Relu(x) & y))", "r=Tanh(a) o=Neg(r)", "y=r"),
    ],
)
def test_r8_negation(pattern: str, body: str, bound: str | None) -> None:
    """R8: a ~ matches what its pattern does not, and binds nothing, in both."""
    check_both(pattern, body, tvm=bound, dpl=bound)


@NEEDS_NOT
def test_negation() -> None:
    """TVM decides a ~ where it stands, and once: before a name is bound, and without a search."""
    check_both("Sub(~x, x)", "o=Sub(a,b)", tvm=None, dpl="x=b")
    greedy = "Sub(z, ~Add(Mul(x, y), x))"
    check_both(greedy, "m=Mul(a,b) s=Add(m,a) o=Sub(k,s)", tvm=None, dpl=None)
    check_both(greedy, "m=Mul(b,a) s=Add(m,a) o=Sub(k,s)", tvm="z=k", dpl=None)


@NEEDS_NOT
@pytest.mark.parametrize("stride", strides(5))
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_every_small_negation(op: str, stride: int) -> None:
    """TVM is the committed reference and dpl the complete one for a ~ in either operand too."""
    seen: Counter[str] = Counter()
    for pattern in islice(small_patterns(op), 0, None, stride):
        first, second = pattern.root.parts
        for parts in ((first, Part("not", parts=(second,))), (Part("not", parts=(first,)), second)):
            root = Part("call", ops=(op,), parts=parts)
            seen.update(compare(DENSE, PartPattern(pattern.lines, root)))
    assert set(seen) == {"agreement", "negation"}


# -- what is made of the matches -------------------------------------------------------------------


def fused(pattern: str, graph: RandomGraph) -> Any:  # noqa: ANN401
    """Run FuseOpsByPattern with one pattern."""
    root, _ = relax_pattern(read_pattern(pattern).root)
    return relax.transform.FuseOpsByPattern([("t.r", root)])(RelaxGraph(graph).module)


def callees(module: Any) -> list[str]:  # noqa: ANN401
    """Name what main calls, in order, operators and functions alike."""
    (block,) = module["main"].body.blocks
    calls = [binding.value for binding in block.bindings if isinstance(binding.value, relax.Call)]
    return [getattr(call.op, "name", None) or call.op.name_hint for call in calls]


PAIR = "fused_relax_nn_relu_relax_nn_relu"
CHAIN = {3: "p=Relu(a) q=Relu(p) o=Relu(q)", 4: "p=Relu(a) q=Relu(p) r=Relu(q) o=Relu(r)"}


@pytest.mark.parametrize(
    ("length", "tvm", "dpl"),
    [(4, [PAIR, PAIR], ["r: r, o", "r: p, q"]), (3, [PAIR, "relax.nn.relu"], ["r: q, o"])],
)
def test_f2_overlap(length: int, tvm: list[str], dpl: list[str]) -> None:
    """F2: of overlapping matches TVM's pass takes the first, dpl the outermost."""
    graph = graph_of(CHAIN[length])
    assert callees(fused("Relu(Relu(x))", graph)) == tvm
    assert taken(selected("Relu(Relu(x))", graph.text())) == dpl


@pytest.mark.skipif(
    "order" not in {f.name for f in fields(PatternRule)}, reason="dpl has one order only yet"
)
@pytest.mark.parametrize(("length", "dpl"), [(4, ["r: p, q", "r: r, o"]), (3, ["r: p, q"])])
def test_f2_program_order(length: int, dpl: list[str]) -> None:
    """F2: in program order dpl takes what TVM's pass takes."""
    graph = graph_of(CHAIN[length])
    assert taken(selected(rule("Relu(Relu(x))", order="program"), graph.text())) == dpl


def test_f14_parameters() -> None:
    """F14: the inputs of the function written are in order of its nodes, in both."""
    graph = graph_of("x=Relu(a) y=Tanh(a) z=Sigmoid(a) s=Add(z,y) o=Mul(x,s)")
    module = fused("Mul(_, Add(_, _))", graph)
    (function,) = (f for name, f in module.functions.items() if name.name_hint != "main")
    model, _, _ = partitioned("Mul(_, Add(_, _))", graph.text())
    (call,) = (node for node in model.graph if node.domain == "t")
    read_by_dpl = [value.name for value in call.inputs if value is not None]
    assert [parameter.name for parameter in function.params] == read_by_dpl == ["z", "y", "x"]


def test_every_difference_is_shown() -> None:
    """Each difference of the table has an example here that is named after it."""
    tests = [name.replace("_", " ") for name in globals() if name.startswith("test_")]
    for difference in KNOWN_DIFFERENCES:
        assert any(difference.replace("-", " ") in name for name in tests), difference
