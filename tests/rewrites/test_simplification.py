"""The functions that dpl ships for ``prepare``: what they do, and what they leave."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import helper, numpy_helper

from dplcli.catalog import read_catalogs
from dplcli.onnx_io import model_from_proto
from dplcli.passes.rewrite import RestrictingObserver, Restriction, rewrite
from dplcli.rewrites import simplification as module
from dplcli.rewrites.simplification import freed_by, may_become, size_in_bytes
from tests.passes.rewriting import Rewritten, check_settled, rewritten
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_bytes,
    model_from_text,
    proto_from_text,
)
from tests.support.strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Node
    from dplcli.language.replacement import RewriteRule
    from tests.support.strategies import RandomGraph

ROOT = Path(__file__).parents[2]
HEADER = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>\n'
FUNCTION = HEADER + '{main}\n<domain: "own", opset_import: ["" : 21]> f {body}'


@cache
def catalog() -> list[RewriteRule]:
    """Read the catalogue."""
    return read_catalogs([str(ROOT / "patterns" / "prepare.yaml")], SCHEMAS).rewrites


def prepared(text: str, *names: str) -> Rewritten:
    """Rewrite by some of the rules, or by all; check all that must hold."""
    chosen = [rule for rule in catalog() if not names or rule.name in names]
    assert {rule.name for rule in chosen} >= set(names)
    result = rewritten(text if text.startswith("<") else HEADER + text, chosen)
    check_settled(result, chosen)
    return result


def ops(result: Rewritten) -> list[str]:
    """List the operators of the main graph."""
    return [node.op_type for node in result.after.graph.node]


# -- constants ---------------------------------------------------------------------------------


def test_a_chain_is_folded_in_one_round() -> None:
    """Producers come first, so that each node finds its inputs folded."""
    steps = " ".join(f"c{n + 1} = Add(c{n}, c{n})" for n in range(20))
    result = prepared(
        f"g (float[2] x) => (float[2] y) <float[2] c0 = {{1, 2}}> {{ {steps} y = Mul(x, c20) }}",
        "fold_constants",
    )

    assert ops(result) == ["Mul"]
    assert result.done.rounds == 1
    (constant,) = result.after.graph.initializer
    assert numpy_helper.to_array(constant).tolist() == [2.0**20, 2.0**21]


@pytest.mark.parametrize(
    "body",
    [
        "t = Expand(v, s)",
        "t = Tile(v, s)",
        "t = ConstantOfShape(s)",
        "t = Range(i, n, k) u = Cast <to = 1> (t)",
        "t = Pad(v, p)",
    ],
)
def test_explosions_are_refused(body: str) -> None:
    """A little constant does not become a large one."""
    text = f"""g (float[1] x) => (float[?] y) <float[1] v = {{2}}, int64[1] s = {{100000}},
        int64 i = {{0}}, int64 n = {{100000}}, int64 k = {{1}}, int64[2] p = {{50000, 50000}}> {{
        {body} y = Mul(x, {"u" if "u =" in body else "t"}) }}"""
    result = prepared(text)

    assert result.done.counts["fold_constants"] == 0
    assert any("more than the file may grow" in item.reason for item in result.done.refused)


def test_nothing_is_computed_that_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is known beforehand: terabytes are not asked for."""
    text = """g (float[1] x) => (float[?] y) <int64[2] s = {1000000, 1000000}> {
        t = ConstantOfShape(s) r = ReduceMax <keepdims = 0> (t) y = Mul(x, r) }"""
    computed: list[str] = []
    model = model_from_text(HEADER + text)
    evaluate = model.codec.evaluate

    def noted(_: object, node: Node, arrays: Sequence[NDArray[Any] | None]) -> object:
        computed.append(node.op_type)
        return evaluate(node, arrays)

    monkeypatch.setattr(type(model.codec), "evaluate", noted)
    assert rewrite(model, catalog()).counts["fold_constants"] == 0
    assert computed == []


