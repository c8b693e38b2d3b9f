"""Attributes are compared after defaults are filled in, in their own kind, never by accident."""

import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import is_op, wildcard
from tests.support.helpers import check_match, pattern_of


def header(opset: int) -> str:
    """Return the header of a model of one opset."""
    return f'<ir_version: 8, opset_import: ["" : {opset}]>\n'


CONV = "g (float[1,2,8,8] a, float[2,2,3,3] k) => (o)"


@pytest.mark.parametrize(
    ("stated", "wanted", "fits"),
    [
        ("", "strides=[1, 1]", True),
        ("", "dilations=[1, 1]", True),
        ("", "pads=[0, 0, 0, 0]", True),
        ("", "kernel_shape=[3, 3]", True),
        ("", 'group=1, auto_pad="NOTSET"', True),
        ("", "strides=[2, 2]", False),
        ("<strides = [2, 2]>", "strides=[2, 2]", True),
        ("<strides = [2, 2]>", "strides=(2, 2)", True),
        ("<strides = [2, 2]>", "strides=[2]", False),
        ("<pads = [1, 1, 1, 1]>", "pads=[1, 1]", False),
        ("<pads = [1, 1, 1, 1]>", "pads=[1, 1, 1, 1], strides=[1, 1]", True),
        ('<auto_pad = "SAME_UPPER">', "pads=[0, 0, 0, 0]", False),
        ('<auto_pad = "VALID">', 'auto_pad="VALID"', True),
    ],
)
def test_convolution_attributes(stated: str, wanted: str, *, fits: bool) -> None:
    """R6: textual defaults count as stated; pads beside auto_pad are unknown."""
    text = f"{CONV} {{ o = Conv {stated} (a, k) }}"
    check_match(f"Conv(x, w, {wanted})", text, {"o": "w=k x=a"} if fits else {})


@pytest.mark.parametrize("opset", [7, 11, 13, 17, 21])
def test_textual_defaults_hold_at_every_opset(opset: int) -> None:
    """Conv's strides and Transpose's perm have the same defaults in every opset."""
    check_match(
        "Conv(x, w, strides=[1, 1])",
        f"{header(opset)}{CONV} {{ o = Conv (a, k) }}",
        {"o": "w=k x=a"},
    )
    check_match(
        "Transpose(x, perm=[2, 1, 0])",
        f"{header(opset)}g (float[2,3,4] a) => (o) {{ o = Transpose (a) }}",
        {"o": "x=a"},
    )


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (13, -1)])
def test_a_default_is_that_of_the_opset(opset: int, axis: int) -> None:
    """Softmax's axis is 1 up to opset 12 and -1 from 13 on."""
    text = f"{header(opset)}g (float[2,3,4] a) => (o) {{ o = Softmax (a) }}"
    check_match(f"Softmax(x, axis={axis})", text, {"o": "x=a"})
    check_match(f"Softmax(x, axis={-axis})", text, {})


def test_unknown_rank_leaves_a_textual_default_unknown() -> None:
    """Without a known rank, perm is unknown, hence no match."""
    text = "g (float a, int64[?] s) => (o) { r = Reshape (a, s) o = Transpose (r) }"
    check_match("Transpose(x, perm=[1, 0])", text, {})


def test_pool_defaults() -> None:
    """Pools complete strides from kernel_shape."""
    text = "g (float[1,2,8,8] a) => (o) { o = MaxPool <kernel_shape = [2, 2]> (a) }"
    check_match("MaxPool(x, strides=[1, 1], ceil_mode=0)", text, {"o": "x=a"})


@pytest.mark.parametrize(
    ("stated", "wanted", "fits"),
    [
        ("<alpha = 0.1>", "0.1", True),
        ("<alpha = 1.0>", "1", True),
        ("", "0.01", True),
        ("<alpha = 0.1>", "0.1000001", False),
        ("<alpha = 1.0>", "1e300", False),
    ],
)
def test_floats_compare_as_float32(stated: str, wanted: str, *, fits: bool) -> None:
    """0.1 in the text equals 0.1 in the file, which is a float32."""
    text = f"g (float[2] a) => (o) {{ o = LeakyRelu {stated} (a) }}"
    check_match(f"LeakyRelu(x, alpha={wanted})", text, {"o": "x=a"} if fits else {})


