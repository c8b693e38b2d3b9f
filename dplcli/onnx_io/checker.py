"""onnx's own checker, as a question with an answer."""

from pathlib import Path

import onnx


def check_model(path: Path) -> str:
    """Run the full check of onnx on the file at *path*.

    Returns:
        What the checker objects to, in one line; "" if nothing.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ) as error:
        return " ".join(str(error).split())
    return ""
