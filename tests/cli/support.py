"""What the tests of the commands share: an answer, and what a folder holds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import WAITING

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_models"
# As from a terminal, also if the tests themselves run in the background of a script.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dplcli.cli.main import main
main()
"""


@dataclass(frozen=True)
class Answer:
    """What a call of dpl left behind."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The one error message, without its prefix; the hint is not part of it."""
        starts = [line for line in self.err.splitlines() if line.startswith("dpl: error: ")]
        assert len(starts) == 1, self.err
        err = WAITING.sub("", self.err)  # on a slow machine
        assert err.lstrip("\n").startswith(starts[0]), self.err
        message = err.partition("dpl: hint: ")[0].strip("\n")
        return message.removeprefix("dpl: error: ")

    @property
    def hint(self) -> str:
        """The hint, or nothing."""
        return self.err.partition("dpl: hint: ")[2].rstrip("\n")


Dpl = Callable[..., Answer]
Save = Callable[..., Path]
Catalogue = Callable[[str], Path]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below *folder* with its bytes; hidden ones count, too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
