"""Matches that are alike are outlined as if each had been looked at by itself."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog import read_catalogs
from dplcli.onnx_io import model_from_proto, to_proto
from dplcli.passes import partition as outlining
from dplcli.passes.select import select_matches
from tests.corpus.matrix import CONSTANTS, TARGETS
from tests.corpus.nets import listed_models, real_model
from tests.support.helpers import SCHEMAS, proto_from_text, rule, thinned
from tests.support.random_models import rule_texts
from tests.support.strategies import RandomGraph, graphs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.language import PatternRule
    from dplcli.language.rule import Match

NAMES = ("", "a", "r0_0", "r1", '"quoted" %s', "100 %", "ä\\")


def written(proto: onnx.ModelProto, rules: Sequence[PatternRule], folder: Path) -> bytes:
    """Partition a model, and return what is written."""
    model = model_from_proto(proto, folder, "test")
    outlining.partition(model, select_matches(model, rules))
    data: bytes = to_proto(model).SerializeToString(deterministic=True)
    return data


def check(proto: onnx.ModelProto, rules: Sequence[PatternRule], folder: Path) -> onnx.ModelProto:
    """Partition a model both ways; return what is written."""
    result = written(proto, rules, folder)
    together = outlining.OutlineMaker.outline

    def alone(maker: outlining.OutlineMaker, match: Match) -> outlining.Outline:
        maker._blueprints.clear()  # noqa: SLF001  # none are alike
        return together(maker, match)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlining.OutlineMaker, "outline", alone)
        assert written(proto, rules, folder) == result
    proto = onnx.ModelProto()
    proto.ParseFromString(result)
    return proto


@pytest.mark.long
@given(st.data())
def test_random_graphs(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """With whatever names, remarks, stated types and policies."""
    graph: RandomGraph = data.draw(graphs(12))
    proto = proto_from_text(graph.text())
    if data.draw(st.booleans()):
        proto = onnx.shape_inference.infer_shapes(proto)
    for node in proto.graph.node if data.draw(st.booleans()) else ():
        node.name = data.draw(st.sampled_from(NAMES))
        if data.draw(st.integers(0, 9)) == 9:
            node.metadata_props.add(key="k", value="100 %s")
    rules = [
        rule(
            data.draw(rule_texts(graph)),
            name=f"r{number}",
            constants=data.draw(st.sampled_from(["lift", "auto", "embed"])),
            escape=data.draw(st.sampled_from(["refuse", "duplicate", "outputs"])),
        )
        for number in range(data.draw(st.integers(1, 3)))
    ]
    check(proto, rules, tmp_path_factory.getbasetemp())


BLOCKS = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
    g (float[2] x, bool c) => (float[2] y) <float[2] k = {1, 2}> {
      [r] a = Relu (x)      [n] b = Neg (a)       d = Add (b, k)
      ["r %s"] e = Relu (d) ["\\"n\\""] f = Neg (e) h = Add (k, f)
      i = Relu (h)          j = Neg (i)           l = Add (j, i)
      m = If (c) <
        then_branch = t () => (float[2] v) { p = Relu (l)  q = Neg (p)  v = Add (q, k) },
        else_branch = s () => (float[2] z) { u = Relu (l)  z = Neg (u) }>
      w = o.f (m)           y = Identity (w)
    }
    <domain: "o", opset_import: ["" : 16]>
    f (x) => (y) { a = Relu (x)  b = Neg (a)  y = Add (b, x) }"""


@pytest.mark.parametrize(
    ("rules", "functions", "calls"),
    [
        ([rule("Neg(Relu(x))")], 2, 5),
        ([rule("n = Neg(Relu(x))\nAdd(n, k)")], 3, 5),
        ([rule("n = Neg(Relu(x))\nAdd(n, k)", constants="embed")], 3, 5),
        ([rule("r = Relu(x)\nn = Neg(r)\nn, r", escape="outputs")], 2, 6),
        ([rule("Add(x, y)", name="s"), rule("Relu(x)"), rule("Neg(x)", name="t")], 6, 17),
    ],
    ids=["whole", "shared", "embedded", "outputs", "several"],
)
def test_blocks(rules: Sequence[PatternRule], functions: int, calls: int, tmp_path: Path) -> None:
    """In the main graph, in branches and in functions of another opset, swapped and shared."""
    result = check(proto_from_text(BLOCKS), rules, tmp_path)
    text = onnx.printer.to_text(result)
    found = [function for function in result.functions if function.domain == "t"]
    assert (len(found), text.count("= t.")) == (functions, calls)


def test_attributes(tmp_path: Path) -> None:
    """Stated, stated as the default is, or left to it: each call says what its own nodes do."""
    text = """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) <float[1, 1, 1, 1] w = {2}> {
        a = Conv (x, w)                                            b = LeakyRelu (a)
        c = Conv <group = 1> (b, w)                                d = LeakyRelu <alpha = 0.5> (c)
        e = Conv <kernel_shape = [1, 1], strides = [1, 1]> (d, w)  f = LeakyRelu (e)
        h = Conv <group = 1> (f, w)                                y = LeakyRelu <alpha = 0.25> (h)
    }"""
    found = check(proto_from_text(text), [rule("LeakyRelu(Conv(x, w))")], tmp_path)
    stated = [{item.name: item.f for item in node.attribute} for node in found.graph.node]
    assert len(found.functions) == 1
    assert [round(each["alpha"], 2) for each in stated] == [0.01, 0.5, 0.01, 0.25]


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(12, listed_models(), first=3))
def test_real_models(name: str) -> None:
    """Those of the corpus, each with one of the shipped targets and one policy."""
    path = real_model(name)
    choices = list(product(TARGETS, CONSTANTS))
    target, constants = choices[[*listed_models()].index(name) % len(choices)]
    rules = read_catalogs([target], SCHEMAS, with_examples=False).patterns
    rules = [each.with_policies(constants=constants) for each in rules]
    check(onnx.load(path, load_external_data=False), rules, path.parent)
