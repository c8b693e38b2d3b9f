"""dpl: match, rewrite and partition ONNX graphs by pattern, and verify the result."""

__version__ = "0.1.0"
