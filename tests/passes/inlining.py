"""What the tests of inlining share: partition and back, and functions in the place of calls."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from dplcli.ir.model import called_function
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.inline import inline
from dplcli.passes.partition import partition
from dplcli.passes.records import is_written
from dplcli.passes.select import select_matches
from tests.support.helpers import (
    check_sound,
    model_from_bytes,
    print_model,
    proto_from_text,
    rules_of,
)
from tests.support.structure import differences

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

    from dplcli.ir import Function, Model, Node
    from dplcli.passes.inline import Inlining
    from tests.support.helpers import Rules


def partitioned(original: onnx.ModelProto, rules: Rules, *, matches: int) -> onnx.ModelProto:
    """Partition through a file; so many matches are expected."""
    model = model_from_bytes(original.SerializeToString())
    selection = select_matches(model, rules_of(rules))
    assert len(selection.matches) == matches
    partition(model, selection)
    check_structure(model)
    return to_proto(model)


def written_by_partition(model: Model) -> list[Function]:
    """Return the functions that a partition wrote."""
    return [f for f in model.functions.values() if is_written(f)]


def inlined(
    proto: onnx.ModelProto, *, everything: bool = False, calls: Iterable[str] | None = None
) -> tuple[onnx.ModelProto, Inlining]:
    """Inline through a file: what a partition wrote, or everything, or calls by their names."""
    model = model_from_bytes(proto.SerializeToString())
    functions = list(model.functions.values()) if everything else written_by_partition(model)
    only = None if calls is None else calls_of(model, calls)
    result = inline(model, functions, only)
    check_structure(model)
    return to_proto(model), result


def calls_of(model: Model, names: Iterable[str]) -> set[Node]:
    """Find calls by their names, in every graph."""
    wanted = set(names)
    nodes = (node for graph in model.graphs() for node in graph)
    return {node for node in nodes if node.name in wanted and called_function(node) is not None}


def check_undone(original: onnx.ModelProto | str, rules: Rules, *, matches: int = 1) -> None:
    """Check that a partition is undone: structurally equal, and nothing refused or made up."""
    before = proto_from_text(original) if isinstance(original, str) else original
    written = partitioned(before, rules, matches=matches)
    assert written != before
    after, result = inlined(written)
    assert differences(before, after) == []
    assert result.refused == []
    assert all(item.is_restored for item in result.calls)


def check_inlined(before: str, after: str) -> onnx.ModelProto:
    """Check what inlining every function makes of a model, its validity and its numbers.

    Args:
        before: The model as ONNX text.
        after: What :func:`tests.support.helpers.print_model` prints afterwards.
    """
    original = proto_from_text(before)
    written, result = inlined(original, everything=True)
    assert print_model(model_from_bytes(written.SerializeToString())) == dedent(after).strip()
    assert result.refused == []
    check_sound(original, written)
    return written
