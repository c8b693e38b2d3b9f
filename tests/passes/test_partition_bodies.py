"""A match that takes an If, a Loop or a Scan takes its bodies; what they capture becomes inputs."""

from __future__ import annotations

import onnx
import pytest

from dplcli.passes.select import select_matches
from tests.passes.inlining import check_undone, partitioned
from tests.support.helpers import (
    check_outcome,
    check_partition,
    describe_refusals,
    model_from_bytes,
    proto_from_text,
    rule,
    selected,
    taken,
)

ONE = """g (float[2] x, bool c) => (float[2] o) <float[2] k = {1, 2}> {
  [r] a = Relu (x)
  [i] t = If (c) <
    else_branch = el () => (float[2] q) <float[2] w = {3, 4}> { [n3] q = Sub (a, w) },
    then_branch = th () => (float[2] p) { [n1] h = Add (x, k) [n2] p = Mul (h, a) }>
  [n] o = Neg (t) }"""

NESTED = """g (float[2] x, bool c, bool d) => (float[2] o) <float[2] k = {1, 2}> {
  t = If (c) <
    then_branch = th () => (float[2] p) {
      s = Exp (x)
      u = If (d) <
        then_branch = a () => (float[2] v) { v = Add (s, k) },
        else_branch = b () => (float[2] w) { w = Identity (x) }>
      p = Neg (u) },
    else_branch = el () => (float[2] q) { q = Abs (k) }>
  o = Neg (t) }"""

TWO = """g (float[2] x, float[2] y, bool c) => (float[2] o) {
  t = If (c) <then_branch = th () => (float[2] p) { [n1] h = Abs (x) [n2] p = Exp (h) },
              else_branch = el () => (float[2] q) { [n3] q = Sqrt (x) }>
  a = Neg (t)
  u = If (c) <then_branch = other () => (float[2] pp) { [m1] hh = Abs (a) [m2] pp = Exp (hh) },
              else_branch = last () => (float[2] qq) { [m3] qq = Sqrt (a) }>
  b = Neg (u) o = Add (b, y) }"""

LOOP = """g (float[2] x, int64 n, float[2] k) => (float[2] o) <bool yes = {1}> {
  s = Relu (k)
  t = Loop (n, yes, x) <body = b (int64 j, bool c, float[2] y) => (bool d, float[2] z) {
    d = Identity (c) z = Add (y, s) }>
  o = Neg (t) }"""

SCAN = """g (float[2] a, float[3,2] xs) => (float[2] o) {
  so, ys = Scan <num_scan_inputs = 1,
    body = b (float[2] s, float[2] x) => (float[2] t, float[2] y) {
      t = Add (s, x) y = Mul (t, a) }> (a, xs)
  o = Neg (so) }"""


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (ONE, "If(c)"),
        (ONE, "Neg(If(c))"),
        (ONE, "Neg(If(c)), Relu(x)"),
        (ONE, "if_(c, Mul(h, a), Sub(b, w))"),
        (NESTED, "If(c)"),
        (NESTED, "Neg(If(c))"),
        (LOOP, "Neg(Loop(n, yes, x))"),
        (LOOP, "Neg(Loop(n, yes, x)), Relu(k)"),
        (SCAN, "Neg(Scan(a, x)[0])"),
    ],
)
@pytest.mark.parametrize("constants", ["lift", "embed"])
def test_bodies_go_along_and_come_back(text: str, pattern: str, constants: str) -> None:
    """Names, order and types as they were; what the bodies read is an input or in the function."""
    rules = rule(pattern, constants=constants)
    check_outcome(rules, text)
    check_undone(text, rules)


