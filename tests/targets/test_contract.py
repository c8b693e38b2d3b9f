"""The contract of a model's functions, and of those that a catalogue may write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dplcli import pipeline
from dplcli.ir import Attribute
from dplcli.language import PatternRule
from dplcli.onnx_io import load_model
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from dplcli.report.json import parts_of
from dplcli.targets.contract import contract_of, plain
from tests.support.helpers import model_from_text, rule, rule_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.targets.contract import Contract, FunctionContract

ROOT = Path(__file__).parents[2]

TWO_CONVOLUTIONS = """
    g (float[1, 2, 6, 6] x, float16[1, 2, 6, 6] half) => (y, z)
    <float[4, 2, 3, 3] w = {1}, float[4] b = {1}, float16[4, 2, 1, 1] v = {1}> {
        s = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        y = Relu (s)
        bias = Cast <to = 10> (b)
        t = Conv <strides = [2, 2]> (half, v, bias)
        z = Relu (t)
    }"""


def contract(text: str, rules: PatternRule | Sequence[PatternRule]) -> Contract:
    """Outline *rules* in the model *text*; return its contract."""
    model = model_from_text(text)
    rules = [rules] if isinstance(rules, PatternRule) else rules
    partition(model, select_matches(model, rules))
    return contract_of(model, "test")


def the_only(found: Contract) -> FunctionContract:
    """Return the only function."""
    assert len(found.functions) == 1
    return found.functions[0]


def with_bias() -> PatternRule:
    """Return the rule for a convolution with bias and ReLU."""
    return rule("Relu(Conv(x, w, b))", name="conv_relu", constants="lift")


def test_the_record_says_all_a_kernel_must_know() -> None:
    """Types, ranks and constants over all calls; attributes with their values; the body."""
    record = parts_of(contract(TWO_CONVOLUTIONS, with_bias()))

    attributes = [
        {"name": "pads", "kind": "ints", "node": 0, "reads": "pads", "given": True,
         "values": [[1, 1, 1, 1], [0, 0, 0, 0]], "distinct": 2, "default": None},
        {"name": "strides", "kind": "ints", "node": 0, "reads": "strides", "given": True,
         "values": [[1, 1], [2, 2]], "distinct": 2, "default": None},
    ]  # fmt: skip
    assert record["schema"] == "dpl.contract/1"
    assert (record["of"], record["model"], record["notes"]) == ("model", "test", {})
    (function,) = record["functions"]
    assert function.pop("attributes") == attributes
    assert function == {
        "domain": "t",
        "name": "conv_relu",
        "rule": "t.conv_relu",
        "target": "t",
        "doc": "",
        "calls": 2,
        "opsets": {"ai.onnx": 17},
        "inputs": [
            port("x", ["float32", "float16"], [4], constant=False),
            port("w", ["float32", "float16"], [4], constant=True),
            port("b", ["float32", "float16"], [1], constant=False),
        ],
        "outputs": [port("relu_1_out", ["float32", "float16"], [4], constant=None)],
        "body": [
            {"op_type": "Conv", "domain": "", "inputs": ["x", "w", "b"], "outputs": ["conv_0_out"],
             "references": {"pads": "pads", "strides": "strides"}, "attributes": {}},
            {"op_type": "Relu", "domain": "", "inputs": ["conv_0_out"], "outputs": ["relu_1_out"],
             "references": {}, "attributes": {}},
        ],
        "parts": {"operators": [], "inputs": []},
        "conditions": [],
        "variations": [],
    }  # fmt: skip


def port(
    name: str, dtypes: list[str], ranks: list[int], *, constant: bool | None
) -> dict[str, Any]:
    """Return the record of an input or output."""
    known = {"name": name, "dtypes": dtypes, "ranks": ranks, "unknown": 0, "constant": constant}
    return known | {"values": [], "distinct": 0}


def test_variants_say_what_sets_them_apart() -> None:
    """What one function has and not every function of its rule."""
    text = """g (float[2] a, float[2] b) => (o, p, q) {
        s = Add (a, b) o = Relu (s) p = Relu (a) t = Add (b, a) u = Add (t, a) q = Relu (u) }"""
    found = contract(text, rule("Relu(x + y) | Relu(x)", name="k"))

    assert [(rule_name(f.name), f.parts.operators, f.parts.inputs) for f in found.functions] == [
        ("k", ("Add",), ("y",)),
        ("k", (), ()),
    ]


def test_functions_of_different_rules_are_not_variants() -> None:
    """A rule with one function has no optional parts."""
    text = "g (float[2] a) => (o, p) { o = Relu (a) t = Neg (a) p = Tanh (t) }"
    found = contract(text, [rule("Relu(x)", name="k"), rule("Tanh(-x)", name="l")])

    assert [(f.name, f.parts.operators) for f in found.functions] == [("k", ()), ("l", ())]


def test_what_is_given_is_followed_through_the_functions_round_a_call() -> None:
    """An input of an outer function is what the outer function's calls give it."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 1, "o" : 1]>
        g (float[2] a, double[2, 2] c) => (b, d) <float[2] w = {1, 2}, double[2, 2] v = {1,1,1,1}>
        { b = o.outer (a, w) d = o.outer (c, v) }
        <domain: "t", opset_import: ["" : 17]> k (x, y) => (z) { z = Add (x, y) }
        <domain: "o", opset_import: ["" : 17, "t" : 1]> outer (p, q) => (r) { r = t.k (p, q) }"""
    model = model_from_text(text)
    model.functions["t", "k", ""].metadata = {"Composite": "t.k", "Codegen": "t"}
    x, y = the_only(contract_of(model, "test")).inputs

    assert (x.dtypes, x.ranks, x.is_constant) == (("float64", "float32"), (1, 2), False)
    assert (y.dtypes, y.ranks, y.is_constant) == (("float64", "float32"), (1, 2), True)


def test_an_attribute_that_a_call_leaves_out_is_optional() -> None:
    """Somebody may have edited the file."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a) => (b, c) { b = t.k <alpha = 0.5> (a) c = t.k (a) }
        <domain: "t", opset_import: ["" : 17]> k <alpha> (x) => (y)
        { y = LeakyRelu <alpha: float = @alpha> (x) }"""
    model = model_from_text(text)
    model.functions["t", "k", ""].metadata = {"Composite": "t.k"}
    (alpha,) = the_only(contract_of(model, "test")).attributes

    assert (alpha.is_given, alpha.values, alpha.kind) == (False, (0.5,), "float")


def test_an_attribute_that_is_read_inside_an_if_has_its_kind() -> None:
    """It is said of the If that has the reader inside."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a, bool c) => (b) { b = t.k <alpha = 0.5> (a, c) }
        <domain: "t", opset_import: ["" : 17]> k <alpha> (x, c) => (y) {
            n = Neg (x)
            y = If (c) <then_branch = p () => (float[2] o) { o = Elu <alpha: float = @alpha> (n) },
                        else_branch = q () => (float[2] o) { o = Relu (n) }> }"""
    model = model_from_text(text)
    model.functions["t", "k", ""].metadata = {"Composite": "t.k"}
    (alpha,) = the_only(contract_of(model, "test")).attributes

    assert (alpha.kind, alpha.node, alpha.reads) == ("float", 1, "alpha")


def test_a_lifted_number_is_shown() -> None:
    """A kernel for Gelu has to know whether it is one; a weight of more elements is only data."""
    text = """g (float[2] x) => (y, z) <float h = {0.1}, float[1] k = {0.5}, float[2] w = {1, 2}> {
        a = Mul (x, h) b = Add (a, w) y = Relu (b) c = Mul (x, k) d = Add (c, w) z = Relu (d) }"""
    found = contract(text, rule("Relu(x * h + w)", constants="lift"))
    x, h, w = the_only(found).inputs

    assert (h.values, h.distinct, h.is_constant, h.ranks) == ((0.1, 0.5), 2, True, (0, 1))
    assert (w.values, w.is_constant) == ((), True)
    assert (x.values, x.is_constant) == ((), False)


def test_a_lifted_number_is_shown_in_its_own_precision() -> None:
    """A double is not rounded to what a float holds; infinity is text."""
    text = """g (double[2] x, float[2] u) => (y, z) <double h = {0.1234567890123}> {
        i = Constant <value = float {inf}> ()
        a = Mul (x, h) y = Relu (a) c = Mul (u, i) z = Relu (c) }"""
    (_, h) = the_only(contract(text, rule("Relu(x * h)", constants="lift"))).inputs

    assert h.values == (0.1234567890123, "inf")


def test_a_number_that_is_not_constant_everywhere_is_not_shown() -> None:
    """One call computes it."""
    text = """g (float[2] x, float n) => (y, z) <float h = {0.5}> {
        a = Mul (x, h) y = Relu (a) c = Mul (x, n) z = Relu (c) }"""
    (_, h) = the_only(contract(text, rule("Relu(x * h)", constants="lift"))).inputs

    assert (h.values, h.is_constant) == ((), False)


def test_an_embedded_constant_is_shown_with_its_numbers() -> None:
    """A kernel is not given what is inside the body, so it has to be told."""
    text = "g (float[2] a) => (o) <float c = {0.5}> { o = Mul (a, c) }"
    body = the_only(contract(text, rule("Mul(x, const(c))", constants="embed"))).body

    assert [node.op_type for node in body] == ["Constant", "Mul"]
    assert body[0].attributes == {"value": "float32[] = 0.5"}


def test_a_long_embedded_constant_is_not_shown() -> None:
    """Nobody reads a weight in a table."""
    text = "g (float[17] a) => (o) <float[17] c = {1}> { o = Mul (a, c) }"
    with pytest.raises(Exception):  # noqa: B017, PT011  # the parser wants all 17 numbers
        contract(text, rule("Mul(x, const(c))", constants="embed"))
    text = text.replace("{1}", "{" + ",".join(["1"] * 17) + "}")
    body = the_only(contract(text, rule("Mul(x, const(c))", constants="embed"))).body

    assert body[0].attributes == {"value": "float32[17]"}


def test_a_type_that_nobody_knows_is_counted() -> None:
    """What an unknown operator makes has no type."""
    text = """<ir_version: 8, opset_import: ["" : 17, "c" : 1]>
        g (float[2] a) => (o, p) { t = c.unknown (a) o = Relu (t) p = Relu (a) }"""
    (x,) = the_only(contract(text, rule("Relu(x)"))).inputs

    assert (x.dtypes, x.ranks, x.unknown) == (("float32",), (1,), 1)


def test_many_values_of_an_attribute_are_counted_and_not_all_listed() -> None:
    """Sixteen are enough for a reader."""
    nodes = " ".join(f"y{n} = LeakyRelu <alpha = 0.{n:02d}> (a)" for n in range(1, 31))
    outputs = ", ".join(f"y{n}" for n in range(1, 31))
    text = f"g (float[2] a) => ({outputs}) {{ {nodes} }}"
    (alpha,) = the_only(contract(text, rule("LeakyRelu(x)"))).attributes

    assert (len(alpha.values), alpha.distinct, alpha.values[:2]) == (16, 30, (0.01, 0.02))


def test_functions_that_no_partition_wrote_are_left_out() -> None:
    """A function of an exporter is nobody's kernel."""
    text = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2] a) => (b) { b = o.f (a) }
        <domain: "o", opset_import: ["" : 17]> f (u) => (v) { v = Relu (u) }"""

    assert contract_of(model_from_text(text), "test").functions == ()


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (Attribute("float", 0.1), 0.1),
        (Attribute("float", float("inf")), "inf"),
        (Attribute("floats", (float("nan"), 1.5)), ("nan", 1.5)),
        (Attribute("string", b"\xff"), "\\xff"),
        (Attribute("ints", ()), ()),
        (Attribute("graph", object()), "{…}"),
    ],
)
def test_every_attribute_can_be_said_in_json(attribute: Attribute, expected: object) -> None:
    """Neither NaN nor bytes break a reader."""
    assert plain(attribute) == expected


# -- catalogues ------------------------------------------------------------------------------------


def test_a_catalogue_lists_every_form_of_a_pattern() -> None:
    """A bias inside Conv or as Add: two functions, and their header says which is which."""
    found = pipeline.catalog_contract(["conv_relu"], only=["conv2d_bias_relu"])

    assert not found.is_of_model
    assert [[node.op_type for node in f.body] for f in found.functions] == [
        ["Conv", "Relu"],
        ["Conv", "Add", "Relu"],
    ]
    assert [f.parts.operators for f in found.functions] == [(), ("Add",)]
    assert found.functions[0].conditions == ("per_channel(b, conv)",)
    assert [f.variations for f in found.functions] == [(), ()]
    names = [f.name for f in found.functions]
    assert names[0] == "conv2d_bias_relu" == rule_name(names[1]) != names[1]
    assert [port.ranks for port in found.functions[0].inputs] == [(), (4,), ()]


def test_a_catalogue_knows_attributes_constants_and_types(tmp_path: Path) -> None:
    """What the pattern fixes is a value, what it leaves open a default, if there is one."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "dpl: 1\ntarget: t\nconstants: lift\npatterns:\n"
        "  - name: k\n    opsets: [13, 20]\n    pattern: |\n"
        '      Cast(Conv(x.has_dtype("float32"), const(w), group=2), to=10)\n'
    )
    (function,) = pipeline.catalog_contract([str(path)]).functions
    attributes = {(a.name, a.node): a for a in function.attributes}
    x, w = function.inputs

    assert attributes["group", 0].values == (2,)
    assert attributes["auto_pad", 0].default == "NOTSET"
    assert (attributes["to", 1].values, attributes["to", 1].is_given) == ((10,), True)
    assert not attributes["pads", 0].is_given
    assert (x.dtypes, x.is_constant) == (("float32",), None)
    assert (w.dtypes, w.is_constant) == ((), True)
    assert function.conditions == ("opset >= 13", "opset <= 20")


