"""A lease in Redis: taken, renewed and given back by whoever holds it, compared and set at once.

KEYS: the lease. ARGV: the holder, and how long the lease outlives its last renewal, ms.
"""

from __future__ import annotations

# "Already mine" counts as taken: the reply to an earlier try may have been lost.
ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