LONG = {
    "einsum": ('r = Einsum <equation = "ij,jk,kl->"> (w, w, w)', 1000),
    "erf": ("e = Erf(w) r = ReduceMax <keepdims = 0> (e)", 1100),
}
"""A node that takes the evaluator minutes, and of how many rows and columns."""


@pytest.mark.parametrize(("body", "size"), LONG.values(), ids=LONG)
def test_what_takes_minutes_is_not_computed(body: str, size: int) -> None:
    """However little comes of it; the same of few numbers is."""
    for rows, is_done in ((size, False), (9, True)):
        text = f"g (float x) => (float y) <float[{rows},{rows}] w> {{ {body} y = Mul(x, r) }}"
        proto = proto_from_text(HEADER + text)
        weight = numpy_helper.from_array(np.ones((rows, rows), np.float32), "w")
        proto.graph.initializer.append(weight)
        del proto.graph.input[1:]
        begun = time.process_time()

        done = rewrite(model_from_bytes(proto.SerializeToString()), catalog())

        assert time.process_time() - begun < 5
        assert (done.counts["fold_constants"] > 0) == is_done
        assert any("would take too long" in item.reason for item in done.refused) != is_done


def test_many_long_folds_stay_within_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a second; a model of them does not take an hour. A second run goes on."""
    work, count = 64 * 9**4, 20
    monkeypatch.setattr(module, "_MOST_IN_ALL", 8 * work)
    steps = " ".join(
        f'r{n} = Einsum <equation = "ij,jk,kl->"> (w, w, w) a{n + 1} = Add(a{n}, r{n})'
        for n in range(count)
    )
    ones = ", ".join(["1"] * 81)
    weight = f"<float[9,9] w = {{{ones}}}>"

    text = f"{HEADER}g (float a0) => (float a{count}) {weight} {{ {steps} }}"
    folding = [rule for rule in catalog() if rule.name == "fold_constants"]

    done = rewrite(model_from_text(text), folding)

    assert 0 < done.counts["fold_constants"] <= 8
    assert any("would take too long" in item.reason for item in done.refused)


def test_many_small_folds_stay_within_one_budget() -> None:
    """Each alone is small; together they are not, so that only some are done."""
    steps = " ".join(f"t{n} = Expand(v{n}, s) a{n + 1} = Add(a{n}, t{n})" for n in range(40))
    data = ", ".join(f"float[1] v{n} = {{{n}}}" for n in range(40))
    text = f"g (float[200] a0) => (float[200] a40) <int64[1] s = {{200}}, {data}> {{ {steps} }}"
    before = len(proto_from_text(HEADER + text).SerializeToString())
    result = prepared(text, "fold_constants")

    assert len(result.after.SerializeToString()) < 1.3 * before
    assert result.done.counts["fold_constants"] < 40


@pytest.mark.parametrize(("idle", "most"), [(97, 400), (98, 404), (1021, 4096), (3000, 4096)])
def test_what_one_fold_may_add(idle: int, most: int) -> None:
    """Four bytes for each node of the model, and 4 KiB: at the edge, and one byte beyond it."""
    nodes = " ".join(f"z{n} = Neg(x)" for n in range(idle))
    text = f"""g (float[2] x, float[?] u) => (float[2] y, float[?] w) <float[1] v = {{2}},
        int64[1] s = {{9}}> {{ e = Expand(v, s) {nodes} y = Exp(x) w = Mul(u, e) }}"""
    node = next(iter(model_from_text(HEADER + text).graph))

    assert may_become(node, freed_by(node) + most)
    assert not may_become(node, freed_by(node) + most + 1)


@pytest.mark.parametrize(
    ("dtype", "count", "size"),
    [
        *(("float32", 3, 12), ("int4", 3, 2), ("bool", 3, 3), ("bfloat16", 3, 6)),
        *(("float8e4m3fn", 3, 3), ("complex128", 1, 16), ("uint64", 2, 16), ("string", 4, 4)),
    ],
)
def test_sizes_in_bytes(dtype: str, count: int, size: int) -> None:
    """What a file takes, packed types included."""
    assert size_in_bytes(dtype, count) == size


def _expansions(size: int) -> str:
    """Write a model of 94 nodes, four of which make *size* equal floats each."""
    steps = " ".join(f"t{n} = Expand(v{n}, s) a{n + 1} = Add(a{n}, t{n})" for n in range(4))
    rest = " ".join(f"r{n + 1} = Exp(r{n})" for n in range(86))
    data = ", ".join(f"float[1] v{n} = {{{n}}}" for n in range(4))
    return f"""{HEADER} g (float[{size}] a0, float[2] r0) => (float[{size}] a4, float[2] r86)
        <int64[1] s = {{{size}}}, {data}> {{ {steps} {rest} }}"""


@pytest.mark.parametrize(("less", "folded"), [(-1, 0), (0, 1), (1, 2), (2, 4)])
def test_a_second_run_folds_nothing_that_the_first_refused(less: int, folded: int) -> None:
    """At the edge: a model that has become smaller, or larger, does not allow more than before.

    The last Expand frees the shape, too, that all of them read.
    """
    freed = freed_by(next(iter(model_from_text(_expansions(100)).graph)))
    once = prepared(_expansions(94 + freed // 4 - less), "fold_constants")
    twice = rewritten(once.after, catalog())

    assert once.done.counts["fold_constants"] == folded
    assert len(ops(once)) == 94 - folded
    assert twice.done.counts["fold_constants"] == 0


def test_a_fold_that_frees_what_it_takes_is_always_allowed() -> None:
    """A weight that only the node reads goes away with it."""
    text = (
        HEADER
        + """g (float[9] x) => (float[9] y)
            <float[9] w = {1,2,3,4,5,6,7,8,9}> { t = Exp(w) y = Add(x, t) }"""
    )
    node = next(iter(model_from_text(text).graph))

    assert may_become(node, 36)
    assert not may_become(node, 3600)


@pytest.mark.parametrize(
    "body",
    [
        "t = RandomNormalLike(a)",
        "t = RandomUniformLike(a)",
        "t = Bernoulli(a)",
        "q = QuantizeLinear(a, h) t = DequantizeLinear(q, h)",
        "t = own.Thing(a)",
    ],
)
def test_what_is_random_foreign_or_quantised_stays(body: str) -> None:
    """Constant inputs are not enough."""
    text = f"""g (float[2] x) => (float[2] y) <float[2] a = {{0, 1}}, float h = {{0.5}}> {{
        {body} y = Mul(x, t) }}"""

    assert prepared(text, "fold_constants").done.rounds == 0


def test_a_constant_that_can_be_overridden_is_none() -> None:
    """An initializer that is also an input is only a default, from IR version 4 on."""
    text = """g (float[2] x, float[2] a = {1, 2}) => (float[2] y) { t = Exp(a) y = Add(x, t) }"""
    proto = proto_from_text(HEADER + text)
    assert [value.name for value in proto.graph.input] == ["x", "a"]

    assert rewritten(proto, catalog()).done.rounds == 0


def test_old_models_become_what_newer_ones_become() -> None:
    """Before IR version 4 initializers are inputs: they can be folded, shared and dropped."""
    listed = "".join(f", float[300] {name}" for name in "abc")
    ones, twos = (", ".join(digit * 300) for digit in "12")
    graph = f"""=> (float[300] y) <float[300] a = {{{ones}}}, float[300] b = {{{twos}}},
        float[300] c = {{{twos}}}> {{ e = Exp(a) p = Mul(x, b) q = Add(p, e) r = Div(q, c)
        k = Constant <value = float[1] {{3}}> () y = Add(r, k) }}"""
    old, new = (
        prepared(
            f"""<ir_version: {version}, opset_import: ["" : 8]> g (float[300] x{more}) {graph}"""
        )
        for version, more in ((3, listed), (4, ""))
    )

    assert ops(new) == ["Mul", "Add", "Div", "Add"]
    assert [item.name for item in new.after.graph.initializer] == ["b", "e", "k"]
    assert old.after == new.after


def test_old_models_in_which_nothing_changes_are_as_they_were() -> None:
    """The IR version is raised by a change, and only then."""
    text = """<ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] a) => (float[2] y) <float[2] a = {1, 2}> { y = Add(x, a) }"""
    assert prepared(text).after.ir_version == 3


def test_function_bodies_are_folded_and_keep_constant_nodes() -> None:
    """A body cannot store data, but it can hold a result."""
    main = "g (float[2] x) => (float[2] y) { y = own.f(x) }"
    body = """(x) => (y) { a = Constant <value = float[2] {1, 2}> () b = Exp(a) c = Neg(b)
        y = Add(x, c) }"""
    result = prepared(FUNCTION.format(main=main, body=body))

    (function,) = result.after.functions
    assert [node.op_type for node in function.node] == ["Constant", "Add"]


def test_what_an_operator_makes_of_nan_is_not_folded() -> None:
    """Some take the largest number, others NaN; a sum is NaN everywhere."""
    text = """g (float[2] x) => (float[2] y) <float[2] c = {1, nan}> {
        most = ReduceMax <keepdims = 0> (c)  sum = ReduceSum <keepdims = 0> (c)
        a = Add (x, most)  y = Add (a, sum)
    }"""
    assert ops(prepared(text)) == ["ReduceMax", "Add", "Add"]


def test_branches_are_folded_on_their_own() -> None:
    """A body of If stores its own data."""
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] p) {
            a = Constant <value = float[2] {1, 2}> () b = Neg(a) p = Add(x, b) },
          else_branch = e () => (float[2] q) { q = Identity(x) }> }"""
    result = prepared(text)

    then, other = (attribute.g for attribute in result.after.graph.node[0].attribute)
    assert [node.op_type for node in then.node] == ["Add"]
    assert [node.op_type for node in other.node] == ["Identity"]


