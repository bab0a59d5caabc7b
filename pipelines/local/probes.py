"""Health questions in the servers' own protocols: Redis' PING, and `RETURN 1` over Bolt.

The drivers are not used here: only the adapters may load them, a supervisor stays small without
them, and they log every refused connection of a server that is still starting.
"""

from __future__ import annotations

import socket
import struct

_SUCCESS = 0x70
_BOLT_HELLO, _BOLT_LOGON, _BOLT_RUN, _BOLT_PULL = 0x01, 0x6A, 0x10, 0x3F
# Bolt 5.2 or 5.1: LOGON follows HELLO from 5.1 on, HELLO must describe the driver from 5.3 on.
_BOLT_HANDSHAKE = bytes.fromhex("6060b017 00010205 00000000 00000000 00000000")


def valkey_answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether the server on `port` of this machine has loaded its data and takes commands."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")  # "-LOADING" while the file is read
    except OSError:
        return False


def neo4j_answers(port: int, password: str | None = None, timeout_s: float = 5.0) -> bool:
    """Whether the server on `port` of this machine runs a query in its default database.

    Args:
        port: Bolt port.
        password: of the user `neo4j`; None when the server asks for none.
        timeout_s: limit for each network operation.
    """
    login = {"scheme": "none"}
    if password is not None:
        login = {"scheme": "basic", "principal": "neo4j", "credentials": password}
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_BOLT_HANDSHAKE)
            if not any(_receive(connection, 4)):
                return False
            pull_all = b"\xa1" + _packed("n") + b"\xff"
            return (
                _ask(connection, _BOLT_HELLO, _packed({"user_agent": "recollect-probe/1"}))
                and _ask(connection, _BOLT_LOGON, _packed(login))
                and _ask(connection, _BOLT_RUN, _packed("RETURN 1"), _packed({}), _packed({}))
                and _ask(connection, _BOLT_PULL, pull_all)
            )
    except (OSError, struct.error):
        return False


def _ask(connection: socket.socket, signature: int, *fields: bytes) -> bool:
    body = bytes([0xB0 + len(fields), signature]) + b"".join(fields)
    connection.sendall(struct.pack(">H", len(body)) + body + b"\x00\x00")
    while True:
        answer = b""
        while size := struct.unpack(">H", _receive(connection, 2))[0]:
            answer += _receive(connection, size)
        if answer[1:2] != b"\x71":  # a RECORD precedes the SUCCESS of PULL
            return answer[1] == _SUCCESS


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("closed in the middle of a message")
        data += piece
    return data


def _packed(value: str | dict[str, str]) -> bytes:
    """`value` in PackStream; strings up to 255 bytes and maps up to 15 entries."""
    if isinstance(value, str):
        data = value.encode()
        return b"\xd0" + bytes([len(data)]) + data
    return bytes([0xA0 + len(value)]) + b"".join(
        _packed(key) + _packed(item) for key, item in value.items()
    )
