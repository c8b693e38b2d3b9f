"""The version of dpl."""

__version__ = "0.1.0"
