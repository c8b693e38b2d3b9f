"""Options that several commands share, and how commands print."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.main import answer_no
from dplcli.cli.printing import show, write
from dplcli.errors import UsageError
from dplcli.escaping import inert_markup, json_text
from dplcli.files import append_to_file, encoded, temporary_file
from dplcli.report.catalog import contract_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.report.document import Document

    Command = TypeVar("Command", bound=Callable[..., Any])


PATH = click.Path(path_type=Path)
_START = 2_000


# Named groups of options, and settings that options fill.


class _GroupedOption(click.Option):
    """An option that stands under a heading in the help."""

    def __init__(self, *flags: Any, group: str, **told: Any) -> None:  # noqa: ANN401  # click's
        super().__init__(*flags, **told)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has a heading for each group of options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the groups in the order in which they begin; what has no group comes last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        ungrouped = groups.pop("Options", [])
        for title, records in [*groups.items(), ("Options", ungrouped)]:
            with formatter.section(title):
                formatter.write_dl(records)


def option(group: str, *flags: str, **told: Any) -> Callable[[Command], Command]:  # noqa: ANN401  # click's
    """Make an option of a named group; the rest is as for ``click.option``."""
    return click.option(*flags, cls=_GroupedOption, group=group, **told)


@dataclass(frozen=True)
class Setting:
    """A field of a settings class, as an option.

    Attributes:
        field: The field.
        flags: How the option is written.
        told: What click is told of it.
        read: Makes the field's value of what was given.
    """

    field: str
    flags: tuple[str, ...]
    told: Mapping[str, Any]
    read: Callable[[Any], Any] | None


def setting(
    field: str,
    *flags: str,
    read: Callable[[Any], Any] | None = None,
    **told: Any,  # noqa: ANN401  # click's
) -> Setting:
    """Describe the option that fills *field*; the rest is as for ``click.option``."""
    return Setting(field, flags, told, read)


class SettingsGroup:
    """Options that fill fields of one settings class, which has the defaults.

    Used as a decorator it adds the options; :meth:`take` gives what they were given.
    """

    def __init__(self, title: str, *settings: Setting) -> None:
        self.title = title
        self.settings = settings

    def __call__(self, command: Command) -> Command:
        """Add the options, in order."""
        for item in reversed(self.settings):
            command = option(self.title, *item.flags, item.field, **item.told)(command)
        return command

    def take(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take the options of this group out of *given*; return the fields that were stated."""
        found: dict[str, Any] = {}
        for item in self.settings:
            value = given.pop(item.field)
            if value is not None and value is not False and value != ():
                found[item.field] = value if item.read is None else item.read(value)
        return found


# Options that several commands share.


RULES = "Rules"
PRINTING = "What is printed"


def model_argument(command: Command) -> Command:
    """Add the argument MODEL."""
    return click.argument("model", type=PATH)(command)


def expect_option(command: Command) -> Command:
    """Add --expect."""
    return option(
        RULES,
        "--expect",
        "expectations",
        multiple=True,
        metavar="RULE>=N",
        help="Exit with 1 unless the rule matches, or is applied, so often (also <= == > <). "
        "Repeatable.",
    )(command)


def catalog_options(command: Command) -> Command:
    """Add --patterns and --target."""
    command = option(
        RULES,
        "--target",
        "targets",
        multiple=True,
        metavar="NAMES",
        callback=listed,
        help="Use everything dpl ships for a target, such as dnnl, or for several: of "
        "cutlass,cublas the first one wins where both would take a node. Repeatable.",
    )(command)
    return option(
        RULES,
        "--patterns",
        "-p",
        multiple=True,
        metavar="CATALOGUE",
        help="A catalogue: a YAML file, a Python file (which is executed), or the name of one that "
        "dpl or an installed package ships. Repeatable.",
    )(command)


