"""Stage 2: from bare events to text, entities, causes and facts. Pure; read `stage.py` first."""

from __future__ import annotations

from typing import Final

NAME: Final = "enrichment"
FOLD_VERSION: Final = 25
"""Rises when the rules change what the graph holds."""
