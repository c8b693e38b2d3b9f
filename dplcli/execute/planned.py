"""Which calls of partitions a library runs: each is translated, and the library is asked.

A function is taken if the library runs every call of it; of the others onnxruntime inlines the
body, as ever, and the record says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import DplError
from dplcli.execute.plan import TYPE_CODES, LibraryError, RefusedError, signature_of
from dplcli.execute.translate import translate
from dplcli.ir.model import callers_first, calls_in
from dplcli.onnx_io import load_model, model_from_proto
from dplcli.verify.call_types import complete_types
from dplcli.verify.model import model_of
from dplcli.verify.values import PartitionTime, RunError
from dplcli.verify.verdict import PartitionRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.execute.onednn.plans import Named
    from dplcli.execute.plan import Judging, KernelPlan, Primitive
    from dplcli.ir import Function, Graph, Node
    from dplcli.verify.values import Calls, ModelSource


class PlannedCall:
    """One call of a partition.

    Attributes:
        node: The call.
        function: What it calls.
        plan: What it computes; None if it is refused.
        why: Why it is refused.
        primitives: What the library ran for it, the first time.
        runs: How often it ran.
        profile: What the library runs for it, while that is asked for.
    """

    def __init__(self, node: Node, function: Function) -> None:
        self.node, self.function = node, function
        self.plan: KernelPlan | None = None
        self.why = ""
        self.primitives: tuple[str, ...] = ()
        self.runs = 0
        self.profile: list[Primitive] | None = None

    def judge(self, library: Judging, math: str) -> None:
        """Plan it, and ask the library."""
        try:
            plan = translate(self.node)
            plan.math = math
            self.why = library.judge(plan)
            self.plan = None if self.why else plan
        except (RefusedError, LibraryError, DplError) as error:
            self.why = str(error)

    def saw(self, primitives: Sequence[Primitive]) -> None:
        """Note what the library ran for it, if that is not noted yet."""
        names = [f"{p.kind} {p.implementation}" for p in primitives if not p.is_reorder]
        self.primitives = self.primitives or tuple(names)

    def timed(self, primitives: Sequence[Primitive]) -> PartitionTime:
        """Return how long the library computed for it, and laid tensors out."""
        computing, moving = (
            sum(each.milliseconds for each in primitives if each.is_reorder == is_reorder)
            for is_reorder in (False, True)
        )
        return PartitionTime(self.node.name, computing, moving)

    def record(self, library: str) -> PartitionRun:
        """Return what has become of it, with the name of the library."""
        return PartitionRun(
            call=self.node.name,
            function=f"{self.function.domain}::{self.function.name}",
            library=library if self.plan is not None else "",
            primitives=self.primitives,
            runs=self.runs,
            is_repeated=self.node.graph.owner is not None,
            why=self.why,
            drops_nan=self.plan is not None
            and self.function.domain == "dnnl"
            and any(op.kind in _DROP_NAN for op in self.plan.ops),
        )


_DROP_NAN = {"relu", "clamp"}
"""What oneDNN computes as the larger of two numbers: it is none if one is NaN."""


def plan_calls(library: Judging, source: ModelSource) -> list[PlannedCall]:
    """Plan every call of a model that runs with kernels.

    Raises:
        RunError: The model cannot be read.
    """
    kernels = source.execution.kernels
    assert kernels is not None  # noqa: S101  # they are asked for
    try:
        return planned(library, source, kernels.target, kernels.math)
    except DplError as error:
        raise RunError(error.message) from error


def planned(
    library: Judging, source: ModelSource, target: str, math: str = "fp32"
) -> list[PlannedCall]:
    """Plan every call of a function of the target, and settle which functions are taken.

    Args:
        library: The library.
        source: The model.
        target: The target.
        math: In which arithmetic products of float32 may be computed.

    Raises:
        DplError: The model cannot be read.
    """
    if source.content is None:
        model = load_model(source.path)
    else:
        model = model_from_proto(model_of(source), source.path.parent, source.path.name)
    complete_types(model, source)
    bodies = {function.body for function in model.functions.values()}
    inner = set(bodies)
    done: list[PlannedCall] = []
    sites = calls_in(model)
    for function in callers_first(sites):
        if function.domain != target:
            continue
        nodes = sites[function]
        calls = [PlannedCall(node, function) for node in nodes if not _is_within(node, inner)]
        for call in calls:
            call.judge(library, math)
        _settle(calls, is_inner=any(_is_within(node, bodies) for node in nodes))
        if calls and calls[0].plan is not None:
            bodies.discard(function.body)  # what it calls is in its own plan
        done += calls
    places = {function: place for place, function in enumerate(sites)}
    return sorted(done, key=lambda call: places[call.function])


def taken(
    calls: Sequence[PlannedCall],
) -> dict[Function, list[tuple[PlannedCall, KernelPlan]]]:
    """Return the functions that run on the library, with their calls and what these compute."""
    found: dict[Function, list[tuple[PlannedCall, KernelPlan]]] = {}
    for call in calls:
        if call.plan is not None:  # all calls of a function are taken, or none
            found.setdefault(call.function, []).append((call, call.plan))
    return found


def named(calls: Sequence[PlannedCall]) -> dict[tuple[str, str], list[Named]]:
    """Return what is taken by names: the calls of each function, with their attributes."""
    return {
        (f.domain, f.name): [(call.node.name, plan, call.node.attributes) for call, plan in alike]
        for f, alike in taken(calls).items()
    }


def signatures(calls: Sequence[PlannedCall]) -> Calls:
    """Return the element types of what the calls read and make that are taken."""
    named_calls = ((*key, call) for key, alike in named(calls).items() for call in alike)
    return {(domain, name, call[0]): signature_of(call[1]) for domain, name, call in named_calls}


def _is_within(node: Node, bodies: set[Graph]) -> bool:
    graph = node.graph
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph in bodies


def _settle(calls: Sequence[PlannedCall], *, is_inner: bool) -> None:
    """Refuse all calls of a function if one is refused: a name is registered for all of them."""
    names = [call.node.name for call in calls]
    signatures = {signature_of(call.plan) for call in calls if call.plan is not None}
    refused, why = [call for call in calls if call.plan is None], ""
    if refused:
        why = f"{refused[0].node.name!r}, which calls the same function, cannot: {refused[0].why}"
    elif is_inner:
        why = "the function is called within another function, too"
    elif len(set(names)) < len(names) or "" in names:
        why = "calls of the function do not have names of their own"
    elif len(signatures) > 1:
        why = "calls of the function differ in their types"
    elif any(dtype not in TYPE_CODES for pair in signatures for side in pair for dtype in side):
        why = "onnxruntime's C interface does not take its types"
    for call in calls if why else ():
        call.why = call.why or why
        call.plan = None
