-- Wireshark dissector for the Tyche protocol, version 2 (PROTOCOL.md), over Ethernet, UDP and TCP.
--
-- A frame is claimed if version, kind and header checksum are right, because EtherType and ports may
-- be others' as well; so frames over UDP and TCP are recognized at any port. Bytes are read only as
-- far as they were captured, so no frame causes an error of the script. Requests and answers, and
-- retransmissions, are found on the first pass over a capture; `tshark` needs `-2` to show which frame
-- has the answer.
--
-- It runs with Lua 5.2, 5.3 and 5.4, so it has no operator that only some of them know.

local proto = Proto("tyche", "Tyche")
proto.prefs.payload = Pref.bool("Check payload checksums", true, "Costs time on large captures")

-- Bits: the library of Lua 5.2, or that of Wireshark, whose results are signed, or the operators of
-- Lua 5.3, compiled only there.
local library = bit32 or bit
local bxor, band, rshift
if library then
    bxor, band, rshift = library.bxor, library.band, library.rshift
else
    local two
    two, band, rshift = load("return function(a, b) return a ~ b end, " ..
        "function(a, b) return a & b end, function(a, n) return a >> n end")()
    bxor = function(first, ...)
        for index = 1, select("#", ...) do first = two(first, (select(index, ...))) end
        return first
    end
end

-- CRC-32C, eight bytes at a time: CRC[k] has what a byte adds that has k bytes behind it. Calls are
-- what costs time, so bytes are taken apart by arithmetic.
local CRC = { [0] = {} }
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local odd = band(crc, 1) == 1
        crc = rshift(crc, 1)
        if odd then crc = bxor(crc, 0x82f63b78) end
    end
    CRC[0][byte] = crc
end
for behind = 1, 7 do
    CRC[behind] = {}
    for byte = 0, 255 do
        local crc = CRC[behind - 1][byte]
        CRC[behind][byte] = bxor(rshift(crc, 8), CRC[0][band(crc, 0xff)])
    end
end

local function crc32c(text)
    local crc, at = 0xffffffff, 1
    local t0, t1, t2, t3, t4, t5, t6, t7 =
        CRC[0], CRC[1], CRC[2], CRC[3], CRC[4], CRC[5], CRC[6], CRC[7]
    while at + 7 <= #text do
        local a, b, c, d, e, f, g, h = text:byte(at, at + 7)
        local word = bxor(crc, a + b * 0x100 + c * 0x10000 + d * 0x1000000) % 0x100000000
        a = word % 0x100
        word = (word - a) / 0x100
        b = word % 0x100
        word = (word - b) / 0x100
        c = word % 0x100
        d = (word - c) / 0x100
        crc = bxor(t7[a], t6[b], t5[c], t4[d], t3[e], t2[f], t1[g], t0[h])
        at = at + 8
    end
    for index = at, #text do
        crc = bxor(t0[band(bxor(crc, text:byte(index)), 0xff)], rshift(crc, 8))
    end
    return bxor(crc, 0xffffffff) % 0x100000000
end

-- The value of up to six bytes, exact in every version of Lua.
local function little_endian(text)
    local value = 0
    for index = #text, 1, -1 do value = value * 256 + text:byte(index) end
    return value
end

-- Codes

local KIND = {
    Discover = 0x01, Offer = 0x02, Hello = 0x03, Connect = 0x04, Accept = 0x05, Reject = 0x06,
    Reset = 0x07, SealedConnect = 0x08, SealedAnswer = 0x09,
    Command = 0x10, Data = 0x11, Void = 0x12, Ack = 0x13, Keepalive = 0x14, Disconnect = 0x15,
    Echo = 0x16, Fence = 0x17, Fenced = 0x18,
}
local KINDS = {}
for name, code in pairs(KIND) do KINDS[code] = name end
local ENTRIES = { "Command", "Completion", "Data", "Event", "Echo", "Credit" }
local OPERATIONS = { "Read", "Write", "Flush", "Discard", "WriteZeroes", "BlockStatus" }
local STATUSES = {
    [0] = "Success", "Io", "Invalid", "ReadOnly", "NoSpace", "Unsupported", "NoMemory",
}
local OUTCOMES = { [0xfe] = "Unknown", [0xff] = "NotExecuted" }
for code, name in pairs(STATUSES) do OUTCOMES[code] = name end
local EVENTS = { "Resized", "Removed" }
local REASONS = {
    "UnknownExport", "Held", "ReadOnly", "NoResources", "SessionLost", "Version", "Cloned",
    "NoState", "KeyRequired", "NoKey", "Denied", "OtherTarget", "Offline",
}

