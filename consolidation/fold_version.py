"""What everybody needs to know of the stage that applies decisions, without loading its rules."""

from __future__ import annotations

from typing import Final

NAME: Final = "consolidation"
FOLD_VERSION: Final = 1
"""Rises when the rules change what the graph holds."""
