"""Faust's consumer without what has no meaning here: offsets to seek, topics to make, buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faust.transport import base
from faust.types import TP


class LedgerConsumer(base.Consumer):
    """Answers what Faust asks of a consumer and the ledger has no use for."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Nothing: the keepers start at the checkpoints."""
        return {}

    def on_buffer_full(self, tp: TP) -> None:
        """Nothing: the inherited one ends in a sleep of a second; what is in flight is bounded."""

    on_buffer_drop = on_buffer_full

    def _unused(self, *_: Any, **__: Any) -> Any:
        """Called by tables, by the producer or by the inherited reader, none of which is here."""
        raise NotImplementedError("not a part of Faust that works over the ledger")

    _commit = _getmany = _seek = _to_message = _new_topicpartition = _unused
    position = highwater = highwaters = earliest_offsets = seek_wait = _unused
    topic_partitions = key_partition = create_topic = _unused
