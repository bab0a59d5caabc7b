"""Keys: how they are compared, what they open, and that a service without any does not start."""

from __future__ import annotations

import hmac

import pytest

from api.dependencies import Keyring
from api.preflight import check_settings
from pipelines.work.settings import ApiKey, Settings
from projections.errors import ConfigurationError

KEYS = tuple(ApiKey(name=f"key-{i}", key=f"{i}" * 20) for i in range(5))


@pytest.mark.parametrize("index", range(5))
def test_each_key_is_found(index: int) -> None:
    found = Keyring(KEYS).find(f"{index}" * 20)
    assert found is not None
    assert found.name == f"key-{index}"


@pytest.mark.parametrize("wrong", ["", "0", "0" * 19, "0" * 21, "\udcff", "x" * 100_000])
def test_anything_else_is_not(wrong: str) -> None:
    assert Keyring(KEYS).find(wrong) is None


@pytest.mark.parametrize("presented", ["0" * 20, "4" * 20, "none of them, really"])
def test_every_key_is_compared_whichever_is_right(
    presented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    Keyring(KEYS).find(presented)
    # Digests of one length, so that not even the length of a key shows.
    assert compared == [(32, 32)] * len(KEYS)


def test_no_key_refuses_to_start() -> None:
    with pytest.raises(ConfigurationError, match="no API key"):
        check_settings(Settings())


def test_no_key_starts_when_insecure_on_purpose() -> None:
    check_settings(Settings(insecure_dev=True))


def test_one_key_under_two_names_refuses_to_start_and_does_not_show_it() -> None:
    twice = (ApiKey(name="a", key="s" * 20), ApiKey(name="b", key="s" * 20))
    with pytest.raises(ConfigurationError) as caught:
        check_settings(Settings(api_keys=twice))
    assert "sss" not in str(caught.value)
