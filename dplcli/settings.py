"""Every option of dpl, once: what it is called, what it takes, what it is for.

A job has a class of settings. Its fields are the keywords of :mod:`dplcli.api`, the options of the
command and the keys of a step in ``dpl.yaml``; all three are made from the fields. Help that is
written here is what ``dpl COMMAND --help`` prints, so it speaks of options.
"""

from __future__ import annotations

import os
from functools import partial
from inspect import Parameter, Signature, get_annotations
from math import inf
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

from dplcli.docstrings import attributes, docstring
from dplcli.errors import FLAGS, UsageError, did_you_mean, flag, opt
from dplcli.language.rule import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import PatternRule
    from dplcli.onnx_io.objects import IrModel, TorchProgram

    File: TypeAlias = str | os.PathLike[str]
    Source: TypeAlias = File | PatternRule | RewriteRule
    """A catalogue by its name or path, the text of a pattern, or a rule."""

    Given = TypeVar("Given")
    Kept = TypeVar("Kept")

    class Held(Generic[Given, Kept]):
        """The type of a field that is given one type and holds another; for type checkers only."""

        def __get__(self, owner: object, kind: object = None) -> Kept: ...
        def __set__(self, owner: object, value: Given) -> None: ...

    class _Message(Protocol):
        """A model as a message of protobuf."""

        def SerializeToString(self) -> bytes: ...  # noqa: N802  # protobuf's

    class _Result(Protocol):
        """What a function of :mod:`dplcli.api` returned."""

        @property
        def stored(self) -> object: ...

    Model: TypeAlias = File | _Message | IrModel | TorchProgram | _Result | None
    Names: TypeAlias = Held[str | Sequence[str], tuple[str, ...]]
    Words: TypeAlias = Held[str | Sequence[str], tuple[str, ...]]
    Numbers: TypeAlias = Held[int | Sequence[int] | None, tuple[int, ...]]
    Facets: TypeAlias = Held[str | Sequence[str] | None, tuple[str, ...] | None]
    Rules: TypeAlias = tuple[str | PatternRule | RewriteRule, ...]
    Sources: TypeAlias = Held[Source | Iterable[Source], Rules]
    Place: TypeAlias = Held[File | None, Path | None]
    Places: TypeAlias = Held[File | Sequence[File], tuple[Path, ...]]
    Inputs: TypeAlias = File | Mapping[str, ArrayLike] | Callable[[int], object] | None
    Sizes: TypeAlias = Mapping[str, int | Sequence[int] | str]
    Ranges: TypeAlias = Mapping[str, tuple[float, float]]
    Limits: TypeAlias = Mapping[str, Mapping[str, float]]
    Pairs: TypeAlias = Mapping[str, str | int | bool]
    Renames: TypeAlias = Mapping[str, str]
    Progress: TypeAlias = Callable[[str], None] | None

LEVELS = ("disable", "basic", "extended", "all")
"""onnxruntime's optimisation levels."""


# What a field is.


class Option(NamedTuple):
    """A field of settings; see :func:`option`. The docstring of its class says what it is for."""

    default: Any
    flags: str | None = None
    group: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    read: Callable[[Any], Any] | None = None
    complete: str = ""
    shown: str = ""
    is_stated: bool = True
    is_of_one: bool = False
    is_of_steps: bool = True
    name: str = ""
    kind: str = ""
    help: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.kind == "bool"

    @property
    def is_written(self) -> bool:
        """Whether what it names is written, if it names a file."""
        return self.name == "output" or self.is_of_one

    @property
    def is_multiple(self) -> bool:
        """Whether it may be given several times."""
        return self.kind in _MULTIPLE

    @property
    def words(self) -> list[str]:
        """How the option is written."""
        return (self.flags or f"--{self.name.replace('_', '-')}").split()

    @property
    def long(self) -> str:
        """Its name without dashes, as the key of a step."""
        return max(self.words, key=len).removeprefix("--")

    def hold(self, value: Any) -> Any:  # noqa: ANN401  # whatever a program gives
        """Return what the field holds if it is given *value*; None stands for the default."""
        if value is None:
            return self.default
        return _HOLDS[self.kind](value) if self.kind in _HOLDS else value

    def parse(self, value: Any) -> Any:  # noqa: ANN401  # what click gives
        """Return the keyword's value for what the command line says; None if it says nothing."""
        if value is None or value is False or value == ():
            return None
        return value if self.read is None else self.read(value)

    def parse_step(self, value: Any) -> Any:  # noqa: ANN401  # what YAML gives
        """Return the keyword's value for what a step of a pipeline file says.

        Raises:
            ValueError: It is none; says what is expected.
            UsageError: A text cannot be read.
        """
        if self.is_flag != isinstance(value, bool):
            raise ValueError("expected true or false" if self.is_flag else _A_TEXT)
        if self.is_flag:
            return self.parse(value)
        values = value if isinstance(value, list) else [value]
        if len(values) != 1 and not self.is_multiple:
            raise ValueError("expected one value")
        if any(
            isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in values
        ):
            raise ValueError("expected texts or numbers")
        read = tuple(map(self._typed, map(str, values)))
        return self.parse(read if self.is_multiple else read[0])

    def _typed(self, text: str) -> str | int | float:
        """Return the number that a text is, if the option takes numbers."""
        if self.read is not None or self.kind not in _NUMBERS:
            return text
        kind, name = _NUMBERS[self.kind]
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"expected {name}, not {text!r}") from None

    def as_key(self, text: str) -> str:
        """Spell the option as a pipeline file does, with what a command line would say."""
        return f"{self.long}: {text}" if text else self.long

    def as_keyword(self, text: str) -> str:
        """Spell the option as a program does, with what a command line would say."""
        if self.is_flag:
            return f"{self.name}={not self.default}"
        if not text:
            return self.name
        if self.kind in _PAIRED:
            return f"{self.name}={self.parse((text,))!r}"
        stands_for_another = text.isupper() or text.isdigit()
        return f"{self.name}={text if stands_for_another else repr(text)}"

    def check(self, value: Any) -> None:  # noqa: ANN401  # what a program gives
        """Refuse what there is not.

        Raises:
            UsageError: A value is none of the choices, or too small or too large a number.
        """
        for one in several(value) if self.choices else ():
            if one not in self.choices:
                what = f"{opt(self.name)}: there is no {one!r}"
                raise UsageError(what, hint=f"there are: {', '.join(self.choices)}")
        for one in several(value) if self.least is not None and self.read is None else ():
            if not self.least <= one <= (self.most or inf):
                most = f" and at most {self.most:g}" if self.most is not None else ""
                raise UsageError(
                    f"{opt(self.name)}: expected at least {self.least:g}{most}, not {one}"
                )


