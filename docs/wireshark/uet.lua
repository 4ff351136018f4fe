-- Ultra Ethernet Transport (UE 1.0.1, 3.4, 3.5, 3.7) for Wireshark and tshark.
--
--   tshark -X lua_script:uet.lua -r file.pcap
--   or copy it to the folder of personal Lua plugins (Help, About, Folders)
--
-- Fields are named as "uetdump -J" names them, where both have one: uet.psn, uet.opcode,
-- uet.sealed.tsc and so on; names of types, codes and opcodes are text, as there. Packets to or
-- from UDP port 4793 are UET; on other ports a packet is, if its CRC verifies, and so are the others
-- of its flow. A train (several packets in one frame of offloaded segmentation) is taken apart.
-- Sealed packets are shown as far as they are in clear; uetdump opens them with the keys.
--
-- SPDX-License-Identifier: Apache-2.0

local uet = Proto("uet", "Ultra Ethernet Transport")

local band, rshift, bxor = bit.band, bit.rshift, bit.bxor

-- Names, as transport/wire has them.
local TYPES = {
	"TSS", "RUD_REQ", "ROD_REQ", "RUDI_REQ", "RUDI_RESP", "UUD_REQ", "ACK", "ACK_CC", "ACK_CCX", "NACK", "CTRL",
	"NACK_CCX", "RUD_CC_REQ", "ROD_CC_REQ",
}
local NEXT = { [0] = "NONE", "REQ_SMALL", "REQ_MEDIUM", "REQ_STD", "RSP", "RSP_DATA", "RSP_DATA_SMALL" }
local CTL = { [0] = "NOOP", "ACK_REQ", "CLEAR_CMD", "CLEAR_REQ", "CLOSE_CMD", "CLOSE_REQ", "PROBE", "CREDIT", "CREDIT_REQ", "NEGOTIATION" }
local NACKS = {
	[0x01] = "TRIMMED", [0x02] = "TRIMMED_LASTHOP", [0x03] = "TRIMMED_ACK", [0x04] = "NO_PDC_AVAIL", [0x05] = "NO_CCC_AVAIL",
	[0x06] = "NO_BITMAP", [0x07] = "NO_PKT_BUFFER", [0x08] = "NO_GTD_DEL_AVAIL", [0x09] = "NO_SES_MSG_AVAIL", [0x0A] = "NO_RESOURCE",
	[0x0B] = "PSN_OOR_WINDOW", [0x0D] = "ROD_OOO", [0x0E] = "INV_DPDCID", [0x0F] = "PDC_HDR_MISMATCH", [0x10] = "CLOSING",
	[0x11] = "CLOSING_IN_ERR", [0x12] = "PKT_NOT_RCVD", [0x13] = "GTD_RESP_UNAVAIL", [0x14] = "ACK_WITH_DATA", [0x15] = "INVALID_SYN",
	[0x16] = "PDC_MODE_MISMATCH", [0x17] = "NEW_START_PSN", [0x18] = "RCVD_SES_PROCG", [0x19] = "UNEXP_EVENT", [0x1A] = "RCVR_INFER_LOSS",
	[0xFD] = "EXP_NORMAL", [0xFE] = "EXP_ERROR", [0xFF] = "EXP_FATAL",
}
local OPS = {
	[0] = "NO_OP", "WRITE", "READ", "ATOMIC", "FETCHING_ATOMIC", "SEND", "RENDEZVOUS_SEND", "DATAGRAM_SEND", "DEFERRABLE_SEND",
	"TAGGED_SEND", "RENDEZVOUS_TSEND", "DEFERRABLE_TSEND", "DEFERRABLE_RTR", "TSEND_ATOMIC", "TSEND_FETCH_ATOMIC", "MSG_ERROR",
}
local RSPS = { [0] = "DEFAULT_RESPONSE", "RESPONSE", "RESPONSE_W_DATA", "NO_RESPONSE" }
local RCS = {
	[0] = "NULL", "OK", "BAD_GENERATION", "DISABLED", "DISABLED_GEN", "NO_MATCH", "UNSUPPORTED_OP", "UNSUPPORTED_SIZE",
	"AT_INVALID", "AT_PERM", "AT_ATS_ERROR", "AT_NO_TRANS", "AT_OUT_OF_RANGE", "HOST_POISONED", "HOST_UNSUCCESS_CMPL",
	"AMO_UNSUPPORTED_OP", "AMO_UNSUPPORTED_DT", "AMO_UNSUPPORTED_SIZE", "AMO_UNALIGNED", "AMO_FP_NAN", "AMO_FP_UNDERFLOW",
	"AMO_FP_OVERFLOW", "AMO_FP_INEXACT", "PERM_VIOLATION", "OP_VIOLATION", "BAD_INDEX", "BAD_PID", "BAD_JOB_ID", "BAD_MKEY",
	"BAD_ADDR", "CANCELLED", "UNDELIVERABLE", "UNCOR", "UNCOR_TRNSNT", "TOO_LONG", "INITIATOR_ERROR", "DROPPED",
}

