"""``fuse.yaml``: every rule on its examples and made-up graphs, and all rules together."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from dplcli.onnx_io.scratch import model_from_text as model_of_example
from dplcli.passes.rewrite import rewrite
from tests.catalogues.near_misses import failed_trials, kinds_of_examples
from tests.support.helpers import model_from_bytes, one_in, proto_from_text, shipped_rewrites

if TYPE_CHECKING:
    from dplcli.ir import Model
    from dplcli.language.replacement import RewriteRule


@cache
def rules() -> dict[str, RewriteRule]:
    """Read the catalogue's own rules, without those that it includes."""
    every = shipped_rewrites("fuse")
    return {rule.name: rule for rule in every if rule.origin.startswith("fuse.yaml")}


def names() -> list[str]:
    """List the rules, to try each; their examples are read when they are tried."""
    every = shipped_rewrites("fuse", with_examples=False)
    return [rule.name for rule in every if rule.origin.startswith("fuse.yaml")]


def sizes(model: Model) -> int:
    """Count nodes."""
    return sum(graph.node_count for graph in model.graphs())


@pytest.mark.parametrize("name", one_in(24, names(), gate=8))
def test_rules_hold_on_examples_and_on_graphs_made_up(name: str) -> None:
    """What a rule makes is valid and computes the same; what it must leave it leaves."""
    assert failed_trials(rules()[name]) == []


@pytest.mark.parametrize("name", names())
def test_rules_show_what_they_take_and_what_they_leave(name: str) -> None:
    """A rule has an example of each kind, says when it holds, and from which opset on."""
    rule = rules()[name]

    assert kinds_of_examples(rule) == {"taken", "left"}
    assert "Holds" in rule.doc
    assert "Numerics:" in rule.doc
    assert rule.opsets[0] is not None


@pytest.mark.parametrize("name", one_in(6, names(), gate=4))
def test_the_whole_wins_over_its_parts(name: str) -> None:
    """With all rules at work, an example becomes what its rule alone makes of it, or less.

    No earlier rule takes a part of it away, and none takes the result apart.
    """
    rule = rules()[name]
    for example in rule.examples:
        if example.after == "unchanged":
            continue
        alone = model_of_example(example.before, "example")
        together = model_of_example(example.before, "example")
        rewrite(alone, [rule])
        done = rewrite(together, list(rules().values()))

        assert done.counts[name] > 0, example.origin
        assert sizes(together) <= sizes(alone), example.origin
        assert rewrite(together, list(rules().values())).rounds == 0


PARTS = """<ir_version: 10, opset_import: ["" : 24]>
g (float[2, 3, 8] x, float[2, 3, 8] z) => (float[2, 3, 8] y)
  <int64[1] axes = {-1}, float two = {2}, float one = {1}, float half = {0.5},
   float root = {1.4142135}, float eps = {0.00001},
   float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}> {
  m = ReduceMean (x, axes)  d = Sub (x, m)  p = Pow (d, two)  v = ReduceMean (p, axes)
  e = Add (v, eps)  r = Sqrt (e)  n = Div (d, r)  w = Mul (n, s)  l = Add (w, b)
  h = Add (l, z)
  a1 = Div (h, root)  a2 = Erf (a1)  a3 = Add (a2, one)  a4 = Mul (h, a3)  a5 = Mul (a4, half)
  c1 = Sigmoid (a5)  c2 = Mul (a5, c1)
  f1 = ReduceMax (c2, axes)  f2 = Sub (c2, f1)  f3 = Exp (f2)  f4 = ReduceSum (f3, axes)
  y = Div (f3, f4)
}"""


def test_a_block_of_a_transformer() -> None:
    """Each operator is found where the next one reads it."""
    model = model_from_bytes(proto_from_text(PARTS).SerializeToString())

    done = rewrite(model, list(rules().values()))

    assert [node.op_type for node in model.graph] == [
        *("LayerNormalization", "Add", "Gelu", "Swish", "Softmax"),
    ]
    assert sum(done.counts.values()) == 4