def test_external_data_is_not_read(tmp_path: Path) -> None:
    """Neither to fold it nor to compare it: the file need not even be there."""
    proto = proto_from_text(
        HEADER + "g (float[2] x) => (float[2] y) { t = Exp(w) u = Add(x, t) y = Mul(u, v) }"
    )
    for name in "wv":
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.TensorProto.FLOAT,
            dims=[1 << 20],
            data_location=onnx.TensorProto.EXTERNAL,
        )
        tensor.external_data.add(key="location", value="missing.bin")
        proto.graph.initializer.append(tensor)
    model = model_from_proto(proto, tmp_path, "test")

    assert rewrite(model, catalog()).rounds == 0


# -- shapes ------------------------------------------------------------------------------------

HEADS = """g (float[b,s,64] x) => (float[?,?,?] y) <int64 i0 = {0}, int64 i1 = {1},
    int64[1] z = {0}, int64[2] h = {4, 16}, int64[1] w = {64}> {
    sa = Shape(x) a = Gather(sa, i0) sb = Shape(x) c = Gather(sb, i1) ua = Unsqueeze(a, z)
    uc = Unsqueeze(c, z) t = Concat <axis = 0> (ua, uc, h) r = Reshape(x, t)
    p = Transpose <perm = [0, 2, 1, 3]> (r) e = Hardmax(p) q = Transpose <perm = [0, 2, 1, 3]> (e)
    sq = Shape(q) d = Gather(sq, i0) ud = Unsqueeze(d, z) f = Gather(sq, i1) uf = Unsqueeze(f, z)
    v = Concat <axis = 0> (ud, uf, w) y = Reshape(q, v) }"""


