"""Kernels that end the process: a library with a fault."""

import os
from collections.abc import Mapping

from dplcli.execute.session import KernelSession, check
from dplcli.verify.settings import Feed, ModelSource, Outputs

__all__ = ["check", "open_session"]


class _Crashing(KernelSession):
    def run(self, _feeds: Mapping[str, Feed]) -> Outputs:
        os.abort()


def open_session(source: ModelSource, level: str) -> _Crashing:
    """Open a session that does not survive its first run."""
    return _Crashing(source, level)
