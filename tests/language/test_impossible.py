"""A pattern that can never match is an error where it is loaded, which says what to write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from dplcli import language
from dplcli.catalog import read_catalogs
from dplcli.catalog.compiled import read_compiled
from dplcli.catalog.python import load_python_catalog
from dplcli.errors import CatalogError, PatternSyntaxError
from dplcli.language import DFPattern, is_const, is_op, wildcard
from tests.support.helpers import SCHEMAS, catalog_rules, pattern_of, rule, selected, taken

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = "g (float[2,3] a) => (float[2,3] o) { r = Relu (a) o = Add (r, a) }"
x = wildcard("x")


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "_",
        "const(w)",
        "2.0",
        "[0, -1]",
        'input("a")',
        "~Relu(x)",
        "x.has_rank(2)",
        "x & y",
        "x | const(w)",
        "Relu(x).used_by(y)",
        "dominates(Relu(x), _, y)",
        "Relu(x), y.has_rank(1)",
    ],
)
def test_an_output_is_made_by_a_node(text: str) -> None:
    """A leaf is no root, nor is what stands for a leaf; the pattern itself can be a part."""
    with pytest.raises(PatternSyntaxError, match="made by no node of the pattern") as caught:
        rule(pattern_of(text))
    assert caught.value.hint is not None
    assert "Relu(" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "optional(Relu)(x)",
        "x | Relu(x)",
        "x & Relu(_)",
        "Relu(x).has_rank(2)",
        "repeat(Relu, x)",
        "x.used_by(Relu(_))",
        "y, i = MaxPool(x)\ny, i",
    ],
)
def test_a_node_on_one_of_several_ways_is_enough(text: str) -> None:
    """What may match is no error."""
    rule(pattern_of(text))


def test_a_catalogue_says_where() -> None:
    """With file, line, column and a caret."""
    with pytest.raises(CatalogError, match=r"rules\.yaml:3:\d+: rule 'r': 'x' is made|x is made"):
        catalog_rules("dpl: 1\ntarget: t\npatterns: [{name: r, pattern: x}]\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Relu(x) & Neg(y)", "both sides of & are nodes of their own"),
        ("const(w) & input()", "no value is a constant and an input"),
        ("Add(x, const(w) & Relu(y))", "no value is a constant and a node"),
        ("Add(x, input() & y[1])\n".replace("y[1]", "Split(y)[1]"), "an input and a node"),
        ('Relu(x.has_dtype("float32").has_dtype("int64"))', "element types"),
        ("Relu(x.has_rank(2, 3).has_shape(n, 4, 4, 1))", "ranks"),
        ("Relu(x.has_rank(4) & x.has_rank(3))", "ranks"),
        ('Relu(x.has_dtype("int8") & x.has_dtype("int32"))', "element types"),
        ("Relu((x.has_rank(4) | x.has_rank(5)) & x.has_shape(3, n))", "ranks"),
        ("Relu(x.has_shape(n, 3) & x.has_shape(m, 4))", "sizes of dimension 1"),
        ("Add(x.has_rank(4), Neg(x.has_rank(3)))", "ranks"),
        ('Relu(is_value([1, 2], dtype="int8").has_dtype("int64"))', "element types"),
        ("m = Mul(x, y)\nm & ~m.used_by(Relu(_))", "no value reads itself"),
        ("Relu(x & ~x.used_by(Neg(_)).used_by(Exp(_)))", "no value reads itself"),
        ("m = Mul(x, y)\nm & m.used_by(Relu(_))", "no value reads itself"),
        ("Relu(x)[1]", "Relu has no output 1"),
        ("y, z = Relu(x)\ny", "Relu has no output 1"),
        ("Softmax(x, axis=1.5)", "Softmax: axis is int, not 1.5"),
        ("Conv(x, w, strides=2)", "Conv: strides is ints, not 2"),
    ],
)
def test_contradictions_are_errors(text: str, words: str) -> None:
    """Parts that no value or no node can be."""
    with pytest.raises(PatternSyntaxError, match=words):
        rule(pattern_of(text))


def test_what_is_not_followed_is_said_otherwise() -> None:
    """An edge stands for the node that reads, so its negation says nothing of what is read."""
    with pytest.raises(PatternSyntaxError) as caught:
        rule(pattern_of("m = Mul(x, y)\nm & ~m.used_by(Relu(_))"))
    assert caught.value.hint == "write m.not_used_by(Relu(_))"
    assert (caught.value.line, caught.value.column) == (2, 4)


@pytest.mark.parametrize(
    "text",
    [
        "Relu(x & const(w))",
        "Relu(Constant() & const(w))",
        "Identity(x) & Relu(y)",
        "Relu(Identity(x) & const(w))",
        "Relu((x | const(w)) & input())",
        "Relu(~Neg(y) & Exp(x))",
        'Relu(x.has_dtype("float32").has_rank(2))',
        "Relu(x.has_rank(2, 3).has_rank(3, 4))",
        "Relu(x.has_rank(2, 3) & x.has_rank(3))",
        'Relu(x.has_dtype("int8") | x.has_dtype("int32"))',
        "Relu(x.has_shape(n, 3) & x.has_shape(n, 3))",
        "Add(x.has_rank(4), y.has_rank(3))",
        "Add(x.has_rank(4), Neg(x) | Exp(x.has_rank(3)))",
        "Add(x.has_rank(4), ~x.has_rank(3))",
        "m = Mul(x, y)\nm.not_used_by(Relu(_))",
        "m = Mul(x, y)\nn = Relu(m)\nn & ~m.used_by(Neg(_))",
        "Split(x)[1]",
        "own.F(x)[7]",
        'Cast(x, to="float16")',
        "LeakyRelu(x, alpha=1)",
    ],
)
def test_what_is_possible_is_none(text: str) -> None:
    """A near miss for each of them."""
    rule(pattern_of(text))


@pytest.mark.parametrize(
    "make",
    [
        lambda op: language.outputs(op, is_op("Neg")(x)),
        lambda op: is_op("Neg")(x).used_by(op),
        lambda op: language.dominates(op, None, is_op("Neg")(x)),
        lambda op: is_op("Neg")(x).same_shape_as(op),
        is_op("Neg"),
        lambda op: op | is_op("Neg")(x),
        lambda op: is_op("Neg")(x) | op,
    ],
)
def test_an_operator_without_inputs_is_no_part(make: object) -> None:
    """Wherever it stands, and the message writes the call out."""
    assert callable(make)

    with pytest.raises(TypeError, match=r'is_op\("Relu"\)\(x\) is a node that reads x'):
        make(is_op("Relu"))


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("'Relu(x)'", "is 'Relu(x)', which is no pattern", "is one"),
        ('is_op("Relu")(wildcard("x")), where=["x.rank == 2"]', "is a text", "Condition("),
        ('wildcard("x")', "x is made by no node", "Relu(x)"),
        ('is_op("Relu")', "is an operator that is not called", 'is_op("Relu")(x)'),
        ('is_op("Relu")(is_op("Neg"))', 'is_op("Neg")(x) is a node that reads x', ""),
    ],
)
def test_a_catalogue_in_python_says_where(
    tmp_path: Path, pattern: str, message: str, hint: str
) -> None:
    """The line is the author's own, and the hint is kept."""
    path = tmp_path / "rules.py"
    rules = f"CATALOG = [\n    PatternRule('t', 'r', {pattern})\n]\n"
    path.write_text(f"from dplcli.language import PatternRule, is_op, wildcard\n\n{rules}")

    with pytest.raises(CatalogError, match=r"\(line 4 of rules\.py\)") as caught:
        load_python_catalog(path)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (is_op("Relu")(x)[1].has_rank(2), "Relu has no output 1"),
        (is_op("Relux")(x), "unknown operator 'Relux'"),
        (is_op("Conv")(x, x, strid=[1, 1]), "Conv has no attribute 'strid'"),
        (is_op("Conv")(x, x, strides=1), "Conv: strides is ints, not 1"),
        (is_op("Relu")(is_op("Sub")(x)), "Sub takes at least 2 inputs, not 1"),
        (language.repeat("Add", x, 1.0, 2.0, min=1), "Add takes at most 2 inputs, not 3"),
    ],
)
def test_rules_in_python_are_held_against_the_schemas(pattern: DFPattern, message: str) -> None:
    """As those of a text are, when they are named for a run."""
    for read in (read_catalogs, partial(read_compiled, readers={})):
        with pytest.raises(CatalogError, match=r"rule 't\.r': ") as caught:
            read([rule(pattern)], SCHEMAS)
        assert message in caught.value.message