@pytest.mark.parametrize(
    ("pattern", "dtypes", "ranks", "is_constant"),
    [
        ("Relu(Add(x, w.has_rank(2)) | Mul(x, w.has_rank(4)))", (), (2, 4), None),
        ("Relu(Add(x, w.has_rank(2)) | Mul(x, w))", (), (), None),
        ("Relu(Add(x, w.has_rank(2)) | Mul(x, w.has_dtype('float32')))", (), (), None),
        ("Sub(Add(x, w) | Mul(x, w), w.has_rank(1))", (), (1,), None),
        ("Relu(Add(x, w.has_dtype('float32').has_rank(3)))", ("float32",), (3,), None),
        ("Relu(Add(x, w.has_shape(4, n)))", (), (2,), None),
        ("Relu(Add(x, const(w)) | Mul(x, w))", (), (), None),
        ("Relu(Add(x, const(w)) | Mul(x, const(w)))", (), (), True),
        ("Relu(Add(x, const(w).has_rank(1)))", (), (1,), True),
    ],
)  # fmt: skip
def test_a_catalogue_promises_only_what_every_form_keeps(
    pattern: str,
    dtypes: tuple[str, ...],
    ranks: tuple[int, ...],
    tmp_path: Path,
    *,
    is_constant: bool | None,
) -> None:
    """What one alternative asks for says nothing of the others."""
    path = tmp_path / "own.yaml"
    text = pattern.replace("'", '"')
    rules = f"patterns:\n  - name: k\n    pattern: |\n      {text}\n"
    path.write_text(f"dpl: 1\ntarget: t\nconstants: lift\n{rules}")
    functions = pipeline.catalog_contract([str(path)]).functions

    assert functions
    for function in functions:
        w = next(port for port in function.inputs if port.name == "w")
        assert (w.dtypes, w.ranks, w.is_constant) == (dtypes, ranks, is_constant)