def test_heads_of_attention_need_no_shape_arithmetic() -> None:
    """What an exporter computes for every Reshape is said by 0s."""
    result = prepared(HEADS)

    assert ops(result) == ["Reshape", "Transpose", "Hardmax", "Transpose", "Reshape"]
    targets = sorted(numpy_helper.to_array(t).tolist() for t in result.after.graph.initializer)
    assert targets == [[0, 0, 4, 16], [0, 0, 64]]


@pytest.mark.parametrize("sizes", [{"b": 1, "s": 1}, {"b": 3, "s": 7}])
def test_heads_of_attention_at_other_sizes(sizes: dict[str, int]) -> None:
    """The result computes the same whatever the sizes are."""
    result = prepared(HEADS)
    fixed = []
    for proto in (result.before, result.after):
        copy = onnx.ModelProto.FromString(proto.SerializeToString())
        for dim in copy.graph.input[0].type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes[dim.dim_param]
        fixed.append(copy)

    check_sound(*fixed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # allowzero: a 0 is a dimension of 0
        (
            """g (float[0,3] x) => (float[3,0] y) <int64[2] s = {3, 0}, int64[1] a = {0}> {
            t = Unsqueeze(x, a) y = Reshape <allowzero = 1> (t, s) }""",
            ["Unsqueeze", "Reshape"],
        ),
        # two dimensions that both would have to be -1
        (
            """g (float[n,m] x) => (float[?,?,?] y) <int64[1] a = {0}, int64[3] s = {1, -1, 1}> {
            t = Transpose(x) y = Unsqueeze(t, a) }""",
            ["Transpose", "Unsqueeze"],
        ),
        # a chain of three
        (
            """g (float[n,2,3] x) => (float[?,?] y) <int64[1] a = {1}, int64[3] s = {0, 6, 1},
            int64[2] r = {-1, 3}> { t = Unsqueeze(x, a) u = Reshape(t, s) y = Reshape(u, r) }""",
            ["Reshape"],
        ),
        # nothing is known of the rank
        (
            """g (float[2] x, int64[k] s) => (y) <int64[1] a = {0}> {
            t = Expand(x, s) u = Unsqueeze(t, a) y = Squeeze(u, a) }""",
            ["Expand", "Unsqueeze", "Squeeze"],
        ),
    ],
)
def test_reshapes(text: str, expected: list[str]) -> None:
    """Chains become one where that can be said, and stay where it cannot."""
    assert ops(prepared(text)) == expected


