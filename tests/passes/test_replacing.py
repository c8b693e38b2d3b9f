"""What is rewritten on the table is as if it were on objects: bytes, report and record."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import numpy_helper

from dplcli import pipeline
from dplcli.dpl.replacement import nodewise
from dplcli.errors import DplError
from dplcli.onnx_io.read import TableRows
from dplcli.passes import replacing
from dplcli.pipeline import rewriting
from dplcli.pipeline.rules import RuleSource, load_rewrites
from dplcli.report.rewrite import rewrite_document
from tests.corpus.nets import each_model, listed_models, real_model
from tests.helpers import model_from_bytes, proto_from_text
from tests.passes.rewriting import rewrite_rule
from tests.passes.test_outlining import shown, stated
from tests.random_models import cascading_cases, flat_cases, sound_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl import RewriteRule
    from dplcli.dpl.replacement import GraphBuilder
    from dplcli.dpl.rule import Match
    from dplcli.ir import Value
    from dplcli.passes.replacing import EditableRows, RowRewriting

    Case = tuple[onnx.ModelProto, list[RewriteRule]]


class Run:
    """One rewrite of a model: the file, what is said of it, and whether it was on the table."""

    def __init__(self, data: bytes, rules: Sequence[RewriteRule], *, on_table: bool) -> None:
        """Rewrite *data*."""
        self.was_on_table = False
        replace = replacing.replace_rows

        def spy(rows: EditableRows, rules: Sequence[RewriteRule]) -> RowRewriting | None:
            found = replace(rows, rules) if on_table else None
            if found is not None:
                self.was_on_table = True
                assert isinstance(rows, TableRows)
                rows.table.check()
            return found

        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewriting, "replace_rows", spy)
            patch.setattr(rewriting, "MANY_NODES", 0)
            patch.setattr(rewriting, "QUICKLY_CHECKED", -1)
            patch.setattr("dplcli.ir.model.QUICKLY_CHECKED", -1)
            model, output = Path(name) / "m.onnx", Path(name) / "result.onnx"
            model.write_bytes(data)
            self.error = ""
            try:
                outcome = pipeline.rewrite(
                    model,
                    output=output,
                    rules=rules,
                    settings=pipeline.RewriteSettings(verify=False, max_growth=1e9),
                )
            except DplError as error:
                self.error = str(error)
                return
            self.data = output.read_bytes()
            where = str(Path(name).resolve())
            documents = [
                rewrite_document("x", outcome, catalogs=(), is_verified=False, verbose=verbose)
                for verbose in (False, True)
            ]
            self.texts = [repr(shown(document.text)).replace(where, "") for document in documents]
            self.record = repr(documents[0].record()).replace(where, "")
            self.count = len(outcome.applications)
            self.refused = [(item.rule.name, item.stage, item.reason) for item in outcome.refused]


def same(data: bytes, rules: Sequence[RewriteRule]) -> Run:
    """Rewrite a model both ways; return the run on the table, if that decided it."""
    found = Run(data, rules, on_table=True)
    expected = Run(data, rules, on_table=False)
    assert found.error == expected.error
    if not found.error:
        assert found.refused == expected.refused
        assert found.texts == expected.texts
        assert found.record == expected.record
        assert found.data == expected.data
    return found


# Real models and random ones.


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no round have too few applications."""
    monkeypatch.setattr(replacing, "_FEW", 0)


@pytest.mark.long
@pytest.mark.parametrize("name", each_model(listed_models()))
def test_real_models(name: str) -> None:
    """Real models, and rules of dpl's own that are texts; with all types stated, too."""
    proto = onnx.load(real_model(name), load_external_data=False)
    model = model_from_bytes(proto.SerializeToString())
    rules, _ = load_rewrites(RuleSource(["prepare", "fuse"], (), (), allow_code=False), model)
    texts = [rule for rule in rules if replacing.is_common(rule)]
    for data in filter(None, (proto.SerializeToString(), stated(proto))):
        part = len(data) % 3
        same(data, texts[part::3])


MOST = settings(max_examples=150, deadline=None, derandomize=True)


def same_case(case: Case) -> None:
    """Rewrite a model both ways: with all types stated, or as it is."""
    proto, rules = case
    data = stated(proto) if len(proto.graph.node) % 2 else proto.SerializeToString()
    if data is not None and rules:
        same(data, rules)


