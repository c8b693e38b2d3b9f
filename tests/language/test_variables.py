"""Names that stand for operators, and for several inputs: in patterns and in replacements."""

from __future__ import annotations

import re
from itertools import product
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language import PatternRule, is_call, is_op, rest, wildcard
from dplcli.language.explain import Tracer
from dplcli.language.rule import read_match
from dplcli.language.text import read_pattern
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from dplcli.passes.select import select_matches
from tests.passes.rewriting import rewrite_rule
from tests.support.helpers import (
    SCHEMAS,
    all_bindings,
    check_sound,
    find_solutions,
    model_from_bytes,
    model_from_text,
    pattern_of,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from dplcli.language import Match

# Operator variables.

SAME = """
    f = (Add | Mul)
    f(f(x, y), z)
"""
CHAIN = """g (float[2] a, float[2] b, float[2] c) => (float[2] o)
    { t = INNER (a, b)  o = OUTER (t, c) }"""


def check_in_turn(text: str, pattern: str) -> None:
    """Check that a pattern finds what it finds with each operator in place of a variable."""
    *heads, body = dedent(pattern).strip().splitlines()
    names, classes = zip(*(head.split(" = ") for head in heads), strict=True)
    wanted = set()
    model = model_from_text(text)
    for chosen in product(*(ops.strip("()").split(" | ") for ops in classes)):
        plain = body
        for name, operator in zip(names, chosen, strict=True):
            plain = re.sub(rf"\b{name}\(", f"{operator}(", plain)
        wanted.update(find_solutions(plain, model))
    assert set(find_solutions(pattern, model)) == wanted


@pytest.mark.parametrize(
    ("inner", "outer", "count"),
    [("Add", "Add", 1), ("Mul", "Mul", 1), ("Mul", "Add", 0), ("Add", "Mul", 0), ("Sub", "Sub", 0)],
)
def test_a_variable_is_one_operator_everywhere(inner: str, outer: str, count: int) -> None:
    """Each call of it."""
    text = CHAIN.replace("INNER", inner).replace("OUTER", outer)
    found = all_bindings(SAME, text)
    assert (len(found) > 0) == (count > 0)
    check_in_turn(text, SAME)


def test_another_domain_is_another_operator() -> None:
    """Of one name, too."""
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] a) => (float[2] o) { t = own.Relu (a)  o = Relu (t) }"""
    pattern = """
        f = Relu | own.Relu
        f(f(x))
    """
    assert not all_bindings(pattern, text)
    check_in_turn(text, pattern)
    assert all_bindings(pattern, text.replace("o = Relu", "o = own.Relu"))


def test_a_variable_of_a_class() -> None:
    """``op(kind=…)`` without arguments."""
    pattern = """
        f = op(kind="elementwise")
        Add(f(x), f(y))
    """
    text = "g (float[2] a, float[2] b) => (float[2] o) { s = F (a) t = G (b) o = Add (s, t) }"
    for one, other, count in [("Exp", "Exp", 2), ("Exp", "Tanh", 0), ("Transpose", "Exp", 0)]:
        written = text.replace("F", one).replace("G", other)
        assert len(all_bindings(pattern, written)) == count


@given(
    st.lists(st.sampled_from(["Add", "Mul", "Sub"]), min_size=2, max_size=5),
    st.sampled_from(
        [
            "f = Add | Mul\nf(x, f(y, z))",
            "f = Add | Sub | Mul\nf(f(x, y), f(x, z))",
            "f = Add | Mul\nf(Sub(x, y), f(z, y) | Sub(x, z))",
            "f = Add | Mul\ng = Mul | Sub\nf(g(x, y), g(z, w))",
        ]
    ),
    st.randoms(use_true_random=False),
)
def test_a_variable_is_each_operator_in_turn(
    operators: list[str], pattern: str, random: Random
) -> None:
    """On random chains of binary operators."""
    values = ["a", "b"]
    lines = []
    for number, op_type in enumerate(operators):
        left, right = random.choice(values[-3:]), random.choice(values)
        lines.append(f"v{number} = {op_type} ({left}, {right})")
        values.append(f"v{number}")
    body = "  ".join(lines)
    text = f"g (float[2] a, float[2] b) => (float[2] {values[-1]}) {{ {body} }}"
    check_in_turn(text, pattern)


def test_a_miss_names_the_variable() -> None:
    """The first node that is something else."""
    rule = PatternRule("t", "r", pattern_of(SAME))
    model = model_from_text(CHAIN.replace("INNER", "Add").replace("OUTER", "Mul"))
    (root,) = [node for node in model.graph if node.op_type == "Mul"]
    miss = Tracer(rule).trace(root).mismatch
    assert miss is not None
    assert miss.expected == "the operator that 'f' is elsewhere"
    assert miss.found == "Add 't'"


# Several inputs.


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write *total* as a sum of *parts* numbers."""
    if parts == 1:
        yield (total,)
    else:
        for first in range(total + 1):
            yield from ((first, *rest) for rest in compositions(total - first, parts - 1))