def test_a_catalogue_promises_no_attribute_that_was_made_up(tmp_path: Path) -> None:
    """A Cast needs a type to be an example; the pattern leaves that of the inner one open."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "dpl: 1\ntarget: t\npatterns:\n  - {name: k, pattern: 'Relu(Cast(Cast(x, to=1)))'}\n"
    )
    (function,) = pipeline.catalog_contract([str(path)]).functions

    assert [a.values for a in function.attributes if a.reads == "to"] == [(), ()]


def test_a_catalogue_does_not_tell_made_up_numbers(tmp_path: Path) -> None:
    """What the pattern asks for is a fact; a weight that was made up is not."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "dpl: 1\ntarget: t\nconstants: embed\npatterns:\n"
        "  - {name: k, pattern: 'Mul(Add(x, const(w)), 0.25)'}\n"
    )
    body = pipeline.catalog_contract([str(path)]).functions[0].body
    texts = [node.attributes["value"] for node in body if node.op_type == "Constant"]

    assert sorted(texts) == ["as in the model", "float32[] = 0.25"]


def test_a_rule_that_nothing_is_known_of_is_named(tmp_path: Path) -> None:
    """No graph is made up for operators of unknown domains."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "dpl: 1\ntarget: t\npatterns:\n  - {name: k, pattern: com.acme.Gelu(x)}\n"
        "  - {name: l, pattern: 'Relu(Conv(x, w, ...))'}\n"
    )
    found = pipeline.catalog_contract([str(path)])

    assert [f.rule for f in found.functions] == ["t.l"]
    assert "com.acme.Gelu" in found.notes["t.k"]
    assert "further inputs" in found.functions[0].variations[0]


@pytest.mark.long
def test_what_a_partition_writes_is_in_the_catalogue() -> None:
    """The functions of real models are among those foreseen, up to swapped operands."""
    rules = pipeline.load_catalog_rules(["dnnl"])
    written: set[tuple[str, tuple[str, ...]]] = set()
    for name in ("residual_block", "light_squeezenet", "resnet18_bn", "deit"):
        model = load_model(ROOT / "sample_models" / f"{name}.onnx")
        assert partition(model, select_matches(model, rules))
        written |= rules_and_operators(contract_of(model, name))
    foreseen = pipeline.catalog_contract(["dnnl"], only=sorted({rule for rule, _ in written}))

    assert written <= rules_and_operators(foreseen)


def rules_and_operators(contract: Contract) -> set[tuple[str, tuple[str, ...]]]:
    """Return the rule and the operators of each function."""
    return {(f.rule, tuple(sorted(n.op_type for n in f.body))) for f in contract.functions}
