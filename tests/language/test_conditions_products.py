"""``where``: what an expression may ask of matrix products and of what stands round them."""

from __future__ import annotations

import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import Condition
from tests.support.helpers import describe_refusals, rule, selected, taken

MATMUL = "p = MatMul(x, w)\nRelu(p)"
GEMM = "p = Gemm(x, w)\nRelu(p)"
OPSET = '<ir_version: 10, opset_import: ["": 21]>'


def verdict(pattern: str, condition: str, text: str) -> str:
    """Return "yes", "no", or what is not known."""
    selection = selected(rule(pattern, condition), text)
    if taken(selection):
        return "yes"
    (reason,) = describe_refusals(selection)
    assert condition in reason
    return "no" if reason.endswith("does not hold") else reason.rpartition(": ")[2]


def matmul(x: str, w: str) -> str:
    """Write a model with one MatMul of operands of these types."""
    return f"g ({x} a, {w} b) => (o) {{ m = MatMul (a, b) o = Relu (m) }}"


@pytest.mark.parametrize(
    ("x", "w", "condition", "expected"),
    [
        ("float[4,8]", "float[8,6]", "depth(p) == 8 and columns(p) == 6", "yes"),
        ("float[4,8]", "float[K,6]", "depth(p) == 8", "yes"),
        ("float[4,K]", "float[8,6]", "depth(p) == 8", "yes"),
        (
            "float[4,K]",
            "float[K,6]",
            "depth(p) == 8",
            "the depth of the product 'm' is not a number, since the file leaves 'K' open",
        ),
        ("float[4,8]", "float[8,N]", "columns(p) == 8", "the number of columns of 'm' is no"),
        ("float[4,K]", "float[8,6]", "has_depth(p)", "yes"),
        ("float[4,0]", "float[0,6]", "has_depth(p)", "no"),
        ("float[H,S,S]", "float[H,S,6]", "has_depth(p)", "yes"),
        ("float[4,H]", "float[H,6]", "has_depth(p)", "the depth of the product 'm' is"),
        ("float[4,8]", "float[8]", "depth(p) == 8", "an operand of 'm' is a vector"),
        ("float[]", "float[8,6]", "depth(p) == 8", "the rank of an operand of 'm' is unknown"),
        ("float[2,4,8]", "float[2,8,6]", "batches_agree(p)", "yes"),
        ("float[B,4,8]", "float[B,8,6]", "batches_agree(p)", "yes"),
        ("float[B,4,8]", "float[C,8,6]", "batches_agree(p)", "no"),
        ("float[2,4,8]", "float[1,8,6]", "batches_agree(p)", "no"),
        ("float[1,4,8]", "float[8,6]", "batches_agree(p)", "yes"),
        ("float[4,8]", "float[1,8,6]", "batches_agree(p)", "yes"),
        ("float[2,1,4,8]", "float[1,2,8,6]", "batches_agree(p)", "no"),
        ("float[2,4,8]", "float[8,6]", "right_is_matrix(p)", "yes"),
        ("float[2,4,8]", "float[1,1,8,6]", "right_is_matrix(p)", "yes"),
        ("float[2,4,8]", "float[B,8,6]", "right_is_matrix(p)", "no"),
        ("float[1,4,8]", "float[3,8,6]", "left_is_matrix(p)", "yes"),
        ("float[3,4,8]", "float[8,6]", "left_is_matrix(p)", "no"),
        ("float[4,8]", "float[8,6]", "depth(x) == 8", "'a' is not a product of matrices"),
    ],
)
def test_extents_of_matmul(x: str, w: str, condition: str, expected: str) -> None:
    """Extents are read off both operands; a symbol is equal to itself and to nothing else."""
    assert verdict(MATMUL, condition, matmul(x, w)).startswith(expected)


@pytest.mark.parametrize(
    ("attributes", "x", "w", "expected"),
    [
        ("", "float[4,8]", "float[8,6]", (8, 6)),
        ("<transA = 1>", "float[8,4]", "float[8,6]", (8, 6)),
        ("<transB = 1>", "float[4,8]", "float[6,8]", (8, 6)),
        ("<transA = 1, transB = 1>", "float[8,4]", "float[6,8]", (8, 6)),
        ("<transB = 1>", "float[4,K]", "float[6,8]", (8, 6)),
    ],
)
def test_extents_of_gemm(attributes: str, x: str, w: str, expected: tuple[int, int]) -> None:
    """The operands of a Gemm are taken as it reads them."""
    text = f"g ({x} a, {w} b) => (o) {{ m = Gemm {attributes} (a, b) o = Relu (m) }}"
    assert verdict(GEMM, f"(depth(p), columns(p)) == {expected}", text) == "yes"