local VERSION = 2
local ETHERTYPE = 0x88b5
-- Ports of targets over UDP: for sessions, and for Discovers to everybody on a segment.
local UDP_PORTS = { 8650, 8651 }
local ETHERNET_LEN, HEADER_LEN, ENTRY_LEN, SEAL_LEN = 14, 50, 24, 16
local FRAME_MIN, FRAME_MAX = 64, 65549
local CHECKSUMMED, REPLY, DATA_RING = 0x0001, 0x0002, 0x0004

-- Fields and problems

local f, e = {}, {}

local function problem(name, title, group, severity)
    e[name] = ProtoExpert.new("tyche.problem." .. name, title, group, severity)
end

local group, severity = expert.group, expert.severity
problem("header_crc", "The header's checksum is wrong", group.CHECKSUM, severity.ERROR)
problem("payload_crc", "The payload's checksum is wrong", group.CHECKSUM, severity.ERROR)
problem("version", "Another version of the protocol", group.PROTOCOL, severity.WARN)
problem("length", "The length contradicts the header", group.MALFORMED, severity.ERROR)
problem("short", "The fields do not fit", group.MALFORMED, severity.ERROR)
problem("code", "No such code in this version", group.PROTOCOL, severity.WARN)
problem("reserved", "Reserved bits or bytes are not zero", group.PROTOCOL, severity.WARN)
problem("failed", "The request has failed", group.RESPONSE_CODE, severity.NOTE)
problem("refused", "The channel is refused", group.RESPONSE_CODE, severity.WARN)
problem("retransmission", "The position was sent before", group.SEQUENCE, severity.NOTE)

local function make(name, kind, ...)
    f[name] = f[name] or ProtoField[kind]("tyche." .. name, ...)
    return f[name]
end

-- The items of layouts: a name, a length, and how it is added to a tree.

local function number(name, title, width, values, numbers)
    local field = make(name, "uint" .. width, title, numbers or base.DEC, values)
    local function add(tree, range)
        local item = tree:add_le(field, range)
        if values and not values[little_endian(range:raw())] then
            item:add_proto_expert_info(e.code)
        end
    end
    return { name = name, len = width / 8, add = add }
end

local function hex(name, title, width)
    return number(name, title, width, nil, base.HEX)
end

-- Bytes in the order in which they are.
local function plain(kind, name, title, len)
    local field = make(name, kind, title)
    return { name = name, len = len, add = function(tree, range) return tree:add(field, range) end }
end

local function bytes(name, title, len)
    return plain("bytes", name, title, len)
end

local function uuid(name, title)
    return plain("guid", name, title, 16)
end

local function check_zero(item, range, from)
    if range:raw():find("[^\0]", from) then item:add_proto_expert_info(e.reserved) end
end

local function text(name, title, len)
    local field = make(name, "string", title)
    local function add(tree, range)
        local used = (range:raw():find("\0", 1, true) or len + 1) - 1
        local shown = used > 0 and range(0, used):string(ENC_UTF_8) or ""
        check_zero(tree:add(field, range, shown), range, used + 1)
    end
    return { name = name, len = len, add = add }
end

local function zero(len)
    local item = bytes("zero", "Reserved", len)
    return { name = "zero", len = len, add = function(tree, range)
        check_zero(item.add(tree, range), range, 1)
    end }
end

local function flags(name, width, bits)
    local field = make(name, "uint" .. width, "Flags", base.HEX)
    local known, parts = 0, {}
    for index, label in ipairs(bits) do
        local mask = 2 ^ (index - 1)
        known = known + mask
        table.insert(parts, make(name .. "." .. label:lower(), "bool", label, width, nil, mask))
    end
    local function add(tree, range)
        local item = tree:add_le(field, range)
        for _, part in ipairs(parts) do item:add_le(part, range) end
        if little_endian(range:raw()) > known then item:add_proto_expert_info(e.reserved) end
    end
    return { name = name, len = width / 8, add = add }
end

local none = make("entry", "none", "Entry")
local data_section = make("data", "bytes", "Data section")
local part = make("part", "bytes", "Part")
local padding = make("padding", "bytes", "Padding")
local sealed = make("sealed", "bytes", "Sealed")
local seal_tag = make("seal_tag", "bytes", "Tag of the seal")
local response_in =
    make("response_in", "framenum", "Response in", base.NONE, frametype.RESPONSE)
local response_to =
    make("response_to", "framenum", "Response to", base.NONE, frametype.REQUEST)
local retransmission =
    make("retransmission", "framenum", "Retransmission of", base.NONE, frametype.RETRANS_PREV)
local time = make("time", "relative_time", "Time from the request")

-- Layouts, in the order of PROTOCOL.md

