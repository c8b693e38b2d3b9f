"""What can be said of shapes, and of whole numbers computed from shapes, without running a model.

:mod:`terms` has the arithmetic of unknown sizes, :mod:`knowledge` the facts about values, kept
while a graph is edited: what a value means does not change when the nodes round it are replaced.
"""

from dplcli.dpl.shapes.asking import described, items_of, shape_of
from dplcli.dpl.shapes.knowledge import Knowledge
from dplcli.dpl.shapes.terms import Algebra, Term
from dplcli.dpl.shapes.view import Fact

__all__ = ["Algebra", "Fact", "Knowledge", "Term", "described", "items_of", "shape_of"]
