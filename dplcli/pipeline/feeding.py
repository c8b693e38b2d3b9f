"""What somebody wants the inputs of a comparison to be, from the words of a command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.dpl.code import find_function
from dplcli.errors import UsageError
from dplcli.verify.request import InputFunction, InputRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

_FUNCTION = re.compile(r"(?P<module>.*[^:/\\]):(?P<function>[A-Za-z_]\w*)", re.DOTALL)


def input_request(  # noqa: PLR0913  # one parameter per wish
    inputs: str | None = None,
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    corners: bool = False,
    save: Path | None = None,
    allow_code: bool = False,
) -> InputRequest:
    """Gather what the inputs shall be.

    Args:
        inputs: A path, or a Python function as ``module:function`` or ``FILE.py:function``.
        ranges: Smallest and largest value, by input.
        shapes: Whole shapes, by input.
        corners: Whether to run corner values, too.
        save: Where to write what was fed.
        allow_code: Whether *inputs* may name a function, which is imported and called.

    Raises:
        UsageError: A function is named without leave, or something is contradictory.
        CatalogError: The function cannot be imported.
    """
    function = None
    if inputs is not None and not Path(inputs).exists():
        function = _function(inputs, allow_code=allow_code)
    return InputRequest(
        given=None if inputs is None or function is not None else Path(inputs),
        function=function,
        label=inputs or "",
        ranges=ranges or {},
        shapes=shapes or {},
        corners=corners,
        save=save,
    )


def _function(inputs: str, *, allow_code: bool) -> InputFunction | None:
    """Import the function that *inputs* names; None if it is no such name."""
    found = _FUNCTION.fullmatch(inputs)
    if found is None:
        return None
    if not allow_code:
        raise UsageError(
            f"--inputs {inputs}: is code, which is executed",
            hint="pass --allow-code if you trust it",
        )
    module = Path(found["module"])
    is_file = module.suffix == ".py"
    if is_file and not module.is_file():
        raise UsageError(f"--inputs {inputs}: there is no file {str(module)!r}")
    folder = module.parent if is_file else Path.cwd()
    name = module.stem if is_file else found["module"]
    return find_function(f"{name}:{found['function']}", folder, "--inputs")