local version = number("version", "Version", 8)
local kind_of_frame = number("kind", "Kind", 8, KINDS, base.HEX)
local versions = {
    number("version_min", "Lowest version", 8), number("version_max", "Highest version", 8),
}
local lengths = {
    number("entries", "Entries", 16), number("data_len", "Length of data section or body", 32),
    hex("payload_crc", "Checksum of the payload", 32),
    hex("header_crc", "Checksum of the header", 32),
}
local slot = number("slot", "Slot", 16)
local slot_generation = number("slot_generation", "Generation of the slot", 16)
local damq_page = number("damq_page", "Page of the damq", 32)
local nonce, attempt = hex("nonce", "Nonce", 64), hex("attempt", "Attempt", 64)
local ticket = bytes("ticket", "Ticket", 24)
local target, export = uuid("target", "Target"), uuid("export", "Export")
local count, first = number("count", "Count", 16), number("first", "First record", 16)
local total, name = number("total", "Matching exports", 16), text("name", "Name", 64)
local size, block_size = number("size", "Size", 64), number("block_size", "Block size", 32)
local frame_len = number("frame_len", "Frame length", 32)
local shape = {
    number("queue_size", "Slots of the remq", 16),
    number("ring_command", "Positions of the command ring", 16),
    number("ring_data", "Positions of the data ring", 16),
    frame_len,
    number("damq_pages", "Pages of the damq", 32),
}
local keep_alive = number("keep_alive", "Keep-alive (ms)", 32)

-- Cookie and channel in a body.
local function channel_of(body)
    return hex(body .. ".cookie", "Cookie", 64), number(body .. ".channel", "Channel", 16)
end

local connect_cookie, connect_channel = channel_of("connect")
local accept_cookie, accept_channel = channel_of("accept")
local reset_cookie, reset_channel = channel_of("reset")
local fence_cookie, fence_channel = channel_of("fence")

local HEADER = {
    version, kind_of_frame,
    flags("flags", 16, { "CHECKSUMMED", "REPLY", "DATA_RING", "ACK_REQUEST", "CONGESTED" }),
    number("channel", "Channel", 16), hex("cookie", "Cookie", 64),
    number("packet", "Packet number", 64), number("position", "Position", 32),
    number("ack_command", "Ack of the command ring", 32),
    number("ack_data", "Ack of the data ring", 32), number("window", "Window", 16),
    lengths[1], lengths[2], lengths[3], lengths[4],
}
-- What is the same in every version.
local OTHER_HEADER = {
    version, kind_of_frame, bytes("other_version", "Fields of another version", 34),
    lengths[1], lengths[2], lengths[3], lengths[4],
}
local OTHER_BODY = { nonce, versions[1], versions[2] }

local ENTRY = {
    {
        number("operation", "Operation", 8, OPERATIONS),
        flags("command.flags", 16, { "FUA", "MAY_UNMAP" }), slot, slot_generation,
        number("offset", "Offset on the disk", 64), number("request_len", "Length", 32), damq_page,
    },
    {
        number("status", "Status", 8, STATUSES), zero(2), slot, slot_generation,
        number("wake", "Wake (ns)", 32), number("receive", "Receive (ns)", 32),
        number("store", "Store (ns)", 32), number("transmit", "Transmit (ns)", 32),
    },
    {
        zero(3), slot, slot_generation, number("part.offset", "Offset in the request", 32),
        number("part.len", "Length", 32), number("part.total", "Data of the request", 32),
        damq_page,
    },
    { number("event", "Event", 8, EVENTS), zero(6), number("value", "Value", 64), zero(8) },
    {
        zero(1), number("replies", "Replies", 16), number("reply_len", "Length of a reply", 32),
        number("sequence", "Sequence", 64), zero(8),
    },
    { zero(19), number("credit", "Pages that the host may use", 32) },
}
local ENTRY_KIND = { number("entry.kind", "Kind of entry", 8, ENTRIES) }

