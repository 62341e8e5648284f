"""Become another command that ends when its parent does: `python -m serving.child COMMAND…` (Linux).

Elsewhere it only becomes the command; a parent that is killed outright then leaves it behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h; it outlives exec."""


def main() -> None:
    """Ends with what is wrong where the command cannot be started."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before it could be watched
        raise SystemExit(1)
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        raise SystemExit(f"{command[0]} cannot be started: {fault.strerror}") from fault


if __name__ == "__main__":
    main()
