"""What an edit makes possible elsewhere: it is looked at again, though no round looks at all.

In each, the first rule matches only after the second one has done something, and that is not where
the first one's root is. The rules reach no further than they say, so that nothing else reminds of
the root. At the end: what one replacement leaves for the next in the same round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.language.replacement import nodewise
from dplcli.passes.rewrite import rewrite
from tests.passes.rewriting import bound, check_settled, rewrite_rule, rewritten
from tests.support.helpers import check_sound, model_from_text, proto_from_text

if TYPE_CHECKING:
    from dplcli.language import Match, Rejection, RewriteRule
    from dplcli.language.replacement import GraphBuilder, NewValue

HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'


def check_second_look(before: str, *rules: RewriteRule, times: tuple[int, ...] = (1, 1)) -> str:
    """Check that the rules are applied so often, in two rounds at least; return the text."""
    result = rewritten(HEADER + before, rules)
    assert tuple(result.done.counts.values()) == times
    assert result.done.rounds > 1
    check_settled(result, rules)
    return result.text


DOUBLE_NEGATION = rewrite_rule("Neg(Neg(v))", "v", name="negation", escape="refuse")
NEGATION = rewrite_rule("Neg(v)", "v", name="negation")


def test_a_leaf_of_an_edge() -> None:
    """``p ^ q`` looks two nodes up: at what the producer reads."""
    rule = rewrite_rule("Relu(p) ^ Add(q, s)", "own.f(p)", "p.is_const", name="edge")
    text = check_second_look(
        "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> "
        "{ b = Neg (k) r = Relu (b) y = Add (r, x) }",
        rule,
        NEGATION,
    )
    assert "y = own.f (k)" in text


@pytest.mark.parametrize(
    ("replacement", "where", "reach"),
    [
        ("x", "x.rank == 2", 1),
        ("x", "dims(y) == dims(x)", 3),
        ("Reshape(x, const(reshape_target(x, y)))", "x.rank == 2", 3),
        ("own.f(x, size=dims(y)[0])", "x.rank == 2", 3),
    ],
)
def test_sizes_depend_on_what_stands_above(replacement: str, where: str, reach: int) -> None:
    """Whoever asks for them looks further up than the pattern, at nodes of any operator."""
    rule = rewrite_rule("y = Reshape(x, _)\ny", replacement, where)
    assert rule.reach == reach
    assert rule.follows_shapes is (reach > 1)
    assert (rule.inner_operators is None) is rule.follows_shapes


@pytest.mark.parametrize("copies", [0, 1, 3])
def test_a_leaf_behind_copies(copies: int) -> None:
    """Identity nodes in between count for nothing, however many they are."""
    chain = "i0 = Neg (k) " + " ".join(f"i{n + 1} = Identity (i{n})" for n in range(copies))
    rule = rewrite_rule("Relu(Abs(p))", "own.f(p)", "p.is_const", name="deep")
    text = check_second_look(
        f"g (float[2] x) => (float[2] y) <float[2] k = {{1, 2}}> {{ {chain} "
        f"a = Abs (i{copies}) j = Identity (a) y = Relu (j) }}",
        rule,
        NEGATION,
    )
    assert "y = own.f" in text


def test_how_often_a_leaf_is_read() -> None:
    """A reader of the leaf goes, far from the root."""
    rule = rewrite_rule("Relu(Abs(p))", "own.f(p)", "p.uses == 1", name="alone")
    drop = rewrite_rule("Add(u, Neg(_))", "u", name="drop")
    text = check_second_look(
        "g (float[2] x, float[2] u) => (float[2] y, float[2] z) "
        "{ a = Abs (x) y = Relu (a) n = Neg (x) s = Add (u, n) z = Sigmoid (s) }",
        rule,
        drop,
    )
    assert "y = own.f (x)" in text


def test_an_inner_value_that_nobody_else_reads_any_more() -> None:
    """What escaped does so no longer."""
    drop = rewrite_rule("Add(u, Sigmoid(_))", "u", name="drop")
    text = check_second_look(
        "g (float[2] x, float[2] u) => (float[2] y, float[2] z) "
        "{ a = Neg (x) b = Neg (a) y = Abs (b) n = Sigmoid (a) s = Add (u, n) z = Sigmoid (s) }",
        DOUBLE_NEGATION,
        drop,
    )
    assert "y = Abs (x)" in text


def test_another_output_that_nobody_reads_any_more() -> None:
    """The other output of a node inside the match escaped; nothing leads from it to the root."""
    rule = rewrite_rule("a, b = Split(p, **_)\nRelu(a)", "own.f(p)", name="split")
    drop = rewrite_rule("Add(u, Neg(_))", "u", name="drop")
    text = check_second_look(
        "g (float[4] x, float[2] u) => (float[2] y, float[2] z) "
        "{ a, b = Split (x) y = Relu (a) n = Neg (b) s = Add (u, n) z = Sigmoid (s) }",
        rule,
        drop,
    )
    assert "y = own.f (x)" in text


def test_another_output_that_a_condition_counts() -> None:
    """A condition on how often another output of a matched node is read."""
    rule = rewrite_rule("a, b = Split(p, **_)\nRelu(a), Neg(b)", "a, b", "a.uses == 1", name="both")
    drop = rewrite_rule("Add(u, Abs(_))", "u", name="drop")
    result = rewritten(
        f"{HEADER}g (float[4] x, float[2] u) => (float[2] y, float[2] z, float[2] w) "
        "{ a, b = Split (x) r = Relu (a) y = Sin (r) n = Neg (b) w = Sin (n) "
        "c = Abs (a) z = Add (u, c) }",
        [rule, drop],
    )
    assert result.done.counts == {"both": 1, "drop": 1}
    check_settled(result, [rule, drop])


BRANCHES = """g (float[2] x, float[2] u, bool c) => (float[2] y, float[2] z) {{
    {outside} i = If (c) <
        then_branch = t () => (float[2] p) {{ {then} }},
        else_branch = e () => (float[2] q) {{ {otherwise} }}
    > {below} }}"""


def test_inside_the_branches_that_a_pattern_describes() -> None:
    """``if_`` looks into both branches, where another rule has been."""
    rule = rewrite_rule("if_(_, Relu(p), Relu(p))", "Sigmoid(p)", name="join")
    text = check_second_look(
        BRANCHES.format(
            outside="z = Abs (u)",
            then="n = Neg (x) m = Neg (n) p = Relu (m)",
            otherwise="q = Relu (x)",
            below="y = Abs (i)",
        ),
        rule,
        DOUBLE_NEGATION,
    )
    assert "i = Sigmoid (x)" in text


def test_a_body_that_goes_frees_what_it_read() -> None:
    """An inner value escaped into a branch, which is taken out with its If."""
    drop = rewrite_rule("Add(u, Abs(_))", "u", name="drop")
    text = check_second_look(
        BRANCHES.format(
            outside="a = Neg (x) b = Neg (a) y = Sin (b)",
            then="m = Neg (a) p = Relu (m)",
            otherwise="q = Relu (x)",
            below="d = Abs (i) s = Add (u, d) z = Sin (s)",
        ),
        DOUBLE_NEGATION,
        drop,
    )
    assert "y = Sin (x)" in text
    assert "If" not in text


def test_bodies_in_bodies_go_together() -> None:
    """A branch inside a branch read values of both; what only they needed goes, too."""
    inner = """r = Relu (x) k = If (c) <
        then_branch = tt () => (float[2] pp) { pp = Add (r, a) },
        else_branch = te () => (float[2] pq) { pq = Add (r, w) }> p = Sigmoid (k)"""
    drop = rewrite_rule("Add(u, Abs(_))", "u", name="drop")
    before = BRANCHES.format(
        outside="a = Neg (x) b = Neg (a) y = Sin (b) w = Cos (x)",
        then=inner,
        otherwise="q = Relu (w)",
        below="d = Abs (i) s = Add (u, d) z = Sin (s)",
    )
    text = check_second_look(before, DOUBLE_NEGATION, drop)
    assert text == "(x, u, c) => (y, z) { y = Sin (x) z = Sin (u) }"
    check_sound(
        proto_from_text(HEADER + before),
        rewritten(HEADER + before, [DOUBLE_NEGATION, rewrite_rule("Abs(v)", "v")]).after,
    )


def test_a_body_that_goes_frees_what_it_returned() -> None:
    """A branch that returns a value from round it: with the If goes what made that value.

    No such text passes onnx's checker, but the format does not forbid it.
    """
    model = model_from_text(
        BRANCHES.format(
            outside="a = Neg (x) b = Neg (a) y = Sin (b)",
            then="p = Relu (x)",
            otherwise="q = Relu (x)",
            below="d = Abs (i) s = Add (u, d) z = Sin (s)",
        )
    )
    owner = next(node for node in model.graph if node.op_type == "If")
    body = owner.subgraphs["then_branch"]
    (relu,) = body
    value = body.outputs.pop()
    value.returned_by = ()
    body.add_output(model.graph.values["a"])
    assert relu.outputs == (value,)
    drop = rewrite_rule("Add(u, Abs(_))", "u", name="drop")
    done = rewrite(model, [DOUBLE_NEGATION, drop])
    assert done.counts == {"negation": 1, "drop": 1}
    assert [node.op_type for node in model.graph] == ["Sin", "Sin"]


def test_a_value_that_becomes_constant() -> None:
    """A node gives way to data, which a rule for constants below it was waiting for."""

    def fold(match: Match, build: GraphBuilder) -> NewValue | None:
        found = build.evaluate(match.root)
        return None if found is None else build.constant(found[0])

    add = rewrite_rule("Mul(Mul(v, const(k)), const(l))", "Mul(v, const(k.value * l.value))")
    folds = rewrite_rule("Neg(_)", fold, name="fold")
    result = rewritten(
        f"{HEADER}g (float[2] x) => (float[2] y) <float[2] k = {{1, 2}}, float[2] l = {{3, 4}}> "
        "{ m = Neg (l) a = Mul (m, x) n = Neg (k) i = Identity (n) y = Mul (i, a) }",
        [add, folds],
    )
    assert result.done.counts == {"r": 1, "fold": 2}
    assert "y = Mul (x, m_folded)" in result.text
    check_sound(result.before, result.after)
    check_settled(result, [add, folds])


def test_a_change_that_two_ways_lead_to() -> None:
    """One way from the change to the root goes through a node that was changed itself."""
    rule = rewrite_rule("Relu(Split(Neg(p), **_)[1])", "own.f(p)", "p.is_const", name="deep")
    result = rewritten(
        f"{HEADER}g (float[4] x) => (float[2] y) <float[4] k = {{1, 2, 3, 4}}> "
        "{ b = Abs (k) n = Neg (b) v, w = Split (n) y = Relu (w) }",
        [rule, rewrite_rule("Abs(v)", "v", name="abs")],
    )
    assert result.done.counts == {"deep": 1, "abs": 1}


def test_types_that_become_known() -> None:
    """A foreign operator's result has no type; below what takes its place the shapes are known."""
    ranked = rewrite_rule("Sigmoid(p)", "Abs(p)", "p.rank == 2", name="ranked")
    known = rewrite_rule("own.g(v)", "Neg(v)", name="known")
    text = check_second_look(
        "g (float[2, 3] x) => (float[2, 3] y) "
        "{ a = own.g (x) b = Relu (a) c = Sin (b) d = Sigmoid (c) y = Cos (d) }",
        ranked,
        known,
    )
    assert "d = Abs (c)" in text