local RECORD = {
    name, uuid("uuid", "UUID"), size, block_size,
    flags("offer.flags", 32, { "READ_ONLY", "WRITE_CACHE", "HELD", "SHARED" }), zero(8),
}
local OUTCOME = { slot, slot_generation, number("outcome", "Outcome", 8, OUTCOMES), zero(3) }
local REQUEST = { slot, slot_generation }
local BODY = {
    [KIND.Discover] = {
        nonce, versions[1], versions[2], first, zero(4), uuid("host", "Host"), target,
        uuid("uuid", "UUID"), name,
    },
    [KIND.Offer] = {
        nonce, versions[1], versions[2], zero(6), target, name, first, count, total, zero(2),
    },
    [KIND.Hello] = { nonce, target, ticket, frame_len },
    [KIND.Connect] = {
        attempt, ticket, target, uuid("host", "Host"), uuid("session", "Session"),
        uuid("device", "Device"), export, text("host_name", "Name of the host", 64),
        connect_cookie, connect_channel, shape[1], shape[2], shape[3], shape[4], shape[5],
        flags("connect.flags", 32, { "READ_ONLY", "CHECKSUM", "RESUME", "STAGES", "BLOCK_STATUS" }), keep_alive,
    },
    [KIND.Accept] = {
        attempt, target, uuid("generation", "Generation"), export, size,
        accept_cookie, accept_channel, shape[1], shape[2], shape[3], shape[4], shape[5], block_size,
        flags("accept.flags", 32,
            { "READ_ONLY", "CHECKSUM", "WRITE_CACHE", "DISCARD", "STAGES", "ROTATIONAL",
                "BLOCK_STATUS" }),
        keep_alive, zero(4),
    },
    [KIND.Reject] = {
        attempt, versions[1], versions[2], number("reason", "Reason", 16, REASONS), zero(4), target,
        text("detail", "Detail", 128),
    },
    [KIND.Reset] = { reset_cookie, reset_channel, bytes("token", "Token", 6), target },
    [KIND.SealedConnect] = {
        attempt, ticket, target, bytes("message", "Message of the handshake", 440),
        bytes("proof", "Proof", 16),
    },
    [KIND.SealedAnswer] = { attempt, target, bytes("message", "Message of the handshake", 216) },
    [KIND.Ack] = {
        number("newest", "Newest packet number", 64),
        number("words_command", "Words of the command ring", 16),
        number("words_data", "Words of the data ring", 16), zero(4),
    },
    [KIND.Fence] = { fence_cookie, fence_channel, count, zero(4) },
    [KIND.Fenced] = { fence_cookie, fence_channel, count, zero(4) },
}
local KEY = { bytes("key", "Public key of the target", 32) }
local BITMAPS = { { hex("bitmap.command", "Bitmap", 64) }, { hex("bitmap.data", "Bitmap", 64) } }
local DATAGRAM = { bytes("datagram", "Zeroes of the datagram", 12) }
local ETHERNET = { plain("ether", "dst", "Destination", 6), plain("ether", "src", "Source", 6) }
local stream_len = make("length", "uint32", "Length of the frame", base.DEC)
local ethertype = make("type", "uint16", "EtherType", base.HEX)
local datagram_padding = make("datagram_padding", "bytes", "Padding of the datagram")

proto.fields = f
proto.experts = e

-- A view: bytes of a frame from `at` to `stop`, as far as they were captured.

local function take(view, len)
    if view.at + len > view.stop then return nil end
    local range = view.tvb(view.at, len)
    view.at = view.at + len
    return range
end

-- Adds the items of a layout. Returns their bytes by name; nothing, if they do not all fit.
local function show(view, tree, layout)
    local values = {}
    for _, item in ipairs(layout) do
        local range = take(view, item.len)
        if not range then
            tree:add_proto_expert_info(e.short)
            return nil
        end
        item.add(tree, range)
        values[item.name] = range:raw()
    end
    return values
end

-- Adds what is left as bytes of that field.
local function show_rest(view, tree, field)
    if view.at < view.stop then return tree:add(field, take(view, view.stop - view.at)) end
end

-- Requests and answers, found on the first pass. A note has what is known of a frame: at 0 of it as
-- a whole, from 1 on of its entries.

local state

function proto.init()
    state = { questions = {}, open = {}, partners = {}, paired = {}, positions = {}, notes = {} }
end

local function note_of(pinfo, header)
    local frames = state.notes[pinfo.number] or {}
    state.notes[pinfo.number] = frames
    frames[header] = frames[header] or {}
    return frames[header]
end

-- What is asked and answered under `key`, by the entry `index` of the frame.
local function ask(frame, index, key)
    local question = { note = frame.note, index = index, number = frame.number, time = frame.time }
    state.questions[key] = question
    return question
end

local function answer(frame, index, question)
    if not question then return end
    question.answered = true
    local asked = question.note[question.index] or {}
    question.note[question.index] = asked
    asked.response_in = asked.response_in or frame.number
    local note = frame.note[index] or {}
    frame.note[index] = note
    note.response_to, note.time = question.number, frame.time - question.time
end

-- What is asked on a channel. Its answer comes under another index and cookie, since each direction
-- has its own; the handshake tells which. Without it, an answer belongs to the only open question
-- with that label between the two addresses.
local function ask_on_channel(frame, index, label)
    if frame.note.is_again then return end
    local question = ask(frame, index, frame.channel .. label)
    if state.paired[frame.channel] then return end
    local way = frame.there .. label
    state.open[way] = state.open[way] or {}
    state.open[way][frame.channel] = question
end

local function answer_on_channel(frame, index, label)
    local partner = state.partners[frame.channel]
    if partner then
        answer(frame, index, state.questions[partner .. label])
        return
    end
    local found, open
    for _, question in pairs(state.open[frame.back .. label] or {}) do
        if not question.answered then open = open and "several" or question end
        found = found and "several" or question
    end
    local question = open or found
    if question ~= "several" then answer(frame, index, question) end
end

