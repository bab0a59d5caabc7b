"""The figures as Markdown, ready for `docs/explanation/performance.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.peers.peer import LANCEDB
from tests.bench.peers.sides import RECOLLECT
from tests.bench.report import made_by

AIM = 1.5
"""Recollect's processor time a question, times LanceDB's, at most."""
_HEAD = (
    *("events", "", "processor ms a question", "embedder's", "in all", "x LanceDB", "p50 ms"),
    *("p95 ms", "x LanceDB", "failed", "new event accepted, ms", "then found, ms", "lost"),
    *("MB on disk", "MB of memory"),
)


def markdown(document: Mapping[str, Any]) -> str:
    """One table over all sizes, and the command under it."""
    lines = [f"| {' | '.join(_HEAD)} |", f"|---:|---|{'---:|' * (len(_HEAD) - 2)}"]
    for size, sides in document["sizes"].items():
        lines += [_row(int(size), name, sides[name]) for name in sides]
    verdicts = [
        verdict(int(size), sides) for size, sides in document["sizes"].items() if LANCEDB in sides
    ]
    return "\n".join([*lines, "", *verdicts, made_by(document, "bench-peers")])


def verdict(size: int, sides: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether Recollect's processor time is within the aim."""
    ratio = sides[RECOLLECT]["cpu_ratio"]
    word = "met" if ratio <= AIM else "missed"
    return f"{size:,} events: {ratio} x LanceDB's processor time a question; aim ≤ {AIM}: {word}."


def _row(size: int, name: str, side: Mapping[str, Any]) -> str:
    cells = [
        f"{size:,}",
        f"{name} ({side['version']})" if "version" in side else name,
        f"{side['cpu_alone_ms']:.1f}",
        f"{side['cpu_embedder_ms']:.1f}",
        f"{side['cpu_ms']:.1f}",
        f"{side['cpu_ratio']:.2f}" if "cpu_ratio" in side else "",
        f"{side['p50_ms']:.0f}",
        f"{side['p95_ms']:.0f}",
        f"{side['p95_ratio']:.2f}" if "p95_ratio" in side else "",
        f"{side['failed']} of {side['asked']}",
        f"{side['accepted_ms']:.0f}",
        "" if side["found_ms"] is None else f"{side['found_ms']:.0f}",
        f"{side['lost']} of {side['new']}",
        f"{side['disk_mb']:,.0f}",
        f"{side['memory_mb']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"
