"""The Lua scripts that a Redis store runs: what must be atomic happens in one of these.

Each declares its flags (``#!lua``), so that the server refuses it before its first command: on a replica, and,
without ``allow-oom``, when the store is full. So a script is never half done.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Script:
    """A Lua script, called by the hash under which the server keeps it."""

    text: str

    @cached_property
    def sha(self) -> str:
        """The hash that the server knows the script by."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# KEYS: the producer's record, the commit count, the guard's lease (without one: any key that the user may name),
# then the keys of the writes in order.
# ARGV: sequence, guard token, guard owner (both empty: no guard), then for each write its code and arguments.
# Answers 1 (applied), 0 (a repeat), or {token of the present holder} (the guard is lost).
# The repeat is looked for first: a commit that was applied stays applied after its lease ended.
_COMMIT = """
local last = redis.call('GET', KEYS[1])
if last and tonumber(ARGV[1]) <= tonumber(last) then return 0 end
if ARGV[2] ~= '' then
  local held = redis.call('HMGET', KEYS[3], 'token', 'owner')
  if held[1] ~= ARGV[2] or held[2] ~= ARGV[3] then return {held[1] or ''} end
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
local k, a = 4, 4
while a <= #ARGV do
  local code = ARGV[a]
  if code == 'A' then
    redis.call('XADD', KEYS[k], '*', 'd', ARGV[a + 1])
    k, a = k + 1, a + 2
  elseif code == 'P' then
    redis.call('SET', KEYS[k], ARGV[a + 1])
    if ARGV[a + 2] ~= '0' then redis.call('PEXPIRE', KEYS[k], ARGV[a + 2]) end
    k, a = k + 1, a + 3
  elseif code == 'D' then
    redis.call('UNLINK', KEYS[k], KEYS[k + 1])
    k, a = k + 2, a + 1
  else
    redis.call('XTRIM', KEYS[k], 'MINID', '=', ARGV[a + 1])
    k, a = k + 1, a + 2
  end
end
return 1
"""

COMMIT = Script("#!lua\n" + _COMMIT)
"""Refused whole when the store is full."""

COMMIT_THAT_FREES = Script("#!lua flags=allow-oom\n" + _COMMIT)
"""For commits of Delete and Trim only: the way out of a full store."""

ACQUIRE_LEASE = Script(
    """#!lua flags=allow-oom
-- KEYS: lease, its token counter. ARGV: owner, milliseconds, token and beats of a holder to be overtaken.
local held = redis.call('HMGET', KEYS[1], 'owner', 'token', 'beats', 'ttl')
if held[1] == ARGV[1] then
  redis.call('HINCRBY', KEYS[1], 'beats', 1)
  redis.call('HSET', KEYS[1], 'ttl', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, held[2]}
end
if held[1] and not (held[2] == ARGV[3] and held[3] == ARGV[4]) then
  return {0, held[2], held[3], held[4]}
end
local token = redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'beats', 0, 'ttl', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, token}
"""
)

RENEW_LEASE = Script(
    """#!lua flags=allow-oom
-- KEYS: lease. ARGV: token, owner, milliseconds.
local held = redis.call('HMGET', KEYS[1], 'token', 'owner')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
redis.call('HINCRBY', KEYS[1], 'beats', 1)
redis.call('HSET', KEYS[1], 'ttl', ARGV[3])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
)

RELEASE_LEASE = Script(
    """#!lua flags=allow-oom
-- KEYS: lease. ARGV: token, owner.
local held = redis.call('HMGET', KEYS[1], 'token', 'owner')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
return redis.call('DEL', KEYS[1])
"""
)

IDENTITY = Script(
    """#!lua flags=allow-oom
-- KEYS: the commit count. Both in one script, so that they are of the same server.
return {redis.call('INFO', 'server'), redis.call('GET', KEYS[1]) or '0'}
"""
)