-- A question outside of channels; a repeated Connect is the same one.
local function ask_once(frame, key, values)
    local before = state.questions[key]
    if not before then
        ask(frame, 0, key).channel = values["connect.channel"]
            and values["connect.channel"] .. values["connect.cookie"]
    elseif values.attempt and before.number ~= frame.number then
        frame.note.is_again = before.number
    end
end

local MATCH = {
    [KIND.Discover] = function(frame, values)
        ask_once(frame, "discover" .. values.nonce, values)
    end,
    [KIND.Offer] = function(frame, values)
        answer(frame, 0, state.questions["discover" .. values.nonce])
    end,
    [KIND.Hello] = function(frame, values)
        local key = "hello" .. values.nonce
        if frame.is_reply then
            answer(frame, 0, state.questions[key])
        else
            ask_once(frame, key, values)
        end
    end,
    [KIND.Connect] = function(frame, values)
        ask_once(frame, "connect" .. values.attempt, values)
    end,
    [KIND.Accept] = function(frame, values)
        local question = state.questions["connect" .. values.attempt]
        answer(frame, 0, question)
        if question and question.channel then
            local channel = values["accept.channel"] .. values["accept.cookie"]
            state.partners[question.channel], state.paired[channel] = channel, true
        end
    end,
    [KIND.Reject] = function(frame, values)
        local questions, id = state.questions, values.attempt
        answer(frame, 0, questions["connect" .. id] or questions["sealed" .. id]
            or questions["discover" .. id])
    end,
    [KIND.SealedConnect] = function(frame, values)
        ask_once(frame, "sealed" .. values.attempt, values)
    end,
    [KIND.SealedAnswer] = function(frame, values)
        answer(frame, 0, state.questions["sealed" .. values.attempt])
    end,
    [KIND.Fence] = function(frame, values)
        ask(frame, 0, "fence" .. values["fence.cookie"])
    end,
    [KIND.Fenced] = function(frame, values)
        answer(frame, 0, state.questions["fence" .. values["fence.cookie"]])
    end,
}

-- A position that came before under another packet number was sent again.
local function find_retransmission(frame, kind, raw)
    local ring = kind
    if kind == KIND.Void then
        ring = band(frame.flags, DATA_RING) == 0 and KIND.Command or KIND.Data
    end
    if ring ~= KIND.Command and ring ~= KIND.Data then return end
    local key = frame.channel .. ring .. raw.position
    local before = state.positions[key]
    if not before then
        state.positions[key] = { number = frame.number, packet = raw.packet }
    elseif before.packet ~= raw.packet then
        frame.note.is_again = before.number
    end
end

local function show_note(tree, note)
    if not note then return end
    local function add(field, value)
        if value then tree:add(field, value):set_generated() end
    end
    add(response_in, note.response_in)
    add(response_to, note.response_to)
    if note.time then
        local seconds = math.floor(note.time)
        add(time, NSTime.new(seconds, math.floor((note.time - seconds) * 1e9 + 0.5)))
    end
end

-- Entries

local function tag_of(values)
    return little_endian(values.slot) .. "." .. little_endian(values.slot_generation)
end

-- The names of entries, and what they ask or answer.
local DESCRIBE = {
    function(frame, index, values, range)
        if frame.is_new then ask_on_channel(frame, index, values.slot .. values.slot_generation) end
        local operation = OPERATIONS[values.operation:byte()] or "?"
        local text_of = operation .. " " .. tag_of(values)
        if operation == "Flush" then return text_of end
        local offset = tostring(range(8, 8):le_uint64())
        return text_of .. " " .. offset .. "+" .. little_endian(values.request_len)
    end,
    function(frame, index, values)
        local label = values.slot .. values.slot_generation
        if frame.is_new then answer_on_channel(frame, index, label) end
        return "Done " .. tag_of(values) .. " " .. (STATUSES[values.status:byte()] or "?"),
            values.status ~= "\0" and e.failed
    end,
    function(_, _, values)
        local offset, total_len = values["part.offset"], values["part.total"]
        return "Data " .. tag_of(values) .. " " .. little_endian(offset) .. "+" ..
            little_endian(values["part.len"]) .. "/" .. little_endian(total_len)
    end,
    function(_, _, values, range)
        return (EVENTS[values.event:byte()] or "?") .. " " .. tostring(range(8, 8):le_uint64())
    end,
    function(frame, index, values, range)
        if frame.is_new and frame.is_reply then
            answer_on_channel(frame, index, "echo" .. values.sequence)
        elseif frame.is_new then
            ask_on_channel(frame, index, "echo" .. values.sequence)
        end
        return "Echo " .. tostring(range(8, 8):le_uint64())
    end,
    function(_, _, values) return "Credit " .. little_endian(values.credit) end,
}

