"""The check: do two models compute the same when they run?

:func:`dplcli.verify.equivalence.verify_equivalence` makes inputs that fit the original, runs both
models in onnxruntime, and compares every output within a tolerance that follows from its type and
magnitude. A difference is a result. An exception means that there is no verdict.

Importing this package does not load onnxruntime; importing ``equivalence`` does.
"""

from dplcli.verify.check import LEVELS, Check, Execution, InputRequest, Override
from dplcli.verify.verdict import Figures, InputChoice, OutputComparison, Power, VerificationResult
