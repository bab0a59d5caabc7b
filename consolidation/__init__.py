"""Stage 3: summaries, communities, forgetting. Pure; read `stage.py` first."""

from __future__ import annotations

from typing import Final

NAME: Final = "consolidation"
FOLD_VERSION: Final = 7
"""Rises when the rules change what the graph holds."""
