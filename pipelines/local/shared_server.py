"""What a process that several share does, whatever it is for: it serves a socket and ends in time.

Whoever needs it first starts it (`shared_process`), with the listening socket made already; it ends
by itself some seconds after its last client has gone. Only processes of its own user are served,
each on a thread: one that stops in the middle of a frame, or does not read, holds up itself. Frames
are never pickles.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from pipelines.local.data_folder import locked
from pipelines.local.python_process import write_frame

CLIENT_THREAD: Final = "client"
"""Name of the threads on which clients are served."""
_LOOK_S = 0.5
_BROKEN = 70
"""Exit code: a mistake of ours."""
_HELLO = b"h"

Talk = Callable[[BinaryIO], None]
"""Serves one client, until it has gone."""


def lock_of(path: Path) -> Path:
    """Held by whoever makes the socket at a path, or takes it away; one for all of a folder."""
    return path.with_name("lock")


def hello(pid: int) -> bytes:
    """What the process says to a client first."""
    return _HELLO + str(pid).encode()


def pid_of(frame: bytes) -> int:
    """The process that said hello.

    Raises:
        ValueError: this is no hello.
    """
    if frame[:1] != _HELLO:
        raise ValueError("no hello")
    return int(frame[1:])


class SharedServer:
    """Serves the clients of one socket until none is left.

    Args:
        talk: serves a client that was greeted.
        linger_s: after the last client has gone.
    """

    def __init__(self, talk: Talk, *, linger_s: float) -> None:
        self._talk = talk
        self._linger_s = linger_s
        self._guard = threading.Lock()
        self._clients = 0
        self._idle_since_s = time.monotonic()

    def serve(self, descriptor: str, path: Path) -> None:
        """Take clients until there has been none for a while, then take the socket away.

        Args:
            descriptor: of the socket: bound to `path`, listening.
            path: of the socket; its lock is beside it.
        """
        with socket.socket(fileno=int(descriptor)) as listener:
            inode = path.stat().st_ino
            listener.settimeout(min(_LOOK_S, self._linger_s))
            while True:
                try:
                    client, _ = listener.accept()
                except TimeoutError:
                    if self._is_idle() and self._ended(listener, path, inode):
                        return
                    continue
                self._take(client)

    def _ended(self, listener: socket.socket, path: Path, inode: int) -> bool:
        """End, unless a client comes at the last moment; one that comes later finds no socket."""
        lock = lock_of(path)
        if not lock.exists():  # nor the socket: somebody has deleted the folder
            return True
        with locked(lock):
            listener.setblocking(False)
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                # Another process has the path if its folder was deleted meanwhile.
                with suppress(FileNotFoundError):
                    if path.stat().st_ino == inode:
                        path.unlink()
                listener.close()
                return True
        listener.settimeout(min(_LOOK_S, self._linger_s))
        self._take(client)
        return False

    def _is_idle(self) -> bool:
        with self._guard:
            return not self._clients and time.monotonic() - self._idle_since_s >= self._linger_s

    def _take(self, client: socket.socket) -> None:
        if not is_ours(client):
            client.close()
            return
        with self._guard:
            self._clients += 1
        attend = threading.Thread(
            target=self._attend, args=(client,), name=CLIENT_THREAD, daemon=True
        )
        attend.start()

    def _attend(self, client: socket.socket) -> None:
        # What a client does not read, or does not send whole, waits on its own thread.
        try:
            # A client that has gone, or that says what is no question, is nobody's trouble.
            with suppress(OSError), client, client.makefile("rwb") as stream:
                client.setblocking(True)
                write_frame(cast(BinaryIO, stream), hello(os.getpid()))
                self._talk(cast(BinaryIO, stream))
        finally:
            with self._guard:
                self._clients -= 1
                self._idle_since_s = time.monotonic()


def is_ours(client: socket.socket) -> bool:
    """Whether a process of our own user connected; elsewhere than on Linux its folder says so."""
    if not sys.platform.startswith("linux"):
        return True
    size = struct.calcsize("3i")
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def end_broken(problem: threading.ExceptHookArgs) -> None:
    """A mistake of ours on a thread: clients start another process rather than wait for this."""
    traceback.print_exception(problem.exc_type, problem.exc_value, problem.exc_traceback)
    os._exit(_BROKEN)
