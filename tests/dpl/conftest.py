"""Fixtures that tests of the language share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.dpl import conditions

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=["evaluated", "translated"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ask the evaluator alone, or translate each expression before it is evaluated once."""
    with pytest.MonkeyPatch.context() as patch:
        # how often an expression is evaluated before it is translated
        patch.setattr(conditions, "_TRANSLATED_AT", 0 if request.param == "translated" else -1)
        yield
