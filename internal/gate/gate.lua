-- gate.lua: fold news and drops in, then decide many requests; one call, atomic.
--
-- An item is one hash. Field "b" is its base (BASE below): what the ledger said and when (ms), what the tickets
-- that count hold together, how many tickets there are, and a lower bound of their deadlines (ms, 0: none).
-- Every other field is a ticket (TICKET): quantity, deadline, and epoch and version of the base it was taken from.
-- A ticket counts while the base is still that one: a later base may include what it stands for.
-- What a customer may have of an item is an item of its own: its base is what he has, below zero, and may be overdrawn by
-- his limit, the ROOM of a line. Where it is not known he has nothing: that lets him pass, and the ledger knows.
-- Numbers are big-endian and of fixed width, below 2^53: reading them as text cost more than all else here.
--
-- KEYS     the items, different ones in one slot
-- ARGV[1]  HEAD: how long a ticket lives, how long an item is kept after its last news, how old a base may be
--          and still be called fresh (all ms), how many tickets an item may have
-- ARGV[2]  requests for several items: ticket (16 bytes), number of lines, and for each LINE: key, quantity, room, form
--          form 0: all of it or the request is refused; 1: what there is; 2: nothing is taken, only looked
-- ARGV     for each key: NEWS (epoch, version, available, age in ms) or "";
--          tickets to drop, different ones, 16 bytes each;
--          requests for this item alone, TAKE: ticket, quantity
--
-- Requests are decided in order: those for one item alone, then those for several.
-- Returns one string: a letter for each request, key by key, then for those for several; then for the items of
-- refused requests, as they are after the last one, " key:available:version:state", or " key" when not known.
--   G granted: a ticket was written on every item     S shared: a ticket was there, nothing was written
--   R refused: an item is short or not known, or of   C crowded: an item has all the tickets it may have
--     all lines of form 1 and 2 nothing is there
--   state 0: the base is too old to say short; 1: it is fresh; 2: it is fresh, and no ticket counts
-- Errors: BADARG before anything is read or written.
--
-- Cost: for an item one HMGET, and if it changes one HSET, one HDEL when tickets go; an HGETALL when a deadline
-- has passed, a PEXPIRE a minute. O(items + requests + drops).

local read, pack, sub = struct.unpack, struct.pack, string.sub
local call = redis.call

local HEAD, LINE, NEWS = '>I6I6I6I4', '>I2I6I6B', '>I4I8i8I6'
local HEAD_SIZE, ORDER_SIZE, LINE_SIZE = 22, 18, 15 -- an order's own, before its lines
local BASE, BASE_SIZE = '>I4I8i8I6I8I4I6', 44
local TICKET, TICKET_SIZE = '>I6I6I4I8', 24
local NEWS_SIZE, TAKE_SIZE = 26, 22
-- A value this long makes Redis keep the hash as a table: in its compact form each lookup walks all tickets.
local MANY, FILL = 16, string.rep('.', 32)

-- What is asked.

local items = #KEYS
if #ARGV ~= 2 + 3 * items or #ARGV[1] ~= HEAD_SIZE then return redis.error_reply('BADARG') end
for i = 1, items do
  local news, drops, takes = ARGV[3 * i], ARGV[1 + 3 * i], ARGV[2 + 3 * i]
  if #news % NEWS_SIZE + #drops % 16 + #takes % TAKE_SIZE ~= 0 then return redis.error_reply('BADARG') end
end
local life, ttl, fresh, cap = read(HEAD, ARGV[1])

