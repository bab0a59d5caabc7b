"""What encrypts the keys of sealed events where they are kept: a master key, or who has one.

A wrapped key bears the name that it was wrapped under, so that none can take another's place.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pipelines.ledger.sealing import NONCE_BYTES
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, KeysUnavailable

_IN_A_REQUEST: Final = 500
"""Keys in one request."""
_TIMEOUT_S: Final = 10.0

Named = Mapping[bytes, bytes]
"""Keys, wrapped or not, by name."""


class Wrapping(Protocol):
    """Wraps keys. It raises KeysUnavailable where that cannot be done now."""

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """Each encrypted under its name."""

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """And back; raises KeysUnavailable, too, for what was wrapped by another."""

    def close(self) -> None:
        """Close its connections; the next call opens them again."""


class MasterKey:
    """A key of 32 bytes, which every process has."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        wrapped = {}
        for name, key in keys.items():
            nonce = os.urandom(NONCE_BYTES)
            wrapped[name] = nonce + self._cipher.encrypt(nonce, key, name)
        return wrapped

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        try:
            return {
                name: self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name)
                for name, data in wrapped.items()
            }
        except InvalidTag as error:
            reason = "the master key (master_key) is not the one of the key store"
            raise KeysUnavailable(reason=reason) from error

    def close(self) -> None:
        """It has none."""


class Transit:
    """The transit engine of HashiCorp Vault or OpenBao: the master key never leaves it.

    Args:
        url: of the server, with the engine's mount and the key's name behind it:
            https://vault.example.org:8200/transit/recollect.
        token: that may encrypt and decrypt with this key; None: something in between adds one.
        timeout_s: of a request, each time that nothing comes.
    """

    def __init__(self, url: str, token: str | None, *, timeout_s: float = _TIMEOUT_S) -> None:
        import httpx2  # a fifth of a second, which a process without it does not need

        self._url = url
        parts = urlsplit(url)
        mount, _, key = parts.path.strip("/").rpartition("/")
        self._path = f"/v1/{quote(mount)}/{{}}/{quote(key)}"
        headers = {"X-Vault-Request": "true", **({"X-Vault-Token": token} if token else {})}
        base = f"{parts.scheme}://{parts.netloc}"
        self._connect = partial(httpx2.Client, base_url=base, headers=headers, timeout=timeout_s)
        self._client: httpx2.Client | None = None
        self._failures = (httpx2.HTTPError, orjson.JSONDecodeError, KeyError, TypeError, ValueError)

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        texts = {name: b64encode(key).decode() for name, key in keys.items()}
        answers = self._asked("encrypt", texts, "plaintext", "ciphertext")
        return {name: text.encode() for name, text in answers.items()}

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        texts = {name: data.decode("utf-8", "replace") for name, data in wrapped.items()}
        answers = self._asked("decrypt", texts, "ciphertext", "plaintext")
        return {name: b64decode(text) for name, text in answers.items()}

    def close(self) -> None:
        """See `Wrapping`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(
        self, what: str, texts: Mapping[bytes, str], sent: str, wanted: str
    ) -> dict[bytes, str]:
        answers: dict[bytes, str] = {}
        client = self._client = self._client or self._connect()
        left = iter(texts.items())
        while some := list(islice(left, _IN_A_REQUEST)):
            batch = [
                {sent: text, "associated_data": b64encode(name).decode()} for name, text in some
            ]
            try:
                reply = client.post(self._path.format(what), json={"batch_input": batch})
                told = orjson.loads(reply.content)
                if reply.status_code >= 400:
                    raise ValueError(f"{reply.status_code} {_errors_of(told)}")
                results = [row[wanted] for row in told["data"]["batch_results"]]
                answers.update(zip((name for name, _ in some), results, strict=True))
            except self._failures as error:
                raise KeysUnavailable(reason=f"{self._url}: {what}: {error}") from error
        return answers


def _errors_of(told: Mapping[str, object]) -> str:
    """What an answer says was wrong, as a whole or with the first key."""
    errors = told.get("errors")
    if isinstance(errors, list) and errors:
        return " ".join(str(errors[0]).split())
    data = told.get("data")
    rows = data.get("batch_results", ()) if isinstance(data, Mapping) else ()
    return next((str(row["error"]) for row in rows if row.get("error")), "no reason was told")


def wrapping_of(settings: Settings) -> Wrapping | None:
    """What the settings name; None: nothing.

    Raises:
        ConfigurationError: they name two.
    """
    if settings.transit_url is None:
        key = settings.master_key
        return None if key is None else MasterKey(bytes.fromhex(key.get_secret_value()))
    if settings.master_key is not None:
        raise ConfigurationError(reason="master_key, transit_url: set one of them")
    token = settings.transit_token
    return Transit(settings.transit_url, None if token is None else token.get_secret_value())


def require_wrapping(settings: Settings) -> Wrapping:
    """What the settings name.

    Raises:
        ConfigurationError: nothing, or two.
    """
    wrapping = wrapping_of(settings)
    if wrapping is None:
        reason = "master_key or transit_url: needed where tenants are sealed"
        raise ConfigurationError(reason=reason)
    return wrapping
