"""Faust over Redis Streams: a block of entries is one event, a lease decides who reads.

Read in this order: `lane` (one partition), `leases` (who reads it), `keeper` (its life here),
`consumer` (reading, acknowledging, sharing), `transport` (what Faust sees).
"""

from pipelines.work.transport.consumer import LEDGER_TOPIC, LOOPS, Consumer
from pipelines.work.transport.group import Positions, Start
from pipelines.work.transport.transport import BlockSchema, Transport

__all__ = ["LEDGER_TOPIC", "LOOPS", "BlockSchema", "Consumer", "Positions", "Start", "Transport"]
