"""Whether anything of a user is left: what every store answers, and what stands in its files.

Nothing is kept of what somebody said, so the files can be searched for the user's name alone, and
for words that whoever asks still knows.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipelines.graph.port import Graph
from pipelines.ledger.erasing import every_entry
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.sealing import Subject, sealed_by
from pipelines.ledger.vault import SEALED
from pipelines.work.services import Services
from projections.events import canonical_json
from projections.schema import CHECKPOINT, EDGES, NODES

FEWEST_CHARACTERS: Final = 4
"""Of a word that is looked for: shorter ones stand in everything."""
_NEVER: Final = ("keys.sqlite", ".lock")
"""Ends of names of files that hold nothing of anybody."""


class Traces(NamedTuple):
    """How often somebody was found, by where; where nothing was, the number is 0.

    Attributes:
        ledger: entries that can still be read, or name the user openly.
        graphs: nodes and edges, by target.
        files: that hold the name or a word, by path.
    """

    ledger: int
    graphs: dict[str, int]
    files: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.ledger or any(self.graphs.values()) or self.files)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **self._asdict()}


def traces(services: Services, tenant: str, user: str, words: Sequence[str] = ()) -> Traces:
    """Look for a user of a tenant everywhere; reads all of the ledger, the graphs and the files.

    Args:
        services: ledger, targets, and the data folder, if its files are here.
        tenant: whose user.
        user: the id.
        words: that only this user said, of `FEWEST_CHARACTERS` at least.

    Raises:
        KeysUnavailable, LedgerUnavailable, GraphUnavailable: a service is away.
    """
    needles = [user, *words]
    return Traces(
        _in_ledger(services.ledger, tenant, user, needles),
        {
            target.name: _in_graph(services.graph(target), tenant, user, words)
            for target in services.targets.all()
        },
        _in_files(services.settings.data_dir, needles),
    )


def _in_ledger(ledger: Ledger, tenant: str, user: str, needles: Sequence[str]) -> int:
    """Entries that the key of the user opens, and plain ones of the tenant with a needle."""
    vault = ledger.vault
    vault.renew()
    key_id = None
    if vault.known().tenants.get(tenant) == SEALED:
        key_id = vault.key_id(tenant, Subject("user", user))
        if vault.require_store().get([key_id]).get(key_id) is None:
            key_id = None
    plain = [canonical_json(needle)[1:-1] for needle in needles]
    count = 0
    for entry in every_entry(ledger):
        sealed = sealed_by(entry.data)
        if sealed is not None:
            count += sealed == key_id
        elif any(needle in entry.data for needle in plain):
            count += entry.tenant == tenant
    return count


def _in_graph(graph: Graph, tenant: str, user: str, words: Iterable[str]) -> int:
    """Nodes and edges with a property that is the user's id, or has one of the words."""
    lowered = [word.casefold() for word in words]
    count = 0
    names = {label: [p.name for p in row.stored()] for label, row in NODES.items()}
    names |= {type_: [p.name for p in row.properties] for type_, row in EDGES.items()}
    del names[CHECKPOINT.label]
    for name, properties in names.items():
        for item in graph.stream(name, properties, tenants=(tenant,)):
            texts = [text for value in item.values.values() for text in _texts(value)]
            count += user in texts or any(
                word in text.casefold() for text in texts for word in lowered
            )
    return count


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from (part for part in value if isinstance(part, str))


def _in_files(folder: Path, needles: Iterable[str]) -> dict[str, int]:
    """How many of the needles each file of a folder has; files without any are left out."""
    wanted = [needle.encode() for needle in needles if len(needle) >= FEWEST_CHARACTERS]
    counts: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or path.name.endswith(_NEVER):
            continue
        if path.stat().st_size and (hits := _hits(path, wanted)):
            counts[str(path.relative_to(folder))] = hits
    return dict(counts)


def _hits(path: Path, needles: Iterable[bytes]) -> int:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return sum(data.find(needle) >= 0 for needle in needles)
    except (OSError, ValueError):  # it went away meanwhile, or is empty by now
        return 0
