"""Compare two models by running them on inputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.catalog.catalog import find_function
from dplcli.errors import UsageError
from dplcli.onnx_io import check_external_data, load_model
from dplcli.verify import Settings as VerifySettings
from dplcli.verify.settings import InputFunction, InputRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.verify import VerificationResult

    Progress = Callable[[str], None]


# The inputs of a comparison, as the command line describes them.


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
    """Describe the inputs of a comparison.

    Args:
        inputs: A path, or a Python function as ``module:function`` or ``FILE.py:function``.
        ranges: Smallest and largest value, by input.
        shapes: Whole shapes, by input.
        corners: Whether to run corner values as well.
        save: Where to write the inputs; None for nowhere.
        allow_code: Whether *inputs* may name a function, which is imported and called.

    Raises:
        UsageError: A function is named without leave, or the wishes contradict each other.
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
    """Import the function that *inputs* names; return None if it names no function."""
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


# Comparing two models.


def verify(
    original: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare two models in onnxruntime.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    prepare(settings)
    for path in (original, candidate):
        check_external_data(load_model(path))
    # a model beside itself shows what onnxruntime does to it
    prove = not original.samefile(candidate)
    return compare(original, candidate, settings, progress, prove=prove)


def prepare(settings: VerifySettings | None) -> None:
    """Start the process that will run the models, while dpl does something else."""
    from dplcli.verify.run import warm_up  # noqa: PLC0415  # only where models run

    if settings is None or settings.execution.isolated:
        warm_up()


def compare(
    original: Path,
    candidate: Path,
    settings: VerifySettings | None,
    progress: Progress | None,
    *,
    prove: bool = False,
) -> VerificationResult:
    """Compare two files whose external data was checked before.

    With *prove*, a proof that they are one graph is tried first.
    """
    from dplcli.verify.equivalence import verify_equivalence  # noqa: PLC0415  # onnxruntime

    return verify_equivalence(
        original, candidate, settings or VerifySettings(), prove=prove, progress=progress
    )


def prove(original: Path, candidate: Path) -> tuple[str, str]:
    """Prove by structure that a file is the other one up to functions; no model is run.

    Returns:
        What is proved, or "", and why nothing is, or "".
    """
    from dplcli.verify.proof import UnprovedError, prove_same  # noqa: PLC0415  # onnx's inliner

    try:
        return str(prove_same(original, candidate)), ""
    except UnprovedError as error:
        return "", str(error)


def judge_again(results: Path, *, settings: VerifySettings | None = None) -> VerificationResult:
    """Judge saved results with other tolerances; no model is run.

    Args:
        results: What a verification saved (`Settings.save_results`).
        settings: Its tolerances are used, nothing else of it.

    Raises:
        UsageError: The file holds no saved results, or a tolerance is for an unknown output.
    """
    from dplcli.verify.evidence import load_evidence  # noqa: PLC0415  # onnxruntime

    return load_evidence(results).judge(settings or VerifySettings())


def verify_against(
    results: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare a model with the results of the original that another run saved.

    Raises:
        DplError: A file is no model or holds no results, or no verdict can be reached.
    """
    prepare(settings)
    from dplcli.verify.evidence import load_evidence, verify_against  # noqa: PLC0415  # onnxruntime

    check_external_data(load_model(candidate))
    return verify_against(
        load_evidence(results),
        candidate,
        settings or VerifySettings(),
        progress=progress or (lambda _phrase: None),
    )