def expected(args: Sequence[str], inputs: Sequence[str]) -> set[str]:
    """Find the bindings by trying every way to cut *inputs*, each a name or ``relu(name)``."""
    takers = [arg for arg in args if arg.startswith("*")]
    spare = len(inputs) - (len(args) - len(takers))
    found: set[str] = set()
    cuts = compositions(spare, len(takers)) if takers else [()] if not spare else []
    for cut in cuts if spare >= 0 else []:
        lengths, place, bound = iter(cut), 0, dict[str, object]()
        for arg in args:
            count = next(lengths) if arg.startswith("*") else 1
            taken = list(inputs[place : place + count])
            place += count
            if arg == "Relu(r)":
                value: object = taken[0].removeprefix("relu_") if "relu_" in taken[0] else None
                name = "r"
            else:
                name, value = (arg, taken) if arg.startswith("*") else (arg, taken[0])
            if value is None or bound.setdefault(name, value) != value:
                break
        else:
            found.add(str(sorted(bound.items())))
    return found


def bindings_of(match: Match) -> str:
    """Write what the names of a match are bound to, as :func:`expected` does."""
    named: dict[str, object] = {name: value.name for name, value in match.bindings.items()}
    named |= {f"*{name}": [v.name for v in several] for name, several in match.variadic.items()}
    return str(sorted(named.items()))


def found_in(args: Sequence[str], inputs: Sequence[str]) -> set[str]:
    """Return the bindings of all solutions of ``Concat(args)`` at ``Concat (inputs)``."""
    relus = "  ".join(f"relu_{name} = Relu ({name})" for name in "abc")
    model = model_from_text(
        f"""g (float[1] a, float[1] b, float[1] c) => (float[n] o)
        {{ {relus}  o = Concat <axis = 0> ({", ".join(inputs)}) }}"""
    )
    rule = PatternRule("t", "r", pattern_of(f"Concat({', '.join(args)})"))
    (root,) = [node for node in model.graph if node.op_type == "Concat"]
    states = rule.matcher.solutions(root)
    return {bindings_of(m) for state in states if (m := read_match(rule, root, state)) is not None}


@given(
    st.lists(st.sampled_from(["*h", "*t", "x", "y", "Relu(r)"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "c", "relu_a", "relu_b"]), min_size=1, max_size=5),
)
def test_agrees_with_brute_force(args: list[str], inputs: list[str]) -> None:
    """Every way to cut the inputs; one name takes the same inputs wherever it stands."""
    if args.count("Relu(r)") > 1:
        args = [arg for arg in args if arg != "Relu(r)"] + ["Relu(r)"]
    assert found_in(args, inputs) == expected(args, inputs)


def test_what_commutes_leaves_the_rest() -> None:
    """Of a Sum any input may be the one that is asked for; the others keep their order."""
    text = """g (float[2] a, float[2] b, float[2] c) => (float[2] o)
        { r = Relu (b)  o = Sum (a, r, c) }"""
    rule = rewrite_rule("Sum(Relu(x), *others)", "Sum(*others, x)")
    model = model_from_text(text)
    (match,) = select_matches(model, [rule]).matches
    assert [value.name for value in match.variadic["others"]] == ["a", "c"]
    assert bindings_of(match) == str([("*others", ["a", "c"]), ("x", "b")])


def test_a_match_without_further_inputs() -> None:
    """No inputs are bound to the name, which is something else than not to take part."""
    text = "g (float[2] a) => (float[2] o) { r = Relu (a) o = Concat <axis = 0> (r) }"
    rule = rewrite_rule("Concat(*h, Relu(x), *t, axis=a)", "Concat(*h, x, *t, axis=a)")
    (match,) = select_matches(model_from_text(text), [rule]).matches
    assert match.variadic == {"h": (), "t": ()}


# Replacements.


