"""The end of a program. What an environment left running does not keep it from ending."""

import os
import sys
import threading
import time
from typing import NoReturn

from t3d.base.output import complain

PATIENCE = 10.0  # seconds that threads, child processes and exit hooks have to end


def leave(code: int) -> NoReturn:
    """Exit with this code; if that hangs, at once after some seconds, with a line that says why."""
    threading.Thread(target=_give_up, args=[code], name="t3d end", daemon=True).start()
    sys.exit(code)


def _give_up(code: int) -> None:
    time.sleep(PATIENCE)
    main = threading.main_thread()
    threads = [each.name for each in threading.enumerate() if not each.daemon and each is not main]
    what = f"threads {', '.join(threads)}" if threads else "a child process or an exit hook"
    complain(f"{what} did not end within {PATIENCE:g} s; the program ends without waiting longer")
    os._exit(code)
