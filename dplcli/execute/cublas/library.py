"""cuBLASLt: descriptors of a product, and the product on a GPU.

Descriptors are made, and read back, without a GPU. Numbers of attributes are those of cublasLt.h,
which is the same for versions 12 and 13.
"""

from __future__ import annotations

import ctypes as c
from functools import partial
from typing import TYPE_CHECKING, Any

from dplcli.errors import UsageError
from dplcli.execute.cublas.matmul import DTYPES, EPILOGUES, Layout, Matmul, lower
from dplcli.execute.cuda import Device, DeviceCall, DeviceLibrary, DeviceWork, load
from dplcli.execute.plan import LibraryError, RefusedError
from dplcli.execute.product import gelu, sampled, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dplcli.execute.plan import KernelPlan, Shape

EXTRA = "dplcli[cublas]"
LIBRARY = ("cublasLt", "cublasLtMatmul", "DPL_CUBLASLT_LIBRARY", EXTRA)
"""What :func:`~dplcli.execute.cuda.load` is told."""

LAYOUT = {
    "type": (0, c.c_uint32),
    "rows": (2, c.c_uint64),
    "columns": (3, c.c_uint64),
    "leading": (4, c.c_int64),
    "batch": (5, c.c_int32),
    "stride": (6, c.c_int64),
}
"""``cublasLtMatrixLayoutAttribute_t``, and the type of each."""

DESCRIPTION = {
    "compute": (0, c.c_int32),
    "scale": (1, c.c_int32),
    "transpose_a": (3, c.c_int32),
    "transpose_b": (4, c.c_int32),
    "epilogue": (7, c.c_uint32),
    "bias": (8, c.c_void_p),
}
"""``cublasLtMatmulDescAttributes_t``, and the type of each. An operation of 1 transposes."""


class Descriptors:
    """What the library is told of a product, in its own objects."""

    def __init__(self, functions: c.CDLL, matmul: Matmul) -> None:
        """Make them.

        Raises:
            LibraryError: The library refuses something.
        """
        self._functions = functions
        self.matmul = c.c_void_p()
        scale = DTYPES[matmul.scale]
        call(functions, "cublasLtMatmulDescCreate", c.byref(self.matmul), matmul.compute, scale)
        for name in ("transpose_a", "transpose_b", "epilogue"):
            self.set(name, getattr(matmul, name))
        dtype = DTYPES[matmul.product.dtype]
        self.a, self.b, self.d = (
            self._layout(each, dtype) for each in (matmul.a, matmul.b, matmul.d)
        )

    def _layout(self, of: Layout, dtype: int) -> c.c_void_p:
        handle = c.c_void_p()
        sizes = c.c_uint64(of.rows), c.c_uint64(of.columns), c.c_int64(of.leading)
        call(self._functions, "cublasLtMatrixLayoutCreate", c.byref(handle), dtype, *sizes)
        for name in ("batch", "stride"):
            number, kind = LAYOUT[name]
            value = kind(getattr(of, name))
            self._set("cublasLtMatrixLayoutSetAttribute", handle, number, value)
        return handle

    def set(self, name: str, value: int) -> None:
        """Set an attribute of the product, a key of :data:`DESCRIPTION`."""
        number, kind = DESCRIPTION[name]
        self._set("cublasLtMatmulDescSetAttribute", self.matmul, number, kind(value))

    def _set(self, function: str, handle: c.c_void_p, number: int, value: Any) -> None:  # noqa: ANN401  # a number of C
        size = c.c_size_t(c.sizeof(value))
        call(self._functions, function, handle, number, c.byref(value), size)


class CublasLt(DeviceLibrary):
    """cuBLASLt on the first GPU.

    Attributes:
        functions: Its C functions.
        name: Its version.
        handle: Its handle on the GPU.
    """

    def __init__(self) -> None:
        """Load it.

        Raises:
            UsageError: There is no library, or no GPU.
        """
        self.functions = load(*LIBRARY)
        self.name = version_of(self.functions)
        super().__init__(Device(EXTRA))
        self.handle = c.c_void_p()
        try:
            call(self.functions, "cublasLtCreate", c.byref(self.handle))
        except LibraryError as error:
            raise UsageError(f"cuBLASLt {self.name} does not start here: {error}") from error

    def judge(self, plan: KernelPlan) -> str:
        """Return why a plan is no product of cuBLASLt; "" if it is one."""
        try:
            lower(plan, sampled(plan.shapes))
        except RefusedError as error:
            return str(error)
        return ""

    def compile(self, plan: KernelPlan, shapes: Mapping[int, Shape]) -> DeviceCall:
        """Make the descriptors, and put what is constant on the GPU."""
        matmul = lower(plan, shapes)
        product, shape = matmul.product, matmul.product.shape
        launch = partial(self._launch, matmul, Descriptors(self.functions, matmul))
        full = whole(product)
        operands = {"left": (product.left, full), "right": (product.right, full)}
        if product.bias is not None:
            operands["bias"] = product.bias, lambda array: array

        def finish(result: NDArray[Any]) -> NDArray[Any]:
            return gelu(result).astype(result.dtype) if matmul.tail else result

        name = ("cublasLtMatmul", EPILOGUES[matmul.epilogue])
        work = DeviceWork(name, launch, shape, finish, matmul.tail, shape, operands)
        return DeviceCall(self, plan, shapes, work)

    def _launch(
        self, matmul: Matmul, descriptors: Descriptors, places: Mapping[str, int], result: int
    ) -> None:
        if "bias" in places:
            descriptors.set("bias", places["bias"])
        factor = c.c_double if matmul.scale == "float64" else c.c_float
        call(
            self.functions,
            "cublasLtMatmul",
            self.handle,
            descriptors.matmul,
            c.byref(factor(1)),
            *(c.c_void_p(places["right"]), descriptors.a),
            *(c.c_void_p(places["left"]), descriptors.b),
            c.byref(factor(0)),
            *(c.c_void_p(result), descriptors.d) * 2,
            *(None, None, c.c_size_t(0), None),  # its own choice of algorithm, without workspace
        )


def version_of(functions: c.CDLL) -> str:
    """Return the version of the library: ``13.0.2``."""
    functions.cublasLtGetVersion.restype = c.c_size_t
    number = functions.cublasLtGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def call(functions: c.CDLL, name: str, *arguments: object) -> None:
    """Call a function that returns a status.

    Raises:
        LibraryError: The status is not success.
    """
    status = getattr(functions, name)(*arguments)
    if status:
        raise LibraryError(f"{name} returned status {status} (cublasStatus_t)")
