"""The operators of ``com.microsoft`` and their attributes, since onnx does not know them.

They are written down in ``contrib.txt`` for one version of onnxruntime, because asking it for them
takes longer than reading a catalogue. Another version is asked. A test compares the table with the
version that it is for, and shows the lines that are missing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from dplcli.version import version_of

CONTRIB = "com.microsoft"

IN_STANDARD_DOMAIN = frozenset(
    {
        *("Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler"),
        *("ParametricSoftplus", "Scale", "ScaledTanh", "SimplifiedLayerNormalization"),
    }
)
"""Operators of onnxruntime that stand in the standard domain, and that the standard lacks."""

TABLE_VERSION = "1.32.0"
"""The version of onnxruntime that the table is for."""


@cache
def contrib_operators() -> dict[str, frozenset[str]]:
    """Return the attributes of each operator, by its name."""
    is_other = version_of("onnxruntime") != TABLE_VERSION
    return installed_operators() if is_other else written_operators()


def installed_operators() -> dict[str, frozenset[str]]:
    """Ask onnxruntime for the attributes of each operator, by its name."""
    from onnxruntime.capi import (  # noqa: PLC0415  # slow to load
        onnxruntime_pybind11_state as state,
    )

    found: dict[str, frozenset[str]] = {}
    for schema in state.get_all_operator_schema():
        if schema.domain == CONTRIB:
            known = found.get(schema.name, frozenset[str]())
            found[schema.name] = known.union(schema.attributes)
    return found


@cache
def runtime_schemas() -> dict[str, Any]:
    """Ask onnxruntime for its own schema of each operator: it has most of what onnx's have."""
    from onnxruntime.capi import (  # noqa: PLC0415  # slow to load
        onnxruntime_pybind11_state as state,
    )

    return {s.name: s for s in state.get_all_operator_schema() if s.domain == CONTRIB}


def written_operators() -> dict[str, frozenset[str]]:
    """Return what the table says of each operator, by its name."""
    table = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = table.replace("\n  ", " ").splitlines()
    pairs = (line.split(":") for line in lines)
    return {name: frozenset(attributes.split()) for name, attributes in pairs}
