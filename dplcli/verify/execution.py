"""How a model is run: where, with which options of onnxruntime, and within which limits."""

import sys
from dataclasses import dataclass, replace

from dplcli.errors import UsageError, did_you_mean

_SWITCHES = frozenset(
    {"enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_deterministic_compute"}
)
_NUMBERS = frozenset({"intra_op_num_threads", "inter_op_num_threads"})
_LONGEST_NUMBER = 4
_MODES = ("sequential", "parallel")
_KNOWN = (*sorted(_SWITCHES | _NUMBERS), "execution_mode")
_TRUTH = {"1": "1", "true": "1", "on": "1", "0": "0", "false": "0", "off": "0"}

CPU = "CPUExecutionProvider"
TIMEOUT = 3600.0

# More than any machine can count to, and less than its clocks and limits can hold.
_MOST_SECONDS, _MOST_MEGABYTES = 10**9, 10**9


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How to run a model in onnxruntime.

    Attributes:
        isolated: Whether it runs in a process of its own, so that a crash of the runtime, or of a
            kernel, stops that process and not ours. Limits need it.
        provider: The execution provider that takes what it can of the graph; the CPU takes the
            rest.
        options: Attributes of onnxruntime's SessionOptions, or (with a dot in the name) entries of
            its session configuration, as text.
        timeout: Seconds for each step: to create a session, to run it once. None for no limit.
        memory_limit: Megabytes for the model and its run, beyond what onnxruntime takes by itself.

    Raises:
        UsageError: A limit is no positive number, or cannot be kept here; an option is unknown, or
            has no such value.
    """

    isolated: bool = True
    provider: str = CPU
    options: tuple[tuple[str, str], ...] = ()
    timeout: float | None = TIMEOUT
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, or not be kept, before any work is done."""
        read = tuple((key, _read_option(key, text)) for key, text in self.options)
        object.__setattr__(self, "options", read)
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"the time limit must be more than 0 seconds (got {self.timeout:g})")
        if self.timeout is not None and self.timeout > _MOST_SECONDS:
            raise UsageError(
                f"the time limit must be at most {_MOST_SECONDS:,} seconds (got {self.timeout:g})"
            )
        if not self.isolated and self.timeout not in {None, TIMEOUT}:
            raise UsageError("a time limit needs a process of its own")
        if self.memory_limit is None:
            return
        if self.memory_limit <= 0:
            raise UsageError(f"the memory limit must be more than 0 MB (got {self.memory_limit})")
        if self.memory_limit > _MOST_MEGABYTES:
            most = f"{_MOST_MEGABYTES:,} MB"
            raise UsageError(f"the memory limit must be at most {most} (got {self.memory_limit})")
        if not sys.platform.startswith("linux"):
            raise UsageError(f"a memory limit can be kept on Linux only, not on {sys.platform}")
        if not self.isolated:
            raise UsageError("a memory limit needs a process of its own")

    @property
    def is_plain(self) -> bool:
        """Whether the model runs on the CPU with onnxruntime's own options."""
        return self.provider == CPU and not self.options

    def plain(self) -> "Execution":
        """Return the same limits, on the CPU and without options: how a reference runs."""
        return replace(self, provider=CPU, options=())


PLAIN = Execution()


def _read_option(key: str, text: str) -> str:
    """Return the value of a session option as onnxruntime reads it."""
    where = f"--session-option {key}={text}"
    if "." in key:
        return text
    if key in _SWITCHES:
        if text.lower() not in _TRUTH:
            raise UsageError(f"{where}: is on or off", hint=f"write {key}=1 or {key}=0")
        return _TRUTH[text.lower()]
    if key in _NUMBERS:
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER:
            raise UsageError(f"{where}: is not a number of threads", hint=f"write {key}=1")
        return text
    if key == "execution_mode":
        if text not in _MODES:
            raise UsageError(f"{where}: there is no such mode", hint=f"use {' or '.join(_MODES)}")
        return text
    guess = did_you_mean(key, _KNOWN)
    known = f"use one of {', '.join(_KNOWN)}, or an entry such as session.disable_prepacking=1"
    raise UsageError(f"{where}: there is no such option", hint=guess or known)
