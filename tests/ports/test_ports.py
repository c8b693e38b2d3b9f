"""Rules of other libraries as short texts: they do what theirs do, and take fewer lines.

``python -m tests.ports.test_ports`` prints whose rule takes how many lines.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dplcli.catalog import read_catalogs
from dplcli.ir.traversal import check_structure
from dplcli.language.replacement import Replacement
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.proving import DEFAULT_TRIALS, Trier
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_text,
    one_in,
    proto_from_text,
    thinned,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dplcli.language.replacement import RewriteRule

FOLDER = Path(__file__).parent
FEW = 3
"""Graphs on which a rule is tried in the quick part; the long one takes the usual number."""


class Port(NamedTuple):
    """Rules of theirs beside the entries of a catalogue that do the same.

    Attributes:
        source: The file or class of theirs.
        theirs: Its lines of code: without imports, comments, docstrings and blank lines.
        entries: The names of ours, as the catalogue spells them.
        more: What theirs does besides, in words.
    """

    source: str
    theirs: int
    entries: tuple[str, ...]
    more: str = ""


PORTS: Mapping[str, tuple[str, tuple[Port, ...]]] = {
    "onnxscript": (
        "onnxscript 0.7.2, rewriter/rules/common",
        (
            Port("SqueezeReshape", 13, ("squeeze_reshape",)),
            Port("CastIdentity", 10, ("cast_to_its_own_type",)),
            Port("CastCast", 21, ("cast_of_cast",)),
            Port("ExpandIdentity", 16, ("expand_to_its_own_shape",)),
            Port(
                "ReshapeReshape",
                26,
                ("reshape_of_reshape", "reshape_of_reshape_copying", "reshape_of_reshape_known"),
            ),
            Port("SlicesSplit", 49, ("slices_to_split",)),
            Port("TransposeIdentity", 14, ("transpose_to_its_own_order",)),
            Port("TransposeTranspose", 28, ("transposes_that_cancel", "transpose_of_transpose")),
            Port("UnsqueezeUnsqueeze", 19, ("unsqueeze_of_unsqueeze",)),
            Port("Flatten2Reshape", 33, ("flatten_to_reshape",)),
            Port(
                "_broadcast_to_matmul.py, _gemm_to_matmul_add.py",
                123,
                (
                    "matmul_of_rows",
                    "matmul_of_stacks",
                    "matmul_of_vector",
                    "matmul_by_vector",
                    "matmul_as_shaped",
                    "gemm_to_matmul_add",
                ),
            ),
            Port("_collapse_slices.py", 71, ("slice_to_its_own_shape", "slice_to_the_end")),
            Port(
                "_fuse_batchnorm.py",
                135,
                (
                    "batch_norm_into_conv",
                    "batch_norm_into_conv_transpose",
                    "batch_norm_into_gemm",
                ),
            ),
            Port("_fuse_conv_affine.py", 79, ("affine_after_conv", "affine_before_conv")),
            Port(
                "_fuse_hardswish.py",
                96,
                ("hard_swish", "hard_sigmoid", "hard_swish_of_hard_sigmoid"),
            ),
            Port(
                "_fuse_pad_into_conv.py",
                202,
                ("pad_into_${op}", "pads_of_${op}", "no_pads_of_${op}"),
            ),
            Port(
                "_fuse_relus_clips.py",
                105,
                (
                    "relu_of_relu",
                    "clip_of_relu_${top}",
                    "relu_of_clip_${top}",
                    "clip_of_clip_${low}_${high}",
                ),
            ),
            Port("_materialize_reshape_shape.py", 26, ("reshape_to_what_is_known",)),
            Port("_matmul_add_to_gemm.py", 51, ("matmul_add_to_gemm${left}${right}",)),
            Port(
                "_min_max_to_clip.py",
                129,
                ("two_of_${op}", "min_of_max", "max_of_min"),
                "any number of constants in a node",
            ),
            Port("_no_op.py", 30, ("neutral_element", "dropout_of_nothing")),
            Port("_redundant_scatter_nd.py", 57, ("scatter_over_all", "scatter_over_all_rows")),
            Port("_remove_optional_bias.py", 69, ("no_bias_of_${op}",)),
            Port("_remove_expand_before_binary_op.py", 161, ("expand_before_${op}_${side}",)),
        ),
    ),
    "onnxslim": (
        "onnxslim 0.1.98, core/pattern",
        (
            Port("ReshapePatternMatcher", 59, ("reshape_of_reshape",)),
            Port("SlicePatternMatcher", 107, ("slice_of_slice",)),
            Port(
                "TransposePatternMatcher", 57, ("transposes_that_cancel", "transpose_of_transpose")
            ),
            Port(
                "TransposeAsReshapeMatcher",
                62,
                ("transpose_after_reshape", "transpose_before_reshape"),
            ),
            Port("UnsqueezePatternMatcher", 84, ("unsqueeze_of_unsqueeze",)),
            Port("GeluPatternMatcher", 35, ("gelu",)),
            Port("ReducePatternMatcher", 69, ("reduce_then_unsqueeze",)),
            Port("ConvMulMatcher", 65, ("factor_into_${node}${bias}",)),
            Port("ConvAddMatcher", 78, ("summand_into_${node}",)),
            Port("ConvBatchNormMatcher", 89, ("batch_norm_into_${node}",)),
            Port("PadConvMatcher", 72, ("pad_into_conv${bias}",)),
            Port(
                "MatMulAddPatternMatcher",
                166,
                ("matmul_add_to_gemm", "matmul_add_to_gemm_of_rows"),
            ),
            Port("GemmMulPatternMatcher", 62, ("factor_into_gemm${bias}",)),
            Port("GemmAddPatternMatcher", 67, ("summand_into_gemm",)),
        ),
    ),
    "onnxruntime": (
        "onnxruntime 1.30.0, core/optimizer",
        (
            Port("GeluFusion", 128, ("gelu",)),
            Port("BiasGelu", 80, ("bias_gelu",)),
            Port("QuickGeluFusion", 76, ("quick_gelu",)),
            Port("DivMulFusion", 71, ("reciprocal_times",)),
            Port("FuseReluClip", 97, ("clip_of_relu_${top}",)),
            Port(
                "GemmTransposeFusion",
                98,
                ("transposed_${side}_of_gemm${bias}", "transpose_of_gemm"),
            ),
            Port("GemmSumFusion", 103, ("gemm_sum",)),
            Port("UnsqueezeElimination", 68, ("unsqueeze_of_constant",)),
            Port("CastChainElimination", 36, ("cast_chain",)),
            Port(
                "MatMulAddFusion",
                198,
                ("matmul_add", "matmul_add_of_rows"),
                "leaves what attention is made of",
            ),
            Port("ConvAddFusion", 92, ("conv_add",)),
            Port("ConvMulFusion", 98, ("conv_mul${bias}",)),
            Port("SkipLayerNormFusion", 214, ("skip_layer_norm_${order}",), "other element types"),
            Port(
                "MatMulScaleFusion",
                226,
                ("scaled_matmul", "matmul_of_scaled_${side}"),
                "several factors in one step",
            ),
            Port("MatmulBNFusion", 151, ("batch_norm_of_matmul",), "past Reshape and Transpose"),
            Port("NoopElimination", 71, ("neutral_element",)),
            Port("NotWhereFusion", 72, ("where_not",)),
            Port(
                "SliceConcatToSpaceToDepthFusion",
                466,
                ("space_to_depth",),
                "other orders, by a Gather",
            ),
            Port("LayerNormFusion", 623, ("layer_norm",), "several axes, Casts, no bias, no mean"),
        ),
    ),
}


@cache
def rules(catalogue: str) -> dict[str, RewriteRule]:
    """Read a catalogue of this folder."""
    path = FOLDER / f"{catalogue}.yaml"
    read = read_catalogs([str(path)], SCHEMAS, with_examples=True)
    return {rule.name: rule for rule in read.rewrites}


@cache
def lines_of(catalogue: str) -> dict[str, int]:
    """Count the lines of each entry: without its doc, examples, comments and blank lines."""
    counts: dict[str, int] = {}
    name, key = "", ""
    for line in (FOLDER / f"{catalogue}.yaml").read_text(encoding="utf-8").splitlines():
        begins = re.match(r"  - name: (.*)", line)
        if begins:
            name, key = begins[1], "name"
        elif re.match(r"    \w+:", line):
            key = line.split(":")[0].strip()
        is_code = line.strip() and not line.strip().startswith("#")
        if name and is_code and key not in {"doc", "examples"}:
            counts[name] = counts.get(name, 0) + 1
    return counts


def table(catalogue: str) -> Iterator[tuple[Port, int]]:
    """Yield what is theirs, and the lines of ours."""
    for port in PORTS[catalogue][1]:
        yield port, sum(lines_of(catalogue)[name] for name in port.entries)


NAMES = [f"{catalogue}.{name}" for catalogue in PORTS for name in rules(catalogue)]


@pytest.mark.parametrize("name", one_in(60, NAMES, gate=8))
def test_rules_do_what_theirs_do(name: str) -> None:
    """Every example comes out as written, equal in onnxruntime; so do a few graphs made up."""
    assert wrong_trials(name, Trier(SCHEMAS, FEW)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(24, NAMES, first=4))
def test_rules_hold_on_graphs_drawn_at_random(name: str) -> None:
    """No graph of a third of the usual number shows a difference, whatever is drawn."""
    assert wrong_trials(name, Trier(SCHEMAS, DEFAULT_TRIALS // 3, seed=1)) == []


def wrong_trials(name: str, trier: Trier) -> list[tuple[str, str]]:
    """Try a rule; return where something is wrong, and what: it may be that it was not tried."""
    catalogue, rule = name.split(".", 1)
    trials = list(trier.trials(rules(catalogue)[rule]))
    return [(t.place, t.reason) for t in trials if t.verdict not in {"passed", "by example"}]


@pytest.mark.parametrize("catalogue", PORTS)
def test_rules_are_text_alone(catalogue: str) -> None:
    """No Python stands behind them, and each says whose it is."""
    for rule in rules(catalogue).values():
        assert isinstance(rule.replacement, Replacement)
        assert rule.doc.startswith(f"{catalogue} ")


@pytest.mark.parametrize("catalogue", PORTS)
def test_every_entry_shows_what_it_takes_and_leaves(catalogue: str) -> None:
    """In the examples of the rules that it is written out to, taken together."""
    shown: dict[str, set[bool]] = {}
    for rule in rules(catalogue).values():
        shown.setdefault(rule.origin, set()).update(e.after == "unchanged" for e in rule.examples)
    assert len(shown) == len(lines_of(catalogue))
    assert {entry for entry, kinds in shown.items() if False not in kinds} == set()


@pytest.mark.parametrize("catalogue", PORTS)
def test_they_take_fewer_lines(catalogue: str) -> None:
    """Of all entries of the catalogue, each named once."""
    named = [name for port in PORTS[catalogue][1] for name in port.entries]
    assert sorted(named) == sorted(lines_of(catalogue))
    rows = list(table(catalogue))
    assert sum(ours for _, ours in rows) < sum(port.theirs for port, _ in rows) / 2


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        (  # any chain of both is one Clip
            """a = Relu (x)  b = Relu (a)  c = Relu (b)  d = Clip (c)  e = Relu (d)
               y = Clip (e, one, six)""",
            ["Clip"],
        ),
        (
            """a = Clip (x)  b = Clip (a, "", six)  c = Clip (b, one, two)  d = Clip (c, "", six)
               y = Clip (d)""",
            ["Clip"],
        ),
        (  # two orders of the same bounds
            """a = Min (x, six)  b = Min (a, two)  c = Max (b, one)  y = Max (c, one)""",
            ["Clip"],
        ),
        (  # an upper bound below a lower one
            """a = Min (x, one)  b = Max (a, two)  y = Min (b, six)""",
            ["Min", "Clip"],
        ),
        (
            """a = Add (x, three)  b = Clip (a, zero, six)  c = Div (b, six)  y = Mul (c, x)""",
            ["HardSwish"],
        ),
        (  # the reversed axes in two steps
            """u = Unsqueeze (x, front)  t = Transpose <perm = [2, 0, 1]> (u)
               v = Transpose <perm = [1, 2, 0]> (t)  y = Squeeze (v, front)""",
            ["Unsqueeze", "Squeeze"],
        ),
    ],
)
def test_rules_work_together(nodes: str, left: list[str]) -> None:
    """All rules of onnxscript, over and over: what one makes another takes."""
    before = f"""g (float[N, 4] x) => (float[N, 4] y)
        <float zero = {{0}}, float one = {{1}}, float two = {{2}}, float three = {{3}},
         float six = {{6}}, int64[1] front = {{0}}> {{ {nodes} }}"""
    model = model_from_text(before)
    rewrite(model, list(rules("onnxscript").values()))
    check_structure(model)
    assert [node.op_type for node in model.graph] == left
    check_sound(proto_from_text(before), to_proto(model))


def main() -> None:
    """Print whose rules take how many lines."""
    for catalogue, (version, _) in PORTS.items():
        rows = list(table(catalogue))
        total = Port(version, sum(port.theirs for port, _ in rows), ())
        lines = [
            f"{port.source:56}{port.theirs:8,}{ours:8,}{port.more and '  without: ' + port.more}"
            for port, ours in ((total, sum(ours for _, ours in rows)), *rows)
        ]
        sys.stdout.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    main()
