"""Run a program whose whole process group dies with the process that started it.

Run by path, as the leader of a new group, standard library only:

    python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...

    parent ──▶ launch (this; leader of the group) ──▶ program ──▶ its own children
    parent dies, even by SIGKILL  ─▶ the kernel signals launch ─▶ SIGKILL to the whole group
    launch dies                   ─▶ the kernel kills the program; the parent ends the group

Binding the program alone is not enough: vLLM 0.32's engine process outlives its API server.
A `preexec_fn` would run Python between fork and exec in a parent that has threads, and may hang.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux
_PARENT_DIED = signal.SIGUSR1


def main(arguments: list[str]) -> None:
    """Start the program, wait for its end or the parent's, and end the same way. Never returns."""
    parent, command = int(arguments[0]), arguments[1:]
    # Blocked, not ignored: sigwait takes them, and none is lost before it is called.
    watched = {signal.SIGCHLD, _PARENT_DIED}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    _signal_when_parent_dies(parent, _PARENT_DIED)
    # A stop signals the whole group; the program drains, and this process waits for it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    leader = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, leader, watched)
    while True:
        if signal.sigwait(watched) == _PARENT_DIED:
            os.killpg(0, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_like(status)


def _signal_when_parent_dies(parent: int, number: signal.Signals) -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        sys.exit("launch: the system refused prctl(PR_SET_PDEATHSIG)")
    # It may have died before the line above took effect.
    if os.getppid() != parent:
        sys.exit("launch: the parent process is gone")


def _become(command: list[str], leader: int, watched: set[signal.Signals]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
    _signal_when_parent_dies(leader, signal.SIGKILL)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"launch: cannot run {command[0]}: {error.strerror}\n")
        os._exit(127)


def _end_like(status: int) -> None:
    """End with the program's exit status, or by the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