def test_what_is_captured_is_an_input() -> None:
    """From inside the match it is read there; values of the bodies have names of their own."""
    check_partition(
        "Neg(If(c)), Relu(x)",
        ONE,
        after="""
            (x, c) => (o) {
              [r_0] o, a = t.r (c, x, k)
            }
            () => (If_1.2) {
              [If_1.1] If_1.2 = Sub (relu_0_out, If_1.0)
            }
            () => (If_1.6) {
              [If_1.3] If_1.4 = Add (x, captured)
              [If_1.5] If_1.6 = Mul (If_1.4, relu_0_out)
            }
            t.r (c, x, captured) => (neg_2_out, relu_0_out) {
              [Relu_0] relu_0_out = Relu (x)
              [If_1] if_1_out = If <else_branch = {…}, then_branch = {…}> (c)
              [Neg_2] neg_2_out = Neg (if_1_out)
            }""",
    )


def test_bodies_that_are_alike_share_a_function() -> None:
    """Whatever their values and nodes are called; each comes back with its own names."""
    rules = rule("Neg(If(c))")
    written = partitioned(proto_from_text(TWO), rules, matches=2)
    assert len(written.functions) == 1
    check_outcome(rules, TWO)
    check_undone(TWO, rules, matches=2)
    other = TWO.replace("Exp (hh)", "Log (hh)")
    names = {f.name for f in partitioned(proto_from_text(other), rules, matches=2).functions}
    assert len(names) == 2
    assert written.functions[0].name in names


def test_what_only_readers_see_comes_back() -> None:
    """Documentation, metadata and types of two matches of one function, and order of attributes."""
    before = proto_from_text(TWO)
    for number, node in enumerate(n for n in before.graph.node if n.op_type == "If"):
        for attribute in node.attribute:
            attribute.g.doc_string = f"graph {number}"
            attribute.g.node[0].doc_string = f"node {number}"
            attribute.g.node[-1].metadata_props.add(key="at", value=f"{number}")
            name = attribute.g.node[0].output[0]
            info = onnx.helper.make_tensor_value_info(name, 1, [2] if number else ["n"])
            if name != attribute.g.output[0].name:
                attribute.g.value_info.append(info)
        if number:
            node.attribute.reverse()
    check_undone(before, rule("Neg(If(c))"), matches=2)


def test_an_if_that_is_needed_twice() -> None:
    """It is computed again, or its result leaves the match; both are undone."""
    shared = ONE.replace("(float[2] o)", "(float[2] o, float[2] t)", 1)
    rules = rule("Neg(If(c))", escape="outputs")
    check_outcome(rules, shared)
    check_undone(shared, rules)
    twice = ONE.replace("[n] o = Neg (t)", "m = Neg (t) e = Exp (t) o = Add (m, e)")
    rules = rule("Add(Neg(If(c)), e)", escape="duplicate")
    check_outcome(rules, twice)
    check_undone(twice, rules)


INSIDE = """g (float[2] x, bool c) => (float[2] o, float[2] m) {
  a = Relu (x)
  t = If (c) <then_branch = th () => (float[2] p) { p = Abs (a) },
              else_branch = el () => (float[2] q) { q = Exp (x) }>
  o = Neg (t) MORE }"""