@pytest.mark.parametrize("wanted", ["1" + "0" * 400, '"0.1"', "[0.1]", "-1e999"])
def test_a_float_compared_with_something_odd_is_no_match(wanted: str) -> None:
    """A huge number, a string or a list is not a float attribute's value, and no crash."""
    text = "g (float[2] a) => (o) { o = LeakyRelu <alpha = 0.1> (a) }"
    try:
        check_match(f"LeakyRelu(x, alpha={wanted})", text, {})
    except PatternSyntaxError:
        return


@pytest.mark.parametrize("wanted", ['["a"]', "[1" + "0" * 400 + "]", "[]", "1.0"])
def test_floats_compared_with_something_odd_are_no_match(wanted: str) -> None:
    """Strings or huge numbers are not a list of floats, and no crash."""
    text = f"{header(8)}g (float[2] a) => (o) {{ o = Upsample <scales = [1.0]> (a) }}"
    try:
        check_match(f"Upsample(x, scales={wanted})", text, {})
    except PatternSyntaxError:
        return


def test_element_type_by_name() -> None:
    """Cast's target may be written by name or by number."""
    text = "g (int64[2] a) => (o) { o = Cast <to = 1> (a) }"
    check_match('Cast(x, to="float32")', text, {"o": "x=a"})
    check_match("Cast(x, to=1)", text, {"o": "x=a"})
    check_match('Cast(x, to="float16")', text, {})


def test_an_axis_is_no_element_type() -> None:
    """The name of an element type means a number only where an element type is meant."""
    text = "g (float[2,3] a) => (o) { o = Softmax <axis = 1> (a) }"
    try:
        check_match('Softmax(x, axis="float32")', text, {})
    except PatternSyntaxError:
        return


def test_a_truth_value_is_refused_or_counts_as_a_number() -> None:
    """axis=True never silently means: no match anywhere."""
    text = "g (float[2,3] a) => (o) { o = Softmax <axis = 1> (a) }"
    try:
        pattern = pattern_of("Softmax(x, axis=True)")
    except PatternSyntaxError:
        return
    check_match(pattern, text, {"o": "x=a"})


def test_unknown_attribute_is_refused() -> None:
    """An attribute that no version of the operator has is an error with a guess."""
    with pytest.raises(PatternSyntaxError, match="no attribute 'stride'") as caught:
        pattern_of("Conv(x, w, stride=[1, 1])")
    assert caught.value.hint == "did you mean 'strides'?"


def test_attribute_given_twice_is_refused() -> None:
    """The same attribute twice is a mistake, not a demand that nothing meets."""
    with pytest.raises(PatternSyntaxError):
        pattern_of("Conv(x, w, group=1, group=2)")


def test_attribute_of_a_foreign_operator() -> None:
    """A foreign operator has the attributes it states, and no defaults."""
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
    text = f'{header} g (float[2] a) => (o) {{ o = own.Foo <mode = "x"> (a) }}'
    check_match('own.Foo(x, mode="x")', text, {"o": "x=a"})
    check_match('own.Foo(x, mode="y")', text, {})
    check_match("own.Foo(x, other=1)", text, {})


def test_has_attr_in_python() -> None:
    """has_attr demands attributes on top, later ones winning, and leaves the pattern as it was."""
    text = "g (float[2,3] a) => (o) { o = Softmax <axis = 1> (a) }"
    base = is_op("Softmax")(wildcard("x"))
    check_match(base.has_attr({"axis": 1}), text, {"o": "x=a"})
    check_match(base.has_attr({"axis": 0}).has_attr({"axis": 1}), text, {"o": "x=a"})
    check_match(base.has_attr({"axis": 0}), text, {})
    check_match(base, text, {"o": "x=a"})


def test_an_attribute_the_caller_supplies_is_unknown() -> None:
    """Inside a function, an attribute by reference equals nothing."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a) => (o) { o = f.leaky <alpha = 0.5> (a) }
        <domain: "f", opset_import: ["" : 17]>
        leaky <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"""
    check_match("LeakyRelu(x, alpha=0.5)", text, {})
    check_match("LeakyRelu(x, alpha=0.01)", text, {})
    check_match("LeakyRelu(v)", text, {"y": "v=x"})
