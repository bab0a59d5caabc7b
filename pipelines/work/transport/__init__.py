"""Faust over Redis Streams: a block of entries is one event, a lease decides who reads.

Read in this order: `lane` (one partition, and its life here), `group` (who reads it), `consumer`
(reading, acknowledging, sharing, and the transport that Faust sees).
"""

from pipelines.work.transport.consumer import LEDGER_TOPIC, LOOPS, BlockSchema, Consumer, Transport
from pipelines.work.transport.group import Positions

__all__ = ["LEDGER_TOPIC", "LOOPS", "BlockSchema", "Consumer", "Positions", "Transport"]
