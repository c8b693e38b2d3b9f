"""Catalogues: rules in files, which are read, checked and written."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.catalog.catalog import read_catalogs
    from dplcli.catalog.finding import (
        Catalog,
        find_catalog,
        is_shipped_target,
        shipped_catalogs,
        shipped_targets,
    )
else:
    __getattr__ = lazy(__name__)
