"""``python -m dplcli`` and the console script ``dpl``."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # While dpl is imported there is nothing to clean up, and a traceback helps nobody.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from dplcli.cli.main import main

if __name__ == "__main__":
    main()
