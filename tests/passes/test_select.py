"""Which matches are taken, and why the others are refused."""

import pytest

from dplcli.passes.select import select_matches
from tests.support.helpers import (
    describe_refusals,
    model_from_bytes,
    model_from_text,
    print_model,
    proto_from_text,
    rule,
    selected,
    taken,
)

CHAIN = "g (float[2] a) => (o) { r = Relu (a) s = Sigmoid (r) o = Neg (s) }"


def test_selection_edits_nothing() -> None:
    """Looking for matches leaves the model as it was."""
    assert print_model(model_from_text(CHAIN)) == print_model(model_from_text(CHAIN))
    selection = selected("Neg(x)", CHAIN)
    graph = selection.matches[0].root.graph
    assert print_model(graph.model) == print_model(model_from_text(CHAIN))


def test_earlier_rules_win_everywhere() -> None:
    """The first rule takes what it finds, the second gets what is left."""
    first, second = rule("Neg(Sigmoid(x))", name="a"), rule("Sigmoid(Relu(x))", name="b")
    assert taken(selected([first, second], CHAIN)) == ["a: s, o"]
    assert taken(selected([second, first], CHAIN)) == ["b: r, s"]


def test_an_earlier_rule_wins_though_it_is_smaller() -> None:
    """Priority is the listed order, not the size of the match."""
    small, large = rule("Sigmoid(x)", name="small"), rule("Neg(Sigmoid(Relu(x)))", name="large")
    selection = selected([small, large], CHAIN)
    assert taken(selection) == ["small: s"]
    assert describe_refusals(selection) == [
        "large at o: overlap: 's' is in another match, of t.small"
    ]


@pytest.mark.parametrize(
    ("priorities", "match", "refusal"),
    [
        ((0, 0), "small: s", "large at o: overlap: 's' is in another match, of t.small"),
        ((-1, 0), "large: r, s, o", ""),
        ((7, 8), "large: r, s, o", ""),
        ((8, 7), "small: s", "whose priority is 8"),
    ],
)
def test_a_higher_priority_comes_before_the_listed_order(
    priorities: tuple[int, int], match: str, refusal: str
) -> None:
    """Rules of one priority go in the listed order; a refusal names a priority that decided."""
    small = rule("Sigmoid(x)", name="small", priority=priorities[0])
    large = rule("Neg(Sigmoid(Relu(x)))", name="large", priority=priorities[1])
    selection = selected([small, large], CHAIN)
    assert taken(selection) == [match]
    assert [item.name for item in selection.rules] == ["small", "large"]
    assert [refusal in text for text in describe_refusals(selection)] == [True] * bool(refusal)


@pytest.mark.parametrize(
    ("length", "expected"), [(4, ["r: v3, v4", "r: v1, v2"]), (3, ["r: v2, v3"])]
)
def test_outermost_first(length: int, expected: list[str]) -> None:
    """F2: within a rule consumers go before producers."""
    body = " ".join(f"v{i + 1} = Relu (v{i})" for i in range(length))
    text = f"g (float[2] v0) => (v{length}) {{ {body} }}"
    assert taken(selected("Relu(Relu(x))", text)) == expected


def test_totals_count_every_node_looked_at() -> None:
    """The totals name each operator, foreign ones with their domain."""
    text = "g (float[2] a) => (o) { r = Relu (a) s = Relu (r) o = com.microsoft.Gelu (s) }"
    assert selected("Relu(x)", text).totals == {"Relu": 2, "com.microsoft.Gelu": 1}


IF = "If (c) <then_branch = t () => (p) { p = Neg (r) }, else_branch = e () => (q) { q = Abs (a) }>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (float[2] a) => (o, r) { r = Relu (a) o = Neg (r) }",
            "escape: 'r' is a graph output",
        ),
        (
            "g (float[2] a) => (o, p) { r = Relu (a) o = Neg (r) [n] p = Abs (r) }",
            "escape: 'r' is also read by Abs 'n'",
        ),
        (
            f"g (float[2] a, bool c) => (o, z) {{ r = Relu (a) o = Neg (r) z = {IF} }}",
            "escape: 'r' is also read by If 'z'",
        ),
        (
            "g (float[2] a) => (o) { r = Relu (a) i = Identity (r) o = Neg (i) d = Abs (i) }",
            "escape: 'i' is also read by Abs 'd'",
        ),
        (
            "g (float[2] a) => (o) { r = Relu (a) i = Identity (r) o = Neg (i) d = Abs (r) }",
            "escape: 'r' is also read by Abs 'd'",
        ),
    ],
    ids=["output", "reader", "capture", "behind-identity", "before-identity"],
)
def test_escaping_values_are_refused(text: str, reason: str) -> None:
    """A value inside that something outside needs refuses the match, and says who needs it."""
    selection = selected("Neg(Relu(x))", text)
    assert "r: r, o" not in taken(selection)
    assert f"r at o: {reason}" in describe_refusals(selection)


def test_a_value_returned_by_a_body_escapes() -> None:
    """A body that returns an outer value reads it."""
    text = """g (float[2] a, bool c) => (o, z) { r = Relu (a) o = Neg (r)
        z = If (c) <then_branch = t () => (r) {}, else_branch = e () => (q) { q = Abs (a) }> }"""
    selection = selected("Neg(Relu(x))", text)
    assert taken(selection) == []
    assert describe_refusals(selection)[0].startswith("r at o: escape: 'r' ")