local function show_entry(view, tree, frame, index)
    local range = take(view, ENTRY_LEN)
    if not range then
        tree:add_proto_expert_info(e.short)
        return nil
    end
    local item = tree:add(none, range)
    local entry = { tvb = view.tvb, at = range:offset(), stop = range:offset() + ENTRY_LEN }
    local code = show(entry, item, ENTRY_KIND)["entry.kind"]:byte()
    if not ENTRY[code] then return "?" end
    local values = show(entry, item, ENTRY[code])
    local described, problem_of = DESCRIBE[code](frame, index, values, range)
    item:set_text(described)
    if problem_of then item:add_proto_expert_info(problem_of) end
    show_note(item, frame.note[index])
    return described
end

-- Shows the parts of the data section, as the data entries behind it say.
local function show_parts(view, tree, frame)
    local section = take(view, frame.data_len)
    if not section then
        show_rest(view, tree, data_section)
        return
    end
    local item, used = tree:add(data_section, section), 0
    for index = 0, frame.entries - 1 do
        local at = view.at + index * ENTRY_LEN
        if at + ENTRY_LEN > view.stop then return end
        local entry = view.tvb(at, ENTRY_LEN)
        local len = entry(12, 4):le_uint()
        if entry(0, 1):uint() == 3 and len > 0 and used + len <= frame.data_len then
            local of = entry(4, 2):le_uint() .. "." .. entry(6, 2):le_uint()
            item:add(part, section(used, len)):set_text("Part of " .. of .. ": " .. len .. " bytes")
            used = used + len
        end
    end
end

local function show_entries(view, tree, frame)
    if frame.data_len > 0 then show_parts(view, tree, frame) end
    local all = {}
    for index = 1, frame.entries do
        local described = show_entry(view, tree, frame, index)
        if not described then break end
        if index <= 4 then table.insert(all, described) end
    end
    if frame.entries > #all then table.insert(all, "..") end
    return table.concat(all, ", ")
end

-- Bodies: what follows the fields of a layout. Each returns a text for the frame.

local function show_group(view, tree, len, layout, describe)
    local range = take(view, len)
    if not range then
        tree:add_proto_expert_info(e.short)
        return false
    end
    local item = tree:add(none, range)
    local values = show({ tvb = view.tvb, at = range:offset(), stop = view.at }, item, layout)
    item:set_text(describe(values))
    return true
end

local function show_groups(view, tree, number_of, ...)
    for _ = 1, number_of do
        if not show_group(view, tree, ...) then return end
    end
end

local function name_in(raw)
    return raw:match("^[^\0]*"):gsub("%c", "?")
end

local function outcome_of(values)
    return "Outcome of " .. tag_of(values) .. ": " .. (OUTCOMES[values.outcome:byte()] or "?")
end

local MORE = {
    [KIND.Discover] = function(view, tree, values)
        show_rest(view, tree, padding)
        return name_in(values.name)
    end,
    [KIND.Offer] = function(view, tree, values)
        local function describe(record) return "Export " .. name_in(record.name) end
        show_groups(view, tree, little_endian(values.count), 104, RECORD, describe)
        if view.stop - view.at >= 32 then show(view, tree, KEY) end
        return "by " .. name_in(values.name)
    end,
    [KIND.Hello] = function(view, tree) show_rest(view, tree, padding) end,
    [KIND.Connect] = function(_, _, values) return "by " .. name_in(values.host_name) end,
    [KIND.Reject] = function(_, tree, values)
        tree:add_proto_expert_info(e.refused)
        return REASONS[little_endian(values.reason)]
    end,
    [KIND.Ack] = function(view, tree, values)
        for index, words in ipairs({ values.words_command, values.words_data }) do
            for _ = 1, little_endian(words) do
                if not show(view, tree, BITMAPS[index]) then return end
            end
        end
        return "with nack"
    end,
    [KIND.Fence] = function(view, tree, values)
        local function describe(request) return "Request " .. tag_of(request) end
        show_groups(view, tree, little_endian(values.count), 4, REQUEST, describe)
    end,
    [KIND.Fenced] = function(view, tree, values)
        show_groups(view, tree, little_endian(values.count), 8, OUTCOME, outcome_of)
    end,
}

local function show_body(view, tree, frame)
    local values = show(view, tree, BODY[frame.kind])
    if not values then return end
    if frame.is_new and MATCH[frame.kind] then MATCH[frame.kind](frame, values) end
    local more = MORE[frame.kind] and MORE[frame.kind](view, tree, values)
    if view.at < view.stop and view.is_whole then tree:add_proto_expert_info(e.length) end
    return more
end

-- Frames

local HAS_ENTRIES = { [KIND.Command] = true, [KIND.Data] = true, [KIND.Echo] = true }

