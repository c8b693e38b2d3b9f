"""onnx's own checker, as a question with an answer."""

from pathlib import Path

import onnx

from dplcli.files import text_path


def check_model(path: Path) -> str:
    """Run the full check of onnx on the file at *path*.

    Returns:
        What the checker objects to, in one line; "" if nothing.
    """
    try:
        with text_path(path) as name:
            onnx.checker.check_model(name, full_check=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        OSError,
        RuntimeError,
        ValueError,
    ) as error:
        return " ".join(str(error).split())
    return ""
