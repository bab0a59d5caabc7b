"""Faust over Redis Streams: a block of entries is one event, a lease decides who reads.

Read in this order: `lane` (one partition), `leases` (who reads it), `consumer` (the reader and
the keepers), `transport` (what Faust sees).
"""

from pipelines.transport.consumer import LEDGER_TOPIC, Consumer
from pipelines.transport.transport import BlockSchema, Positions, Start, Transport

__all__ = ["LEDGER_TOPIC", "BlockSchema", "Consumer", "Positions", "Start", "Transport"]