def test_a_target_from_outside_is_left() -> None:
    """A target that is computed from an input's elements is anybody's guess."""
    text = """g (float[n,4] x, int64[2] s) => (y) <int64 k = {1}> {
        t = Mul(s, k) u = Add(t, t) y = Reshape(x, u) }"""

    assert ops(prepared(text)) == ["Add", "Reshape"]


def test_sizes_that_are_not_equal_are_not_merged() -> None:
    """Dimensions by another name, and by no name at all."""
    text = """g (float[n,?] x, float[m,?] z) => (int64 y) <int64 i = {0}, int64 k = {1}> {
        a = Shape(x) b = Shape(z) c = Gather(a, i) d = Gather(b, i) e = Gather(a, k)
        f = Gather(b, k) g = Add(c, d) h = Add(e, f) y = Mul(g, h) }"""

    assert prepared(text, "reuse_shape_arithmetic").done.rounds == 0


def test_equal_numbers_in_another_type_are_not_merged() -> None:
    """int32 and int64, scalars and vectors of one element."""
    text = """g (float[n,4] x) => (int64 y, int32 z, int64[1] w) <int64 i = {0}, int64[1] j = {0}> {
        s = Shape(x) y = Gather(s, i) z = Cast <to = 6> (y) w = Unsqueeze(y, j) }"""

    assert prepared(text, "reuse_shape_arithmetic").done.rounds == 0


def test_numbers_are_reused_only_after_a_shape_whoever_watches() -> None:
    """An observer that may refuse has every node looked at; the rule does what it does without."""
    text = """g (float[8] x) => (float[2,4] y, float[2,4] z)
        <int64[2] c = {1, 2}, int64[2] d = {1, 2}> {
        s = Add(c, d) t = Add(c, d) y = Reshape(x, s) z = Reshape(x, t) }"""
    (rule,) = (rule for rule in catalog() if rule.name == "reuse_shape_arithmetic")
    watch = RestrictingObserver(only=[Restriction(rule.name)])
    rewrite(model_from_text(HEADER + text), [rule], watch)

    assert watch.log == []