@pytest.mark.parametrize(
    ("pattern", "replacement", "where", "before", "after"),
    [
        pytest.param(
            "Concat(*head, Concat(*inner, axis=a), *tail, axis=b)",
            "Concat(*head, *inner, *tail, axis=a)",
            ["a == b"],
            """g (float[2] p, float[2] q, float[2] r, float[2] s) => (float[8] o) {
                 t = Concat <axis = 0> (q, r)
                 o = Concat <axis = 0> (p, t, s)
            }""",
            "(p, q, r, s) => (o) { o = Concat <axis = 0> (p, q, r, s) }",
            id="flattened",
        ),
        pytest.param(
            "Concat(*head, Concat(*inner, axis=a), *tail, axis=b)",
            "Concat(*head, *inner, *tail, axis=a)",
            ["a == b", "len(head) == 1", "all([v.rank == 1 for v in tail])"],
            """g (float[2] p, float[2] q, float[2] r) => (float[6] o) {
                 t = Concat <axis = 0> (q, r)
                 o = Concat <axis = 0> (t, p)
            }""",
            """(p, q, r) => (o) {
                 t = Concat <axis = 0> (q, r)
                 o = Concat <axis = 0> (t, p)
            }""",
            id="a-condition-does-not-hold",
        ),
        pytest.param(
            "f = (Add | Sub)\nf(Mul(x, k), Mul(y, k))",
            "Mul(f(x, y), k)",
            [],
            """g (float[2] p, float[2] q, float[2] k) => (float[2] o) {
                 s = Mul (p, k)  t = Mul (q, k)  o = Sub (s, t)
            }""",
            "(p, q, k) => (o) { o_Sub = Sub (p, q) o = Mul (o_Sub, k) }",
            id="factored",
        ),
        pytest.param(
            "f = Relu | LeakyRelu\nf(Transpose(x, perm=p), **attrs)",
            "Transpose(f(x, **attrs), perm=p)",
            [],
            """g (float[2, 3] x) => (float[3, 2] o) {
                 t = Transpose <perm = [1, 0]> (x)  o = LeakyRelu <alpha = 0.5> (t)
            }""",
            """(x) => (o) {
                 o_LeakyRelu = LeakyRelu <alpha = 0.5> (x)
                 o = Transpose <perm = [1, 0]> (o_LeakyRelu)
            }""",
            id="attributes-go-along",
        ),
        pytest.param(
            "f = Max | Min\nf(x, 2.0)",
            "f(x, 2.0, 2.0)",
            ["x.rank == 1"],
            "g (float[2] x) => (float[2] o) <float c = {2}> { o = Min (x, c) }",
            """(x) => (o) { o = Min (x, o_Constant, o_Constant_1) }""",
            id="numbers-beside-a-variable",
        ),
    ],
)
def test_before_and_after(
    pattern: str, replacement: str, where: list[str], before: str, after: str
) -> None:
    """And the numbers are the same."""
    rule = rewrite_rule(pattern, replacement, *where, once=True)
    model = model_from_text(before)
    rewrite(model, [rule])
    assert print_model(model).split() == after.split()
    check_sound(proto_from_text(before), to_proto(model))


@pytest.mark.parametrize("bias", [True, False])
def test_an_optional_operand(bias: bool) -> None:  # noqa: FBT001  # with or without
    """What took no part is an input that is omitted."""
    rule = rewrite_rule(
        "m = MatMul(x, w)\nAdd(m, b) | Relu(m)", "Relu(Gemm(x, w, optional(b)))", "w.rank == 2"
    )
    last = "o = Add (t, c)" if bias else "o = Relu (t)"
    model = model_from_text(
        f"""g (float[2, 3] a, float[3, 4] b) => (float[2, 4] o) <float[4] c = {{1, 2, 3, 4}}>
        {{ t = MatMul (a, b)  {last} }}"""
    )
    rewrite(model, [rule])
    assert ("Gemm (a, b, c)" if bias else "Gemm (a, b)") in print_model(model)


def test_an_operator_by_name() -> None:
    """A variable is the operator's type where a replacement takes a text."""
    rule = rewrite_rule(
        "f = Relu | LeakyRelu\ny = f(Neg(x), **_)\ny",
        "own.Fused(x, activation=f, alpha=value_or(y.attrs.alpha, None))",
    )
    text = "g (float[2] a) => (float[2] o) { n = Neg (a) o = OP (n) }"
    made = []
    for op in ("Relu", "LeakyRelu"):
        model = model_from_text(text.replace("OP", op))
        rewrite(model, [rule])
        made.append(print_model(model))
    assert 'own.Fused <activation = "Relu"> (a)' in made[0]
    assert 'own.Fused <activation = "LeakyRelu", alpha = 0.01' in made[1]


@pytest.mark.parametrize(
    "replacement", ["own.Fused(x, activation=F)", "own.Fused(x, y=f.attrs.to)", "Clip(x, const(f))"]
)
def test_an_operator_is_no_value(replacement: str) -> None:
    """Nothing but its type is known of it."""
    model = model_from_text("g (float[2] a) => (float[2] o) { n = Neg (a) o = Relu (n) }")
    try:
        rule = rewrite_rule("f = Relu | Abs\nf(Neg(x))", replacement)
    except PatternSyntaxError as error:
        assert "'F'" in str(error)  # noqa: PT017  # either way nothing is made
        return
    assert rewrite(model, [rule]).rounds == 0


