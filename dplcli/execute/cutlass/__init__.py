"""CUTLASS: a partition is one instance of a template, compiled when it is first needed."""
