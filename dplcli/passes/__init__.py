"""Passes: the only code that changes a graph."""
