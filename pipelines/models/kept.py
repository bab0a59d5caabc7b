"""Models and rules behind the store of derivations: what is kept there is not made again."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from enrichment.kept import decode, encode
from enrichment.ports import Analysis, Embedder, EntityRecognizer
from enrichment.stage import Derived, EventKey
from enrichment.vectors import kept_bytes, pack, unpack
from pipelines.models.analyst import decode_analysis
from pipelines.models.derivations import (
    Derivations,
    Digest,
    digest_of,
    passed_of,
    rules_digest,
    run_of,
)
from pipelines.models.nlp import EncodedRecognizer
from pipelines.work.folds import Placed
from projections.events import Event


class KeptEmbedder(Embedder):
    """An embedder of which each text is asked once, by model, revision and text.

    Every vector is as it is kept (`enrichment.vectors`), also one that was just made.

    Args:
        embedder: computes what is not kept.
        derivations: where vectors are kept.
    """

    def __init__(self, embedder: Embedder, derivations: Derivations) -> None:
        self.model: str = embedder.model
        self.revision: str = embedder.revision
        self.dimensions: int = embedder.dimensions
        self._embedder = embedder
        self._derivations = derivations

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text; of equal texts, one is computed.

        Raises:
            ModelUnavailable: a text is not kept and the model cannot be used.
            ModelFailed: the runtime gave up.
        """
        digests = [digest_of(self.model, self.revision, text) for text in texts]
        wanted = dict(zip(digests, texts, strict=True))
        packed = self._derivations.get("vector", wanted)
        length = kept_bytes(self.dimensions)
        if broken := [digest for digest, data in packed.items() if len(data) != length]:
            self._derivations.damaged("vector", broken)
            packed = {digest: packed[digest] for digest in packed.keys() - broken}
        if missing := [digest for digest in wanted if digest not in packed]:
            computed = pack(self._embedder.embed([wanted[digest] for digest in missing]))
            fresh = dict(zip(missing, computed, strict=True))
            packed |= self._derivations.put("vector", fresh)
        vectors = dict(zip(packed, unpack(list(packed.values())), strict=True))
        return [vectors[digest] for digest in digests]


class KeptRecognizer(EntityRecognizer):
    """A recogniser of which each text is asked once, by model, revision and text.

    An analysis that had to be left out is not kept: the next time it may succeed.

    Args:
        recognizer: analyses what is not kept.
        derivations: where analyses are kept.
    """

    def __init__(self, recognizer: EncodedRecognizer, derivations: Derivations) -> None:
        self.model: str = recognizer.model
        self.revision: str = recognizer.revision
        self._recognizer = recognizer
        self._derivations = derivations

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """One analysis for each text, empty where it had to be left out.

        Raises:
            ModelUnavailable: a text is not kept and the model cannot be used.
            ModelFailed: the recogniser does not start.
        """
        digests = [digest_of(self.model, self.revision, text) for text in texts]
        wanted = dict(zip(digests, texts, strict=True))
        analyses = self._decoded(self._derivations.get("analysis", wanted))
        if missing := [digest for digest in wanted if digest not in analyses]:
            computed = self._recognizer.analyze_encoded([wanted[digest] for digest in missing])
            # Level 1: the others take three times as long for a tenth.
            fresh = {
                digest: zlib.compress(data, 1)
                for digest, data in zip(missing, computed, strict=True)
                if data
            }
            analyses |= self._decoded(self._derivations.put("analysis", fresh))
        return [analyses.get(digest, Analysis()) for digest in digests]

    def _decoded(self, packed: Mapping[Digest, bytes]) -> dict[Digest, Analysis]:
        analyses: dict[Digest, Analysis] = {}
        for digest, data in packed.items():
            try:
                analyses[digest] = decode_analysis(zlib.decompress(data))
            except (zlib.error, ValueError):
                continue
        self._derivations.damaged("analysis", packed.keys() - analyses.keys())
        return analyses


class Source(NamedTuple):
    """An event with all that its derivation depends on, beside rules and models.

    Attributes:
        content: the payload behind its `payload_ref`.
    """

    placed: Placed
    content: Any = None


class KeptEvents:
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