def test_types_in_patterns_that_become_known() -> None:
    """The same where the pattern itself asks."""
    ranked = rewrite_rule("Sigmoid(p.has_shape(2, _))", "Abs(p)", name="ranked")
    known = rewrite_rule("own.g(v)", "Neg(v)", name="known")
    text = check_second_look(
        "g (float[2, 3] x) => (float[2, 3] y) "
        "{ a = own.g (x) b = Relu (a) c = Sin (b) d = Sigmoid (c) y = Cos (d) }",
        ranked,
        known,
    )
    assert "d = Abs (c)" in text


def test_a_function_that_looks_further_than_its_pattern() -> None:
    """It looks at what its pattern does not mention, three nodes further up."""

    def far(match: Match, build: GraphBuilder) -> NewValue | Rejection:
        value = bound(match, "p")
        while value.producer is not None:
            above = value.producer.inputs[0]
            assert above is not None
            value = above
        if not value.is_constant:
            return match.reject("there is no constant at the top", at=value)
        return build.op("Sigmoid", value)

    text = check_second_look(
        "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> "
        "{ o = own.g (x, k) a = Sin (o) b = Cos (a) y = Relu (b) }",
        rewrite_rule("Relu(p)", far, name="far"),
        rewrite_rule("own.g(v, w)", "Exp(w)", name="other"),
    )
    assert text == "(x) => (y) { y = Sigmoid (k) }"


