"""Tell the functions that partitions and merges have written from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.functions import called_function

if TYPE_CHECKING:
    from dplcli.ir import Function, Node

COMPOSITE_KEY = "Composite"
"""Metadata key of a function that stands for the nodes of a match: the rule's name."""

CODEGEN_KEY = "Codegen"
"""Metadata key of a function that is handed to a target: the target's name."""

REPEAT_DOMAIN = "repeat"
"""Domain of the functions that stand for repeated blocks: no target, which supplies kernels."""


def is_partition(function: Function) -> bool:
    """Tell whether *function* stands for the nodes of one match."""
    return COMPOSITE_KEY in function.metadata


def is_region(function: Function) -> bool:
    """Tell whether *function* makes calls of such functions, and nothing else."""
    metadata = function.metadata
    if COMPOSITE_KEY in metadata or metadata.get(CODEGEN_KEY) != function.domain:
        return False
    outputs = function.body.outputs
    if len(set(outputs)) < len(outputs) or any(value.producer is None for value in outputs):
        return False
    called = [partition_called(node) for node in function.body]
    return all(inner is not None and inner.domain == function.domain for inner in called)


def is_written(function: Function) -> bool:
    """Tell whether a partition or a merge wrote *function*."""
    return is_partition(function) or is_region(function)


def call_of_written(node: Node) -> Function | None:
    """Return the function that *node* calls, if a partition or a merge wrote it."""
    if not node.domain:
        return None
    function = called_function(node)
    return function if function is not None and is_written(function) else None


def is_for_target(function: Function) -> bool:
    """Tell whether a target is handed calls of *function*, which a partition or a merge wrote."""
    return function.domain != REPEAT_DOMAIN


def partition_called(node: Node) -> Function | None:
    """Return the function of a match that *node* calls, if it does."""
    function = called_function(node)
    return function if function is not None and is_partition(function) else None
