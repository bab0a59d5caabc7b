"""What models and rules made of archived entries, in a file beside their segment.

So a ledger that is restored is folded again without a model, and a language model is not asked
twice. A file holds pages, one for each (tenant, key, consent) of its entries: packed, and sealed
with that key. When a key is destroyed, its pages are closed for good, wherever they were copied to;
a page of a consent that was withdrawn is left alone.

Derivations are kept by their content, and only the models know by what. So they are met by deriving
the entries once more, of what is kept alone: no model computes anything for it.
"""

from __future__ import annotations

import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple, Self

import numpy as np
import orjson
import structlog

from pipelines.ledger.archive_files import ArchiveFiles
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry
from pipelines.ledger.sealing import SubjectKey, seal, sealed_by, unseal
from pipelines.ledger.segments import Manifest
from pipelines.ledger.vault import Fenced, Vault, make_vault
from pipelines.models.derivations import Derivations, Digest, Kind, make_store, tally
from pipelines.models.loaded import LoadedEmbedder, LoadedRecognizer, Models
from pipelines.work.enriching import enrichment_fold
from pipelines.work.folds import Placed
from pipelines.work.services import Services
from pipelines.work.stages import ENRICHMENT
from projections.errors import (
    ArchiveDamaged,
    DerivationsUnavailable,
    KeysUnavailable,
    UndecodableEntry,
)
from projections.events import is_system_event

PUTTING_BACK: Final = "reading derivations"
_BLOCK: Final = 256
_PAGE: Final = b"derivations"
"""Associated data of a page that is sealed: no entry's envelope, which is JSON."""

logger = structlog.get_logger(__name__)
_Value = tuple[Kind, Digest, bytes]


class Collected(NamedTuple):
    """What was derived of some entries.

    Attributes:
        data: as a file; empty: nothing is kept of them.
        values: how many there are in it.
    """

    data: bytes = b""
    values: int = 0


NOTHING: Final = Collected()


class PutBack(NamedTuple):
    """What came of the files of a backup.

    Attributes:
        values: that the store of derivations has now.
        closed: pages whose key is not at hand, or gone, or whose consent was withdrawn.
        damaged: files that are not as they were written, or are missing.
    """

    values: int = 0
    closed: int = 0
    damaged: int = 0


class _Owner(NamedTuple):
    """Whose a page is; without a key, of a tenant that is not sealed."""

    tenant: str
    key_id: bytes | None
    consent: str | None


class _NoEmbedder(LoadedEmbedder):
    """Stands where the embedder does, and computes nothing."""

    def __init__(self, services: Services) -> None:
        real = services.models.embedder
        self.model, self.revision, self.dimensions = real.model, real.revision, real.dimensions

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [np.zeros(self.dimensions, "<f4").tobytes()] * len(texts)

    def load(self) -> None:
        pass

    def close(self) -> None:
        pass


class _NoRecognizer(LoadedRecognizer):
    """Stands where the recogniser does, and finds nothing."""

    def __init__(self, services: Services) -> None:
        real = services.models.recognizer
        self.model, self.revision = real.model, real.revision

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        return [None] * len(texts)

    def load(self) -> None:
        pass

    def close(self) -> None:
        pass


class Collector:
    """Meets what is kept of entries; a context manager, for one thread.

    It finds nothing where there is no store of derivations, or nothing of this ledger in it.

    Args:
        services: ledger, keys, and settings of the store.
    """

    def __init__(self, services: Services) -> None:
        self._vault = services.ledger.vault
        self._models: Models | None = None
        self._lacking = 0
        if not _keeps(services):
            return
        self._models = Models(services.settings, _NoEmbedder(services), _NoRecognizer(services))
        fold = enrichment_fold(ENRICHMENT, services, services.active(), self._models)
        self._derive = fold.derive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._models is not None:
            self._models.close()
        if self._lacking:
            logger.warning("derivations left out: keys are not at hand", entries=self._lacking)

    def of(self, entries: Sequence[Entry]) -> Collected:
        """What is kept of entries, as far as they can be opened."""
        if self._models is None:
            return NOTHING
        pages: list[tuple[bytes, bool]] = []
        total = 0
        for whose, placed in self._by_owner(entries).items():
            values = self._met(self._models, placed)
            key = None if whose.key_id is None else self._vault.opening(whose.key_id)
            if values and (whose.key_id is None or key is not None):
                pages.append(_page(whose, values, key))
                total += len(values)
        return Collected(_file(pages), total) if pages else NOTHING

    def _by_owner(self, entries: Sequence[Entry]) -> dict[_Owner, list[Placed]]:
        owned: dict[_Owner, list[Placed]] = {}
        for entry in entries:
            if entry.fault:
                continue
            try:
                event = entry.event()
            except UndecodableEntry:
                continue
            except KeysUnavailable:
                self._lacking += 1
                continue
            if not is_system_event(event.event_type):
                owner = _Owner(event.tenant, sealed_by(entry.data), event.consent_ref)
                owned.setdefault(owner, []).append((entry.position, event))
        return owned

    def _met(self, models: Models, placed: Sequence[Placed]) -> list[_Value]:
        with models.from_memory(), models.derivations.listening() as met:
            for first in range(0, len(placed), _BLOCK):
                self._derive(placed[first : first + _BLOCK])
        return [
            (kind, digest, value)
            for kind, by_digest in met.items()
            for digest, value in by_digest.items()
            if value is not None
        ]


