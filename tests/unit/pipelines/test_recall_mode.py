"""The recall mode in the words of S2, and the settings that refuse to start."""

from __future__ import annotations

import pytest

from pipelines.operations.status import recall_mode
from pipelines.work.settings import Settings, load_settings
from projections.errors import ConfigurationError


def test_the_mode_is_said_as_the_seed_says_it() -> None:
    assert recall_mode(Settings()) == "BFS"
    activated = Settings(spreading_activation=True)
    assert recall_mode(activated) == "spreading activation (lambda=0.85, hops=3)"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_hops": 0}, "max_hops"),
        ({"decay_lambda": 0.0}, "decay_lambda"),
        ({"activation_threshold": 0.8}, "inhibition_threshold"),
        ({"inhibition_threshold": 0.1}, "inhibition_threshold"),
    ],
)
def test_contradictory_settings_refuse_to_start(options: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_settings(**options)
