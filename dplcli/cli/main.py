"""The group of commands, each imported when it is called, and the way from errors to exit codes."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from dplcli.cli.printing import complain, guarded, say, write
from dplcli.errors import MOST_MISTAKES, CatalogError, DplError, shortened
from dplcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType


# The one place where what stopped us becomes a message and an exit code.


EXIT_NO = 1
EXIT_COULD_NOT = 2
EXIT_INTERRUPTED = 130
"""What shells and make take for Ctrl-C, and stop at: 128 and the number of the signal."""

_STDERR = 2


_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM")
_CAME: list[int] = []
"""The signals that came, the first one first."""

_SOON = 0.01
_MOST_WAITS = 300
_WAITS = count()
"""How often a signal has waited for an import to end: for three seconds at most, in all."""


class _StoppedError(BaseException):
    """Raised when somebody asks the process to end, so that half-written files are removed."""


def answer_no(reasons: Iterable[str]) -> NoReturn:
    """Say why the answer is no, a sentence a line, and end with its exit code."""
    for reason in reasons:
        say(f"dpl: {reason}", err=True)
    raise click.exceptions.Exit(EXIT_NO)


def run(command: click.Command) -> NoReturn:
    """Run *command* and exit: 0 done, 1 the answer is no, 2 it could not be done, 130 Ctrl-C."""
    _open_streams()
    _CAME.clear()
    with guarded():
        try:
            _handle_signals(_stop)
            sys.unraisablehook = partial(_raise_again, sys.unraisablehook)
            code = _flushed(_guarded(command))
            _handle_signals(_go_on)  # what is left to do is soon done
        except _StoppedError:  # between two statements of ours, or nobody reads what we print
            _handle_signals(_go_on)
            _discard(sys.stdout)
            code = _interrupted()
    sys.exit(code)


def _flushed(code: int) -> int:
    """Print what is still buffered; return the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or _cannot_print(error)
        _discard(sys.stdout)
    return code