local function name(names, value, kind) return names[value] or (kind .. " " .. value) end
local function hexname(names, value, kind) return names[value] or string.format("%s 0x%x", kind, value) end

-- Fields. The first list is what uetdump -J has, the second what its text has.
local F = {}
local function field(id, make, title, ...)
	F[id] = make("uet." .. id, title, ...)
end
field("part", ProtoField.uint32, "Packet of the train")
field("parts", ProtoField.uint32, "Packets of the train")
field("ev", ProtoField.uint16, "Entropy value")
field("len", ProtoField.uint32, "Length on the wire, with trailer")
field("trailer", ProtoField.string, "Trailer")
field("type", ProtoField.string, "Type")
field("flags", ProtoField.uint8, "Flags", base.HEX)
field("psn", ProtoField.uint32, "PSN", base.HEX)
field("spdcid", ProtoField.uint16, "SPDCID")
field("dpdcid", ProtoField.uint16, "DPDCID")
field("cack", ProtoField.uint32, "CACK_PSN", base.HEX)
field("ack_psn", ProtoField.uint32, "ACK_PSN", base.HEX)
field("nack", ProtoField.string, "NACK code")
field("ctl", ProtoField.string, "Control type")
field("opcode", ProtoField.string, "Opcode")
field("msg_id", ProtoField.uint16, "Message id", base.HEX)
field("data", ProtoField.uint32, "Message bytes")
field("sealed.sdi", ProtoField.uint32, "Secure domain (SDI)")
field("sealed.ssi", ProtoField.uint32, "Secure source (SSI)", base.HEX)
field("sealed.an", ProtoField.uint8, "Association number")
field("sealed.epoch", ProtoField.uint16, "Epoch")
field("sealed.tsc", ProtoField.uint64, "Packet counter (TSC)", base.HEX)

field("next_hdr", ProtoField.string, "Next header")
field("clear_off", ProtoField.int16, "CLEAR_PSN offset")
field("psn_offset", ProtoField.uint16, "PSN offset")
field("pdc_info", ProtoField.uint8, "PDC info", base.HEX)
field("ccc_id", ProtoField.uint8, "CCC id")
field("credit_target", ProtoField.uint32, "Credit target, 256 bytes each")
field("pkt_id", ProtoField.uint32, "Packet id", base.HEX)
field("ack_off", ProtoField.int16, "ACK_PSN offset")
field("probe_opaque", ProtoField.uint16, "Probe", base.HEX)
field("req", ProtoField.uint8, "Request of the ACK")
field("expected_psn", ProtoField.uint32, "Expected PSN", base.HEX)
field("cc_type", ProtoField.uint8, "CC type")
field("cc_flags", ProtoField.uint8, "CC flags", base.HEX)
field("mpr", ProtoField.uint8, "MP_RANGE, 128 PSNs each")
field("sack_off", ProtoField.int16, "SACK base offset")
field("sack", ProtoField.uint64, "SACK bitmap", base.HEX)
field("cc_state", ProtoField.uint64, "CC state", base.HEX)
field("service_time", ProtoField.uint16, "Service time, 128 ns each")
field("rcv_cwnd_pend", ProtoField.uint8, "Receiver penalty")
field("rcvd_bytes", ProtoField.uint32, "Received bytes, 256 each")
field("ooo_count", ProtoField.uint16, "Packets out of order")
field("ccx", ProtoField.uint64, "CCX state", base.HEX)
field("vendor", ProtoField.uint8, "Vendor code", base.HEX)
field("payload", ProtoField.uint32, "Payload", base.HEX)
field("ses_flags", ProtoField.uint8, "SES flags", base.HEX)
field("gen", ProtoField.uint8, "RI generation")
field("job", ProtoField.uint32, "JobID")
field("pid", ProtoField.uint16, "PIDonFEP")
field("ri", ProtoField.uint16, "Resource index")
field("buf_off", ProtoField.uint64, "Buffer offset", base.HEX)
field("initiator", ProtoField.uint32, "Initiator")
field("match", ProtoField.uint64, "Match bits or memory key", base.HEX)
field("hdr_data", ProtoField.uint64, "Header data", base.HEX)
field("payload_len", ProtoField.uint16, "Payload length")
field("msg_off", ProtoField.uint32, "Message offset")
field("req_len", ProtoField.uint32, "Request length")
field("list", ProtoField.uint8, "List")
field("rc", ProtoField.string, "Return code")
field("mod_len", ProtoField.uint32, "Modified length")
field("rsp_msg_id", ProtoField.uint16, "Message id of the response", base.HEX)
field("req_psn", ProtoField.uint32, "PSN of the request", base.HEX)
field("ext", ProtoField.bytes, "Extension header")
field("body", ProtoField.bytes, "Bytes of the message")
local FLAGS = {
	{ "syn", "SYN", 0x04 }, { "ar", "AR", 0x08 }, { "retx", "RETX", 0x10 }, { "isrod", "ISROD", 0x20 },
	{ "p", "P", 0x08 }, { "m", "M", 0x20 }, { "epsn", "EPSN", 0x40 }, { "nt", "NT", 0x08 },
}
local BIT = {}
for _, f in ipairs(FLAGS) do
	F["flags." .. f[1]] = ProtoField.bool("uet.flags." .. f[1], f[2], 8, nil, f[3])
	BIT[f[1]] = f