@pytest.mark.parametrize(
    ("pattern", "text", "reason"),
    [
        pytest.param(
            "Neg(Relu(x))",
            INSIDE.replace("MORE", "m = Neg (a)"),
            "escape: 'a' is also read by If 't'",
            id="a-body-outside-reads-what-the-match-would-hide",
        ),
        pytest.param(
            "Add(If(c), Relu(x))",
            INSIDE.replace("MORE", "r = Relu (x) m = Add (t, r)"),
            "escape: 't' is also read by Neg 'o'",
            id="the-result-is-read-outside",
        ),
        pytest.param(
            "Add(If(c), Relu(x))",
            """g (float[2] x, bool c) => (float[2] o) {
              b = Relu (x) a = Exp (b)
              t = If (c) <then_branch = th () => (float[2] p) { p = Abs (a) },
                          else_branch = el () => (float[2] q) { q = Exp (x) }>
              o = Add (t, b) }""",
            "escape: 'b' is also read by Exp 'a'",
            id="a-body-captures-what-is-made-outside-of-what-is-inside",
        ),
        pytest.param(
            "If(c)",
            """g (float[2] x, bool c) => (float[2] o) {
              i = Identity (x)
              o = If (c) <then_branch = th () => (float[2] p) { p = Abs (x) },
                          else_branch = el () => (float[2] q) { q = Exp (i) }> }""",
            "check: the bodies of 'o' read 'x' and 'i', a copy",
            id="a-value-and-its-copy",
        ),
        pytest.param(
            "Loop(...)",
            LOOP.replace("d = Identity (c) z", "z").replace("(bool d,", "(bool c,"),
            "check: a body of 't' returns 'c', which no node in it makes",
            id="a-body-returns-its-input",
        ),
    ],
)
def test_what_stays(pattern: str, text: str, reason: str) -> None:
    """Each with its reason; the graph is left as it is."""
    selection = selected(pattern, text)
    assert taken(selection) == []
    assert reason in describe_refusals(selection)[0]


def test_convexity_sees_captures() -> None:
    """A path through a body from one end of the match to the other is a cycle."""
    text = """g (float[2] x, bool c) => (float[2] o) {
      b = Relu (x) a = Exp (b)
      t = If (c) <then_branch = th () => (float[2] p) { p = Abs (a) },
                  else_branch = el () => (float[2] q) { q = Exp (x) }>
      o = Add (t, b) }"""
    selection = selected(rule("Add(If(c), Relu(x))", escape="outputs"), text)
    assert describe_refusals(selection) == [
        "r at o: convexity: 'a' lies outside but between two nodes of the match"
    ]


def test_a_node_of_a_body_is_in_one_match() -> None:
    """What an earlier rule took in a body keeps the If; what the If took is not matched again."""
    inner, outer = rule("Exp(Abs(x))", name="inner"), rule("If(c)", name="outer")
    selection = selected([inner, outer], TWO)
    assert taken(selection) == ["inner: n1, n2", "inner: m1, m2"]
    assert describe_refusals(selection)[0] == (
        "outer at u: check: 'm1' is in another match, of t.inner; it is in a body of 'u'"
    )
    assert taken(selected([outer, inner], TWO)) == ["outer: u", "outer: t"]
    check_outcome([outer, inner], TWO)
    check_undone(TWO, [inner], matches=2)


def test_attributes_that_callers_give() -> None:
    """A body that reads an attribute of the function round it cannot leave it."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a, bool c) => (float[2] o) { o = f.h <alpha = 0.5> (a, c) }
        <domain: "f", opset_import: ["" : 17]> h <alpha> (x, c) => (y) {
          y = If (c) <
            then_branch = t () => (p) { p = LeakyRelu <alpha: float = @alpha> (x) },
            else_branch = e () => (q) { q = Abs (x) }> }"""
    selection = selected("If(c)", text)
    assert "has an attribute that callers of a function give" in describe_refusals(selection)[0]
    check_outcome("If(c)", text.replace("<alpha: float = @alpha>", "<alpha = 0.5>"))


def test_functions_and_partitions_in_bodies() -> None:
    """A call of a function goes along; one of a partition is refused, as everywhere."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a, bool c) => (float[2] o) {
          y = If (c) <then_branch = t () => (float[2] p) { p = f.h (a) },
                      else_branch = e () => (float[2] q) { q = Abs (a) }>
          o = Neg (y) }
        <domain: "f", opset_import: ["" : 17]> h (x) => (y) { y = Relu (x) }"""
    check_outcome("Neg(If(c))", text)
    check_undone(text, "Neg(If(c))")
    written = partitioned(proto_from_text(TWO), "Exp(Abs(x))", matches=2)
    selection = select_matches(model_from_bytes(written.SerializeToString()), [rule("If(c)")])
    assert describe_refusals(selection)[0].endswith(
        "calls a function that a partition wrote; it is in a body of 'u'"
    )
