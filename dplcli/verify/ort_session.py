"""Running a model in onnxruntime, in this process, and saying in one line why it did not run."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from dplcli.errors import UsageError
from dplcli.files import is_text, text_path
from dplcli.verify.execution import CPU, Execution
from dplcli.verify.ort_messages import one_line, tells_of_shortage
from dplcli.verify.ort_values import fed, gives_numpy_types, leaves_of, unwrap, wrap
from dplcli.verify.values import Feed, Outputs, RunError, ShortageError, Source

_SILENT = 4
_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES = {
    "sequential": ort.ExecutionMode.ORT_SEQUENTIAL,
    "parallel": ort.ExecutionMode.ORT_PARALLEL,
}
_ERRORS: tuple[type[Exception], ...] = (
    *(e for e in vars(_state).values() if isinstance(e, type) and issubclass(e, Exception)),
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    MemoryError,
    OSError,
)


class Session:
    """A session for one model at one optimisation level, silent on stderr."""

    def __init__(self, source: Source, level: str) -> None:
        """Create the session; this can take minutes for a large graph.

        Raises:
            RunError: onnxruntime does not accept the model.
            UsageError: onnxruntime does not have the provider, or does not know an option.
        """
        ort.set_default_logger_severity(_SILENT)
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        options.graph_optimization_level = _LEVELS[level]
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        _apply_options(options, source.execution)
        provider = source.execution.provider
        _check_provider(provider)
        try:
            with ExitStack() as stack:
                model = _model_of(source, options, stack)
                _register(options, source.libraries)
                providers = list(dict.fromkeys((provider, CPU)))
                # Without its fallback, which runs on the CPU what another provider fails to do.
                self._session = ort.InferenceSession(
                    model, options, providers=providers, enable_fallback=0
                )
        except _ERRORS as error:
            raise _run_error(error) from error
        if provider not in self._session.get_providers():
            raise UsageError(
                f"--provider {provider}: onnxruntime has it, but cannot start it here",
                hint="the device, its driver, or a library that the provider needs is missing",
            )
        self._weights = source.weights  # which onnxruntime may read where they are
        self._plain = gives_numpy_types(self._session)

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime does not accept the inputs, or fails on the way.
        """
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        names = [output.name for output in self._session.get_outputs()]
        try:
            if self._plain:
                given = {name: fed(feed) for name, feed in feeds.items()}
                values = self._session.run(names, given, options)
                return {n: leaves_of(v) for n, v in zip(names, values, strict=True)}
            wrapped = {name: wrap(feed) for name, feed in feeds.items()}
            results = self._session.run_with_ort_values(names, wrapped, options)
            return {n: (unwrap(v),) for n, v in zip(names, results, strict=True)}
        except _ERRORS as error:
            raise _run_error(error) from error


def check_setup(libraries: Sequence[Path], provider: str) -> None:
    """Look for a provider, and try to load custom operators.

    Raises:
        UsageError: onnxruntime does not have the provider; a file is no library, or one without
            ``RegisterCustomOps``.
    """
    _check_provider(provider)
    ort.set_default_logger_severity(_SILENT)
    for library in libraries:
        try:
            _register(ort.SessionOptions(), (library,))
        except _ERRORS as error:
            raise UsageError(
                f"--custom-ops {library}: onnxruntime does not load it: {one_line(str(error))}",
                hint="it must be a shared library that exports RegisterCustomOps",
            ) from error


def _run_error(error: Exception) -> RunError:
    message = one_line(str(error)) or type(error).__name__
    if isinstance(error, MemoryError) or tells_of_shortage(message):
        return ShortageError(f"out of memory: {message}")
    return RunError(message)


def _check_provider(provider: str) -> None:
    available = ort.get_available_providers()
    if provider not in available:
        raise UsageError(
            f"--provider {provider}: this onnxruntime ({ort.__version__}) does not have it",
            hint=f"it has {', '.join(available)}",
        )


def _apply_options(options: ort.SessionOptions, execution: Execution) -> None:
    for key, text in execution.options:
        if "." in key:
            options.add_session_config_entry(key, text)
        elif key == "execution_mode":
            options.execution_mode = _MODES[text]
        else:
            setattr(options, key, int(text))


def _register(options: ort.SessionOptions, libraries: Sequence[Path]) -> None:
    for library in libraries:
        with text_path(library.resolve()) as name:
            options.register_custom_ops_library(name)


def _model_of(source: Source, options: ort.SessionOptions, stack: ExitStack) -> str | bytes:
    """Return the file's name, or its content with *options* that say where its data lies."""
    content = source.content
    if content is None and is_text(source.path):
        return stack.enter_context(text_path(source.path))
    folder = stack.enter_context(text_path(source.path.resolve().parent))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    if source.weights:
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in source.weights.values()]
        options.add_external_initializers(list(source.weights), values)
    return source.path.read_bytes() if content is None else content