-- Whether there is a frame at `at`, which is where its version is.
local function fits(tvb, at)
    if tvb:len() < at + HEADER_LEN then return false end
    local kind = tvb(at + 1, 1):uint()
    local is_known = tvb(at, 1):uint() == VERSION and KINDS[kind]
    if not is_known and kind ~= KIND.Discover and kind ~= KIND.Offer and kind ~= KIND.Reject then
        return false
    end
    return crc32c(tvb:raw(at, HEADER_LEN - 4)) == tvb(at + HEADER_LEN - 4, 4):le_uint()
end

-- What is known of a frame before it is shown.
local function frame_of(tvb, at, pinfo)
    local there, back = tostring(pinfo.src) .. " " .. pinfo.src_port,
        tostring(pinfo.dst) .. " " .. pinfo.dst_port
    return {
        kind = tvb(at + 1, 1):uint(), flags = tvb(at + 2, 2):le_uint(),
        is_reply = band(tvb(at + 2, 2):le_uint(), REPLY) ~= 0,
        channel = tvb:raw(at + 4, 10),
        entries = tvb(at + 36, 2):le_uint(), data_len = tvb(at + 38, 4):le_uint(),
        note = note_of(pinfo, tvb:raw(at, HEADER_LEN)), is_new = not pinfo.visited,
        number = pinfo.number, time = pinfo.rel_ts,
        there = there .. " " .. back .. " ", back = back .. " " .. there .. " ",
    }
end

-- Checks the payload at `view`, if it is all there and in the clear.
local function check_payload(view, tree, frame)
    if not proto.prefs.payload or not view.is_whole then return end
    local is_skipped = frame.kind == KIND.Echo
        or frame.kind == KIND.Data and band(frame.flags, CHECKSUMMED) == 0
    local from = view.at + (is_skipped and frame.data_len or 0)
    local covered = from < view.stop and view.tvb:raw(from, view.stop - from) or ""
    if crc32c(covered) ~= view.payload_crc then tree:add_proto_expert_info(e.payload_crc) end
end

local function show_sealed(view, tree)
    local len = view.stop - view.at - (view.is_whole and SEAL_LEN or 0)
    if len > 0 then tree:add(sealed, take(view, len)) end
    show_rest(view, tree, seal_tag)
    return "sealed"
end

local function show_payload(view, tree, frame)
    if HAS_ENTRIES[frame.kind] then return show_entries(view, tree, frame) end
    if BODY[frame.kind] and frame.data_len > 0 then return show_body(view, tree, frame) end
    if frame.is_new and frame.kind == KIND.Disconnect then
        local act = frame.is_reply and answer_on_channel or ask_on_channel
        act(frame, 0, "disconnect")
    end
end

-- Shows the frame at `at` that is `len` bytes long from its version on, with its `KIND` in the list
-- of packets. Returns the number of bytes that are the frame's.
local function show_frame(tvb, at, len, pinfo, tree)
    local frame = frame_of(tvb, at, pinfo)
    local wanted = HEADER_LEN + frame.data_len + frame.entries * ENTRY_LEN
    local crc = tvb(at + 42, 4):le_uint()
    local is_sealed = frame.kind >= KIND.Command and crc == 0 and len >= wanted + SEAL_LEN
    if is_sealed then wanted = wanted + SEAL_LEN end
    local used = math.min(wanted, len)
    local stop = math.min(at + used, tvb:len())
    local view = { tvb = tvb, at = at, stop = stop, payload_crc = crc }
    view.is_whole = len >= wanted and stop == at + used
    local is_other = tvb(at, 1):uint() ~= VERSION
    local raw = show(view, tree, is_other and OTHER_HEADER or HEADER)
    if not fits(tvb, at) then tree:add_proto_expert_info(e.header_crc) end
    if len < wanted then tree:add_proto_expert_info(e.length) end
    if frame.is_new and not is_other then find_retransmission(frame, frame.kind, raw) end
    local more
    if is_sealed then
        more = show_sealed(view, tree)
    else
        check_payload(view, tree, frame)
        if is_other then
            tree:add_proto_expert_info(e.version)
            show(view, tree, OTHER_BODY)
        else
            more = show_payload(view, tree, frame)
        end
    end
    if frame.note.is_again then
        tree:add(retransmission, frame.note.is_again):set_generated()
            :add_proto_expert_info(e.retransmission)
    end
    show_note(tree, frame.note[0])
    local label = (KINDS[frame.kind] or "?") .. (frame.is_reply and " reply" or "")
    if more and more ~= "" then label = label .. " " .. more end
    tree:append_text(", " .. label)
    pinfo.cols.info:append((frame.note.is_again and "[again] " or "") .. label .. "  ")
    pinfo.cols.info:fence()
    return used
end

-- Ways to travel

local function begin(pinfo)
    pinfo.cols.protocol = "Tyche"
    pinfo.cols.info:clear()
end

