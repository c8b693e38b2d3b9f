"""Run a model in onnxruntime with its partitions on the library of their target.

A worker of :mod:`dplcli.verify.run` opens a session here, by name: on oneDNN by the library that is
deployed, on GPUs with custom operators that are Python functions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dplcli.errors import UsageError
from dplcli.execute.ort_c import CSession, Operator, cannot_be_had
from dplcli.execute.plan import LibraryError, RefusedError, signature_of
from dplcli.execute.planned import plan_calls, taken
from dplcli.files import is_text
from dplcli.verify.inputs import with_weights
from dplcli.verify.settings import PartitionTime, RunError, leaves_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.execute.onednn.session import OneDnnSession
    from dplcli.execute.plan import CompiledCall, KernelLibrary, Shape
    from dplcli.execute.planned import PlannedCall
    from dplcli.verify.settings import Feed, ModelSource, Outputs, PartitionRun


def check(target: str, math: str = "fp32") -> None:
    """Load the library of a target.

    Args:
        target: The target.
        math: In which arithmetic it is to compute products of float32.

    Raises:
        UsageError: There is none, or nothing that runs plans on it, or nothing is gained.
    """
    if target != "dnnl":
        library_of(target)
        return
    from dplcli.execute.onednn.build import runtime  # noqa: PLC0415  # one of them
    from dplcli.execute.onednn.library import Library  # noqa: PLC0415

    Library().check_math(math)
    with runtime():
        pass


def library_of(target: str) -> KernelLibrary:
    """Load the library of a target for GPUs.

    Raises:
        UsageError: There is none that can be used here.
    """
    if target == "cublas":
        from dplcli.execute.cublas.library import CublasLt  # noqa: PLC0415  # one of them

        return CublasLt()
    from dplcli.execute.cutlass.library import Cutlass  # noqa: PLC0415  # one of them

    return Cutlass()


def open_session(source: ModelSource, level: str) -> KernelSession | OneDnnSession:
    """Open a model with the kernels that it asks for."""
    kernels = source.execution.kernels
    if kernels is not None and kernels.target == "dnnl":
        from dplcli.execute.onednn.session import OneDnnSession  # noqa: PLC0415  # one of them

        return OneDnnSession(source, level)
    return KernelSession(source, level)


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
        self._library = library_of(kernels.target)
        self._name = f"{kernels.library} {self._library.name}"
        self._calls = plan_calls(self._library, source)
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
        return [call.record(self._name) for call in self._calls]

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
        found = []
        for function, calls in taken(self._calls).items():
            signature = signature_of(calls[0][1])
            named = {call.node.name: call for call, _ in calls}
            key = (function.domain, function.name)
            found.append(Operator(key, *signature, partial(_named_kernel, self._library, named)))
        return found


def _named_kernel(
    library: KernelLibrary, calls: Mapping[str, PlannedCall], name: str, constant: Sequence[int]
) -> _Kernel:
    return _Kernel(library, calls[name], constant)


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


def _content(source: ModelSource) -> bytes | None:
    """Return what to run instead of the file, weights included."""
    if source.content is None:
        return None if is_text(source.path) else source.path.read_bytes()
    return with_weights(source.content, source.weights or {})
