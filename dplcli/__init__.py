"""dpl: match, rewrite and partition ONNX graphs by pattern, and verify the result.

``import dplcli as dpl``; then, for example, ``dpl.partition("model.onnx", patterns="conv_relu")``.
What is offered here is imported when it is asked for.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from dplcli.lazy import lazy
from dplcli.version import __version__

if TYPE_CHECKING:
    from dplcli.api import (
        ModelLike,
        accuracy,
        apply,
        bench,
        diff,
        explain,
        extract,
        inline,
        learn,
        load,
        match,
        partition,
        repeat,
        rewrite,
        run,
        verify,
    )
    from dplcli.errors import DplError
    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import PatternRule
    from dplcli.outcomes.base import Outcome
    from dplcli.outcomes.comparing import AccuracyOutcome, DiffOutcome, VerifyOutcome
    from dplcli.outcomes.inspecting import InspectOutcome
    from dplcli.outcomes.matching import ExplainOutcome, MatchOutcome
    from dplcli.outcomes.partitioning import PartitionOutcome
    from dplcli.outcomes.rewriting import RewriteOutcome
    from dplcli.outcomes.rules import RulesOutcome
    from dplcli.outcomes.running import BenchOutcome, RunOutcome
    from dplcli.outcomes.written import ExtractOutcome, InlineOutcome, WrittenOutcome
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "AccuracyOutcome",
    "BenchOutcome",
    "DiffOutcome",
    "DplError",
    "ExplainOutcome",
    "ExtractOutcome",
    "InlineOutcome",
    "InspectOutcome",
    "MatchOutcome",
    "ModelLike",
    "Outcome",
    "PartitionOutcome",
    "PatternRule",
    "RewriteOutcome",
    "RewriteRule",
    "RulesOutcome",
    "RunOutcome",
    "VerifyOutcome",
    "WrittenOutcome",
    "__version__",
    "accuracy",
    "apply",
    "bench",
    "diff",
    "explain",
    "extract",
    "inline",
    "learn",
    "load",
    "match",
    "partition",
    "repeat",
    "rewrite",
    "run",
    "verify",
]


class _FrontDoor(ModuleType):
    """The package. Its functions ``verify`` and ``diff`` win over its packages of these names.

    Python makes an imported package an attribute of the one that it is in.
    """

    def __dir__(self) -> list[str]:
        return __all__

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
