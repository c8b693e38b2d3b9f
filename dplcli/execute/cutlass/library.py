"""CUTLASS: instances of one template, compiled when they are first needed, and run on a GPU.

``product.cu`` beside this module is the template. An instance is known by a hash of its text and of
what the compiler is told, and is kept in the user's cache folder.
"""

from __future__ import annotations

import ctypes as c
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.errors import UsageError
from dplcli.execute.compiled import compiled
from dplcli.execute.cuda import Device, DeviceCall, DeviceLibrary, DeviceWork
from dplcli.execute.plan import LibraryError, RefusedError
from dplcli.execute.product import matrices_of, product_of, sampled, whole
from dplcli.files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dplcli.execute.plan import KernelPlan, Shape
    from dplcli.execute.product import Product

    Arrangement = Callable[[NDArray[Any]], NDArray[Any]]

EXTRA = "dplcli[cutlass]"
COMPILER, HEADERS = "DPL_NVCC", "DPL_CUTLASS_INCLUDE"
_HOPPER = 9
_TEMPLATE = Path(__file__).with_name("product.cu")
_FLAGS = (
    *("-std=c++17", "-O2", "-DNDEBUG", "-shared", "-Xcompiler", "-fPIC", "-w"),
    *("--expt-relaxed-constexpr", "-gencode", "arch=compute_90a,code=sm_90a"),
)
_ACTIVATIONS = {
    "": "Identity",
    "gelu": "GELU",
    "hard_swish": "HardSwish",
    "relu": "ReLu",
    "sigmoid": "Sigmoid",
    "silu": "SiLu",
}
"""CUTLASS's names of them. Its GELU is the one by erf."""

_BINARY = {"": "plus", "add": "plus", "multiply": "multiplies"}
_ACCESS = {"float16": 8, "float32": 1}
"""How many elements the kernel reads at once, which rows have to be a multiple of, by type."""

_IMAGE = 4
_LONGEST_COMPILE = 900
"""Seconds."""


@dataclass(frozen=True)
class TemplateInstance:
    """An instance of the template.

    Attributes:
        dtype: Type of all elements: ``float16`` or ``float32``.
        activation: What is done to the biased product, by CUTLASS's name.
        binary: What then is done with the residual.
        last: What is done in the end.
    """

    dtype: str
    activation: str = "Identity"
    binary: str = "plus"
    last: str = "Identity"

    @property
    def flags(self) -> tuple[str, ...]:
        """What the compiler is told."""
        half = ("-DDPL_HALF",) if self.dtype == "float16" else ()
        names = f"-DDPL_ACTIVATION={self.activation}", f"-DDPL_BINARY={self.binary}"
        return (*_FLAGS, *half, *names, f"-DDPL_LAST={self.last}")

    @property
    def file_name(self) -> str:
        """What its library is called."""
        told = " ".join(self.flags).encode()
        return f"{sha256(_TEMPLATE.read_bytes() + told).hexdigest()[:32]}.so"

    def __str__(self) -> str:
        """Say what it computes."""
        return f"{self.dtype} {self.activation} {self.binary} {self.last}"


def instance_of(product: Product) -> TemplateInstance:
    """Return the instance that computes a product.

    Raises:
        RefusedError: There is none; the message says why.
    """
    if product.dtype not in _ACCESS:
        raise RefusedError(f"values are of type {product.dtype}")
    if product.last not in {"", "relu"}:
        raise RefusedError(f"{product.last} after the residual: the template has a Relu there")
    if product.kind == "convolution":
        if len(product.shape) != _IMAGE:
            raise RefusedError("a convolution that is not of images: the template has none")
        if product.settings["groups"] != 1:
            raise RefusedError("a convolution in groups: the template has none")
    return TemplateInstance(
        product.dtype,
        _ACTIVATIONS[product.activation],
        _BINARY[product.binary],
        _ACTIVATIONS[product.last],
    )


@dataclass(frozen=True)
class Launch:
    """What an instance is told: sizes, and how arrays are arranged for it.

    Attributes:
        sizes: As ``dpl_product`` takes them.
        batch: How many products there are, each of these sizes.
        steps: Elements from one product to the next, of image, filter, residual and result.
        operands: As :class:`~dplcli.execute.cuda.DeviceWork` has them: with channels last, and
            filled up with zeros.
        made: The shape of the result.
        finish: Makes the output of the result.
    """

    sizes: tuple[int, ...]
    batch: int
    steps: tuple[int, int, int, int]
    operands: dict[str, tuple[int, Arrangement]]
    made: Shape
    finish: Arrangement


