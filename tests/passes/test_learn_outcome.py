"""What comes of learning: notes, names, and what the rule finds and does not find."""

from pathlib import Path

import pytest

from dplcli.onnx_io import load_model, model_from_proto
from dplcli.passes.learn_pattern import learn_rule
from tests.passes.learned import CONV, alike, check_written, learned, lines, nodes_of
from tests.support.helpers import partitioned, proto_from_text, selected

SAMPLES = Path(__file__).parents[2] / "sample_models"


def test_says_what_was_kept_and_left_free() -> None:
    """A line per node, for whoever wants to loosen or tighten the rule."""
    text = f"""{CONV} <float[4,1,1] b = {{1, 2, 3, 4}}, float h = {{6}}> {{
        c = Conv <dilations = [1, 1], pads = [1, 1, 1, 1]> (x, w) a = Add (c, b)
        y = Min (a, h) }}"""
    assert learned(text, "c a y").notes == (
        "Conv 'c' keeps rank 4 of input 1 and leaves dilations, pads free",
        "Add 'a' keeps one number per channel in input 1",
        "Min 'y' keeps input 1 = 6.0",
    )


def test_says_once_what_became_an_input() -> None:
    """The bounds of an old Clip are kept as inputs, so they are not free attributes."""
    text = """<ir_version: 8, opset_import: ["" : 9]> g (float[2] x) => (y) {
        y = Clip <max = 6.0, min = 0.0> (x) }"""
    assert learned(text, "y").notes == ("Clip 'y' keeps input 1 = 0.0, input 2 = 6.0",)


def test_says_if_constants_stand_in_the_way() -> None:
    """A weight that other places compute is worth a word: the reader decides."""
    text = """g (float[2] x, float[2] z) => (p, q) <float[2] w = {1, 2}> {
        p = Mul (x, w) q = Mul (x, z) }"""
    found = learned(text, "p")
    assert found.text == "Mul(a, const(b))"
    assert found.matches == 1
    assert found.notes == (
        "1 more would match if constants might be computed: x instead of const(x)",
    )


def test_says_if_another_match_is_in_the_way() -> None:
    """In a chain of equals the last pair wins, whichever pair the rule was learned from."""
    chain = "g (float[2] x) => (c) { a = Relu (x) b = Relu (a) c = Relu (b) }"
    assert learned(chain, "b c").notes == ()
    assert learned(chain, "a b").notes == (
        "another match of the rule takes some of the nodes it was learned from",
    )


def test_what_other_matches_have_is_not_searched_again() -> None:
    """Of equal readers of one value each match takes five; that three are left is seen at once."""
    found = learned(alike(13), " ".join(f"v{i} w{i}" for i in range(5)))
    assert found.matches == 2
    assert found.notes == ()


def test_names_the_rule_and_its_origin() -> None:
    """Name, target and a line of documentation come with it, made from the operators."""
    text = "g (float[2] x) => (y) { t = LogSoftmax (x) s = PRelu (t, t) y = MatMul (s, s) }"
    found = learned(text, "y t s")
    assert found.rule.qualified_name == "custom.log_softmax_p_relu_mat_mul"
    assert found.rule.doc == (
        "Learned from 3 nodes of a model: LogSoftmax 't', PRelu 's', MatMul 'y'."
    )
    assert found.rule.constants == "lift"


def test_a_long_subgraph_gets_a_short_name() -> None:
    """First and last operator say enough."""
    body = " ".join(f"v{i + 1} = Abs (v{i})" for i in range(11))
    found = learned(
        f"g (float[2] v0) => (y) {{ {body} y = Neg (v11) }}",
        " ".join([*(f"v{i}" for i in range(1, 12)), "y"]),
    )
    assert found.rule.name == "abs_to_neg"
    assert found.rule.doc.endswith("Abs 'v8', and 4 more.")


