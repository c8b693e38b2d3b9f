"""What onnxruntime makes of the processor that the tests run on."""

from __future__ import annotations

from pathlib import Path
from platform import machine


def adds_in_32_bits() -> bool:
    """Tell whether this CPU does so with products of uint8 and int8.

    x86 without VNNI adds pairs of them in 16 bits. There onnxruntime's own operators saturate, and
    its documents tell users to quantise weights to seven bits (``reduce_range``).
    """
    return machine() not in {"x86_64", "AMD64"} or "vnni" in _flags()


def channels_in_a_block() -> int:
    """Return how many channels onnxruntime puts into a block of the NCHWc layout."""
    return 16 if "avx512f" in _flags() else 8


def _flags() -> str:
    """Return what Linux says of the processors; nothing elsewhere."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
