"""The structural difference of two models, by dataflow and not by name."""

from dplcli.diff.comparison import (
    DEFAULT_IGNORED,
    FACETS,
    Differ,
    Facet,
    FunctionChange,
    GraphDiff,
    InputChange,
    ModelDiff,
    NodeChange,
    OpsetChange,
    Remark,
    SignatureChange,
    WeightChange,
)
