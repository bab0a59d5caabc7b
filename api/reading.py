"""Read your writes: wait until the graph has a position, without holding a thread meanwhile."""

from __future__ import annotations

import anyio

from api.dependencies import Deadline, Services
from api.watch import INGEST_STAGE
from projections.errors import QueryTimeout
from projections.operations import Checkpoint
from projections.positions import Position

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.1


async def wait_until_projected(services: Services, position: Position, deadline: Deadline) -> None:
    """Return when the active target has the event at `position`.

    Looks at the checkpoint of the event's partition; when no entry stands at the position, every
    partition must have passed it.

    Raises:
        QueryTimeout: it does not have it in time.
        LedgerUnavailable: Redis is away.
        GraphUnavailable: Neo4j is away.
    """
    connections = services.connections
    partitions = await services.read(
        lambda: [
            partition
            for partition in range(connections.ledger.partitions)
            if connections.ledger.entry_at(partition, position) is not None
        ],
        timeout_ms=deadline.remaining_ms(),
    )
    wanted = partitions or list(range(connections.ledger.partitions))

    def projected() -> bool:
        with connections.graph.reader() as reader:
            checkpoints = reader.read(
                lambda graph: graph.checkpoints(INGEST_STAGE), timeout_ms=deadline.remaining_ms()
            )
        return has_passed(checkpoints, wanted, position)

    pause_s = _FIRST_PAUSE_S
    while not await services.read(projected, timeout_ms=deadline.remaining_ms()):
        left_s = deadline.remaining_ms() / 1000
        if left_s <= pause_s:
            raise QueryTimeout(timeout_ms=deadline.timeout_ms, reason="not projected yet")
        await anyio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


def has_passed(checkpoints: list[Checkpoint], partitions: list[int], position: Position) -> bool:
    """Whether all of the partitions are projected up to `position`."""
    reached = {item.partition: item.position for item in checkpoints}
    return all(partition in reached and reached[partition] >= position for partition in partitions)