def test_a_check_that_looks_further_than_its_pattern() -> None:
    """So does a rule's check."""

    def check(match: Match) -> Rejection | None:
        producer = bound(match, "p").producer
        assert producer is not None
        above = producer.inputs[0]
        assert above is not None
        return None if above.producer is None else match.reject("not at the top", at=above)

    text = check_second_look(
        "g (float[2] x) => (float[2] y) { n = Neg (x) a = Sin (n) y = Relu (a) }",
        rewrite_rule("Relu(p)", "Abs(p)", name="top", check=check),
        NEGATION,
    )
    assert "y = Abs (a)" in text


def test_a_function_for_single_nodes_says_how_far_it_looks() -> None:
    """It is asked again about what changes within its reach."""

    @nodewise("Relu", reach=3)
    def deep(match: Match, build: GraphBuilder) -> NewValue | None:
        value = match.root.inputs[0]
        for _ in range(2):
            assert value is not None
            if value.producer is None:
                return None
            value = value.producer.inputs[0]
        if value is None or not value.is_constant:
            return None
        return build.op("Sin", value)

    text = check_second_look(
        "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> "
        "{ n = Neg (k) a = Sin (n) b = Cos (a) y = Relu (b) }",
        rewrite_rule("op()(...)", deep, name="deep"),
        NEGATION,
    )
    assert text == "(x) => (y) { y = Sin (k) }"


