"""Kernels whose plans lack their last operator: a mapping with a fault."""

from collections.abc import Mapping

import numpy as np

from dplcli.execute import session
from dplcli.execute.plan import KernelPlan
from dplcli.execute.session import KernelSession, check
from dplcli.execute.translate import translate
from dplcli.ir import Node
from dplcli.verify.settings import ModelSource

__all__ = ["check", "open_session"]


def _wrong(call: Node, numbers: Mapping[str, np.ndarray]) -> KernelPlan:
    plan = translate(call, numbers)
    last = plan.ops.pop()
    plan.outputs = [plan.ops[-1].output if n == last.output else n for n in plan.outputs]
    return plan


def open_session(source: ModelSource, level: str) -> KernelSession:
    """Open a session that leaves out a post-op of every partition."""
    session.translate = _wrong  # type: ignore[attr-defined]
    return KernelSession(source, level)