def _keeps(services: Services) -> bool:
    """Whether the store has something of this ledger, as far as it answers."""
    settings, ledger = services.settings, services.ledger
    models = ENRICHMENT.models_here(settings)
    if settings.derivations_url is None or models is None:
        return False
    last_seqs = [tail.seq for tail in ledger.tails()]
    try:
        there = tally(
            settings, ledger.identity, models, last_seqs, within_s=settings.redis_timeout_s
        )
    except DerivationsUnavailable as error:
        logger.warning("derivations are left out", reason=str(error))
        return False
    return there is not None and there.derived > 0


def _page(owner: _Owner, values: Sequence[_Value], key: SubjectKey | None) -> tuple[bytes, bool]:
    """A page, and whether it is sealed."""
    told = {
        "tenant": owner.tenant,
        "consent": owner.consent,
        "values": [(kind, digest.hex(), len(value)) for kind, digest, value in values],
    }
    data = b"\n".join((orjson.dumps(told), b"".join(value for *_, value in values)))
    packed = zlib.compress(data)
    return (packed, False) if key is None else (seal(_PAGE, packed, key), True)


def _file(pages: Sequence[tuple[bytes, bool]]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns = {"page": [data for data, _ in pages], "sealed": [sealed for _, sealed in pages]}
    schema = pyarrow.schema([("page", pyarrow.binary()), ("sealed", pyarrow.bool_())])
    sink = io.BytesIO()
    table = pyarrow.table(columns, schema=schema)
    parquet.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue()


def _pages(data: bytes) -> Iterator[tuple[bytes, bool]]:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(pyarrow.BufferReader(data), use_threads=False)
    for page, sealed in zip(table["page"], table["sealed"], strict=True):
        yield page.as_py(), sealed.as_py()


def put_back(
    services: Services,
    files: ArchiveFiles,
    manifests: Iterable[Manifest],
    progress: Progress = lambda done, total, what: None,
) -> PutBack:
    """Put what was derived into the store of derivations, as far as it may be read.

    A restored ledger needs none of it: what is closed, damaged or not taken is made again.

    Args:
        services: whose Redis has the fences, and the keys of whoever is not erased.
        files: of a backup.
        manifests: of its segments.
        progress: called with done, total and what is being done.

    Raises:
        ArchiveUnavailable, LedgerUnavailable: a place is away.
    """
    settings, (values, closed, damaged) = services.settings, PutBack()
    places = [
        (manifest.partition, row)
        for manifest in manifests
        for row in manifest.rows
        if row.derivations
    ]
    vault = make_vault(settings, services.redis)
    fenced = vault.fences.read()
    with closing(Derivations(make_store(settings))) as store:
        for number, (partition, row) in enumerate(places if store.keeps else ()):
            progress(number, len(places), PUTTING_BACK)
            try:
                pages = list(_pages(files.derivations(partition, row)))
            except ArchiveDamaged as error:
                logger.warning("derivations are not as they were written", reason=str(error))
                damaged += 1
                continue
            for data, is_sealed in pages:
                page = _opened(data, vault) if is_sealed else data
                derived = None if page is None else _read(page, fenced)
                if derived is None:
                    closed += 1
                    continue
                for kind, by_digest in derived.items():
                    store.put(kind, by_digest)
                    values += len(by_digest)
        values -= store.unkept
    return PutBack(values, closed, damaged)


def _opened(data: bytes, vault: Vault) -> bytes | None:
    """A sealed page; None: its key is not at hand, or was destroyed."""
    try:
        key = vault.opening(sealed_by(data) or b"")
    except KeysUnavailable:
        return None
    return None if key is None else unseal(data, key)


def _read(page: bytes, fenced: Fenced) -> dict[Kind, dict[Digest, bytes]] | None:
    """The values of a page; None: consent to them was withdrawn."""
    head, _, data = zlib.decompress(page).partition(b"\n")
    told = orjson.loads(head)
    withheld = fenced.withheld.get(told["tenant"])
    consent = told["consent"]
    if withheld is not None and consent is not None and withheld.names(consent):
        return None
    by_kind: defaultdict[Kind, dict[Digest, bytes]] = defaultdict(dict)
    start = 0
    for kind, digest, length in told["values"]:
        by_kind[kind][bytes.fromhex(digest)] = data[start : start + length]
        start += length
    return by_kind
