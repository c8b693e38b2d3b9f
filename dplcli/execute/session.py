"""Run a model in onnxruntime with its partitions on the library of their target.

A worker of :mod:`dplcli.verify.run` opens a session here, by name. The custom operators are those
of ``native/``: for oneDNN they run a plan, for GPUs they hand each call to Python.
"""

from __future__ import annotations

import ctypes as c
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dplcli.execute.onednn.plans import hosted_text
from dplcli.execute.operators import runtime
from dplcli.execute.plan import LibraryError, RefusedError
from dplcli.execute.planned import named, plan_calls, taken
from dplcli.files import temporary_folder
from dplcli.verify.engines import Session
from dplcli.verify.values import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dplcli.execute.onednn.session import OneDnnSession
    from dplcli.execute.plan import CompiledCall, KernelLibrary, KernelPlan, Shape
    from dplcli.execute.planned import PlannedCall
    from dplcli.verify.values import Feed, ModelSource, Outputs, PartitionTime
    from dplcli.verify.verdict import PartitionRun

Result = TypeVar("Result")
_CREATE = c.CFUNCTYPE(c.c_int64, c.c_int64, c.POINTER(c.c_uint8))
_PREPARE = c.CFUNCTYPE(c.c_int, c.c_int64, c.POINTER(c.c_int64), c.POINTER(c.c_int64))
_RUN = c.CFUNCTYPE(c.c_int, c.c_int64, c.POINTER(c.c_void_p), c.POINTER(c.c_void_p))


_MOST_SHAPES = 8
"""For so many sets of shapes a call is kept compiled, with its constants on the GPU."""


class _Host(c.Structure):
    """``Host`` of ``native/dpl_dnnl.cc``."""

    _fields_ = (("create", _CREATE), ("prepare", _PREPARE), ("run", _RUN))


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
    from dplcli.execute.onednn.library import Library  # noqa: PLC0415  # one of them

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
    """A session whose partitions run on a library for GPUs.

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
        self._library = library_of(kernels.target)
        self._name = f"{kernels.library} {self._library.name}"
        self._calls = plan_calls(self._library, source)
        self._taken = [pair for alike in taken(self._calls).values() for pair in alike]
        self._kernels: list[_Kernel] = []
        self._failures: list[BaseException] = []
        self._host = _Host(  # kept as long as the session
            _CREATE(self._kept(self._create, -1)),
            _PREPARE(self._kept(self._prepare, 1)),
            _RUN(self._kept(self._run, 1)),
        )
        with runtime() as operators, temporary_folder() as folder:
            plan = folder / "model.plan"
            plan.write_text(hosted_text(named(self._calls)), encoding="ascii")
            options = (*source.execution.options, ("dpl.plan", str(plan)))
            execution = replace(source.execution, options=options, kernels=None, widens=False)
            given = replace(source, libraries=(operators,), execution=execution)
            c.CDLL(str(operators)).dpl_host(c.byref(self._host))
            self._session = self._explained(lambda: Session(given, level))

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime or a kernel fails.
        """
        return self._explained(lambda: self._session.run(feeds))

    def record(self) -> list[PartitionRun]:
        """Return what has become of every partition so far."""
        return [call.record(self._name) for call in self._calls]

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Run once, and return what the library says of its time, for each call that ran."""
        for call in self._calls:
            call.profile = []
        try:
            self.run(feeds)
            return [call.timed(call.profile) for call in self._calls if call.profile]
        finally:
            for call in self._calls:
                call.profile = None

    def _explained(self, do: Callable[[], Result]) -> Result:
        """Do something; raise what a kernel raised rather than what onnxruntime made of it."""
        try:
            return do()
        except RunError as error:
            if not self._failures:
                raise
            cause = self._failures[0]
            self._failures.clear()
            if isinstance(cause, RunError):
                raise cause from error
            is_told = isinstance(cause, LibraryError | RefusedError)  # others may have no words
            raise RunError(f"a kernel failed: {cause if is_told else repr(cause)}") from error

    def _kept(self, do: Callable[..., int], failed: int) -> Callable[..., int]:
        """Return what C calls: it keeps what is raised, and returns *failed* for it."""

        def call(*given: Any) -> int:  # noqa: ANN401  # as C gives it
            try:
                return do(*given)
            except BaseException as error:  # noqa: BLE001  # must not pass through C
                self._failures.append(error)
                return failed

        return call

    def _create(self, number: int, constant: c._Pointer[c.c_uint8]) -> int:
        call, plan = self._taken[number]
        places = [place for place in range(len(plan.inputs)) if constant[place]]
        self._kernels.append(_Kernel(self._library, call, plan, places))
        return len(self._kernels) - 1

    def _prepare(
        self, kernel: int, inputs: c._Pointer[c.c_int64], outputs: c._Pointer[c.c_int64]
    ) -> int:
        made = self._kernels[kernel].prepare(inputs)
        for place, size in enumerate(size for shape in made for size in (len(shape), *shape)):
            outputs[place] = size
        return 0

    def _run(
        self, kernel: int, inputs: c._Pointer[c.c_void_p], outputs: c._Pointer[c.c_void_p]
    ) -> int:
        self._kernels[kernel].run(inputs, outputs)
        return 0


class _Kernel:
    """Runs one call: compiled once for each set of shapes, constants handed over once for each.

    *constant* are the places of the inputs that onnxruntime holds to be constant. They may be more
    than the plan knows, such as weights that it has computed beforehand.
    """

    def __init__(
        self, library: KernelLibrary, call: PlannedCall, plan: KernelPlan, constant: Sequence[int]
    ) -> None:
        self._library, self._call = library, call
        known = plan.constant | {plan.inputs[place] for place in constant}
        self._plan = replace(plan, constant=known)
        self._compiled: dict[tuple[Shape, ...], CompiledCall] = {}
        self._fresh: set[CompiledCall] = set()
        self._current: CompiledCall | None = None

    def prepare(self, inputs: c._Pointer[c.c_int64]) -> Sequence[Shape]:
        """Return the shapes of the outputs; those of inputs stand there one after the other."""
        place, plan = 0, self._plan
        shapes: dict[int, Shape] = {}
        for number in plan.inputs:
            end = place + 1 + inputs[place]
            shapes[number] = tuple(inputs[place + 1 : end])
            place = end
        key = tuple(shapes.values())
        if key not in self._compiled:
            try:
                compiled = self._library.compile(plan, {**shapes, **plan.views})
            except (RefusedError, LibraryError) as error:
                raise RunError(f"{self._call.node.name}: {error}") from error
            while len(self._compiled) >= _MOST_SHAPES:  # sequences may grow and grow
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = compiled
            self._fresh.add(compiled)
        self._current = self._compiled[key]
        return self._current.output_shapes

    def run(self, inputs: c._Pointer[c.c_void_p], outputs: c._Pointer[c.c_void_p]) -> None:
        """Compute, on addresses."""
        compiled, plan = self._current, self._plan
        assert compiled is not None  # noqa: S101  # prepare() comes first
        is_fresh = compiled in self._fresh
        given = {
            number: inputs[place] or 0
            for place, number in enumerate(plan.inputs)
            if is_fresh or number not in plan.constant
        }
        made = [outputs[place] or 0 for place in range(len(plan.outputs))]
        if (is_fresh and not self._call.primitives) or self._call.profile is not None:
            with self._library.traced() as primitives:
                compiled.run(given, made)
            if self._call.profile is not None:
                self._call.profile += primitives
            self._call.saw(primitives)
        else:
            compiled.run(given, made)
        self._fresh.discard(compiled)
        self._call.runs += 1
