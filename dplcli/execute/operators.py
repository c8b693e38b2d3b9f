"""The custom operators that run plans: compiled when they are first needed, or for a program.

They are C++ (``native/``), and the same for every model. ``--with dnnl`` runs what is deployed; for
GPUs they hand each call to dpl.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.errors import UsageError
from dplcli.execute.compiled import compiled
from dplcli.execute.onednn.library import candidates
from dplcli.execute.onednn.plans import KINDS
from dplcli.files import resolved, temporary_folder, write_file
from dplcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VARIABLE = "DPL_KERNELS_LIBRARY"
"""Names a library that dpl kernels build made, for where there is no compiler."""

_SOURCE = Path(__file__).parent / "native" / "dpl_dnnl.cc"
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_MOST_SECONDS = 600
_LONGEST = 12
"""So many lines of a compiler's message are shown."""


def build_library(output: Path, dnnl: str | None) -> tuple[str, str]:
    """Compile the custom operators.

    Args:
        output: The shared library to write.
        dnnl: Where oneDNN will be; None for where it is found here.

    Returns:
        The compiler, and where oneDNN is looked for.

    Raises:
        UsageError: There is no compiler, or it fails; nothing is written then.
        OSError: The library cannot be written.
    """
    compiler, names = _compiler(), list(candidates())
    files = (str(resolved(Path(name))) for name in names if Path(name).is_file())
    place = dnnl or next(files, names[-1])  # a file, or the name that the system knows it by
    with temporary_folder() as folder:
        _compile(compiler, place, folder / "library.so")
        write_file(output, (folder / "library.so").read_bytes())
    return shlex.join(compiler), place


@contextmanager
def runtime() -> Iterator[Path]:
    """Have the custom operators at hand: ready-made, or compiled now or before.

    Raises:
        UsageError: There is no compiler, it fails, or what is ready-made is of another version.
    """
    named = os.environ.get(VARIABLE)
    if named:
        made_of = ""
        with suppress(OSError, AttributeError):
            ask = c.CDLL(named).dpl_source
            ask.restype = c.c_char_p
            made_of = str(ask().decode())
        if made_of != digest():
            raise UsageError(
                f"{VARIABLE}={named}: {made_of or 'is no library for plans that can be loaded'}",
                hint="compile it with this version of dpl: dpl kernels build",
            )
        yield Path(named)
        return
    with compiled("dnnl", f"{digest()}.so", lambda path: _compile(_compiler(), "", path)) as path:
        yield path


def digest() -> str:
    """Return what the custom operators are made of: source, flags, and version of dpl."""
    parts = [file.read_bytes() for file in sorted(_SOURCE.parent.glob("*.*"))]
    parts += [" ".join((*_FLAGS, __version__)).encode()]
    return sha256(b"\0".join(parts)).hexdigest()[:32]


def _compile(compiler: Sequence[str], place: str, path: Path) -> None:
    """Compile the custom operators, which look for oneDNN at *place*.

    Raises:
        UsageError: The compiler fails.
    """
    facts = {
        "LAST_KIND": str(max(KINDS.values())),
        "SOURCE": json.dumps(digest()),
        **({"DNNL_LIBRARY": json.dumps(place, ensure_ascii=False)} if place else {}),  # as C has it
    }
    told = [f"-DDPL_{name}={text}" for name, text in facts.items()]
    command = [*compiler, *_FLAGS, *told, str(_SOURCE), "-o", str(path)]
    if sys.platform.startswith("linux"):
        command.append("-ldl")  # in the C library itself from glibc 2.34 on
    try:
        done = subprocess.run(  # noqa: S603  # the user's compiler
            command, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS
        )
    except OSError as error:
        raise UsageError(f"{compiler[0]}: does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{compiler[0]}: does not end within {_MOST_SECONDS} s") from error
    if done.returncode or not path.is_file() or not path.stat().st_size:
        said = (done.stderr or done.stdout).strip().splitlines()
        how = f"ends with exit code {done.returncode}" if done.returncode else "writes nothing"
        raise UsageError(
            "\n    ".join([f"{shlex.join(compiler)}: {how}", *said[:_LONGEST]]),
            hint="a compiler of C++17 is needed, such as g++ 8 or clang++ 7; CXX names another",
        )


def _compiler() -> Sequence[str]:
    if sys.platform == "win32":
        raise UsageError("the library for plans is for Linux, not for Windows")
    named = os.environ.get("CXX", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"CXX={named}: is no command: {error}") from error
    if words and shutil.which(words[0]) is None:
        raise UsageError(f"CXX={named}: there is no such compiler")
    known = words or [*filter(shutil.which, ("c++", "g++", "clang++"))][:1]
    if known:
        return known
    raise UsageError(
        "there is no C++ compiler: c++, g++ and clang++ are not found",
        hint="install the package g++, or name a compiler in CXX; or build the library on another "
        f"machine with dpl kernels build, and name it in {VARIABLE}",
    )
