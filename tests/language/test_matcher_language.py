"""The whole language against a declarative reference, and what must never change its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language import StepBudgetExceededError, parse_pattern
from dplcli.language.explain import Tracer
from tests.support.helpers import (
    SCHEMAS,
    Solution,
    find_solutions,
    model_from_text,
    pattern_of,
    rule,
)
from tests.support.strategies import (
    COMMUTATIVE,
    FEATURES,
    RichGraph,
    RichNode,
    RichPattern,
    region_cases,
    rich_graphs,
    rich_patterns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    from tests.support.strategies import Term

    Key = tuple[object, ...]


@dataclass(frozen=True)
class Env:
    """What an assignment has settled so far.

    Attributes:
        nodes: By pattern part, the node it is.
        values: By name, letter or part used twice, what it stands for.
        claimed: The nodes that parts of the pattern are, or that lie in a region.
        pending: Negations and comparisons, to be decided when everything is bound.
    """

    nodes: Mapping[Key, str]
    values: Mapping[object, object]
    claimed: frozenset[str] = frozenset()
    pending: tuple[tuple[Term, Key, str], ...] = ()

    def with_value(self, key: object, value: object) -> Env:
        """Return the same with one more value."""
        return replace(self, values={**self.values, key: value})


EMPTY = Env({}, {})


class Reference:
    """Every assignment of pattern parts to nodes and values; no order, no index, no shortcut."""

    def __init__(self, graph: RichGraph, pattern: RichPattern) -> None:
        """Match *pattern* in *graph*."""
        self.graph = graph
        self.pattern = pattern

    def solutions(self) -> set[Solution]:
        """Return every solution at every root."""
        found = set()
        for root in self.graph.nodes:
            for value in root.outputs:
                for env in self.all_outputs(value):
                    if root.name in env.claimed and self.holds(env):
                        bindings = tuple(sorted(self.bindings(env)))
                        found.add(Solution(root.name, tuple(sorted(env.claimed)), bindings))
        return found

    def all_outputs(self, value: str) -> Iterator[Env]:
        """Match the first output at *value* and each other one at any value that is made."""
        first, *others = self.pattern.outputs
        envs = list(self.solve(first, ("o", 0), value, EMPTY))
        made = [output for node in self.graph.nodes for output in node.outputs]
        for number, term in enumerate(others, start=1):
            envs = [
                more
                for env in envs
                for candidate in made
                for more in self.solve(term, ("o", number), candidate, env)
            ]
        yield from envs

    def bindings(self, env: Env) -> Iterator[tuple[str, str]]:
        """Yield what the names stand for."""
        yield from ((str(k), str(v)) for k, v in env.values.items() if isinstance(k, str))
        for number in range(len(self.pattern.lines)):
            if (key := ("line", number)) in env.nodes:
                yield f"n{number}", env.nodes[key]
            if key in env.values:
                yield f"n{number}", str(env.values[key])

    def holds(self, env: Env) -> bool:
        """Decide negations and comparisons: everything that is bound anywhere is bound now."""
        return all(self.decide(*item, env) for item in env.pending)

    def decide(self, term: Term, key: Key, value: str, env: Env) -> bool:
        """Decide one of them."""
        if term[0] == "same":
            other = env.values.get(cast("Term", term[2])[1])
            return other is not None and self.graph.width(value) == self.graph.width(str(other))
        alone = replace(env, claimed=frozenset(), pending=())
        inner, made = cast("Term", term[1]), [value]
        if term[0] == "unread":
            inner, made = cast("Term", term[2]), self.read_into(value, cast("int | None", term[3]))
        return not any(
            self.holds(e) for v in made for e in self.solve(inner, (*key, "~"), v, alone)
        )

    def read_into(self, value: str, slot: int | None) -> list[str]:
        """Return the outputs of the nodes that read *value*, or a copy of it."""
        copies = {self.graph.origin(value)}
        made: list[str] = []
        for node in self.graph.nodes:
            places = [place for place, read in enumerate(node.reads) if read in copies]
            if places and slot in (None, *places):
                made += node.outputs
            if places and node.op == "Identity":
                copies.add(node.name)
        return made

    def solve(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        """Yield *env* extended in every way that lets *term* match *value*."""
        kind = term[0]
        if kind == "call":
            yield from self.call(term, key, value, 0, env)
        elif kind == "out":
            line = cast("int", term[1])
            call = self.pattern.lines[line]
            yield from self.call(call, ("line", line), value, cast("int", term[2]), env)
        else:
            yield from getattr(self, f"_{kind}")(term, key, value, env)

    def _name(self, term: Term, _: Key, value: str, env: Env) -> Iterator[Env]:
        origin = self.graph.origin(value)
        if env.values.get(term[1], origin) == origin:
            yield env.with_value(term[1], origin)

    def _any(self, _term: Term, _key: Key, _value: str, env: Env) -> Iterator[Env]:
        yield env

    def _const(self, _term: Term, _key: Key, value: str, env: Env) -> Iterator[Env]:
        if self.graph.origin(value) == f"{self.graph.prefix}k":
            yield env

    def _line(self, term: Term, _: Key, value: str, env: Env) -> Iterator[Env]:
        number = cast("int", term[1])
        inner, key = self.pattern.lines[number], ("line", number)
        if inner[0] == "call":
            yield from self.call(inner, key, value, 0, env)
            return
        origin = self.graph.origin(value)
        if key not in env.values:
            for more in self.solve(inner, (*key, "inner"), value, env):
                yield more.with_value(key, origin)
        elif env.values[key] == origin:
            yield env

    def _or(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        for side in (1, 2):
            yield from self.solve(cast("Term", term[side]), (*key, side), value, env)

    def _and(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        for first in self.solve(cast("Term", term[1]), (*key, 1), value, env):
            yield from self.solve(cast("Term", term[2]), (*key, 2), value, first)

    def _not(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        yield replace(env, pending=(*env.pending, (term, key, value)))

    def _unread(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        yield from self._same(term, key, value, env)

    def _same(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        for more in self.solve(cast("Term", term[1]), (*key, 1), value, env):
            yield replace(more, pending=(*more.pending, (term, key, value)))

    def _shape(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        dim, width = term[2], self.graph.width(value)
        for more in self.solve(cast("Term", term[1]), (*key, 1), value, env):
            if isinstance(dim, int):
                if dim == width:
                    yield more
            elif more.values.get(("dim", dim), width) == width:
                yield more.with_value(("dim", dim), width)

    def _optional(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        base = cast("Term", term[2])
        yield from self.solve(base, (*key, "base"), value, env)
        for node in self.nodes_at(value, (str(term[1]),), 0):
            if node.name not in env.claimed and len(node.reads) == 1:
                more = self.taken(env, (*key, "round"), node)
                yield from self.solve(base, (*key, "base"), node.reads[0], more)

    def _edge(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        _, producer, consumer, only, index = term
        for more in self.solve(cast("Term", consumer), (*key, 1), value, env):
            node = self.graph.producer(self.graph.origin(value))
            for slot, read in enumerate(() if node is None else node.reads):
                if index not in {None, slot}:
                    continue
                if only and self.users(self.graph.origin(read)) != {cast("RichNode", node).name}:
                    continue
                yield from self.solve(cast("Term", producer), (*key, 0), read, more)

    def _repeat(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        yield from self.chain(term, key, value, env, 0)

    def chain(self, term: Term, key: Key, value: str, env: Env, count: int) -> Iterator[Env]:
        """Match the rest of a chain that has *count* nodes so far."""
        _, op, base, args, least, most = term
        if count >= cast("int", least):
            yield from self.solve(cast("Term", base), (*key, "base"), value, env)
        if count >= cast("int", most):
            return
        others = cast("tuple[Term, ...]", args)
        for node in self.nodes_at(value, (str(op),), 0):
            if node.name in env.claimed or len(node.reads) != len(others) + 1:
                continue
            step = self.taken(env, (*key, count), node)
            for first, *rest in self.orders(node, unordered=False):
                for more in self.each(others, (*key, "args"), rest, replace(step, pending=())):
                    if self.holds(more):
                        # what one node of the chain binds means nothing outside it
                        left = replace(step, claimed=more.claimed)
                        yield from self.chain(term, key, first, left, count + 1)

    def _steps(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        yield from self.steps(term, key, value, env, 0)

    def steps(self, term: Term, key: Key, value: str, env: Env, count: int) -> Iterator[Env]:
        """Match the rest of a chain that has *count* steps so far."""
        _, step, base, least, most = term
        if count >= cast("int", least):
            yield from self.solve(cast("Term", base), (*key, "base"), value, env)
        if count >= cast("int", most):
            return
        for more in self.solve(cast("Term", step), (*key, count), value, replace(env, pending=())):
            if self.holds(more):
                # what a step binds means nothing outside it
                left, above = replace(env, claimed=more.claimed), str(more.values["hole"])
                yield from self.steps(term, key, above, left, count + 1)

    def _region(self, term: Term, key: Key, value: str, env: Env) -> Iterator[Env]:
        _, parent, path, child = (cast("Term", part) for part in term)
        bottom = self.graph.producer(self.graph.origin(value))
        for more in self.solve(child, (*key, 2), value, env):
            for top in self.graph.nodes:
                region = None if bottom is None else self.between(top, bottom, path)
                if region is None or region & env.claimed or top.op == "Identity":
                    continue
                inside = replace(more, claimed=more.claimed | region)
                for output in top.outputs:
                    yield from self.solve(parent, (*key, 0), output, inside)

    def between(self, top: RichNode, bottom: RichNode, path: Term) -> frozenset[str] | None:
        """Return the nodes between the two, if they and *top* are dominated and fit *path*."""
        region: set[str] = set()
        pending, meets = [bottom], False
        while pending:
            node = pending.pop()
            made = [self.graph.producer(self.graph.origin(read)) for read in node.reads]
            above = [one for one in made if one is not None]
            if not above:
                return None
            meets = meets or top in above
            fresh = {one for one in above if one != top and one.name not in region}
            region |= {one.name for one in fresh}
            pending += fresh
        inner = [node for node in self.graph.nodes if node.name in region]
        if not meets or bottom.name in region:
            return None
        if any(self.users(o) - region - {bottom.name} for n in (top, *inner) for o in n.outputs):
            return None
        alone = Reference(self.graph, replace(self.pattern, outputs=(path,)))
        fits = all(any(any(alone.all_outputs(o)) for o in node.outputs) for node in inner)
        return frozenset(region) if fits else None

    def users(self, value: str) -> set[str]:
        """Return the nodes that read *value*, and "" if it is returned; Identity nodes aside."""
        copies = {value}
        for node in self.graph.nodes:
            if node.op == "Identity" and node.reads[0] in copies:
                copies.add(node.name)
        readers = {
            node.name
            for node in self.graph.nodes
            if node.op != "Identity" and copies & set(node.reads)
        }
        return readers | ({""} if copies & set(self.graph.outputs) else set())

    def call(self, term: Term, key: Key, value: str, index: int, env: Env) -> Iterator[Env]:
        """Match output *index* of a node pattern."""
        _, ops, args, rest, unordered, alpha = term
        patterns = cast("tuple[Term, ...]", args)
        for node in self.nodes_at(value, cast("tuple[str, ...]", ops), index):
            if key in env.nodes:
                if env.nodes[key] == node.name:
                    yield env
                continue
            if node.name in env.claimed or (alpha and node.alpha != alpha):
                continue
            count = len(patterns)
            if any(term[0] == "each" for term in patterns):
                yield from self.shared(patterns, key, node, self.taken(env, key, node))
                continue
            if len(node.reads) < count or (len(node.reads) > count and not rest):
                continue
            taken = self.taken(env, key, node)
            for reads in self.orders(node, unordered=bool(unordered)):
                yield from self.each(patterns, key, reads[:count], taken)

    def shared(self, terms: tuple[Term, ...], key: Key, node: RichNode, env: Env) -> Iterator[Env]:
        """Share the inputs out: one argument takes any number of them, each by itself."""
        at = next(n for n, term in enumerate(terms) if term[0] == "each")
        others = [*terms[:at], *terms[at + 1 :]]
        spare = len(node.reads) - len(others)
        for chosen in set(self.ways(node, at, spare)) if spare >= 0 else ():
            single = [node.reads[place] for place in chosen]
            run = [read for n, read in enumerate(node.reads) if n not in chosen]
            values = [*dict.fromkeys(map(self.graph.origin, run))]
            for more in self.each(others, key, single, env):
                yield from self.all_of(cast("Term", terms[at][1]), (*key, "each"), values, more)

    def ways(self, node: RichNode, at: int, spare: int) -> Iterator[tuple[int, ...]]:
        """Yield which inputs the other arguments get."""
        places = range(len(node.reads))
        if node.op in COMMUTATIVE:
            yield from permutations(places, len(places) - spare)
        else:
            yield (*places[:at], *places[at + spare :])

    def all_of(self, term: Term, key: Key, values: list[str], env: Env) -> Iterator[Env]:
        """Match each value by itself; what one binds means nothing to the others."""
        if not values:
            yield env
            return
        for more in self.solve(term, (*key, len(values)), values[0], replace(env, pending=())):
            if self.holds(more):
                left = replace(env, claimed=more.claimed)
                yield from self.all_of(term, key, values[1:], left)

    def nodes_at(self, value: str, ops: tuple[str, ...], index: int) -> list[RichNode]:
        """Return the nodes of the operators that *value* is output *index* of."""
        found = []
        for start in dict.fromkeys((value, self.graph.origin(value))):
            node = self.graph.producer(start)
            if node is None or node.outputs.index(start) != index:
                continue
            is_class = node.op != "Identity" and "op()" in ops
            is_unary = node.op in {"Relu", "Neg", "LeakyRelu"}
            if node.op in ops or is_class or (is_unary and 'op(kind="elementwise")' in ops):
                found.append(node)
        return found

    def orders(self, node: RichNode, *, unordered: bool) -> Iterable[tuple[str, ...]]:
        """Return the orders in which the inputs may be taken."""
        return (
            set(permutations(node.reads)) if unordered or node.op in COMMUTATIVE else [node.reads]
        )

    def taken(self, env: Env, key: Key, node: RichNode) -> Env:
        """Return *env* with a node for one part."""
        nodes = {**env.nodes, key: node.name}
        return replace(env, nodes=nodes, claimed=env.claimed | {node.name})

    def each(
        self, terms: Iterable[Term], key: Key, values: Iterable[str], env: Env
    ) -> Iterator[Env]:
        """Match each term at the value of the same place."""
        envs = [env]
        for number, (term, value) in enumerate(zip(terms, values, strict=True)):
            envs = [more for one in envs for more in self.solve(term, (*key, number), value, one)]
        yield from envs


def found_in(text: str, pattern: str) -> set[Solution]:
    """Return what the matcher finds; give the example up where it gives up."""
    try:
        return set(find_solutions(pattern, model_from_text(text)))
    except StepBudgetExceededError:
        assume(condition=False)
        raise


def readable(pattern: RichPattern) -> str:
    """Return the text of *pattern*; another is drawn if it is one that makes no sense."""
    text = pattern.text()
    try:
        pattern_of(text)
    except PatternSyntaxError as error:
        assume("matched nowhere" not in error.message and "matched anew" not in error.message)
        raise
    return text


@st.composite
def cases(draw: st.DrawFn, features: tuple[str, ...] = FEATURES) -> tuple[RichGraph, RichPattern]:
    """Draw a graph and a pattern that follows it."""
    graph = draw(rich_graphs(identity=draw(st.booleans())))
    pattern = draw(rich_patterns(graph, features))
    readable(pattern)
    return graph, pattern


ONE_OUTPUT = tuple(feature for feature in FEATURES if feature != "outputs")
MIXED = cases() | cases(ONE_OUTPUT)


def check_reference(case: tuple[RichGraph, RichPattern]) -> None:
    """Compare the matcher with the reference."""
    graph, pattern = case
    assert found_in(graph.text(), pattern.text()) == Reference(graph, pattern).solutions()


@pytest.mark.parametrize(
    "features",
    [
        ("plain",),
        *(pytest.param((feature,), marks=pytest.mark.long) for feature in FEATURES),
        *(("not", "repeat"), ("repeat", "shape")),
    ],
    ids="-".join,
)
def test_agrees_with_the_reference(features: tuple[str, ...]) -> None:
    """With one feature beside calls and alternatives, the solutions are those of the reference."""
    given(cases(features))(check_reference)()


@pytest.mark.long
@given(MIXED)
def test_agrees_with_the_reference_on_everything(case: tuple[RichGraph, RichPattern]) -> None:
    """With all features mixed, too."""
    check_reference(case)


@pytest.mark.long
@given(region_cases())
def test_agrees_with_the_reference_on_regions(case: tuple[RichGraph, RichPattern]) -> None:
    """Regions with side inputs, copies and uses outside are dominated or not."""
    check_reference(case)


# -- what changes nothing --------------------------------------------------------------------


@pytest.mark.long
@given(MIXED, st.randoms(use_true_random=False))
def test_commuting_operands_changes_nothing(
    case: tuple[RichGraph, RichPattern], random: Random
) -> None:
    """The operands of commutative operators may stand in any order, if no slot is named."""
    graph, pattern = case
    assume("used_by" not in pattern.text())
    nodes = [
        replace(n, reads=tuple(random.sample(n.reads, len(n.reads)))) if n.op in COMMUTATIVE else n
        for n in graph.nodes
    ]
    other = replace(graph, nodes=tuple(nodes))
    assert found_in(other.text(), pattern.text()) == found_in(graph.text(), pattern.text())


@pytest.mark.long
@given(MIXED)
def test_renaming_values_changes_nothing(case: tuple[RichGraph, RichPattern]) -> None:
    """What values are called makes no difference."""
    graph, pattern = case
    expected = {
        Solution(
            f"r_{s.root}",
            tuple(f"r_{node}" for node in s.nodes),
            tuple((name, f"r_{value}") for name, value in s.bindings),
        )
        for s in found_in(graph.text(), pattern.text())
    }
    assert found_in(graph.renamed("r_").text(), pattern.text()) == expected


@pytest.mark.long
@given(MIXED, st.data())
def test_reordering_independent_nodes_changes_nothing(
    case: tuple[RichGraph, RichPattern], data: st.DataObject
) -> None:
    """Any topological order of the nodes gives the same solutions."""
    graph, pattern = case
    pending, order, made = list(graph.nodes), [], {"a", "b", "k"}
    while pending:
        node = data.draw(st.sampled_from([n for n in pending if made.issuperset(n.reads)]))
        pending.remove(node)
        order.append(node)
        made.update(node.outputs)
    other = replace(graph, nodes=tuple(order))
    assert found_in(other.text(), pattern.text()) == found_in(graph.text(), pattern.text())


@pytest.mark.long
@given(cases(ONE_OUTPUT))
def test_unrelated_nodes_change_nothing(case: tuple[RichGraph, RichPattern]) -> None:
    """Nodes that share no value with the graph make no difference to its solutions."""
    graph, pattern = case
    roots = {node.name for node in graph.nodes}
    beside = found_in(graph.text(also=graph.renamed("u_")), pattern.text())
    found = {solution for solution in beside if solution.root in roots}
    assert found == found_in(graph.text(), pattern.text())


@given(st.data())
def test_a_subgraph_matches_itself(data: st.DataObject) -> None:
    """A pattern read off any part of a graph matches there, with exactly those nodes."""
    graph = data.draw(rich_graphs())
    real = [node for node in graph.nodes if node.op != "Identity"]
    assume(real)
    chosen = {n.name for n in data.draw(st.lists(st.sampled_from(real), min_size=1, unique=True))}
    nodes = [node for node in graph.nodes if node.name in chosen]
    names = {o: f"n_{o}" for node in nodes for o in node.outputs}
    lines = []
    for node in nodes:
        reads = [graph.origin(read) for read in node.reads]
        args = ", ".join(names.get(read, f"x_{read}") for read in reads)
        alpha = f", alpha={node.alpha or 0.01}" if node.op == "LeakyRelu" else ""
        left = ", ".join(names[output] for output in node.outputs)
        lines.append(f"{left} = {node.op}({args}{alpha})")
    inner = {graph.origin(read) for node in nodes for read in node.reads}
    roots = [node.name for node in nodes if not inner & set(node.outputs)]
    text = "\n".join([*lines, ", ".join(names[root] for root in roots)])
    found = found_in(graph.text(), text)
    assert any(s.root == roots[0] and set(s.nodes) == chosen for s in found)


@pytest.mark.long
@given(MIXED)
def test_what_is_printed_reads_back(case: tuple[RichGraph, RichPattern]) -> None:
    """The text of a pattern reads as an equal one, which prints and matches the same."""
    graph, pattern = case
    read = pattern_of(pattern.text())
    again = parse_pattern(repr(read), SCHEMAS)
    assert again == read
    assert repr(again) == repr(read)
    model = model_from_text(graph.text())
    try:
        assert set(find_solutions(again, model)) == set(find_solutions(read, model))
    except StepBudgetExceededError:
        assume(condition=False)


@pytest.mark.long
@given(MIXED)
def test_the_traced_search_agrees(case: tuple[RichGraph, RichPattern]) -> None:
    """A trace fits exactly where the matcher finds something; else it says what is wrong.

    What no rule takes, since it can never match, matches nowhere.
    """
    graph, pattern = case
    try:
        one = rule(pattern.text())
    except PatternSyntaxError:
        assert not find_solutions(pattern.text(), model_from_text(graph.text()))
        return
    tracer = Tracer(one)
    for root in model_from_text(graph.text()).graph:
        try:
            fits = any(root in state.claimed for state in one.matcher.solutions(root))
        except StepBudgetExceededError:
            assume(condition=False)
        trace = tracer.trace(root)
        assert trace.fits == fits
        assert (trace.mismatch is None) == fits
        if trace.mismatch is not None:
            assert trace.mismatch.expected
            assert trace.mismatch.found


@pytest.mark.parametrize(
    "pattern", ["optional(Relu)(x)", "x | Relu(x)", "Relu(x)", "x & Relu(y)", "~Neg(x) & Relu(y)"]
)
def test_the_traced_search_agrees_about_bare_values(pattern: str) -> None:
    """The same where the preferred way to match takes no node, and at Identity nodes."""
    text = "g (float[2] a) => (p) { o = Relu (a) p = Identity (o) q = Neg (a) }"
    one = rule(pattern)
    for root in model_from_text(text).graph:
        fits = any(root in state.claimed for state in one.matcher.solutions(root))
        trace = Tracer(one).trace(root)
        assert trace.fits == fits
        assert (trace.mismatch is None) == fits
        if trace.mismatch is not None:
            assert trace.mismatch.expected
            assert trace.mismatch.found


def test_preference_is_the_order_of_writing() -> None:
    """Of several solutions the first takes the left alternative, operands as written, the base."""
    text = "g (float[2] a) => (o) { r = Relu (a) n = Neg (r) o = Add (n, r) }"
    for pattern, expected in {
        "Add(x, y)": "x=n y=r",
        "Add(Relu(x) | y, z)": "y=n z=r",
        "Add(Neg(x) | y, z)": "x=r z=r",
        "Add(y | Relu(x), z)": "y=n z=r",
        "Add(Neg(optional(Relu)(y)), z)": "y=r z=r",
        "Add(Neg(repeat(Relu, y)), z)": "y=a z=r",
        "Add(unordered(y, z))": "y=n z=r",
        "z ^ Add(_, _)": "z=n",
    }.items():
        found = find_solutions(pattern, model_from_text(text))
        assert str(next(s for s in found if s.root == "o")) == expected, pattern


# -- small cases of what the language says ---------------------------------------------------

AB = "g (float[2] a, float[2] b) => (o)"
FOO = """<ir_version: 8, opset_import: ["" : 17, "com.x" : 1]>
    g (float[2] a, float[2] b, float[3] c) => (o) """
BODY = """g (bool c, float[2] a) => (o) { s = Sigmoid (a) o = If (c) <
    then_branch = t () => (y) { r = Relu (a) y = Add (a, r) },
    else_branch = e () => (z) { z = Tanh (s) }> }"""

SMALL = {
    "a region whose side input is a copy of a leaf": (
        "dominates(Relu(x), Add(_, _), Neg(_))",
        f"{AB} {{ r = Relu (a) i = Identity (b) m = Add (r, i) o = Neg (m) }}",
        {"o: x=a"},
    ),
    "a region whose child has a copy of a leaf": (
        "dominates(Relu(x), Neg(_), Add(_, _))",
        f"{AB} {{ r = Relu (a) i = Identity (b) n = Neg (r) o = Add (n, i) }}",
        {"o: x=a"},
    ),
    "a letter in a repeated part is bound afresh": (
        "repeat(Add, Neg(x), const().has_shape(n), min=2)",
        """g (float[2] a) => (o) <float[1] k = {1}, float[2] l = {1, 2}> {
            m = Neg (a) r = Add (m, k) o = Add (r, l) }""",
        {"o: x=a"},
    ),
    "a letter in a repeated part is one dimension in each": (
        "repeat(com.x.F, Neg(x), _.has_shape(n), _.has_shape(n), min=2)",
        f"{FOO} {{ n = Neg (a) r = com.x.F (n, a, b) o = com.x.F (r, c, b) }}",
        set(),
    ),
    "a negation in a repeated part is decided in each node": (
        "repeat(com.x.F, Neg(x), b, ~b, min=2)",
        f"{FOO} {{ n = Neg (a) r = com.x.F (n, b, c) o = com.x.F (r, c, b) }}",
        {"o: x=a"},
    ),
    "and in the first as well as in the last": (
        "repeat(com.x.F, Neg(x), b, ~b, min=2)",
        f"{FOO} {{ n = Neg (a) r = com.x.F (n, b, b) o = com.x.F (r, c, b) }}",
        set(),
    ),
    "a comparison in a repeated part is made in each node": (
        "repeat(com.x.F, Neg(x), same_shape(b, c), c, min=2)",
        f"{FOO} {{ n = Neg (a) r = com.x.F (n, b, a) o = com.x.F (r, c, c) }}",
        {"o: x=a"},
    ),
    "a comparison that fails in one node of a chain": (
        "repeat(com.x.F, Neg(x), same_shape(b, c), c, min=2)",
        f"{FOO} {{ n = Neg (a) r = com.x.F (n, c, a) o = com.x.F (r, c, c) }}",
        set(),
    ),
    "a name in a repeated part is gone after it": (
        "Sub(repeat(Add, Neg(x), k, min=1), y)",
        f"{AB} {{ n = Neg (a) r = Add (n, b) s = Add (r, a) o = Sub (s, b) }}",
        {"o: x=a y=b"},
    ),
    "also if the chain ends as soon as it can or is in another": (
        "repeat(Mul, Neg(x), repeat(Add, Abs(_), h, max=1), min=1, max=1)",
        f"{AB} {{ n = Neg (a) t = Abs (a) r = Add (t, b) o = Mul (n, r) }}",
        {"o: x=a"},
    ),
    "a step of two nodes": (
        "Neg(repeat(Relu(Mul(_, w)), x, min=2))",
        f"{AB} {{ m = Mul (a, b) r = Relu (m) n = Mul (a, r) s = Relu (n) o = Neg (s) }}",
        {"o: x=a", "o: x=b"},
    ),
    "a step that is half there is none": (
        "repeat(Relu(Mul(_, w)), x, min=2)",
        f"{AB} {{ m = Mul (a, b) n = Mul (m, b) o = Relu (n) }}",
        set(),
    ),
    "a chain of steps may be of none, and is as short as max says": (
        "Neg(repeat(Relu(Abs(_)), x, max=1))",
        f"{AB} {{ m = Abs (a) r = Relu (m) n = Abs (r) s = Relu (n) o = Neg (s) }}",
        {"o: x=s", "o: x=r"},
    ),
    "a step that goes round itself": (
        "repeat(Add(Relu(Mul(h, w)), h), h=Neg(x), min=2)",
        f"""{AB} {{ n = Neg (a) m = Mul (b, n) r = Relu (m) s = Add (n, r)
            p = Mul (s, a) q = Relu (p) o = Add (q, s) }}""",
        {"o: x=a"},
    ),
    "and one that goes round another": (
        "repeat(Add(Relu(Mul(h, w)), h), h=Neg(x), min=2)",
        f"""{AB} {{ n = Neg (a) m = Mul (b, n) r = Relu (m) s = Add (n, r)
            p = Mul (s, a) q = Relu (p) o = Add (q, n) }}""",
        set(),
    ),
    "a line may stand in a step, and is one node in each": (
        "m = Mul(h, w)\nrepeat(Sub(m, Tanh(m)), h=Neg(x), min=2)",
        f"""{AB} {{ n = Neg (a) m = Mul (n, b) t = Tanh (m) s = Sub (m, t)
            p = Mul (a, s) q = Tanh (p) o = Sub (p, q) }}""",
        {"o: x=a"},
    ),
    "copies stand between steps, and before what is read again": (
        "repeat(Add(Relu(h), h), h=Neg(x), min=2)",
        f"""{AB} {{ n = Neg (a) r = Relu (n) s = Add (n, r) i = Identity (s) j = Identity (i)
            q = Relu (j) o = Add (q, s) }}""",
        {"o: x=a"},
    ),
    "a step with alternatives, of which one does not go on": (
        "repeat(Relu(Abs(_) | w), x, min=1)",
        f"{AB} {{ m = Abs (a) r = Relu (m) o = Relu (b) }}",
        {"r: x=a"},
    ),
    "a step with any number of inputs": (
        "repeat(Concat, Neg(x), *more, min=2)",
        f"{AB} {{ n = Neg (a) c = Concat <axis = 0> (n) o = Concat <axis = 0> (c, a, b) }}",
        {"o: x=a"},
    ),
    "chains in the steps of a chain": (
        "repeat(Neg(repeat(Relu(Abs(_)), Tanh(h), min=1)), h=x, min=2)",
        f"""{AB} {{ t = Tanh (a) m = Abs (t) r = Relu (m) n = Neg (r) u = Tanh (n) v = Abs (u)
            w = Relu (v) y = Abs (w) z = Relu (y) o = Neg (z) }}""",
        {"o: x=a"},
    ),
    "an omitted input stays in its place where operands commute": (
        "(Clip | Min)(x, None, y)",
        """g (float[2] a, float b) => (o, p, q, r, s) { o = Min (a, b) p = Clip (a, b)
            q = Clip (a, , b) r = Min (a, b, a) s = Min (a) }""",
        {"q: x=a y=b"},
    ),
    "at the end it may be left out": (
        "(Clip | Min)(x, y, None)",
        "g (float[2] a, float b) => (o, p, q) { o = Min (a, b) p = Clip (a, b) q = Min (b, a, a) }",
        {"o: x=a y=b", "o: x=b y=a", "p: x=a y=b"},
    ),
    "an omitted input of two": (
        "(Clip | Sum)(None, x)",
        "g (float[2] a) => (o, p) { o = Sum (a) p = Clip (a) }",
        set(),
    ),
    "an input that may be omitted": (
        "(Clip | Max)(x, y | None, z)",
        "g (float[2] a, float b) => (o, p) { o = Max (a, b) p = Clip (a, , b) }",
        {"p: x=a z=b"},
    ),
    "unordered inputs and one omitted": (
        "Concat(unordered(x, None, Neg(y)))",
        """g (float[2] a) => (o, p) { n = Neg (a) o = Concat <axis = 0> (n, a)
            p = Concat <axis = 0> (n, , a) }""",
        {"p: x=a y=a"},
    ),
    "a chain used twice is one chain": (
        "r = repeat(Relu, x, min=1)\nAdd(r, r)",
        f"{AB} {{ r = Relu (a) o = Add (r, r) }}",
        {"o: r=r x=a"},
    ),
    "a region used twice is one region": (
        "d = dominates(Relu(x), Neg(_), Add(_, _))\nMul(d, d)",
        f"{AB} {{ r = Relu (a) n = Neg (r) m = Add (r, n) o = Mul (m, m) }}",
        {"o: d=m x=a"},
    ),
    "an alternative used twice is decided once": (
        "r = Relu(x) | y\nAdd(r, r)",
        f"{AB} {{ r = Relu (a) o = Add (r, r) }}",
        {"o: r=r x=a", "o: r=r y=r"},
    ),
    "what a node copies and the copy itself": (
        "Sub(x, y) & Identity(z)",
        f"{AB} {{ s = Sub (a, b) o = Identity (s) }}",
        {"o: x=a y=b z=s"},
    ),
    "either of two callees is found behind a copy": (
        "Neg((Identity | Relu)(Sub(x, y)))",
        f"{AB} {{ s = Sub (a, b) r = Relu (s) i = Identity (r) o = Neg (i) }}",
        {"o: x=a y=b"},
    ),
    "a captured value is a leaf: no edge leads to it": (
        "Tanh(x ^ y)",
        BODY,
        set(),
    ),
    "a captured value is a leaf: it has no region above it": (
        "dominates(Sigmoid(x), _, Tanh(_))",
        BODY,
        set(),
    ),
    "a negation in a body is decided in the body": (
        "if_(c, Add(x, ~Relu(x)), _)",
        BODY,
        {"o: c=c x=r"},
    ),
    "a negation of two uses of a name in a body": (
        "if_(c, Add(x, Relu(x) & ~Relu(x)), _)",
        BODY,
        set(),
    ),
    "an edge in a body": (
        "if_(c, Relu(x) ^ Add(_, _), _)",
        BODY,
        {"o: c=c x=a"},
    ),
    "only used by, but captured": (
        "Relu(x) >> If(_)",
        """g (bool c, float[2] a) => (o, p) { s = Relu (a) p = Neg (s) o = If (c) <
            then_branch = t () => (y) { y = Neg (s) },
            else_branch = e () => (z) { z = Neg (a) }> }""",
        set(),
    ),
    "only used by a node, but captured by a body": (
        "Relu(x) >> Neg(_)",
        """g (bool c, float[2] a) => (p, o) { s = Relu (a) p = Neg (s) o = If (c) <
            then_branch = t () => (y) { y = Tanh (s) },
            else_branch = e () => (z) { z = Tanh (a) }> }""",
        set(),
    ),
    "dominated, but captured by a body": (
        "dominates(Relu(x), Tanh(_), Neg(_))",
        """g (bool c, float[2] a) => (p, o) { s = Relu (a) p = Neg (s) o = If (c) <
            then_branch = t () => (y) { y = Tanh (s) },
            else_branch = e () => (z) { z = Tanh (a) }> }""",
        set(),
    ),
    "all outputs of a parent must be dominated": (
        "dominates(Split(x), _, Neg(_))",
        "g (float[2] a) => (o, t) { s, t = Split (a) o = Neg (s) }",
        set(),
    ),
    "a parent whose outputs meet again": (
        "dominates(Split(x), Relu(_), Sub(_, _))",
        "g (float[2] a) => (o) { s, t = Split (a) r = Relu (t) o = Sub (s, r) }",
        {"o: x=a"},
    ),
    "the parent of a single branch": (
        "dominates(Relu(x), Tanh(_), Add(_, _))",
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Add (r, t) }}",
        {"o: x=a"},
    ),
    "a computed side input breaks the region": (
        "dominates(Relu(x), Add(_, _), Neg(_))",
        f"{AB} {{ r = Relu (a) t = Tanh (b) m = Add (r, t) o = Neg (m) }}",
        set(),
    ),
    "inside a negation other parts' nodes may stand again": (
        "Add(Relu(x), ~Relu(x))",
        f"{AB} {{ r = Relu (a) o = Add (r, r) }}",
        set(),
    ),
    "outside it they may not": (
        "Add(Relu(x), Relu(x))",
        f"{AB} {{ r = Relu (a) o = Add (r, r) }}",
        set(),
    ),
    "a negation knows names bound after it": (
        "Sub(~Relu(x), Neg(x))",
        f"{AB} {{ r = Relu (a) n = Neg (b) o = Sub (r, n) }}",
        {"o: x=b"},
    ),
    "a negation inside a negation": (
        "Sub(x, ~Add(y, ~x))",
        f"{AB} {{ s = Add (a, b) o = Sub (a, s) }}",
        set(),
    ),
    "a negation inside a negation, the other way": (
        "Sub(x, ~Add(x, ~x))",
        f"{AB} {{ s = Add (a, a) o = Sub (a, s) }}",
        {"o: x=a"},
    ),
    "optional base first, but the rest may need more": (
        "Sub(optional(Relu)(x), x)",
        f"{AB} {{ r = Relu (a) o = Sub (r, a) }}",
        {"o: x=a"},
    ),
    "two outputs that share nothing": (
        "Relu(x), Neg(y)",
        "g (float[2] a, float[2] b) => (o, p) { o = Relu (a) p = Neg (b) }",
        {"o: x=a y=b"},
    ),
    "two outputs are two nodes": (
        "Relu(x), Relu(y)",
        "g (float[2] a, float[2] b) => (o, p) { o = Relu (a) p = Relu (b) }",
        {"o: x=a y=b", "p: x=b y=a"},
    ),
    "an output below what another may be": (
        "r = Relu(x)\nNeg(r | Tanh(x)), Sub(r, y)",
        "g (float[2] a) => (o, p) { r = Relu (a) o = Neg (r) p = Sub (r, a) }",
        {"o: r=r x=a y=a"},
    ),
    "an output whose shared part took no part before": (
        "r = Relu(x)\nNeg(Tanh(z) | r), Sub(r, y)",
        "g (float[2] a) => (o, p) { t = Tanh (a) r = Relu (a) o = Neg (t) p = Sub (r, a) }",
        {"o: r=r x=a y=a z=a"},
    ),
    "outputs at different distances from what they share": (
        "r = Relu(x)\nNeg(r), Tanh(Neg(Abs(r)))",
        """g (float[2] a) => (o, p) {
            r = Relu (a) o = Neg (r) s = Abs (r) i = Identity (s) t = Neg (i) p = Tanh (t) }""",
        {"o: r=r x=a"},
    ),
    "an output through an optional part": (
        "r = Relu(x)\nNeg(r), Tanh(optional(Abs)(r))",
        "g (float[2] a) => (o, p) { r = Relu (a) o = Neg (r) s = Abs (r) p = Tanh (s) }",
        {"o: r=r x=a"},
    ),
    "an output through a chain": (
        "r = Relu(x)\nNeg(r), repeat(Tanh, r, min=2)",
        "g (float[2] a) => (o, p) { r = Relu (a) o = Neg (r) s = Tanh (r) p = Tanh (s) }",
        {"o: r=r x=a"},
    ),
    "bound attributes are the same wherever the name stands": (
        "Add(LeakyRelu(x, **k), LeakyRelu(y, **k))",
        f"""{AB} {{ r = LeakyRelu <alpha = 0.5> (a) s = LeakyRelu <alpha = 0.25> (b)
            o = Add (r, s) }}""",
        set(),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_case(name: str) -> None:
    """One sentence of the language, on one small graph: all solutions by root and bindings."""
    pattern, text, expected = SMALL[name]
    found = find_solutions(pattern, model_from_text(text))
    assert {f"{s.root}: {s}" for s in found} == expected


@pytest.mark.parametrize(
    "pattern",
    [
        'Tanh(op(kind="elementwise")(Sub(x, y)))',
        'op(kind="elementwise")(op(kind="elementwise")(Sub(x, y)))',
        'repeat(op(kind="elementwise"), Sub(x, y), min=2, max=2)',
        "Tanh(op()(Sub(x, y)))",
        "Tanh((Relu | Identity)(Sub(x, y)))",
    ],
)
def test_a_class_of_operators_is_found_behind_a_copy(pattern: str) -> None:
    """Identity nodes are looked through, also where Identity itself would be of the class."""
    text = f"{AB} {{ s = Sub (a, b) r = Relu (s) i = Identity (r) o = Tanh (i) }}"
    found = find_solutions(pattern, model_from_text(text))
    assert "o: x=a y=b" in {f"{s.root}: {s}" for s in found}