def test_operators_that_nobody_knows_may_have_anything() -> None:
    """Nor is an attribute of another opset refused, nor what a function is called with."""
    known = is_op("BatchNormalization")(x, x, x, x, x, spatial=1)
    own = is_op("F", "own")(language.is_call("f")(x, x, x)[7], known, strid=1)[900]

    assert read_catalogs([rule(own)], SCHEMAS).patterns


@pytest.mark.parametrize("pattern", [x, is_const("w"), ~is_op("Relu")(x)])
def test_a_rule_in_python_is_told_at_once(pattern: DFPattern) -> None:
    """Not only when it is matched."""
    with pytest.raises(PatternSyntaxError, match="made by no node"):
        rule(pattern)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [("is_op('Relu')(x)", "Relu(x)"), ("is_op('Relu')", "Relu(x)"), ("Relu(wildcard())", "is x")],
)
def test_the_words_of_python_are_no_operators_of_a_text(text: str, spelling: str) -> None:
    """The hint says how a text has them."""
    with pytest.raises(PatternSyntaxError) as caught:
        pattern_of(text)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(spelling)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Relu(x).has_rnak(2)", "did you mean 'has_rank'?"),
        ("Relu(x) and Neg(x)", "p & q"),
        ("[Relu(x)]", "without brackets: Relu(x), Neg(y)"),
        ("Cast(x, to=float16)", 'write "float16"'),
    ],
)
def test_the_hint_says_what_to_write(text: str, words: str) -> None:
    """Where the words are nearly those of the language."""
    with pytest.raises(PatternSyntaxError) as caught:
        pattern_of(text)
    assert words in str(caught.value.hint)


def test_the_pattern_that_was_meant_matches() -> None:
    """What the hint says to write."""
    assert taken(selected(rule("Relu(x)"), GRAPH)) == ["r: r"]
