-- Appends events in order, each wholly or not at all. The only writer of the ledger.
--
-- ARGV: for each event a header (key digest 16 B, content digest 16 B, partition u16, and the id
-- of the request if there is one) and its canonical JSON. Reply, one string: the clock's ms u64 and the seq u32 before the first new
-- event, the others follow it in order; then a record for each event that is not new: its index
-- u16 from 0, status u8, and the place (partition u16, ms u64, seq u32) of a known one. All big-
-- endian. Short, because redis-py spends longer on a reply of many parts than Redis on making it.
--
-- The text is loaded by admission alone, with the server process and the epoch it admitted
-- written into it (@…@). So a process that nobody admitted does not know the script (NOSCRIPT),
-- or, having been promoted or demoted since, carries another replication id: NOTADMITTED.
local PREFIX, EPOCH, REPLICATION_ID = '@PREFIX@', '@EPOCH@', '@REPLICATION_ID@'
local IDS, BUCKETS = '@PREFIX@:ids:', @BUCKETS@
local DUPLICATE, CONFLICT, HALTED = '\1', '\2', '\3'

local halted, epoch = {}, nil
local fields = redis.call('HGETALL', PREFIX .. ':epoch')
for i = 1, #fields, 2 do
  if fields[i] == 'number' then
    epoch = fields[i + 1]
  elseif string.sub(fields[i], 1, 7) == 'halted:' then
    halted[tonumber(string.sub(fields[i], 8))] = true
  end
end
local replication = redis.call('INFO', 'replication')
if epoch ~= EPOCH or not string.find(replication, 'master_replid:' .. REPLICATION_ID, 1, true) then
  return redis.error_reply('NOTADMITTED this server process is not admitted to the ledger')
end

-- One clock for all partitions, that never goes back, whatever the server's time does.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ms, n = string.match(redis.call('GET', PREFIX .. ':clock') or '0-0', '^(%d+)-(%d+)$')
ms, n = tonumber(ms), tonumber(n)
-- The first place of a millisecond is left empty: so the seq before the first new one is no -1.
if now > ms then ms, n = now, 0 end
local ms_text, ms_bytes = string.format('%.0f-', ms), struct.pack('>I8', ms)

local byte, sub, pack, call = string.byte, string.sub, struct.pack, redis.call
local streams, seqs = {}, {}
local reply = { ms_bytes .. pack('>I4', n) }

local function open(partition)
  local key = '{' .. PREFIX .. ':' .. partition .. '}'
  streams[partition] = key .. ':ledger'
  seqs[partition] = tonumber(call('GET', key .. ':seq') or 0)
end

local function append(index, header, data)
  local b1, b2, b3, b4 = byte(header, 1, 4)
  local high, low = byte(header, 33, 34)
  local partition = high * 256 + low
  local bucket, field = IDS .. (((b1 * 256 + b2) * 256 + b3) * 256 + b4) % BUCKETS,
    sub(header, 1, 16)
  -- Index first: one call tells whether the event is new, and takes its place.
  if halted[partition] or call('HSETNX', bucket, field,
      sub(header, 17, 34) .. ms_bytes .. pack('>I4', n + 1)) == 0 then
    local known = call('HGET', bucket, field)
    local status = HALTED
    if known then status = sub(known, 1, 16) == sub(header, 17, 32) and DUPLICATE or CONFLICT end
    reply[#reply + 1] = pack('>I2', index) .. status .. sub(known or header, 17, 30)
    return
  end
  if not streams[partition] then open(partition) end
  local seq = seqs[partition] + 1
  local id, request, added = ms_text .. (n + 1), sub(header, 35), nil
  if request == '' then
    added = redis.pcall('XADD', streams[partition], id, 'e', data, 's', seq)
  else
    added = redis.pcall('XADD', streams[partition], id, 'e', data, 's', seq, 'r', request)
  end
  if type(added) == 'table' then
    call('HDEL', bucket, field)
    error(added)
  end
  n, seqs[partition] = n + 1, seq
end

-- What fails fails between two events: the numbers of those before it are written all the same.
local done, problem = pcall(function()
  for i = 1, #ARGV, 2 do append((i - 1) / 2, ARGV[i], ARGV[i + 1]) end
end)
if next(seqs) then
  call('SET', PREFIX .. ':clock', ms_text .. n)
  for partition, seq in pairs(seqs) do
    call('SET', '{' .. PREFIX .. ':' .. partition .. '}:seq', string.format('%.0f', seq))
  end
end
if not done then
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
return table.concat(reply)
