"""Proof by running: do two models compute the same?

`verify_equivalence` makes inputs that fit the original, runs both models in onnxruntime and
compares every output with a tolerance derived from its type and magnitude. A difference is a
result; an exception means that there is no verdict.
"""

from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.result import (
    LEVELS,
    InputChoice,
    OutputComparison,
    Settings,
    VerificationResult,
)

__all__ = [
    "LEVELS",
    "InputChoice",
    "OutputComparison",
    "Settings",
    "VerificationResult",
    "verify_equivalence",
]
