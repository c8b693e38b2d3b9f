"""The pipeline file: which models there are, what is done with them, and what is expected.

It is ``dpl.yaml``, or the table ``tool.dpl`` of a ``pyproject.toml``.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from dplcli.catalog.yaml import SourceMap, YamlSource, explain_invalid, read_utf8
from dplcli.errors import CatalogError, UsageError, did_you_mean_rule
from dplcli.language.rule import judge_expectations, read_expectation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dplcli.language.rule import JudgedExpectation

    Json = dict[str, Any]
    Where: TypeAlias = tuple[str | int, ...]

FILE_NAME = "dpl.yaml"
FIRST_LINE = "models: [models]"
_TOML = "pyproject.toml"
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(kB|MB|GB|)")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
COMMANDS = ("rewrite", "partition", "repeat", "inline")
EXTERNAL = "run"


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    if (parts := _SIZE.fullmatch(value)) is None:
        raise ValueError("expected a size, such as 12 MB")
    return round(float(parts[1]) * _UNITS[parts[2]])


def _percent(value: object) -> object:
    if not isinstance(value, str):
        return value
    if (parts := _PERCENT.fullmatch(value)) is None:
        raise ValueError("expected a share, such as 80 %")
    return float(parts[1])


def _expectation(text: str) -> str:
    if read_expectation(text) is None:
        raise ValueError(f"{text!r} is no expectation: write RULE>=NUMBER, or <= == > <")
    return text


def _number_or(pattern: re.Pattern[str]) -> WithJsonSchema:
    text = {"type": "string", "pattern": f"^{pattern.pattern}$"}
    return WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, text]})


Size = Annotated[int, Field(ge=0), BeforeValidator(_size), _number_or(_SIZE)]
Percent = Annotated[
    float, Field(ge=0, strict=False), BeforeValidator(_percent), _number_or(_PERCENT)
]
ExpectationText = Annotated[str, AfterValidator(_expectation)]
Options = dict[str, Any]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Budgets(_Strict):
    """Limits that a result has to keep to."""

    nodes: int | None = Field(default=None, ge=0, description="Nodes of the main graph, at most.")
    size: Size | None = Field(
        default=None, description="Bytes of the file and its external data, at most; or 12 MB."
    )
    growth: Percent | None = Field(
        default=None, description="By how many percent the file may be larger than the model's."
    )
    coverage: Percent | None = Field(
        default=None, description="Percent of the nodes that are inside functions, at least."
    )


class ModelEntry(_Strict):
    """Models, and what is expected of them in particular."""

    path: str = Field(description="A file, a folder or a glob, relative to this file.")
    without: list[str] = Field(
        default=[], description="Files, folders and globs that are left out, such as broken ones."
    )
    expect: list[ExpectationText] = Field(
        default=[], description="How often rules are used, such as dnnl.conv2d_bn_relu>=9."
    )
    budgets: Budgets = Field(default=Budgets(), description="Limits for the result.")


class StepEntry(_Strict):
    """One thing that is done with every model: a command of dpl with its options, or another."""

    rewrite: Options | None = Field(default=None, description="Options of dpl rewrite.")
    partition: Options | None = Field(default=None, description="Options of dpl partition.")
    repeat: Options | None = Field(default=None, description="Options of dpl repeat.")
    inline: Options | None = Field(default=None, description="Options of dpl inline.")
    run: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Another program and its arguments; {input} and {output} stand for models.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> StepEntry:
        if len(self.model_fields_set) != 1:
            raise ValueError("a step is one of rewrite, partition, repeat, inline and run")
        words = re.findall(r"\{input\}|\{output\}", " ".join(self.run or ()))
        if self.run is not None and not {"{input}", "{output}"} <= set(words):
            raise ValueError("run needs {input} and {output} among its arguments")
        return self

    @property
    def kind(self) -> str:
        """Which of them it is."""
        return next(iter(self.model_fields_set))


class Reports(_Strict):
    """Where to write reports on all models."""

    json_: str | None = Field(default=None, alias="json", description="As JSON.")
    junit: str | None = Field(default=None, description="As JUnit XML, a suite for each model.")
    markdown: str | None = Field(default=None, description="As Markdown.")
    html: str | None = Field(default=None, description="As one page of HTML.")


def _entry(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


class BuildFile(_Strict):
    """A pipeline file."""

    models: list[Annotated[ModelEntry, BeforeValidator(_entry)]] = Field(
        min_length=1,
        description="Files, folders and globs; the last entry that names a model decides.",
    )
    output: str = Field(default="built", description="The folder for the results.")
    targets: list[str] = Field(
        default=[], description="Targets of partition steps that name no rules."
    )
    steps: list[StepEntry] = Field(min_length=1, description="What is done, in order.")
    verify: bool | Options = Field(
        default=True, description="Options of the check after each step; false for none."
    )
    expect: list[ExpectationText] = Field(default=[], description="Expected of every model.")
    budgets: Budgets = Field(default=Budgets(), description="Limits for every result.")
    reports: Reports = Field(default=Reports(), description="Where to write reports.")


class ReadFile(NamedTuple):
    """A pipeline file that was read.

    Attributes:
        path: The file.
        content: What it says.
        source: Knows where its parts are written.
    """

    path: Path
    content: BuildFile
    source: SourceMap


class _Table(NamedTuple):
    """A table of a TOML file, whose parts have names, but no lines."""

    label: str

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where*."""
        place = ".".join(["tool.dpl", *map(str, where)])
        return CatalogError(f"{self.label}: {place}: {message}", hint=hint)