def test_a_function_with_an_awkward_name_is_called_by_it() -> None:
    """Exporters put versions into domains; such names stand in quotes."""
    text = """<ir_version: 8, opset_import: ["" : 17, "pkg.torch.2.1" : 1]>
        g (float[2] x) => (y) { t = pkg.torch.2.1.f (x) y = Neg (t) }"""
    proto = proto_from_text(text.replace("pkg.torch.2.1", "p"))
    function = proto.functions.add(name="f", domain="pkg.torch.2.1", input=["a"], output=["b"])
    function.opset_import.add(domain="", version=17)
    function.node.add(op_type="Abs", input=["a"], output=["b"])
    proto.opset_import.add(domain="pkg.torch.2.1", version=1)
    proto.graph.node[0].domain = "pkg.torch.2.1"
    model = model_from_proto(proto, Path(), "test")
    found = learn_rule(model, nodes_of(model, "t y"))
    assert lines(found)[0] == 'f = call("pkg.torch.2.1::f", x)'
    check_written(found.rule)


def test_learning_changes_nothing() -> None:
    """The model is as it was."""
    text = f"{CONV} {{ c = Conv (x, w) y = Relu (c) }}"
    found = learned(text, "c y")
    model, _, _ = partitioned(found.rule, text)
    assert [node.op_type for node in model.graph] == ["conv_relu"]


def test_one_block_of_resnet50_finds_all() -> None:
    """A Conv-BatchNormalization-Relu of the real net stands for all 33."""
    model = load_model(SAMPLES / "light_resnet50.onnx")
    assert learn_rule(model, nodes_of(model, "n36 n37 n38")).matches == 33


def test_a_block_with_stored_weights_finds_its_like_and_says_so() -> None:
    """Most blocks of this net make their weights by ConstantOfShape, which is no constant."""
    model = load_model(SAMPLES / "light_resnet50.onnx")
    found = learn_rule(model, nodes_of(model, "n0 n1 n2"))
    assert found.matches == 7
    assert found.notes[-1].startswith("26 more would match if constants might be computed")


# -- kin and strangers ----------------------------------------------------------------------------

GELU = """g (float[4] x) => (y) <float r = {1.41421356}, float o = {1}, float h = {0.5}> {
    d = Div (x, r) e = Erf (d) a = Add (e, o) m = Mul (x, a) y = Mul (m, h) }"""


@pytest.mark.parametrize(
    ("old", "new", "matches"),
    [
        ("x", "x", 1),
        ("1.41421356", "1.4142", 1),
        ("1.41421356", "1.5", 0),
        ("{1}", "{2}", 0),
        ("Add (e, o)", "Add (o, e)", 1),
        ("Mul (m, h)", "Mul (h, m)", 1),
        ("Mul (x, a)", "Mul (r, a)", 0),
        ("Erf", "Tanh", 0),
        ("Erf", "com.microsoft.Erf", 0),
        ("Div (x, r)", "Div (r, x)", 0),
        ("float[4] x", "float[2,3] x", 1),
        ("=> (y)", "=> (y, a)", 0),
    ],
)
def test_gelu_finds_gelu_and_nothing_else(old: str, new: str, matches: int) -> None:
    """Numbers, operators and wiring must agree; shapes and the order of factors need not."""
    found = learned(GELU, "d e a m y")
    assert found.rule.name == "div_erf_add_mul_mul"
    assert len(selected(found.rule, GELU.replace(old, new)).matches) == matches


@pytest.mark.parametrize(
    ("old", "new", "matches"),
    [
        ("[1, 1, 1, 1]", "[0, 0, 0, 0]", 1),
        ("group = 1", "group = 1, strides = [2, 2]", 1),
        ("float[1,3,8,8] x, float[4,3,3,3] w", "float[1,3,8] x, float[4,3,3] w", 0),
        ("float[1,3,8,8] x, float[4,3,3,3] w", "x, w", 0),
        ("(x, w)", "(x, w, v)", 0),
        ("Relu (c)", "Relu (c) z = Neg (c)", 0),
        ("Relu (c)", "LeakyRelu (c)", 0),
    ],
)
def test_a_convolution_finds_those_of_its_rank(old: str, new: str, matches: int) -> None:
    """Padding and strides are free; another rank, a bias or another reader makes a stranger."""
    text = f"{CONV} {{ c = Conv <pads = [1, 1, 1, 1], group = 1> (x, w) y = Relu (c) }}"
    text = text.replace("float[4,3,3,3] w)", "float[4,3,3,3] w, float[4] v)")
    rule = learned(text, "c y").rule
    assert text.count(old) == 1
    assert len(selected(rule, text.replace(old, new)).matches) == matches
