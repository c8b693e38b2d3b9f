"""Structural difference of two models, by dataflow and not by name."""

from dplcli.diff.models import DEFAULT_IGNORED, Differ
from dplcli.diff.result import FACETS, Facet, GraphDiff, ModelDiff, NodeChange, Remark

__all__ = [
    "DEFAULT_IGNORED",
    "FACETS",
    "Differ",
    "Facet",
    "GraphDiff",
    "ModelDiff",
    "NodeChange",
    "Remark",
]
