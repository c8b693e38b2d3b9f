"""Settings: a field is all that there is to an option."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dplcli.cli import build, options
from dplcli.errors import UsageError, opt
from dplcli.settings import (
    BaseSettings,
    MatchSettings,
    RewriteSettings,
    _negated,
    _read_sizes,
    option,
)

if TYPE_CHECKING:
    from dplcli.settings import Names, Place, Sizes


class NewSettings(BaseSettings, group="New"):
    """What is new.

    Attributes:
        how_often: Do it
            so often.
        names: Repeatable.
        place: Where.
        sizes: How large.
        quick: Take time.
    """

    how_often: int = option(default=2, least=1, metavar="N")
    names: Names = option(default=())
    place: Place = option(default=None, flags="--where-to")
    sizes: Sizes = option(default={}, read=_read_sizes)
    quick: bool = option(default=True, flags="--not-quick", read=_negated)


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


def test_a_message_names_fields_that_there_are() -> None:
    """Whoever shows it spells them."""
    kinds = [BaseSettings]
    for kind in kinds:
        kinds += kind.__subclasses__()
    known = {name for kind in kinds for name in kind.options}
    sources = Path(build.__file__).parents[1].rglob("*.py")
    calls = [
        node.args[0].value
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "opt"
        if isinstance(node.args[0], ast.Constant)
    ]

    assert len(calls) > 50
    assert set(calls) - known == set()


@pytest.mark.parametrize(
    ("name", "value", "flag", "keyword", "key"),
    [
        ("how_often", "N", "--how-often N", "how_often=N", "how-often: N"),
        ("how_often", "3", "--how-often 3", "how_often=3", "how-often: 3"),
        ("place", "a.json", "--where-to a.json", "place='a.json'", "where-to: a.json"),
        ("place", "", "--where-to", "place", "where-to"),
        ("sizes", "n=4", "--sizes n=4", "sizes={'n': 4}", "sizes: n=4"),
        ("quick", "", "--not-quick", "quick=False", "not-quick"),
        ("other", "", "--other", "--other", "--other"),
    ],
)
def test_each_front_end_spells_an_option(  # each way
    *, name: str, value: str, flag: str, keyword: str, key: str
) -> None:
    """As it is given there; a name of no field, as an option."""
    error = UsageError(f"pass {opt(name, value)}", hint=f"or {opt(name)}")
    assert (error.message, str(error)) == (f"pass {flag}", f"pass {flag}")
    for spell, spelling in ((NewSettings.as_keyword, keyword), (NewSettings.as_key, key)):
        error = UsageError(f"pass {opt(name, value)}")
        error.spell(spell)
        assert (error.message, error.hint) == (f"pass {spelling}", None)
    assert pickle.loads(pickle.dumps(error)).message == error.message  # noqa: S301  # ours


@pytest.mark.parametrize(
    ("field", "said", "held"),
    [
        ("how_often", 3, 3),
        ("how_often", "3", 3),
        ("how_often", 2.5, "expected a whole number, not '2.5'"),
        ("how_often", [1, 2], "expected one value"),
        ("how_often", True, "expected a text or a number"),
        ("how_often", None, "expected texts or numbers"),
        ("names", [1, "b"], ("1", "b")),
        ("names", [True], "expected texts or numbers"),
        ("quick", True, False),
        ("quick", False, None),
        ("quick", 1, "expected true or false"),
        ("sizes", ["n=4", "m=2"], {"n": 4, "m": 2}),
        ("sizes", {"n": 4}, "expected texts or numbers"),
    ],
)
def test_a_step_says_what_a_command_line_would(field: str, said: object, held: object) -> None:
    """Numbers and texts, one or several; else it is said what is expected."""
    if isinstance(held, str):
        with pytest.raises(ValueError, match=f"^{held}$"):
            NewSettings.options[field].parse_step(said)
    else:
        assert NewSettings.options[field].parse_step(said) == held


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
