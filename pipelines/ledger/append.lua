-- Appends events in order, each wholly or not at all. The only writer of the ledger.
--
-- ARGV: the latest time that the caller believes (ms u64) and the id of the request or '', a
-- record for each event joined into one string (key digest 16 B, content digest 16 B, partition
-- u16, fence 16 B, looked u64), then the canonical JSON of each. Reply, one string:
-- the clock's ms u64 and the seq u32 before the first new event, the others follow it in order;
-- then a record for each event that is not new: its index u16 from 0, status u8, and the place
-- (partition u16, ms u64, seq u32) of a known one. All big-endian. Few parts both ways, because
-- each of them costs Redis, and redis-py, more than its bytes.
--
-- Of archived events only a few bytes of the key are here (`archived_ids.py`). Where events may be
-- among them, nothing is appended: the reply has a record for each place where one may stand
-- (partition, 0, number of the entry). The caller reads these, and sends those events again that
-- stand at none of them; `looked` says which places that were: the sum of their last five bytes.
--
-- The text is loaded by admission alone, with the server process and the epoch it admitted
-- written into it (@…@). So a process that nobody admitted does not know the script (NOSCRIPT),
-- or, having been promoted or demoted since, carries another replication id: NOTADMITTED.
local EPOCH_KEY, CLOCK_KEY, BUCKET_KEY = '@PREFIX@:epoch', '@PREFIX@:clock', '@PREFIX@:ids:%d'
local STREAM_KEY, SEQ_KEY = '{@PREFIX@:%d}:ledger', '{@PREFIX@:%d}:seq'
local RESTORED_KEY, FAULTS_KEY = '{@PREFIX@:%d}:restored', '@PREFIX@:faults'
local ARCHIVED_KEY = '{@PREFIX@:%d}:archived'
local FENCES_KEY = '@PREFIX@:fences'
local ARCHIVE_KEY, ARCHIVED_IDS_KEY = '@PREFIX@:archive', '@PREFIX@:archived-ids'
local ITEMS_KEY = '@PREFIX@:archived-ids:%d'
local BUCKETS, REPLICATION = @BUCKETS@, 'master_replid:@REPLICATION_ID@'
local DUPLICATE, CONFLICT, HALTED, RESTORED, HOMELESS = '\1', '\2', '\3', '\4', '\5'
local FENCED, MAYBE = '\6', '\7'
local RECORD, RECORD_BYTES = '>c16c16Hc16I8', 58
local NOWHERE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- `format` makes text of a number in a third of the time that `..` takes.
local byte, sub, format, find = string.byte, string.sub, string.format, string.find
local pack, record, call, try = struct.pack, struct.unpack, redis.call, redis.pcall

if call('HGET', EPOCH_KEY, 'number') ~= '@EPOCH@'
    or not find(call('INFO', 'replication'), REPLICATION, 1, true) then
  return redis.error_reply('NOTADMITTED this server process is not admitted to the ledger')
end

-- One clock for all partitions, that never goes back, whatever the server's time does.
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- A server whose time is far ahead would date all positions after it, for as long as it takes.
local limit = record('>I8', ARGV[1])
if now > limit then
  return redis.error_reply(format('CLOCKAHEAD %.0f', now - limit))
end
local ms, n = string.match(call('GET', CLOCK_KEY) or '0-0', '^(%d+)-(%d+)$')
ms, n = tonumber(ms), tonumber(n)
-- The first place of a millisecond is left empty: so the seq before the first new one is no -1.
if now > ms then ms, n = now, 0 end
local first, id_format = n, format('%.0f-', ms) .. '%d'

local request, records = sub(ARGV[1], 9), ARGV[2]
local halted, streams, seqs, grown = {}, {}, {}, {}
-- An event is fenced off whose tenant is sealed and it is not, or which is about somebody erased.
-- In the one call that appends: whatever a client believed before, nothing gets past a fence.
local fences, fenced = call('EXISTS', FENCES_KEY) == 1, {}
local reply = { pack('>I8I4', ms, n) }

local function number(entry)
  return entry and tonumber(entry[2][4])
end

local function open(partition)
  halted[partition] = call('HEXISTS', EPOCH_KEY, 'halted:' .. partition) == 1
  streams[partition] = format(STREAM_KEY, partition)
  local last = call('GET', format(SEQ_KEY, partition))
  -- A counter that vanished must not give numbers out again.
  last = last or number(call('XREVRANGE', streams[partition], '+', '-', 'COUNT', 1)[1])
  seqs[partition] = tonumber(last or 0)
end

-- Whether a stream entry is as `append` wrote it, whatever its number; of before there were
-- digests in it, too.
local function is_whole(entry, digest, data)
  local held = entry and entry[2]
  return held and held[1] == 'e' and held[2] == data and held[3] == 's' and number(entry)
    and (held[5] == 'd' and held[6] == digest or not held[5] or held[5] == 'r')
end

-- Of the last archived entry of a partition: number, ms and seq of its position.
local function archived(partition)
  local boundary = call('GET', format(ARCHIVED_KEY, partition)) or ''
  local seq, ms, n = string.match(boundary, '^(%d+) (%d+)-(%d+) ')
  return tonumber(seq or 0), tonumber(ms or 0), tonumber(n or 0)
end