@pytest.mark.parametrize(
    ("x", "b", "expected"),
    [
        ("float[4,8]", "float[6]", "yes"),
        ("float[4,8]", "float[1,6]", "yes"),
        ("float[2,4,8]", "float[1,1,6]", "yes"),
        ("float[4,8]", "float[1,1,6]", "no"),
        ("float[4,8]", "float[4,6]", "no"),
        ("float[4,8]", "float[4,1]", "no"),
        ("float[4,8]", "float[1]", "no"),
        ("float[4,8]", "float", "no"),
        ("float[4,8]", "float[N]", "no"),
        ("float[4,8]", "float[]", "the rank of 'b' is unknown"),
    ],
)
def test_per_column(x: str, b: str, expected: str) -> None:
    """A bias has one number per column, and does not widen the product."""
    text = f"g ({x} a, float[8,6] w, {b} b) => (o) {{ m = MatMul (a, w) o = Add (m, b) }}"
    assert verdict("p = MatMul(x, w)\nAdd(p, b)", "per_column(b, p)", text) == expected


@pytest.mark.parametrize(
    ("dims", "perm", "expected"),
    [
        ("[6,8]", "", "yes"),
        ("[6,8]", "<perm = [1, 0]>", "yes"),
        ("[6,8]", "<perm = [0, 1]>", "no"),
        ("[2,6,8]", "<perm = [0, 2, 1]>", "yes"),
        ("[2,6,8]", "<perm = [2, 1, 0]>", "no"),
        ("[2,6,8]", "", "no"),
        ("[2,3,6,8]", "<perm = [0, 1, 3, 2]>", "yes"),
        ("[2,3,6,8]", "<perm = [1, 0, 3, 2]>", "no"),
        ("[8]", "<perm = [0]>", "no"),
        ("[]", "", "the order of the axes of 't' is not known"),
    ],
)
def test_transposes_last_two(dims: str, perm: str, expected: str) -> None:
    """Only the last two axes are swapped; no perm is the reversal, which is that for a matrix."""
    text = f"g (float{dims} a) => (o) {{ t = Transpose {perm} (a) o = Relu (t) }}"
    assert verdict("t = Transpose(x)\nRelu(t)", "transposes_last_two(t)", text) == expected


@pytest.mark.parametrize(
    ("inputs", "zero", "expected"),
    [
        ("a, w", "", "yes"),
        ("a, w, z", "int8 z = {0}", "yes"),
        ("a, w, z", "int8 z = {1}", "no"),
        ('a, w, "", z', "int8[6] z = {0, 0, 0, 0, 0, 0}", "yes"),
        ('a, w, "", z', "int8[6] z = {0, 0, 0, 0, 1, 0}", "no"),
        ("a, w, k", "", "'k' is not a constant"),
    ],
)
def test_symmetric(inputs: str, zero: str, expected: str) -> None:
    """Zero points are absent, or constants that are zero."""
    text = f"""g (int8[4,8] a, int8[8,6] w, int8 k) => (o) <{zero}> {{
        m = MatMulInteger ({inputs}) o = Abs (m) }}"""
    pattern = "p = MatMulInteger(x, w, ...)\nAbs(p)"
    assert verdict(pattern, "symmetric(p)", text) == expected


READ = {
    "MatMul": "m = MatMul (a, d)",
    "Transpose": "t = Transpose (d) m = MatMul (a, t)",
    "Gemm": "m = Gemm <transB = 1> (a, d)",
    "Gemm of Transpose": "t = Transpose (d) m = Gemm <transB = 1> (a, t)",
}


@pytest.mark.parametrize(
    ("weight", "scale", "attributes", "read", "expected"),
    [
        ("[8,6]", "[6]", "axis = 1", "MatMul", "yes"),
        ("[8,6]", "[6]", "axis = -1", "MatMul", "yes"),
        ("[8,6]", "[8]", "axis = 0", "MatMul", "no"),
        ("[6,6]", "[6]", "axis = 0", "MatMul", "no"),
        ("[8,6]", "[2,6]", "axis = 0, block_size = 4", "MatMul", "yes"),
        ("[8,6]", "[8,2]", "axis = 1, block_size = 3", "MatMul", "no"),
        ("[8,6]", "", "axis = 1", "MatMul", "no"),
        ("[8,6]", "[]", "axis = 1", "MatMul", "the shapes of 's' and the weight are not known"),
        ("[6,8]", "[6]", "axis = 0", "Transpose", "yes"),
        ("[6,8]", "[8]", "axis = 1", "Transpose", "no"),
        ("[6,8]", "[6,2]", "axis = 1, block_size = 4", "Transpose", "yes"),
        ("[6,8]", "[6]", "axis = 0", "Gemm", "yes"),
        ("[8,8]", "[8]", "axis = 1", "Gemm", "no"),
        ("[8,6]", "[6]", "axis = 1", "Gemm of Transpose", "yes"),
        ("[8,8]", "[8]", "axis = 0", "Gemm of Transpose", "no"),
    ],
)
def test_scales_columns(weight: str, scale: str, attributes: str, read: str, expected: str) -> None:
    """A scale is for a column of the product or a block of one, however the weight is laid out."""
    text = f"""{OPSET} g (float[4,8] a, int8{weight} w, float{scale} s) => (o) {{
        d = DequantizeLinear <{attributes}> (w, s) {READ[read]} o = Relu (m) }}"""
    pattern = """d = DequantizeLinear(q, s)
        t = d | Transpose(d)
        p = (MatMul | Gemm)(x, t)
        Relu(p)"""
    assert verdict(pattern.replace("        ", ""), "scales_columns(s, p)", text) == expected


