"""Writing what was fed, so that a comparison can be run again, here or by other tools."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dplcli.errors import UsageError
from dplcli.files import write_file
from dplcli.verify.request import InputRequest
from dplcli.verify.sessions import Array, Feed
from dplcli.verify.stimulus import Stimulus
from dplcli.verify.values import is_exotic

_TIME = (1980, 1, 1, 0, 0, 0)


def check_saving(request: InputRequest, original: Path, candidate: Path) -> None:
    """Refuse to write the inputs where a model or the given inputs lie.

    Raises:
        UsageError: The file to write is one that is read.
    """
    if request.save is None:
        return
    for path in (original, candidate, request.given):
        if path is not None and path.resolve() == request.save.resolve():
            raise UsageError(f"--save-inputs {request.save}: would replace what is read")


def save_inputs(path: Path, stimulus: Stimulus) -> None:
    """Write the inputs of every case as .npz, in one step and the same bytes each time.

    A single case is written under the inputs' own names, several as ``NAME@CASE``. Elements of a
    sequence are ``NAME[0]``, ``NAME[1]``, …; an empty sequence or an absent optional is an empty
    array ``NAME[]``. numpy has no name for bfloat16 and the like: such arrays are raw bytes of
    that width in the file, and `verify.given` reads them back as what the model declares.

    Raises:
        UsageError: The file cannot be written.
    """
    numbers = {f"seed {case}": str(case) for case in stimulus.cases}
    cases = {
        numbers.get(label, _plain(label)): stimulus.feeds[case]
        for case, label in stimulus.cases.items()
    }

    def write(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in _members(cases):
                _add(archive, name, array)

    try:
        write_file(path, write)
    except OSError as error:
        raise UsageError(f"--save-inputs {path}: cannot be written: {error.strerror}") from error


def _plain(label: str) -> str:
    """Return a name for a case that can be read back: without the sign that sets it off."""
    return label.rpartition("@")[2]


def _members(cases: Mapping[str, Mapping[str, Feed]]) -> Iterator[tuple[str, Array]]:
    for label, feeds in cases.items():
        suffix = f"@{label}" if len(cases) > 1 else ""
        for name, feed in feeds.items():
            if feed is None or (isinstance(feed, list) and not feed):
                yield f"{name}[]{suffix}", np.empty(0, np.uint8)
            elif isinstance(feed, list):
                for index, item in enumerate(feed):
                    yield f"{name}[{index}]{suffix}", item
            else:
                yield f"{name}{suffix}", feed


def _add(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    plain = array.astype(str) if array.dtype.kind == "O" else array
    if is_exotic(plain):
        plain = plain.view(np.dtype(f"V{plain.dtype.itemsize}"))
    member = zipfile.ZipInfo(f"{name}.npy", _TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, plain, allow_pickle=False)
