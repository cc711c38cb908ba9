"""Become a server process that ends with its parent.

Run by path, with only the standard library: `python -I -S child_guard.py PARENT_PID SIGNAL UID GID
PROGRAM [ARGUMENT ...]`, where UID -1 keeps the user. It is a separate program because code between
fork and exec is not safe in a process with threads.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def _become_user(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def die_with_parent(parent_pid: int, signal_number: int) -> None:
    """Ask the kernel for a signal at the parent's death; on other systems than Linux do nothing."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)
    # The parent may have died before the request.
    if os.getppid() != parent_pid:
        sys.exit(1)


def main(arguments: list[str]) -> None:
    """Drop privileges, tie this process to its parent and become the program."""
    parent_pid, signal_number, uid, gid = map(int, arguments[:4])
    if uid >= 0:
        _become_user(uid, gid)
    # After the change of user, which clears the request.
    die_with_parent(parent_pid, signal_number)
    os.execv(arguments[4], arguments[4:])  # noqa: S606 # the program replaces this process


if __name__ == "__main__":
    main(sys.argv[1:])
