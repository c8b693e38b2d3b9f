"""A session of onnxruntime whose partitions run on oneDNN, by the library that is deployed."""

from __future__ import annotations

import ctypes as c
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dplcli.execute.onednn.library import Library, read_primitive
from dplcli.execute.onednn.plans import DTYPES, multiplies_steps, plan_text
from dplcli.execute.operators import runtime
from dplcli.execute.plan import LibraryError
from dplcli.execute.planned import named, plan_calls, planned, signatures, taken
from dplcli.files import temporary_folder
from dplcli.verify.engines import Session, opened
from dplcli.verify.values import ModelSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.execute.plan import KernelPlan, Primitive
    from dplcli.execute.planned import PlannedCall
    from dplcli.verify.values import Feed, Outputs, PartitionTime
    from dplcli.verify.verdict import PartitionRun

_CREATION = 2
"""How much the library says (``ONEDNN_VERBOSE``): also which code it makes."""

_LOOKS = 4
"""In so many runs the library is asked what it runs, if some call has not run yet."""


class OneDnn(Library):
    """oneDNN, which is asked what it runs.

    Args:
        operators: The custom operators that ask it.
        allow_inexact: Whether it runs what it is known to be inexact at.
        is_for_every_cpu: Whether a plan is made for CPUs unlike this one, which look for themselves
            whether 8-bit products are right.

    Raises:
        UsageError: There is none, or one that cannot be used.
    """

    def __init__(
        self, operators: Path, *, allow_inexact: bool = False, is_for_every_cpu: bool = False
    ) -> None:
        super().__init__()
        self._ask = c.CDLL(str(operators)).dpl_judge
        self._ask.restype = c.c_char_p
        self._allow_inexact, self._is_for_every_cpu = allow_inexact, is_for_every_cpu

    def judge(self, plan: KernelPlan) -> str:
        """Return why the library does not run a plan; "" if it does.

        Raises:
            LibraryError: It cannot be asked.
        """
        used = {number for op in plan.ops for number in (*op.inputs, op.output)}
        if strange := {plan.dtypes[number] for number in used} - DTYPES.keys():
            return f"values are of type {min(strange)}"
        if not self._is_for_every_cpu and multiplies_steps(plan):
            why = self.objection_to_steps(allow_inexact=self._allow_inexact)
            if why:
                return why
        text = plan_text({("dnnl", "asked"): [("0", plan, {})]}, "asked")
        with self.told(_CREATION) as lines:
            answer = self._ask(text.encode(), self.path.encode()).decode()
        name, _, why = answer.strip().partition(" ")
        if name == "*":
            raise LibraryError(why)
        if not why and (slow := [p for p in map(read_primitive, lines) if p and p.is_reference]):
            return f"oneDNN has reference code alone for {slow[0].kind} of these types and shapes"
        return str(why)

    def plan(self, calls: Sequence[PlannedCall]) -> str:
        """Return the plan of the calls that are taken."""
        return plan_text(named(calls), f"by dpl, with {self}", is_inexact=self._allow_inexact)

    def __str__(self) -> str:
        """Return its name and version."""
        return f"oneDNN {self.name}"


def plan_model(path: Path, target: str, math: str = "fp32") -> tuple[str, list[PartitionRun]]:
    """Plan the partitions of a model for the oneDNN that is found here.

    Args:
        path: The model.
        target: The domain of the partitions.
        math: In which arithmetic products of float32 may be computed.

    Returns:
        The plan as text, and for each partition where it runs.

    Raises:
        DplError: The model cannot be read, or there is no oneDNN.
    """
    with runtime() as operators:
        library = OneDnn(operators, is_for_every_cpu=True)
        calls = planned(library, ModelSource(path), target, math)
    return library.plan(calls), [call.record(str(library)) for call in calls]


class OneDnnSession:
    """A session with custom operators that run its plan.

    Implements :class:`dplcli.verify.run.KernelEngine`.
    """

    def __init__(self, source: ModelSource, level: str) -> None:
        """Plan every call, ask the library, and open the session.

        Raises:
            RunError: onnxruntime does not accept the model.
            UsageError: The library cannot be used.
        """
        kernels, execution = source.execution.kernels, source.execution
        assert kernels is not None  # noqa: S101  # they name this library
        with runtime() as operators, temporary_folder() as folder:
            self._library = OneDnn(operators, allow_inexact=kernels.allow_inexact)
            self._library.check_math(kernels.math)
            self._calls = plan_calls(self._library, source)
            ran = [call for alike in taken(self._calls).values() for call, _ in alike]
            self._places = {call: 1 + place for place, call in enumerate(ran)}
            self._cells = np.zeros(1 + len(ran), np.int64)  # see Record in native/dpl_dnnl.cc
            plan = folder / "model.plan"
            plan.write_text(self._library.plan(self._calls), encoding="ascii")
            threads = dict(execution.options).get("intra_op_num_threads", "0")
            told = {"dpl.plan": str(plan), "dpl.library": self._library.path}
            options = (*execution.options, *told.items(), ("dpl.threads", threads))
            execution = replace(execution, options=options, kernels=None)
            given = replace(source, libraries=(operators,), execution=execution)

            def create(given: ModelSource) -> Session:
                c.CDLL(str(operators)).dpl_record(c.c_void_p(self._cells.ctypes.data))
                return Session(given, level)

            self._session = opened(given, create, signatures(self._calls))
        self._looks = _LOOKS

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime or a kernel fails.
        """
        if not self._looks or all(call.primitives for call in self._places):
            return self._session.run(feeds)
        self._looks -= 1
        outputs, ran = self._told(feeds)
        for call, primitives in ran.items():
            call.saw(primitives)
        return outputs

    def record(self) -> list[PartitionRun]:
        """Return what has become of every partition so far."""
        for call, place in self._places.items():
            call.runs = int(self._cells[place])
        return [call.record(str(self._library)) for call in self._calls]

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Run once, and return what the library says of its time, for each call that ran."""
        _, ran = self._told(feeds)
        return [call.timed(primitives) for call, primitives in ran.items()]

    def _told(
        self, feeds: Mapping[str, Feed]
    ) -> tuple[Outputs, dict[PlannedCall, list[Primitive]]]:
        """Run, and return what the library ran for each call meanwhile."""
        self._cells[0] = 1
        try:
            with self._library.told() as lines:
                outputs = self._session.run(feeds)
        finally:
            self._cells[0] = 0
        calls = list(self._places)
        ran: dict[PlannedCall, list[Primitive]] = {}
        primitives: list[Primitive] = []
        for line in lines:
            if line.startswith("dpl,call,"):
                number = line.removeprefix("dpl,call,")
                primitives = ran.setdefault(calls[int(number)], []) if number else []
            elif primitive := read_primitive(line):
                primitives.append(primitive)
        return outputs, ran
