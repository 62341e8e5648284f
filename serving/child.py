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
    """Raises: OSError when the command cannot be started."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before it could be watched
        raise SystemExit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
