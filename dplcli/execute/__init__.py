"""Run partitions on the libraries of their targets, inside onnxruntime."""

from dplcli.verify.check import Kernels

LIBRARIES = {"cublas": "cuBLASLt", "cutlass": "CUTLASS", "dnnl": "oneDNN"}
"""The targets that have a library here, and what it is called."""


def kernels_for(
    target: str, require: str = "any", *, allow_inexact: bool = False, math: str = "fp32"
) -> Kernels:
    """Ask for the library of a target.

    Args:
        target: One of :data:`LIBRARIES`.
        require: How many partitions have to run on it: "all", "any" or a number.
        allow_inexact: Whether partitions run on it that it is known to compute inexactly.
        math: In which arithmetic it may compute products of float32: "fp32" or "bf16".

    Raises:
        UsageError: *require* is none of these.
    """
    return Kernels(
        target, LIBRARIES[target], "dplcli.execute.session", require, allow_inexact, math
    )
