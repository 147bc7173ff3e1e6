-- gate.lua: fold news and drops in, then decide many requests in order; one call, atomic.
--
-- An item is one hash. Field "b" is its base, "epoch:version:available:confirmed:sum:count:earliest":
-- what the ledger said and when (ms), what the tickets that count hold together, how many tickets there are,
-- and a lower bound of their deadlines (ms). Every other field is a ticket, "quantity:deadline:epoch:version".
-- A ticket counts while it lives and the base is still the one it was taken from: a later base may include it.
--
-- KEYS     the items; all in one slot
-- ARGV[1]  how long a ticket lives, ms
-- ARGV[2]  how long an item is kept after its last news, ms
-- ARGV[3]  how old a base may be and still be called fresh, ms
-- ARGV[4]  how many tickets an item may have
-- ARGV     for each key: news "epoch:version:available:age" or "", and the tickets to drop, 16 bytes each
-- ARGV     for each request: its ticket, and its lines "key:quantity,key:quantity"
--
-- Returns one string: a letter for each request, then " key:available:version:fresh" for each known item and
-- " key" for each unknown item of the refused requests, as they are after the last request.
--   G granted: a ticket was written on every item     S shared: a ticket was there, nothing was written
--   R refused: an item is short or not known          C crowded: an item has all the tickets it may have
-- Errors: BADARG before anything is read or written.
--
-- Cost: for an item one HMGET, and if it changes one HSET, one HDEL when tickets go; an HGETALL when a deadline
-- has passed, a PEXPIRE a minute. O(items + requests + drops).

local find, match, gmatch, sub, format = string.find, string.match, string.gmatch, string.sub, string.format
local call, pcall, insert = redis.call, redis.pcall, table.insert
local LIMIT = 9007199254740991

local function integer(text)
  if not text or not find(text, '^%-?%d+$') or #text > 17 then return nil end
  local n = tonumber(text)
  if n > LIMIT or n < -LIMIT then return nil end
  return n
end

-- Arguments.

