"""Sizes as polynomials over unknowns, and what follows from them about shapes."""

from dplcli.ir.symbolic.analysis import Extents, items_of, shape_of
from dplcli.ir.symbolic.size import Extent, Size, exact_quotient

__all__ = ["Extent", "Extents", "Size", "exact_quotient", "items_of", "shape_of"]
