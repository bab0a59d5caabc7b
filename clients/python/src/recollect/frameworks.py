"""What the adapters of frameworks share: how each says that its framework is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Around the imports of a framework.

    Args:
        extra: of this distribution, which installs it.

    Raises:
        ImportError: it is not installed, or another version than this knows.
    """
    try:
        yield
    except ImportError as error:
        module = extra.replace("-", "_")
        raise ImportError(
            f"recollect.{module} needs its framework: "
            f"pip install 'recollect-client[{extra}]' ({error})"
        ) from error