# -- what is computed twice --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            """g (float[4] x) => (float[2] y) { a, b = Split <num_outputs = 2> (x)
            c, d = Split <num_outputs = 2> (x) y = Add(a, d) }""",
            ["Split", "Add"],
        ),
        (
            "g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Exp(x) }",
            ["Exp", "Identity"],
        ),
        (
            "g (float[2] x) => (float[2] y, float[2] z) { a = Exp(x) y = Neg(a) z = Exp(x) }",
            ["Exp", "Neg"],
        ),
        (
            """g (float[2] x) => (float[2] y) { a = ai.onnx.ml.Scaler <offset = [1.0]> (x)
            b = ai.onnx.ml.Scaler <offset = [1.0]> (x) y = Add(a, b) }""",
            ["Scaler", "Add"],
        ),
        (
            """g (float[2] x) => (float[2] y) { a = own.Dice(x) b = own.Dice(x) y = Add(a, b) }""",
            ["Dice", "Dice", "Add"],
        ),
        (
            """g (float[2] x) => (float[2] y) { a = Dropout(x) b = Dropout(x) y = Add(a, b) }""",
            ["Dropout", "Dropout", "Add"],
        ),
        (
            """g (float[2] x) => (float[2] y) <int64[1] s = {2}> {
            a = ConstantOfShape <value = float[1] {2}> (s)
            b = ConstantOfShape <value = float[1] {2}> (s) t = Add(x, a) y = Add(t, b) }""",
            ["ConstantOfShape", "ConstantOfShape", "Add", "Add"],
        ),
        (
            """g (float[2] x) => (float[2] y) <int64[1] s = {2}> {
            a = ConstantOfShape <value = float[1] {2}> (s)
            b = ConstantOfShape <value = float[1] {3}> (s) t = Add(x, a) y = Add(t, b) }""",
            ["ConstantOfShape", "ConstantOfShape", "Add", "Add"],
        ),
        (
            """g (float[n] x) => (float[n] y) { s = Shape(x) a = ConstantOfShape(s)
            b = ConstantOfShape(s) t = Add(x, a) y = Add(t, b) }""",
            ["Shape", "ConstantOfShape", "Add", "Add"],
        ),
    ],
)
def test_common_subexpressions(text: str, expected: list[str]) -> None:
    """What is the same is computed once, but for what may not be the same, or a weight."""
    header = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3, "own" : 1]>'
    result = prepared(f"{header} {text}", "merge_common")

    assert ops(result) == expected


@pytest.mark.parametrize(
    ("value", "use", "is_weight"),
    [
        ("float[1] {0.02}", "y# = Conv(x, t#)", True),
        ("float[1] {0}", "y# = Conv(x, t#)", True),
        ("float[1] {0}", "y# = Add(x, t#)", False),
        ("float[1] {1}", "y# = Mul(x, t#)", False),
        ("float[1] {0.02}", "y# = Mul(x, t#)", True),
        ("float[1] {0.02}", "m# = Reshape(t#, s) y# = Mul(x, m#)", True),
        ("float[1] {-10000}", "y# = Add(x, t#)", False),
        ("float[1] {0.02}", "y# = Max(x, t#)", False),
        ("float[1] {0.02}", "m# = Conv(x, t#) y# = Max(m#, t#)", False),
        ("float[1] {0.02}", "y# = own.Thing(x, t#)", True),
        ("int64[1] {2}", "m# = Cast <to = 1> (t#) y# = Mul(x, m#)", False),
        ("double[1] {0.5}", "m# = Cast <to = 1> (t#) y# = Mul(x, m#)", True),
    ],
)
def test_what_stands_for_a_weight(value: str, use: str, *, is_weight: bool) -> None:
    """Such a one is neither folded nor merged with its like; another ConstantOfShape is both."""
    nodes = f"t# = ConstantOfShape <value = {value}> (s) {use}"
    text = f"""g (float[1,1,2,2] x) => (float[?,?,?,?] y1, float[?,?,?,?] y2)
        <int64[4] s = {{1, 1, 1, 2}}> {{ {nodes.replace("#", "1")} {nodes.replace("#", "2")} }}"""

    assert ops(prepared(text, "fold_constants")).count("ConstantOfShape") == 2 * is_weight
    assert ops(prepared(text, "merge_common")).count("ConstantOfShape") == 1 + is_weight


def test_a_weight_that_is_returned_is_none() -> None:
    """A graph output has a value of its own."""
    text = """g (float[1,1,2,2] x) => (float[?,?,?,?] y, float[1,1,1,2] t)
        <int64[4] s = {1, 1, 1, 2}> {
        t = ConstantOfShape <value = float[1] {0.02}> (s) y = Conv(x, t) }"""

    assert "ConstantOfShape" not in ops(prepared(text, "fold_constants"))


def test_bodies_are_not_merged_with_what_is_outside() -> None:
    """Each graph is seen by itself."""
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) { z = Exp(x)
        y = If (c) <then_branch = t () => (float[2] p) { p = Exp(x) },
          else_branch = e () => (float[2] q) { q = Exp(x) }> }"""

    assert prepared(text, "merge_common").done.rounds == 0


