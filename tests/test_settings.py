"""Settings: a field is all that there is to an option."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dplcli.cli import build, options
from dplcli.settings import BaseSettings, MatchSettings, RewriteSettings, option

if TYPE_CHECKING:
    from dplcli.settings import Names, Place


class NewSettings(BaseSettings, group="New"):
    """What is new.

    Attributes:
        how_often: Do it
            so often.
        names: Repeatable.
        place: Where.
    """

    how_often: int = option(default=2, least=1, metavar="N")
    names: Names = option(default=())
    place: Place = option(default=None)


def test_a_field_is_an_option_a_keyword_and_a_key_of_a_step() -> None:
    """Nothing else names it."""
    how_often = options.options_of(NewSettings)[0]
    schema = build._schema_of(build._options_of(NewSettings))  # noqa: SLF001  # what editors read

    assert (how_often.name, how_often.opts, how_often.help) == (
        "how_often",
        ["--how-often"],
        "Do it so often.",
    )
    assert str(NewSettings.signature()).startswith("(*, how_often: 'int' = 2")
    assert schema["properties"]["how-often"]["description"] == "Do it so often."
    assert "how_often: Do it so often." in str(NewSettings.__doc__)


def test_what_is_held_has_one_form() -> None:
    """One value or several; a text or a path; None for the default."""
    chosen = NewSettings(names="a", place="b")

    assert (chosen.names, chosen.place, chosen.how_often) == (("a",), Path("b"), 2)
    assert chosen == NewSettings(names=["a", "a"], place=Path("b"))
    assert chosen.but(place=None).stated() == {"names": ("a",)}


def test_settings_stay_as_they_are() -> None:
    """They are frozen, and have the fields of their class alone."""
    chosen = MatchSettings(target="dnnl")
    with pytest.raises(AttributeError, match="frozen"):
        chosen.hints = False
    with pytest.raises(TypeError, match="'limt'; did you mean 'limit'"):
        RewriteSettings(limt=3)  # type: ignore[call-arg]
