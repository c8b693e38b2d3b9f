"""The one place where what stopped us becomes a message and an exit code."""

from __future__ import annotations

import sys
import traceback

import click

from dplcli.errors import DplError

EXIT_NO = 1
EXIT_COULD_NOT = 2


def run(command: click.Command) -> None:
    """Run *command* and exit: 0 done, 1 the answer is no, 2 it could not be done."""
    try:
        code = command.main(standalone_mode=False, prog_name="dpl")
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = EXIT_COULD_NOT
        context = getattr(error, "ctx", None)
        help_hint = f"try: {context.command_path} --help" if context is not None else None
        _report(error.format_message(), help_hint)
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_COULD_NOT
        _report("interrupted; nothing was written", None)
    except DplError as error:
        code = EXIT_COULD_NOT
        if _wants_traceback():
            traceback.print_exc()
        _report(error.message, error.hint)
    except BrokenPipeError:
        sys.stderr.close()
        code = EXIT_COULD_NOT
    except Exception as error:  # noqa: BLE001  # the last resort of the whole program
        code = EXIT_COULD_NOT
        if _wants_traceback():
            traceback.print_exc()
        _report(
            f"internal error: {type(error).__name__}: {error}",
            "this is a bug in dpl; run again with dpl --debug for a traceback",
        )
    sys.exit(code if isinstance(code, int) else 0)


def _wants_traceback() -> bool:
    return "--debug" in sys.argv[1:2]


def _report(message: str, hint: str | None) -> None:
    click.echo(f"dpl: error: {message}", err=True)
    if hint:
        click.echo(f"dpl: hint: {hint}", err=True)
