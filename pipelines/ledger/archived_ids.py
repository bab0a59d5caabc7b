"""Where archived events stand, by their ids: 8 bytes of Redis each, instead of a row of 50.

A row of the id index holds an event's whole key, its content's digest and its place. What is
archived can be read again, so of it three bytes of the key are enough, and partition and number of
the entry: who looks for an event reads the few entries that they lead to, and sees which it is. Of
10,000,000 events in 32,768 buckets three bytes lead to a wrong one in 1 of 55,000 cases; that costs
a look into a segment, and never an answer.

A bucket has one string of such items, in the order in which they came. `append.lua` reads it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Self

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import Entry, LedgerKeys, bucket_of

_ITEM: Final = Struct(">3sBI")
_RECORD: Final = Struct(">16sI")
_PRINT: Final = slice(4, 7)
"""Of a key: its first four bytes name the bucket."""
PACKED_AT_ONCE: Final = 500
"""Entries of one call, which keeps Redis for a millisecond or two."""

# KEYS: up to where rows were packed, boundary. ARGV: partition, boundary expected, number expected,
# number afterwards, then key and number of each entry, joined. An item is written into the room
# behind the others, which grows by an eighth: Redis would double it, and write the whole string to
# its file each time. Runs when Redis is full: it is what makes room.
_PACK = """#!lua flags=allow-oom
local call, sub, find = redis.call, string.sub, string.find
local upto, partition = KEYS[1], tonumber(ARGV[1])
if (call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end
local last = call('HGET', upto, partition) or '0'
if last ~= ARGV[3] then return last == ARGV[4] and 1 or 0 end

local function put(name, item)
  local items = call('GET', name) or ''
  local at = find(items, item, 1, true)
  while at and at % 8 ~= 1 do at = find(items, item, at + 1, true) end
  if at then return end
  local used = #items
  while used > 0 and sub(items, used - 3, used) == '\\0\\0\\0\\0' do used = used - 8 end
  if used < #items then
    call('SETRANGE', name, used, item)
  else
    call('SET', name, items .. item .. string.rep('\\0', 8 * math.floor(used / 64)))
  end
end

for i = 1, #ARGV[5], 20 do
  local key, seq = struct.unpack('>c16I4', ARGV[5], i)
  local b1, b2, b3, b4 = string.byte(key, 1, 4)
  local bucket = (((b1 * 256 + b2) * 256 + b3) * 256 + b4) % @BUCKETS@
  local ids = '@PREFIX@:ids:' .. bucket
  local row = call('HGET', ids, key)
  -- A row that names another place is told by `recollect check`, and stays.
  if not row or sub(row, 17, 18) .. sub(row, 31) == struct.pack('>I2I4', partition, seq) then
    put('@PREFIX@:archived-ids:' .. bucket, sub(key, 5, 7) .. struct.pack('>I1I4', partition, seq))
    if row then call('HDEL', ids, key) end
  end
end
call('HSET', upto, partition, ARGV[4])
return 1
"""

_REPLACE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class Item(NamedTuple):
    """Where an event may stand.

    Attributes:
        print: three bytes of its key.
        partition: of the entry.
        seq: number of the entry.
    """

    print: bytes
    partition: int
    seq: int

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Of an archived entry."""
        return cls(entry.key[_PRINT], entry.partition, entry.seq)

    @property
    def place(self) -> int:
        """Its last five bytes; `append.lua` sums them up, too."""
        return self.partition << 32 | self.seq

    def packed(self) -> bytes:
        """As it stands in Redis."""
        return _ITEM.pack(*self)


def items_in(value: bytes | None) -> Iterator[Item]:
    """Those of a bucket's string, without the room behind them; what is cut off is none."""
    whole = (value or b"")[: len(value or b"") // _ITEM.size * _ITEM.size]
    return (item for item in map(Item._make, _ITEM.iter_unpack(whole)) if item.seq)


def items_of(value: bytes | None, key: bytes) -> list[Item]:
    """Those that may be of an event."""
    if value is None or key[_PRINT] not in value:
        return []
    return [item for item in items_in(value) if item.print == key[_PRINT]]


def has_item(value: bytes | None, item: Item) -> bool:
    """Whether a bucket's string has an item."""
    packed, value = item.packed(), value or b""
    at = value.find(packed)
    while at >= 0 and at % _ITEM.size:
        at = value.find(packed, at + 1)
    return at >= 0


class ArchivedIds:
    """Moves rows of the id index there. All methods raise LedgerUnavailable: Redis is away.

    Args:
        client: of the ledger's Redis.
        keys: names of its keys.
        id_buckets: of the ledger's id index.
    """

    def __init__(self, client: redis.Redis, keys: LedgerKeys, *, id_buckets: int) -> None:
        self.id_buckets = id_buckets
        self._keys = keys
        text = _PACK.replace("@PREFIX@", keys.prefix).replace("@BUCKETS@", str(id_buckets))
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._pack: Any = self._redis.register_script(text)

    def packed_up_to(self, partitions: int) -> list[int]:
        """Of each partition the number up to which archived entries have no row any more."""
        told = call_patiently(lambda: self._redis.hgetall(self._keys.archived_ids_upto))
        return [int(told.get(b"%d" % partition, 0)) for partition in range(partitions)]

    def pack(self, boundary: str, entries: Sequence[Entry], *, upto: int | None = None) -> bool:
        """Put items in place of the rows of archived entries; twice is as once.

        Those that are held out keep their rows: nobody could see which event they are of.

        Args:
            boundary: of the partition, as the caller knows it.
            entries: of one partition, without a gap, at most `PACKED_AT_ONCE`.
            upto: number up to which rows were packed; None: the one before these entries.

        Returns:
            Whether boundary and number were those.
        """
        first, last = entries[0], entries[-1]
        records = b"".join(
            _RECORD.pack(entry.key, entry.seq) for entry in entries if not entry.fault
        )
        before = first.seq - 1 if upto is None else upto
        after = last.seq if upto is None else upto
        names = [self._keys.archived_ids_upto, self._keys.archived(first.partition)]
        arguments = [first.partition, boundary, before, after, records]
        return bool(call_patiently(lambda: self._pack(keys=names, args=arguments)))

    def values(self, buckets: Sequence[int]) -> list[bytes | None]:
        """What stands in some buckets."""
        names = [self._keys.archived_ids(bucket) for bucket in buckets]
        return list(call_patiently(lambda: self._redis.mget(names)))

    def values_of(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What stands in the buckets of some events."""
        return self.values([bucket_of(key, self.id_buckets) for key in keys])

    def replace(self, bucket: int, before: bytes, items: Sequence[Item]) -> bool:
        """Write a bucket anew, if it still is as the caller has read it."""
        after = b"".join(item.packed() for item in items)
        arguments = (self._keys.archived_ids(bucket), before, after)
        return bool(call_patiently(lambda: self._redis.eval(_REPLACE, 1, *arguments)))
