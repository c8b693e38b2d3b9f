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
from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import UsageError
from dplcli.execute.plan import Primitive

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRA = "dplcli[dnnl]"
VARIABLE = "DPL_DNNL_LIBRARY"
OLDEST = (3, 2, 0)
"""The first version whose Graph API is that of today."""

_PROFILE = 1
_X86, _VNNI, _BF16, _AMX = 0x1, 0x8 | 0x40, 0x80, 0x200
"""Bits of ``dnnl_cpu_isa_t``."""


class Fault(NamedTuple):
    """What some versions are not used for.

    Attributes:
        first: The first version that does it, as three numbers.
        mended: The first that does not do it any more.
        is_of_steps: Whether it is about 8-bit products alone.
        isa: The CPUs that it is about: bits of ``dnnl_cpu_isa_t``; 0 for all.
        what: What it does.
    """

    first: tuple[int, int, int]
    mended: tuple[int, int, int]
    is_of_steps: bool
    isa: int
    what: str


KNOWN_BAD = (
    Fault(
        (3, 12, 1),
        (3, 12, 2),
        is_of_steps=False,
        isa=0,
        what="a product of one row followed by an addition corrupts the heap",
    ),
    # jit_avx512_core_amx_1x1 takes places of the image in twos, also where they are odd in number.
    Fault(
        OLDEST,
        (3, 4, 0),
        is_of_steps=True,
        isa=_AMX,
        what="8-bit convolutions of width one corrupt the heap with AMX; "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI keeps it from that",
    ),
)
INEXACT = "oneDNN rounds 8-bit products coarsely on a CPU without VNNI (--allow-inexact)"

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
        path: Its file, or the name that the system knows it by.
        version: Its version, as three numbers.
    """

    def __init__(self) -> None:
        """Load it.

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
        if why := self._fault(is_of_steps=False):
            raise UsageError(
                f"{self.path} is oneDNN {self.name}, which is known to be faulty: {why}",
                hint=f"use another version: {_INSTALL}",
            )

    def _fault(self, *, is_of_steps: bool) -> str:
        """Return what this version does on this CPU, all that it computes or 8-bit products."""
        isa = self._isa()
        return next(
            (
                fault.what
                for fault in KNOWN_BAD
                if fault.first <= self.version < fault.mended
                and fault.is_of_steps == is_of_steps
                and (not fault.isa or fault.isa & isa)
            ),
            "",
        )

    @property
    def name(self) -> str:
        """``3.7.2``."""
        return _dotted(self.version)

    def objection_to_steps(self, *, allow_inexact: bool) -> str:
        """Return why products of 8-bit numbers do not run here; "" if they do.

        x86 without VNNI adds pairs of products in 16 bits. There oneDNN lets sums of weights of
        more than 64 saturate, and halves weights that meet signed numbers.
        """
        if why := self._fault(is_of_steps=True):
            return f"oneDNN {self.name}: {why}"
        is_exact = not self._isa() & _X86 or self._isa() & _VNNI
        return "" if is_exact or allow_inexact else INEXACT

    @property
    def has_bf16(self) -> bool:
        """Whether products of float32 are quicker in bfloat16.

        They are with AMX. For AVX512_BF16 alone, oneDNN 3.2 has no code that takes float32.
        """
        return bool(self._isa() & _AMX)

    @property
    def features(self) -> tuple[str, ...]:
        """What the library uses of the CPU, of what matters here."""
        bits = {"VNNI": _VNNI, "AVX512_BF16": _BF16, "AMX": _AMX}
        return tuple(name for name, bit in bits.items() if self._isa() & bit)

    def check_math(self, math: str) -> None:
        """Refuse an arithmetic that gains nothing here.

        Raises:
            UsageError: It gains nothing.
        """
        if math == "bf16" and not self.has_bf16:
            raise UsageError(
                "--math bf16: this CPU has no AMX, so oneDNN computes in float32 as ever",
                hint="leave it out; dpl doctor says what the CPU has",
            )

    def _isa(self) -> int:
        """Return what the library uses of the processor; 0 if it does not say."""
        isa = getattr(self.functions, "dnnl_get_effective_cpu_isa", None)
        return 0 if isa is None else int(isa())

    @contextmanager
    def told(self, level: int = _PROFILE) -> Iterator[list[str]]:
        """Collect the lines that the library says meanwhile of what it runs, or also makes.

        It says so itself (``ONEDNN_VERBOSE``), on the process' standard output.
        """
        lines: list[str] = []
        libc = c.CDLL(None)
        libc.fflush(None)
        kept = os.dup(1)
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 1)
            self.functions.dnnl_set_verbose(level)
            try:
                yield lines
            finally:
                self.functions.dnnl_set_verbose(0)
                libc.fflush(None)
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def read_primitive(line: str) -> Primitive | None:
    """Read a line that tells of a primitive; None for other lines."""
    parts = line.split(",")
    begins = (n for n, word in enumerate(parts) if word == "exec" or word.startswith("create:"))
    at = next(begins, None)
    if at is None or "graph" in parts:
        return None
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
