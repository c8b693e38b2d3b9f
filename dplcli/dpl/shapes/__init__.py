"""What can be said of shapes, and of whole numbers computed from shapes, without running a model.

:mod:`terms` has the arithmetic of unknown sizes, :mod:`knowledge` the facts about values, kept
while a graph is edited: what a value means does not change when the nodes round it are replaced.
"""
