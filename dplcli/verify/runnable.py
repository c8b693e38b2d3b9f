"""Whether the installed onnxruntime has a kernel for an operator.

It is asked once: answers are kept in the user's cache folder, for one onnxruntime.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import onnx

from dplcli.files import cache_folder, write_file
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.convert import encode_attribute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Attribute

_DIGEST = 16


class KernelQuestion(NamedTuple):
    """A node of which it is asked whether there is a kernel for it.

    Attributes:
        domain: The operator's domain.
        op_type: The operator.
        opset: The version of the domain.
        dtypes: The element types of what it reads, "" for an operand that is left out.
        attributes: Its attributes.
        output_count: How many results it has.
    """

    domain: str
    op_type: str
    opset: int
    dtypes: Sequence[str]
    attributes: Mapping[str, Attribute]
    output_count: int

    @property
    def key(self) -> str:
        """What tells one answer from another."""
        return " ".join(
            (self.domain, self.op_type, str(self.opset), *(t or "-" for t in self.dtypes))
        )


class KernelAnswers:
    """The kernels of the installed onnxruntime on the CPU, as far as somebody asked."""

    def lacks(self, asked: KernelQuestion) -> bool:
        """Tell whether there is no kernel for an operator."""
        if asked.key not in self._answers:
            self._answers[asked.key] = _is_lacking(asked)
            if self._file is not None:
                with suppress(OSError):
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    write_file(self._file, json.dumps(self._answers).encode())
        return self._answers[asked.key]

    @cached_property
    def _file(self) -> Path | None:
        """Where the answers are kept; its name tells one onnxruntime from another."""
        folder, spec = cache_folder(), find_spec("onnxruntime")
        if folder is None or spec is None or spec.origin is None:
            return None
        state = Path(spec.origin).stat()
        identity = f"{spec.origin} {state.st_mtime_ns} {state.st_size}"
        return folder / f"kernels-{sha256(identity.encode()).hexdigest()[:_DIGEST]}.json"

    @cached_property
    def _answers(self) -> dict[str, bool]:
        if self._file is not None:
            with suppress(OSError, ValueError):
                known = json.loads(self._file.read_bytes())
                return {str(key): bool(answer) for key, answer in known.items()}
        return {}


def _is_lacking(asked: KernelQuestion) -> bool:
    """Ask onnxruntime to open a model of one node."""
    import onnxruntime  # noqa: PLC0415  # only for what nobody asked before
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415  # only where a model is run

    model = onnx.ModelProto(ir_version=FIRST_IR_WITH_PLAIN_INITIALIZERS)
    model.opset_import.add(domain=asked.domain, version=asked.opset)
    if asked.domain:
        model.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())
    model.graph.name = "asked"
    node = model.graph.node.add(op_type=asked.op_type, domain=asked.domain)
    node.attribute.extend(encode_attribute(*item) for item in asked.attributes.items())
    for at, dtype in enumerate(asked.dtypes):
        node.input.append(f"x{at}" if dtype else "")
        if dtype:
            kind = onnx.TypeProto.Tensor(elem_type=DTYPE_CODES.get(dtype, 0))
            model.graph.input.add(name=f"x{at}", type=onnx.TypeProto(tensor_type=kind))
    for at in range(asked.output_count):
        node.output.append(f"y{at}")
        model.graph.output.add(name=f"y{at}")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except state.NotImplemented:
        return True
    except Exception:  # noqa: BLE001  # what else it says is about this model, not the kernel
        return False
    return False
