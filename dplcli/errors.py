"""The one tree of errors that dpl raises on purpose.

::

    DplError
    ├── ModelError
    │   ├── ModelLoadError         the file cannot be read as a model
    │   ├── InvalidModelError      it was read, but it is not a well-formed model
    │   ├── OpsetError             it cannot be raised to the opset that was asked for
    │   └── ModelExportError       the result cannot be written
    ├── PatternError
    │   ├── PatternSyntaxError     a pattern's text does not parse or names unknown things
    │   └── CatalogError           a catalogue file is missing, malformed or inconsistent
    ├── PassError
    │   └── InvalidGraphError      an edit would leave, or left, a broken graph
    ├── VerificationError          no verdict could be reached (not: "the verdict is no")
    └── UsageError                 the request itself makes no sense

A match that is refused, a rule that finds nothing and two models that differ are results, not
errors: errors are for what stopped us.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

_LONG_WORD = re.compile(r"\S{401,}")
_LONG_LINE = re.compile(r".{1201,}")
_SHORTENED = 150
_SHORTEST_PART = 3
_MOST_MEANT = 3
_MOST_LISTED = 8


# Options in messages. A message names a field of settings, and whoever shows it spells that: as an
# option of a command, as a keyword, as a key of a file. The name stands between two characters that
# Unicode keeps out of all text, for such uses.

_NAMED = re.compile("\ufdd0(\\w+)(?: ([^\ufdd0\ufdd1]*))?\ufdd1")

FLAGS: dict[str, str] = {}
"""How commands write options that are not written like their fields; settings fill it in."""


def opt(name: str, value: object = "") -> str:
    """Name an option in a message.

    Args:
        name: The field of settings.
        value: What is given to it, as a command line would say it.
    """
    return f"\ufdd0{name} {value}\ufdd1"


def flag(name: str, value: str = "") -> str:
    """Spell an option as a command does."""
    return f"{FLAGS.get(name) or '--' + name.replace('_', '-')} {value}".strip()


def spelled(text: str, spell: Callable[[str, str], str] = flag) -> str:
    """Return *text* with each option as *spell* writes it, given its name and its value."""
    return _NAMED.sub(lambda found: spell(found[1], found[2] or ""), text)


class DplError(Exception):
    """Something stopped dpl; the message says what and where, the hint says what to do.

    Args:
        message: One sentence: what is wrong, and where (file, line, node, rule, or :func:`opt`).
        hint: What the reader can do about it, if there is something to say.

    Attributes:
        wording: The message before options are spelled, to make another error of.
        advice: The hint before that.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep message and hint apart, so that a front end can set them apart."""
        super().__init__(message)
        self.wording = message
        self.advice = hint

    def __str__(self) -> str:
        return self.message

    @property
    def message(self) -> str:
        """What is wrong, as a command says it."""
        return shortened(spelled(self.wording))

    @property
    def hint(self) -> str | None:
        """What the reader can do about it, as a command says it."""
        return None if self.advice is None else shortened(spelled(self.advice))

    def spell(self, spell: Callable[[str, str], str]) -> None:
        """Write options as another front end does."""
        self.wording = spelled(self.wording, spell)
        self.advice = self.advice and spelled(self.advice, spell)
        self.args = (self.wording,)


class ModelError(DplError):
    """Something is wrong with a model."""


class ModelLoadError(ModelError):
    """The file is missing, is not an ONNX model, or is cut off."""


class InvalidModelError(ModelError):
    """The file holds a model whose graph contradicts itself."""


class OpsetError(ModelError):
    """The model cannot be raised to another version of the standard operator set."""


class ModelExportError(ModelError):
    """The model could not be written to where the user asked."""


class PatternError(DplError):
    """Something is wrong with a pattern, a rule or a catalogue."""


class PatternSyntaxError(PatternError):
    """The text of a pattern does not parse, or names something that does not exist.

    Args:
        message: What is wrong.
        line: 1-based line inside the pattern's text.
        column: 0-based column inside that line.
        hint: What to write instead, if that can be guessed.

    Attributes:
        further: Mistakes in other lines of the same text.
    """

    further: tuple["PatternSyntaxError", ...] = ()

    def __init__(
        self, message: str, *, line: int = 1, column: int = 0, hint: str | None = None
    ) -> None:
        """Remember the place, so that a catalogue can point into its own file."""
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column


MOST_MISTAKES = 50
"""Of more mistakes in catalogues, the first ones are said."""


class CatalogError(PatternError):
    """A catalogue cannot be found, read or understood.

    Attributes:
        mistakes: Each mistake on its own, if there are several; the message holds them all.
    """

    mistakes: tuple["CatalogError", ...] = ()

    @property
    def text(self) -> str:
        """The message, and below it the hint."""
        return f"{self.message}\n    {self.hint}" if self.hint else self.message

    @classmethod
    def of(cls, mistakes: Iterable["CatalogError"]) -> "CatalogError":
        """Make one error of the mistakes of one or more catalogues.

        Args:
            mistakes: At least one; of those at the same place the first one counts.
        """
        alone = [one for each in mistakes for one in each.mistakes or (each,)]
        by_place: dict[str, CatalogError] = {}
        for one in alone:
            by_place.setdefault(one.message.partition(": ")[0], one)
        kept = tuple(by_place.values())
        if len(kept) == 1:
            return kept[0]
        said = kept[:MOST_MISTAKES]
        texts = [one.text for one in said]
        if len(said) < len(kept):
            texts.append(f"… and {len(kept) - len(said):,} more")
        error = cls("\n".join([counted(len(kept), "mistake"), *texts]))
        error.mistakes = kept
        return error


class Mistakes:
    """Gathers what is wrong with catalogues, so that all of it is said at once."""

    def __init__(self) -> None:
        """Begin without any."""
        self.found: list[CatalogError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep a mistake that is found inside, and go on."""
        try:
            yield
        except CatalogError as error:
            self.found.append(error)

    def check(self) -> None:
        """Raise what was gathered.

        Raises:
            CatalogError: There were mistakes.
        """
        if self.found:
            raise CatalogError.of(self.found) from self.found[0]