def test_scales_of_packed_weights() -> None:
    """MatMulNBits states depth and columns, and has no scales but those of blocks of columns."""
    text = """g (float[2,4,32] a, uint8[6,2,8] w, float[12] s) => (o) {
        m = com.microsoft.MatMulNBits <K = 32, N = 6, bits = 4, block_size = 16> (a, w, s)
        o = Relu (m) }"""
    pattern = "p = com.microsoft.MatMulNBits(x, q, s)\nRelu(p)"
    assert verdict(pattern, "scales_columns(s, p)", text) == "yes"
    assert verdict(pattern, "depth(p) == 32 and columns(p) == 6", text) == "yes"
    assert verdict(pattern, "right_is_matrix(p)", text) == "yes"


@pytest.mark.parametrize(
    ("outputs", "body", "expected"),
    [
        ("o", "", "yes"),
        ("o, m", "", "no"),
        ("o, n", "n = Neg (m)", "no"),
        ("o, n", "n = Neg (y)", "yes"),
    ],
)
def test_only_output(outputs: str, body: str, expected: str) -> None:
    """What is read or returned of a node's other outputs counts."""
    text = f"""g (float[4,8] a, float[8] s, float[8] b) => ({outputs}) {{
        y, m = LayerNormalization (a, s, b) {body} o = Relu (y) }}"""
    rules = rule("t = LayerNormalization(x, s, b)\nRelu(t)", "only_output(t)", escape="outputs")
    assert bool(taken(selected(rules, text))) is (expected == "yes")


LOOP = """If (c) <
    then_branch = tb () => (float[4] u) { u = Neg (m) },
    else_branch = eb () => (float[4] v) { v = Abs (a) }>"""


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("r = Neg (a)", False),
        ("r = Neg (m)", True),
        ("q = Neg (m) s = Abs (q) r = Add (s, a)", True),
        (f"r = {LOOP}", True),
        (f"r = {LOOP.replace('Neg (m)', 'Neg (a)')}", False),
    ],
)
def test_depends_on(made: str, *, expected: bool) -> None:
    """What a value is computed from includes what the bodies of If and Loop read."""
    text = f"g (float[4] a, bool c) => (o) {{ m = Relu (a) {made} o = Add (m, r) }}"
    pattern = rule("t = Relu(x)\nAdd(t, r)", "depends_on(r, t)", escape="duplicate")
    outward = describe_refusals(selected(pattern, text))
    assert any("does not hold" in reason for reason in outward) is not expected


@pytest.mark.parametrize(
    ("made", "expected"), [("o = Add (m, m)", "yes"), ("o = Add (m, a)", "no")]
)
def test_a_value_depends_on_itself(made: str, expected: str) -> None:
    """An operand that is the very value needs no node between."""
    text = f"g (float[4] a) => (o) {{ m = Relu (a) {made} }}"
    assert verdict("t = Relu(x)\nAdd(t, r)", "depends_on(r, t)", text) == expected


@pytest.mark.parametrize("condition", ["depth(3)", "per_column(b)", "symmetric([x])"])
def test_other_arguments_are_refused(condition: str) -> None:
    """A function that takes a name says so when it is given something else."""
    with pytest.raises(PatternSyntaxError, match=r"a name of a value|names of values"):
        Condition(condition)


