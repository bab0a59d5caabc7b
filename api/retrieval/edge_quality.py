"""How far an edge on a path is to be trusted. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from consolidation.decay import HOUR_MS

NEARNESS_SCALE_MS = HOUR_MS
MIN_NEARNESS = 0.1


def edge_quality(properties: Mapping[str, Any]) -> float:
    """How far an edge is to be trusted, 0 to 1, from what it says about itself.

    Its confidence (inferred causes, facts) or cosine (similarity); the nearness in time of two
    events that follow each other, never below 0.1; 1 for what is simply so.
    """
    for name in ("confidence", "score"):
        value = properties.get(name)
        if value is not None:
            return min(1.0, max(0.0, float(value)))
    delta_ms = properties.get("delta_ms")
    if delta_ms is not None:
        return max(MIN_NEARNESS, math.exp(-delta_ms / NEARNESS_SCALE_MS))
    return 1.0
