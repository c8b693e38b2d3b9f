"""Partitions on oneDNN in programs without dpl: plans as files, and the library that runs them.

The library is a set of custom operators in C++ (``native/``), the same for every model. A plan says
what each call computes, in lines of words, with oneDNN's own numbers for kinds and settings.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from dplcli.errors import UsageError
from dplcli.execute.onednn.graph import (
    DTYPES,
    KINDS,
    SETTINGS,
    OneDnn,
    ends_of,
    most_parts,
    multiplies_steps,
)
from dplcli.execute.onednn.library import KNOWN_BAD, OLDEST, candidates
from dplcli.execute.ort_c import TYPE_CODES
from dplcli.execute.session import planned_calls, signature_of
from dplcli.files import temporary_folder, write_file
from dplcli.onnx_io import load_model
from dplcli.verify.call_types import complete_types
from dplcli.verify.settings import ModelSource, PartitionRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.execute.plan import KernelPlan, OpenShape, PlanOp, Setting
    from dplcli.execute.session import PlannedCall
    from dplcli.ir import Attribute

_SOURCE = Path(__file__).parent / "native" / "dpl_dnnl.cc"
INEXACT_ELSEWHERE = "8-bit products would be inexact on a CPU without VNNI"
_OPEN = -1
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_LONGEST = 12
"""So many lines of a compiler's message are shown."""


# Plans.


def plan_model(path: Path, target: str) -> tuple[str, list[PartitionRun]]:
    """Plan the partitions of a model for the oneDNN that is found here.

    Args:
        path: The model.
        target: The domain of the partitions.

    Returns:
        The plan as text, and for each partition where it runs.

    Raises:
        DplError: The model cannot be read, or there is no oneDNN.
    """
    library = _ForEveryCpu()
    model = load_model(path)
    complete_types(model, ModelSource(path))
    calls = planned_calls(library, model, target, {})
    name = f"oneDNN {library.name}"
    found = [
        PartitionRun(
            call=call.node.name,
            function=f"{call.function.domain}::{call.function.name}",
            library=name if call.plan is not None else "",
            why=call.why,
        )
        for call in calls
    ]
    lines = _plan_lines(calls, f"# by dpl kernels plan, with {name}")
    return "".join(f"{line}\n" for line in lines), found


class _ForEveryCpu(OneDnn):
    """oneDNN as far as it computes the same on every CPU."""

    def judge(self, plan: KernelPlan) -> str:
        """Return why a plan is not to run elsewhere; "" if it is."""
        return INEXACT_ELSEWHERE if multiplies_steps(plan) else super().judge(plan)


def _plan_lines(calls: Iterable[PlannedCall], comment: str) -> Iterator[str]:
    yield "dpl-plan 2"
    yield comment
    yield _line("oldest", *OLDEST)
    for version, fault in KNOWN_BAD.items():
        yield _line("faulty", *version, _word(fault))
    taken: dict[object, list[PlannedCall]] = {}
    for call in calls:
        if call.plan is not None:
            taken.setdefault(call.function, []).append(call)
    for alike in taken.values():
        function, plan = alike[0].function, alike[0].plan
        assert plan is not None  # noqa: S101  # it is taken
        sides = [_several(TYPE_CODES[dtype] for dtype in dtypes) for dtypes in signature_of(plan)]
        yield _line("function", _word(function.domain), _word(function.name), *chain(*sides))
        for call in alike:
            assert call.plan is not None  # noqa: S101  # all calls of a function are, or none
            yield _line("call", _word(call.node.name))
            yield from _call_lines(call, call.plan)
    yield "end"


def _call_lines(call: PlannedCall, plan: KernelPlan) -> Iterator[str]:
    for name, attribute in call.node.attributes.items():
        if (stated := _attribute(attribute)) is not None:
            yield _line("attribute", _word(name), *stated)
    used = {number for op in plan.ops for number in (*op.inputs, op.output)}
    for number in sorted(used | set(plan.inputs)):
        yield _line("value", number, DTYPES.get(plan.dtypes[number], 0))
    for number, value in zip(plan.inputs, call.node.inputs, strict=True):
        known = None if value is None else value.known_type()
        shape = None if known is None else known.shape
        flags = (int(number in plan.constant), int(shape is not None))
        yield _line("input", number, *flags, *_shape(shape or ()))
    for number, view in plan.views.items():
        yield _line("view", number, *_shape(view))
    for number, array in plan.fixed.items():
        yield _line("fixed", number, _bytes(array))
    for number, array in plan.numbers.items():
        yield _line("number", number, *_shape(array.shape), _bytes(array))
    for op in plan.ops:
        yield from _op_lines(op)
    yield _line("outputs", *_several(plan.outputs))
    yield _line("ends", *_several(ends_of(plan)))
    yield _line("parts", most_parts(plan))
    if plan.is_region:
        yield "region"


