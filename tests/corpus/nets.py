"""Where the real models are, and what is known of them."""

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.backend.test

SHARED = Path(__file__).parents[2].parent / "shared" / "models"
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
LIGHT_NETS = [
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
]


def manifest() -> dict[str, dict[str, Any]]:
    """Return what the manifest says of each model, by name; nothing where there are none."""
    path = SHARED / "manifest.json"
    if not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))["models"]
    return {entry["name"]: entry for entry in entries}


def light_net(name: str) -> Path:
    """Return the path of a net of the onnx package."""
    return LIGHT / f"light_{name}.onnx"