def listed(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """Split what is given as a comma-separated list, in order."""
    for text in texts:
        if "," in text and not all(name.strip() for name in text.split(",")):
            raise UsageError(f"{option.opts[0]} {text}: a name is missing beside a comma")
    return tuple(name.strip() for text in texts for name in text.split(","))


def allow_code_option(command: Command) -> Command:
    """Add --allow-code."""
    return option(
        RULES,
        "--allow-code",
        is_flag=True,
        help="Let YAML catalogues import the Python functions that they name as checks. "
        "A catalogue in Python (FILE.py) is code and always runs.",
    )(command)


def output_options(verbose: str) -> Callable[[Command], Command]:
    """Add --json, --quiet and --verbose, which the text explains."""
    options = (
        option(
            PRINTING,
            "--json",
            "json_path",
            metavar="FILE",
            help="Write the result as JSON; - is standard output, instead of the table.",
        ),
        option(PRINTING, "--quiet", "-q", is_flag=True, help="Print only errors."),
        option(PRINTING, "--verbose", "-v", is_flag=True, help=verbose),
    )

    def add(command: Command) -> Command:
        for option in options:
            command = option(command)
        return command

    return add


def check_json_path(
    json_path: str | None, *others: Path | str | None, option: str = "--json"
) -> None:
    """Refuse, before any work is done, a JSON file that cannot be or must not be written.

    Args:
        json_path: What the option was given.
        others: The other files of the command; names of shipped catalogues do no harm.
        option: The option, for messages.

    Raises:
        UsageError: It is another file of the command, a directory, or has no folder.
    """
    if json_path is None or json_path == "-":
        return
    check_report_path(json_path, *others, option=option, mark=None)


def check_report_path(
    report: str,
    *others: Path | str | None,
    option: str,
    mark: bytes | None,
    kind: str = "JSON report",
) -> None:
    """Refuse, before any work is done, a report that cannot be or must not be written.

    Args:
        report: Where to write it.
        others: The other files of the command; names of shipped catalogues do no harm.
        option: The option, for messages.
        mark: What a file of dpl's has near its beginning, which alone may be replaced; None for
            JSON, any of which may be; empty if what there is stays.
        kind: What such a file is, for messages.

    Raises:
        UsageError: It is another file of the command, a directory, or has no folder.
    """
    path = Path(report)
    try:
        taken = [Path(other) for other in others if other is not None]
        if any(path.resolve() == other.resolve() for other in taken):
            raise UsageError(f"{option} {report}: is another file of this command")
        if not report or path.is_dir():
            raise UsageError(f"{option} {report!r}: is not a file")
        if path.is_file() and not _is_replaceable(path, mark):
            raise UsageError(f"{option} {report}: exists and is no {kind}, so it is kept")
        if not path.exists():
            with temporary_file(path.parent):
                pass  # what it is written to before it takes its place
        elif path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"{option} {report}: cannot be written: {error.strerror}") from error


def _is_replaceable(path: Path, mark: bytes | None) -> bool:
    with path.open("rb") as file:
        start = file.read(_START)
    if mark is None:
        return path.suffix == ".json" or start[:1] in b"{"
    return not start or mark in start


def conclude(
    document: Document,
    json_path: str | None,
    *,
    quiet: bool,
    reports: ReportFiles | None = None,
) -> None:
    """Write every form of *document* that is wanted, print one, and end with 1 if it says no.

    Args:
        document: What was found.
        json_path: Where to write JSON; None for nowhere, - for standard output.
        quiet: Whether to print nothing.
        reports: Where to write the other forms.
    """
    if reports is not None:
        reports.write(document)
        quiet = quiet or reports.takes_stdout
    if json_path is not None:
        text = json_text(document.record())
        if json_path == "-":
            write(text)
            quiet = True
        else:
            pipeline.write_text(Path(json_path), text, "--json")
    if not quiet:
        show(document.text)
    if not document.ok:
        answer_no(document.complaints)


# What the commands that show a contract share.


def contract_files(command: Command) -> Command:
    """Add --c-header and --python."""
    command = option(
        "Bindings",
        "--python",
        "stub",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a Python module: one abstract class per function.",
    )(command)
    return option(
        "Bindings",
        "--c-header",
        "header",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a header for C and C++.",
    )(command)


