"""What stands together in a row of words: the signs by which linear models read a text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LONGEST_GRAM: Final = 3
START, END = "^", "$"
"""Before the first word of a row, and behind the last."""


def word_grams(forms: Sequence[str]) -> set[str]:
    """Up to three words in a row, and two with one between them.

    Args:
        forms: what each word of a text counts as.
    """
    row = [START, *forms, END]
    grams = {
        " ".join(row[start : start + length])
        for length in range(1, LONGEST_GRAM + 1)
        for start in range(len(row) - length + 1)
    }
    return grams | {f"{first} _ {third}" for first, third in zip(row, row[2:], strict=False)}
