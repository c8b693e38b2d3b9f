"""Find oneDNN, load it, and ask it what it does.

Numbers of the C interface are those of oneDNN's ``dnnl_graph_types.h``, which keeps them from one
version to the next.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
import tempfile
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.errors import UsageError
from dplcli.execute.plan import LibraryError, Primitive

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRA = "dplcli[dnnl]"
VARIABLE = "DPL_DNNL_LIBRARY"
OLDEST = (3, 2, 0)
"""The first version whose Graph API is that of today."""

KNOWN_BAD = {(3, 12, 1): "a product of one row followed by an addition corrupts the heap"}
"""Versions that are not used, and why."""

_CPU = 1
_IN_ORDER = 1
_PROFILE = 1
_X86 = 0x1
_AVX2 = 0x4
_AVX512 = 0x20
_VNNI = 0x8 | 0x40
"""Bits of ``dnnl_cpu_isa_t``."""

_INSTALL = f"pip install '{EXTRA}' (Linux on x86-64), or name a libdnnl.so.3 in {VARIABLE}"


class LibraryNotFoundError(UsageError):
    """There is no library."""


class _Version(c.Structure):
    _fields_ = (
        ("major", c.c_int),
        ("minor", c.c_int),
        ("patch", c.c_int),
        ("hash", c.c_char_p),
        ("cpu", c.c_uint),
        ("gpu", c.c_uint),
    )


def candidates() -> Iterator[str]:
    """Yield the names to try, in order: the one that is asked for, or the wheel's and the system's.

    The system's may have a number of its own: Debian 13 calls it ``libdnnl.so.3.6``.
    """
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    yield from sorted(map(str, Path(sys.prefix, "lib").glob("libdnnl.so.3*")))[:1]
    yield "libdnnl.so.3"
    installed = find_library("dnnl") or ""
    if installed.startswith("libdnnl.so.3."):
        yield installed


class Library:
    """The library, loaded into this process.

    Attributes:
        functions: Its C functions.
        version: Its version, as three numbers.
        engine: The CPU.
        stream: Where it runs what it is told.
    """

    def __init__(self, threads: int = 0) -> None:
        """Load it.

        Args:
            threads: How many threads it has; 0 for its own choice.

        Raises:
            UsageError: There is none, or one that cannot be used.
        """
        self.functions, self.path = _loaded()
        version = self.functions.dnnl_version
        version.restype = c.POINTER(_Version)
        found = version().contents
        self.version = (found.major, found.minor, found.patch)
        if self.version < OLDEST:
            raise UsageError(
                f"{self.path} is oneDNN {self.name}; dpl needs {_dotted(OLDEST)} or later",
                hint=_INSTALL,
            )
        if self.version in KNOWN_BAD:
            raise UsageError(
                f"{self.path} is oneDNN {self.name}, which is known to be faulty: "
                f"{KNOWN_BAD[self.version]}",
                hint=f"use another version: {_INSTALL}",
            )
        self.engine, self.stream = c.c_void_p(), c.c_void_p()
        self.call("dnnl_engine_create", c.byref(self.engine), _CPU, c.c_size_t(0))
        self.call("dnnl_stream_create", c.byref(self.stream), self.engine, _IN_ORDER)
        self._keep_constants()
        if threads and hasattr(self.functions, "omp_set_num_threads"):
            self.functions.omp_set_num_threads(c.c_int(threads))

    def _keep_constants(self) -> None:
        """Have weights brought into the library's layouts once, and not in each run."""
        is_kept = c.c_int()
        self.call("dnnl_graph_get_constant_tensor_cache", c.byref(is_kept))
        if not is_kept.value:  # asked again, oneDNN 3.7 forgets what it has kept
            self.call("dnnl_graph_set_constant_tensor_cache", 1)
        # It may take the code of a partition for that of another that is like it, with the weights
        # that it has kept if they lay at the same address.
        self.call("dnnl_graph_set_compiled_partition_cache_capacity", 0)

    @property
    def name(self) -> str:
        """``3.7.2``."""
        return _dotted(self.version)

    @property
    def is_exact_in_steps(self) -> bool:
        """Whether products of 8-bit numbers are right on this CPU.

        x86 without VNNI adds pairs of products in 16 bits. There oneDNN lets sums of weights of
        more than 64 saturate, and halves weights that meet signed numbers.
        """
        found = self._isa()
        return not found & _X86 or bool(found & _VNNI)

    @property
    def has_slow_products(self) -> bool:
        """Whether products of matrices are slow where rows lie far apart, and convolutions are not.

        For x86 with AVX2 at most, oneDNN has no blocked product. The plain one takes up to three
        times as long where rows of the result are a multiple of 2 KiB apart: few sets of the cache
        hold them all.
        """
        found = self._isa()
        return bool(found & _AVX2) and not found & _AVX512

    def _isa(self) -> int:
        """Return what the library uses of the processor; 0 if it does not say."""
        isa = getattr(self.functions, "dnnl_get_effective_cpu_isa", None)
        return 0 if isa is None else int(isa())

    def call(self, function: str, *arguments: object) -> None:
        """Call a function that returns a status.

        Raises:
            LibraryError: The status is not success.
        """
        status = getattr(self.functions, function)(*arguments)
        if status:
            raise LibraryError(f"{function} returned status {status}")

    @contextmanager
    def traced(self) -> Iterator[list[Primitive]]:
        """Collect the primitives that the library runs meanwhile.

        The library says so itself (``ONEDNN_VERBOSE``), on the process' standard output.
        """
        found: list[Primitive] = []
        libc = c.CDLL(None)
        libc.fflush(None)
        kept = os.dup(1)
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 1)
            self.functions.dnnl_set_verbose(_PROFILE)
            try:
                yield found
            finally:
                self.functions.dnnl_set_verbose(0)
                libc.fflush(None)
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            for line in file.read().decode(errors="replace").splitlines():
                primitive = read_primitive(line)
                if primitive:
                    found.append(primitive)


def read_primitive(line: str) -> Primitive | None:
    """Read a line that tells of a primitive; None for other lines."""
    parts = line.split(",")
    if "exec" not in parts or "graph" in parts:
        return None
    at = parts.index("exec")
    kind, implementation = parts[at + 2 : at + 4]
    return Primitive(kind, implementation, float(parts[-1]))


def _loaded() -> tuple[c.CDLL, str]:
    reasons = []
    for name in candidates():
        try:
            functions = c.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
            continue
        if not hasattr(functions, "dnnl_graph_graph_create"):
            reasons.append(f"{name}: has no Graph API, so it is no oneDNN {_dotted(OLDEST)}")
            continue
        return functions, name
    raise LibraryNotFoundError(f"oneDNN was not found: {'; '.join(reasons)}", hint=_INSTALL)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
