"""Raising a model to a newer version of the standard operator set."""

from dplcli.onnx_io.opset_raising.plan import AdaptedNode
from dplcli.onnx_io.opset_raising.raising import RaisedOpset, raise_opset

__all__ = ["AdaptedNode", "RaisedOpset", "raise_opset"]