def _op_lines(op: PlanOp) -> Iterator[str]:
    yield _line("op", KINDS[op.kind], *_several(op.inputs), op.output)
    for name, value in op.settings.items():
        yield _line("set", SETTINGS[name], *_setting(value))


def _setting(value: Setting) -> tuple[object, ...]:
    match value:
        case bool():
            return "b", 1, int(value)
        case int():
            return "i", 1, value
        case float():
            return "f", 1, _float(value)
        case str():
            return "s", _word(value)
        case _ if any(isinstance(item, float) for item in value):
            return "f", *_several(map(_float, value))
        case _:
            return "i", *_several(value)


def _attribute(attribute: Attribute) -> tuple[object, ...] | None:
    """Return an attribute of a call for the library to compare; None if it cannot."""
    kind, value = attribute.kind, attribute.value
    match value:
        case int() if kind == "int":
            return kind, 1, value
        case float() | int() if kind == "float":
            return kind, 1, _float(value)
        case str() | bytes() if kind == "string":
            data = value.encode() if isinstance(value, str) else value
            return kind, data.hex() or "-"
        case tuple() if kind == "ints":
            return kind, *_several(value)
        case tuple() if kind == "floats":
            return kind, *_several(map(_float, value))
    return None


def _line(*words: object) -> str:
    return " ".join(map(str, words))


def _word(name: str) -> str:
    return quote(name, safe="")


def _several(items: Iterable[object]) -> list[object]:
    found = list(items)
    return [len(found), *found]


def _shape(shape: OpenShape) -> list[object]:
    return _several(size if isinstance(size, int) else _OPEN for size in shape)


def _float(value: float) -> str:
    return np.float32(value).tobytes().hex()


def _bytes(array: np.ndarray) -> str:
    return np.ascontiguousarray(array).tobytes().hex() or "-"


# The library.


def build_library(output: Path, dnnl: str | None) -> tuple[str, str]:
    """Compile the custom operators.

    Args:
        output: The shared library to write.
        dnnl: Where oneDNN will be; None for where it is found here.

    Returns:
        The compiler, and where oneDNN is looked for.

    Raises:
        UsageError: There is no compiler, or it fails; nothing is written then.
        OSError: The library cannot be written.
    """
    if sys.platform == "win32":
        raise UsageError("dpl kernels build: is for Linux, not for Windows")
    compiler = _compiler()
    place = dnnl or _place()
    text = json.dumps(place, ensure_ascii=False)  # as C spells it, too
    facts = [f"-DDPL_DNNL_LIBRARY={text}", f"-DDPL_LAST_KIND={max(KINDS.values())}"]
    with temporary_folder() as folder:
        draft = folder / "library.so"
        command = [*compiler, *_FLAGS, *facts, str(_SOURCE), "-o", str(draft)]
        if sys.platform.startswith("linux"):
            command.append("-ldl")  # in the C library itself from glibc 2.34 on
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError as error:
            raise UsageError(f"{compiler[0]}: does not start: {error.strerror}") from error
        if done.returncode or not draft.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()
            how = f"ends with exit code {done.returncode}" if done.returncode else "writes nothing"
            raise UsageError(
                "\n    ".join([f"{shlex.join(compiler)}: {how}", *said[:_LONGEST]]),
                hint="a compiler of C++17 is needed, such as g++ 8 or clang++ 7; CXX names another",
            )
        write_file(output, draft.read_bytes())
    return shlex.join(compiler), place


def _place() -> str:
    """Return the library that is found here: its file, or the name that the system knows it by."""
    names = list(candidates())
    files = (str(Path(name).resolve()) for name in names if Path(name).is_file())
    return next(files, names[-1])


def _compiler() -> Sequence[str]:
    named = os.environ.get("CXX", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"CXX={named}: is no command: {error}") from error
    if words:
        if shutil.which(words[0]) is None:
            raise UsageError(f"CXX={named}: there is no such compiler")
        return words
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name) is not None:
            return [name]
    raise UsageError(
        "there is no C++ compiler: c++, g++ and clang++ are not found",
        hint="install g++, or name one in CXX; the library may be built on another machine, too",
    )