def lower(product: Product) -> Launch:
    """Return what the instance of a product is told."""
    access = _ACCESS[product.dtype]
    made = (_of_images if product.kind == "convolution" else _of_rows)(product, access)

    def row(array: NDArray[Any]) -> NDArray[Any]:
        return _padded(array.reshape(-1), access, 0)

    if product.bias is not None:
        made.operands["bias"] = product.bias, row
    if product.residual is not None and product.is_row:
        made.operands["residual"] = product.residual, row
    return made


def _of_images(product: Product, access: int) -> Launch:
    """Launch a convolution: channels go last, and back again."""
    (count, depth, *image), (columns, _, *window) = (
        product.shapes[number] for number in (product.left, product.right)
    )
    places = product.shape[2:]
    settings: Any = product.settings
    spatial = (*settings["pads_begin"], *settings["strides"], *settings["dilations"])
    wide = _up(columns, access)
    sizes = (count, *image, _up(depth, access), wide, *window, *places, *spatial)

    def last(array: NDArray[Any]) -> NDArray[Any]:
        return _padded(np.moveaxis(array, 1, -1), access, -1)

    def filters(array: NDArray[Any]) -> NDArray[Any]:
        return _padded(last(array), access, 0)

    operands: dict[str, tuple[int, Arrangement]]
    operands = {"left": (product.left, last), "right": (product.right, filters)}
    if product.residual is not None:
        operands["residual"] = product.residual, last
    return Launch(
        (*sizes, int(_has_row(product))),
        1,
        (0, 0, 0, 0),
        operands,
        (count, *places, wide),
        lambda result: np.moveaxis(result[..., :columns], -1, 1),
    )


def _of_rows(product: Product, access: int) -> Launch:
    """Launch a product of matrices: rows are the places of an image of one line."""
    of = matrices_of(product)
    wide, deep = _up(of.columns, access), _up(of.depth, access)
    full = whole(product)

    def left(array: NDArray[Any]) -> NDArray[Any]:
        matrix = full(array)
        return _padded(matrix.swapaxes(-1, -2) if of.is_left_turned else matrix, access, -1)

    def right(array: NDArray[Any]) -> NDArray[Any]:
        matrix = full(array)
        return _padded(matrix if of.is_right_turned else matrix.swapaxes(-1, -2), access, -2, -1)

    operands: dict[str, tuple[int, Arrangement]] = {
        "left": (product.left, left),
        "right": (product.right, right),
    }
    if product.residual is not None:
        operands["residual"] = product.residual, lambda array: _padded(array, access, -1)
    result = of.rows * wide
    steps = (
        of.rows * deep if of.left_stride else 0,
        wide * deep if of.right_stride else 0,
        0 if _has_row(product) else result,
        result,
    )
    window = (1, 1, 1, of.rows, 0, 0, 1, 1, 1, 1)
    return Launch(
        (1, 1, of.rows, deep, wide, *window, int(_has_row(product))),
        of.batch,
        steps,
        operands,
        (of.batch, of.rows, wide),
        lambda made: made[..., : of.columns].reshape(product.shape),
    )


def _has_row(product: Product) -> bool:
    """Tell whether the residual is a row; zeros are, where there is none."""
    return product.residual is None or product.is_row