@settings(MOST, max_examples=30)
@given(flat_cases())
def test_flat(case: Case) -> None:
    """Random graphs, and rules that follow them."""
    same_case(case)


@pytest.mark.long
@MOST
@given(sound_cases())
def test_sound(case: Case) -> None:
    """Rules that keep the numbers: some take nodes away."""
    same_case(case)


@pytest.mark.long
@MOST
@given(cascading_cases())
def test_cascading(case: Case) -> None:
    """Rules that make work for each other."""
    same_case(case)


# Small nets.


NET = """
net (float[1, 8, 6, 6] x, float[1, 8, 6, 6] r) => (float[1, 8, 6, 6] y, float[1, 8, 6, 6] z)
<float[8, 8, 1, 1] w, float[1, 8, 1, 1] b, float[1, 8, 1, 1] d, float[1, 1, 1, 6] c> {
    [c1] c1 = Conv<pads = [0, 0, 0, 0]>(x, w)
    [a1] a1 = Add(c1, b)
    [r1] r1 = Relu(a1)
    [c2] c2 = Conv(r1, w)
    [a2] a2 = Add(c2, d)
    [r2] r2 = Relu(a2)
    n1 = Neg(r2)
    n2 = Neg(n1)
    [m] m = Mul(n2, c)
    [s] s = Add(m, r)
    [i] y = Relu(s)
    [z] z = Neg(y)
}
"""


def net(text: str = NET, *, is_stated: bool = True) -> bytes:
    """Return a net that stores what its text lists, with other data for each."""
    proto = proto_from_text(text)
    for number, info in enumerate(proto.graph.value_info):
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) + number
        proto.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del proto.graph.value_info[:]
    if is_stated:
        proto = onnx.shape_inference.infer_shapes(proto)
    data: bytes = proto.SerializeToString()
    return data


def rules_of(texts: Sequence[tuple[str, ...]], **more: Any) -> list[RewriteRule]:  # noqa: ANN401
    """Make a rule of each pattern, replacement and conditions."""
    return [rewrite_rule(*text, name=f"r{number}", **more) for number, text in enumerate(texts)]


LEAKY = "Relu(a)", "LeakyRelu(a, alpha=0.0)"
BIAS = (
    "conv = Conv(x, w, **attrs)\nAdd(conv, const(b))",
    "Conv(x, w, const(b.value[0, :, 0, 0]), **attrs)",
)
OWN = "Conv(a, w, **_)", "own.Conv(a, w)"

COMMON: dict[str, tuple[int, list[tuple[str, ...]]]] = {
    "a node for a node": (3, [LEAKY]),
    "a computed constant": (2, [BIAS]),
    "a condition on types": (2, [(*BIAS, "b.shape == (1, w.shape[0], 1, 1)")]),
    "a condition that does not hold": (0, [(*BIAS, "b.shape == (1, 1, 1, 1)")]),
    "a condition on names": (3, [("Add(a, b)", "Sub(a, b)", "a.name != b.name")]),
    "a condition on data": (1, [("Add(a, const(k))", "Sub(a, k)", "k.value[0, 0, 0, 0] == 2")]),
    "a number as a constant": (3, [("Relu(a)", "Max(a, const(0.0))")]),
    "several new nodes": (3, [("Relu(a)", "Neg(Min(Neg(a), const(0.0)))")]),
    "two outputs": (3, [("Relu(a)", "own.f(own.two(a)[1], own.one(a))")]),
    "what is there already": (1, [("Neg(Neg(a))", "a")]),
    "a captured attribute": (2, [("Conv(a, w, **attrs)", "own.Conv(a, w, **attrs)")]),
    "an attribute": (1, [("Mul(a, const(c))", "own.Scale(a, width=c.shape[3])")]),
    "an attribute of data": (1, [("Mul(a, const(c))", "own.Scale(a, by=c.value[0, 0, 0, 1])")]),
    "a leaf dropped": (3, [("Add(a, b)", "own.f(a)")]),
    "several rules": (5, [LEAKY, BIAS]),
    "several rounds": (4, [("own.Conv(a, w)", "own.Other(w, a)"), OWN]),
    "an alternative": (4, [("Relu(Add(a, b)) | Neg(Neg(a))", "own.f(a)")]),
    "another part of what took no part": (
        3,
        [
            (
                "Add(Conv(a, w, **_), const(k)) | Neg(Neg(a))",
                "own.f(a, const(k.value[0, :, 0, 0]) or a)",
            )
        ],
    ),
    "either order of operands": (1, [("Add(r, Mul(k, a))", "own.f(r, k, a)")]),
    "the same leaf twice": (0, [("Add(a, a)", "own.f(a)")]),
    "nothing to do": (0, [("Sigmoid(a)", "Relu(a)")]),
}