-- An entry that is not, or no more, what was appended is put right beside the stream, which takes
-- nothing in between. The number of one that the index does not tell follows from its neighbours.
-- One that is archived is whole, unless the archiver has noted a fault.
local function put_right(known, digest, data)
  local partition, ms, n = record('>HI8I4', known, 17)
  local seq = #known > 30 and record('>I4', known, 31) or nil
  local key, id = format(STREAM_KEY, partition), format('%.0f-%d', ms, n)
  local held = call('XRANGE', key, id, id)[1]
  local whole = is_whole(held, digest, data)
  if whole and (not seq or seq == number(held)) then return DUPLICATE end
  local last_archived, archived_ms, archived_n = archived(partition)
  if ms < archived_ms or ms == archived_ms and n <= archived_n then
    if not seq or call('HEXISTS', FAULTS_KEY, partition .. ':' .. seq) == 0 then
      return DUPLICATE
    end
  end
  local before = call('XREVRANGE', key, '(' .. id, '-', 'COUNT', 1)[1]
  local expected = before and (number(before) or 0) + 1 or last_archived + 1
  if whole and number(held) == expected then return DUPLICATE end
  if not seq then
    local after = number(call('XRANGE', key, '(' .. id, '+', 'COUNT', 1)[1])
      or tonumber(call('GET', format(SEQ_KEY, partition)) or 0) + 1
    if after ~= expected + 1 then return HOMELESS end
    seq = expected
  end
  local value = pack('>c16I8I4', digest, ms, n) .. data
  local restored = format(RESTORED_KEY, partition)
  if call('HGET', restored, seq) == value then return DUPLICATE end
  call('HSET', restored, seq, value)
  call('HDEL', FAULTS_KEY, partition .. ':' .. seq)
  return RESTORED
end

local function is_fenced(fence)
  if fences and fenced[fence] == nil then
    fenced[fence] = call('HEXISTS', FENCES_KEY, fence) == 1
  end
  return fenced[fence]
end

-- Of the key that begins behind a place in a string.
local function bucket_of(text, start)
  local b1, b2, b3, b4 = byte(text, start + 1, start + 4)
  return (((b1 * 256 + b2) * 256 + b3) * 256 + b4) % BUCKETS
end

-- Tells where among archived events one may be that has no row in the index.
local function look(index, items)
  local start = index * RECORD_BYTES
  local print = sub(records, start + 5, start + 7)
  local at = find(items, print, 1, true)
  if not at then return end
  local field, _, _, fence, looked = record(RECORD, records, start + 1)
  local places, sum = {}, 0
  while at do
    local seq = at % 8 == 1 and record('>I4', items, at + 4) or 0
    if seq > 0 then
      places[#places + 1] = pack('>I2c1HI8I4', index, MAYBE, byte(items, at + 3), 0, seq)
      sum = sum + record('>I5', items, at + 3)
    end
    at = find(items, print, at + 1, true)
  end
  if #places == 0 or sum == looked or is_fenced(fence)
      or call('HEXISTS', format(BUCKET_KEY, bucket_of(field, 0)), field) == 1 then
    return
  end
  reply[#reply + 1] = table.concat(places)
end

-- Either key says that there may be some: none of them alone can be lost and double an event.
if call('EXISTS', ARCHIVE_KEY, ARCHIVED_IDS_KEY) > 0 then
  local names = {}
  for i = 1, #ARGV - 2 do
    names[i] = format(ITEMS_KEY, bucket_of(records, (i - 1) * RECORD_BYTES))
  end
  for i, items in ipairs(call('MGET', unpack(names))) do
    if items then look(i - 1, items) end
  end
  if #reply > 1 then return table.concat(reply) end
end

local function append(index, data)
  local field, digest, partition, fence = record(RECORD, records, index * RECORD_BYTES + 1)
  if is_fenced(fence) then
    reply[#reply + 1] = pack('>I2', index) .. FENCED .. NOWHERE
    return
  end
  if not streams[partition] then open(partition) end
  local bucket = format(BUCKET_KEY, bucket_of(field, 0))
  local seq = seqs[partition] + 1
  -- Index first: one call tells whether the event is new, and takes its place.
  if halted[partition] or call('HSETNX', bucket, field,
      pack('>c16HI8I4I4', digest, partition, ms, n + 1, seq)) == 0 then
    local known = call('HGET', bucket, field)
    local status = HALTED
    if known then
      status = sub(known, 1, 16) == digest and put_right(known, digest, data) or CONFLICT
    end
    reply[#reply + 1] = pack('>I2', index) .. status .. (known and sub(known, 17, 30) or NOWHERE)
    return
  end
  local id, added = format(id_format, n + 1), nil
  if request == '' then
    added = try('XADD', streams[partition], id, 'e', data, 's', seq, 'd', digest)
  else
    added = try('XADD', streams[partition], id, 'e', data, 's', seq, 'd', digest, 'r', request)
  end
  if type(added) == 'table' then
    call('HDEL', bucket, field)
    error(added)
  end
  n, seqs[partition], grown[partition] = n + 1, seq, true
end

-- What fails fails between two events: the numbers of those before it are written all the same.
local done, problem = pcall(function()
  for i = 3, #ARGV do append(i - 3, ARGV[i]) end
end)
if n > first then
  local numbers = { CLOCK_KEY, format(id_format, n) }
  for partition in pairs(grown) do
    numbers[#numbers + 1] = format(SEQ_KEY, partition)
    numbers[#numbers + 1] = format('%.0f', seqs[partition])
  end
  call('MSET', unpack(numbers))
end
if not done then
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
return table.concat(reply)
