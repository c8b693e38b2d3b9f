"""Nodes that no rule can be learned from, and what the messages say of them."""

import pytest

from dplcli.errors import PassError, UsageError
from dplcli.passes.learn_pattern import learn_rule
from tests.passes.learned import alike, learned
from tests.support.helpers import partitioned

BRANCHES = """g (float[2] x, bool c) => (y, z) { a = Relu (x) z = Neg (x)
    y = If (c) <then_branch = t () => (p) { p = Neg (a) },
                else_branch = e () => (q) { q = Abs (a) }> }"""
CHAIN = "g (float[2] x) => (y) { a = Relu (x) b = Abs (a) c = Exp (b) y = Add (a, c) }"


@pytest.mark.parametrize(
    ("text", "labels", "message", "hint"),
    [
        pytest.param(
            CHAIN,
            "",
            "no node is named",
            "pass the names of the nodes to learn from",
            id="none",
        ),
        pytest.param(
            CHAIN,
            "a c y",
            "Abs 'b' lies between the nodes named",
            "add it to the nodes",
            id="one-between",
        ),
        pytest.param(
            CHAIN,
            "y a",
            "Abs 'b', Exp 'c' lie between the nodes named",
            "add them to the nodes",
            id="two-between",
        ),
        pytest.param(
            "g (float[2] x, float[2] z) => (p, q, r) { p = Neg (x) q = Abs (z) r = Relu (p) }",
            "p q r",
            "the nodes are not connected: Neg 'p', Relu 'r' on one side, Abs 'q' on the other",
            "add the nodes between them, or learn a rule for each side",
            id="apart",
        ),
        pytest.param(
            "g (float[2] x, float[2] z) => (p, q) <float[2] k = {1, 2}> "
            "{ p = Add (x, k) q = Add (z, k) }",
            "p q",
            "the nodes are not connected: Add 'p' on one side, Add 'q' on the other",
            "add the nodes between them, or learn a rule for each side",
            id="a-constant-joins-nothing",
        ),
        pytest.param(
            BRANCHES,
            "a p",
            "Relu 'a' is in the main graph and Neg 'p' in a body of If 'y': "
            "a pattern never spans two graphs",
            None,
            id="two-graphs",
        ),
        pytest.param(
            BRANCHES,
            "a y",
            "If 'y' has a body of its own, which no pattern tells from others",
            None,
            id="body",
        ),
        pytest.param(
            "g (float[2] x) => (y) { a = Neg (x) i = Identity (a) y = Abs (i) z = Exp (i) }",
            "a y",
            "Identity 'i' lies between the nodes named, but 'i' is also read by Exp 'z'",
            "add what reads it, or remove the Identity node from the model",
            id="copy-read-outside",
        ),
        pytest.param(
            "g (float[2] x) => (y) { y = Identity (x) }",
            "y",
            "there is nothing to learn from Identity and Constant nodes alone",
            "add the nodes that read them",
            id="nothing-but-a-copy",
        ),
        pytest.param(
            "g (float[2] x) => (y) { y = Reul (x) }",
            "y",
            "no pattern can describe these nodes: unknown operator 'Reul'",
            "did you mean 'Relu'?",
            id="unknown-operator",
        ),
    ],
)
def test_refuses_what_is_no_subgraph(
    text: str, labels: str, message: str, hint: str | None
) -> None:
    """The message names the nodes, the hint what to do."""
    with pytest.raises(UsageError) as caught:
        learned(text, labels)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_names_no_copies_between() -> None:
    """An Identity node need not be named, so the message does not either."""
    text = "g (float[2] x) => (y) { a = Abs (x) i = Identity (a) b = Neg (i) y = Add (a, b) }"
    with pytest.raises(UsageError, match=r"^Neg 'b' lies between the nodes named$"):
        learned(text, "a y")


def test_names_a_few_of_many_between() -> None:
    """A long way between two nodes is not listed to the end."""
    body = " ".join(f"v{i + 1} = Abs (v{i})" for i in range(20))
    with pytest.raises(UsageError, match=r"Abs 'v9', and more lie between") as caught:
        learned(f"g (float[2] v0) => (y) {{ {body} y = Add (v1, v20) }}", "v1 y")
    assert caught.value.message.count("Abs") == 8


def test_refuses_the_function_of_a_partition() -> None:
    """What a partition wrote is not matched again, so nothing can be learned there."""
    model, _, _ = partitioned("Neg(Abs(x))", "g (float[2] x) => (y) { a = Abs (x) y = Neg (a) }")
    (function,) = model.functions.values()
    with pytest.raises(UsageError, match="Abs 'Abs_0' is in a function that dpl partition wrote"):
        learn_rule(model, list(function.body))


def test_gives_up_where_too_much_looks_alike() -> None:
    """Four of sixty equal readers of one value are named: the search has an end."""
    labels = " ".join(f"v{i} w{i}" for i in (11, 23, 37, 59))
    with pytest.raises(PassError, match="too much in the model is like these nodes"):
        learned(alike(60), labels)
