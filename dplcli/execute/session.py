"""Run a model in onnxruntime with its partitions on the library of their target.

A worker of :mod:`dplcli.verify.run` opens a session here, by name. A function is registered as a
custom operator if the library runs every call of it as one partition; of the others onnxruntime
inlines the body, as ever, and the record says why.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dplcli.errors import DplError, UsageError
from dplcli.execute.ort_c import TYPE_CODES, CSession, Operator, cannot_be_had
from dplcli.execute.plan import LibraryError, RefusedError
from dplcli.execute.translate import translate
from dplcli.files import is_text
from dplcli.ir.model import callers_first, calls_in
from dplcli.onnx_io import load_model, model_from_proto
from dplcli.verify.call_types import complete_types
from dplcli.verify.inputs import with_weights
from dplcli.verify.model import model_of
from dplcli.verify.settings import PartitionRun, PartitionTime, RunError, leaves_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.execute.plan import (
        CompiledCall,
        KernelLibrary,
        KernelPlan,
        Primitive,
        Shape,
    )
    from dplcli.ir import Function, Graph, Model, Node
    from dplcli.verify.settings import Feed, ModelSource, Outputs


def check(target: str) -> None:
    """Load the library of a target.

    Raises:
        UsageError: There is none.
    """
    library_of(target)


def library_of(target: str, threads: int = 0, *, allow_inexact: bool = False) -> KernelLibrary:
    """Load the library of a target.

    Args:
        target: The target.
        threads: How many threads of the CPU it has; 0 for its own choice.
        allow_inexact: Whether it runs what it is known to be inexact at.

    Raises:
        UsageError: There is none that can be used here.
    """
    match target:
        case "cublas":
            from dplcli.execute.cublas.library import CublasLt  # noqa: PLC0415  # one of them

            return CublasLt()
        case "cutlass":
            from dplcli.execute.cutlass.library import Cutlass  # noqa: PLC0415  # one of them

            return Cutlass()
        case _:
            from dplcli.execute.onednn.graph import OneDnn  # noqa: PLC0415  # one of them

            return OneDnn(threads, allow_inexact=allow_inexact)


def open_session(source: ModelSource, level: str) -> KernelSession:
    """Open a model with the kernels that it asks for."""
    return KernelSession(source, level)


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


class KernelSession:
    """A session whose partitions run on a library.

    Implements :class:`dplcli.verify.run.Engine`.
    """

    def __init__(self, source: ModelSource, level: str) -> None:
        """Plan every call, ask the library, and open the session.

        Raises:
            RunError: onnxruntime does not accept the model.
            UsageError: The library cannot be used.
        """
        kernels = source.execution.kernels
        assert kernels is not None  # noqa: S101  # they name this module
        threads = int(dict(source.execution.options).get("intra_op_num_threads", 0))
        self._library = library_of(kernels.target, threads, allow_inexact=kernels.allow_inexact)
        self._name = f"{kernels.library} {self._library.name}"
        weights = source.weights or {}
        try:
            model = _model_of(source)
            complete_types(model, source)
        except DplError as error:
            raise RunError(error.message) from error
        self._calls = planned_calls(
            self._library,
            model,
            kernels.target,
            weights,
        )
        operators = self._operators()
        content = _content(source)
        entries = {"session.intra_op.allow_spinning": "0"}
        if content is not None:
            folder = str(source.path.resolve().parent)
            entries["session.model_external_initializers_file_folder_path"] = folder
        for key, text in source.execution.options:
            if "." in key:
                entries[key] = text
            elif key != "intra_op_num_threads":
                raise UsageError(f"--session-option {key} cannot be had together with --with")
        self._session = CSession(
            source.path.resolve() if content is None else content,
            operators,
            level=level,
            threads=threads,
            entries=entries,
        )

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model."""
        given = {}
        for name, feed in feeds.items():
            if not isinstance(feed, np.ndarray):
                raise cannot_be_had(f"the input {name!r} is no tensor")
            given[name] = feed
        return {name: leaves_of(array) for name, array in self._session.run(given).items()}

    def record(self) -> list[PartitionRun]:
        """Return what has become of every partition so far."""
        return [
            PartitionRun(
                call=call.node.name,
                function=f"{call.function.domain}::{call.function.name}",
                library=self._name if call.plan is not None else "",
                primitives=call.primitives,
                runs=call.runs,
                is_repeated=call.node.graph.owner is not None,
                why=call.why,
            )
            for call in self._calls
        ]

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Run once, and return what the library says of its time, for each call that ran."""
        for call in self._calls:
            call.profile = []
        try:
            self.run(feeds)
            return [
                PartitionTime(
                    call.node.name,
                    sum(each.milliseconds for each in call.profile or () if not each.is_reorder),
                    sum(each.milliseconds for each in call.profile or () if each.is_reorder),
                )
                for call in self._calls
                if call.profile
            ]
        finally:
            for call in self._calls:
                call.profile = None

    def _operators(self) -> list[Operator]:
        by_function: dict[Function, list[PlannedCall]] = {}
        for call in self._calls:
            by_function.setdefault(call.function, []).append(call)
        found = []
        for function, calls in by_function.items():
            if any(call.plan is None for call in calls):
                continue
            signatures = {signature_of(call.plan) for call in calls if call.plan is not None}
            (signature,) = signatures
            named = {call.node.name: call for call in calls}
            found.append(
                Operator(
                    (function.domain, function.name),
                    *signature,
                    partial(_named_kernel, self._library, named),
                )
            )
        return found


def _named_kernel(
    library: KernelLibrary, calls: Mapping[str, PlannedCall], name: str, constant: Sequence[int]
) -> _Kernel:
    return _Kernel(library, calls[name], constant)


def signature_of(plan: KernelPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the element types of the inputs and of the outputs of a call."""
    return (
        tuple(plan.dtypes[number] for number in plan.inputs),
        tuple(plan.dtypes[number] for number in plan.outputs),
    )


