"""A model whose interface is said anew, as a file: rewriting begins with it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dplcli.errors import DplError, UsageError, opt
from dplcli.files import temporary_file, temporary_folder
from dplcli.onnx_io import check_external_data, check_imports, check_model, load_model, restate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.onnx_io import Restated


def _of_model(text: str, file: Path, path: Path) -> str:
    return text.replace(str(file), str(path)).replace(file.name, path.name)


@contextmanager
def restated(
    path: Path, shape: Mapping[str, int | str | Sequence[int]], rename: Mapping[str, str]
) -> Iterator[tuple[Path, Restated | None]]:
    """Write a model with other sizes and names, for as long as it is needed.

    Args:
        path: The model.
        shape: See :func:`dplcli.onnx_io.restate`.
        rename: As there.

    Yields:
        The file, and what is said anew. Where nothing is, the file is the model's own.

    Raises:
        UsageError: There is no such dimension or value, or the model contradicts a size.
        DplError: It is no model.
    """
    if not shape and not rename:
        yield path, None
        return
    model = load_model(path)
    check_imports(model)
    check_external_data(model)
    said = restate(model, shape, rename)
    try:
        with (
            temporary_file(path.parent, ".onnx")  # external data is found from there
            if model.may_have_external_data
            else temporary_folder()
        ) as place:
            file = place / path.name if place.is_dir() else place
            file.write_bytes(said.proto.SerializeToString())
            if (objection := check_model(file)) and not check_model(path):
                what = "shape" if shape else "rename"
                raise UsageError(f"{opt(what)}: the model contradicts it: {objection}")
            try:
                yield file, said
            except DplError as error:  # it names the file that there is no more
                error.wording = _of_model(error.wording, file, path)
                raise
    except OSError as error:
        raise UsageError(f"{path.parent}: cannot be written: {error.strerror}") from error
