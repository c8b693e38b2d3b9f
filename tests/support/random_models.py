"""Random models with branches and functions, and random rules for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx
import onnx.shape_inference
from hypothesis import reject
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language.text import bound_names, check_roots
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.passes.rewriting import all_nodes, rewrite_rule
from tests.support.helpers import model_from_bytes, pattern_of, proto_from_text
from tests.support.strategies import (
    BINARY,
    SOURCES,
    UNARY,
    RandomGraph,
    Step,
    graphs,
    near_patterns,
    rich_graphs,
    rich_patterns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from dplcli.language import RewriteRule

HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
_IF = "If"
_CALL = "own.f"


@dataclass(frozen=True)
class Scope:
    """The nodes of one graph; what an ``If`` reads is nothing, its branches stand beside it.

    Attributes:
        steps: The nodes.
        results: What it returns.
        branches: By the name of an ``If``: its two branches.
    """

    steps: tuple[Step, ...]
    results: tuple[str, ...]
    branches: tuple[tuple[str, Scope, Scope], ...] = ()

    def body(self) -> str:
        """Write the nodes as ONNX text, each with a name."""
        return " ".join(map(self._text, self.steps))

    def _text(self, step: Step) -> str:
        if step.op != _IF:
            return f"[n_{step.name}] {step.name} = {step.op} ({', '.join(step.reads)})"
        _, then, otherwise = next(item for item in self.branches if item[0] == step.name)
        return (
            f"[n_{step.name}] {step.name} = If (c) <"
            f"then_branch = t_{step.name} () => (float[2] {then.results[0]}) {{ {then.body()} }}, "
            f"else_branch = e_{step.name} () => (float[2] {otherwise.results[0]}) "
            f"{{ {otherwise.body()} }}>"
        )

    def scopes(self) -> Iterator[Scope]:
        """Yield this scope and those inside it."""
        yield self
        for _, *branches in self.branches:
            for branch in branches:
                yield from branch.scopes()

    def graph(self) -> RandomGraph:
        """Return its own nodes as a graph of which patterns can be drawn."""
        steps = tuple(step for step in self.steps if step.op not in (_IF, _CALL))
        return RandomGraph(steps, self.results)


@dataclass(frozen=True)
class ScopedModel:
    """A model with branches, and perhaps a function that it calls."""

    main: Scope
    function: Scope | None = None

    def text(self) -> str:
        """Write it as ONNX text."""
        outputs = ", ".join(f"float[2] {name}" for name in self.main.results)
        text = (
            f"{HEADER}g (float[2] a, float[2] b, bool c) => ({outputs}) "
            f"<float[2] k = {{2, 3}}> {{ {self.main.body()} }}"
        )
        if self.function is None:
            return text
        return (
            f'{text} <domain: "own", opset_import: ["" : 17]> f (a, b) => '
            f"({self.function.results[0]}) "
            f"{{ [n_kf] kf = Constant <value = float[2] {{2, 3}}> () {self.function.body()} }}"
        )

    def graphs(self) -> list[RandomGraph]:
        """Return every graph that has nodes to draw patterns of."""
        outer = [self.main, *([] if self.function is None else [self.function])]
        found = [inner.graph() for scope in outer for inner in scope.scopes()]
        return [graph for graph in found if graph.steps]


@st.composite
def scoped_models(draw: st.DrawFn) -> ScopedModel:
    """Draw a model whose branches read values from round them."""
    function = draw(_scopes("f", ("a", "b", "kf"), 0, calls=False)) if draw(st.booleans()) else None
    if function is not None:
        function = replace(function, results=function.results[-1:])
    return ScopedModel(draw(_scopes("v", SOURCES, 2, calls=function is not None)), function)


@st.composite
def _scopes(
    draw: st.DrawFn, prefix: str, outer: Iterable[str], depth: int, *, calls: bool
) -> Scope:
    values = list(outer)
    unread: list[str] = []
    steps: list[Step] = []
    branches = []
    ops = [*UNARY, *BINARY, *BINARY, *([_IF, _IF] if depth else []), *([_CALL] if calls else [])]
    for number in range(draw(st.integers(2 if depth == 2 else 1, 7))):
        name = f"{prefix}{number}"
        op = draw(st.sampled_from(ops))
        if op == _IF:
            inner = [
                draw(_scopes(f"{name}{side}", values, depth - 1, calls=calls)) for side in "te"
            ]
            then, otherwise = (replace(scope, results=scope.results[-1:]) for scope in inner)
            branches.append((name, then, otherwise))
            steps.append(Step(name, op, ()))
        else:
            pool = [*unread, *unread, *values]
            count = 1 if op in UNARY else 2
            reads = tuple(draw(st.sampled_from(pool)) for _ in range(count))
            steps.append(Step(name, op, reads))
            unread = [item for item in unread if item not in reads]
        values.append(name)
        unread.append(name)
    results = dict.fromkeys([*unread[:-1][:2], steps[-1].name])
    return Scope(tuple(steps), tuple(results), tuple(branches))


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """Name the nodes of the main graph, say more of every node, and declare what is known."""
    for node in model.graph.node:
        node.name = node.name or f"n_{node.output[0]}"
    for node in all_nodes(model):
        node.doc_string = f"This is {node.name}."
        node.metadata_props.add(key="who", value=node.name)
    typed: onnx.ModelProto = onnx.shape_inference.infer_shapes(model)
    return typed


# -- rules that end, whatever they match -----------------------------------------------------------

CONDITIONS = (
    "{0}.uses == 1",
    "{0}.uses < 3",
    "{0}.uses > 1",
    "{0}.is_const",
    "not {0}.is_const",
    "{0}.rank == 1",
    "{0}.shape[0] == 2",
)


@st.composite
def ending_rules(
    draw: st.DrawFn, pattern: str, name: str, *, outputs: int = 1
) -> RewriteRule | None:
    """Draw what takes the place of *pattern*: foreign nodes, or values captured.

    Either way there are fewer standard nodes afterwards. None if the pattern makes no sense.
    """
    try:
        names = sorted(bound_names(pattern_of(pattern)))
    except PatternSyntaxError:
        return None
    parts = [draw(_parts(names, f"{name}_{number}")) for number in range(outputs)]
    count = draw(st.sampled_from((0, 0, 1, 2))) if names else 0
    where = [
        draw(st.sampled_from(CONDITIONS)).format(draw(st.sampled_from(names))) for _ in range(count)
    ]
    try:
        return rewrite_rule(pattern, ", ".join(parts), *where, name=name)
    except PatternSyntaxError:
        return None


@st.composite
def rule_texts(draw: st.DrawFn, graph: RandomGraph) -> str:
    """Draw the text of a pattern near part of *graph* that a rule may have: some graph matches."""
    text = draw(near_patterns(graph)).text()
    try:
        check_roots(pattern_of(text))
    except PatternSyntaxError:
        reject()
    return text


@st.composite
def _parts(draw: st.DrawFn, names: Sequence[str], op: str) -> str:
    if not names:
        return f"own.{op}(const(1.0))" if draw(st.booleans()) else f"own.{op}()"
    args = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    forms = (args[0], f"own.{op}({', '.join(args)})", f"own.{op}(own.g({args[0]}))")
    return draw(st.sampled_from(forms))


@st.composite
def random_rules(draw: st.DrawFn, found: Sequence[RandomGraph]) -> list[RewriteRule]:
    """Draw up to four rules that follow parts of some graphs."""
    rules = []
    for number in range(draw(st.integers(1, 4))):
        graph = draw(st.sampled_from(list(found)))
        rule = draw(ending_rules(draw(near_patterns(graph)).text(), f"r{number}"))
        if rule is not None:
            rules.append(rule)
    return rules


RICH = ("not", "edge", "optional", "shape", "unordered", "outputs", "repeat", "region", "unread")


@st.composite
def rich_cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RewriteRule]]:
    """Draw a graph with nodes of several outputs, and rules that use the whole language."""
    graph = draw(rich_graphs(max_nodes=9))
    rules = []
    for number in range(draw(st.integers(1, 3))):
        features = draw(st.lists(st.sampled_from(RICH), max_size=2, unique=True))
        pattern = draw(rich_patterns(graph, features))
        count = len(pattern.outputs)
        rule = draw(ending_rules(pattern.text(), f"r{number}", outputs=count))
        if rule is not None:
            rules.append(rule)
    return named(proto_from_text(HEADER + graph.text())), rules


@st.composite
def flat_cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RewriteRule]]:
    """Draw a graph and rules that follow it."""
    graph = draw(graphs(10))
    return named(proto_from_text(HEADER + graph.text())), draw(random_rules([graph]))


@st.composite
def scoped_cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RewriteRule]]:
    """Draw a model with branches and functions, and rules that follow it."""
    model = draw(scoped_models())
    found: list[RandomGraph] = model.graphs()
    rules = draw(random_rules(found)) if found else []
    return named(proto_from_text(model.text())), rules


# -- rules that keep the numbers -------------------------------------------------------------------

SOUND = (
    ("Identity(x)", "x"),
    ("Neg(Neg(x))", "x"),
    ("Relu(Relu(x))", "Relu(x)"),
    ("Add(x, x)", "Mul(x, 2.0)"),
    ("Sub(x, Neg(y))", "Add(x, y)"),
    ("Add(x, Neg(y))", "Sub(x, y)"),
    ("Neg(Sub(x, y))", "Sub(y, x)"),
    ("Mul(Neg(x), Neg(y))", "Mul(x, y)"),
    ("Sum(x, y, z)", "Add(Add(x, y), z)"),
    ("Relu(optional(Relu)(Sigmoid(x)))", "Sigmoid(x)"),
    ("Add(const(a), const(b))", "const(a.value + b.value)"),
    ("Neg(const(a))", "const(-a.value)"),
    ("Mul(const(a), x)", "Mul(x, const(a.value + 0.0))", "not x.is_const", "a.uses > 1"),
    ("Relu(x)", "Where(Greater(x, 0.0), x, Mul(x, 0.0))", "x.uses == 1", "x.rank == 1"),
    ("a = Neg(x)\na, Relu(a)", "b = Mul(x, -1.0)\nb, Max(b, 0.0)"),
    ("r = Relu(x)\nr, Sigmoid(x)", "Max(x, 0.0), Sigmoid(x)"),
    ("r = Neg(x)\nr, Neg(x)", "r, r"),
    ("Neg(x) ^ Add(y, z)", "Add(z, y)", "y.uses == 1", "y.is_const"),
)


@st.composite
def sound_rules(draw: st.DrawFn) -> list[RewriteRule]:
    """Draw some of the rules that keep the numbers, in any order."""
    chosen = draw(st.lists(st.sampled_from(SOUND), min_size=1, max_size=6, unique=True))
    return [
        rewrite_rule(pattern, becomes, *where, name=f"r{number}")
        for number, (pattern, becomes, *where) in enumerate(chosen)
    ]


@st.composite
def sound_cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RewriteRule]]:
    """Draw a model, with or without branches and functions, and rules that keep its numbers."""
    if draw(st.booleans()):
        return named(proto_from_text(draw(scoped_models()).text())), draw(sound_rules())
    return named(proto_from_text(HEADER + draw(graphs(12)).text())), draw(sound_rules())


# -- rules that make work for each other -----------------------------------------------------------


def long_graph(random: Random) -> onnx.ModelProto:
    """Draw a graph that is mostly one long tree."""
    values = list(SOURCES)
    unread: list[str] = []
    steps = []
    for number in range(random.randint(4, 20)):
        op = random.choice((*UNARY, *UNARY, *BINARY, "Split"))
        pool = unread[-2:] if unread and random.random() < _MOSTLY else values
        reads = [random.choice(pool)]
        if op in BINARY:
            reads.insert(random.randint(0, 1), random.choice(unread or values))
        made = [f"v{number}", f"w{number}"] if op == "Split" else [f"v{number}"]
        steps.append(f"{', '.join(made)} = {op} ({', '.join(reads)})")
        unread = [name for name in unread if name not in reads] + made
        values += made
    outputs = ", ".join(f"float[N] {name}" for name in unread[-2:])
    return named(
        proto_from_text(
            f"{HEADER}g (float[M] a, float[M] b) => ({outputs}) <float k = {{2}}> "
            f"{{ {' '.join(steps)} }}"
        )
    )


_MOSTLY = 0.8


class _Follower:
    """Writes patterns that fit a model as it is."""

    def __init__(self, random: Random, model: onnx.ModelProto) -> None:
        self.random = random
        self.nodes = list(model.graph.node)
        self.maker = {name: node for node in self.nodes for name in node.output}
        self.uses = Counter(name for node in self.nodes for name in node.input)
        self.uses.update(info.name for info in model.graph.output)
        self.names: dict[str, str] = {}

    def pattern(self) -> str:
        """Write a pattern for a tree, deeper ones more often than not."""
        root = self.random.choice([node for node in self.nodes if node.op_type != "Identity"])
        index = self.random.randrange(len(root.output))
        return self.output(root, index, self.random.randint(1, 4))

    def output(self, node: onnx.NodeProto, index: int, depth: int) -> str:
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        args = [self.value(name, depth - 1) if name else "None" for name in node.input]
        return f"{op}({', '.join(args)})" + (f"[{index}]" if len(node.output) > 1 else "")

    def value(self, name: str, depth: int) -> str:
        node = self.maker.get(name)
        while node is not None and node.op_type == "Identity":
            name = node.input[0]
            node = self.maker.get(name)
        if node is None or not depth or self.random.random() < 1 - _MOSTLY or name in self.names:
            word = "const(k)" if name == "k" and self.random.random() < _MOSTLY else f"x_{name}"
            return self.names.setdefault(name, word)
        return self.output(node, list(node.output).index(name), depth)

    def condition(self) -> list[str]:
        """Write something that holds of a leaf; nothing at all as often."""
        if not self.names or self.random.random() < 0.5:  # as often
            return []
        name = self.random.choice(sorted(self.names))
        word = "k" if self.names[name] == "const(k)" else self.names[name]
        return [f"{word}.uses == {self.uses[name]}"]


def cascading_rules(random: Random, model: onnx.ModelProto) -> list[RewriteRule]:
    """Draw rules, most of which match only what those after them have made.

    Each makes an operator of its own, or nothing, and matches no operator of a later rule: there
    is an end.
    """
    rules: list[RewriteRule] = []
    for number in range(random.randint(2, 6)):
        current = model_from_bytes(model.SerializeToString())
        rewrite(current, rules)
        follower = _Follower(random, to_proto(current))
        if all(node.op_type == "Identity" for node in follower.nodes):
            break
        pattern = follower.pattern()
        words = ["k" if word == "const(k)" else word for word in follower.names.values()]
        random.shuffle(words)
        becomes = f"own.r{number}({', '.join(words[:2])})"
        if words and random.random() < 1 - _MOSTLY:
            becomes = words[0]
        rule = rewrite_rule(pattern, becomes, *follower.condition(), name=f"r{number}")
        rules.insert(random.choice((0, 0, len(rules))), rule)
    return rules


@st.composite
def cascading_cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RewriteRule]]:
    """Draw a graph and rules that make work for each other, over several rounds."""
    random = draw(st.randoms(use_true_random=True))
    model = long_graph(random)
    return model, cascading_rules(random, model)