@pytest.mark.parametrize("case", COMMON.values(), ids=COMMON)
def test_common(case: tuple[int, list[tuple[str, ...]]]) -> None:
    """What is decided on the table."""
    count, texts = case
    found = same(net(), rules_of(texts))
    assert found.was_on_table
    assert found.count == count


UNCOMMON: dict[str, list[tuple[str, ...]]] = {
    "the type of something new": [
        ("Relu(a)", "own.f(own.g(a))"),
        ("own.f(b)", "own.h(b)", "b.rank == 4"),
    ],
    "what is returned becomes another": [("Neg(a)", "a")],
    "what a match makes is kept": [("n = Neg(a)\nNeg(n)", "own.f(n, a)")],
    "a search": [("repeat(Neg, a, min=2)", "own.f(a)")],
    "how often something is read": [("Relu(a)", "own.f(a)", "a.uses == 1")],
    "a rule that feeds itself": [("Neg(a)", "own.f(Neg(a))")],
    "rules that undo each other": [("Relu(a)", "Elu(a)"), ("Elu(a, **_)", "Relu(a)")],
    "an opset that has it not": [("Relu(a)", "Gelu(a)")],
    "a constant of what took no part": [
        ("Add(Conv(a, w, **_), const(k)) | Neg(Neg(a))", "own.f(a, const(k.value[0, :, 0, 0]))")
    ],
    "a constant that cannot be computed": [("Mul(a, const(c))", "Mul(a, const(c.value[7]))")],
}


