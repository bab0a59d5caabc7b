-- Appends events in order, each wholly or not at all. The only writer of the ledger.
--
-- ARGV: for each event a header (partition u16, key digest 16 B, content digest 16 B; big-endian)
-- and its canonical JSON. Reply: one string, for each event a record of 15 bytes: status u8,
-- partition u16, ms u64, seq u32 of its position. One string, because a client in Python spends
-- longer on parsing a reply of many parts than Redis on making it.
--
-- The text is loaded by admission alone, with the server process and the epoch it admitted
-- written into it (@…@). So a process that nobody admitted does not know the script (NOSCRIPT),
-- or, having been promoted or demoted since, carries another replication id: NOTADMITTED.
local PREFIX, EPOCH, REPLICATION_ID = '@PREFIX@', '@EPOCH@', '@REPLICATION_ID@'
local BUCKETS = @BUCKETS@
local APPENDED, DUPLICATE, CONFLICT, HALTED = '\0', '\1', '\2', '\3'

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
if now > ms then ms, n = now, -1 end
local ms_text = string.format('%.0f', ms)

local seqs, reply = {}, {}

local function append(header, data)
  local high, low, b1, b2, b3, b4 = string.byte(header, 1, 6)
  local partition = high * 256 + low
  local field, content = string.sub(header, 3, 18), string.sub(header, 19, 34)
  local bucket = PREFIX .. ':ids:' .. (((b1 * 256 + b2) * 256 + b3) * 256 + b4) % BUCKETS
  local known = redis.call('HGET', bucket, field)
  if known then
    local same = string.sub(known, 15, 30) == content
    return (same and DUPLICATE or CONFLICT) .. string.sub(known, 1, 14)
  end
  if halted[partition] then return HALTED .. struct.pack('>HI8I4', partition, 0, 0) end
  local key = '{' .. PREFIX .. ':' .. partition .. '}'
  local seq = (seqs[key] or tonumber(redis.call('GET', key .. ':seq') or 0)) + 1
  redis.call('XADD', key .. ':ledger', ms_text .. '-' .. (n + 1), 'e', data, 's', seq)
  n = n + 1
  seqs[key] = seq
  local place = struct.pack('>HI8I4', partition, ms, n)
  redis.call('HSET', bucket, field, place .. content)
  return APPENDED .. place
end

-- What fails fails between two events: the numbers of those before it are written all the same.
local done, problem = pcall(function()
  for i = 1, #ARGV, 2 do reply[#reply + 1] = append(ARGV[i], ARGV[i + 1]) end
end)
if next(seqs) then
  redis.call('SET', PREFIX .. ':clock', ms_text .. '-' .. n)
  for key, seq in pairs(seqs) do redis.call('SET', key .. ':seq', string.format('%.0f', seq)) end
end
if not done then
  return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
return table.concat(reply)
