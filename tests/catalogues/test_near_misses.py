"""The tests of catalogues notice conditions that no example shows."""

from dplcli.language.rule import Example
from tests.catalogues.near_misses import idle_conditions
from tests.support.helpers import rule

TEXT = "g (float[{rank}] x) => (float[{rank}] y) {{ y = Relu (x) }}"
HIT, MISS = Example(before=TEXT.format(rank="2, 2")), Example(before=TEXT.format(rank="2"))


def test_a_condition_that_no_example_needs_is_idle() -> None:
    """The rank is asked for, and no example has another one."""
    pattern = rule("Relu(x)", "x.rank == 2", examples=(HIT,))

    assert idle_conditions([pattern]) == {"x.rank == 2"}


def test_a_condition_that_an_example_needs_is_not() -> None:
    """One rule is enough for a condition that several have."""
    rules = [rule("Relu(x)", "x.rank == 2", examples=made) for made in ((HIT,), (MISS,))]

    assert idle_conditions(rules) == set()


def test_a_condition_is_needed_where_it_chooses() -> None:
    """It need not refuse: it is enough that other nodes are taken without it."""
    text = "g (float[2] x) => (float[2] y) { r = Neg (x) y = Relu (r) }"
    pattern = rule("n = Neg(x)\nRelu(n | x)", "x.name == 'r'", examples=(Example(before=text),))

    assert idle_conditions([pattern]) == set()