def test_an_item_that_is_no_value_is_refused() -> None:
    """What a variable stands for is not known before."""
    text = "g (float[4,8] a, float[8,6] w, float[6] b) => (o) { m = MatMul (a, w) o = Add (m, b) }"
    condition = "all(depth(n) > 1 for n in p.shape)"
    (reason,) = describe_refusals(selected(rule("p = MatMul(x, w)\nAdd(p, b)", condition), text))
    assert "of the pattern first" in reason


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("[2, 3]", "yes"),
        ("", "yes"),
        ("[N, 3]", "no"),
        ("[2, ?]", "no"),
        ("[]", "the rank of 'a' is unknown"),
    ],
)
def test_is_static(dims: str, expected: str) -> None:
    """Every dimension is a number: symbols and unknown ones are none."""
    text = f"g (float{dims} a) => (o) {{ o = Relu (a) }}"
    assert verdict("Relu(x)", "is_static(x)", text) == expected


@pytest.mark.parametrize(("stated", "expected"), [("[2, 3]", "yes"), ("[N, 3]", "no")])
def test_a_stated_number_is_static(stated: str, expected: str) -> None:
    """It is what ``x.shape`` says, too, whatever the symbol of an input says."""
    text = f"g (float[N, 3] a) => (o) <float{stated} n> {{ n = Neg (a) o = Relu (n) }}"
    assert verdict("Relu(x)", "is_static(x)", text) == expected


@pytest.mark.parametrize(
    ("dims", "node", "expected"),
    [
        ("2,3,4", "Transpose <perm = [1, 0, 2]> (a)", "no"),
        ("2,1,4", "Transpose <perm = [1, 0, 2]> (a)", "yes"),
        ("1,N,1", "Transpose <perm = [2, 0, 1]> (a)", "yes"),
        ("N,N", "Transpose (a)", "no"),
        ("1,4", "Transpose (a)", "yes"),
        ("2,3,4", "Flatten (a)", "yes"),
        ("2,3,4", "Reshape (a, s)", "yes"),
        ("2,3", "Abs (a)", "'t' is made by nothing that reshapes or transposes"),
        ("2,3", "own.Transpose (a)", "'t' is made by nothing that reshapes or transposes"),
    ],
)
def test_keeps_order(dims: str, node: str, expected: str) -> None:
    """What only changes the shape does, and a Transpose that moves dimensions of 1."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[{dims}] a) => (o) <int64[1] s = {{-1}}> {{ t = {node} o = Relu (t) }}"""
    pattern = "t = op()(x, ...)\nRelu(t)"
    assert verdict(pattern, "keeps_order(t)", text).startswith(expected)


def test_the_order_behind_an_unknown_shape() -> None:
    """Nothing tells which dimensions are 1."""
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] a) => (o) { u = own.Any (a) t = Transpose <perm = [1, 0]> (u) o = Relu (t) }"""
    found = verdict("t = Transpose(x)\nRelu(t)", "keeps_order(t)", text)
    assert found.startswith("what 't' is transposed from is not known")


@pytest.mark.parametrize(
    ("dims", "made", "numbers"),
    [
        ("2,12", "Reshape (a, s)", "[4, 6]"),
        ("N,12", "Unsqueeze (a, one)", "[0, 1, 12]"),
        ("N,M", "Unsqueeze (a, zero)", None),
        ("N,12", "Unsqueeze (a, zero)", "[1, -1, 12]"),
        ("N,N", "Flatten (a)", "[0, 0]"),
        ("2,0", "Flatten (a)", None),
        ("N,2", "Flatten <axis = 0> (a)", "[1, -1]"),
        ("2,3", "own.Any (a)", None),
        ("N,M,4", "Flatten (a)", None),  # N may be 0
        ("3,M,4", "Flatten (a)", "[0, -1]"),
        ("N,M,4", "Flatten <axis = 2> (a)", "[-1, 4]"),
        ("N,M,4", "Reshape (a, open)", "[0, -1]"),
        ("N,M,4", "Reshape (a, named)", "[-1, 0]"),
        ("N,M,4", "Reshape <allowzero = 1> (a, computed)", None),
    ],
)
def test_reshape_target(dims: str, made: str, numbers: str | None) -> None:
    """A dimension is a number, or the one at its place before; one may be neither."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[{dims}] a) => (o)
        <int64[2] s = {{4, 6}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
         int64[2] open = {{0, -1}}, int64[2] named = {{-1, 0}}, int64[1] two = {{2}},
         int64[1] four = {{4}}>
        {{ shape = Shape (a) first = Slice (shape, zero, one) second = Slice (shape, one, two)
           flat = Mul (second, four) computed = Concat <axis = 0> (first, flat)
           n = {made} o = Relu (n) }}"""
    pattern = "n = op()(x, ...)\nRelu(n)"
    expected = "yes" if numbers else ""
    found = verdict(pattern, f"reshape_target(x, n) == {numbers or [7]}", text)
    assert found == "yes" if expected else found not in {"yes", "no"}