def planned_calls(
    library: KernelLibrary, model: Model, target: str, weights: Mapping[str, np.ndarray]
) -> list[PlannedCall]:
    """Plan every call of a function of the target, and settle which functions are taken.

    Args:
        library: The library.
        model: The model.
        target: The target.
        weights: Constants that the model does not hold itself, by name.
    """
    bodies = {function.body for function in model.functions.values()}
    inner = set(bodies)
    found: list[PlannedCall] = []
    sites = calls_in(model)
    for function in callers_first(sites):
        if function.domain != target:
            continue
        nodes = sites[function]
        calls = [PlannedCall(node, function) for node in nodes if not _is_within(node, inner)]
        for call in calls:
            try:
                plan = translate(call.node, weights)
                call.why = library.judge(plan)
                call.plan = None if call.why else plan
            except (RefusedError, DplError) as error:
                call.why = str(error)
        _settle(calls, is_inner=any(_is_within(node, bodies) for node in nodes))
        if calls and calls[0].plan is not None:
            bodies.discard(function.body)  # what it calls is in its own plan
        found += calls
    places = {function: place for place, function in enumerate(sites)}
    return sorted(found, key=lambda call: places[call.function])


def _is_within(node: Node, bodies: set[Graph]) -> bool:
    graph = node.graph
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph in bodies


def _settle(calls: Sequence[PlannedCall], *, is_inner: bool) -> None:
    """Refuse all calls of a function if one is refused: a name is registered for all of them."""
    refused = next((call for call in calls if call.plan is None), None)
    names = [call.node.name for call in calls]
    signatures = {signature_of(call.plan) for call in calls if call.plan is not None}
    why = ""
    if refused is not None:
        why = f"{refused.node.name!r}, which calls the same function, cannot: {refused.why}"
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


class _Kernel:
    """Runs one call: compiled once for each set of shapes, constants handed over once for each.

    *constant* are the places of the inputs that onnxruntime holds to be constant. They may be more
    than the plan knows, such as weights that it has computed beforehand.
    """

    def __init__(self, library: KernelLibrary, call: PlannedCall, constant: Sequence[int]) -> None:
        assert call.plan is not None  # noqa: S101  # else it is not registered
        self._library, self._call = library, call
        known = call.plan.constant | {call.plan.inputs[place] for place in constant}
        # oneDNN computes constants once, so that a call of constants alone would be empty.
        is_all = known.issuperset(call.plan.inputs)
        self._plan = replace(call.plan, constant=set() if is_all else known)
        self._compiled: dict[tuple[Shape, ...], CompiledCall] = {}
        self._fresh: set[CompiledCall] = set()
        self._current: CompiledCall | None = None
        self.changing = tuple(
            place
            for place, number in enumerate(self._plan.inputs)
            if number not in self._plan.constant
        )

    def prepare(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        key = tuple(shapes)
        found = self._compiled.get(key)
        if found is None:
            plan = self._plan
            seen = {
                number: plan.views.get(number, shape)
                for number, shape in zip(plan.inputs, shapes, strict=True)
            }
            try:
                found = self._library.compile(plan, seen)
            except (RefusedError, LibraryError) as error:
                raise RunError(f"{self._call.node.name}: {error}") from error
            self._compiled[key] = found
            self._fresh.add(found)
        self._current = found
        return found.output_shapes

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        compiled, plan = self._current, self._plan
        assert compiled is not None  # noqa: S101  # prepare() comes first
        is_fresh = compiled in self._fresh
        places = range(len(inputs)) if is_fresh else self.changing
        given = {plan.inputs[place]: inputs[place] for place in places}
        if (is_fresh and not self._call.primitives) or self._call.profile is not None:
            with self._library.traced() as primitives:
                compiled.run(given, outputs)
            if self._call.profile is not None:
                self._call.profile += primitives
            self._call.primitives = self._call.primitives or tuple(
                f"{each.kind} {each.implementation}" for each in primitives if not each.is_reorder
            )
        else:
            compiled.run(given, outputs)
        self._fresh.discard(compiled)
        self._call.runs += 1


def _model_of(source: ModelSource) -> Model:
    if source.content is None:
        return load_model(source.path)
    return model_from_proto(model_of(source), source.path.parent, source.path.name)


def _content(source: ModelSource) -> bytes | None:
    """Return what to run instead of the file, weights included."""
    if source.content is None:
        return None if is_text(source.path) else source.path.read_bytes()
    return with_weights(source.content, source.weights or {})