IN_TURN = {
    "what makes way for the next": (
        "(m, q) { a = Neg (x) m = Sub (a, z) b = Neg (z) q = Sub (b, a) }",
        "(x, z) => (m, q) { m = own.f (x) q = own.f (z) }",
        ["q", "m"],
    ),
    "what lets the next die": (
        "(q) { a = Neg (x) m = Sub (a, z) b = Neg (z) q = Sub (b, m) }",
        "(x, z) => (q) { q = own.f (z) }",
        ["q"],
    ),
    "what lets the next die by a node between": (
        "(q) { a = Neg (x) m = Sub (a, z) r = Relu (m) b = Neg (z) q = Sub (b, r) }",
        "(x, z) => (q) { q = own.f (z) }",
        ["q"],
    ),
    "what lets one die that could not be replaced": (
        "(q, a) { a = Neg (x) m = Sub (a, z) b = Neg (z) q = Sub (b, m) }",
        "(x, z) => (q, a) { a = Neg (x) q = own.f (z) }",
        ["q"],
    ),
    "what reads a copy that goes, too": (
        "(y) { a = Abs (x) b = Abs (a) c = Abs (b) d = Abs (c) y = Sub (z, d) }",
        "(x, z) => (y) { y = Sub (z, x) }",
        ["d", "b"],
    ),
}


@pytest.mark.parametrize(("body", "after", "roots"), IN_TURN.values(), ids=IN_TURN)
def test_in_turn(body: str, after: str, roots: list[str]) -> None:
    """A replacement decides what the next one finds, in the same round."""
    rules = [rewrite_rule("Sub(Neg(a), b)", "own.f(a)"), rewrite_rule("Abs(Abs(a))", "a")]
    result = rewritten(f"g (float[2] x, float[2] z) => {body}", rules)
    assert result.text == after
    assert [root for _, _, root in result.steps] == roots
    assert (result.done.rounds, result.done.refused) == (1, ())
