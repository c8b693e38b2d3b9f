"""What TVM's partitioners for cuBLAS and CUTLASS find in the same models, side by side.

Both get the same file: a net with one number for each size, its constants folded, so that TVM's
importer knows all shapes. Where the counts of a rule differ, :data:`REASONS` says why; the counts
of both are written down for each model, so that neither can change without notice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import MatchSettings, RewriteSettings
from tests.corpus.nets import real_model

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tvm", reason="the oracle is TVM's Relax partitioner: pip install apache-tvm")

import tvm
from tvm import relax
from tvm.relax.backend.cuda.cublas import partition_for_cublas
from tvm.relax.backend.cuda.cutlass import partition_for_cutlass
from tvm.relax.frontend.onnx import from_onnx

pytestmark = pytest.mark.long

PARTITIONERS = {"cublas": partition_for_cublas, "cutlass": partition_for_cutlass}
SIZE = {"batch": 1}
ANY_SIZE = 8

REASONS = {
    "layout": "TVM takes convolutions in NHWC only, and an ONNX model has NCHW; dpl records the "
    "layout that the kernel wants",
    "gelu": "GELU written out with Erf is GELU for dpl, and five operators behind a bias for TVM",
    "mask": "TVM takes an attention mask, which is added to the scores, for a bias; dpl leaves the "
    "addition outside",
    "any-order": "TVM takes any Transpose of a weight for a transposed weight, dpl one that swaps "
    "the last two axes, else the plain product",
    "norm": "TVM finds rms_norm by the name of a function, which imported models do not have",
    "shift": "TVM's importer adds a shift of zeros to a LayerNormalization that has none; the "
    "kernel needs one",
}
"""Why counts differ."""


class Row(NamedTuple):
    """The matches of one rule.

    Attributes:
        tvm: How many TVM finds.
        dpl: How many dpl finds.
        reason: Keys of REASONS, if the numbers differ.
    """

    tvm: int
    dpl: int
    reason: str = ""


EXPECTED = {
    "onnx_light_bvlc_alexnet": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cublas.matmul_transposed_bias_relu": Row(2, 2),
        "cutlass.conv2d_bias_relu": Row(0, 5, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
        "cutlass.matmul_transposed_bias_relu": Row(2, 2),
    },
    "onnx_light_inception_v1": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cutlass.conv2d_bias_relu": Row(0, 57, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
    },
    "onnx_light_resnet50": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cutlass.conv2d": Row(0, 53, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
    },
    "onnx_light_shufflenet": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cutlass.conv2d": Row(0, 32, "layout"),
        "cutlass.conv2d_bias": Row(0, 1, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
    },
    "onnx_light_squeezenet": {
        "cutlass.conv2d_bias_relu": Row(0, 26, "layout"),
    },
    "onnx_light_vgg19": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cublas.matmul_transposed_bias_relu": Row(2, 2),
        "cutlass.conv2d_bias_relu": Row(0, 16, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
        "cutlass.matmul_transposed_bias_relu": Row(2, 2),
    },
    "onnx_light_zfnet512": {
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cublas.matmul_transposed_bias_relu": Row(2, 2),
        "cutlass.conv2d_bias_relu": Row(0, 5, "layout"),
        "cutlass.matmul_transposed_bias": Row(1, 1),
        "cutlass.matmul_transposed_bias_relu": Row(2, 2),
    },
    "deit-dynamo18": {
        "cublas.matmul": Row(12, 12),
        "cublas.matmul_bias": Row(36, 30, "gelu"),
        "cublas.matmul_bias_gelu": Row(0, 6, "gelu"),
        "cublas.matmul_transposed_bias": Row(2, 2),
        "cutlass.conv2d_bias": Row(0, 1, "layout"),
        "cutlass.layer_norm": Row(13, 13),
        "cutlass.matmul": Row(12, 12),
        "cutlass.matmul_bias": Row(24, 18, "gelu"),
        "cutlass.matmul_bias_gelu": Row(0, 6, "gelu"),
        "cutlass.matmul_bias_residual_add": Row(12, 12),
        "cutlass.matmul_transposed_bias": Row(1, 1),
        "cutlass.matmul_transposed_bias_residual_add": Row(1, 1),
    },
    "bert-dynamo18": {
        "cublas.matmul": Row(24, 24),
        "cublas.matmul_bias": Row(72, 60, "gelu"),
        "cublas.matmul_bias_gelu": Row(0, 12, "gelu"),
        "cublas.matmul_transposed_bias": Row(1, 1),
        "cutlass.layer_norm": Row(25, 25),
        "cutlass.matmul": Row(12, 24, "mask"),
        "cutlass.matmul_bias": Row(60, 36, "gelu, mask"),
        "cutlass.matmul_bias_gelu": Row(0, 12, "gelu"),
        "cutlass.matmul_bias_residual_add": Row(24, 24),
        "cutlass.matmul_transposed_bias": Row(1, 1),
    },
    "gpt2-dynamo20": {
        "cublas.matmul": Row(25, 25),
        "cublas.matmul_bias": Row(48, 48),
        "cutlass.layer_norm": Row(25, 25),
        "cutlass.matmul": Row(13, 25, "mask"),
        "cutlass.matmul_bias": Row(60, 48, "mask"),
    },
    "opt-dynamo18": {
        "cublas.matmul": Row(13, 13),
        "cublas.matmul_bias": Row(24, 24),
        "cublas.matmul_transposed_bias": Row(6, 6),
        "cublas.matmul_transposed_bias_relu": Row(6, 6),
        "cutlass.layer_norm": Row(13, 13),
        "cutlass.matmul": Row(7, 13, "mask"),
        "cutlass.matmul_bias": Row(24, 18, "mask"),
        "cutlass.matmul_bias_residual_add": Row(6, 6),
        "cutlass.matmul_transposed_bias_relu": Row(6, 6),
        "cutlass.matmul_transposed_bias_residual_add": Row(6, 6),
    },
    "llama-dynamo18-noopt": {
        "cublas.matmul": Row(37, 37),
        "cutlass.matmul": Row(25, 37, "mask"),
        "cutlass.matmul_bias": Row(12, 0, "mask"),
        "cutlass.rms_norm": Row(0, 9, "norm"),
    },
    "patchtst-dynamo20": {
        "cublas.matmul": Row(3, 6, "any-order"),
        "cublas.matmul_bias": Row(17, 17),
        "cublas.matmul_bias_gelu": Row(3, 3),
        "cublas.matmul_transposed": Row(3, 0, "any-order"),
        "cutlass.matmul": Row(3, 6, "any-order"),
        "cutlass.matmul_bias": Row(11, 11),
        "cutlass.matmul_bias_gelu": Row(3, 3),
        "cutlass.matmul_bias_residual_add": Row(6, 6),
        "cutlass.matmul_transposed": Row(3, 0, "any-order"),
    },
    "modernbert-dynamo20": {
        "cublas.matmul": Row(25, 25),
        "cublas.matmul_bias": Row(1, 1),
        "cutlass.layer_norm": Row(10, 0, "shift"),
        "cutlass.matmul": Row(13, 25, "mask"),
        "cutlass.matmul_bias": Row(13, 1, "mask"),
    },
}


def reasons_of(row: Row) -> list[str]:
    """Return the reasons that a row names."""
    return row.reason.split(", ") if row.reason else []


def with_numbers(name: str, folder: Path) -> Path:
    """Write a model with a number for each size and without what can be computed beforehand."""
    model = onnx.load(real_model(name))
    for graph_input in model.graph.input:
        for dim in graph_input.type.tensor_type.shape.dim:
            if not dim.dim_value:
                dim.dim_value = SIZE.get(dim.dim_param, ANY_SIZE)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    onnx.save(inferred, folder / "sized.onnx")
    settings = RewriteSettings(verify=False, max_growth=10_000)
    pipeline.rewrite(
        folder / "sized.onnx", settings.but(output=folder / "net.onnx", patterns=["prepare"])
    )
    return folder / "net.onnx"


def composites_in(function: Any) -> list[str]:  # noqa: ANN401  # TVM has no types
    """Name the composites that a function of a backend is made of."""
    found: list[str] = []

    def visit(part: Any) -> None:  # noqa: ANN401
        if isinstance(part, relax.Function) and part.attrs and "Composite" in part.attrs:
            found.append(str(part.attrs["Composite"]))

    relax.analysis.post_order_visit(function.body, visit)
    return found


def found_by_tvm(path: Path, target: str) -> Counter[str]:
    """Count the calls of composites in what TVM makes of a model."""
    module = PARTITIONERS[target](from_onnx(onnx.load(path)))
    composites = {
        name.name_hint: composites_in(function)
        for name, function in module.functions.items()
        if isinstance(function, relax.Function) and function.attrs and "Codegen" in function.attrs
    }
    counts: Counter[str] = Counter()

    def visit(part: Any) -> None:  # noqa: ANN401
        if isinstance(part, relax.Call) and isinstance(part.op, tvm.ir.GlobalVar):
            counts.update(composites.get(part.op.name_hint, ()))

    relax.analysis.post_order_visit(module["main"].body, visit)
    return counts


def found_by_dpl(path: Path, target: str) -> Counter[str]:
    """Count the matches of the shipped catalogue."""
    return +Counter(pipeline.match(path, MatchSettings(target=[target])).counts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("net", EXPECTED)
def test_counts(net: str, tmp_path: Path) -> None:
    """Both find what is written down."""
    path = with_numbers(net, tmp_path)
    found = {name: (found_by_tvm(path, name), found_by_dpl(path, name)) for name in PARTITIONERS}
    rows = {
        rule: (tvm_counts[rule], dpl_counts[rule])
        for tvm_counts, dpl_counts in found.values()
        for rule in sorted(tvm_counts | dpl_counts)
    }
    assert rows == {rule: (row.tvm, row.dpl) for rule, row in EXPECTED[net].items()}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_difference_is_explained(name: str) -> None:
    """Counts that differ have a reason, others have none."""
    for rule, row in EXPECTED[name].items():
        assert (row.tvm == row.dpl) is (not row.reason), rule
        assert set(reasons_of(row)) <= set(REASONS), rule


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("target", PARTITIONERS)
def test_dpl_finds_no_fewer_partitions(name: str, target: str) -> None:
    """In sum over all rules of a target, but for what TVM finds in operators it makes up."""
    rows = [
        row
        for rule, row in EXPECTED[name].items()
        if rule.startswith(f"{target}.") and row.reason != "shift"
    ]
    assert sum(row.dpl for row in rows) >= sum(row.tvm for row in rows)


def test_every_reason_is_used() -> None:
    """A reason that explains nothing is out of date."""
    rows = [row for of_model in EXPECTED.values() for row in of_model.values()]
    used = {reason for row in rows for reason in reasons_of(row)}
    assert used == set(REASONS)
