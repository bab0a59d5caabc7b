"""`python -m tests.bench.speakers EVENTS.jsonl [--kind KIND] [--said]`: pages of all who speak.

What `GET /v1/users/{user_id}` tells of each, a line an item, with the words that prove it: to be
judged by reading. Who speaks becomes the user of what they say, and each conversation is moved by
whole weeks, so that it ends in the days before now: habits and interests fade, and days of the week
are habits. `--said` prints instead all that was said, to find what the pages miss.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from api.retrieval.narrative import one_line
from projections.events import timestamp_ms, timestamp_text
from tests.bench.small import own_edition

KINDS: Final = ("facts", "wishes", "former", "patterns", "skills", "interests")
_WEEK_MS: Final = 7 * 24 * 3_600_000
_MOST_PROOFS: Final = 3
_PAGE: Final = 500


def recorded(lines: Sequence[Mapping[str, Any]], now_ms: int) -> Iterator[dict[str, Any]]:
    """Events of who speaks, near now."""
    ends: dict[str, int] = {}
    for line in lines:
        at = timestamp_ms(line["occurred_at"])
        ends[line["tenant"]] = max(at, ends.get(line["tenant"], at))
    for line in lines:
        weeks = (now_ms - ends[line["tenant"]]) // _WEEK_MS
        at = timestamp_ms(line["occurred_at"]) + weeks * _WEEK_MS
        yield {**line, "user_id": line["agent_id"], "occurred_at": timestamp_text(at)}


def items(person: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, words and proofs of all that is told of somebody."""
    for kind in KINDS:
        for item in person[kind]:
            if "relation" in item:
                target = one_line(item["target"]["name"])
                proofs = [item["provenance"]["event_id"]]
                yield kind, f"{item['relation']}: {target}", proofs
            else:
                seen = f"{item['session_count']} sessions, {item['strength']:.0%}"
                yield kind, f"{item['name']} ({seen})", item["event_ids"][:_MOST_PROOFS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("events", type=Path)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--said", action="store_true")
    given = parser.parse_args()
    lines = [orjson.loads(line) for line in given.events.read_bytes().splitlines()]
    said = {line["event_id"]: one_line(line["payload"].get("text", "")) for line in lines}
    speakers = sorted({(line["tenant"], line["agent_id"]) for line in lines})
    if given.said:
        for line in lines:
            when = f"{line['tenant']} {line['occurred_at'][:10]} {line['agent_id']}"
            sys.stdout.write(f"{when}: {said[line['event_id']]}\n")
        return
    now_ms = int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000)
    with own_edition("speakers") as edition:
        edition.fill(recorded(lines, now_ms))
        edition.run("consolidate")
        for tenant, speaker in speakers:
            words = ("user", "show", speaker, "--tenant", tenant, "--limit", str(_PAGE), "--json")
            person = orjson.loads(edition.run(*words))
            for kind, text, proofs in items(person):
                if given.kind in (None, kind):
                    sys.stdout.write(f"{tenant} {speaker} {kind[:-1]}: {text}\n")
                    for event_id in proofs:
                        sys.stdout.write(f"    {said.get(event_id, event_id)}\n")


if __name__ == "__main__":
    main()