def find_build_file(folder: Path) -> Path:
    """Return the pipeline file of a folder.

    Raises:
        UsageError: There is none.
    """
    if (folder / FILE_NAME).is_file():
        return folder / FILE_NAME
    if (folder / _TOML).is_file() and "[tool.dpl" in read_utf8(folder / _TOML):
        return folder / _TOML
    raise UsageError(
        f"there is no {FILE_NAME} here, and no table [tool.dpl] in a {_TOML}",
        hint="dpl init writes a first one by looking at the models",
    )


def read_build_file(path: Path) -> ReadFile:
    """Read a pipeline file.

    Raises:
        CatalogError: With file, line and column of what is wrong; of a TOML file, with the key.
    """
    source: SourceMap
    if path.suffix == ".toml":
        source, data = _Table(path.name), _table_of(path)
    else:
        yaml = YamlSource(path, "pipeline file", FIRST_LINE)
        source, data = yaml, yaml.data
    try:
        return ReadFile(path, BuildFile.model_validate(data), source)
    except ValidationError as error:
        raise explain_invalid(source, error, _keys_at) from error


def _table_of(path: Path) -> Json:
    try:
        content = tomllib.loads(read_utf8(path))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path.name}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise CatalogError(f"{path.name}: nests too deep to be read") from error
    table = content.get("tool", {}).get("dpl")
    if not isinstance(table, dict):
        raise CatalogError(f"{path.name}: has no table [tool.dpl]")
    return table


def _keys_at(where: Where) -> Iterable[str]:
    inner: Mapping[str, type[BaseModel]] = {
        "models": ModelEntry,
        "steps": StepEntry,
        "budgets": Budgets,
        "reports": Reports,
    }
    names = [str(part) for part in where[:-1] if str(part) in inner]
    fields = (inner[names[-1]] if names else BuildFile).model_fields
    return [field.alias or name for name, field in fields.items()]


def build_file_schema(options: Mapping[str, Json], check: Json) -> Json:
    """Return the JSON Schema of a pipeline file.

    Args:
        options: The schema of the options of each command that a step may be.
        check: The schema of the options of the check.
    """
    schema = BuildFile.model_json_schema(by_alias=True)
    models = schema["properties"]["models"]
    models["items"] = {"anyOf": [{"type": "string"}, models["items"]]}
    step = schema["$defs"]["StepEntry"]
    step["minProperties"] = step["maxProperties"] = 1
    for name in COMMANDS:
        step["properties"][name] = {
            "anyOf": [options[name], {"type": "null"}],
            "description": f"Options of dpl {name}.",
        }
    step["properties"][EXTERNAL] = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": step["properties"][EXTERNAL]["description"],
    }
    schema["properties"]["verify"] = {
        "anyOf": [{"type": "boolean"}, check],
        "description": schema["properties"]["verify"]["description"],
        "default": True,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


# What is expected of a model.


def judged(expect: Iterable[str], counts: Mapping[str, int]) -> tuple[JudgedExpectation, ...]:
    """Hold what was found against each expectation.

    Args:
        expect: The expectations.
        counts: How often each rule was used, those that were not included.

    Raises:
        UsageError: There is no such rule.
    """
    read = [found for text in expect if (found := read_expectation(text)) is not None]
    for item in read:
        if item.rule not in counts:
            hint = did_you_mean_rule(item.rule, sorted(counts))
            raise UsageError(f"expect {item.text!r}: no step has a rule {item.rule!r}", hint=hint)
    return judge_expectations(read, counts)


class Measures(NamedTuple):
    """What budgets limit.

    Attributes:
        nodes: The nodes of the main graph.
        size: The bytes of the file and its external data.
        growth: By how many percent the file and what it uses of external data are larger than
            the model's; None if no budget asks.
        covered: The share of the nodes inside functions; None if nothing was partitioned.
    """

    nodes: int
    size: int
    growth: float | None
    covered: float | None


def exceeded(budgets: Budgets, found: Measures) -> list[str]:
    """Return a sentence for each budget that is not kept to."""
    counts = ((found.nodes, "nodes", budgets.nodes), (found.size, "bytes", budgets.size))
    said = [
        f"it has {count:,} {what}, the budget is {budget:,}"
        for count, what, budget in counts
        if budget is not None and count > budget
    ]
    growth = found.growth or 0.0
    if budgets.growth is not None and growth > budgets.growth:
        said.append(f"it is {growth:.1f} % larger, the budget is {budgets.growth:g} %")
    if budgets.coverage is not None:
        covered = 100 * (found.covered or 0.0)
        if covered < budgets.coverage:
            said.append(f"{covered:.0f} % of the nodes are covered, not {budgets.coverage:g} %")
    return said


def joined(first: Budgets, second: Budgets) -> Budgets:
    """Return budgets of both; where both have one, the second decides."""
    return first.model_copy(update=second.model_dump(exclude_none=True))