def test_merging_takes_time_by_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with many equal readers, and many different ones, costs each reader one look."""
    looks = 0
    same_attributes = vars(module)["_same_attributes"]

    def counted(first: object, second: object) -> bool:
        nonlocal looks
        looks += 1
        return bool(same_attributes(first, second))

    monkeypatch.setattr(module, "_same_attributes", counted)
    for count in (100, 1000):
        looks = 0
        nodes = [helper.make_node("Exp", ["x"], [f"e{n}"]) for n in range(count)]
        nodes += [helper.make_node("Pow", ["x", f"e{n}"], [f"p{n}"]) for n in range(count)]
        nodes.append(helper.make_node("Sum", [f"p{n}" for n in range(count)], ["y"]))
        value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
        graph = helper.make_graph(nodes, "g", [value], [onnx.ValueInfoProto(name="y")])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        model = model_from_proto(proto, Path(), "test")
        rules = [rule for rule in catalog() if rule.name == "merge_common"]

        assert rewrite(model, rules).counts["merge_common"] == 2 * (count - 1)
        assert looks <= 4 * count


NUMBERS = "{" + ",".join(map(str, range(16))) + "}"


@pytest.mark.parametrize(
    ("second", "merged"),
    [
        (f"float[16] b = {NUMBERS}", True),
        (f"float[4,4] b = {NUMBERS}", False),
        ("float[16] b = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,16}", False),
        ("float[16] b = {-0.0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}", False),
    ],
)
def test_equal_initializers(second: str, *, merged: bool) -> None:
    """Bytes, shape and type decide."""
    text = f"""g (float[4,16] x) => (float[?,?] y) <float[16] a = {NUMBERS}, {second}> {{
        s = Shape(b) t = Add(x, a) u = Reshape(b, s) y = MatMul(t, u) }}"""
    text = text.replace("y = MatMul(t, u)", "v = ReduceSum <keepdims = 0> (u) y = Add(t, v)")
    result = prepared(text, "merge_initializers")

    assert (result.done.counts["merge_initializers"] > 0) is merged


@pytest.mark.parametrize(
    "text",
    [
        f"""g (float[16] x) => (float[16] y, float[16] b) <float[16] a = {NUMBERS},
        float[16] b = {NUMBERS}> {{ t = Add(x, a) y = Mul(t, b) }}""",
        """g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {1, 2}> {
        t = Add(x, a) y = Mul(t, b) }""",
        f"""g (float[16] x) => (float[16] y) <float[16] a = {NUMBERS}, int32[16] b = {NUMBERS}> {{
        t = Add(x, a) c = Cast <to = 1> (b) y = Mul(t, c) }}""",
    ],
    ids=["returned", "short", "type"],
)
def test_initializers_that_stay(text: str) -> None:
    """What is returned keeps its name; what is short is not worth a new node."""
    assert prepared(text, "merge_initializers").done.rounds == 0


def test_three_copies_become_one() -> None:
    """In a body, too, the outer graph's copy is another one."""
    text = f"""g (float[16] x) => (float[16] y) <float[16] a = {NUMBERS}, float[16] b = {NUMBERS},
        float[16] c = {NUMBERS}> {{ t = Add(x, a) u = Mul(t, b) y = Sub(u, c) }}"""
    result = prepared(text, "merge_initializers")

    assert [tensor.name for tensor in result.after.graph.initializer] == ["a"]
    check_sound(result.before, result.after)


