"""Whatever wraps the keys of sealed events: nobody else unwraps them, and nothing is mixed up.

The transit engine is asked where `vault` (HashiCorp Vault) or `bao` (OpenBao) is installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from pipelines.ledger.keys import (
    NAMING,
    MasterKey,
    SqliteKeys,
    Transit,
    Wrapping,
    key_store,
    wrapping_of,
)
from pipelines.local.processes import free_port
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, KeysUnavailable
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
TOKEN = "a-token-of-a-test"
KEYS = {bytes([n % 256, n // 256]) * 8: bytes([n % 251]) * 32 for n in range(600)}


class TransitServer:
    """A server in memory with two keys in its transit engine."""

    def __init__(self, binary: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                binary,
                "server",
                "-dev",
                f"-dev-root-token-id={TOKEN}",
                f"-dev-listen-address={self._address}",
                "-dev-no-store-token",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, "the server answers")
        self.post("sys/mounts/transit", {"type": "transit"})
        for name in ("one", "other"):
            self.post(f"transit/keys/{name}", {})

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server ended"
        try:
            return httpx.get(f"http://{self._address}/v1/sys/health").status_code == 200
        except httpx.HTTPError:
            return False

    def post(self, path: str, body: dict[str, str]) -> None:
        url, headers = f"http://{self._address}/v1/{path}", {"X-Vault-Token": TOKEN}
        httpx.post(url, json=body, headers=headers).raise_for_status()

    def url(self, key: str = "one") -> str:
        return f"http://{self._address}/transit/{key}"


@pytest.fixture(scope="module")
def transit() -> Iterator[TransitServer]:
    places = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    binary = next(
        filter(None, (shutil.which(name, path=places) for name in ("vault", "bao"))), None
    )
    if binary is None:
        pytest.skip("neither `vault` nor `bao` is installed")
    server = TransitServer(binary)
    yield server
    server.process.terminate()
    server.process.wait()


Make = Callable[[str], Wrapping]


@pytest.fixture(params=["master key", "transit"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes what wraps with the key `one`, or with the `other`."""
    made: list[Wrapping] = []

    def by_transit(name: str) -> Wrapping:
        made.append(Transit(request.getfixturevalue("transit").url(name), TOKEN))
        return made[-1]

    if request.param == "master key":
        yield lambda name: MasterKey(name.encode().ljust(32, b"-"))
    else:
        yield by_transit
    for wrapping in made:
        wrapping.close()


def test_what_was_wrapped_comes_back_and_is_not_told(make: Make) -> None:
    wrapped = make("one").wrap(KEYS)
    assert make("one").unwrap(wrapped) == KEYS
    assert [name for name, key in KEYS.items() if key in wrapped[name]] == []
    assert make("one").wrap({}) == {}


def test_none_is_unwrapped_in_the_place_of_another(make: Make) -> None:
    wrapped = make("one").wrap({b"ann": b"a" * 32, b"bob": b"b" * 32})
    with pytest.raises(KeysUnavailable):
        make("one").unwrap({b"ann": wrapped[b"bob"]})


def test_another_key_unwraps_nothing(make: Make) -> None:
    wrapped = make("one").wrap({b"ann": b"a" * 32})
    with pytest.raises(KeysUnavailable):
        make("other").unwrap(wrapped)


def test_a_store_is_wrapped_anew(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "keys.sqlite"
    store = SqliteKeys.create(file, make("one"))
    store.make([b"a" * 16, b"b" * 16])
    store.destroy([b"b" * 16])
    held, own = store.get([b"a" * 16, b"b" * 16, b"c" * 16]), store.own(NAMING)
    behind = SqliteKeys(file, make("one"))
    assert behind.own(NAMING) == own
    assert store.rotate(make("other")) == 1
    again = SqliteKeys(file, make("other"))
    assert (again.get([b"a" * 16, b"b" * 16]), again.own(NAMING)) == (held, own)
    for late in (behind, SqliteKeys(file, make("one"))):
        with pytest.raises(KeysUnavailable):
            late.make([b"d" * 16])


def test_a_server_that_refuses_or_hangs_or_is_away_is_told(transit: TransitServer) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/transit/one"
    for url, token, why in (
        (transit.url(), "another token", "encrypt: 403 .*permission denied"),
        (transit.url("none/of/them"), TOKEN, "none/of/them: encrypt: 4"),
        (nowhere, TOKEN, "transit/one: encrypt: "),
    ):
        with closing(Transit(url, token)) as wrapping, pytest.raises(KeysUnavailable, match=why):
            wrapping.wrap(KEYS)
    with closing(Transit(transit.url(), TOKEN, timeout_s=0.2)) as wrapping:
        wrapped = wrapping.wrap(KEYS)
        transit.process.send_signal(signal.SIGSTOP)
        with pytest.raises(KeysUnavailable, match="timed out"):
            wrapping.unwrap(wrapped)
        transit.process.send_signal(signal.SIGCONT)
        wait_until(lambda: _is_unwrapped(wrapping, wrapped), "it goes on by itself")


def _is_unwrapped(wrapping: Wrapping, wrapped: dict[bytes, bytes]) -> bool:
    try:
        return wrapping.unwrap(wrapped) == KEYS
    except KeysUnavailable:
        return False


def test_the_settings_name_one_of_them(transit: TransitServer, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path, transit_url=transit.url(), transit_token=SecretStr(TOKEN)
    )
    SqliteKeys.create(tmp_path / "keys.sqlite", Transit(transit.url(), TOKEN)).close()
    store = key_store(settings)
    assert store is not None
    assert len(store.own(NAMING)) == 32
    store.close()


def test_two_of_them_are_refused() -> None:
    settings = Settings(transit_url="http://x/transit/one", master_key=SecretStr("ab" * 32))
    with pytest.raises(ConfigurationError, match="set one of them"):
        wrapping_of(settings)
    assert wrapping_of(Settings()) is None


@pytest.mark.parametrize("url", ["x/transit/one", "http://x/transit", "http://a:b@x/transit/one"])
def test_a_url_without_engine_or_key_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Input should be like https://HOST:8200/transit/KEY"):
        Settings(transit_url=url)
