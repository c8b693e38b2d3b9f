"""Options that several commands share, and the object through which commands print."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from dplcli import pipeline
from dplcli.cli import completion
from dplcli.cli.main import answer_no
from dplcli.cli.printing import progress, show, write
from dplcli.errors import DplError, UsageError
from dplcli.escaping import inert_markup, json_text
from dplcli.files import append_to_file, encoded, temporary_file
from dplcli.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from dplcli.report.document import Document, Drawn, DrawnPatterns
    from dplcli.report.html import PageGraphs
    from dplcli.report.picture import Picture

    Command: TypeAlias = Callable[..., None]


PATH = click.Path(path_type=Path)
MANY = "Many models"
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
        """List the groups as they begin; then how many models are done, and what has no group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        last = {title: groups.pop(title) for title in (MANY, "Options") if title in groups}
        for title, records in (groups | last).items():
            with formatter.section(title):
                formatter.write_dl(records)


def option(group: str, *flags: str, **told: Any) -> Callable[[Command], Command]:  # noqa: ANN401  # click's
    """Make an option of a named group; the rest is as for ``click.option``."""
    return click.option(*flags, cls=_GroupedOption, group=group, **told)


class Setting:
    """A field of a settings class, as an option.

    Args:
        field: The field.
        flags: How the option is written; by default like the field.
        read: Makes the field's value of what was given.
        told: The rest is as for ``click.option``.
    """

    def __init__(
        self,
        field: str,
        *flags: str,
        read: Callable[[Any], Any] | None = None,
        **told: Any,  # noqa: ANN401  # click's
    ) -> None:
        self.field = field
        self.flags = flags or (f"--{field.replace('_', '-')}",)
        self.read = read
        self.told = told


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
        """Take the options of this group out of *given*; return the fields that the user stated."""
        found: dict[str, Any] = {}
        for item in self.settings:
            value = given.pop(item.field)
            if value is not None and value is not False and value != ():
                found[item.field] = value if item.read is None else item.read(value)
        return found


# Options that several commands share.


RULES = "Rules"
PRINTING = "What is printed"


def expect_option(command: Command) -> Command:
    """Add --expect."""
    return option(
        RULES,
        "--expect",
        "expectations",
        multiple=True,
        metavar="RULE>=N",
        shell_complete=completion.rules,
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
        shell_complete=completion.targets,
        help="Use everything dpl ships for a target, such as dnnl, or for several: of "
        "cutlass,cublas the first one wins where both would take a node. Repeatable.",
    )(command)
    return option(
        RULES,
        "--patterns",
        "-p",
        multiple=True,
        metavar="CATALOGUE",
        shell_complete=completion.catalogues,
        help="A catalogue: a YAML file, a Python file (which is executed), or the name of one that "
        "dpl or an installed package ships; or the text of a pattern. Repeatable.",
    )(command)