SUM = """g (float[2, 4] a, float[2, 4] b, float[4] c) => (float[2, 4] o MORE) {
    s = Add (a, b)  o = LayerNormalization (s, c)  LAST
}"""


@pytest.mark.parametrize(
    ("more", "last", "made"),
    [
        ("", "", "o = own.Skip (a, b, c)"),
        (", float[2, 4] s", "", "o, o_Skip, s = own.Skip (a, b, c)"),
        (", float[2, 4] p", "p = Relu (s)", "o, o_Skip, s = own.Skip (a, b, c)"),
    ],
)
def test_an_output_that_nobody_reads_is_not_made(more: str, last: str, made: str) -> None:
    """What the match makes for itself goes with it."""
    rule = rewrite_rule(
        "s = Add(x, y)\nn = LayerNormalization(s, g, **_)\nn, s",
        "out, _, total = own.Skip(x, y, g)\nout, total",
    )
    model = model_from_text(SUM.replace("MORE", more).replace("LAST", last))
    rewrite(model, [rule])
    assert made in print_model(model)
    assert "Add" not in print_model(model)


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("z = own.F(x)\nz", "o = own.F (a)"),
        ("z, k = own.F(x)\nz", "o = own.F (a)"),
        ("z, _ = own.F(x)\nz", "o, o_F = own.F (a)"),
        ("_, z, _ = own.F(x)\nz", "o_F, o, o_F_1 = own.F (a)"),
        ("z = own.F(x)\nk, _ = z\nk", "o = own.F (a)"),
    ],
)
def test_a_blank_at_the_end_is_an_output(line: str, made: str) -> None:
    """An operator may have to have it, though nobody reads it."""
    model = model_from_text("g (float[2] a) => (float[2] o) { o = Relu (a) }")
    rewrite(model, [rewrite_rule("Relu(x)", line)])
    assert made in print_model(model)


@pytest.mark.parametrize(
    ("source", "read"), [("int32", "a"), ("int64", "o_Cast"), ("bool", "o_Cast")]
)
def test_a_cast_to_the_same_type_is_not_made(source: str, read: str) -> None:
    """Where the type is there already, a replacement reads the value itself."""
    model = model_from_text(f"g ({source}[2] a) => (o) {{ o = Shape (a) }}")
    rewrite(model, [rewrite_rule("Shape(x, **_)", "own.F(Cast(x, to='int32'))")])
    assert f"own.F ({read})" in print_model(model)