def conclude_contract(  # noqa: PLR0913  # the files of a command
    contract: pipeline.Contract,
    others: tuple[Path | str, ...],
    *,
    header: Path | None,
    stub: Path | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Write the files that are asked for, and print the contract.

    Args:
        contract: The contract.
        others: The files that the command reads.
        header: The header to write.
        stub: The Python module to write.
        json_path: The JSON to write.
        quiet: Whether to print nothing.
    """
    if json_path not in {None, "-"}:
        others = (*others, str(json_path))
    pipeline.write_bindings(contract, header=header, stub=stub, others=others)
    conclude(contract_document(contract), json_path, quiet=quiet)


# Options that decide what two models are fed.


_NUMBER = re.compile("[0-9]{1,18}")
_SHAPE = re.compile("[0-9]{1,18}(x[0-9]{1,18})+")


def parse_sizes(texts: tuple[str, ...]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return sizes of dimensions and whole shapes, as --shape gives them.

    Raises:
        UsageError: A text is neither, or two contradict each other.
    """
    sizes: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if separator and name and _NUMBER.fullmatch(value):
            is_new = sizes.setdefault(name, int(value)) == int(value)
        elif separator and name and _SHAPE.fullmatch(value):
            shape = tuple(map(int, value.split("x")))
            is_new = shapes.setdefault(name, shape) == shape
        else:
            raise UsageError(
                f"--shape {text!r}: not a size",
                hint="write --shape batch=4, or --shape image=1x3x224x224",
            )
        if not is_new:
            raise UsageError(f"--shape {text}: {name!r} has another size already")
    return sizes, shapes


def parse_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return the ranges that --range gives, by input.

    Raises:
        UsageError: A text is no range, or two are given for one input.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        low, colon, high = value.partition(":")
        try:
            bounds = float(low), float(high)
        except ValueError:
            bounds = None
        if not separator or not name or not colon or bounds is None:
            raise UsageError(f"--range {text!r}: not a range", hint="write --range ids=0:1000")
        if ranges.setdefault(name, bounds) != bounds:
            raise UsageError(f"--range {text}: {name!r} has another range already")
    return ranges


INPUTS = SettingsGroup(
    "What the models are fed",
    setting(
        "inputs",
        "--inputs",
        metavar="PATH|FUNCTION",
        help="Feed these values: a .npz file with an array per input, a .npy file, a folder of "
        "onnx test data (input_0.pb, or several test_data_set_0), or a Python function "
        "module:function or FILE.py:function, which takes a seed and returns a dict "
        "(--allow-code). Inputs that it leaves out are made up.",
    ),
    setting(
        "sizes",
        *("--shape", "--size"),
        multiple=True,
        metavar="DIM=N",
        help="Size of a symbolic dimension, or of INPUT:AXIS; or a whole shape, "
        "INPUT=1x3x224x224. Repeatable.",
    ),
    setting(
        "ranges",
        "--range",
        read=parse_ranges,
        multiple=True,
        metavar="INPUT=LOW:HIGH",
        help="Draw an input from this range, both ends included. Repeatable.",
    ),
    setting(
        "corners",
        "--corners",
        is_flag=True,
        help="Also feed zeros, negative, large and denormal values, where the original is "
        "itself stable there.",
    ),
    setting(
        "save",
        "--save-inputs",
        type=PATH,
        metavar="FILE.npz",
        help="Write what was fed, for --inputs and other tools.",
    ),
)


# Options that override the policies of rules.


_POLICY_HELP = {
    "constants": "Which constants go into the functions' bodies",
    "escape": "What if something outside a match reads a value inside",
    "order": "Whether consumers come first, or producers and larger matches absorb smaller ones",
}


def policy_options(*names: str) -> SettingsGroup:
    """Return the options --constants, --escape and --order, or those of them that are named."""
    return SettingsGroup(
        "Policies of rules",
        *(
            setting(
                name,
                f"--{name}",
                multiple=True,
                metavar="[RULE=]POLICY",
                help=f"{_POLICY_HELP[name]}: {', '.join(pipeline.POLICIES[name])}; for all rules "
                "or for one. Repeatable.",
            )
            for name in names
        ),
    )


# Options that write a report in the forms that CI services and people read.


_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_REPORT_HELP = {
    "junit": "Write a report as JUnit XML: a test for each output, level and seed.",
    "sarif": "Write what has a place in a catalogue as SARIF 2.1.0, for code hosts.",
    "markdown": "Write a report as Markdown; to the file that $GITHUB_STEP_SUMMARY names, it is "
    "added.",
    "html": "Write a report as one page of HTML with plots (needs: pip install 'dplcli[report]').",
}
_KINDS = {
    "junit": "JUnit report of dpl",
    "sarif": "SARIF report of dpl",
    "markdown": "Markdown report of dpl",
    "html": "HTML report of dpl",
}
_MARKS = {
    "junit": b'<testsuites name="dpl',
    "sarif": b'"name": "dpl"',
    "markdown": b"<!-- dpl report -->",
    "html": b'<meta name="generator" content="dpl">',
}


@dataclass(frozen=True)
class ReportFiles:
    """Where to write which form of the report; None for nowhere, - for standard output.

    Attributes:
        junit: JUnit XML.
        sarif: SARIF.
        markdown: Markdown.
        html: HTML.
    """

    junit: str | None = None
    sarif: str | None = None
    markdown: str | None = None
    html: str | None = None

    @property
    def wanted(self) -> dict[str, str]:
        """The forms that are wanted, and where."""
        paths = {field.name: getattr(self, field.name) for field in fields(self)}
        return {form: path for form, path in paths.items() if path is not None}

    @property
    def takes_stdout(self) -> bool:
        """Whether one of them goes to standard output, so that no table may."""
        return "-" in self.wanted.values()

    def check(
        self, json_path: str | None, *others: Path | str | None, has_plots: bool = True
    ) -> None:
        """Refuse, before any work is done, what cannot be or must not be written.

        Args:
            json_path: Where the JSON goes.
            others: The other files of the command.
            has_plots: Whether the page of this command has plots.

        Raises:
            UsageError: Two reports want one place, a file is no report of dpl, or cannot be
                written, or the library that draws plots is missing.
        """
        wanted = {"--json": json_path} | {f"--{form}": path for form, path in self.wanted.items()}
        printed = [option for option, path in wanted.items() if path == "-"]
        if len(printed) > 1:
            raise UsageError(
                f"{printed[0]} - and {printed[1]} - both want standard output",
                hint="name a file for one",
            )
        taken = [*others, None if json_path == "-" else json_path]
        for form, path in self.wanted.items():
            if path != "-":
                mark = b"" if form == "markdown" and _is_step_summary(path) else _MARKS[form]
                check_report_path(path, *taken, option=f"--{form}", mark=mark, kind=_KINDS[form])
                taken.append(path)
        if self.html is not None and has_plots:
            from dplcli.report.html import check_plotting  # noqa: PLC0415  # only for a page

            check_plotting()

    def write(self, document: Document) -> None:
        """Write every form that is wanted.

        Raises:
            UsageError: One cannot be written.
        """
        for form, path in self.wanted.items():
            text = _rendered(form, document)
            if path == "-":
                write(text if form == "sarif" else inert_markup(text))
            elif form == "markdown" and _is_step_summary(path):
                _append(Path(path), text)
            else:
                pipeline.write_text(Path(path), text, f"--{form}")


def report_options(*forms: str) -> Callable[[Command], Command]:
    """Add an option for each of *forms*; for all of them if none is named."""

    def add(command: Command) -> Command:
        for form in reversed(forms or tuple(_REPORT_HELP)):
            add_one = option(
                "Reports", f"--{form}", f"report_{form}", metavar="FILE", help=_REPORT_HELP[form]
            )
            command = add_one(command)
        return command

    return add


def take_reports(options: dict[str, Any]) -> ReportFiles:
    """Take what the options of :func:`report_options` were given out of *options*."""
    names = [field.name for field in fields(ReportFiles)]
    return ReportFiles(**{name: options.pop(f"report_{name}", None) for name in names})


def _rendered(form: str, document: Document) -> str:
    """Return the report in one form; each module is imported only where it is wanted."""
    if form == "junit":
        from dplcli.report.ci import junit_xml  # noqa: PLC0415

        return junit_xml(document)
    if form == "sarif":
        from dplcli.report.ci import sarif_record  # noqa: PLC0415

        return json_text(sarif_record(document))
    if form == "markdown":
        from dplcli.report.ci import markdown_text  # noqa: PLC0415

        return markdown_text(document)
    from dplcli.report.html import html_page  # noqa: PLC0415

    return html_page(document)


def _is_step_summary(path: str) -> bool:
    """Tell whether *path* is the file that GitHub shows beside a run, which steps share."""
    summary = os.environ.get(_STEP_SUMMARY)
    return bool(summary) and Path(path).resolve() == Path(summary or "").resolve()


def _append(path: Path, text: str) -> None:
    try:
        append_to_file(path, encoded(f"\n{text}"))
    except OSError as error:
        raise UsageError(f"--markdown {path}: cannot be written: {error.strerror}") from error


# Options that keep what models gave, and judge it later or elsewhere.


RESULTS = SettingsGroup(
    "Saved results",
    setting(
        "save_results",
        "--save-results",
        type=PATH,
        metavar="FILE",
        help="Write what was fed and what both models gave to a numpy archive, for --from and "
        "--against. Without CANDIDATE, ORIGINAL stands for both.",
    ),
    setting(
        "judged",
        "--from",
        type=PATH,
        metavar="FILE",
        help="Judge saved results, with --rtol, --atol and --tolerance; no model is run.",
    ),
    setting(
        "against",
        "--against",
        type=PATH,
        metavar="FILE",
        help="Run one model on saved inputs, and compare with what the original gave then: "
        "with another version of onnxruntime, on another machine.",
    ),
)


@dataclass(frozen=True)
class Subject:
    """What is to be compared, after the arguments and the options above.

    Attributes:
        original: The model that is right by definition; None if results are.
        candidate: The model in question; None if results are judged again.
        judged: Results to judge again.
        against: Results to compare the candidate with.
    """

    original: Path | None
    candidate: Path | None
    judged: Path | None = None
    against: Path | None = None

    @property
    def title(self) -> str:
        """What reports call it."""
        names = [path.name for path in (self.candidate, self.original) if path is not None]
        names += [path.name for path in (self.judged, self.against) if path is not None]
        return " against ".join(names)

    def compare(
        self, settings: pipeline.VerifySettings, say: Callable[[str], None]
    ) -> pipeline.VerificationResult:
        """Return the verdict."""
        if self.judged is not None:
            return pipeline.judge_again(self.judged, settings=settings)
        if self.candidate is None:
            raise UsageError("dpl verify needs a model")
        if self.against is not None:
            return pipeline.verify_against(
                self.against, self.candidate, settings=settings, progress=say
            )
        return pipeline.verify(
            self.original or self.candidate, self.candidate, settings=settings, progress=say
        )


def choose_subject(
    models: tuple[Path | None, Path | None],
    settings: pipeline.VerifySettings,
    *,
    layers: bool,
    judged: Path | None = None,
    against: Path | None = None,
) -> Subject:
    """Return what is to be compared with what.

    Args:
        models: ORIGINAL and CANDIDATE, as far as given.
        settings: All the other options.
        layers: Whether --layers was given.
        judged: What --from was given.
        against: What --against was given.

    Raises:
        UsageError: Arguments and options do not go together.
    """
    original, candidate = models
    if judged is not None and against is not None:
        raise UsageError("--from and --against contradict each other", hint="pass one of them")
    if judged is not None:
        _check_offline(settings, models, layers=layers)
        return Subject(None, None, judged=judged)
    if against is not None:
        if original is None or candidate is not None:
            raise UsageError("--against takes one model: dpl verify MODEL --against RESULTS")
        _check_saved_inputs(settings, layers=layers)
        return Subject(None, original, against=against)
    if original is not None and candidate is None and settings.save_results is not None:
        candidate = original
    if original is None or candidate is None:
        raise UsageError(
            "dpl verify needs ORIGINAL and CANDIDATE",
            hint="or saved results: --from RESULTS, MODEL --against RESULTS",
        )
    request = settings.request
    _check_results_path(settings.save_results, (original, candidate, request.given, request.save))
    return Subject(original, candidate)


def _check_offline(
    settings: pipeline.VerifySettings, models: tuple[Path | None, ...], *, layers: bool
) -> None:
    """Refuse what saved results have no use for."""
    plain = pipeline.VerifySettings(
        rtol=settings.rtol, atol=settings.atol, tolerances=settings.tolerances
    )
    if settings != plain or layers or any(model is not None for model in models):
        raise UsageError(
            "--from judges what was saved: no model is run",
            hint="only --rtol, --atol, --tolerance and where to report go with it",
        )


def _check_saved_inputs(settings: pipeline.VerifySettings, *, layers: bool) -> None:
    """Refuse what has no meaning where inputs are fixed and the original is not run."""
    plain = pipeline.VerifySettings(
        rtol=settings.rtol,
        atol=settings.atol,
        tolerances=settings.tolerances,
        levels=settings.levels,
        custom_ops=settings.custom_ops,
        execution=settings.execution,
    )
    if settings != plain or layers:
        raise UsageError(
            "--against feeds what was saved, and does not run the original",
            hint="only levels, tolerances, --custom-ops, where the model runs and where to report "
            "go with it",
        )


def _check_results_path(save_results: Path | None, others: tuple[Path | None, ...]) -> None:
    """Refuse early where results cannot be, or must not be, written."""
    if save_results is None:
        return
    folder = save_results.parent
    if save_results.is_dir() or not folder.is_dir():
        raise UsageError(f"--save-results {save_results}: is not a file in a folder that exists")
    if any(path is not None and save_results.resolve() == path.resolve() for path in others):
        raise UsageError(f"--save-results {save_results}: is another file of this command")


# Options that decide how two models are compared, and where and within which limits they run.


def _parse_option(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(
            f"--session-option {text!r}: not an option",
            hint="write --session-option intra_op_num_threads=1",
        )
    return key, value


def _parse_tolerances(texts: tuple[str, ...]) -> dict[str, pipeline.Override]:
    found: dict[str, pipeline.Override] = {}
    for text in texts:
        name, override = _parse_tolerance(text)
        if name in found:
            raise UsageError(f"--tolerance {text!r}: {name} has one already", hint="join them")
        found[name] = override
    return found


def _parse_tolerance(text: str) -> tuple[str, pipeline.Override]:
    name, separator, parts = text.rpartition("=")
    given: dict[str, float] = {}
    for part in parts.split(","):
        kind, _, number = part.partition(":")
        try:
            value = float(number)
        except ValueError:
            separator = ""
            break
        if kind not in {"rtol", "atol"} or kind in given:
            separator = ""
        given[kind] = value
    if not separator or not name:
        raise UsageError(
            f"--tolerance {text!r}: not a tolerance",
            hint="write --tolerance logits=rtol:1e-3,atol:1e-5, or one of the two",
        )
    return name, pipeline.Override(**given)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


_MUTANTS = 20
EXECUTION = SettingsGroup(
    "How the candidate is run",
    setting(
        "provider",
        "--provider",
        metavar="NAME",
        help="Execution provider that runs the candidate, such as CUDAExecutionProvider. "
        "The reference stays on the CPU.",
    ),
    setting(
        "options",
        "--session-option",
        read=lambda texts: tuple(map(_parse_option, texts)),
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of onnxruntime's session for the candidate, such as "
        "intra_op_num_threads=1 or session.disable_prepacking=1. Repeatable.",
    ),
    setting(
        "timeout",
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit to create a session, and for each run. Default: an hour.",
    ),
    setting(
        "memory_limit",
        "--memory-limit",
        type=int,
        metavar="MB",
        help="Memory that a model and its run may take, beyond onnxruntime itself.",
    ),
)


@cache
def check_settings() -> SettingsGroup:
    """Return the options of the check; onnxruntime's levels are known when they are needed."""
    return SettingsGroup(
        "The check",
        setting(
            "seeds",
            "--seed",
            read=_distinct,
            type=int,
            multiple=True,
            help="Seed of one set of inputs; repeatable. Default: 0 and 1.",
        ),
        setting(
            "levels",
            "--level",
            read=_distinct,
            type=click.Choice(pipeline.LEVELS),
            multiple=True,
            help="onnxruntime's optimisation level; repeatable. Default: disable and all.",
        ),
        setting(
            "rtol", "--rtol", type=float, help="Relative tolerance, instead of the derived one."
        ),
        setting(
            "atol", "--atol", type=float, help="Absolute tolerance, instead of the derived one."
        ),
        setting(
            "tolerances",
            "--tolerance",
            read=_parse_tolerances,
            multiple=True,
            metavar="OUTPUT=rtol:R,atol:A",
            help="Tolerances of one output, or one of the two; for integers, atol is in steps. "
            "Repeatable.",
        ),
        setting(
            "mutants",
            "--mutants",
            type=int,
            help="Measure the power of the check: try so many wrong versions of the result, and "
            "count those that it refuses. Default: none, or 20 with --min-power.",
        ),
        setting(
            "min_power",
            "--min-power",
            type=float,
            metavar="SHARE",
            help="Exit with 1 unless the check refuses this share of the mutants, such as 0.9.",
        ),
        setting(
            "refill_weights",
            "--refill-weights",
            is_flag=True,
            help="Give weights made by ConstantOfShape seeded random values, in both models.",
        ),
        setting(
            "custom_ops",
            "--custom-ops",
            read=_distinct,
            type=PATH,
            multiple=True,
            metavar="LIBRARY",
            help="Register custom operators from this shared library with onnxruntime: for the "
            "result, and for the original if it does not run without. Repeatable.",
        ),
        setting(
            "third_opinion",
            "--third-opinion",
            is_flag=True,
            help="Where the models differ, ask onnx's reference evaluator which one it agrees "
            "with. It can be slow.",
        ),
    )


def verify_options(command: Command) -> Command:
    """Add what decides how two models are compared, and on which values."""
    return check_settings()(INPUTS(EXECUTION(command)))


def input_code_option(command: Command) -> Command:
    """Add --allow-code to a command that reads no catalogues."""
    return option(
        INPUTS.title,
        "--allow-code",
        is_flag=True,
        help="Let --inputs name a Python function, which is called.",
    )(command)


def take_verification(
    given: dict[str, Any], *, allow_code: bool, save_results: Path | None = None
) -> pipeline.VerifySettings:
    """Take the options of :func:`verify_options` out of *given*.

    Raises:
        UsageError: One of them cannot be read, or cannot be meant.
    """
    check, inputs = check_settings().take(given), INPUTS.take(given)
    sizes, shapes = parse_sizes(inputs.pop("sizes", ()))
    if "min_power" in check:
        check.setdefault("mutants", _MUTANTS)
    return pipeline.VerifySettings(
        **check,
        sizes=sizes,
        save_results=save_results,
        request=pipeline.input_request(**inputs, shapes=shapes, allow_code=allow_code),
        execution=pipeline.Execution(**EXECUTION.take(given)),
    )


# The options of commands that write a model: where to, and what becomes of one that fails.


RESULT = "The result"
WRITING = SettingsGroup(
    RESULT,
    setting("in_place", "--in-place", is_flag=True, help="Replace the model by the result."),
    setting(
        "keep_failed",
        "--keep-failed",
        is_flag=True,
        help="Keep a result that fails, as OUTPUT.failed.onnx.",
    ),
    setting(
        "verify",
        "--no-verify",
        read=lambda given: not given,
        is_flag=True,
        help="Do not check the result.",
    ),
)


def write_options(what: str) -> Callable[[Command], Command]:
    """Add --output and what :data:`WRITING` holds; *what* is made of the model."""
    output = option(
        RESULT,
        *("-o", "--output"),
        type=PATH,
        help=f"Where to write the result. Default: MODEL.{what}.onnx beside the model.",
    )
    return lambda command: output(WRITING(command))


def choose_output(model: Path, output: Path | None, what: str, writing: Mapping[str, bool]) -> Path:
    """Return where the result is to be written, after --output and the fields of *writing*.

    Raises:
        UsageError: Two places are named.
    """
    in_place = writing.get("in_place", False)
    if in_place and output is not None:
        raise UsageError("--in-place and --output contradict each other", hint="pass one of them")
    return model if in_place else output or pipeline.default_output(model, what)
