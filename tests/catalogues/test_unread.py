"""What nobody reads: rules leave it, take it out, or rewrite it; none of them stumbles over it."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from dplcli.catalog import read_catalogs
from dplcli.errors import PassError
from dplcli.ir.traversal import check_structure
from dplcli.language.replacement import RewriteRule, nodewise
from dplcli.language.rule import PatternRule
from dplcli.onnx_io import to_proto
from dplcli.onnx_io.scratch import model_from_text as example_model
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import rewrite
from dplcli.passes.select import select_matches
from tests.passes.rewriting import rewrite_rule, rewritten
from tests.support.helpers import (
    SCHEMAS,
    model_from_bytes,
    model_from_text,
    random_inputs,
    run_model,
    strides,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match

PATTERNS = Path(__file__).parents[2] / "patterns"
CATALOGUES = sorted(path.name for path in PATTERNS.glob("*.yaml"))
SPARE = "spare"
"""What a variant returns besides, so that it returns something."""


@cache
def rules_of(catalogue: str) -> dict[str, RewriteRule | PatternRule]:
    """Read a shipped catalogue with its examples."""
    read = read_catalogs([str(PATTERNS / catalogue)], SCHEMAS, with_examples=True)
    found: list[RewriteRule | PatternRule] = [*read.rewrites, *read.patterns]
    return {rule.name: rule for rule in found}


def prepared(*names: str) -> list[RewriteRule]:
    """Return rules of the catalogue ``prepare``, all if none are named."""
    rules = rules_of("prepare.yaml")
    found = [rules[name] for name in names or rules]
    return [rule for rule in found if isinstance(rule, RewriteRule)]


def variants(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Return the model with fewer outputs: none, some, and some of what one node makes."""
    outputs = [info.name for info in model.graph.output]
    groups = [outputs, *([name for name in node.output if name] for node in model.graph.node)]
    kept: set[tuple[str, ...]] = {()}
    for group in groups:
        if len(group) > 1:
            counts = range(1, len(group) + (group is not outputs))
            kept.update(*(itertools.combinations(group, count) for count in counts))
    kept.discard(tuple(outputs))
    known = {info.name: info for info in onnx.shape_inference.infer_shapes(model).graph.value_info}
    known |= {info.name: info for info in model.graph.output}
    for names in sorted(kept):
        made = onnx.ModelProto()
        made.CopyFrom(model)
        del made.graph.output[:]
        made.graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in names)
        made.graph.node.append(helper.make_node("Constant", [], [SPARE], value_float=1.0))
        made.graph.output.append(helper.make_tensor_value_info(SPARE, 1, []))
        yield made


