"""Guesses at what a user may have meant."""

import pytest

from dplcli.errors import did_you_mean_rule

NAMES = [
    *("gelu", "fuse.gelu", "dense_gelu", "dnnl.dense_gelu", "bias_gelu", "dnnl.bias_gelu"),
    *("conv2d", "dnnl.conv2d", "qnn.conv2d", "dnnl.qnn.conv2d", "tanh"),
]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("gelu_", "did you mean 'fuse.gelu'?", id="misspelt"),
        pytest.param("GELU", "did you mean 'fuse.gelu'?", id="case"),
        pytest.param("other.gelu", "did you mean 'fuse.gelu'?", id="other-target"),
        pytest.param("dense", "did you mean 'dnnl.dense_gelu'?", id="part"),
        pytest.param("s_gel", "did you mean 'dnnl.bias_gelu'?", id="part-in-the-middle"),
        pytest.param(
            "_gelu", "did you mean 'dnnl.bias_gelu' or 'dnnl.dense_gelu'?", id="part-of-two"
        ),
        pytest.param("dnnl.conv2d_", "did you mean 'dnnl.conv2d'?", id="misspelt-with-target"),
        pytest.param("conv2d", "did you mean 'dnnl.conv2d' or 'dnnl.qnn.conv2d'?", id="dots"),
        pytest.param("tan", "did you mean 'tanh'?", id="no-target"),
        pytest.param("zzzzzz", "there are: fuse.gelu, dnnl.dense_gelu", id="nothing-like-it"),
        pytest.param("", "there are: fuse.gelu", id="empty"),
        pytest.param(".", "there are: fuse.gelu", id="dot"),
        pytest.param("e", "there are: fuse.gelu", id="too-short-to-mean-anything"),
    ],
)
def test_a_rule_that_may_be_meant(written: str, expected: str) -> None:
    """A part of the name will do; whole names are shown, and never one rule twice."""
    said = did_you_mean_rule(written, NAMES)

    assert said.startswith(expected)
    assert said.count("fuse.gelu") <= 1


def test_long_lists_are_cut() -> None:
    """Of what may be meant, and of what there is."""
    names = [f"t.rule_{number}" for number in range(20)]

    assert did_you_mean_rule("rule", names) == (
        "did you mean 't.rule_0', 't.rule_1', 't.rule_2' or one of 17 others?"
    )
    assert did_you_mean_rule("xyz", names).endswith("t.rule_7 and 12 more")
    assert did_you_mean_rule("xyz", []) == "there are: none"