local function on_ethernet(tvb, pinfo, tree)
    if not fits(tvb, 0) then return 0 end
    begin(pinfo)
    local item = tree:add(proto, tvb())
    local used = show_frame(tvb, 0, tvb:reported_len(), pinfo, item)
    item:set_len(math.min(used, tvb:len()))
    return used
end

-- Whether a datagram of Tyche can begin at `at`, apart from the checksum of the header.
local function is_datagram(tvb, at)
    if tvb:len() < at + FRAME_MIN then return false end
    local len = tvb(at + 12, 2):uint()
    return len >= FRAME_MIN and at + len <= tvb:reported_len()
        and KINDS[tvb(at + 15, 1):uint()] ~= nil
end

-- The next datagram of a train behind the frame that ends at `at`, or the end. A train is captured as
-- one datagram where cards or the kernel cut it (GSO) or have put it together (GRO); each but the
-- first begins with zeroes as well, behind the padding of the one before it.
local function next_in_train(tvb, at)
    local text_of = at < tvb:len() and tvb:raw(at) or ""
    local from = 1
    while true do
        local found = text_of:find(("\0"):rep(12), from, true)
        if not found then return tvb:len() end
        local start = at + found - 1
        if text_of:byte(found + 14) == VERSION and is_datagram(tvb, start)
            and fits(tvb, start + ETHERNET_LEN) then
            return start
        end
        from = found + 1
    end
end

local function show_datagram(tvb, at, pinfo, tree)
    local len = tvb(at + 12, 2):uint()
    local stop = next_in_train(tvb, at + len)
    local item = tree:add(proto, tvb(at, math.max(stop, at + ETHERNET_LEN) - at))
    show({ tvb = tvb, at = at, stop = at + 12 }, item, DATAGRAM)
    item:add(stream_len, tvb(at + 12, 2))
    show_frame(tvb, at + ETHERNET_LEN, len - ETHERNET_LEN, pinfo, item)
    show_rest({ tvb = tvb, at = at + len, stop = stop }, item, datagram_padding)
    return stop
end

local function on_udp(tvb, pinfo, tree)
    if not is_datagram(tvb, 0) then return 0 end
    begin(pinfo)
    local at = 0
    while at < tvb:len() do at = show_datagram(tvb, at, pinfo, tree) end
    return tvb:reported_len()
end

local function is_stream_len(len)
    return len >= FRAME_MIN and len <= FRAME_MAX
end

-- The length of the frame with its prefix; behind a wrong length nothing has a meaning.
local function stream_frame_len(tvb, _, at)
    local len = tvb(at, 4):le_uint()
    return is_stream_len(len) and len + 4 or tvb:len() - at
end

local function on_stream(tvb, pinfo, tree)
    local item, len = tree:add(proto, tvb()), tvb(0, 4):le_uint()
    item:add_le(stream_len, tvb(0, 4))
    if not is_stream_len(len) or tvb:len() < 4 + FRAME_MIN then
        item:add_proto_expert_info(e.length)
        return tvb:len()
    end
    show({ tvb = tvb, at = 4, stop = 16 }, item, ETHERNET)
    item:add(ethertype, tvb(16, 2))
    show_frame(tvb, 4 + ETHERNET_LEN, len - ETHERNET_LEN, pinfo, item)
    return tvb:len()
end

local function on_tcp(tvb, pinfo, tree)
    begin(pinfo)
    dissect_tcp_pdus(tvb, tree, 4, stream_frame_len, on_stream)
    return tvb:len()
end

local PORT_TCP, PORT_UDP = 2, 3

-- Ethernet may be in a tunnel over UDP, so a frame that begins at once is looked for first.
function proto.dissector(tvb, pinfo, tree)
    if fits(tvb, 0) then return on_ethernet(tvb, pinfo, tree) end
    if pinfo.port_type == PORT_TCP then return on_tcp(tvb, pinfo, tree) end
    if pinfo.port_type == PORT_UDP then return on_udp(tvb, pinfo, tree) end
    return 0
end

DissectorTable.get("ethertype"):add(ETHERTYPE, proto)
for _, port in ipairs(UDP_PORTS) do DissectorTable.get("udp.port"):add(port, proto) end
DissectorTable.get("tcp.port"):add_for_decode_as(proto)

proto:register_heuristic("udp", function(tvb, pinfo, tree)
    if not (is_datagram(tvb, 0) and fits(tvb, ETHERNET_LEN)) then return false end
    on_udp(tvb, pinfo, tree)
    return true
end)

-- A connection is Tyche's from the first segment on that begins with a frame.
proto:register_heuristic("tcp", function(tvb, pinfo, tree)
    if tvb:len() < 4 + FRAME_MIN or not is_stream_len(tvb(0, 4):le_uint()) then return false end
    if not fits(tvb, 4 + ETHERNET_LEN) then return false end
    pinfo.conversation = proto
    on_tcp(tvb, pinfo, tree)
    return true
end)