local orders, several = {}, {} -- requests for several items, and of each item the tickets of those
do
  local asked, p = ARGV[2], 1
  while p <= #asked do
    local order, lines = { keys = {}, quantities = {}, rooms = {}, forms = {} }, nil
    if #asked - p + 1 < ORDER_SIZE then return redis.error_reply('BADARG') end
    order.ticket, lines, p = read('>c16I2', asked, p)
    if #asked - p + 1 < lines * LINE_SIZE then return redis.error_reply('BADARG') end
    for l = 1, lines do
      local i, quantity, room, form
      i, quantity, room, form, p = read(LINE, asked, p)
      if i < 1 or i > items or form > 2 then return redis.error_reply('BADARG') end
      order.keys[l], order.quantities[l], order.rooms[l], order.forms[l] = i, quantity, room, form
      several[i] = several[i] or {}
      several[i][order.ticket] = false
    end
    orders[#orders + 1] = order
  end
end

local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local deadline = now + life

-- What is known of each item, by its number: figures of the base …
local known, epoch, version, available, confirmed, sum, count, earliest = {}, {}, {}, {}, {}, {}, {}, {}
-- … and what is to be written.
local changed, clear, renew, gone, set, mine, told = {}, {}, {}, {}, {}, {}, {}

-- Quantity of a ticket if it counts, else 0; and whether it lives. Many tickets of one call say the same.
local last, quantity_of, deadline_of, epoch_of, version_of = nil, 0, 0, 0, 0
local function look(i, text)
  if text ~= last then
    last, quantity_of, deadline_of, epoch_of, version_of = text, 0, 0, 0, 0
    if #text == TICKET_SIZE then quantity_of, deadline_of, epoch_of, version_of = read(TICKET, text) end
  end
  -- A deadline further away than a life comes from before the clock went back.
  local alive = now < deadline_of and deadline_of <= deadline
  if version_of == version[i] and epoch_of == epoch[i] then return quantity_of, alive end
  return 0, alive
end

local function learn(i, news)
  local e, v, a, age = read(NEWS, news)
  local at = now - age
  if not known[i] then
    known[i], clear[i], renew[i] = true, true, true
    sum[i], count[i], earliest[i] = 0, 0, 0
  elseif e < epoch[i] or (e == epoch[i] and v < version[i]) then
    return
  else
    if e ~= epoch[i] or v ~= version[i] then
      sum[i] = 0
    elseif confirmed[i] <= now and confirmed[i] > at then -- ahead of now: from before the clock went back
      at = confirmed[i]
    end
    renew[i] = at - at % 60000 ~= confirmed[i] - confirmed[i] % 60000
  end
  epoch[i], version[i], available[i], confirmed[i] = e, v, a, at
  changed[i] = true
end

-- Forget tickets that have run out, and count the others anew.
local function sweep(i)
  local all, dropped = call('HGETALL', KEYS[i]), {}
  for g = 1, #gone[i] do dropped[gone[i][g]] = true end
  sum[i], count[i], earliest[i], changed[i] = 0, 0, 0, true
  for f = 1, #all, 2 do
    local ticket, text = all[f], all[f + 1]
    if ticket ~= 'b' and not dropped[ticket] then
      local quantity, alive = look(i, text)
      if alive then
        sum[i], count[i] = sum[i] + quantity, count[i] + 1
        if earliest[i] == 0 or deadline_of < earliest[i] then earliest[i] = deadline_of end
      else
        gone[i][#gone[i] + 1] = ticket
      end
    end
  end
end

-- The place of a ticket among those that go, if it is there.
local function going(i, ticket)
  for g = 1, #gone[i] do
    if gone[i][g] == ticket then return g end
  end
end

local same_item, same_quantity, same_text
local function grant(i, ticket, quantity)
  local to, n = set[i], 0
  if to then
    n = #to
  else
    to, mine[i] = {}, {}
    set[i] = to
  end
  if i ~= same_item or quantity ~= same_quantity then
    same_item, same_quantity = i, quantity
    same_text = pack(TICKET, quantity, deadline, epoch[i], version[i])
  end
  to[n + 1], to[n + 2] = ticket, same_text
  mine[i][ticket] = true
  sum[i], count[i], changed[i] = sum[i] + quantity, count[i] + 1, true
  if earliest[i] == 0 then earliest[i] = deadline end
end

-- Each item: what is stored, then the news, the drops, what has run out, and the requests for it alone.

local letters, decided = {}, 0
for i = 1, items do
  local news, drops, takes = ARGV[3 * i], ARGV[1 + 3 * i], ARGV[2 + 3 * i]
  local fields, n = { 'b', 0, 0, 0 }, 1
  for p = 1, #drops, 16 do
    n = n + 1
    fields[n] = sub(drops, p, p + 15)
  end
  local last_drop = n
  for p = 1, #takes, TAKE_SIZE do
    n = n + 1
    fields[n] = sub(takes, p, p + 15)
  end
  local last_take = n
  if several[i] then
    for ticket in pairs(several[i]) do
      n = n + 1
      fields[n] = ticket
    end
  end
  local stored = redis.pcall('HMGET', KEYS[i], unpack(fields, 1, n))
  local base = stored[1] -- nil when the key has another type: it is replaced, like a base that is too short
  local have = {}
  gone[i] = have
  if base and #base >= BASE_SIZE then
    known[i] = true
    epoch[i], version[i], available[i], confirmed[i], sum[i], count[i], earliest[i] = read(BASE, base)
  else
    stored = {}
  end
  if news ~= '' then learn(i, news) end
  for f = 2, last_drop do
    local text = stored[f]
    if text then
      sum[i], count[i], changed[i] = sum[i] - look(i, text), count[i] - 1, true
      have[#have + 1] = fields[f]
    end
  end
  if known[i] and count[i] > 0 and (now >= earliest[i] or earliest[i] > deadline) then sweep(i) end
  for f = last_drop + 1, last_take do
    local ticket, letter = fields[f], 'G'
    local _, quantity = nil, 1
    quantity = read('>I6', takes, (f - last_drop) * TAKE_SIZE - 5)
    if (stored[f] and not going(i, ticket)) or (mine[i] and mine[i][ticket]) then
      letter = 'S'
    elseif not known[i] or available[i] - sum[i] < quantity then
      letter, told[i] = 'R', true
    elseif count[i] >= cap then
      letter = 'C'
    else
      local g = stored[f] and going(i, ticket)
      if g then table.remove(have, g) end
      grant(i, ticket, quantity)
    end
    decided = decided + 1
    letters[decided] = letter
  end
  if several[i] then
    for f = last_take + 1, n do
      several[i][fields[f]] = stored[f] and not going(i, fields[f])
    end
  end
end

-- The requests for several items.

-- An allowance that nobody has told of. Its base is older than any news, and too old to say short.
local function begin(i)
  known[i], clear[i], renew[i] = true, true, true
  epoch[i], version[i], available[i], confirmed[i], sum[i], count[i], earliest[i] = 0, 0, 0, 0, 0, 0, 0
end

local function decide(order)
  local letter, choice, there = 'G', false, false
  for l = 1, #order.keys do
    local i, need = order.keys[l], order.quantities[l]
    if several[i][order.ticket] or (mine[i] and mine[i][order.ticket]) then return 'S' end
    if not known[i] and order.rooms[l] > 0 then begin(i) end
    if order.forms[l] > 0 then need, choice = 1, true end
    local fits = known[i] and available[i] + order.rooms[l] - sum[i] >= need
    if order.forms[l] > 0 then
      there = there or fits
    elseif not fits then
      letter = 'R'
    end
    if fits and count[i] >= cap and letter == 'G' then letter = 'C' end
  end
  if choice and not there then return 'R' end
  return letter
end

-- What a line takes of its item: with form 1 what there is, which may be nothing.
local function taken(order, l)
  local i, quantity = order.keys[l], order.quantities[l]
  if order.forms[l] == 0 then return quantity end
  if order.forms[l] == 2 or not known[i] then return 0 end
  local free = available[i] - sum[i]
  return free < quantity and free or quantity
end

for o = 1, #orders do
  local order = orders[o]
  local letter = decide(order)
  for l = 1, #order.keys do
    local i = order.keys[l]
    local quantity = letter == 'G' and taken(order, l) or 0
    if quantity > 0 then
      local g = going(i, order.ticket)
      if g then table.remove(gone[i], g) end
      grant(i, order.ticket, quantity)
    elseif letter == 'R' then
      told[i] = true
    end
  end
  decided = decided + 1
  letters[decided] = letter
end

-- The writes. HSET comes first: it is the one a full memory refuses, and then nothing was done.

local figures = {}
for i = 1, items do
  local key = KEYS[i]
  if changed[i] then
    -- Less than nothing comes from a hash that somebody edited, and would be stored as very much.
    if count[i] <= 0 then sum[i], count[i], earliest[i] = 0, 0, 0 end
    if sum[i] < 0 then sum[i] = 0 end
    if clear[i] then call('UNLINK', key) end
    local base = pack(BASE, epoch[i], version[i], available[i], confirmed[i], sum[i], count[i], earliest[i])
    if count[i] >= MANY then base = base .. FILL end
    if set[i] then
      call('HSET', key, 'b', base, unpack(set[i]))
    else
      call('HSET', key, 'b', base)
    end
    local n = #gone[i]
    for g = 1, n, 1000 do call('HDEL', key, unpack(gone[i], g, g + 999 < n and g + 999 or n)) end
    if renew[i] then call('PEXPIRE', key, ttl) end
  end
  if told[i] then
    local text = ' ' .. i
    if known[i] then
      local age, state = now - confirmed[i], 0 -- negative when the clock went back: then nobody knows
      if age >= 0 and age <= fresh then state = sum[i] == 0 and 2 or 1 end
      text = string.format('%s:%.0f:%.0f:%d', text, available[i] - sum[i], version[i], state)
    end
    figures[#figures + 1] = text
  end
end
return table.concat(letters) .. table.concat(figures)