class PassError(DplError):
    """A pass could not do its work."""


class InvalidGraphError(PassError):
    """A graph breaks an invariant of the IR."""


class VerificationError(DplError):
    """The two models could not be compared, so there is no verdict."""


class UsageError(DplError):
    """What was asked for cannot be done as asked."""


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 call``, ``2,000 calls``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_MOST_NAMED = 5


def some_of(names: Sequence[str]) -> str:
    """Name things: ``'a', 'b'``; of many the first few."""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + ", …" * (len(names) > _MOST_NAMED)


def shortened(text: str) -> str:
    """Return *text* without the middle of very long names: files hold some of any length."""
    for longest in (_LONG_WORD, _LONG_LINE):
        text = longest.sub(lambda found: f"{found[0][:_SHORTENED]}…{found[0][-_SHORTENED:]}", text)
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return ``did you mean 'Conv'?`` for the known word closest to *word*; None if none is."""
    candidates = list(known)
    by_lower = {candidate.lower(): candidate for candidate in reversed(candidates)}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}?" if close else None


def did_you_mean_rule(name: str, known: Iterable[str]) -> str:
    """Return which rules may be meant by *name*, which may be a part of theirs; else what there is.

    Args:
        name: What the user wrote.
        known: Names of rules. Of one with and without its target, the hint has that with it.
    """
    names = list(dict.fromkeys(known))
    full = {
        rule: max((n for n in names if f".{n}".endswith(f".{rule}")), key=len) for rule in names
    }
    part = name.lower().rpartition(".")[2]
    meant = [full[rule] for rule in names if len(part) >= _SHORTEST_PART and part in rule.lower()]
    whole = [rule for rule in meant if f".{rule}".lower().endswith(f".{part}")]
    found = sorted(dict.fromkeys(whole or meant), key=lambda rule: (len(rule), rule))
    if not found:
        found = [full[close] for close in get_close_matches(name, names, n=1, cutoff=0.6)]
    if not found:
        there = list(dict.fromkeys(full.values()))
        more = len(there) - _MOST_LISTED
        listed = ", ".join(there[:_MOST_LISTED]) or "none"
        return f"there are: {listed}" + f" and {more} more" * (more > 0)
    shown = list(map(repr, found[:_MOST_MEANT]))
    if len(found) > _MOST_MEANT:
        shown = [", ".join(shown), f"one of {len(found) - _MOST_MEANT} others"]
    return f"did you mean {' or '.join(shown)}?"