# -- slices ------------------------------------------------------------------------------------


def _slices(*bounds: tuple[int, int], dim: str = "9") -> str:
    data = ", ".join(
        f"int64[1] b{n} = {{{low}}}, int64[1] e{n} = {{{high}}}"
        for n, (low, high) in enumerate(bounds)
    )
    nodes = " ".join(f"s{n} = Slice(x, b{n}, e{n}, a) y{n} = Neg(s{n})" for n in range(len(bounds)))
    outputs = ", ".join(f"float[2,?] y{n}" for n in range(len(bounds)))
    return f"g (float[2,{dim}] x) => ({outputs}) <int64[1] a = {{-1}}, {data}> {{ {nodes} }}"


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        (_slices((0, 2), (2, 5), (5, 9)), 1),
        (_slices((5, 9), (0, 2), (2, 5)), 1),
        (_slices((0, 2), (-7, -4), (5, 2147483647)), 1),
        (_slices((0, 5), (0, 5), (5, 9)), 1),
        (_slices((0, 2), (2, 5), (4, 9)), 0),
        (_slices((0, 2), (2, 5), (6, 9)), 0),
        (_slices((0, 2), (2, 5)), 0),
        (_slices((0, 2), (2, 9), dim="n"), 0),
        (_slices((0, 9)), 0),
    ],
)
def test_slices_that_are_a_split(text: str, splits: int) -> None:
    """In any order and spelling, if they are the whole and do not overlap."""
    result = prepared(text, "merge_slices_into_split")

    assert ops(result).count("Split") == splits
    assert ops(result).count("Slice") == (0 if splits else text.count("Slice"))
    if "n]" not in text:
        check_sound(result.before, result.after)


def test_steps_are_no_split() -> None:
    """Every other element is no piece."""
    text = (
        _slices((0, 5), (5, 9)).replace("e0, a)", "e0, a, k)").replace("<", "<int64[1] k = {2}, ")
    )

    assert prepared(text, "merge_slices_into_split").done.rounds == 0


# -- everything --------------------------------------------------------------------------------


@pytest.mark.long
@given(graphs())
def test_random_graphs_come_to_rest(graph: RandomGraph) -> None:
    """All rules together end, compute the same, and find nothing more to do."""
    result = rewritten(graph.text(), catalog())
    check_settled(result, catalog())

    check_sound(result.before, result.after)


@pytest.mark.long
@pytest.mark.parametrize("name", ["deit", "residual_block", "resnet18_bn", "super_resolution"])
def test_sample_models(name: str) -> None:
    """Real models shrink, stay valid, compute the same, and do not change again."""
    proto = onnx.load(ROOT / "sample_models" / f"{name}.onnx")
    result = rewritten(proto, catalog())

    check_settled(result, catalog())
    assert len(result.after.graph.node) <= len(proto.graph.node)
    assert "BatchNormalization" not in ops(result)
    assert result.after.ByteSize() <= 1.05 * proto.ByteSize()


def test_outputs_of_shared_states() -> None:
    """A state that is left out leaves the other, and every output that is read."""
    text = """g (float[1,1,1] x, float[1,1,1] h) => (float[1,1,1,1] y, float[1,1,1] z)
        <float[1,4,1] w = {1,2,3,4}, float[1,4,1] r = {4,3,2,1}, float[1,1,1] c = {0}> {
        y, , z = LSTM <hidden_size = 1> (x, w, r, , , h, c) }"""
    result = prepared(text, "drop_zero_states")

    (node,) = result.after.graph.node
    assert list(node.input) == ["x", "w", "r", "", "", "h"]
    assert (node.output[0], node.output[2]) == ("y", "z")
    check_sound(result.before, result.after)