def _open_streams() -> None:
    """Open the standard streams that a caller closed: no file or socket may get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)  # noqa: FBT003  # it has no name
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        nowhere = partial(Path(os.devnull).open, "w", encoding="utf-8")  # which stays open
        stream = getattr(sys, name) or nowhere()
        setattr(sys, name, stream)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Set what is done when somebody asks the process to end."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets
            signal.signal(number, handler)


def _interrupted() -> int:
    _report("interrupted; no file is left half-written", None)
    return code_of_interrupt()


def code_of_interrupt(error: BaseException | None = None) -> int:
    """Return the exit code of a run that was asked to end: by Ctrl-C, or otherwise.

    Args:
        error: What it was asked by, if that was no signal.
    """
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        _CAME.append(signal.SIGINT)
    return EXIT_INTERRUPTED if _CAME[:1] == [signal.SIGINT] else EXIT_COULD_NOT


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop what is being done; an import is done first, as some in C++ abort if they fail."""
    if number != getattr(signal, "SIGALRM", None):  # which says again what came before
        _CAME.append(number)
    can_wait = hasattr(signal, "setitimer")
    if can_wait and _imports(frame) and next(_WAITS) < _MOST_WAITS:
        signal.setitimer(signal.ITIMER_REAL, _SOON)
        return
    raise _StoppedError(number)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _raise_again(
    others: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs
) -> None:
    """Stop soon: the signal came inside a callback, and Python drops what is raised there."""
    if isinstance(unraisable.exc_value, _StoppedError) and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, _SOON)
    else:
        others(unraisable)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Ignore another signal while the process ends; programs that it starts do not do so."""
    del number, frame


def _guarded(command: click.Command) -> int:  # noqa: PLR0911  # one per kind of end
    try:
        return _invoke(command)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        write(f"{error.format_message()}\n")
        return EXIT_COULD_NOT
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"try: {context.command_path} --help" if context is not None else None
        return _report(error.format_message(), hint)
    except (click.Abort, KeyboardInterrupt, _StoppedError) as error:
        code_of_interrupt(error)
        return _interrupted()
    except DplError as error:
        return _refused(error)
    except BrokenPipeError as error:
        _discard(sys.stdout)
        return _cannot_print(error)
    except Exception as error:  # noqa: BLE001  # the last resort of the whole program
        return _report(*said_of(error))


def _invoke(command: click.Command) -> int:
    """Do what ``command.main`` does, but let every exception through to the caller."""
    if "_DPL_COMPLETE" in os.environ:
        command.main(prog_name="dpl")
    with command.make_context("dpl", sys.argv[1:]) as context:
        command.invoke(context)
    return 0


def _refused(error: DplError) -> int:
    """Say what is wrong; several mistakes in catalogues one by one, and then how many they are."""
    mistakes = error.mistakes if isinstance(error, CatalogError) else ()
    for mistake in mistakes[:MOST_MISTAKES] or (error,):
        _report(mistake.message, mistake.hint)
    return _report(f"{len(mistakes)} mistakes", None) if mistakes else EXIT_COULD_NOT


def said_of(error: Exception) -> tuple[str, str | None]:
    """Return what is said of an error, and what to do about it."""
    if isinstance(error, DplError):
        return error.message, error.hint
    if isinstance(error, click.ClickException):
        return error.format_message(), None
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return shortened(f"{where}{error.strerror or error}"), None
    if isinstance(error, MemoryError):
        return "out of memory", None
    return (
        shortened(f"internal error: {type(error).__name__}: {error}"),
        "this is a bug in dpl; run again with dpl --debug for a traceback",
    )


def _cannot_print(error: OSError) -> int:
    """Say that standard output takes no more; a reader who left early needs no word."""
    if not isinstance(error, BrokenPipeError):
        _report(f"standard output: {error.strerror or error}", None)
    return EXIT_COULD_NOT


def _discard(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(message: str, hint: str | None) -> int:
    """Say what is wrong, and what to do about it."""
    if "--debug" in sys.argv[1:2] and sys.exc_info()[0] is not None:
        traceback.print_exc()
    for text in (f"error: {message}", *([f"hint: {hint}"] if hint else [])):
        complain(text)
    return EXIT_COULD_NOT


# The group of commands; each is imported only when it is called.


_GROUPS = {
    "Find": {
        "match": "Show where patterns match, and why they do not elsewhere.",
        "explain": "Say why patterns match where they do, and why not elsewhere.",
    },
    "Change": {
        "rewrite": "Replace subgraphs by the rewrites of catalogues, and verify the result.",
        "partition": "Outline matched subgraphs as functions for a target, and verify the result.",
        "repeat": "Outline what a model repeats, such as its layers, and verify the result.",
        "inline": "Put functions back in the place of their calls, and verify the result.",
        "extract": "Cut a part out of a model: what computes some values from others.",
        "apply": "Do what a plan lists, which dpl rewrite wrote and you may have edited.",
    },
    "Check": {
        "verify": "Compare two models numerically in onnxruntime.",
        "accuracy": "Measure how near a model comes to another, as a quantised one to its source.",
        "diff": "Show in what the structures of two models differ.",
        "bisect": "Find the rule application, or the node, that makes a model compute otherwise.",
        "run": "Run a model once, its partitions on the library of their target.",
        "bench": "Time two models by turns, one with its partitions on the target's library.",
    },
    "Look": {
        "inspect": "Show what a model is made of.",
        "view": "Draw a model: a page to look around in, or a drawing for a document.",
        "doctor": "Look at what dpl runs on: versions, execution providers, extras, catalogues.",
    },
    "Many models": {
        "init": "Write a first pipeline file, dpl.yaml, by looking at the models.",
        "build": "Do what a pipeline file says with all its models; --check is for CI.",
    },
    "Catalogues and kernels": {
        "patterns": "List, show, check and test catalogues of patterns.",
        "learn": "Write a catalogue with a rule for a subgraph that you point at.",
        "schema": "Print the JSON Schema of a document that dpl writes or reads.",
        "kernels": "Take partitions that run on oneDNN into programs without dpl.",
    },
}
"""The commands by what they are for and their one-line help, so that ``dpl --help`` loads none."""

COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}


_OWN = frozenset(
    {"bisect", "build", "doctor", "init", "inspect", "kernels", "learn", "patterns"}
    | {"schema", "view"}
)
"""The commands that have a module of their own; the others are jobs and nothing else."""


def command_named(name: str) -> click.Command:
    """Import a command."""
    module = import_module(f"dplcli.cli.{name if name in _OWN else 'jobs'}")
    command: click.Command = module.command if name in _OWN else module.job_command(name)
    return command


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Name the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """Import a command."""
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        """List the commands by what they are for, without importing them."""
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*group.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from dplcli.errors import did_you_mean  # noqa: PLC0415  # only for a typo

            hint = did_you_mean(name, COMMANDS)
            ctx.fail(f"no such command {name!r}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="dpl")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def dpl(*, debug: bool) -> None:
    """Find, rewrite, outline and verify subgraphs of ONNX models.

    Exit codes: 0 done, and equivalent; 1 the answer is no (not equivalent, expectation unmet);
    2 it could not be done (usage, unreadable model, bad catalogue); 130 Ctrl-C.
    """
    del debug  # the funnel reads it


def main() -> None:
    """Run the command line in a process of its own, and exit with its code."""
    # Threads that wait for matrices to multiply cost more than numpy's whole start; none come.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # one command, then the process ends: walking a large graph only takes time
    try:
        run(dpl)
    finally:
        gc.freeze()  # nor is it walked at the end
