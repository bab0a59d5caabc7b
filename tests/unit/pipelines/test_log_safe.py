"""What the driver is given is the same, and prints nothing of what it holds."""

from __future__ import annotations

from pipelines.graph.client import log_safe


def test_parameters_stay_equal_and_print_their_size() -> None:
    given = {"vector": [0.1, 0.2], "cosines": {"secret": 1.0}, "tenant": "acme", "most": None}
    found = log_safe(given)
    assert found == given
    assert repr(found) == (
        "{'vector': [2 items], 'cosines': {1 items}, 'tenant': 'acme', 'most': None}"
    )