def _up(size: int, access: int) -> int:
    """Return the next multiple of *access*."""
    return -(-size // access) * access


def _padded(array: NDArray[Any], access: int, *axes: int) -> NDArray[Any]:
    """Fill axes up with zeros to a multiple of *access*: zeros add nothing to a product."""
    ends = [0] * array.ndim
    for axis in axes:
        ends[axis] = -array.shape[axis] % access
    return np.pad(array, [(0, end) for end in ends]) if any(ends) else array


class Compiler:
    """nvcc, and the headers of CUTLASS.

    Attributes:
        missing: What is missing of them; "" if they are at hand.
    """

    def __init__(self) -> None:
        packages = [path for path in map(Path, sys.path) if path.is_dir()]
        found = [f for path in packages for f in sorted(path.glob("nvidia/*/bin/nvcc"))]
        named = os.environ.get(COMPILER) or (str(found[0]) if found else "nvcc")
        self._nvcc = shutil.which(named)
        folders = [path / "cutlass_library/source/include" for path in packages]
        if os.environ.get(HEADERS):
            folders = [Path(os.environ[HEADERS])]
        whole = [folder for folder in folders if (folder / "cutlass/cutlass.h").is_file()]
        self._include = whole[0] if whole else None
        absent = [] if self._nvcc else [f"no {named} ({COMPILER})"]
        absent += [] if self._include else [f"no folder of its headers ({HEADERS})"]
        self.missing = " and ".join(absent)

    def compile(self, instance: TemplateInstance, path: Path) -> None:
        """Compile an instance.

        Raises:
            LibraryError: The compiler is missing, or fails.
        """
        if self.missing or self._nvcc is None:
            raise LibraryError(
                f"the template for {instance} is not compiled yet, and here is {self.missing}"
            )
        root = Path(self._nvcc).parent.parent
        more = [f"-I{self._include}", f"-I{root / 'include/cccl'}", f"-L{root / 'lib'}"]
        command = [self._nvcc, *instance.flags, *more, "-o", str(path), str(_TEMPLATE)]
        done = subprocess.run(  # noqa: S603  # the user's compiler
            command, capture_output=True, text=True, check=False, timeout=_LONGEST_COMPILE
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line] or ["?"]
            raise LibraryError(f"{instance} is not compiled: {said[-1]}")


def loaded(instance: TemplateInstance, compiler: Compiler) -> c.CDLL:
    """Load the library of an instance, compiled now or before.

    Raises:
        LibraryError: It cannot be compiled.
    """
    compile_to = partial(compiler.compile, instance)
    with compiled("cutlass", instance.file_name, compile_to) as path:
        return c.CDLL(str(path))


class Cutlass(DeviceLibrary):
    """CUTLASS on the first GPU, which is a Hopper."""

    name = "sm_90a"

    def __init__(self) -> None:
        """Find the GPU, and what compiles for it.

        Raises:
            UsageError: There is no such GPU; or no compiler, and nothing is compiled already.
        """
        self._compiler = Compiler()
        folder = cache_folder()
        is_empty = folder is None or not any((folder / "cutlass").glob("*.so"))
        if self._compiler.missing and is_empty:
            raise UsageError(
                f"CUTLASS was not found: here is {self._compiler.missing}",
                hint=f"pip install '{EXTRA}' (Linux), and have a C++ compiler",
            )
        super().__init__(Device(EXTRA))
        self._zeros: dict[int, int] = {}
        if self.device.generation != _HOPPER:
            raise UsageError(
                f"the GPU is of compute capability {self.device.generation}, "
                f"and instances are compiled for {self.name}"
            )

    def judge(self, plan: KernelPlan) -> str:
        """Return why no instance computes a plan; "" if one does."""
        try:
            instance_of(product_of(plan, sampled(plan.shapes)))
        except RefusedError as error:
            return str(error)
        return ""

    def compile(self, plan: KernelPlan, shapes: Mapping[int, Shape]) -> DeviceCall:
        """Compile the instance if that was not done before, and put constants on the GPU."""
        product = product_of(plan, shapes)
        instance, told = instance_of(product), lower(product)
        function = loaded(instance, self._compiler).dpl_product
        row = np.zeros(told.made[-1], product.dtype)
        zeros = self._zeros.get(row.nbytes, 0)
        if not zeros:  # kept: rows are as wide as weights, of which there are few widths
            zeros = self._zeros[row.nbytes] = self.device.allocate(row.nbytes)
            self.device.write(zeros, row)
        size, sizes = row.itemsize, (c.c_int * len(told.sizes))(*told.sizes)

        def launch(places: Mapping[str, int], result: int) -> None:
            bias, residual = (places.get(role, zeros) for role in ("bias", "residual"))
            starts = (places["left"], places["right"], residual, result)
            for number in range(told.batch):
                image, filters, more, made = (
                    c.c_void_p(start + number * step * size)
                    for start, step in zip(starts, told.steps, strict=True)
                )
                status = function(image, filters, c.c_void_p(bias), more, made, sizes, None)
                if status:
                    raise LibraryError(
                        f"the template for {instance} returned status {status} (cutlass::Status)"
                    )

        name, shape = ("implicit_gemm", str(instance)), product.shape
        work = DeviceWork(name, launch, told.made, told.finish, "", shape, told.operands)
        return DeviceCall(self, plan, shapes, work)
