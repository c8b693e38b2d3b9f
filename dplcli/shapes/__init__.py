"""What can be said of shapes, and of whole numbers computed from shapes, without running a model.

:mod:`terms` has the arithmetic of unknown sizes, :mod:`knowledge` the facts about values, kept
while a graph is edited: what a value means does not change when the nodes round it are replaced.
"""

from dplcli.shapes.knowledge import Knowledge, assume, described, items_of, shape_of
from dplcli.shapes.rules import Fact
from dplcli.shapes.terms import Algebra, Term
