"""onnx's own checker, as a question with an answer."""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from dplcli.files import text_path
from dplcli.onnx_io.bounded_inference import Expansion, limited_memory


def check_model(path: Path) -> str:
    """Run the full check of onnx on the file at *path*.

    The check of types, which infers them, is left out where that would take too long or too much
    memory (:mod:`dplcli.onnx_io.bounded_inference`).

    Returns:
        What the checker objects to, in one line; "" if nothing.
    """
    try:
        _check(path)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        OSError,
        RuntimeError,
        ValueError,
    ) as error:
        return " ".join(str(error).split())
    return ""


def _check(path: Path) -> None:
    with text_path(path) as name:
        if _is_bounded(path):
            try:
                with limited_memory(path.stat().st_size):
                    onnx.checker.check_model(name, full_check=True)
            except MemoryError:
                pass
            else:
                return
        onnx.checker.check_model(name)


def _is_bounded(path: Path) -> bool:
    try:
        return Expansion(onnx.load(path, load_external_data=False)).is_bounded
    except (OSError, DecodeError, ValueError):
        return True  # the checker says it better