def option(*, default: Any, **more: Any) -> Any:  # noqa: ANN401  # the field's type
    """Describe a field of settings.

    Args:
        default: What the field holds if nothing is said.
        more: What is not as usual.

            flags: How the option is written, with spaces between; by default like the field.
            group: The heading that it stands under in the help; by default that of the class.
            metavar: What stands for its value in the help.
            choices: The values that there are.
            least: The smallest number that the command takes.
            most: The largest.
            read: Makes the keyword's value of what the command line gives: a text, a number, or a
                tuple of them where the option may be repeated.
            complete: What a shell offers for it: a function of ``cli/completion``.
            shown: The default that the help states; "" for none.
            is_stated: Whether there is an option; if not, it is a keyword alone.
            is_of_one: Whether it is about one model's files, and not for many models.
            is_of_steps: Whether a step of ``dpl.yaml`` may state it.
    """
    return Option(default, **more)


def keyword(*, default: Any) -> Any:  # noqa: ANN401  # the field's type
    """Describe a field that programs alone can give."""
    return Option(default, is_stated=False)


@dataclass_transform(kw_only_default=True, field_specifiers=(option, keyword))
class BaseSettings:
    """Settings of a job: frozen values. Bases are listed in the order of their options.

    Fields are annotated in texts (``from __future__ import annotations``): the name of a type says
    what a field takes and holds.

    Raises:
        TypeError: A keyword is unknown.
    """

    options: ClassVar[dict[str, Option]] = {}
    """The fields by their names."""

    result: ClassVar[str] = ""
    """The middle part of the names of files that the job writes; "" if it writes none."""

    def __init_subclass__(cls, group: str = "Options") -> None:
        """Gather the fields of the class and its bases, under the heading *group*."""
        fields: dict[str, Option] = {}
        for base in cls.__bases__:
            fields |= getattr(base, "options", {})
        doc = docstring(cls)
        about = attributes(cls)
        for name, kind in get_annotations(cls).items():
            if kind.startswith("ClassVar"):
                continue
            found = cls.__dict__[name]
            own = found if isinstance(found, Option) else Option(found)
            policies = ", ".join(POLICIES.get(name, ()))
            told = about.get(name, own.help).replace("{policies}", policies)
            delattr(cls, name)
            fields[name] = own._replace(
                name=name, kind=kind.removesuffix(" | None"), group=own.group or group, help=told
            )
        cls.options = fields
        flags = {each.name: f"--{each.long}" for each in fields.values() if each.is_stated}
        FLAGS.update((name, word) for name, word in flags.items() if word != flag(name))
        told_of = (f"    {name}: {field.help}" for name, field in fields.items())
        cls.__doc__ = "\n".join([doc.partition("\n\nAttributes:")[0], "", "Attributes:", *told_of])

    def __init__(self, **given: Any) -> None:  # noqa: ANN401  # the fields say
        for name in given.keys() - self.options.keys():
            guess = did_you_mean(name, self.options)
            more = f"; {guess}" if guess else ""
            raise TypeError(f"got an unexpected keyword argument {name!r}{more}")
        for name, field in self.options.items():
            self.__dict__[name] = field.hold(given[name]) if name in given else field.default
        self.check()

    def check(self) -> None:
        """Refuse what there is not, or what contradicts itself, before any work is done.

        Raises:
            UsageError: A value is none that there is, or two options contradict each other.
        """
        for name, value in self.stated().items():
            self.options[name].check(value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are frozen: {name} stays as it is")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __repr__(self) -> str:
        stated = ", ".join(f"{name}={value!r}" for name, value in self.stated().items())
        return f"{type(self).__name__}({stated})"

    def stated(self) -> dict[str, Any]:
        """Return the fields that are not as they are by default."""
        fields = self.options
        return {name: held for name, held in vars(self).items() if held != fields[name].default}

    def beyond(self, names: Iterable[str]) -> set[str]:
        """Return the options that are stated and not among *names*."""
        return {name for name in self.stated() if self.options[name].is_stated} - {*names}

    def but(self, **changes: Any) -> Self:  # noqa: ANN401  # the fields say
        """Return the same settings with other values of some fields."""
        return type(self)(**(self.__dict__ | changes))

    def files(self) -> list[str | Path]:
        """Return the files that are named, as far as the types of fields tell."""
        named = [held for name, held in vars(self).items() if self.options[name].kind in _FILES]
        return [file for value in named for file in several(value) if isinstance(file, (str, Path))]

    def reads(self) -> list[str]:
        """Return what may name files that are read; some of it names none."""
        kinds = {name: field.kind for name, field in self.options.items() if not field.is_written}
        named = [held for name, held in vars(self).items() if kinds.get(name) in _FILES]
        pairs = [held.values() for name, held in vars(self).items() if kinds.get(name) == "Pairs"]
        texts = [text for value in (*named, *pairs) for text in several(value)]
        return [str(text) for text in texts if isinstance(text, (str, Path))]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Make settings of what the command line says.

        Args:
            given: The values by the names of fields, as click parsed them.

        Raises:
            UsageError: A text cannot be read.
        """
        parsed = {name: cls.options[name].parse(value) for name, value in given.items()}
        return cls(**{name: value for name, value in parsed.items() if value is not None})

    @classmethod
    def as_keyword(cls, name: str, text: str) -> str:
        """Spell an option as a program does, if it is one of these; else as a command does."""
        return cls.options[name].as_keyword(text) if name in cls.options else flag(name, text)

    @classmethod
    def as_key(cls, name: str, text: str) -> str:
        """Spell an option as a pipeline file does, if it is one of these."""
        return cls.options[name].as_key(text) if name in cls.options else flag(name, text)

    @classmethod
    def signature(cls, *models: Parameter, by_place: Iterable[str] = ()) -> Signature:
        """Return the signature of a function that takes models and these settings.

        Args:
            models: What stands before them.
            by_place: Settings that may also be given by position, after the models.
        """
        places = dict.fromkeys(by_place, Parameter.POSITIONAL_OR_KEYWORD)
        by_name = Parameter.KEYWORD_ONLY
        settings = [
            Parameter(name, places.get(name, by_name), default=field.default, annotation=field.kind)
            for name, field in cls.options.items()
        ]
        return Signature([*models, *sorted(settings, key=lambda each: each.kind)])


def several(value: Any) -> tuple[Any, ...]:  # noqa: ANN401  # whatever may be one or several
    """Return one value or several as several, each once."""
    return (value,) if _is_one(value) else tuple(dict.fromkeys(value))


def _is_one(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__")


def _sources(patterns: Any) -> tuple[Any, ...]:  # noqa: ANN401  # one source or several
    given = [patterns] if _is_one(patterns) else patterns
    return tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in given)


_HOLDS: dict[str, Callable[[Any], Any]] = {
    "Facets": several,
    "Names": several,
    "Words": several,
    "Numbers": several,
    "Sources": _sources,
    "Place": Path,
    "Places": lambda given: tuple(map(Path, several(given))),
}
"""What makes a field's value of what a program gives, by the field's type."""

_A_TEXT = "expected a text or a number"
_NUMBERS: dict[str, tuple[Callable[[str], int | float], str]] = dict.fromkeys(
    ("int", "Numbers"), (int, "a whole number")
) | {"float": (float, "a number")}
"""What makes a number of a text, and what it is called, by the field's type."""

_FILES = {"Inputs", "Model", "Place", "Places", "Sources"}
_PAIRED = {"Sizes", "Ranges", "Limits", "Pairs", "Renames"}
_MULTIPLE = {"Names", "Numbers", "Sources", "Places", *_PAIRED}


# What texts of the command line mean.


def words_of(flag: str, text: str) -> tuple[str, ...]:
    """Split the value of an option at its commas.

    Raises:
        UsageError: There is nothing before, between or behind them.
    """
    words = tuple(word.strip() for word in text.split(","))
    if not any(words):
        raise UsageError(f"{flag} {text!r}: no name is given")
    if not all(words):
        raise UsageError(f"{flag} {text}: a name is missing beside a comma")
    return words


def _listed(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in words_of(opt("target"), text))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_SIZE


_LONGEST_SIZE = 18


def _named(
    flag: str, kind: str, hint: str, read: Callable[[str], Any]
) -> Callable[[Iterable[str]], dict[str, Any]]:
    """Return what reads texts NAME=VALUE; *read* raises ValueError for what is no value."""

    def parse(texts: Iterable[str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for text in texts:
            name, _, value = text.rpartition("=")
            try:
                item = read(value) if name else None
            except ValueError:
                item = None
            if item is None:
                raise UsageError(f"{flag} {text!r}: not a {kind}", hint=hint)
            if values.setdefault(name, item) != item:
                raise UsageError(f"{flag} {text}: {name!r} has another {kind} already")
        return values

    return parse


def _size(text: str) -> int | tuple[int, ...] | str:
    """Read the size of a dimension, a whole shape, or what a dimension always is."""
    parts = text.split("x")
    if all(map(_is_number, parts)):
        return tuple(map(int, parts)) if len(parts) > 1 else int(text)
    if not any(map(str.isalpha, text)):
        raise ValueError(text)
    return text


def _bounds(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    return float(low), float(high)


def _name(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


_SIZES = "write {}, {}, or {}".format(
    *(opt("shape", size) for size in ("batch=4", "image=1x3x224x224", "total=past+sequence"))
)
_read_sizes = _named(opt("shape"), "size", _SIZES, _size)
_read_names = _named(opt("rename"), "name", f"write {opt('rename', 'image=pixels')}", _name)
_read_ranges = _named(opt("range"), "range", f"write {opt('range', 'ids=0:1000')}", _bounds)


def _is_sum(name: str, size: object) -> bool:
    """Tell whether *size* says what a dimension is made of; one cannot be made of itself."""
    return isinstance(size, str) and (name == size or any(sign in size for sign in "+*"))


def _read_pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(
                f"{opt('session_option')} {text!r}: not an option",
                hint=f"write {opt('session_option', 'intra_op_num_threads=1')}",
            )
        pairs[key] = value
    return pairs


def _read_limits(texts: Iterable[str]) -> dict[str, dict[str, float]]:
    limits: dict[str, dict[str, float]] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        pairs = [part.partition(":") for part in value.split(",")]
        try:
            own = {kind: float(number) for kind, _, number in pairs}
        except ValueError:
            own = {}
        if not name or len(own) < len(pairs) or own.keys() - {"rtol", "atol"}:
            raise UsageError(
                f"{opt('tolerance')} {text!r}: not a tolerance",
                hint=f"write {opt('tolerance', 'logits=rtol:1e-3,atol:1e-5')}, or one of the two",
            )
        if name in limits:
            raise UsageError(
                f"{opt('tolerance')} {text!r}: {name} has one already", hint="join them"
            )
        limits[name] = own
    return limits


def _read_percent(name: str, text: str) -> float:
    """Read ``5`` or ``5%``."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(
            f"Invalid value for '{opt(name)}': {text!r} is not a number of percent.",
            hint=f"write {opt(name, 5)} or {opt(name, '5%')}",
        )
    return number


def _read_share(name: str, text: str) -> float:
    """Read ``5`` or ``5%``, of no more than there is."""
    if (percent := _read_percent(name, text)) > _ALL:
        what = f"Invalid value for '{opt(name)}': {text} is more than there is."
        raise UsageError(what, hint=f"write {_ALL} at most")
    return percent / _ALL


_ALL = 100


def _read_facets(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _negated(given: bool) -> bool:  # noqa: FBT001  # as click gives it
    return not given


def _contradict(one: str, other: str, hint: str = "pass one of them") -> UsageError:
    return UsageError(f"{opt(one)} and {opt(other)} contradict each other", hint=hint)


# Options that several jobs have: which rules, on which values, how models run.


RULES = "Rules"


class RuleSettings(BaseSettings, group=RULES):
    """Where rules come from, in order of priority.

    Attributes:
        patterns: A catalogue: a YAML file, a Python file (which is executed), or the name of one
            that dpl or an installed package ships; or the text of a pattern. Repeatable.
        target: Use what dpl ships for a target, such as dnnl (but for the single operators of
            dnnl_ops: -p dnnl_ops), or for several: of
            cutlass,cublas the first one wins where both would take a node. Repeatable.
        allow_code: Let YAML catalogues import the Python functions that they name as checks. A
            catalogue in Python (FILE.py) is code and always runs.
    """

    patterns: Sources = option(
        default=(), flags="--patterns -p", metavar="CATALOGUE", complete="catalogues"
    )
    target: Names = option(default=(), metavar="NAMES", read=_listed, complete="targets")
    allow_code: bool = False


class ExpectSettings(BaseSettings, group=RULES):
    """How often rules match, or are applied.

    Attributes:
        expect: Exit with 1 unless the rule matches, or is applied, so often (also <= == > <).
            Repeatable.
    """

    expect: Names = option(default=(), metavar="RULE>=N", complete="rules")


class ConstantsSettings(BaseSettings, group="Policies of rules"):
    """Which constants functions hold, instead of what rules say.

    Attributes:
        constants: Which constants go into the functions' bodies: {policies}; for all rules or for
            one. Repeatable.
    """

    constants: Names = option(default=(), metavar="[RULE=]POLICY")


class PolicySettings(BaseSettings, group="Policies of rules"):
    """Policies to use instead of those that the rules state.

    Attributes:
        escape: What if something outside a match reads a value inside: {policies}; for all rules or
            for one. Repeatable.
        order: Whether consumers come first, or producers and larger matches absorb smaller ones:
            {policies}; for all rules or for one. Repeatable.
    """

    escape: Names = option(default=(), metavar="[RULE=]POLICY")
    order: Names = option(default=(), metavar="[RULE=]POLICY")


class HintSettings(BaseSettings):
    """Whether hints are looked for.

    Attributes:
        hints: Whether to find out what would let rules do more. By default it is found out.
    """

    hints: bool = keyword(default=True)


_FED = "What the models are fed"


class InputSettings(BaseSettings, group=_FED):
    """Which values models are fed.

    Attributes:
        inputs: Feed these values: a .npz file with an array per input, a .npy file, a folder of
            onnx test data (input_0.pb, or several test_data_set_0), or a Python function
            module:function or FILE.py:function, which takes a seed and returns a dict
            (--allow-code). Inputs that it leaves out are made up.
        shape: Size of a symbolic dimension, or of INPUT:AXIS; a whole shape, INPUT=1x3x224x224; or
            what a dimension always is, total=past+sequence or keys=values, on which rules may rely.
            Repeatable.
        range: Draw an input from this range, both ends included. Repeatable.
    """

    inputs: Inputs = option(default=None, metavar="PATH|FUNCTION")
    shape: Sizes = option(default={}, flags="--shape --size", metavar="DIM=N", read=_read_sizes)
    range: Ranges = option(default={}, metavar="INPUT=LOW:HIGH", read=_read_ranges)


class SaveSettings(BaseSettings, group=_FED):
    """Where to write what was fed.

    Attributes:
        save_inputs: Write what was fed, for --inputs and other tools.
    """

    save_inputs: Place = option(default=None, metavar="FILE.npz", is_of_one=True)


class InputCodeSettings(BaseSettings, group=_FED):
    """Whether inputs may be code.

    Attributes:
        allow_code: Let --inputs name a Python function, which is called.
    """

    allow_code: bool = False


class EngineSettings(BaseSettings, group="How the candidate is run"):
    """How a model is run.

    Attributes:
        provider: Execution provider that runs the candidate, such as CUDAExecutionProvider. The
            reference stays on the CPU.
        session_option: Option of onnxruntime's session for the candidate, such as
            intra_op_num_threads=1 or session.disable_prepacking=1. Repeatable.
        timeout: Time limit to create a session, and for each run. Default: an hour.
        memory_limit: Memory that a model and its run may take, beyond onnxruntime itself.
    """

    provider: str | None = option(default=None, metavar="NAME")
    session_option: Pairs = option(default={}, metavar="KEY=VALUE", read=_read_pairs)
    timeout: float | None = option(default=None, metavar="SECONDS")
    memory_limit: int | None = option(default=None, metavar="MB")


class KernelSettings(BaseSettings, group="Kernels"):
    """Whether partitions run on the library of their target.

    Attributes:
        kernels: Run partitions on the library of this target, inside onnxruntime, and say of each
            where it ran: dnnl on oneDNN; cublas (cuBLASLt) and cutlass on a GPU of NVIDIA's. Exit
            with 1 if none did.
        require: With --with: exit with 1 unless so many partitions ran on the library. Default:
            any.
        allow_inexact: With --with: also run partitions that the library computes inexactly on this
            CPU, such as 8-bit products without VNNI.
        math: With --with dnnl: compute products of float32 in bfloat16 (bf16), which is quicker on
            CPUs that have it; sums stay float32. The check then judges each partition by its body
            in the same arithmetic. Default: fp32.
    """

    kernels: str | None = option(
        default=None, flags="--with", choices=("cublas", "cutlass", "dnnl")
    )
    require: str | int | None = option(default=None, metavar="all|any|N")
    allow_inexact: bool = False
    math: str = option(default="fp32", choices=("fp32", "bf16"))

    def check(self) -> None:
        """Refuse what is about a library, without one."""
        super().check()
        if self.kernels is None and self.require is not None:
            raise UsageError(
                f"{opt('require')} counts partitions on the library of {opt('kernels')}; pass both"
            )
        if self.kernels is None and self.allow_inexact:
            raise UsageError(
                f"{opt('allow_inexact')} is about the library of {opt('kernels')}; pass both"
            )
        if self.kernels != "dnnl" and self.math != "fp32":
            raise UsageError(
                f"{opt('math')} is about the library of {opt('kernels', 'dnnl')}; pass both"
            )


# How two models are compared.


class ComparisonSettings(BaseSettings, group="The check"):
    """How two models are compared.

    Attributes:
        seed: Seed of one set of inputs; repeatable. Default: 0 and 1.
        level: onnxruntime's optimisation level, repeatable: disable, basic, extended or all.
            Default: disable and all; disable alone for a result that is proved to be the original.
        rtol: Relative tolerance, instead of the derived one.
        atol: Absolute tolerance, instead of the derived one.
        tolerance: Tolerances of one output, such as logits=rtol:1e-3,atol:1e-5, or one of the two;
            for integers, atol is in steps. Repeatable.
        mutants: Measure the power of the check: try so many wrong versions of the result, and count
            those that it refuses. Default: none, or 20 with --min-power.
        min_power: Exit with 1 unless the check refuses this share of the mutants, such as 0.9.
        custom_ops: Register custom operators from this shared library with onnxruntime: for the
            result, and for the original if it does not run without. Repeatable.
        strict: Count it as a difference, too, where the original gives NaN, an infinity or -0 for
            drawn values, and the result something else.
        max_memory: Memory that the check may take. Models that need more run in blocks, one after
            the other; with --layers, so many values of each model are held at once. Default: an
            eighth of what is free, at least 1; and 0.25 for --layers.
    """

    seed: Numbers = option(default=())
    level: Names = option(default=(), choices=LEVELS, metavar="LEVEL")
    rtol: float | None = None
    atol: float | None = None
    tolerance: Limits = option(default={}, metavar="OUTPUT=LIMITS", read=_read_limits)
    mutants: int | None = None
    min_power: float | None = option(default=None, metavar="SHARE")
    custom_ops: Places = option(default=(), metavar="LIBRARY")
    strict: bool = False
    max_memory: float | None = option(default=None, least=0, metavar="GB")


class CheckSettings(ComparisonSettings, InputSettings, SaveSettings, EngineSettings):
    """How two models are compared, and on which values.

    Attributes:
        progress: Called with a short phrase before each step that may take long.
    """

    progress: Progress = keyword(default=None)


# Jobs that write a model.


class OutputSettings(BaseSettings, group="The result"):
    """Where a result goes, and whether it is checked.

    Attributes:
        output: Where to write the result. Default: MODEL.{result}.onnx beside the model.
        in_place: Replace the model by the result.
        keep_failed: Keep a result that fails, as OUTPUT.failed.onnx.
        all_or_nothing: Write nothing if a change fails the check, instead of taking it back and
            writing the rest.
        strip: Leave out what computes nothing: metadata (doc strings, and the metadata of model,
            graphs, nodes and values; that of functions and of the calls that dpl wrote stays, for
            kernels and for dpl inline), value_info (the types of inner values).
        external_data: How external data gets into another folder than MODEL's: as copies (copy, the
            default), or as second names of the same files (link: a clone that shares its blocks
            where the disk can do that, else a hard link, which onnxruntime reads, and onnx does
            not, neither there nor under the first name). repack, in any folder: only what the
            result uses, in one file, OUTPUT.data.
        verify: Do not check the result.
    """

    output: Place = option(default=None, flags="-o --output", is_of_steps=False)
    in_place: bool = option(default=False, is_of_steps=False)
    keep_failed: bool = option(default=False, is_of_steps=False)
    all_or_nothing: bool = False
    strip: Words = option(
        default=(), metavar="KIND,…", read=lambda text: words_of(opt("strip"), text)
    )
    external_data: Literal["copy", "link", "repack"] = option(
        default="copy", choices=("copy", "link", "repack")
    )
    verify: bool = option(default=True, flags="--no-verify", read=_negated)


class ResultSettings(OutputSettings, CheckSettings, HintSettings):
    """Where a result goes, and whether and how it is checked."""

    def check(self) -> None:
        """Refuse a check that is turned off, but is to have some power."""
        super().check()
        if not self.verify and (self.mutants or self.min_power is not None):
            raise UsageError(
                "a check that is not made has no power",
                hint=f"leave {opt('verify')} out, or {opt('mutants')} and {opt('min_power')}",
            )


class OutlineSettings(BaseSettings, group=RULES):
    """Whether a model is prepared before matches are outlined.

    Attributes:
        prepare: Rewrite MODEL by the catalogue prepare first, as dpl rewrite does. The result is
            compared with MODEL as it was.
    """

    prepare: bool = False


class RegionSettings(BaseSettings, group="Regions"):
    """Whether neighbours become regions.

    Attributes:
        merge: Merge neighbouring partitions of one target, those that are in MODEL already
            included, into regions: functions that call them.
        prune: With --merge: leave matches alone whose region has no heavy operator (Conv, Gemm,
            MatMul, LayerNormalization, ...), unless it is the target's only region.
    """

    merge: bool = False
    prune: bool = False


class PartitionSettings(
    RuleSettings,
    OutlineSettings,
    ExpectSettings,
    ConstantsSettings,
    PolicySettings,
    RegionSettings,
    ResultSettings,
    KernelSettings,
):
    """How to partition."""

    result = "partitioned"

    def check(self) -> None:
        """Refuse options that do nothing without others."""
        super().check()
        if self.kernels is not None and not self.verify:
            raise UsageError(
                f"{opt('kernels')} runs the result, and {opt('verify')} leaves that out",
                hint="pass one of them",
            )
        if self.prune and not self.merge:
            raise UsageError(
                f"{opt('prune')} is about the regions that {opt('merge')} makes", hint="pass both"
            )


class ChoiceSettings(BaseSettings, group="What is applied"):
    """What a rewrite applies.

    Attributes:
        only: Try nothing else: this rule, everywhere or at one node, which is found by its name or
            an output's. Repeatable.
        skip: Do not try this rule, or not at this node. Repeatable.
        limit: Stop after so many applications.
        opset: Raise the model to this opset before anything is matched.
        plan: Write what is done as a list that can be edited, for dpl apply.
    """

    only: Names = option(default=(), metavar="RULE[@NODE]", complete="rules")
    skip: Names = option(default=(), metavar="RULE[@NODE]", complete="rules")
    limit: int | None = option(default=None, least=0, metavar="N")
    opset: int | None = option(default=None, least=1, metavar="N")
    plan: Place = option(default=None, metavar="FILE", is_of_one=True)


class TurnSettings(BaseSettings, group="The run"):
    """How a rewrite goes about it.

    Attributes:
        dry_run: Show what would be done; verify and write no model.
        verify_each: Check the model after every turn of a rule, and name the one that breaks it.
        max_growth: By how much the model may grow, with the external data that it uses. Default: 5;
            16 kB, and the names of new nodes and of the rules that made them, in any case.
    """

    dry_run: bool = option(default=False, is_of_steps=False)
    verify_each: bool = False
    max_growth: float | None = option(
        default=None, metavar="PERCENT", read=partial(_read_percent, "max_growth")
    )


class EditSettings(TurnSettings, ResultSettings):
    """How a model is rewritten, whoever says by which rules."""

    result = "rewritten"

    def check(self) -> None:
        """Refuse to check every turn of a run that is not checked."""
        super().check()
        if self.verify_each and (self.dry_run or not self.verify):
            other = "dry_run" if self.dry_run else "verify"
            raise _contradict("verify_each", other, hint="leave one of them out")


class InterfaceSettings(BaseSettings, group="The interface"):
    """What a rewrite says anew of a model, before any rule is tried.

    Attributes:
        shape: Give a dimension another size: a symbol, batch=4; an axis of an input, image:0=4; a
            whole shape, image=1x3x224x224; or make it open, image:0=batch. A sum,
            total=past+sequence, is what it always is, on which rules may rely. Repeatable.
        rename: Call an input, an output or another value of the main graph otherwise. Repeatable.
        size: What the check feeds for a symbolic dimension or INPUT:AXIS; nothing is changed.
            Repeatable.
    """

    shape: Sizes = option(default={}, metavar="DIM=N", read=_read_sizes)
    rename: Renames = option(default={}, metavar="OLD=NEW", read=_read_names)
    size: Sizes = option(default={}, metavar="DIM=N", read=_read_sizes)

    @property
    def resized(self) -> Sizes:
        """The sizes that are changed."""
        return {name: size for name, size in self.shape.items() if not _is_sum(name, size)}

    @property
    def fed(self) -> Sizes:
        """What the check feeds, and what rules may rely on."""
        return {**self.size, **{n: size for n, size in self.shape.items() if _is_sum(n, size)}}


class RewriteSettings(
    RuleSettings, ExpectSettings, ChoiceSettings, EditSettings, InterfaceSettings
):
    """How to rewrite."""

    def check(self) -> None:
        """Refuse a plan of what rules do if more is done."""
        super().check()
        for name in ("shape", "rename"):
            if self.plan is not None and vars(self)[name]:
                hint = "say the interface anew first, and make the plan for the result"
                raise _contradict(name, "plan", hint=hint)

    @property
    def is_restricted(self) -> bool:
        """Whether something is not to be tried."""
        return bool(self.only or self.skip or self.limit is not None)


def _seconds(flag: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"{flag} {text!r}: expected a number of seconds, more than 0")
    return seconds


_MOST_SECONDS = 1e9


class BatchSettings(BaseSettings, group="Many models"):
    """How many models are worked on: by what, and whether what was done before counts.

    Attributes:
        jobs: How many processes work on them. Default: one for each core.
        resume: Leave out what an earlier run did, if options, results and all files that are read
            are unchanged. A check in blocks that was interrupted goes on in any case.
        cache_size: Megabytes of answers that are kept for --resume and dpl build, for each folder
            that dpl is called in. Default: 2000.
        model_timeout: Time limit for each model, all that is done with it. Default: an hour.
        scheduler: Have the workers of this scheduler of Dask do them, such as tcp://host:8786.
        worker_timeout: Give up a worker that says nothing for so long, and all when there is none
            that can do the work. Default: a minute.
        strict_workers: Give up when a worker has another dpl or other files, or lacks something,
            instead of leaving it out.
    """

    jobs: int | None = option(default=None, flags="--jobs -j", least=1, metavar="N")
    resume: bool = False
    cache_size: int = option(default=2000, least=0, metavar="MB")
    model_timeout: float = option(
        default=3600.0, read=partial(_seconds, opt("model_timeout")), metavar="SECONDS"
    )
    scheduler: str | None = option(default=None, metavar="ADDRESS")
    worker_timeout: float = option(
        default=60.0, read=partial(_seconds, opt("worker_timeout")), metavar="SECONDS"
    )
    strict_workers: bool = False


class TraceSettings(BaseSettings, group="What is printed"):
    """What is shown of a rewrite as it goes on.

    Attributes:
        print_trace: Print every turn of every rule, applied or refused.
        trace_json: Write the same as JSON; - is standard output, instead of the tables.
    """

    print_trace: bool = option(default=False, flags="--trace", is_of_one=True)
    trace_json: str | None = option(default=None, metavar="FILE", is_of_one=True)


class PlanSettings(BaseSettings, group="The plan"):
    """What is done with a plan that does not fit.

    Attributes:
        force: Go on with a model that the plan was not made for.
        skip_missing: Leave out what does not fit, instead of giving up.
    """

    force: bool = False
    skip_missing: bool = False


class _PlanRuleSettings(BaseSettings, group=RULES):
    """Where the rules of a plan come from.

    Attributes:
        patterns: Take the rules from this catalogue instead of those that the plan names.
            Repeatable.
        expect: How often rules must be applied: ``fuse.add>=3``.
    """

    patterns: Sources = option(default=(), flags="--patterns -p", metavar="CATALOGUE")
    allow_code: bool = RuleSettings.options["allow_code"]  # type: ignore[assignment]
    expect: Names = keyword(default=())


class ApplySettings(_PlanRuleSettings, PlanSettings, EditSettings):
    """How to apply a plan. It says what to try, and at which opset."""


class RepeatSettings(BaseSettings, group="What counts as a repeat"):
    """What counts as a block that a model repeats.

    Attributes:
        min_repeats: How often a block must occur. Default: 2.
        min_nodes: How many nodes a block must have, constants not counted. Default: 4.
        min_saving: What share of the model's nodes a kind of block must save. Default: 2.
        max_families: How many kinds of blocks to outline, the most saving first. Default: all.
        same_attributes: Only blocks whose attributes are equal, too; others are given at each call.
        nested: Also outline what repeats inside a block.
        expect: Exit with 1 unless a block, such as repeat.layer, occurs so often (also <= == > <).
            Repeatable.
    """

    min_repeats: int = option(default=2, least=2, metavar="N")
    min_nodes: int = option(default=4, least=1, metavar="N")
    min_saving: float = option(
        default=0.02, metavar="PERCENT", read=partial(_read_share, "min_saving")
    )
    max_families: int | None = option(default=None, least=1, metavar="N")
    same_attributes: bool = False
    nested: bool = False
    expect: Names = option(default=(), metavar="BLOCK>=N")


class RepeatingSettings(RepeatSettings, ResultSettings, InputCodeSettings):
    """How to outline what a model repeats."""

    result = "repeated"


class CallSettings(BaseSettings, group="What is inlined"):
    """What is inlined; without a choice, what dpl has outlined.

    Attributes:
        target: Inline the functions of this domain, such as dnnl, or of several, such as
            dnnl,cublas, whoever wrote them. Repeatable.
        function: Inline all calls of this function. Repeatable.
        call: Inline one call, found by its name or by an output's. Repeatable.
        all_functions: Inline every function, also those that dpl did not write.
    """

    target: Names = option(default=(), metavar="NAMES", read=_listed)
    function: Names = option(default=(), metavar="DOMAIN::NAME")
    call: Names = option(default=(), metavar="NAME", complete="nodes")
    all_functions: bool = False


class InlineSettings(CallSettings, ResultSettings, InputCodeSettings):
    """What to inline, and what becomes of the result."""

    result = "inlined"

    def check(self) -> None:
        """Refuse two choices, of which one leaves the other without effect."""
        super().check()
        names = ("all_functions", "call", "function", "target")
        named = [name for name in names if self.__dict__[name]]
        if len(named) > 1 and named[0] in {"all_functions", "call"}:
            raise _contradict(named[0], named[1])


class ExtractSettings(BaseSettings, group="The part"):
    """Which part of a model is cut out, and where it goes.

    Attributes:
        from_: What the part is given: values by their names, with commas between them. Default: the
            inputs of MODEL. Repeatable.
        to: What the part computes, in the same way. Default: the outputs of MODEL. Repeatable.
        layers: Cut layers out instead, those that dpl repeat finds: 0:4 for the first four, 3 for
            the fourth. The part is given what flows into them, and computes what flows out.
        output: Where to write the part. Default: MODEL.extracted.onnx beside the model. External
            data goes to OUTPUT.data.
        progress: Called with a short phrase before each step that may take long.
    """

    result = "extracted"

    def check(self) -> None:
        """Refuse to cut at values and at layers."""
        super().check()
        if self.layers and (self.from_ or self.to):
            raise _contradict("layers", "from_" if self.from_ else "to")

    from_: Names = option(default=(), flags="--from", metavar="VALUES", complete="nodes")
    to: Names = option(default=(), metavar="VALUES", complete="nodes")
    layers: str = option(default="", metavar="FIRST:END")
    output: Place = option(default=None, flags="-o --output", group="The result")
    progress: Progress = keyword(default=None)


# Jobs that look at models.


class AssumedSettings(BaseSettings, group=RULES):
    """What rules may rely on.

    Attributes:
        shape: What a dimension always is: another one, or a sum, total=past+sequence. Repeatable.
    """

    shape: Sizes = option(default={}, metavar="DIM=SUM", read=_read_sizes)


class MatchSettings(RuleSettings, AssumedSettings, ExpectSettings, PolicySettings, HintSettings):
    """Where rules match.

    Attributes:
        progress: Called with a short phrase before the search.
    """

    progress: Progress = keyword(default=None)


class ExplainSettings(RuleSettings, AssumedSettings, PolicySettings, group=RULES):
    """Why rules match where they do, and not elsewhere.

    Attributes:
        rule: Explain this rule only; the others still take their nodes. Repeatable.
        node: Ask about one node, found by its name or by an output's, as the root of a match.
        left_out: Say of each node that no match has which rule comes nearest, and why it does not
            take it; of nodes that are alike, once.
        progress: Called with a short phrase before the search.
    """

    rule: Names = option(default=(), metavar="NAME", complete="rules")
    node: str | None = option(default=None, metavar="NAME", complete="nodes")
    left_out: bool = option(default=False)
    progress: Progress = keyword(default=None)


class DiffSettings(BaseSettings, group="What counts"):
    """What counts as a difference of two structures.

    Attributes:
        ignore: What does not count, separated by commas: names (of nodes and inner values), order,
            doc, metadata, value-info, storage (initializer or Constant node, in which field or
            file; defaults that are stated), other (fields that dpl does not know). By default all
            of these but other; 'nothing' to count every field of the files.
        progress: Called with a short phrase before each step that may take long.
    """

    ignore: Facets = option(default=None, metavar="WHAT", read=_read_facets)
    progress: Progress = keyword(default=None)


class SavedSettings(BaseSettings, group="Saved results"):
    """Results that are kept, and judged later or elsewhere.

    Attributes:
        save_results: Write what was fed and what both models gave to a numpy archive, for --from
            and --against. Without CANDIDATE, ORIGINAL stands for both.
        judged: Judge saved results, with --rtol, --atol and --tolerance; no model is run.
        against: Run one model on saved inputs, and compare with what the original gave then: with
            another version of onnxruntime, on another machine.
    """

    save_results: Place = option(default=None, metavar="FILE", is_of_one=True)
    judged: Place = option(default=None, flags="--from", metavar="FILE")
    against: Place = option(default=None, metavar="FILE")


class InsideSettings(BaseSettings, group="The values inside"):
    """Whether values inside two models are compared.

    Attributes:
        layers: Compare the values inside, too: a row for every value that both models compute, told
            by structure, by what reads it, or as an output of one name.
    """

    layers: bool = False


class NamesSettings(BaseSettings, group=_FED):
    """Which values have which names.

    Attributes:
        rename: CANDIDATE calls an input or output of ORIGINAL otherwise, as dpl rewrite --rename
            makes it. Repeatable.
    """

    rename: Renames = option(default={}, metavar="OLD=NEW", read=_read_names)


class ComparingSettings(
    SavedSettings, InsideSettings, CheckSettings, NamesSettings, KernelSettings, InputCodeSettings
):
    """How two models are compared, what is kept of it, and what is compared beside outputs."""


class OneRunSettings(BaseSettings, group="The run"):
    """How often and how a model runs by itself.

    Attributes:
        seed: Seed of inputs that are made up. Default: 0.
        level: onnxruntime's optimisation level. Default: all.
        custom_ops: Libraries of custom operators.
        progress: Called with a short phrase before each step that may take long.
    """

    seed: int = 0
    level: str = option(default="all", choices=LEVELS)
    custom_ops: Places = keyword(default=())
    progress: Progress = keyword(default=None)


class ExecutionSettings(
    InputSettings, SaveSettings, OneRunSettings, EngineSettings, KernelSettings, InputCodeSettings
):
    """How a model is run by itself."""


class RunSettings(ExecutionSettings):
    """How a model is run, and where what it gives goes.

    Attributes:
        output: Write what the model gives; of several models, into this folder.
        checked: With --with: compare what the partitions give with what their bodies give, as dpl
            verify does, and exit with 1 where they differ.
    """

    output: Place = option(default=None, flags="-o --output", metavar="FILE.npz")
    checked: bool = option(default=False, flags="--check")

    def check(self) -> None:
        """Refuse a check of nothing."""
        super().check()
        if self.checked and self.kernels is None:
            raise UsageError(
                f"{opt('checked')} is about partitions {opt('kernels')} a library; pass both"
            )


class BoundSettings(BaseSettings, group="What is asked for"):
    """What is asked of a model that approximates another.

    Attributes:
        min_sqnr: Exit with 1 unless each output has so many decibels of signal to quantisation
            noise, such as 20.
        min_cosine: Exit with 1 unless each output has this cosine to that of the original, such as
            0.99.
        min_agreement: Exit with 1 unless the largest element of each output is at the same place
            in this share of the rows, such as 0.95; for outputs that are no floats, unless this
            share of the elements is equal.
        layers: Measure the values inside, too, and say where most accuracy is lost.
    """

    min_sqnr: float | None = option(default=None, metavar="DB")
    min_cosine: float | None = option(default=None, metavar="SHARE")
    min_agreement: float | None = option(default=None, metavar="SHARE")
    layers: bool = False


class AccuracySettings(
    BoundSettings, InputSettings, SaveSettings, EngineSettings, InputCodeSettings
):
    """How near a model has to come to one that it approximates, and on which values.

    Attributes:
        seed: Seed of one set of inputs that are made up; repeatable. Default: 0 to 3.
        level: onnxruntime's optimisation level. Default: all.
        custom_ops: Register custom operators from this shared library with onnxruntime.
            Repeatable.
        progress: Called with a short phrase before each step that may take long.
    """

    seed: Numbers = option(default=(0, 1, 2, 3))
    level: str = option(default="all", choices=LEVELS)
    custom_ops: Places = option(default=(), metavar="LIBRARY")
    progress: Progress = keyword(default=None)


class RoundSettings(BaseSettings, group="The timing"):
    """How two models are timed.

    Attributes:
        runs: How many rounds: in each, both models run some times in a row. Default: 20.
        threads: How many threads each model has; 0 for as many as there are cores. Default: 1.
    """

    runs: int = option(default=20, metavar="N")
    threads: int = option(default=1, metavar="N")


class BenchSettings(RoundSettings, ExecutionSettings):
    """How two models are timed; partitions run on a library in the second only."""


class ContractSettings(BaseSettings, group="Bindings"):
    """Files that show a contract.

    Attributes:
        header: Write the contract as a header for C and C++.
        stub: Write the contract as a Python module: one abstract class per function.
    """

    header: Place = option(default=None, flags="--c-header", metavar="FILE", is_of_one=True)
    stub: Place = option(default=None, flags="--python", metavar="FILE", is_of_one=True)


class CatalogueSettings(BaseSettings, group=RULES):
    """Which rules of catalogues are meant.

    Attributes:
        rule: This rule only. Repeatable.
    """

    rule: Names = option(default=(), metavar="NAME", complete="rules")
    allow_code: bool = RuleSettings.options["allow_code"]  # type: ignore[assignment]


class TrialSettings(CatalogueSettings, group="Trials"):
    """On which graphs rules are tried.

    Attributes:
        trials: On how many graphs each rewrite is tried.
        seed: Which graphs are made up, and which numbers they are fed.
    """

    trials: int = option(default=200, least=1, metavar="N", shown="200")
    seed: int = option(default=0, least=0, metavar="N", shown="0")


class BindingSettings(CatalogueSettings, ContractSettings):
    """For which rules contracts are written, and where."""


class LookSettings(BaseSettings, group="What is shown"):
    """What is looked at in a model.

    Attributes:
        node: Show one node, found by its name or by an output's, and its neighbours.
        nodes: List all nodes with their names, operators, results and types; in which graph, too,
            if there are several. Other commands take names, or those of results.
        contract: Show what kernels for the functions of a target have to keep to.
    """

    node: str | None = option(default=None, metavar="NAME", complete="nodes")
    nodes: bool = False
    contract: bool = False


class InspectSettings(LookSettings, ContractSettings):
    """What is shown of a model, and written of it."""


class FaultSettings(BaseSettings, group="Faults"):
    """What becomes of faults.

    Attributes:
        output: A new folder for what reproduces each fault: a small model, its inputs, the rules,
            and a README with the command.
        most: Look for so many faults of rules at most.
        reproduce: Run a folder that -o wrote: exit code 1 if the fault is still there.
    """

    output: Place = option(default=None, flags="--output -o", metavar="DIR")
    most: int = option(default=20, least=1, metavar="N", shown="20")
    reproduce: Place = option(default=None, metavar="DIR")


class KindSettings(BaseSettings, group=RULES):
    """What is done with rules.

    Attributes:
        by: What to do with the rules, if the catalogues have both kinds.
    """

    by: str | None = option(default=None, choices=("rewrite", "partition"))


class BisectSettings(RuleSettings, KindSettings, FaultSettings, CheckSettings):
    """How faults are looked for."""


class LearnSettings(BaseSettings, group=RULES):
    """From what rules are learned, and how.

    Attributes:
        nodes: The nodes to learn from, by their names or by values they make, with commas between
            them. Repeatable.
        before: Instead of MODEL and --nodes: a model as it was. Learn rules that replace. A folder,
            as that of --after, stands for its models.
        after: What somebody made of the model --before.
        name: Name of the rule; without, it is made from the operators.
        target: Target of the catalogue: the domain of the functions that its rule makes.
        exact: Demand every attribute that the file states, as it is there.
        output: Write the catalogue to a new file instead of standard output; for folders of models,
            the folder for their catalogues.
        unproved: Write rules that these graphs neither prove nor refute, too; without, they are
            commented out.
        budget: Try rules at most so often; what is learned until then is written.
        verify: Do not run what the rules make of the model --before.
        progress: Called with a short phrase before each step that may take long.
    """

    def check(self) -> None:
        """Refuse what is about nodes of one model together with what is about two."""
        super().check()
        stated = self.stated()
        of_two = [name for name in ("before", "after") if name in stated]
        named = ("nodes", "target", "exact") if of_two else ("verify", "unproved", "budget")
        for name in (name for name in named if name in stated):
            does = "does not go with" if of_two else "goes only with"
            raise UsageError(
                f"{opt(name)} {does} {opt('before')} and {opt('after')}",
                hint="rules are learned from nodes of one model, or from two models",
            )
        if len(of_two) == 1:
            missing = "after" if "before" in of_two else "before"
            hint = f"pass {opt(missing, 'FILE')} as well"
            raise UsageError(f"{opt(of_two[0])} without {opt(missing)}", hint=hint)

    nodes: Names = option(default=(), metavar="NAMES", complete="nodes")
    before: Model = option(default=None, metavar="FILE")
    after: Model = option(default=None, metavar="FILE")
    name: str = option(default="", metavar="NAME")
    target: str = option(default="", metavar="NAME", shown="custom")
    exact: bool = False
    output: Place = option(default=None, flags="-o --output", metavar="FILE")
    unproved: bool = False
    budget: int = option(default=60, least=1, metavar="N", shown="60")
    verify: bool = option(default=True, flags="--no-verify", read=_negated)
    progress: Progress = keyword(default=None)


class ViewSettings(BaseSettings, group="The picture"):
    """How a model is drawn.

    Attributes:
        output: Where to write the picture; the ending says what it is: .html, .dot (Graphviz), .svg
            (if Graphviz is installed) or .mmd (Mermaid). - is standard output, for a page.
        scope: Draw only a part: a module scope such as encoder/layer.0, or a function.
        open: Open a group at first: a scope, the calls of a function, or a node with a body.
            Repeatable.
        depth: Open so many levels of groups, calls and bodies; without, as many groups as can be
            looked at.
        shape: Size of a symbolic dimension, or of INPUT:AXIS, or a whole shape, INPUT=1x3x224x224:
            what nodes cost is counted with it. Repeatable.
    """

    output: Place = option(default=None, flags="-o --output", metavar="FILE", shown="MODEL.html")
    scope: str | None = option(default=None, metavar="NAME")
    open: Names = option(default=(), metavar="NAME")
    depth: int | None = option(default=None, least=0, metavar="N")
    shape: Sizes = option(default={}, metavar="DIM=N", read=_read_sizes)
