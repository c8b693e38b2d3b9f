"""Inlining functions, checking the result and writing it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean
from dplcli.ir.functions import called_function
from dplcli.ir.marks import NODES_KEY
from dplcli.onnx_io import is_modified, paused_gc
from dplcli.passes.inline import Inlining
from dplcli.passes.inline import inline as inline_functions
from dplcli.passes.marks import is_written
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.writing import (
    Judged,
    Verdict,
    WriteSettings,
    finish,
    open_model,
    protect_files,
    say_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from dplcli.ir import Function, Model, Node
    from dplcli.pipeline.writing import Progress


@dataclass(frozen=True)
class InlineChoice:
    """What to inline; nothing chosen means everything that a partition wrote.

    Attributes:
        targets: Domains, all of whose functions are inlined, whoever wrote them.
        functions: Functions, as ``dnnl::conv2d_relu``.
        calls: Single calls, by the name of the node or of an output.
        everything: Whether to inline every function there is.
    """

    targets: Sequence[str] = ()
    functions: Sequence[str] = ()
    calls: Sequence[str] = ()
    everything: bool = False


@dataclass(frozen=True)
class InlineOutcome(Judged):
    """What :func:`inline` did.

    Attributes:
        label: The model's name.
        inlining: The calls replaced, those that stay, and the functions removed.
        notes: What a reader should know about the file.
        nodes: Nodes of the main graph before and after.
        functions: How many functions the model had.
        verdict: What is said of the result, and where it is.
        is_sorted: Whether the nodes had to be brought into topological order.
    """

    label: str
    inlining: Inlining
    notes: tuple[str, ...] = ()
    nodes: tuple[int, int] = (0, 0)
    functions: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    is_sorted: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        return self.is_sorted or bool(self.inlining.calls or self.inlining.removed)

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, and equivalent as far as checked."""
        return self.verdict.is_sound


@paused_gc()
def inline(
    model_path: Path,
    *,
    output: Path,
    choice: InlineChoice | None = None,
    settings: WriteSettings | None = None,
    progress: Progress | None = None,
) -> InlineOutcome:
    """Put functions in the place of their calls, verify the result, and write it.

    Args:
        model_path: The model.
        output: Where to write the result; it appears complete, or not at all.
        choice: What to inline; None for everything that a partition wrote.
        settings: How the result is checked and written.
        progress: Told what is being done.

    Raises:
        DplError: The model cannot be used, something chosen is not there, the output cannot be
            written, or no verdict on the result can be reached.
    """
    settings = settings or WriteSettings()
    say = progress or say_nothing
    model = open_model(model_path, output, settings, say)
    protect_files(model, output, settings.failed_path(output), set())
    functions, only = _chosen(model, choice or InlineChoice())
    before, known = model.graph.node_count, len(model.functions)
    is_sorted = is_modified(model)
    say("inlining")
    inlining = inline_functions(model, functions, only)
    nodes = (before, model.graph.node_count)
    notes = tuple(model.notes)
    outcome = InlineOutcome(model_path.name, inlining, notes, nodes, known, is_sorted=is_sorted)

    verdict = finish(model, model_path, output, settings, say, is_changed=outcome.is_changed)
    return replace(outcome, verdict=verdict)


def _chosen(model: Model, choice: InlineChoice) -> tuple[list[Function], Collection[Node] | None]:
    """Return the functions chosen, and the calls if not all of them are.

    Raises:
        UsageError: Something chosen is not there.
    """
    known = model.functions.values()
    if choice.everything:
        return list(known), None
    if choice.calls:
        return _of_calls(model, choice.calls)
    if not choice.targets and not choice.functions:
        return written_functions(model), None
    found = [function for name in choice.functions for function in _named(known, name)]
    for target in choice.targets:
        found += _of_target(known, target)
    return found, None


def written_functions(model: Model) -> list[Function]:
    """Return the functions that dpl has outlined: they, or their calls, say so."""
    marked = {
        called_function(node)
        for graph in model.graphs()
        for node in graph
        if called_function(node) is not None and NODES_KEY in node.remarks.metadata
    }
    return [
        function
        for function in model.functions.values()
        if function in marked or is_written(function)
    ]


def _of_calls(model: Model, names: Iterable[str]) -> tuple[list[Function], set[Node]]:
    functions: dict[Function, None] = {}
    calls = set()
    for name in names:
        found = find_nodes(model, name)
        if len(found) > 1:
            where = ", ".join(f"{node.qualified_op} -> {_output_of(node)!r}" for node in found)
            raise UsageError(
                f"--call {name!r}: {len(found)} nodes have this name: {where}",
                hint="name one by its output",
            )
        function = called_function(found[0])
        if function is None:
            raise UsageError(
                f"--call {name!r}: is a {found[0].qualified_op}, not a call of a function"
            )
        functions[function] = None
        calls.add(found[0])
    return list(functions), calls


def _output_of(node: Node) -> str:
    return next((output.name for output in node.outputs if output is not None), "")


def _named(functions: Iterable[Function], name: str) -> list[Function]:
    """Return the functions of that name; several if they differ in their overload."""
    found = [function for function in functions if _name_of(function) == name]
    if not found:
        names = [_name_of(function) for function in functions]
        raise UsageError(
            f"--function {name!r}: the model has no such function", hint=_hint(name, names)
        )
    return found


def _of_target(functions: Iterable[Function], target: str) -> list[Function]:
    found = [function for function in functions if function.domain == target]
    if not found:
        domains = [function.domain for function in functions]
        raise UsageError(
            f"--target {target!r}: the model has no function of this domain",
            hint=_hint(target, domains),
        )
    return found


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    if not names:
        return "the model has no functions at all"
    return did_you_mean(name, names) or f"there is {', '.join(names[:_MOST_NAMED])}"


_MOST_NAMED = 8


def _name_of(function: Function) -> str:
    return f"{function.domain}::{function.name}"