def applied(rule: RewriteRule | PatternRule, proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return what *rule* makes of a model, which must be in order; None if it leaves it."""
    model = model_from_bytes(proto.SerializeToString())
    if isinstance(rule, PatternRule):
        changed = bool(partition(model, select_matches(model, [rule])))
    else:
        changed = bool(rewrite(model, [rule]).applications)
    check_structure(model)
    if not changed:
        return None
    after = to_proto(model)
    assert list(after.graph.output) == list(proto.graph.output)
    return after


def compared(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    """Check that *after* computes what *before* does; tell whether onnxruntime runs *before*."""
    try:
        onnx.checker.check_model(before, full_check=True)
        feeds = random_inputs(before, 0)
        wanted = run_model(before, feeds, optimise=False)
    except Exception:  # noqa: BLE001  # indices out of range, or a type that tests do not make up
        return False
    onnx.checker.check_model(after, full_check=True)
    found = run_model(after, feeds, optimise=False)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    return True


@pytest.mark.long
@pytest.mark.parametrize("stride", strides(9))
@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_examples_of_which_less_is_read(catalogue: str, stride: int) -> None:
    """Whatever part of an example nobody reads, its rule makes a model that computes the same."""
    counts = {"tried": 0, "applied": 0, "compared": 0}
    shown = [(rule, example) for rule in rules_of(catalogue).values() for example in rule.examples]
    for rule, example in shown[::stride]:
        for variant in variants(to_proto(example_model(example.before, "before"))):
            counts["tried"] += 1
            try:
                after = applied(rule, variant)
                if after is not None:
                    counts["applied"] += 1
                    counts["compared"] += compared(variant, after)
            except Exception as error:
                error.add_note(f"{rule.name}\n{onnx.printer.to_text(variant)}")
                raise
    assert bool(counts["tried"]) == bool(shown)
    assert bool(counts["compared"]) == bool(counts["applied"]), counts


DEAD = {
    "Constant": "d = Constant <value = float[2] {1, 2}> ()",
    "Identity": "d = Identity(x)",
    "Cast": "d = Cast <to = 1> (x)",
    "CastLike": "d = CastLike(x, x)",
    "Transpose": "t = Transpose <perm = [1, 0]> (x) d = Transpose <perm = [1, 0]> (t)",
    "Relu": "t = Relu(x) d = Relu(t)",
    "Clip": "t = Clip(x, lo) d = Clip(t, lo)",
    "Concat": "t = Concat <axis = 0> (x, x) d = Concat <axis = 0> (t, x)",
    "Split": "d, e = Split <axis = 0> (x)",
    "Dropout": "d, e = Dropout(x)",
    "Shape": "d = Shape(x)",
    "Add": "d = Add(x, lo)",
    "RandomNormal": "d = RandomNormal <shape = [2]> ()",
    "If": "d = If (c) <then_branch = t () => (a) { a = Identity(x) },"
    " else_branch = e () => (b) { b = Relu(x) }>",
}


@pytest.mark.parametrize("dead", DEAD.values(), ids=DEAD)
def test_dead_nodes_go(dead: str) -> None:
    """The whole catalogue takes them out, and the rest of the model is as it was."""
    before = (
        f"g (float[2, 2] x, bool c) => (float[2, 2] y) <float lo = {{0}}> {{ {dead} y = Exp(x) }}"
    )

    result = rewritten(before, prepared())

    assert [node.op_type for node in result.after.graph.node] == ["Exp"]


@pytest.mark.parametrize("dead", DEAD.values(), ids=DEAD)
@pytest.mark.parametrize("name", [rule.name for rule in prepared() if rule.is_nodewise])
def test_functions_are_not_asked_about_dead_nodes(name: str, dead: str) -> None:
    """Each by itself: only the rule that is for dead nodes takes such a root."""
    before = (
        f"g (float[2, 2] x, bool c) => (float[2, 2] y) <float lo = {{0}}> {{ {dead} y = Exp(x) }}"
    )

    result = rewritten(before, prepared(name))

    makers = {item.root.output for item in result.done.applications}
    assert name == "drop_unread" or "d" not in makers


def test_dead_nodes_in_bodies_and_functions() -> None:
    """They go wherever they are."""
    result = rewritten(
        """
        <ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] x, bool c) => (float[2] y) {
            z = f.twice(x)
            y = If (c) <
                then_branch = t () => (a) { a = Relu(z) da = Constant <value_float = 1.0> () },
                else_branch = e () => (b) { b = Neg(z) db = Neg(b) dc = Neg(db) }
            >
        }
        <domain: "f", opset_import: ["" : 17]>
        twice (v) => (w) { w = Add(v, v) dw = Cast <to = 1> (w) }
        """,
        prepared("constants_to_initializers", "merge_casts", "drop_unread"),
    )

    assert not any(name in result.text for name in ("da", "db", "dc", "dw"))
    assert result.done.counts["drop_unread"] >= 3
    assert result.done.counts["constants_to_initializers"] == 0


def test_a_function_that_returns_too_much_is_still_told() -> None:
    """Only what nobody reads is kept from it; of what is read, it must say what takes its place."""

    @nodewise("Neg")
    def doubles(match: Match, build: GraphBuilder) -> list[Operand]:
        return [build.op("Exp", match.root.inputs[0])] * 2

    rule = rewrite_rule("Neg(x)", doubles)
    dead = "g (float[2] x) => (float[2] y) { d = Neg(x) y = Relu(x) }"
    read = "g (float[2] x) => (float[2] y) { d = Neg(x) y = Relu(d) }"

    assert not rewrite(model_from_text(dead), [rule]).applications
    with pytest.raises(PassError, match=r"rule 'r' answered .* at Neg"):
        rewrite(model_from_text(read), [rule])


def test_a_function_for_dead_nodes_too() -> None:
    """It says so, and is given a match without outputs."""
    seen = []

    @nodewise("Neg", unread=True)
    def looks(match: Match, build: GraphBuilder) -> None:  # noqa: ARG001  # nothing is made
        seen.append(match.outputs)

    rewrite(
        model_from_text("g (float[2] x) => (float[2] y) { d = Neg(x) y = Neg(x) }"),
        [rewrite_rule("Neg(x)", looks)],
    )

    assert sorted(map(len, seen)) == [0, 1]


@pytest.mark.parametrize("becomes", ["Mul(x, 2.0)", "x"])
def test_a_pattern_is_refused_where_nobody_reads_what_it_makes(becomes: str) -> None:
    """As in TVM, which does not see dead code at all; here it is said."""
    rules = [rewrite_rule("Add(x, x)", becomes)]
    text = "g (float[2] x) => (float[2] y) {{ d = Add(x, x) {} y = Exp(x) }}"

    result = rewritten(text.format(""), rules)
    read = rewritten(text.format("e = Neg(d)"), rules)

    assert [(item.stage, item.reason) for item in result.done.refused] == [
        ("check", "nobody reads what it makes")
    ]
    assert [item.root.output for item in read.done.applications] == ["d"]


def test_some_outputs_of_a_pattern_are_read() -> None:
    """That is enough: all of them are replaced."""
    rules = [rewrite_rule("a, b = Split(x)\nNeg(a), Neg(b)", "c, d = Split(Neg(x))\nc, d")]
    before = """g (float[4] x) => (float[2] q) {
        a, b = Split <axis = 0> (x) p = Neg(a) q = Neg(b) }"""

    result = rewritten(before, rules)

    assert [item.root.output for item in result.done.applications] == ["p"]
    assert compared(result.before, result.after)
