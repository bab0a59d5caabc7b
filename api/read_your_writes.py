"""Read your writes: wait until the graph has a position, without holding a thread meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio

from api.dependencies import Deadline, Services
from pipelines.ledger.ledger import Ledger
from pipelines.work.stages import PROJECTION
from projections.errors import QueryTimeout
from projections.positions import START, Position

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.1


async def begin_read(services: Services, timeout_ms: int, min_position: str | None) -> Deadline:
    """The time limit of a read, begun; returns when the graph has what the caller wants to see.

    Args:
        services: whose graph.
        timeout_ms: of the whole read.
        min_position: of the newest event that the caller must see; None: whatever is there.

    Raises:
        QueryTimeout, LedgerUnavailable, GraphUnavailable: as `wait_until_projected`.
    """
    deadline = Deadline(timeout_ms)
    if min_position is not None:
        await wait_until_projected(services, Position.parse(min_position), deadline)
    return deadline


async def wait_until_projected(services: Services, position: Position, deadline: Deadline) -> None:
    """Return when the active target has the event at `position`.

    Looks at the checkpoint of the event's partition alone. When no entry stands at the position
    (it was lost, or is that of no event), every partition must have passed it.

    Raises:
        QueryTimeout: it does not have it in time.
        LedgerUnavailable: Redis is away.
        GraphUnavailable: Neo4j is away.
    """
    ledger = services.ledger()
    partition = await services.read(
        lambda: _partition_of(ledger, position), timeout_ms=deadline.remaining_ms()
    )

    def projected() -> bool:
        # Tails first: what comes meanwhile lies behind the position that is waited for.
        tails = None if partition is not None else ledger.tails()
        with services.connections.graph.reader() as reader:
            checkpoints = reader.read(
                lambda graph: graph.checkpoints(PROJECTION.name), timeout_ms=deadline.remaining_ms()
            )
        reached = {item.partition: item.position for item in checkpoints}
        if tails is None:
            return partition is not None and reached.get(partition, START) >= position
        return have_passed(reached, [tail.position for tail in tails], position)

    pause_s = _FIRST_PAUSE_S
    while not await services.read(projected, timeout_ms=deadline.remaining_ms()):
        if deadline.remaining_ms() / 1000 <= pause_s:
            raise QueryTimeout(timeout_ms=deadline.timeout_ms, reason="not projected yet")
        await anyio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


def _partition_of(ledger: Ledger, position: Position) -> int | None:
    """Which partition has the entry; positions are unique over all of them."""
    for partition in range(ledger.partitions):
        if ledger.entry_at(partition, position) is not None:
            return partition
    return None


def have_passed(
    reached: Mapping[int, Position], tails: Sequence[Position], position: Position
) -> bool:
    """Whether everything up to `position`, of all partitions, is projected.

    A position behind the last entry of the ledger has not been given out: nothing has passed it.

    Args:
        reached: partition → position of its checkpoint.
        tails: position of each partition's last entry.
        position: waited for.
    """
    return max(tails, default=START) >= position and all(
        reached.get(partition, START) >= min(tail, position) for partition, tail in enumerate(tails)
    )
