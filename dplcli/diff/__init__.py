"""The structural difference of two models, by dataflow and not by name."""

from dplcli.diff.comparison import DEFAULT_IGNORED, Differ
from dplcli.diff.pairing import FACETS, Facet, GraphDiff, ModelDiff, NodeChange, Remark
