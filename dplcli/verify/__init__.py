"""Proof by running: do two models compute the same?

:func:`dplcli.verify.equivalence.verify_equivalence` makes inputs that fit the original, runs both
models in onnxruntime and compares every output with a tolerance derived from its type and
magnitude. A difference is a result; an exception means that there is no verdict.

Importing this package does not load onnxruntime; importing ``equivalence`` does.
"""

from dplcli.verify.settings import (
    LEVELS,
    Execution,
    Figures,
    InputChoice,
    OutputComparison,
    Override,
    Power,
    Settings,
    VerificationResult,
)
