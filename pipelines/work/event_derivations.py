"""What the rules found in events, kept: what was derived once is read back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from enrichment.derived import Derived, decode, encode
from enrichment.stage import EventKey
from pipelines.models.derivations import (
    Derivations,
    Digest,
    digest_of,
    passed_of,
    rules_digest,
    run_of,
)
from pipelines.work.folds import Placed
from projections.events import Event


class Source(NamedTuple):
    """An event with all that its derivation depends on, beside rules and models.

    Attributes:
        content: the payload behind its `payload_ref`.
    """

    placed: Placed
    content: Any = None


class EventDerivations:
    """What the rules found in events, and which entries have all that is derived from them.

    A derivation is kept by the event and what is behind its `payload_ref`. In front of it stands by
    which rules and which recogniser it was made: others make it anew, in its place.

    Args:
        derivations: where they are kept.
        recognizer: name and revision of the one that the rules read.
        ledger: tells it from any other.
        models: all of them, as a checkpoint names them.
    """

    def __init__(
        self, derivations: Derivations, *, recognizer: str, ledger: str, models: str
    ) -> None:
        self._derivations = derivations
        self._made_by = digest_of(rules_digest(), recognizer)
        self._run = run_of(ledger, models)
        self._passed = passed_of(ledger)

    @property
    def unkept(self) -> int:
        """What the store did not take since this process began."""
        return self._derivations.unkept

    def read(self, sources: Sequence[Source]) -> dict[EventKey, Derived]:
        """What is kept of events, without vectors and answers."""
        by_digest = _by_digest(sources)
        return self._decoded(self._derivations.get("event", by_digest), by_digest)

    def write(
        self, sources: Sequence[Source], derived: Mapping[EventKey, Derived]
    ) -> dict[EventKey, Derived]:
        """Keep what the rules found in events; returns what stands, perhaps another worker's."""
        by_digest = _by_digest([one for one in sources if one.placed[1].key in derived])
        values = {
            digest: self._made_by + encode(derived[source.placed[1].key])
            for digest, source in by_digest.items()
        }
        held = self._derivations.put("event", values)
        other = {digest: data for digest, data in held.items() if data != values[digest]}
        stands = self._decoded(other, by_digest)
        gone = [digest for digest in other if by_digest[digest].placed[1].key not in stands]
        self._derivations.forget("event", gone)
        self._derivations.put("event", {digest: values[digest] for digest in gone})
        return {**derived, **stands}

    def _decoded(
        self, packed: Mapping[Digest, bytes], by_digest: Mapping[Digest, Source]
    ) -> dict[EventKey, Derived]:
        """Those that these rules made."""
        derived: dict[EventKey, Derived] = {}
        damaged: list[Digest] = []
        for digest, data in packed.items():
            if not data.startswith(self._made_by):
                continue
            position, event = by_digest[digest].placed
            try:
                derived[event.key] = decode(data[len(self._made_by) :], position, event)
            except ValueError:
                damaged.append(digest)
        self._derivations.damaged("event", damaged)
        return derived

    def mark(
        self,
        entries: Sequence[tuple[int, int, Event]],
        whole: Collection[EventKey],
        passed: Collection[EventKey],
    ) -> None:
        """Note which entries have all that is derived from them, and which need nothing.

        Args:
            entries: partition, number within it and event of each.
            whole: (tenant, event id) of those with all of it.
            passed: of those that need none.
        """
        for run, keys in ((self._run, whole), (self._passed, passed)):
            seqs: dict[int, list[int]] = {}
            for partition, seq, event in entries:
                if event.key in keys:
                    seqs.setdefault(partition, []).append(seq)
            for partition, numbers in seqs.items():
                self._derivations.mark(run, partition, numbers)


def _by_digest(sources: Sequence[Source]) -> dict[Digest, Source]:
    """Events by what their derivations are kept by; those that no JSON can hold are left out."""
    by_digest: dict[Digest, Source] = {}
    for source in sources:
        _, event = source.placed
        try:
            told = orjson.dumps((tuple(event), source.content), option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            continue
        by_digest[digest_of(told)] = source
    return by_digest