@pytest.mark.parametrize("texts", UNCOMMON.values(), ids=UNCOMMON)
def test_uncommon(texts: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to objects, errors included."""
    monkeypatch.setattr("dplcli.passes.rewrite.FREE_NODES", 10)  # so few until rules are stopped
    assert not same(net(), rules_of(texts)).was_on_table


FOLDED = """
net (float[4] x) => (float[4] y, float[4] z) <float[4] p, float[4] q> {
    [a] a = Add(p, q)
    [y] y = Mul(x, a)
    [z] z = Mul(a, x)
}
"""
FOLD = "Add(const(p), const(q))", "const(p.value + q.value)"


def test_stored() -> None:
    """What a match makes becomes a constant, and the constants that it was made of go."""
    assert same(net(FOLDED), rules_of([FOLD])).was_on_table
    returned = FOLDED.replace("float[4] z)", "float[4] a)").replace("[z] z = Mul(a, x)", "")
    assert not same(net(returned), rules_of([FOLD])).was_on_table


TAKEN_NAMES = NET.replace("n1", "r1_Constant").replace("n2", "y_f").replace("[m]", '["c1/g"]')


@pytest.mark.parametrize(
    "texts",
    [
        [("Relu(a)", "Max(a, const(0.0))")],
        [("Relu(a)", "own.g(own.f(a))")],
        [("Relu(Add(a, b))", "own.g(own.g(a))"), ("Conv(a, b, **_)", "own.g(a, b)")],
    ],
)
def test_taken_names(texts: list[tuple[str, ...]]) -> None:
    """New names differ from all others: a number behind them, in the order of turns."""
    assert same(net(TAKEN_NAMES), rules_of(texts)).was_on_table


DROPPED = "Sub(Neg(a), b)", "own.f(a)"

IN_TURN = {
    "one makes way for the next": """
        net (float[4] x, float[4] z) => (float[4] m, float[4] q) {
            a = Neg(x)
            m = Sub(a, z)
            b = Neg(z)
            q = Sub(b, a)
        }""",
    "one lets the next die": """
        net (float[4] x, float[4] z) => (float[4] q) {
            a = Neg(x)
            m = Sub(a, z)
            b = Neg(z)
            q = Sub(b, m)
        }""",
    "one lets the next die, with a node between": """
        net (float[4] x, float[4] z) => (float[4] q) {
            a = Neg(x)
            m = Sub(a, z)
            r = Relu(m)
            b = Neg(z)
            q = Sub(b, r)
        }""",
    "one lets a refused one die": """
        net (float[4] x, float[4] z) => (float[4] q, float[4] a) {
            a = Neg(x)
            m = Sub(a, z)
            b = Neg(z)
            q = Sub(b, m)
        }""",
}


@pytest.mark.parametrize("text", IN_TURN.values(), ids=IN_TURN)
def test_in_turn(text: str) -> None:
    """What one replacement means for the next is not decided in a batch."""
    assert not same(net(text), rules_of([DROPPED])).was_on_table


def test_in_turn_without_effect() -> None:
    """A node goes that was in no match."""
    text = IN_TURN["one lets the next die"].replace("Sub(a, z)", "Mul(a, z)")
    found = same(net(text), rules_of([DROPPED]))
    assert found.was_on_table
    assert found.count == 1


COPIES = """
net (float[4] x) => (float[4] y, float[4] z) {
    a = Neg(x)
    b = Neg(a)
    c = Neg(b)
    d = Neg(c)
    y = Relu(d)
    z = Relu(x)
}
"""


def test_one_behind_the_other() -> None:
    """What is read in place of something is replaced in the same batch."""
    found = same(net(COPIES), rules_of([("Neg(Neg(a))", "a")]))
    assert found.was_on_table
    assert found.count == 2


@pytest.mark.parametrize(("few", "is_on_table"), [(0, True), (8, False)])
def test_a_long_way(few: int, *, is_on_table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One application a round: after some rounds that is left to objects."""
    monkeypatch.setattr(replacing, "_FEW", few)
    names = [f"v{number}" for number in range(8)]
    chain = "\n".join(f"{b} = Relu({a})" for a, b in zip(["x", *names], names, strict=False))
    text = f"net (float[4] x) => (float[4] y) {{ {chain}\n y = Neg(v7) }}"
    found = same(net(text), rules_of([("Neg(Relu(a))", "Relu(Neg(a))")]))
    assert found.was_on_table == is_on_table
    assert found.count == 8


def test_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each match is of a kind of its own, they are replaced one by one."""
    rules = rules_of([("Add(a, const(k))", "own.f(a, by=k.value[0, 0, 0, 0])")])
    assert same(net(), rules).was_on_table
    monkeypatch.setattr(replacing, "_MOST_KINDS", 1)
    assert not same(net(), rules).was_on_table


def test_functions() -> None:
    """A rule of Python code is no hindrance where its operator is not."""

    @nodewise("Sigmoid")
    def function(match: Match, build: GraphBuilder) -> Sequence[Value]:
        del build
        return match.outputs

    @nodewise("Relu")
    def other(match: Match, build: GraphBuilder) -> None:
        del match, build

    leaky = rewrite_rule(*LEAKY)
    assert same(net(), [leaky, rewrite_rule("_", function, name="f")]).was_on_table
    assert not same(net(), [rewrite_rule("_", other, name="f"), leaky]).was_on_table


def test_once() -> None:
    """A rule that asks which nodes it made itself."""
    assert not same(net(), rules_of([LEAKY], once=True)).was_on_table


def test_types_not_stated() -> None:
    """Without them, rules may ask for those of what is stored; others are left to objects."""
    data = net(is_stated=False)
    assert same(data, rules_of([LEAKY, (*BIAS, "b.shape == (1, 8, 1, 1)")])).was_on_table
    assert not same(data, rules_of([("Relu(a)", "own.f(a)", "a.rank == 4")])).was_on_table
    assert same(net(), rules_of([("Relu(a)", "own.f(a)", "a.rank == 4")])).was_on_table


@pytest.mark.parametrize(
    "asked",
    [{"only": ["r0"]}, {"skip": ["r0"]}, {"limit": 1}, {"verify_each": True}, {"lists": True}],
    ids=str,
)
def test_asks_for_each(asked: dict[str, Any]) -> None:
    """Where single applications matter, there are objects from the beginning."""
    assert pipeline.RewriteSettings(**asked).asks_for_each
    assert not pipeline.RewriteSettings().asks_for_each