end
local SES = { { "som", "SOM", 0x01 }, { "eom", "EOM", 0x02 }, { "hd", "HD", 0x04 }, { "rel", "REL", 0x08 }, { "ie", "IE", 0x10 }, { "dc", "DC", 0x20 } }
for _, f in ipairs(SES) do
	F["ses_flags." .. f[1]] = ProtoField.bool("uet.ses_flags." .. f[1], f[2], 8, nil, f[3])
end
local all = {}
for _, f in pairs(F) do all[#all + 1] = f end
uet.fields = all

local E = {
	malformed = ProtoExpert.new("uet.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR),
	badcrc = ProtoExpert.new("uet.bad_crc", "The CRC does not verify", expert.group.CHECKSUM, expert.severity.WARN),
	resent = ProtoExpert.new("uet.resent", "A retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
	refused = ProtoExpert.new("uet.refused", "A NACK", expert.group.RESPONSE_CODE, expert.severity.NOTE),
}
uet.experts = { E.malformed, E.badcrc, E.resent, E.refused }

local ipsrc, ipdst = Field.new("ip.src"), Field.new("ip.dst")
local ip6src, ip6dst = Field.new("ipv6.src"), Field.new("ipv6.dst")
local dsfield, tclass = Field.new("ip.dsfield"), Field.new("ipv6.tclass")
local iface = Field.new("frame.interface_name")

-- CRC-32C. It covers the addresses, the UDP header without its checksum, and the packet.
local CASTAGNOLI = {}
for i = 0, 255 do
	local c = i
	for _ = 1, 8 do
		c = band(c, 1) == 1 and bxor(rshift(c, 1), 0x82F63B78) or rshift(c, 1)
	end
	CASTAGNOLI[i] = c
end

local function crc(state, bytes)
	for i = 1, #bytes do
		state = bxor(CASTAGNOLI[band(bxor(state, bytes:byte(i)), 255)], rshift(state, 8))
	end
	return state
end

local function u16(v) return string.char(math.floor(v / 256) % 256, v % 256) end

-- last returns the bytes of the innermost of several fields of one name.
local function last(...)
	local infos = { ... }
	if #infos == 0 then return nil end
	return infos[#infos].range:raw()
end

-- A datagram is what IP carries: bytes (as captured), len (on the wire), and what the CRC covers
-- before it.
local function datagram(tvb, pinfo, native)
	local d = { tvb = tvb, len = tvb:reported_len(), cap = tvb:captured_len(), native = native, off = 0 }
	if native then d.off, d.len, d.cap = 4, d.len - 4, d.cap - 4 end
	local four = pinfo.net_src ~= nil and last(ipsrc()) ~= nil and last(ip6src()) == nil
	d.src = four and last(ipsrc()) or last(ip6src()) or ""
	d.dst = four and last(ipdst()) or last(ip6dst()) or ""
	local dsf = four and { dsfield() } or { tclass() }
	d.tos = #dsf > 0 and dsf[#dsf].value or 0
	d.tos = tonumber(tostring(d.tos)) or 0
	d.sport, d.dport = pinfo.src_port, pinfo.dst_port
	local i = iface()
	local n = i and tostring(i) or ""
	d.kind = n == "uet" and "tap" or n == "uet-plain" and "plain" or "other"
	d.ev = d.sport
	if native then d.ev = tvb(0, 2):uint() end
	return d
end

-- verified reports whether n bytes at a place of the datagram end with the CRC of a packet.
local function verified(d, at, n)
	if n < 4 or at + n > d.cap then return false end
	local head = d.src .. d.dst
	if d.native then
		head = head .. d.tvb:raw(0, 2) .. "\0\0"
	else
		head = head .. u16(d.sport) .. u16(d.dport) .. u16(8 + n) .. "\0\0"
	end
	local state = crc(0xFFFFFFFF, head)
	state = bxor(crc(state, d.tvb:raw(d.off + at, n - 4)), 0xFFFFFFFF)
	return band(state, 0xFFFFFFFF) == band(d.tvb(d.off + at + n - 4, 4):uint(), 0xFFFFFFFF)
end

-- parse reads the headers of a packet in clear, n bytes at a place. It returns a table with the
-- values, in "rows" what is to be shown, and in "bad" what is wrong.
local REQ = { [2] = true, [3] = true, [13] = true, [14] = true }
local ACK = { [7] = true, [8] = true, [9] = true }
local NACK = { [10] = true, [12] = true }

local function carries(typ, nxt)
	if REQ[typ] then return nxt >= 1 and nxt <= 3 or nxt == 5 or nxt == 6 end
	if typ == 4 then return nxt >= 1 and nxt <= 3 end
	if typ == 5 then return nxt >= 4 and nxt <= 6 end
	if typ == 6 then return nxt == 2 or nxt == 3 end
	if ACK[typ] then return nxt == 0 or nxt >= 4 and nxt <= 6 end
	return nxt == 0
end

local function parse(d, at, n)
	local m = { rows = {}, headers = 0 }
	local base = d.off + at
	local function fail(what)
		m.bad = what
		return m
	end
	local function show(id, off, len, value)
		m.rows[#m.rows + 1] = { id, base + off, len, value }
		m[id] = value
	end
	local function u8(o) return d.tvb(base + o, 1):uint() end
	local function u16be(o) return d.tvb(base + o, 2):uint() end
	local function u32(o) return d.tvb(base + o, 4):uint() end
	local function i16(o) return d.tvb(base + o, 2):int() end
	local function u64(id, o) show(id, o, 8, d.tvb(base + o, 8):uint64()) end
	if n < 2 then return fail("prologue: length") end
	local p = u16be(0)
	local typ, mid, flags = rshift(p, 11), band(rshift(p, 7), 15), band(p, 0x7f)
	if typ ~= 0 then show("type", 0, 1, name(TYPES, typ, "type")) end
	m.typ, m.next = typ, mid
	local function shown(value, list)
		show("flags", 1, 1, value)
		for _, f in ipairs(list) do m.rows[#m.rows + 1] = { "flags." .. f, base + 1, 1, value, true } end
	end
	local function pdcids(syn)
		show("spdcid", 8, 2, u16be(8))
		if syn then
			show("pdc_info", 10, 1, rshift(u16be(10), 12))
			show("psn_offset", 10, 2, band(u16be(10), 0xfff))
		else
			show("dpdcid", 10, 2, u16be(10))
		end
	end
	local h
	if REQ[typ] then
		h = typ >= 13 and 16 or 12
		if n < h then return fail("RUD/ROD request: length") end
		flags = band(flags, 0x1c)
		shown(flags, { "retx", "ar", "syn" })
		show("clear_off", 2, 2, i16(2))
		show("psn", 4, 4, u32(4))
		pdcids(band(flags, 4) ~= 0)
		if h == 16 then
			show("ccc_id", 12, 1, u8(12))
			show("credit_target", 13, 3, d.tvb(base + 13, 3):uint())
		end
	elseif typ == 4 or typ == 5 then
		h = 8
		if n < h then return fail("RUDI: length") end
		show("pkt_id", 4, 4, u32(4))
	elseif typ == 6 then
		h = 4
		if n < h then return fail("UUD: length") end
	elseif ACK[typ] then
		h = 12
		if typ == 7 and band(flags, 0x40) ~= 0 then h = 16 end
		if typ == 8 then h = 32 elseif typ == 9 then h = 40 end
		if n < h then return fail("ACK: length") end
		show("req", 1, 1, rshift(band(flags, 6), 1))
		flags = band(flags, typ == 7 and 0x78 or 0x38)
		shown(flags, typ == 7 and { "epsn", "m", "retx", "p" } or { "m", "retx", "p" })
		local cack = u32(4)
		if band(flags, 8) ~= 0 then
			show("probe_opaque", 2, 2, u16be(2))
		else
			show("ack_off", 2, 2, i16(2))
		end
		show("cack", 4, 4, cack)
		if band(flags, 8) == 0 then show("ack_psn", 2, 6, (cack + i16(2)) % 2 ^ 32) end
		pdcids(false)
		if typ == 7 and h == 16 then show("expected_psn", 12, 4, u32(12)) end
		if typ ~= 7 then
			show("cc_type", 12, 1, rshift(u8(12), 4))
			show("cc_flags", 12, 1, band(u8(12), 15))
			show("mpr", 13, 1, u8(13))
			show("sack_off", 14, 2, i16(14))
			u64("sack", 16)
			u64("cc_state", 24)
			if rshift(u8(12), 4) == 0 then
				show("service_time", 24, 2, u16be(24))
				show("rcv_cwnd_pend", 26, 1, band(u8(26), 0x7f))
				show("rcvd_bytes", 27, 3, d.tvb(base + 27, 3):uint())
				show("ooo_count", 30, 2, u16be(30))
			end
			if typ == 9 then u64("ccx", 32) end
		end
	elseif NACK[typ] then
		h = 16
		if n < h then return fail("NACK: length") end
		if typ == 12 and n >= 32 then h = 32 end
		flags = band(flags, 0x38)
		shown(flags, { "m", "retx", "nt" })
		show("nack", 2, 1, hexname(NACKS, u8(2), "nack"))
		show("vendor", 3, 1, u8(3))
		show("psn", 4, 4, u32(4))
		pdcids(false)
		show("payload", 12, 4, u32(12))
		m.refused = true
	elseif typ == 11 then
		h = 16
		if n < h then return fail("control packet: length") end
		if mid > 9 then return fail("control packet: ctl_type") end
		flags = band(flags, 0x3c)
		show("ctl", 0, 2, CTL[mid])
		shown(flags, { "isrod", "retx", "ar", "syn" })
		if mid == 6 then show("probe_opaque", 2, 2, u16be(2)) end
		show("psn", 4, 4, u32(4))
		pdcids(band(flags, 4) ~= 0)
		show("payload", 12, 4, u32(12))
		m.headers = h
		return m
	else
		return fail("prologue: type")
	end
	m.headers = h
	if band(flags, 0x10) ~= 0 and (REQ[typ]) then m.resent = true end
	if not carries(typ, mid) then return fail(name(TYPES, typ, "type") .. ": next_hdr " .. name(NEXT, mid, "next_hdr")) end
	show("next_hdr", 0, 2, name(NEXT, mid, "next_hdr"))
	if mid == 0 then return m end

	-- The SES header.
	local s, left = h, n - h
	local need = ({ 20, 32, 44, 12, 20, 12 })[mid]
	if left < need then return fail(NEXT[mid] .. ": length") end
	if rshift(u8(s + 1), 6) ~= 0 then return fail(NEXT[mid] .. ": version") end
	if mid <= 3 then
		local op, f = band(u8(s), 0x3f), u8(s + 1)
		if mid < 3 and band(f, 3) ~= 3 then return fail(NEXT[mid] .. ": SOM/EOM") end
		local som = band(f, 1) ~= 0
		if mid == 1 or mid == 3 and not som then f = band(f, 0x3b) end
		show("opcode", s, 1, name(OPS, op, "opcode"))
		m.op, m.som, m.eom = op, som, band(f, 2) ~= 0
		show("ses_flags", s + 1, 1, f)
		for _, e in ipairs(SES) do m.rows[#m.rows + 1] = { "ses_flags." .. e[1], base + s + 1, 1, f, true } end
		if mid == 3 then
			show("msg_id", s + 2, 2, u16be(s + 2))
		else
			show("req_len", s + 2, 2, band(u16be(s + 2), 0x3fff))
		end
		show("gen", s + 4, 1, u8(s + 4))
		show("job", s + 5, 3, d.tvb(base + s + 5, 3):uint())
		show("pid", s + 8, 2, band(u16be(s + 8), 0xfff))
		show("ri", s + 10, 2, band(u16be(s + 10), 0xfff))
		if mid == 2 and band(f, 4) ~= 0 then u64("hdr_data", s + 12) else u64("buf_off", s + 12) end
		if mid > 1 then
			show("initiator", s + 20, 4, u32(s + 20))
			u64("match", s + 24)
		end
		if mid == 3 then
			if som then
				u64("hdr_data", s + 32)
			else
				show("payload_len", s + 34, 2, band(u16be(s + 34), 0x3fff))
				show("msg_off", s + 36, 4, u32(s + 36))
			end
			show("req_len", s + 40, 4, u32(s + 40))
		end
		m.headers = s + need
		-- Extension headers, which may be cut.
		local ext = 0
		if mid == 3 and (op == 6 or op == 10) and som then
			ext = 24
		elseif op == 3 or op == 4 or op == 13 or op == 14 then
			ext = 4
			local amo = left > need and u8(s + need) or 0
			if amo >= 13 and amo <= 19 then ext = 36 end
		end
		m.headers = m.headers + ext
		if ext > 0 and left - need > 0 then show("ext", s + need, math.min(ext, left - need), true) end
		return m
	end
	local op = band(u8(s), 0x3f)
	if (mid == 4) == (op == 2) then return fail(NEXT[mid] .. ": opcode") end
	show("opcode", s, 1, name(RSPS, op, "response"))
	show("list", s, 1, rshift(u8(s), 6))
	show("rc", s + 1, 1, hexname(RCS, band(u8(s + 1), 0x3f), "rc"))
	if mid == 4 then
		show("msg_id", s + 2, 2, u16be(s + 2))
		show("gen", s + 4, 1, u8(s + 4))
		show("job", s + 5, 3, d.tvb(base + s + 5, 3):uint())
		show("mod_len", s + 8, 4, u32(s + 8))
	elseif mid == 5 then
		show("rsp_msg_id", s + 2, 2, u16be(s + 2))
		show("job", s + 5, 3, d.tvb(base + s + 5, 3):uint())
		show("msg_id", s + 8, 2, u16be(s + 8))
		show("payload_len", s + 10, 2, band(u16be(s + 10), 0x3fff))
		show("mod_len", s + 12, 4, u32(s + 12))
		show("msg_off", s + 16, 4, u32(s + 16))
	else
		show("payload_len", s + 2, 2, band(u16be(s + 2), 0x3fff))
		show("job", s + 5, 3, d.tvb(base + s + 5, 3):uint())
		show("req_psn", s + 8, 4, u32(s + 8))
	end
	m.headers = s + need
	return m
end

-- declared returns the length that the headers say, without a trailer, and whether they say all of
-- it: the first packet of a long message does not.
local function declared(d, at, n)
	local m = parse(d, at, n)
	if m.bad then return 0, false end
	local len, sure = m.headers, true
	if m.op ~= nil then
		local carried = m.op ~= 2
		if m.next < 3 or not m.som then
			local l = m.next < 3 and m.req_len or m.payload_len
			if carried then len = len + l end
		elseif m.eom and m.req_len <= 8192 then
			if carried then len = len + m.req_len end
		else
			sure = m.op == 2
		end
	elseif m.payload_len ~= nil then
		len = len + m.payload_len
	end
	return len, sure
end

local MTUS = { 8192, 4096, 2048, 1024 }

-- train reports whether the datagram is packets of one length: by their CRCs, or without these by
-- what the headers say.
local function train(d, seg)
	local ok, at = false, 0
	while at < d.len do
		local n = math.min(seg, d.len - at)
		if at + n > d.cap then
			if ok then return true end
			break
		end
		if not verified(d, at, n) then
			if ok then return false end
			break
		end
		ok, at = true, at + seg
	end
	if ok then return true end
	at = 0
	while at < d.cap do
		local left = math.min(seg, d.len - at)
		local n, sure = declared(d, at, d.cap - at)
		if n == 0 then
			if at + left <= d.cap or d.cap - at >= 60 then return false end -- else the capture ends in the headers
		elseif sure and n ~= left and n + 4 ~= left or not sure and n >= left then
			return false
		end
		at = at + seg
	end
	return d.cap > 0
end

-- segment returns the length of the packets of a train, or of the one packet that it is.
local function segment(d)
	if d.len == 0 or d.cap < 2 or d.kind ~= "other" or d.native then return d.len end
	local most = math.floor(d.len / 128)
	if rshift(d.tvb(d.off, 1):uint(), 3) == 1 then -- sealed: the next counter
		if d.cap < 12 then return d.len end
		local h = band(d.tvb(d.off, 1):uint(), 4) ~= 0 and 16 or 12
		local first, tsc = d.tvb:raw(d.off, h - 6), d.cap >= h and d.tvb:raw(d.off + h - 6, 6) or nil
		if tsc == nil then return d.len end
		for seg = math.max(h + 28, most), d.cap - h do
			if d.tvb(d.off + seg, 1):uint() == first:byte(1) and d.tvb:raw(d.off + seg, h - 6) == first then
				local a, b = 0, 0
				for i = 1, 6 do
					a, b = a * 256 + tsc:byte(i), b * 256 + d.tvb(d.off + seg + h - 7 + i, 1):uint()
				end
				if b == a + 1 then return seg end
			end
		end
		return d.len
	end
	if d.cap == d.len and verified(d, 0, d.len) then return d.len end
	local n, sure = declared(d, 0, d.cap)
	local try = {}
	if n > 0 and sure then
		try = { n + 4, n }
	elseif n > 0 then
		for _, mtu in ipairs(MTUS) do
			try[#try + 1] = n + mtu + 4
			try[#try + 1] = n + mtu
		end
	end
	for _, seg in ipairs(try) do
		if seg < d.len and math.ceil(d.len / seg) <= 128 and train(d, seg) then return seg end
	end
	-- A payload of another length: look for the header of the next packet.
	if n > 0 and not sure then
		local spdcid, psn = d.tvb(d.off + 8, 2):uint(), d.tvb(d.off + 4, 4):uint()
		for seg = math.max(n, most), d.cap - 12 do
			local b = d.off + seg
			if REQ[rshift(d.tvb(b, 1):uint(), 3)] and d.tvb(b + 8, 2):uint() == spdcid and d.tvb(b + 4, 4):uint() == (psn + 1) % 2 ^ 32 and train(d, seg) then
				return seg
			end
		end
	end
	return d.len
end

-- trailer says what is behind the packet, and returns how many bytes that are.
local function trailer(d, at, cap, len)
	if d.kind == "plain" or len < 4 then return "none", 0 end
	if cap == len and verified(d, at, len) then return "ok", 4 end
	local n, sure = declared(d, at, cap)
	if n > 0 and sure and n == len then return "none", 0 end
	if n > 0 and not sure then
		for _, mtu in ipairs(MTUS) do
			if len - n == mtu then return "none", 0 end
		end
	end
	if cap < len then return "cut", 4 end
	local dscp, typ = rshift(d.tos, 2), rshift(d.tvb(d.off + at, 1):uint(), 3)
	if (dscp == 26 or dscp == 28) and REQ[typ] then return "trimmed", 0 end
	return "bad", 4
end

-- packet shows one packet: len bytes on the wire, cap of them captured.
local function packet(d, at, cap, len, root, said, part, parts)
	local range = d.tvb(d.off + at, cap)
	local tree = root:add(uet, range)
	if parts > 1 then
		tree:add(F.part, part):set_generated()
		tree:add(F.parts, parts):set_generated()
	end
	tree:add(F.ev, d.ev):set_generated()
	tree:add(F.len, len):set_generated()
	if cap == 0 then
		tree:add(F.trailer, len > 0 and "cut" or "none"):set_generated()
		return
	end
	if rshift(d.tvb(d.off + at, 1):uint(), 3) == 1 then
		local sp = band(d.tvb(d.off + at, 1):uint(), 4) ~= 0
		local h = sp and 16 or 12
		if cap < h then
			tree:add_proto_expert_info(E.malformed, "security header: length")
		else
			local b = d.off + at
			tree:add(F["sealed.sdi"], d.tvb(b + 1, 3))
			if sp then tree:add(F["sealed.ssi"], d.tvb(b + 4, 4)) end
			tree:add(F["sealed.an"], d.tvb(b, 1), band(d.tvb(b, 1):uint(), 1))
			tree:add(F["sealed.epoch"], d.tvb(b + h - 8, 2))
			tree:add(F["sealed.tsc"], d.tvb(b + h - 6, 6))
			said[#said + 1] = "sealed, SDI " .. d.tvb(b + 1, 3):uint()
		end
		tree:add(F.trailer, cap < len and "cut" or "icv"):set_generated()
		return
	end
	local kind, k = trailer(d, at, cap, len)
	local tail = tree:add(F.trailer, kind):set_generated()
	if kind == "bad" then tail:add_proto_expert_info(E.badcrc) end
	local body = math.max(0, len - k)
	local m = parse(d, at, math.min(cap, body))
	local parent, last_flags = tree, nil
	for _, r in ipairs(m.rows) do
		local id, off, n, value, is_bit = r[1], r[2], r[3], r[4], r[5]
		if is_bit then
			last_flags:add(F[id], d.tvb(off, n), value)
		elseif id == "ext" then
			parent:add(F.ext, d.tvb(off, n))
		else
			local item = parent:add(F[id], d.tvb(off, n), value)
			if id == "flags" or id == "ses_flags" then last_flags = item end
		end
	end
	if m.bad then
		tree:add_proto_expert_info(E.malformed, m.bad)
	elseif body > m.headers then
		tree:add(F.data, body - m.headers):set_generated()
		if cap > m.headers then tree:add(F.body, d.tvb(d.off + at + m.headers, math.min(cap, body) - m.headers)) end
	end
	if m.resent then tree:add_proto_expert_info(E.resent) end
	if m.refused then tree:add_proto_expert_info(E.refused, "NACK " .. m.nack) end
	local line = { m.type or "?" }
	for _, id in ipairs({ "ctl", "nack", "opcode", "rc" }) do
		if m[id] ~= nil then line[#line + 1] = m[id] end
	end
	for _, id in ipairs({ "psn", "cack" }) do
		if m[id] ~= nil then line[#line + 1] = string.format("%s=%#x", id, m[id]) end
	end
	if m.bad then line[#line + 1] = "(" .. m.bad .. ")" end
	tree:append_text(", " .. table.concat(line, " "))
	said[#said + 1] = table.concat(line, " ")
end

local function dissect(d, pinfo, root)
	pinfo.cols.protocol = "UET"
	local seg = segment(d)
	local parts = seg > 0 and math.max(1, math.ceil(d.len / seg)) or 1
	local said = {}
	for i = 1, parts do
		local at = (i - 1) * seg
		local len = math.min(seg, d.len - at)
		packet(d, math.min(at, d.cap), math.max(0, math.min(len, d.cap - at)), len, root, said, i, parts)
	end
	pinfo.cols.info = table.concat(said, " | ", 1, math.min(#said, 4)) .. (#said > 4 and " | …" or "")
	return d.tvb:captured_len()
end

function uet.dissector(tvb, pinfo, root)
	return dissect(datagram(tvb, pinfo, false), pinfo, root)
end

local native = Proto("uet_native", "Ultra Ethernet Transport, native IP")
function native.dissector(tvb, pinfo, root)
	if tvb:captured_len() < 4 then return 0 end
	return dissect(datagram(tvb, pinfo, true), pinfo, root)
end

-- On other ports: the tap of an endpoint has nothing but UET, elsewhere the CRC decides.
local function other(tvb, pinfo, root)
	local d = datagram(tvb, pinfo, false)
	if d.kind == "other" then
		local seg = segment(d)
		if seg < 12 or not verified(d, 0, seg) then return false end
		pinfo.conversation = uet
	end
	dissect(d, pinfo, root)
	return true
end

DissectorTable.get("udp.port"):add(4793, uet)
DissectorTable.get("ip.proto"):add(253, native)
uet:register_heuristic("udp", other)
