"""The contents of a catalogue file. The JSON Schema for editors is made of it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from dplcli.ir.types import Exempt
from dplcli.language.rule import (
    RESERVED_METADATA,
    ConstantsPolicy,
    EscapePolicy,
    OrderPolicy,
    RewriteEscapePolicy,
)

Json: TypeAlias = dict[str, Any]


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004  # pydantic wants a ValueError
    return value


def _foreign(domain: str) -> str:
    if domain == "ai" or domain.startswith("ai.onnx"):
        raise ValueError("the standard's own domains cannot be a target")
    return domain


def _unreserved(metadata: object) -> object:
    taken = RESERVED_METADATA & set(metadata) if isinstance(metadata, dict) else set()
    if taken:
        raise ValueError(f"{min(taken)!r} is written by dpl itself")
    if isinstance(metadata, dict) and metadata.get("Composite") == "":
        raise ValueError("'Composite' is the name of what the function is, so it is not empty")
    return metadata


def _in_order(opsets: list[int]) -> list[int]:
    if opsets != sorted(opsets):
        raise ValueError("the first opset comes first")
    return opsets


Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
DottedName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]
Domain = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"),
    AfterValidator(_foreign),
]
FunctionReference = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
TransformReference = Annotated[
    str, Field(pattern=r"^[A-Za-z_]\w*((\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)?$")
]
_Opset = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_no_truth_value)]
_TEXTS: Json = {"type": "array", "items": {"type": "string"}}
Conditions = Annotated[
    list[str],
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]}),
]
"""One condition may stand alone, without a list."""
Priority = Annotated[int, BeforeValidator(_no_truth_value)]
Opsets = Annotated[list[_Opset], Field(min_length=1, max_length=2), AfterValidator(_in_order)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


# In place of many values a reference may stand, which is replaced before rules are made.


WRITTEN_OUT = "written out"
"""The context in which references were replaced: what still looks like one means itself."""

_REFERENCE = r"\$\{[^{}\n]*\}"
_REFERENCE_SCHEMA: Json = {"type": "string", "pattern": f"^{_REFERENCE}$"}
_PART = rf"([A-Za-z_]|{_REFERENCE})([A-Za-z0-9_]|{_REFERENCE})*"
_DOTTED = rf"{_PART}(\.{_PART})*"


def _or_like(pattern: str, schema: Json) -> tuple[WrapValidator, WithJsonSchema]:
    """Allow text that is like *pattern*, too; *schema* says all that may stand there."""

    def check(value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        items = value if isinstance(value, list) and pattern == _REFERENCE else [value]
        is_like = any(isinstance(item, str) and re.fullmatch(pattern, item) for item in items)
        return value if is_like and info.context != WRITTEN_OUT else check(value)

    return WrapValidator(check), WithJsonSchema(schema)


def _any_of(*schemas: Json) -> Json:
    return {"anyOf": list(schemas)}


def _one_of(words: object) -> tuple[WrapValidator, WithJsonSchema]:
    return _or_like(
        _REFERENCE, _any_of({"type": "string", "enum": list(get_args(words))}, _REFERENCE_SCHEMA)
    )


def _list_of(schema: Json, least: int = 1) -> Json:
    return {"type": "array", "items": schema} | ({"minItems": least} if least else {})


def _mapping_to(schema: Json, least: int = 1) -> Json:
    mapping = {"type": "object", "additionalProperties": schema}
    return mapping | ({"minProperties": least} if least else {})


_SCALAR = _any_of({"type": "string"}, {"type": "number"})
_VALUES = _any_of(_list_of(_SCALAR), _mapping_to(_mapping_to(_SCALAR, least=0)))
_SELECTION = _mapping_to(_any_of(_SCALAR, _list_of(_SCALAR, least=0)))
_FOR_EACH = _any_of(_mapping_to(_VALUES), _list_of(_mapping_to(_SCALAR)))
_EXEMPT = {"type": "string", "enum": [*get_args(Exempt)]}
_EXCEPT = _any_of(_SELECTION, _list_of(_any_of(_SELECTION, _EXEMPT), least=0))
_INTEGER = _any_of({"type": "integer"}, _REFERENCE_SCHEMA)
_OPSETS = _list_of(_any_of({"type": "integer", "minimum": 1}, _REFERENCE_SCHEMA)) | {"maxItems": 2}

Name = Annotated[Identifier, *_or_like(_PART, {"type": "string", "pattern": f"^{_PART}$"})]
DottedNameWithReferences = Annotated[
    DottedName, *_or_like(_DOTTED, {"type": "string", "pattern": f"^{_DOTTED}$"})
]
ForEach = Annotated[object, WithJsonSchema(_FOR_EACH)]
"""It is checked when it is written out, where messages can say more."""
Except = Annotated[object, WithJsonSchema(_EXCEPT)]


class ExampleEntry(_Strict):
    """A model, and what becomes of it."""

    before: str = Field(description="The model, as ONNX text; without a header opset 21.")
    after: str = Field(
        default="any", description='"any" (the rule does something), "unchanged", or ONNX text.'
    )


class ExampleItem(ExampleEntry):
    """A model, and what becomes of it; perhaps for some of the rules that ``for_each`` makes."""

    when: Annotated[object, WithJsonSchema(_SELECTION)] = Field(
        default=None, description="Values of the variables; without it the example is for all."
    )


class _Item(_Strict):
    """The keys of rules of both kinds."""

    name: Name = Field(description="Unique among the rules of its kind.")
    doc: str = Field(default="", description="What it is, for a reader.")
    pattern: str = Field(description="What to find, in the pattern language.")
    where: Conditions = Field(
        default=[], description="Conditions over the names of the pattern; all must hold."
    )
    check: FunctionReference | None = Field(
        default=None,
        description="module:function that gets the match; runs only with --allow-code.",
    )
    opsets: Annotated[Opsets | None, *_or_like(_REFERENCE, _OPSETS)] = Field(
        default=None, description="First and, if there is one, last opset it holds for."
    )
    priority: Annotated[Priority | None, *_or_like(_REFERENCE, _INTEGER)] = Field(
        default=None,
        description="Rules of a higher one are tried first, whatever their place in the list.",
    )
    examples: list[ExampleItem] = Field(default=[], description="Run by `dpl patterns test`.")
    for_each: ForEach = Field(
        default=None,
        description="Variables and their values: the rule is written out for each combination, "
        "${variable} replaced in all its texts, the last variable changing fastest.",
    )
    except_: Except = Field(
        default=None,
        alias="except",
        description="Combinations to leave out, and the numbers for which a rewrite may be wrong.",
    )


class PatternItem(_Item):
    """One item of ``patterns``: a kind of subgraph to outline as a function."""

    name: DottedNameWithReferences = Field(
        description="Unique among the patterns; the functions' name."
    )
    constants: Annotated[ConstantsPolicy | None, *_one_of(ConstantsPolicy)] = Field(
        default=None, description="Which constants go into the function's body."
    )
    escape: Annotated[EscapePolicy, *_one_of(EscapePolicy)] = Field(
        default="refuse", description="What if something outside reads an inner value."
    )
    order: Annotated[OrderPolicy, *_one_of(OrderPolicy)] = Field(
        default="outermost",
        description="outermost: consumers first; program: producers first, larger matches absorb.",
    )
    attrs: Annotated[dict[str, str], BeforeValidator(_unreserved)] = Field(
        default={},
        description="Further metadata for the function; a text that begins with `=` is an "
        "expression over the names of the pattern, and an attribute of each call.",
    )


class RewriteItem(_Item):
    """One item of ``rewrites``: a kind of subgraph to replace."""

    pattern: str = Field(
        default="op()(...)",
        description="What to find, in the pattern language; may be missing with some functions.",
    )
    replacement: str | None = Field(
        default=None, description="What takes its place, over the names of the pattern."
    )
    function: TransformReference | None = Field(
        default=None,
        description="Instead of a replacement: a function of dpl, by its name; or module:function, "
        "which runs only with --allow-code.",
    )
    once: bool = Field(default=False, description="Whether what it makes is left alone by it.")
    escape: Annotated[RewriteEscapePolicy | None, *_one_of(RewriteEscapePolicy)] = Field(
        default=None,
        description="What if something outside reads an inner value. keep: what is read stays, the "
        "outputs are replaced; refuse: nothing is done. Default: refuse where the replacement "
        "would do again what stays, else keep.",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> RewriteItem:
        if (self.replacement is None) == (self.function is None):
            raise ValueError("say either replacement or function")
        if self.replacement is not None and "pattern" not in self.model_fields_set:
            raise ValueError("say what the replacement takes the place of: pattern")
        return self


class FragmentEntry(_Strict):
    """A part of patterns, with conditions of the rules that use it."""

    pattern: str = Field(description="Lines `name = expression`, and an expression.")
    where: Conditions = Field(default=[], description="Conditions of every rule that uses it.")


class CatalogFile(_Strict):
    """A whole catalogue file, as written."""

    dpl: Annotated[Literal[1], BeforeValidator(_no_truth_value)] = Field(
        description="Version of this format."
    )
    target: Domain | None = Field(
        default=None, description="Domain of the functions that `patterns` make."
    )
    doc: str = Field(default="", description="What the catalogue is for.")
    constants: ConstantsPolicy = Field(
        default="auto", description="Which constants go into the functions' bodies, by default."
    )
    priority: Priority = Field(default=0, description="The priority of its rules, by default.")
    include: list[str] = Field(
        default=[], description="Other catalogues, relative to this file; their rules come first."
    )
    fragments: dict[Identifier, str | FragmentEntry] = Field(
        default={},
        description="Parts of patterns: `${name}` stands for one in the patterns of this file and "
        "of those that include it.",
    )
    patterns: list[PatternItem] = Field(default=[], description="In the order to be tried.")
    rewrites: list[RewriteItem] = Field(default=[], description="In the order to be tried.")


class ExampleOf(ExampleEntry):
    """One item of a file of examples, which names its rule."""

    rule: DottedNameWithReferences = Field(description="Name of a rule of the catalogue.")
    for_each: ForEach = Field(default=None, description="As in catalogues.")
    except_: Except = Field(default=None, alias="except", description="Combinations to leave out.")


class ExamplesFile(_Strict):
    """A whole file of examples, as written."""

    dpl: Annotated[Literal[1], BeforeValidator(_no_truth_value)] = Field(
        description="Version of this format."
    )
    examples: list[ExampleOf] = Field(description="Run by `dpl patterns test`.")


def json_schema() -> Json:
    """Return the JSON Schema of a catalogue file."""
    schema = CatalogFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