def test_a_value_read_inside_only_does_not_escape() -> None:
    """Two readers are no obstacle if both are in the match."""
    text = "g (float[2] a) => (o) { r = Relu (a) s = Sigmoid (r) o = Mul (r, s) }"
    assert taken(selected("r = Relu(x)\nMul(r, Sigmoid(r))", text)) == ["r: r, s, o"]


def test_a_convolution_shared_by_two_relus() -> None:
    """A producer with two consumers belongs to neither."""
    text = """g (float[1,1,4,4] a) => (o, p) <float[1,1,1,1] k = {2}> {
        c = Conv (a, k) o = Relu (c) p = Relu (c) }"""
    selection = selected("Relu(Conv(x, w))", text)
    assert taken(selection) == []
    assert describe_refusals(selection) == [
        "r at p: escape: 'c' is also read by Relu 'o'",
        "r at o: escape: 'c' is also read by Relu 'p'",
    ]


def test_a_refused_match_leaves_its_nodes_free() -> None:
    """What a condition refuses the next rule may take, and then it is no refusal any more."""
    picky, easy = rule("Neg(Sigmoid(x))", "x.rank == 9", name="a"), rule("Neg(x)", name="b")
    selection = selected([picky, easy], CHAIN)
    assert taken(selection) == ["b: o"]
    assert describe_refusals(selection) == []
    alone = describe_refusals(selected([picky], CHAIN))
    assert alone == ["a at o: where: 'x.rank == 9' does not hold"]


TWO_CONVS = """g (float[1,1,4,4] a) => (o)
  <float[1,1,1,1] k = {2}, float[1,1,3,3] l = {1,1,1,1,1,1,1,1,1}> {
    c = Conv (a, k) d = Conv <pads = [1,1,1,1]> (a, l) o = Add (ORDER) }"""


@pytest.mark.parametrize("order", ["c, d", "d, c"])
def test_another_way_to_match_is_tried(order: str) -> None:
    """Where one operand does not satisfy the condition, the other is tried at the same root."""
    text = TWO_CONVS.replace("ORDER", order)
    picky = rule("Add(Conv(x, w), y)", "w.shape[2] == 3")
    assert taken(selected(picky, text)) == ["r: d, o"]
    assert taken(selected(rule("Add(Conv(x, w), y)", "w.shape[2] == 1"), text)) == ["r: c, o"]


def test_another_way_is_tried_after_an_escape() -> None:
    """Where one operand is needed elsewhere, the other is tried."""
    text = TWO_CONVS.replace("ORDER", "c, d").replace("(o)", "(o, c)", 1)
    assert taken(selected("Add(Conv(x, w), y)", text)) == ["r: d, o"]


def test_another_way_is_tried_after_an_overlap() -> None:
    """Where one operand is taken, the other is tried."""
    text = TWO_CONVS.replace("ORDER", "c, d")
    first = rule("Conv(x, w)", "w.shape[2] == 1", name="a")
    second = rule("Add(Conv(x, w), y)", name="b")
    assert taken(selected([first, second], text)) == ["a: c", "b: d, o"]


def test_every_scope_is_matched_on_its_own() -> None:
    """Main graph, If bodies and function bodies are each searched."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a, bool c) => (o) {
          m = Relu (a) n = f.body (m)
          o = If (c) <then_branch = t () => (p) { p = Relu (n) },
                      else_branch = e () => (q) { q = Relu (n) }> }
        <domain: "f", opset_import: ["" : 17]> body (x) => (y) { y = Relu (x) }"""
    assert sorted(taken(selected("Relu(v)", text))) == ["r: m", "r: p", "r: q", "r: y"]


def test_bodies_of_bodies_are_searched() -> None:
    """An If inside an If is a scope too."""
    inner = """If (c) <then_branch = u () => (v) { v = Relu (a) },
                       else_branch = w () => (x) { x = Neg (a) }>"""
    text = f"""g (float[2] a, bool c) => (o) {{
        o = If (c) <then_branch = t () => (p) {{ p = {inner} }},
                    else_branch = e () => (q) {{ q = Neg (a) }}> }}"""
    assert taken(selected("Relu(z)", text)) == ["r: v"]


def test_functions_of_an_earlier_partition_are_skipped() -> None:
    """A function with the mark of a partition is not searched, one without is."""
    text = """<ir_version: 10, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a) => (o) { o = t.r (a) }
        <domain: "t", opset_import: ["" : 17]> r (x) => (y) { y = Relu (x) }"""
    for key, expected in (("Composite", []), ("other", ["r: y"])):
        proto = proto_from_text(text)
        proto.functions[0].metadata_props.add(key=key, value="t.r")
        model = model_from_bytes(proto.SerializeToString())
        assert taken(select_matches(model, [rule("Relu(v)")])) == expected


def test_one_refusal_per_root() -> None:
    """A root refused in several ways is reported once, for the preferred way."""
    text = "g (float[2] a, float[2] b) => (o) { o = Add (a, b) }"
    selection = selected(rule("Add(x, y)", "x.rank == 9"), text)
    assert describe_refusals(selection) == ["r at o: where: 'x.rank == 9' does not hold"]


def test_a_dead_node_may_be_matched() -> None:
    """A node whose result nobody reads is a root like any other."""
    text = "g (float[2] a) => (o) { o = Neg (a) d = Relu (a) }"
    assert taken(selected("Relu(x)", text)) == ["r: d"]


def test_leaf_inside_the_match() -> None:
    """A wildcard may bind a value that the match itself makes."""
    text = "g (float[2] a) => (o) { r = Relu (a) o = Add (r, r) }"
    assert taken(selected("Add(Relu(x), y)", text)) == ["r: r, o"]
