-- Appends events in order, each wholly or not at all. The only writer of the ledger.
--
-- ARGV: the id of the request or '', a record for each event joined into one string (key digest
-- 16 B, content digest 16 B, partition u16), then the canonical JSON of each. Reply, one string:
-- the clock's ms u64 and the seq u32 before the first new event, the others follow it in order;
-- then a record for each event that is not new: its index u16 from 0, status u8, and the place
-- (partition u16, ms u64, seq u32) of a known one. All big-endian. Few parts both ways, because
-- each of them costs Redis, and redis-py, more than its bytes.
--
-- The text is loaded by admission alone, with the server process and the epoch it admitted
-- written into it (@…@). So a process that nobody admitted does not know the script (NOSCRIPT),
-- or, having been promoted or demoted since, carries another replication id: NOTADMITTED.
local EPOCH_KEY, CLOCK_KEY, BUCKET_KEY = '@PREFIX@:epoch', '@PREFIX@:clock', '@PREFIX@:ids:%d'
local STREAM_KEY, SEQ_KEY = '{@PREFIX@:%d}:ledger', '{@PREFIX@:%d}:seq'
local BUCKETS, REPLICATION = @BUCKETS@, 'master_replid:@REPLICATION_ID@'
local DUPLICATE, CONFLICT, HALTED = '\1', '\2', '\3'
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
local ms, n = string.match(call('GET', CLOCK_KEY) or '0-0', '^(%d+)-(%d+)$')
ms, n = tonumber(ms), tonumber(n)
-- The first place of a millisecond is left empty: so the seq before the first new one is no -1.
if now > ms then ms, n = now, 0 end
local first, id_format = n, format('%.0f-', ms) .. '%d'

local request, records = ARGV[1], ARGV[2]
local halted, streams, seqs = {}, {}, {}
local reply = { pack('>I8I4', ms, n) }

local function open(partition)
  halted[partition] = call('HEXISTS', EPOCH_KEY, 'halted:' .. partition) == 1
  streams[partition] = format(STREAM_KEY, partition)
end

local function append(index, data)
  local field, digest, partition = record('>c16c16H', records, index * 34 + 1)
  if not streams[partition] then open(partition) end
  local b1, b2, b3, b4 = byte(field, 1, 4)
  local bucket = format(BUCKET_KEY, (((b1 * 256 + b2) * 256 + b3) * 256 + b4) % BUCKETS)
  -- Index first: one call tells whether the event is new, and takes its place.
  if halted[partition] or call('HSETNX', bucket, field,
      pack('>c16HI8I4', digest, partition, ms, n + 1)) == 0 then
    local known = call('HGET', bucket, field)
    local status = HALTED
    if known then status = sub(known, 1, 16) == digest and DUPLICATE or CONFLICT end
    reply[#reply + 1] = pack('>I2', index) .. status .. (known and sub(known, 17, 30) or NOWHERE)
    return
  end
  local seq = (seqs[partition] or tonumber(call('GET', format(SEQ_KEY, partition)) or 0)) + 1
  local id, added = format(id_format, n + 1), nil
  if request == '' then
    added = try('XADD', streams[partition], id, 'e', data, 's', seq)
  else
    added = try('XADD', streams[partition], id, 'e', data, 's', seq, 'r', request)
  end
  if type(added) == 'table' then
    call('HDEL', bucket, field)
    error(added)
  end
  n, seqs[partition] = n + 1, seq
end

-- What fails fails between two events: the numbers of those before it are written all the same.
local done, problem = pcall(function()
  for i = 3, #ARGV do append(i - 3, ARGV[i]) end
end)
if n > first then
  local numbers = { CLOCK_KEY, format(id_format, n) }
  for partition, seq in pairs(seqs) do
    numbers[#numbers + 1] = format(SEQ_KEY, partition)
    numbers[#numbers + 1] = format('%.0f', seq)
  end
  call('MSET', unpack(numbers))
end
if not done then
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
return table.concat(reply)