local keys = #KEYS
local life, ttl, fresh, cap = integer(ARGV[1]), integer(ARGV[2]), integer(ARGV[3]), integer(ARGV[4])
local first = 4 + 2 * keys
local requests = (#ARGV - first) / 2
if not (life and ttl and fresh and cap) or requests ~= math.floor(requests) or requests < 0 then
  return redis.error_reply('BADARG header')
end

local items = {}
for i = 1, keys do
  local fields, drops, news = { 'b' }, ARGV[4 + 2 * i], ARGV[3 + 2 * i]
  for p = 1, #drops, 16 do
    fields[#fields + 1] = sub(drops, p, p + 15)
  end
  local item = { key = KEYS[i], fields = fields, drops = #fields }
  if news ~= '' then
    local e, v, a, age = match(news, '^(%d+):(%d+):(%-?%d+):(%d+)$')
    e, v, a, age = integer(e), integer(v), integer(a), integer(age)
    if not (e and v and a and age) then return redis.error_reply('BADARG news') end
    item.news = { e = e, v = v, a = a, age = age }
  end
  items[i] = item
end

local wanted, parsed = {}, {}
for r = 1, requests do
  local ticket, lines = ARGV[first + 2 * r - 1], ARGV[first + 2 * r]
  local want = parsed[lines]
  if not want then
    if not find(lines, '^%d[%d:,]*$') then return redis.error_reply('BADARG lines') end
    want = {}
    for k, q in gmatch(lines, '(%d+):(%d+)') do
      local item, quantity = items[tonumber(k)], integer(q)
      if not item or not quantity then return redis.error_reply('BADARG line') end
      insert(want, item)
      insert(want, quantity)
    end
    parsed[lines] = want
  end
  wanted[r] = want
  for w = 1, #want, 2 do
    local fields = want[w].fields
    fields[#fields + 1] = ticket
  end
end

-- Items: what is stored, then the news, then the drops, then what has run out.

local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local records = {} -- many tickets of one call have the same text
local function record(text)
  local rec = records[text]
  if not rec then
    local q, d, e, v = match(text, '^(%d+):(%d+):(%d+):(%d+)$')
    rec = { q = integer(q) or 0, d = integer(d) or 0, e = integer(e), v = integer(v) }
    -- A deadline further away than a life comes from before the clock went back.
    rec.alive = now < rec.d and rec.d <= now + life
    records[text] = rec
  end
  return rec
end

local function counts(item, rec)
  return rec.v == item.v and rec.e == item.e
end

local function remove(item, ticket, rec)
  item.have[ticket] = nil
  item.gone[ticket] = true
  item.count = item.count - 1
  if counts(item, rec) then item.sum = item.sum - rec.q end
  item.changed = true
end

local function load(item, base)
  local e, v, a, c, sum, count, earliest = match(base or '', '^(%d+):(%d+):(%-?%d+):(%d+):(%d+):(%d+):(%d+)$')
  item.e, item.v, item.a, item.c = integer(e), integer(v), integer(a), integer(c)
  item.sum, item.count, item.earliest = integer(sum), integer(count), integer(earliest)
  item.known = item.e and item.v and item.a and item.c and item.sum and item.count and item.earliest
end

local function learn(item)
  local news = item.news
  local confirmed = math.max(0, now - news.age)
  if not item.known then
    item.clear, item.known = true, true
    item.sum, item.count, item.earliest, item.have = 0, 0, 0, {}
  elseif news.e < item.e or (news.e == item.e and news.v < item.v) then
    return
  elseif news.e == item.e and news.v == item.v then
    -- A time ahead of the clock comes from before the clock went back.
    if item.c <= now then confirmed = math.max(confirmed, item.c) end
  else
    item.sum = 0
  end
  if item.clear or math.floor(confirmed / 60000) ~= math.floor(item.c / 60000) then item.renew = true end
  item.e, item.v, item.a, item.c = news.e, news.v, news.a, confirmed
  item.changed = true
end

local function sweep(item)
  local all = call('HGETALL', item.key)
  item.sum, item.count, item.earliest = 0, 0, 0
  for f = 1, #all, 2 do
    local ticket, rec = all[f], nil
    if ticket ~= 'b' and not item.gone[ticket] then
      rec = record(all[f + 1])
      if rec.alive then
        item.count = item.count + 1
        if counts(item, rec) then item.sum = item.sum + rec.q end
        if item.earliest == 0 or rec.d < item.earliest then item.earliest = rec.d end
      else
        item.have[ticket], item.gone[ticket] = nil, true
      end
    end
  end
  item.changed = true
end

for i = 1, keys do
  local item = items[i]
  local fields, have = item.fields, {}
  local stored = pcall('HMGET', item.key, unpack(fields))
  item.have, item.gone, item.set = have, {}, {}
  load(item, stored[1]) -- a key of another type has no [1] and is replaced like one that is missing
  if item.known then
    for f = 2, #fields do
      if stored[f] then have[fields[f]] = stored[f] end
    end
  end
  if item.news then learn(item) end
  for f = 2, item.drops do
    local ticket = fields[f]
    if item.have[ticket] then remove(item, ticket, record(item.have[ticket])) end
  end
  if item.known and item.count > 0 and (now >= item.earliest or item.earliest > now + life) then sweep(item) end
end

-- Requests, in order.

local function decide(ticket, want)
  local verdict = 'G'
  for w = 1, #want, 2 do
    local item = want[w]
    if not item.known then
      verdict = 'R'
    elseif item.have[ticket] then
      return 'S'
    elseif item.a - item.sum < want[w + 1] then
      verdict = 'R'
    elseif item.count >= cap and verdict == 'G' then
      verdict = 'C'
    end
  end
  return verdict
end

local function grant(ticket, want)
  for w = 1, #want, 2 do
    local item, quantity = want[w], want[w + 1]
    local text = format('%.0f:%.0f:%.0f:%.0f', quantity, now + life, item.e, item.v)
    insert(item.set, ticket)
    insert(item.set, text)
    item.have[ticket], item.gone[ticket] = text, nil
    item.sum, item.count = item.sum + quantity, item.count + 1
    if item.earliest == 0 then item.earliest = now + life end
    item.changed = true
  end
end

local verdicts = {}
for r = 1, requests do
  local ticket, want = ARGV[first + 2 * r - 1], wanted[r]
  local verdict = decide(ticket, want)
  if verdict == 'G' then
    grant(ticket, want)
  elseif verdict == 'R' then
    for w = 1, #want, 2 do want[w].told = true end
  end
  verdicts[r] = verdict
end

-- Writes: HSET first, the one command here that a full memory refuses, so that nothing is half done.

for i = 1, keys do
  local item = items[i]
  if item.changed then
    if item.count == 0 then item.sum, item.earliest = 0, 0 end
    if item.clear then call('UNLINK', item.key) end
    call('HSET', item.key, 'b', format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f',
      item.e, item.v, item.a, item.c, item.sum, item.count, item.earliest), unpack(item.set))
    local gone = {}
    for ticket in pairs(item.gone) do gone[#gone + 1] = ticket end
    for g = 1, #gone, 1000 do
      call('HDEL', item.key, unpack(gone, g, math.min(g + 999, #gone)))
    end
    if item.renew then call('PEXPIRE', item.key, ttl) end
  end
end

local reply = { table.concat(verdicts) }
for i = 1, keys do
  local item = items[i]
  if item.told and not item.known then
    reply[#reply + 1] = format('%d', i)
  elseif item.told then
    -- Confirmed ahead of now: the clock went back, and nobody can say how old it is.
    local age = now - item.c
    local is_fresh = age >= 0 and age <= fresh
    reply[#reply + 1] = format('%d:%.0f:%.0f:%d', i, item.a - item.sum, item.v, is_fresh and 1 or 0)
  end
end
return table.concat(reply, ' ')