def listed(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """Split what is given as a comma-separated list, in order."""
    return tuple(name for text in texts for name in words_of(option.opts[0], text))


def words_of(option: str, text: str) -> tuple[str, ...]:
    """Split the value of an option at its commas.

    Raises:
        UsageError: There is nothing before, between or behind them.
    """
    words = tuple(word.strip() for word in text.split(","))
    if not any(words):
        raise UsageError(f"{option} {text!r}: no name is given")
    if not all(words):
        raise UsageError(f"{option} {text}: a name is missing beside a comma")
    return words


def allow_code_option(command: Command) -> Command:
    """Add --allow-code."""
    return option(
        RULES,
        "--allow-code",
        is_flag=True,
        help="Let YAML catalogues import the Python functions that they name as checks. "
        "A catalogue in Python (FILE.py) is code and always runs.",
    )(command)


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


# Files that show a contract.


contract_files = SettingsGroup(
    "Bindings",
    Setting(
        "header",
        "--c-header",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a header for C and C++.",
    ),
    Setting(
        "stub",
        "--python",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a Python module: one abstract class per function.",
    ),
)


# Options that decide what two models are fed.


_NUMBER = re.compile("[0-9]{1,18}")
_SHAPE = re.compile("[0-9]{1,18}(x[0-9]{1,18})+")


def parse_sizes(texts: tuple[str, ...]) -> dict[str, int | tuple[int, ...]]:
    """Return sizes of dimensions and whole shapes, as --shape gives them.

    Raises:
        UsageError: A text is neither, or two contradict each other.
    """
    sizes: dict[str, int | tuple[int, ...]] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        size: int | tuple[int, ...]
        if separator and name and _NUMBER.fullmatch(value):
            size = int(value)
        elif separator and name and _SHAPE.fullmatch(value):
            size = tuple(map(int, value.split("x")))
        else:
            raise UsageError(
                f"--shape {text!r}: not a size",
                hint="write --shape batch=4, or --shape image=1x3x224x224",
            )
        if sizes.setdefault(name, size) != size:
            raise UsageError(f"--shape {text}: {name!r} has another size already")
    return sizes


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
    Setting(
        "inputs",
        metavar="PATH|FUNCTION",
        help="Feed these values: a .npz file with an array per input, a .npy file, a folder of "
        "onnx test data (input_0.pb, or several test_data_set_0), or a Python function "
        "module:function or FILE.py:function, which takes a seed and returns a dict "
        "(--allow-code). Inputs that it leaves out are made up.",
    ),
    Setting(
        "shape",
        *("--shape", "--size"),
        read=parse_sizes,
        multiple=True,
        metavar="DIM=N",
        help="Size of a symbolic dimension, or of INPUT:AXIS; or a whole shape, "
        "INPUT=1x3x224x224. Repeatable.",
    ),
    Setting(
        "range",
        read=parse_ranges,
        multiple=True,
        metavar="INPUT=LOW:HIGH",
        help="Draw an input from this range, both ends included. Repeatable.",
    ),
    Setting(
        "corners",
        is_flag=True,
        help="Also feed zeros, negative, large and denormal values, where the original is "
        "itself stable there.",
    ),
    Setting(
        "save_inputs",
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
            Setting(
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


# What a command prints, and the reports that it writes for programs, CI services and people.


_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_FORMS = {
    "junit": (
        "Write a report as JUnit XML: a test for each output, level and seed, and each --expect.",
        "JUnit report of dpl",
        b'<testsuites name="dpl',
    ),
    "sarif": (
        "Write what has a place in a catalogue as SARIF 2.1.0, for code hosts.",
        "SARIF report of dpl",
        b'"name": "dpl"',
    ),
    "markdown": (
        "Write a report as Markdown; to the file that $GITHUB_STEP_SUMMARY names, it is added.",
        "Markdown report of dpl",
        b"<!-- dpl report -->",
    ),
    "html": (
        "Write a report as one page of HTML, with plots and tables to search and sort.",
        "HTML report of dpl",
        b'<meta name="generator" content="dpl">',
    ),
}
"""The forms of a report: what the help says, what a file is called, and what one begins with."""

EVERY_FORM = tuple(_FORMS)


@dataclass(frozen=True)
class Printing:
    """What a command prints and writes, beside models.

    Attributes:
        json_path: Where to write JSON; None for nowhere, - for standard output.
        quiet: Whether to print only errors.
        verbose: Whether to say more.
        reports: Where to write which form of a report; - for standard output.
        keeps: Takes the report instead, where the model is one of many; None for nobody.
        started: When the command began, for reports that say how long it took.
    """

    json_path: str | None
    quiet: bool
    verbose: bool
    reports: Mapping[str, str] = field(default_factory=dict)
    keeps: Callable[[Document], None] | None = None
    started: float = field(default_factory=lambda: perf_counter())  # noqa: PLW0108  # for tests

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are written."""
        places = (self.json_path, *self.reports.values())
        return tuple(place for place in places if place not in {None, "-"})

    def check(self, *others: Path | str | None, printed: Iterable[str] = ()) -> None:
        """Refuse, before any work is done, what cannot be or must not be written.

        Args:
            others: The other files of the command; names of shipped catalogues do no harm.
            printed: Other options that want standard output.

        Raises:
            UsageError: Two reports want one place, a file is no report of dpl, or cannot be
                written.
        """
        to_stdout = ["--json -"] if self.json_path == "-" else []
        to_stdout += printed
        to_stdout += [f"--{form} -" for form, path in self.reports.items() if path == "-"]
        if len(to_stdout) > 1:
            raise UsageError(
                f"{to_stdout[0]} and {to_stdout[1]} both want standard output",
                hint="name a file for one",
            )
        check_json_path(self.json_path, *others)
        taken = [*others, None if self.json_path == "-" else self.json_path]
        for form, path in self.reports.items():
            if path != "-":
                _help, kind, mark = _FORMS[form]
                mark = b"" if form == "markdown" and _is_step_summary(path) else mark
                check_report_path(path, *taken, option=f"--{form}", mark=mark, kind=kind)
                taken.append(path)

    @property
    def wants_hints(self) -> bool:
        """Whether anybody reads what else could be done."""
        return not self.quiet or self.json_path is not None

    def progress(self) -> AbstractContextManager[Callable[[str], None]]:
        """Show what is going on, as far as it is wanted."""
        return progress(quiet=self.quiet, verbose=self.verbose)

    def write_reports(self, document: Document) -> None:
        """Write every form of report that is wanted.

        Raises:
            UsageError: One cannot be written.
        """
        for form, path in self.reports.items():
            text = _rendered(form, document, perf_counter() - self.started)
            if path == "-":
                write(text if form == "sarif" else inert_markup(text))
            elif form == "markdown" and _is_step_summary(path):
                _append(Path(path), text)
            else:
                pipeline.write_text(Path(path), text, f"--{form}")

    def conclude(self, found: Document | Outcome) -> None:
        """Write every form of a report that is wanted, print one, and end with 1 for a no."""
        if isinstance(found, Outcome):
            document = cast("Document", found.document(verbose=self.verbose))
        else:
            document = found
        if self.keeps is not None:
            self.keeps(document)
            return
        self.publish(document)
        if not document.ok:
            answer_no(document.complaints)

    def publish(self, document: Document) -> None:
        """Write every form of *document* that is wanted, and print one."""
        self.write_reports(document)
        if self.json_path is not None:
            write_json(document.json(), self.json_path)
        if not self.quiet and "-" not in {self.json_path, *self.reports.values()}:
            show(document.text)


def printing_options(
    verbose: str, *forms: str, before: Iterable[Callable[[Command], Command]] = ()
) -> Callable[[Command], Command]:
    """Add --verbose, --quiet, --json and reports; the command is given a :class:`Printing`.

    Args:
        verbose: What --verbose does.
        forms: The forms of report.
        before: Options of the same group that stand before the others in the help.
    """

    def add(command: Command) -> Command:
        @wraps(command)
        def call(
            *,
            json_path: str | None,
            quiet: bool,
            verbose: bool,
            **given: Any,  # noqa: ANN401  # what click gives
        ) -> None:
            paths = {form: given.pop(f"report_{form}") for form in forms}
            reports = {form: path for form, path in paths.items() if path is not None}
            keeps = click.get_current_context().obj
            command(printing=Printing(json_path, quiet, verbose, reports, keeps), **given)

        options: list[Callable[[Command], Command]] = [
            *(
                option(
                    "Reports",
                    f"--{form}",
                    f"report_{form}",
                    metavar="FILE",
                    help=_FORMS[form][0],
                )
                for form in forms
            ),
            *before,
            option(PRINTING, "--verbose", "-v", is_flag=True, help=verbose),
            option(PRINTING, "--quiet", "-q", is_flag=True, help="Print only errors."),
            option(
                PRINTING,
                "--json",
                "json_path",
                metavar="FILE",
                help="Write the result as JSON; - is standard output, instead of the table.",
            ),
        ]
        wrapped: Command = call
        for add_one in reversed(options):
            wrapped = add_one(wrapped)
        return wrapped

    return add


def write_json(record: object, place: str) -> None:
    """Write what --json asks for; - is standard output.

    Raises:
        UsageError: It cannot be written.
    """
    if place == "-":
        write(json_text(record))
    else:
        pipeline.write_text(Path(place), json_text(record), "--json")


def _rendered(form: str, document: Document, seconds: float) -> str:
    """Return the report in one form; each module is imported only where it is wanted."""
    if form == "junit":
        from dplcli.report.ci import junit_xml  # noqa: PLC0415

        return junit_xml(document, seconds)
    if form == "sarif":
        from dplcli.report.ci import sarif_record  # noqa: PLC0415

        return json_text(sarif_record(document))
    if form == "markdown":
        from dplcli.report.ci import markdown_text  # noqa: PLC0415

        return markdown_text(document)
    from dplcli.report.html import html_page  # noqa: PLC0415

    return html_page(document, _graphs(document.draws(), document.verification))


_MOST_DRAWN = 20_000
"""The nodes of a model that a report still draws: a page grows by half a kilobyte for each."""


def _graphs(drawn: Drawn, verified: pipeline.VerificationResult | None) -> PageGraphs:
    """Draw models for a report, or say why not; costs are counted with the sizes of the check."""
    from dplcli.report import view  # noqa: PLC0415  # only for a page
    from dplcli.report.document import DrawnPatterns  # noqa: PLC0415  # only for a page
    from dplcli.report.html import PageGraphs  # noqa: PLC0415  # only for a page
    from dplcli.report.picture import opened, picture_of  # noqa: PLC0415  # only for a page

    notes = [drawn.note] if drawn.note else []
    shapes = {} if verified is None else {each.name: each.shape for each in verified.inputs}
    records = []
    shown: list[Picture | DrawnPatterns] = []
    for model in drawn.models:
        if isinstance(model, DrawnPatterns):
            records.append(view.pattern_record(model))
            shown.append(model)
            continue
        name = model.path.name
        try:
            outcome = pipeline.view(model.path, shapes)
            picture = picture_of(outcome.model, outcome.label)
        except DplError as error:
            notes.append(f"{name}: {error.message}")
            continue
        except OSError as error:
            notes.append(f"{name}: cannot be read: {error.strerror or error}")
            continue
        if picture.node_count > _MOST_DRAWN:
            count = f"{picture.node_count:,} nodes"
            notes.append(f"{name}: {count} are too many for a report; dpl view draws them")
            continue
        figures = view.NodeFigures(model.marks, model.errors, outcome.costs, outcome.open_sizes)
        records.append(view.view_data(picture, opened(picture), outcome.notes, figures).as_page())
        shown.append(picture)
    if len(records) < len(drawn.models):
        drawn = drawn._replace(steps=(), pairs=())
    return PageGraphs(records, view.beside_record(shown, drawn), notes)


def _is_step_summary(path: str) -> bool:
    """Tell whether *path* is the file that GitHub shows beside a run, which steps share."""
    summary = os.environ.get(_STEP_SUMMARY)
    return bool(summary) and Path(path).resolve() == Path(summary or "").resolve()


def _append(path: Path, text: str) -> None:
    try:
        append_to_file(path, encoded(f"\n{text}"))
    except OSError as error:
        raise UsageError(f"--markdown {path}: cannot be written: {error.strerror}") from error


# Options that decide how two models are compared, and where and within which limits they run.


def _parse_option(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(
            f"--session-option {text!r}: not an option",
            hint="write --session-option intra_op_num_threads=1",
        )
    return key, value


def _parse_tolerances(texts: tuple[str, ...]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        name, limits = _parse_tolerance(text)
        if name in found:
            raise UsageError(f"--tolerance {text!r}: {name} has one already", hint="join them")
        found[name] = limits
    return found


def _parse_tolerance(text: str) -> tuple[str, dict[str, float]]:
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
    return name, given


EXECUTION = SettingsGroup(
    "How the candidate is run",
    Setting(
        "provider",
        metavar="NAME",
        help="Execution provider that runs the candidate, such as CUDAExecutionProvider. "
        "The reference stays on the CPU.",
    ),
    Setting(
        "session_option",
        read=lambda texts: dict(map(_parse_option, texts)),
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of onnxruntime's session for the candidate, such as "
        "intra_op_num_threads=1 or session.disable_prepacking=1. Repeatable.",
    ),
    Setting(
        "timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit to create a session, and for each run. Default: an hour.",
    ),
    Setting(
        "memory_limit",
        type=int,
        metavar="MB",
        help="Memory that a model and its run may take, beyond onnxruntime itself.",
    ),
)


KERNELS = SettingsGroup(
    "Kernels",
    Setting(
        "kernels",
        "--with",
        type=click.Choice(("cublas", "cutlass", "dnnl")),
        help="Run partitions on the library of this target, inside onnxruntime, and say of each "
        "where it ran: dnnl on oneDNN; cublas (cuBLASLt) and cutlass on a GPU of NVIDIA's. Exit "
        "with 1 if none did.",
    ),
    Setting(
        "require",
        metavar="all|any|N",
        help="With --with: exit with 1 unless so many partitions ran on the library. Default: any.",
    ),
    Setting(
        "allow_inexact",
        is_flag=True,
        help="With --with: also run partitions that the library computes inexactly on this CPU, "
        "such as 8-bit products without VNNI.",
    ),
)


@cache
def check_settings() -> SettingsGroup:
    """Return the options of the check; onnxruntime's levels are known when they are needed."""
    return SettingsGroup(
        "The check",
        Setting(
            "seed",
            type=int,
            multiple=True,
            help="Seed of one set of inputs; repeatable. Default: 0 and 1.",
        ),
        Setting(
            "level",
            type=click.Choice(pipeline.LEVELS),
            multiple=True,
            help="onnxruntime's optimisation level; repeatable. Default: disable and all; "
            "disable alone for a result that is proved to be the original.",
        ),
        Setting(
            "rtol", "--rtol", type=float, help="Relative tolerance, instead of the derived one."
        ),
        Setting(
            "atol", "--atol", type=float, help="Absolute tolerance, instead of the derived one."
        ),
        Setting(
            "tolerance",
            read=_parse_tolerances,
            multiple=True,
            metavar="OUTPUT=rtol:R,atol:A",
            help="Tolerances of one output, or one of the two; for integers, atol is in steps. "
            "Repeatable.",
        ),
        Setting(
            "mutants",
            type=int,
            help="Measure the power of the check: try so many wrong versions of the result, and "
            "count those that it refuses. Default: none, or 20 with --min-power.",
        ),
        Setting(
            "min_power",
            type=float,
            metavar="SHARE",
            help="Exit with 1 unless the check refuses this share of the mutants, such as 0.9.",
        ),
        Setting(
            "refill_weights",
            is_flag=True,
            help="Give weights made by ConstantOfShape seeded random values, in both models.",
        ),
        Setting(
            "custom_ops",
            type=PATH,
            multiple=True,
            metavar="LIBRARY",
            help="Register custom operators from this shared library with onnxruntime: for the "
            "result, and for the original if it does not run without. Repeatable.",
        ),
        Setting(
            "third_opinion",
            is_flag=True,
            help="Where the models differ, ask onnx's reference evaluator which one it agrees "
            "with. It is slow.",
        ),
        Setting(
            "strict",
            is_flag=True,
            help="Count it as a difference, too, where the original gives NaN, an infinity or -0 "
            "for drawn values, and the result something else.",
        ),
    )


def verify_options(command: Command) -> Command:
    """Add the options that say how two models are compared, and on which values."""
    return check_settings()(INPUTS(EXECUTION(command)))


def input_code_option(command: Command) -> Command:
    """Add --allow-code to a command that reads no catalogues."""
    return option(
        INPUTS.title,
        "--allow-code",
        is_flag=True,
        help="Let --inputs name a Python function, which is called.",
    )(command)


def take_verification(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of :func:`verify_options` out of *given*, as keywords of the API.

    Raises:
        UsageError: One of them cannot be read.
    """
    return (
        check_settings().take(given)
        | INPUTS.take(given)
        | EXECUTION.take(given)
        | (KERNELS.take(given) if "kernels" in given else {})
    )


# The options of commands that write a model: where to, and what becomes of one that fails.


RESULT = "The result"
WRITING = SettingsGroup(
    RESULT,
    Setting("in_place", "--in-place", is_flag=True, help="Replace the model by the result."),
    Setting(
        "keep_failed",
        is_flag=True,
        help="Keep a result that fails, as OUTPUT.failed.onnx.",
    ),
    Setting(
        "strip",
        read=lambda given: words_of("--strip", given),
        metavar="KIND,…",
        help="Leave out what computes nothing: metadata (doc strings, and the metadata of model, "
        "graphs, nodes and values; that of functions and of the calls that dpl wrote stays, for "
        "kernels and for dpl inline), value_info (the types of inner values).",
    ),
    Setting(
        "external_data",
        type=click.Choice(("copy", "link", "repack")),
        help="How external data gets into another folder than MODEL's: as copies (copy, the "
        "default), or as second names of the same files (link: a clone that shares its blocks "
        "where the disk can do that, else a hard link, which onnxruntime reads, and onnx does not, "
        "neither there nor under the first name). repack, in any folder: only what the result "
        "uses, in one file, OUTPUT.data.",
    ),
    Setting(
        "verify",
        "--no-verify",
        read=lambda given: not given,
        is_flag=True,
        help="Do not check the result.",
    ),
)


def write_options(what: str) -> Callable[[Command], Command]:
    """Add --output and the options of :data:`WRITING`; *what* names the result, as in its file."""
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