def test_a_cast_of_an_unknown_type_is_made() -> None:
    """Nothing tells that it is idle."""
    text = "g (float[2] a) => (o) { t = own.T (a) o = Shape (t) }"
    model = model_from_text(f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> {text}')
    rewrite(model, [rewrite_rule("Shape(x, **_)", "own.F(Cast(x, to='int32'))")])
    assert "own.F (o_Cast)" in print_model(model)


ADDED, PLAIN, CLIPPED = "n = Neg (a) o = Add (n, b)", "o = Neg (a)", "o = Clip (a, b, c)"


@pytest.mark.parametrize(
    ("pattern", "replacement", "body", "made"),
    [
        ("n = Neg(x)\nAdd(n, y) | n", "Sub(y or 0, x)", ADDED, "o = Sub (b, a)"),
        ("n = Neg(x)\nAdd(n, y) | n", "Sub(y or 0, x)", PLAIN, "o = Sub (o_Constant, a)"),
        ("n = Neg(x)\nAdd(n, y) | n", "Sub(y, x) or Neg(x)", ADDED, "o = Sub (b, a)"),
        ("n = Neg(x)\nAdd(n, y) | n", "Sub(y, x) or Mul(x, -1)", PLAIN, "o = Mul (a, o_Constant)"),
        (
            "n = Neg(x)\nAdd(n, y) | n",
            "d = Sub(y, x)\nRelu(d or y or x)",
            PLAIN,
            "o = Relu (a)",
        ),
        (
            "n = Neg(x)\nAdd(n, y) | n",
            "two = const(cast(2, x.dtype))\nz = y or two\nSub(Mul(z, two), x)",
            PLAIN,
            "o_Mul = Mul (o_Constant, o_Constant) o = Sub (o_Mul, a)",
        ),
        (
            "n = Neg(x)\nAdd(n, y) | n",
            "Max(x, optional(y) or 1)",
            PLAIN,
            "",
        ),
        (
            "Clip(x, low | None, high | None)",
            "Sub(x, high or low)",
            "o = Clip (a, , c)",
            "o = Sub (a, c)",
        ),
        ("Clip(x, low | None, high | None)", "Sub(x, high or low)", CLIPPED, "o = Sub (a, c)"),
        (
            "Clip(x, low | None, high | None)",
            "Sub(x, high or low)",
            "o = Clip (a, b)",
            "o = Sub (a, b)",
        ),
        (
            "Clip(x, low | None, high | None)",
            "own.f(x, low or None, high or None, low)",
            "o = Clip (a, b)",
            'o = own.f (a, b, "", b)',
        ),
        (
            "Clip(x, low | None, high | None)",
            "own.f(low or None, high or low or None)",
            "o = Clip (a, , c)",
            'o = own.f ("", c)',
        ),
        (
            "f = Exp | LeakyRelu\nf(x, **attrs) | Neg(x)",
            "f(Neg(x), **attrs) or Abs(x)",
            PLAIN,
            "o = Abs (a)",
        ),
        (
            "f = Exp | LeakyRelu\nf(x, **attrs) | Neg(x)",
            "f(Neg(x), **attrs) or Abs(x)",
            "o = LeakyRelu <alpha = 0.5> (a)",
            "o_Neg = Neg (a) o = LeakyRelu <alpha = 0.5> (o_Neg)",
        ),
        (
            "LeakyRelu(x, alpha=k) | Neg(x)",
            "ThresholdedRelu(x, alpha=k) or Abs(x)",
            PLAIN,
            "o = Abs (a)",
        ),
        (
            "LeakyRelu(x, alpha=k) | Neg(x)",
            "ThresholdedRelu(x, alpha=k) or Abs(x)",
            "o = LeakyRelu <alpha = 0.5> (a)",
            "o = ThresholdedRelu <alpha = 0.5> (a)",
        ),
        (
            "Sum(*rest, Exp(x)) | Neg(x)",
            "Sum(*rest, x) or x",
            "o = Neg (a) w = Abs (o)",
            "w = Abs (a)",
        ),
    ],
)
def test_another_part_where_a_name_took_no_part(
    pattern: str, replacement: str, body: str, made: str
) -> None:
    """`or` takes the first part that has all that it needs."""
    result = "w" if "w = " in body else "o"
    body = body.replace("<alpha", "<alpha: float")
    text = f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[2] a, float b, float c) => (float[2] {result}) {{ {body} }}"""
    if not made:
        with pytest.raises(PatternSyntaxError, match="unknown operator 'optional'"):
            rewrite_rule(pattern, replacement)
        return
    model = model_from_text(text)
    rewrite(model, [rewrite_rule(pattern, replacement, once=True)])
    assert f"{{ {made} }}" in " ".join(print_model(model).split())


def test_no_part_has_what_it_needs() -> None:
    """Then the rule declines, and the last part says why."""
    rule = rewrite_rule("Clip(x, low | None, high | None)", "Sub(x, high or low)")
    model = model_from_text("g (float[2] a) => (float[2] o) { o = Clip (a) }")
    done = rewrite(model, [rule])
    assert done.rounds == 0
    assert "'low' took no part" in str([item.reason for item in done.refused])


def test_parts_that_share_parts_are_quick() -> None:
    """Each is looked at once, though there are two to the 200 ways to it."""
    lines = "".join(f"p{n + 1} = p{n} or p{n}\n" for n in range(200))
    rule = rewrite_rule("Neg(x) | Abs(Exp(y))", f"p0 = Relu(x)\n{lines}p200 or Relu(y)")
    model = model_from_text("g (float[2] a) => (float[2] o) { e = Exp (a) o = Abs (e) }")
    rewrite(model, [rule])
    assert "o = Relu (a)" in print_model(model)


@pytest.mark.parametrize("stated", ["dilations = [1]", "ceil_mode = 0"])
def test_an_attribute_is_left_out(stated: str) -> None:
    """Of those that are carried: `None` says so."""
    pattern = "AveragePool(x, dilations=d, **attrs)"
    rule = rewrite_rule(pattern, "own.Pool(x, **attrs, dilations=None, ceil_mode=None)")
    model = model_from_text(
        f"""g (float[1, 1, 4] a) => (float[1, 1, 3] o)
        {{ o = AveragePool <kernel_shape = [2], {stated}> (a) }}"""
    )
    rewrite(model, [rule])
    assert "own.Pool <kernel_shape = [2]> (a)" in print_model(model)


def test_an_attribute_that_is_left_out_need_not_exist() -> None:
    """One that is given has to; and one that is needed is not there if it is left out."""
    made = "com.microsoft.QLinearAveragePool(a, s, z, t, **attrs, dilations={})"
    pattern = "own.F(AveragePool(a, **attrs), s, z, t)"
    rewrite_rule(pattern, made.format(None))
    with pytest.raises(PatternSyntaxError, match="has no attribute 'dilations'"):
        rewrite_rule(pattern, made.format("[1, 1]"))
    with pytest.raises(PatternSyntaxError, match="needs the attribute 'to'"):
        rewrite_rule("Cast(x, to=t)", "Cast(x, to=None)")


@pytest.mark.parametrize(
    ("weights", "made"),
    [
        ("float s = {2}, uint8 z = {3}", "(a, s, z, a, s, z, s, z)"),
        ("float[1] s = {2}, uint8[1] z = {3}", "(a, c, c_1, a, c, c_1, c, c_1)"),
        ("float[2] s = {2, 3}, uint8 z = {3}", ""),
        ("float s = {2}", ""),
    ],
    ids=["scalars", "vectors of one", "a vector of two", "a computed vector"],
)
def test_scalars_that_an_operator_wants(weights: str, made: str) -> None:
    """Onnxruntime adds up no scales in vectors, so a constant one becomes a scalar."""
    rule = rewrite_rule("own.Add(a, s, z)", "com.microsoft.QLinearAdd(a, s, z, a, s, z, s, z)")
    given = "" if "z" in weights else ", uint8[1] z"
    model = model_from_text(
        f"""<ir_version: 8, opset_import: ["": 17, "own": 1, "com.microsoft": 1]>
        g (uint8[2] a{given}) => (uint8[2] o) <{weights}> {{ o = own.Add (a, s, z) }}"""
    )
    done = rewrite(model, [rule])
    if made:
        assert f"QLinearAdd {made}" in print_model(model).replace("o_Constant", "c")
    else:
        assert "QLinearAdd takes scalars" in str([item.reason for item in done.refused])


def test_inputs_of_a_side_that_was_not_taken() -> None:
    """A replacement that needs them declines."""
    rule = rewrite_rule("Relu(Concat(*h, axis=0) | Neg(x))", "Concat(*h, axis=0)")
    model = model_from_text("g (float[2] a) => (float[2] o) { n = Neg (a) o = Relu (n) }")
    done = rewrite(model, [rule])
    assert done.rounds == 0
    assert "*h took no part" in str([item.reason for item in done.refused])


# The text.


@pytest.mark.parametrize(
    "text",
    [
        "Concat(*head, x, *tail)",
        "Concat(*_, x)",
        "f = (Add | com.microsoft.BiasAdd)\nf(x, ...)",
        'f = op(kind="elementwise")\nf(f(x))',
        "f = Relu\nf(x)",
        "f = (Add | Mul)\noptional(f)(x, y)",
    ],
)
def test_what_is_written_reads_back(text: str) -> None:
    """As an equal pattern, in the same words."""
    read = pattern_of(text)
    assert repr(read) == text
    assert pattern_of(repr(read)) == read


def test_the_same_in_python() -> None:
    """`named` and `variadic`."""
    f = (is_op("Add") | is_op("Mul")).named("f")
    assert f(f(wildcard("x"), wildcard("y")), 2.0) == pattern_of("f = Add | Mul\nf(f(x, y), 2.0)")
    made = is_op("Concat")(rest("head"), wildcard("x"), rest(), axis=0)
    assert made == pattern_of("Concat(*head, x, *_, axis=0)")
    with pytest.raises(ValueError, match="not for functions"):
        is_call("f").named("f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f = Add | Mul\nf", "the operator 'f' needs arguments"),
        ("f = Add | Mul\nAdd(f, x)", "the operator 'f' needs arguments"),
        ("f = Add | Mul\nf = Sub\nf(x, y)", "'f' has a meaning already"),
        ("f = Add | Mull\nf(x, y)", "unknown operator 'Mull'"),
        ("f = Add | Mul\nf(x, y, z)", "takes at most 2 inputs"),
        ("f = Add | Mul\nf(*f, x)", "'f' has a meaning already"),
        ("Add(x, Concat(*x))", "'x' stands for one value and for several"),
        ("Add(Concat(*x), x)", "'x' stands for one value and for several"),
        ("Concat(*head, ...)", r"write \*_ instead of"),
        ("Concat(*Relu(x))", "only a name can take several inputs"),
        ("Concat(*Relu)", "'Relu' has a meaning already"),
        ("*x", "is not a pattern"),
        ("repeat(optional(Relu)(_), x)", "may be no node"),
        ("repeat(Add(~h, Relu(_)), h=x)", "no value is h"),
        ("repeat(Relu(_), x, y)", "a chain of steps ends in one value"),
        ("repeat(Relu(_), x, h=y)", "a chain of steps ends in one value"),
        ("y = Relu(x)\nConcat(*y)", "'y' has a meaning already"),
    ],
)
def test_misuse_is_refused(text: str, message: str) -> None:
    """With a message that says what is wrong."""
    with pytest.raises(PatternSyntaxError, match=message):
        pattern_of(text)


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ("Concat(*head, x)", "Relu(head)", "several inputs, not one value"),
        ("Concat(*head, x)", "head", "several inputs, not one value"),
        ("Concat(*head, x)", "Concat(*tail, axis=0)", "the pattern binds no"),
        ("Concat(*head, x)", "Concat(*x, axis=0)", "the pattern binds no"),
        ("f = Add | Mul\nf(x, y)", "f", "the operator 'f' needs arguments"),
        ("f = Add | Mul\nf(x, y)", "f(x)", "takes 2 inputs, not 1"),
        ("f = Add | Mul\nf(x, y)", "f(x, y, axis=1)", None),
        ("f = Relu | LeakyRelu\nf(x)", "f(x, alpha=1.0)", "Relu has no attribute 'alpha'"),
        ("f = Add | Mul\nf(x, y)", "g(x, y)", "unknown operator 'g'"),
        ("Add(x, y)", "Sub(*x, y)", "the pattern binds no"),
        ("Add(x, y)", "Sub(x, optional(z))", "uses the name 'z'"),
        ("Add(x, y)", "Sub(x, optional(Neg(y)))", "takes a name of the pattern"),
        ("z = Add(x, y)\nz", "Sub(x, optional(z))", "reads 'z', which it replaces"),
        ("z = Add(x, y)\nz", "Sub(x, y) or z", "reads 'z', which it replaces"),
        ("z = Add(x, y)\nz", "Sub(x, y or z)", "reads 'z', which it replaces"),
        ("Add(x, y)", "Sub(x, 1 or y)", "'1' is always there, so 'or' has no effect"),
        ("Add(x, y)", "c = const(sqrt(2))\nSub(x, c or y)", "'c' is always there"),
        ("Add(x, const(y))", "Sub(x, const(value_or(y, 3)) or 1)", "is always there"),
        ("Add(x, y)", "x or None", "'None' is not a value"),
        ("Add(x, y)", "z = y or None\nSub(x, z)", "'None' is not a value"),
        ("Add(x, y)", "Sub(x, None or y)", "'None' is not a value"),
        ("Add(x, y)", "Sub(x, y and 1)", "is not a value"),
        ("Add(x, y)", "Sub(x, z or 1)", "uses the name 'z'"),
        ("Add(x, y)", "Sub(x, y or True)", "is not a value"),
        ("Add(x, *y)", "Sub(x, y or 1)", "several inputs, not one value"),
    ],
)
def test_misuse_in_a_replacement_is_refused(
    pattern: str, replacement: str, message: str | None
) -> None:
    """Axis was an attribute of Add once, so it passes."""
    if message is None:
        rewrite_rule(pattern, replacement)
        return
    with pytest.raises(PatternSyntaxError, match=message):
        rewrite_rule(pattern, replacement)


def test_unused_variables_are_told() -> None:
    """As lines are that a pattern does not need."""
    assert read_pattern("f = Add | Mul\ny = Relu(x)\nNeg(x)", SCHEMAS)[1] == ("y", "f")


def test_a_model_with_many_inputs_is_quick() -> None:
    """Of 300 inputs each may be the one that is looked for: 300 ways, not more."""
    names = [f"v{n}" for n in range(300)]
    listed = ", ".join(f"float[1] {name}" for name in names)
    text = f"g ({listed}) => (float[n] o) {{ o = Concat <axis = 0> ({', '.join(names)}) }}"
    pattern = pattern_of("Concat(*head, Relu(x), *tail)")
    rule = PatternRule("t", "r", pattern)
    model = model_from_bytes(proto_from_text(text).SerializeToString())
    assert not select_matches(model, [rule]).matches
    assert not select_matches(model, [rule]).refused


# Each of several inputs.


ROW = """g (float[2] a, float[2] b) => (float[n] o, float[2] q) {
    r = Relu (a) s = Relu (b) n = Neg (r)
    o = Concat <axis = 0> (r, s, n, r) q = Sum (r, s, r) }"""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("Sum(*parts.each(Relu(_)))", ["q: q r s"], id="all"),
        pytest.param("Concat(*parts.each(Relu(_)), axis=0)", [], id="one-is-not"),
        pytest.param(
            "Concat(*parts.each(Relu(_)), Neg(_), *_, axis=0)", ["o: n o r s"], id="those-before"
        ),
        pytest.param(
            "Concat(*parts.each(Neg(_)), *_, axis=0)", ["o: o"], id="none-are-each-of-any-kind"
        ),
        pytest.param("Sum(*_.each(Relu(x)), y)", ["q: q r", "q: q r s"], id="in-any-order"),
        pytest.param("Sum(*_.each(~Neg(_)))", ["q: q"], id="what-none-is"),
        pytest.param("Sum(*_.each(const()))", [], id="no-constants"),
    ],
)
def test_each_of_several_inputs(pattern: str, found: list[str]) -> None:
    """What is said of one is said of each, with names of its own."""
    solutions = find_solutions(pattern, model_from_text(ROW))
    assert sorted({f"{s.root}: {' '.join(s.nodes)}" for s in solutions}) == found
    assert repr(pattern_of(repr(pattern_of(pattern)))) == repr(pattern_of(pattern))


def test_each_of_several_inputs_in_python() -> None:
    """The same pattern."""
    made = is_op("Sum")(rest("parts").each(is_op("Relu")(wildcard())))
    assert made == pattern_of("Sum(*parts.each(Relu(_)))")


def test_what_each_input_is_stays_inside() -> None:
    """A name in it would mean several things."""
    with pytest.raises(PatternSyntaxError, match="matched anew each time"):
        pattern_of("Add(Sum(*_.each(Relu(x))), x)")
    with pytest.raises(PatternSyntaxError, match="only a name can take several") as caught:
        pattern_of("Sum(*Relu(x).every(y))")
    assert caught.value.hint == "write *name, *_ or *name.each(Relu(_))"


def test_a_row_of_relus_is_one() -> None:
    """As a rule: no Relu behind a Concat of what is not negative."""
    rule = rewrite_rule(
        "y = Concat(*parts.each(Relu(_) | Sigmoid(_)), axis=a)\nRelu(y)", "Concat(*parts, axis=a)"
    )
    for last, count in (("Sigmoid (b)", 0), ("Neg (b)", 1)):
        text = f"""g (float[2] a, float[2] b) => (float[4] o) {{
            r = Relu (a) s = {last} c = Concat <axis = 0> (r, s) o = Relu (c) }}"""
        model = model_from_text(text)
        rewrite(model, [rule])
        assert print_model(model).count("o = Relu") == count
        check_sound(proto_from_text(text), to_proto(model))


# An operator of any domain.


@pytest.mark.parametrize(
    ("pattern", "roots"),
    [
        ('op("Gelu", domain=any)(x)', ["m", "n", "r"]),
        ('op("Gelu", domain="com.microsoft")(x)', ["n"]),
        ('op("Gelu", domain="ai.onnx")(x)', ["m"]),
        ('(op("Gelu", domain=any) | Relu)(x)', ["m", "n", "r", "s"]),
        ('op("Gelu", domain=any)(op("Gelu", domain=any)(x))', ["n", "r"]),
        ('f = op("Gelu", domain=any)\nf(f(x))', []),
        ('op("Gelu", domain=any)(x, y)', []),
        ('op("Elu", domain=any)(x)', []),
    ],
)
def test_an_operator_of_any_domain(pattern: str, roots: list[str]) -> None:
    """By its name alone; a variable is one operator, of one domain."""
    text = """<ir_version: 8, opset_import: ["" : 20, "com.microsoft" : 1, "own" : 1]>
        g (float[2] a) => (float[2] s) {
        m = Gelu (a) n = com.microsoft.Gelu (m) r = own.Gelu (n) s = Relu (r) }"""
    found = find_solutions(pattern, model_from_text(text))
    assert [solution.root for solution in found] == roots
    assert repr(pattern_of(repr(pattern_of(pattern)))) == repr(pattern_of(pattern))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('op("Geluu", domain="com.microsoft")(x)', "unknown operator 'Geluu'"),
        ("op(Gelu, domain=any)(x)", "in quotes"),
        ('op("Gelu", domain=all)(x)', "in quotes"),
        ('op("Gelu")(x)', "domain=any"),
    ],
)
def test_what_is_no_operator_of_a_domain(text: str, message: str) -> None:
    """A name that the domain does not have, where all are known."""
    with pytest.raises(PatternSyntaxError, match=message):
        pattern_of(text)


# Attributes that are bound, compared.


@pytest.mark.parametrize(
    ("second", "is_done"),
    [("<alpha = 0.5>", True), ("<alpha = 0.25>", False), ("", False)],
)
def test_attributes_of_two_nodes_are_compared(second: str, is_done: bool) -> None:  # noqa: FBT001  # of a case
    """Those that are compared are not lost, so only one need be carried on."""
    pattern = "f = Elu | LeakyRelu\nConcat(f(x, **p), f(y, **q), axis=a)"
    rule = rewrite_rule(pattern, "f(Concat(x, y, axis=a), **p)", "p == q")
    text = f"""g (float[2] a, float[2] b) => (float[4] o) {{
        r = Elu <alpha = 0.5> (a) s = Elu {second} (b) o = Concat <axis = 0> (r, s) }}"""
    model = model_from_text(text)
    done = rewrite(model, [rule])
    assert bool(done.applications) is is_done
    check_sound(proto_from_text(text), to_proto(model))
    reasons = [] if is_done else ["'p == q' does not hold"]
    assert [item.reason for item in done.refused] == reasons
