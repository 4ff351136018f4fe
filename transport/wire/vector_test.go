package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file tests packets of other implementations. UETKIT_VECTORS names a folder of
// captures and a README.md that lists what another decoder read in each packet, one line per
// packet in a fenced list under the name of its file. Every packet of every capture is read,
// compared with its line, and written again. Disagreements are listed in exceptions, which
// has no other entries. Without the variable the tests are skipped.

// An exception is a packet about which our codecs and its line in the README disagree, and
// how.
type exception struct {
	file   string
	packet int
	why    string
	got    string // the disagreements, in alphabetical order
}

const (
	whySemantic = "XDP2 puts cacheable at 0x80, coherent at 0x40 and vendor bits below; they are 0x01, 0x02 and reserved"
	whyOneShot  = "a small or medium request is a whole message: EOM is missing (S-HDR-07)"
	whyCCX      = "ACK_CCX has 40 bytes, this one 32: its last 8 are the response's first"
	whyNack     = "no SES header follows a NACK"
	whyProbe    = "probe_opaque is a PROBE's alone, and reserved in other control packets"
	whyReserved = "reserved bits are sent as zero; here there is a message id or data of the test in them"
)

var exceptions = []exception{
	{
		"xdp2-uet_pds.pcap", 12, whyCCX,
		"4 bytes of data, listed as 0; PDS: ccx_state is 0xc109123499654321 and not listed; SES: not read; wire: response: invalid length",
	},
	{"xdp2-uet_pds.pcap", 13, whyNack, "SES: not read; next_hdr RSP behind NACK"},
	{"xdp2-uet_pds.pcap", 14, whyNack, "SES: not read; next_hdr RSP behind NACK_CCX"},
	{"xdp2-uet_pds.pcap", 15, whyProbe, "CP byte 2: 98 becomes 00; CP byte 3: 76 becomes 00; PDS: probe_opaque is 0x0, listed as 0x9876"},
	{"xdp2-uet_pds.pcap", 16, whyProbe, "CP byte 2: 12 becomes 00; CP byte 3: 34 becomes 00; PDS: probe_opaque is 0x0, listed as 0x1234"},
	{
		"xdp2-uet_ses.pcap", 3, whyReserved,
		"standard request byte 32: fe becomes 00; standard request byte 33: dc becomes 00; standard request byte 34: ba becomes 3a",
	},
	{
		"xdp2-uet_ses.pcap", 4, whyReserved,
		"standard request byte 32: fe becomes 00; standard request byte 33: dc becomes 00; standard request byte 34: ba becomes 3a",
	},
	{"xdp2-uet_ses.pcap", 5, whySemantic, "atomic byte 2: c7 becomes 03"},
	{"xdp2-uet_ses.pcap", 6, whySemantic, "compare-and-swap byte 2: c7 becomes 03"},
	{"xdp2-uet_ses.pcap", 8, whySemantic, "atomic byte 2: c7 becomes 03"},
	{"xdp2-uet_ses.pcap", 9, whySemantic, "compare-and-swap byte 2: c7 becomes 03"},
	{"xdp2-uet_ses.pcap", 11, whySemantic, "atomic byte 2: c5 becomes 01"},
	{"xdp2-uet_ses.pcap", 12, whySemantic, "compare-and-swap byte 2: c7 becomes 03"},
	{
		"xdp2-uet_ses.pcap", 13, "RESPONSE_W_DATA is no opcode of a response without data",
		"12 bytes of data, listed as 0; SES: not read; wire: response: invalid opcode",
	},
	{
		"xdp2-uet_ses.pcap", 16, "a rendezvous without its extension",
		"wire: rendezvous extension: invalid length",
	},
	{"xdp2-test_uet.pcap", 3, whyOneShot, "20 bytes of data, listed as 0; SES: not read; wire: small request: invalid SOM/EOM"},
	{"xdp2-test_uet.pcap", 4, whyProbe, "CP byte 2: 98 becomes 00; CP byte 3: 76 becomes 00; PDS: probe_opaque is 0x0, listed as 0x9876"},
	{"xdp2-test_uet.pcap", 5, whyProbe, "CP byte 2: 98 becomes 00; CP byte 3: 76 becomes 00; PDS: probe_opaque is 0x0, listed as 0x9876"},
	{"xdp2-test_uet.pcap", 7, whySemantic, "atomic byte 2: c3 becomes 03"},
	{
		"xdp2-test_uet.pcap", 8, "a standard header of 32 bytes and an extension of 8; they have 44 and 24",
		"40 bytes of data, listed as 0; SES: not read; wire: standard request: invalid length",
	},
	{"xdp2-test_uet.pcap", 9, whyOneShot, "20 bytes of data, listed as 0; SES: not read; wire: small request: invalid SOM/EOM"},
	{"xdp2-test_uet.pcap", 10, whyOneShot, "32 bytes of data, listed as 0; SES: not read; wire: medium request: invalid SOM/EOM"},
	{"xdp2-test_uet.pcap", 11, whySemantic, "compare-and-swap byte 2: c7 becomes 03"},
	{"xdp2-test_uet.pcap", 14, whyReserved, "response with data byte 4: 56 becomes 00"},
	{
		"xdp2-test_uet.pcap", 16, whyCCX,
		"4 bytes of data, listed as 0; PDS: ccx_state is 0x10e55665656789a and not listed; SES: not read; wire: response: invalid length",
	},
	{"xdp2-test_uet.pcap", 17, whyOneShot, "32 bytes of data, listed as 0; SES: not read; wire: medium request: invalid SOM/EOM"},
	{"xdp2-test_uet.pcap", 18, whyNack, "SES: not read; next_hdr RSP behind NACK"},
	{
		"xdp2-test_uet.pcap", 19, "NACK_CCX has 32 bytes; of this one in 24 the NACK is read",
		"8 bytes of data, listed as 0; NACK: 16 bytes become 32; PDS: nccx_type is 0x0, listed as 0xc; PDS: state is 0x0, listed as 0xdd0d1d2d3d4d5d6",
	},
	{
		"xdp2-test_uet.pcap", 20, "the flags of UUD are reserved; " + whyOneShot,
		"32 bytes of data, listed as 0; SES: not read; UUD byte 1: 7f becomes 00; wire: medium request: invalid SOM/EOM",
	},
}

// A listed is a line of the README, split into its parts.
type listed struct {
	line     string
	n        int    // number in the capture
	dir      string // "A>B", "B>A", or "" where the capture has its own addresses
	len      int    // of the Ethernet frame
	entropy  string // "" if over UDP
	crc, icv bool
	tss      string // the text in TSS[…]
	pds, ses string // header and fields
	data     int    // bytes behind the SES header
}

var (
	reFile = regexp.MustCompile(`^### (\S+\.pcap)`)
	reLine = regexp.MustCompile(`^(\d+) (?:(A>B|B>A) )?len=(\d+)(?: entropy=(0x[0-9a-f]+))?(?: TSS\[([^]]*)\])?( CRC ok)?( ICV ok)?$`)
)

// readList reads the packet lists of the README: file name → lines.
func readList(t *testing.T, name string) map[string][]listed {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lists := map[string][]listed{}
	file, fenced := "", false
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case strings.HasPrefix(line, "#"):
			file = ""
			if m := reFile.FindStringSubmatch(line); m != nil {
				file = m[1]
			}
		case fenced && file != "":
			parts := strings.Split(line, " | ")
			m := reLine.FindStringSubmatch(parts[0])
			if m == nil || len(parts) > 4 {
				t.Fatalf("%s: %q is no packet", file, line)
			}
			l := listed{dir: m[2], tss: m[5], crc: m[6] != "", icv: m[7] != "", line: line, entropy: m[4]}
			l.n, _ = strconv.Atoi(m[1])
			l.len, _ = strconv.Atoi(m[3])
			if last := parts[len(parts)-1]; strings.HasPrefix(last, "data=") {
				if l.data, err = strconv.Atoi(last[5:]); err != nil {
					t.Fatalf("%s: %q", file, line)
				}
				parts = parts[:len(parts)-1]
			}
			l.pds = parts[1]
			if len(parts) > 2 {
				l.ses = parts[2]
			}
			lists[file] = append(lists[file], l)
		}
	}
	if sc.Err() != nil || fenced || len(lists) == 0 {
		t.Fatalf("%s: no lists, or one without an end: %v", name, sc.Err())
	}
	return lists
}

// frames returns the Ethernet frames of a classic little-endian pcap file.
func frames(t *testing.T, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 && binary.LittleEndian.Uint32(b) != 0xa1b23c4d {
		t.Fatalf("%s is no pcap file", file)
	}
	var fs [][]byte
	for b = b[24:]; len(b) > 0; {
		if len(b) < 16 || uint64(len(b)-16) < uint64(binary.LittleEndian.Uint32(b[8:])) {
			t.Fatalf("%s ends in the middle of a packet", file)
		}
		n := int(binary.LittleEndian.Uint32(b[8:]))
		fs = append(fs, b[16:16+n])
		b = b[16+n:]
	}
	return fs
}

// ip splits an Ethernet frame. The length of the payload is that of the IP header, because
// Ethernet may have padded the frame.
func ip(t *testing.T, f []byte) (src, dst netip.Addr, proto byte, payload []byte) {
	t.Helper()
	switch p := f[14:]; binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		src, _ = netip.AddrFromSlice(p[12:16])
		dst, _ = netip.AddrFromSlice(p[16:20])
		return src, dst, p[9], p[int(p[0]&15)*4 : binary.BigEndian.Uint16(p[2:])]
	case 0x86dd:
		src, _ = netip.AddrFromSlice(p[8:24])
		dst, _ = netip.AddrFromSlice(p[24:40])
		return src, dst, p[6], p[40 : 40+int(binary.BigEndian.Uint16(p[4:]))]
	}
	t.Fatal("a frame of no IP")
	return
}

// A header is the content of one header, in the words of the README.
type header struct {
	name   string
	flags  string
	fields map[string]uint64 // negative values in two's complement
}

// listedNames replaces names of the README by ours.
var listedNames = strings.NewReplacer("RUDI_RSP", "RUDI_RESP", "RNDV_", "RENDEZVOUS_", "DEFER_", "DEFERRABLE_", "NT_RUDI", "NT")

// parseListed reads a header of the README: [list=N] NAME flags key=value …
func parseListed(s string) (header, error) {
	h := header{fields: map[string]uint64{}}
	var bare []string
	for w := range strings.FieldsSeq(s) {
		key, value, isField := strings.Cut(w, "=")
		if !isField {
			if w == "use_rsv_pdc" {
				h.fields["pdc_info"] = 8
			} else if w != "-" {
				bare = append(bare, listedNames.Replace(w))
			}
			continue
		}
		if key == "nh" {
			bare = append(bare, w)
			continue
		}
		base := 0
		if key == "cc_state" || key == "ccx_state" || key == "state" {
			base = 16
		}
		u, err := strconv.ParseUint(value, base, 64)
		if i, ierr := strconv.ParseInt(value, base, 64); err != nil && ierr == nil {
			u, err = uint64(i), nil
		}
		if err != nil {
			return h, fmt.Errorf("%q: %w", w, err)
		}
		h.fields[key] = u
	}
	if len(bare) > 0 {
		h.name, h.flags = bare[0], strings.Join(bare[1:], "+")
	}
	return h, nil
}

// A reading is what our codecs read in a packet.
type reading struct {
	got  []string // disagreements
	pds  *header
	ses  *header
	ext  string // the text of the extension
	data int    // bytes behind the SES header, extension included
}

func (r *reading) disagree(format string, args ...any) {
	r.got = append(r.got, fmt.Sprintf(format, args...))
}

// take parses the header at the front of b and writes it again. It returns the bytes behind
// it, nil if it does not parse.
func take[H any](r *reading, what string, b []byte, parse func([]byte) (H, int, error), put func(*H, []byte) []byte) (*H, []byte) {
	h, n, err := parse(b)
	if err != nil {
		r.disagree("%v", err)
		return nil, nil
	}
	for i, out := 0, put(&h, nil); i < max(n, len(out)); i++ {
		if i >= n || i >= len(out) {
			r.disagree("%s: %d bytes become %d", what, n, len(out))
			break
		}
		if out[i] != b[i] {
			r.disagree("%s byte %d: %02x becomes %02x", what, i, b[i], out[i])
		}
	}
	return &h, b[n:]
}

func (r *reading) packet(b []byte) {
	p, err := ParsePrologue(b)
	if err != nil {
		r.disagree("%v", err)
		return
	}
	switch p.Type {
	case TypeRUDReq, TypeRODReq, TypeRUDCCReq, TypeRODCCReq:
		var h *Req
		if h, b = take(r, "request", b, ParseReq, (*Req).Append); h == nil {
			return
		}
		f := map[string]uint64{"clear_off": uint64(int64(h.ClearOff)), "psn": uint64(h.PSN), "spdcid": uint64(h.SPDCID)}
		if h.Flags&FlagSYN != 0 {
			f["psn_offset"], f["pdc_info"] = uint64(h.PSNOffset), uint64(h.PDCInfo)
		} else {
			f["dpdcid"] = uint64(h.DPDCID)
		}
		if h.Len() == ReqCCLen {
			f["ccc_id"], f["credit_target"] = uint64(h.CCCID), uint64(h.CreditTarget)
		}
		r.pds = pdsHeader(h.Type, h.Next, flagString(h.Flags, FlagRETX, "RETX", FlagAR, "AR", FlagSYN, "SYN"), f)
	case TypeAck, TypeAckCC, TypeAckCCX:
		var h *Ack
		if h, b = take(r, "ACK", b, ParseAck, (*Ack).Append); h == nil {
			return
		}
		f := map[string]uint64{
			"req": uint64(h.Req), "ack_off": uint64(int64(h.AckPSNOff)), "cack": uint64(h.CACK), "spdcid": uint64(h.SPDCID), "dpdcid": uint64(h.DPDCID),
		}
		if h.Flags&AckFlagP != 0 {
			f["ack_off"] = uint64(int64(int16(h.ProbeOpaque))) // the README does not tell them apart
		}
		if h.Flags&AckFlagEPSN != 0 {
			f["expected_psn"] = uint64(h.EPSN)
		}
		if h.Type != TypeAck {
			f["cc_type"], f["cc_flags"], f["mpr"] = uint64(h.CCType), uint64(h.CCFlags), uint64(h.MPR)
			f["sack_off"], f["sack_bitmap"], f["cc_state"] = uint64(int64(h.SACKOff)), h.SACK, h.CCState
		}
		if h.Type == TypeAckCCX {
			f["ccx_state"] = h.CCX
		}
		flags := flagString(h.Flags, AckFlagM, "M", AckFlagRETX, "RETX", AckFlagP, "P", AckFlagEPSN, "EPSN")
		r.pds = pdsHeader(h.Type, h.Next, flags, f)
	case TypeNack, TypeNackCCX:
		var h *Nack
		if h, b = take(r, "NACK", b, ParseNack, (*Nack).Append); h == nil {
			return
		}
		f := map[string]uint64{
			"code": uint64(h.Code), "vendor": uint64(h.Vendor), "nack_psn": uint64(h.PSN), "spdcid": uint64(h.SPDCID), "dpdcid": uint64(h.DPDCID),
			"payload": uint64(h.Payload),
		}
		if h.Type == TypeNackCCX {
			f["nccx_type"], f["state"] = uint64(h.CCXType), h.CCX0
		}
		r.pds = pdsHeader(h.Type, h.Next, flagString(h.Flags, NackFlagM, "M", NackFlagRETX, "RETX", NackFlagNT, "NT"), f)
	case TypeCP:
		var h *CP
		if h, b = take(r, "CP", b, ParseCP, (*CP).Append); h == nil {
			return
		}
		flags := flagString(h.Flags, FlagISROD, "ISROD", FlagRETX, "RETX", FlagAR, "AR", FlagSYN, "SYN")
		if flags != "-" {
			flags = h.Ctl.String() + "+" + flags
		} else {
			flags = h.Ctl.String()
		}
		r.pds = &header{"CTRL", flags, map[string]uint64{
			"probe_opaque": uint64(h.ProbeOpaque), "psn": uint64(h.PSN), "spdcid": uint64(h.SPDCID),
			"dpdcid/off": uint64(h.DPDCID | uint16(h.PDCInfo)<<12 | h.PSNOffset), "payload": uint64(h.Payload),
		}}
	case TypeRUDIReq, TypeRUDIRsp:
		var h *RUDIHdr
		if h, b = take(r, "RUDI", b, ParseRUDI, (*RUDIHdr).Append); h == nil {
			return
		}
		flags := flagString(h.Flags, RUDIFlagM, "M", RUDIFlagRETX, "RETX")
		r.pds = pdsHeader(h.Type, h.Next, flags, map[string]uint64{"pkt_id": uint64(h.PktID)})
	case TypeUUDReq:
		var h *UUDHdr
		if h, b = take(r, "UUD", b, ParseUUD, (*UUDHdr).Append); h == nil {
			return
		}
		r.pds = pdsHeader(TypeUUDReq, h.Next, "-", nil)
	default:
		r.disagree("type %v", p.Type)
		return
	}
	if !p.Type.Carries(p.Next) {
		r.disagree("next_hdr %v behind %v", p.Next, p.Type)
		return
	}
	r.message(p.Next, b)
}

func pdsHeader(t Type, n NextHdr, flags string, fields map[string]uint64) *header {
	if flags == "-" {
		flags = ""
	}
	return &header{t.String(), strings.Trim(flags+"+nh="+n.String(), "+"), fields}
}

// message reads the SES header, its extension and the data.
func (r *reading) message(next NextHdr, b []byte) {
	r.data = len(b)
	if next == NextNone {
		return
	}
	var op Opcode
	var som bool
	req := func(o Opcode, f SESFlags, fields map[string]uint64) {
		op, som = o, f&SESSOM != 0
		r.ses = &header{o.String(), strings.Trim(f.String(), "-"), fields}
	}
	rsp := func(o RspOpcode, l List, rc RC, job uint32, fields map[string]uint64) {
		op = OpNoOp
		fields["list"], fields["rc"], fields["job"] = uint64(l), uint64(rc), uint64(job)
		r.ses = &header{o.String(), "", fields}
	}
	switch next {
	case NextReqStd:
		var h *ReqStd
		if h, b = take(r, "standard request", b, ParseReqStd, (*ReqStd).Append); h == nil {
			return
		}
		f := map[string]uint64{
			"msg_id": uint64(h.MsgID), "gen": uint64(h.Gen), "job": uint64(h.JobID), "pid": uint64(h.PIDonFEP), "ri": uint64(h.RI),
			"buf_off": h.BufOff, "initiator": uint64(h.Initiator), "match/key": h.Match, "req_len": uint64(h.ReqLen),
		}
		if h.Flags&SESSOM != 0 {
			f["hdr_data"] = h.HeaderData
		} else {
			f["payload_len"], f["msg_off"] = uint64(h.PayloadLen), uint64(h.MsgOff)
		}
		req(h.Opcode, h.Flags, f)
	case NextReqMedium:
		var h *ReqMedium
		if h, b = take(r, "medium request", b, ParseReqMedium, (*ReqMedium).Append); h == nil {
			return
		}
		req(h.Opcode, h.Flags, map[string]uint64{
			"len": uint64(h.ReqLen), "gen": uint64(h.Gen), "job": uint64(h.JobID), "pid": uint64(h.PIDonFEP), "ri": uint64(h.RI),
			"hdr_data/buf_off": h.HeaderData | h.BufOff, "initiator": uint64(h.Initiator), "key": h.Match,
		})
	case NextReqSmall:
		var h *ReqSmall
		if h, b = take(r, "small request", b, ParseReqSmall, (*ReqSmall).Append); h == nil {
			return
		}
		req(h.Opcode, h.Flags, map[string]uint64{
			"len": uint64(h.ReqLen), "gen": uint64(h.Gen), "job": uint64(h.JobID), "pid": uint64(h.PIDonFEP), "ri": uint64(h.RI), "buf_off": h.BufOff,
		})
	case NextRsp:
		var h *Rsp
		if h, b = take(r, "response", b, ParseRsp, (*Rsp).Append); h == nil {
			return
		}
		rsp(h.Opcode, h.List, h.RC, h.JobID, map[string]uint64{"msg_id": uint64(h.MsgID), "gen": uint64(h.Gen), "mod_len": uint64(h.ModLen)})
	case NextRspData:
		var h *RspData
		if h, b = take(r, "response with data", b, ParseRspData, (*RspData).Append); h == nil {
			return
		}
		rsp(h.Opcode, h.List, h.RC, h.JobID, map[string]uint64{
			"msg_id": uint64(h.MsgID), "read_msg_id": uint64(h.ReadMsgID), "payload_len": uint64(h.PayloadLen), "mod_len": uint64(h.ModLen),
			"msg_off": uint64(h.MsgOff),
		})
	case NextRspDataSmall:
		var h *RspDataSmall
		if h, b = take(r, "small response with data", b, ParseRspDataSmall, (*RspDataSmall).Append); h == nil {
			return
		}
		rsp(h.Opcode, h.List, h.RC, h.JobID, map[string]uint64{"payload_len": uint64(h.PayloadLen), "orig_psn": uint64(h.ReqPSN)})
	}
	r.data = len(b)
	switch {
	case next == NextReqStd && op.HasRendezvous() && som:
		if h, _ := take(r, "rendezvous", b, ParseRendezvous, (*Rendezvous).Append); h != nil {
			r.ext = h.String()
		}
	case !op.HasAtomic():
	case len(b) > 0 && AtomicOp(b[0]).Compares():
		if h, _ := take(r, "compare-and-swap", b, ParseCSwap, (*CSwap).Append); h != nil {
			r.ext = h.String()
		}
	default:
		if h, _ := take(r, "atomic", b, ParseAtomic, (*Atomic).Append); h != nil {
			r.ext = h.String()
		}
	}
}

// same notes how a header differs from its text in the README. Fields that the text leaves
// out must have their usual value.
func (r *reading) same(what string, h *header, text string, usual map[string]uint64) {
	want, err := parseListed(text)
	if err != nil {
		r.disagree("%s: %v", what, err)
	}
	if h == nil {
		if text != "" {
			r.disagree("%s: not read", what)
		}
		return
	}
	if h.name != want.name || h.flags != want.flags {
		r.disagree("%s: %s %s, listed as %s %s", what, h.name, h.flags, want.name, want.flags)
	}
	left := map[string]uint64{}
	for k, v := range h.fields {
		left[k] = v
	}
	for k, v := range want.fields {
		got, ok := h.fields[k]
		if !ok {
			r.disagree("%s: %s is not read", what, k)
		} else if got != v {
			r.disagree("%s: %s is %#x, listed as %#x", what, k, got, v)
		}
		delete(left, k)
	}
	for k, v := range left {
		if v != usual[k] {
			r.disagree("%s: %s is %#x and not listed", what, k, v)
		}
	}
}

// encryptedLen is the length of the headers and data that a line lists.
func encryptedLen(t *testing.T, l *listed) int {
	t.Helper()
	pds := map[string]int{"RUD_REQ": 12, "ACK": 12, "ACK_CC": 32, "CTRL": 16}
	ses := map[string]int{"nh=REQ_STD": 44, "nh=RSP": 12, "nh=NONE": 0}
	w := strings.Fields(l.pds)
	n, ok := pds[w[0]]
	if !ok {
		t.Fatalf("length of %s is not known", w[0])
	}
	if w[1] == "EPSN" {
		n += 4
	}
	for _, w := range w {
		if strings.HasPrefix(w, "nh=") {
			s, ok := ses[w]
			if !ok {
				t.Fatalf("length of %s is not known", w)
			}
			n += s
		}
	}
	return n + l.data
}

// listedExt has the extensions and operands that the README describes in prose, by file and
// packet. It has the text without the semantic byte of XDP2 (see exceptions).
var listedExt = map[string]string{
	"xdp2-uet_ses.pcap 5":   "atomic BXOR FLOAT_COMPLEX control=0x3",
	"xdp2-uet_ses.pcap 8":   "atomic BXOR FLOAT_COMPLEX control=0x3",
	"xdp2-uet_ses.pcap 11":  "atomic BAND FLOAT control=0x1",
	"xdp2-uet_ses.pcap 6":   "atomic CSWAP_GE FLOAT_COMPLEX control=0x3 compare=98765432987654322345678923456789 swap=0123456789abcdeffedcba0987654321",
	"xdp2-uet_ses.pcap 9":   "atomic CSWAP_GE FLOAT_COMPLEX control=0x3 compare=98765432987654322345678923456789 swap=0123456789abcdeffedcba0987654321",
	"xdp2-uet_ses.pcap 12":  "atomic CSWAP_GE FLOAT_COMPLEX control=0x3 compare=98765432987654322345678923456789 swap=0123456789abcdeffedcba0987654321",
	"xdp2-test_uet.pcap 7":  "atomic PROD DOUBLE_COMPLEX control=0x3",
	"xdp2-test_uet.pcap 11": "atomic CSWAP_GE UINT128 control=0x3 compare=000102030405060708090a0b0c0d0e0f swap=0f0e0d0c0b0a09080706050403020100",
}

// Every packet of every capture has the content that another decoder read in it, is written
// again as it was, and has the CRC that we compute.
func TestVectors(t *testing.T) {
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	lists := readList(t, filepath.Join(dir, "README.md"))
	files, _ := filepath.Glob(filepath.Join(dir, "*.pcap"))
	if len(files) == 0 {
		t.Fatalf("no captures in %s", dir)
	}
	needed := map[string]*exception{}
	for i := range exceptions {
		e := &exceptions[i]
		id := fmt.Sprintf("%s %d", e.file, e.packet)
		if needed[id] != nil || e.got == "" || e.why == "" {
			t.Errorf("%s is an exception twice, for nothing, or for no reason", id)
		}
		needed[id] = e
	}
	ext := map[string]bool{}
	packets, sealed, crcs := 0, 0, 0
	for _, path := range files {
		file := filepath.Base(path)
		list := lists[file]
		delete(lists, file)
		fs := frames(t, path)
		if len(fs) != len(list) {
			t.Errorf("%s has %d packets, %d are listed", file, len(fs), len(list))
			continue
		}
		usual := map[string]uint64{}
		if strings.HasPrefix(file, "refprov-") {
			usual = map[string]uint64{"job": 1, "ri": 15}
		}
		for i, f := range fs {
			l := &list[i]
			packets++
			id := fmt.Sprintf("%s %d", file, i+1)
			r := &reading{}
			if l.n != i+1 {
				t.Errorf("%s is listed as packet %d", id, l.n)
			}
			if l.len != len(f) {
				t.Errorf("%s: %d bytes, listed as %d", id, len(f), l.len)
			}
			b, crc := checkOuter(t, id, l, f)
			if crc {
				crcs++
			}
			if l.icv {
				sealed++
				h, rest := take(r, "security header", b, ParseTSS, (*TSS).Append)
				if h == nil {
					t.Errorf("%s: %q", id, r.got)
					continue
				}
				text := fmt.Sprintf("SP=0 AN=%d SDI=%d epoch=%d tsc=%#x", h.AN, h.SDI, h.Epoch, h.TSC)
				if h.SP {
					text = fmt.Sprintf("SP=1 AN=%d SDI=%d SSI=%d epoch=%d tsc=%#x", h.AN, h.SDI, h.SSI, h.Epoch, h.TSC)
				}
				if text != l.tss {
					r.disagree("security header is %s, listed as %s", text, l.tss)
				}
				if n := len(rest) - ICVLen; n != encryptedLen(t, l) {
					r.disagree("%d bytes are encrypted, %d listed", n, encryptedLen(t, l))
				}
			} else {
				r.packet(b)
				r.same("PDS", r.pds, l.pds, usual)
				r.same("SES", r.ses, l.ses, usual)
				if r.data != l.data {
					r.disagree("%d bytes of data, listed as %d", r.data, l.data)
				}
				if r.ext != listedExt[id] {
					r.disagree("extension %q", r.ext)
				}
				if listedExt[id] != "" {
					ext[id] = true
				}
			}
			refused := slices.ContainsFunc(r.got, func(s string) bool { return strings.HasPrefix(s, "wire: ") || strings.HasPrefix(s, "next_hdr ") })
			if text := Dump(b); refused != strings.Contains(text, "invalid") {
				r.disagree("told as %s", text)
			}
			slices.Sort(r.got)
			got := strings.Join(r.got, "; ")
			if e := needed[id]; e != nil {
				delete(needed, id)
				if got != e.got {
					t.Errorf("%s\n got %s\nwant %s\nbecause %s", id, got, e.got, e.why)
				}
			} else if got != "" {
				t.Errorf("%s disagrees: %s\nlisted as %s", id, got, l.line)
			}
		}
	}
	for file, list := range lists {
		t.Errorf("%s is listed with %d packets and is not there", file, len(list))
	}
	for id, e := range needed {
		t.Errorf("%s is an exception (%s) and is not there", id, e.why)
	}
	for id := range listedExt {
		if !ext[id] {
			t.Errorf("the extension of %s was not read", id)
		}
	}
	if packets < 200 || sealed < 50 || crcs < 100 {
		t.Errorf("%d packets, %d of them sealed, %d with CRC, are too few to say anything", packets, sealed, crcs)
	}
	t.Logf("%d packets in %d captures, %d sealed, %d with CRC, %d exceptions", packets, len(files), sealed, crcs, len(exceptions))
}

// checkOuter checks addresses, ports, entropy and CRC, and returns the bytes between the
// outer headers and the CRC.
func checkOuter(t *testing.T, id string, l *listed, f []byte) (b []byte, crc bool) {
	t.Helper()
	src, dst, proto, b := ip(t, f)
	if l.dir != "" {
		a, z := "192.0.2.1", "192.0.2.2"
		if src.Is6() {
			a, z = "2001:db8::1", "2001:db8::2"
		}
		if l.dir == "B>A" {
			a, z = z, a
		}
		if src.String() != a || dst.String() != z {
			t.Errorf("%s: from %v to %v, listed as %s", id, src, dst, l.dir)
		}
	}
	switch proto {
	case 253:
		e, n, err := ParseEntropy(b)
		if err != nil || fmt.Sprintf("%#x", e.EV) != l.entropy || !bytes.Equal(e.Append(nil), b[:n]) {
			t.Errorf("%s: %v, %v, listed as %s", id, e, err, l.entropy)
		}
		b = b[n:]
		if l.crc == l.icv {
			t.Errorf("%s: neither CRC nor ICV, or both", id)
		}
		if !l.crc {
			return b, false
		}
		prefix := CRCPrefixNative(src, dst, e.EV)
		if !VerifyCRC(b, prefix) {
			t.Errorf("%s: CRC", id)
		}
		n = len(b) - CRCLen
		if !bytes.Equal(AppendCRC(bytes.Clone(b[:n]), 0, prefix), b) {
			t.Errorf("%s: CRC is written otherwise", id)
		}
		wrong := bytes.Clone(b)
		wrong[len(wrong)-1] ^= 1
		if VerifyCRC(wrong, prefix) || VerifyCRC(b, prefix^1) {
			t.Errorf("%s: a wrong CRC verifies", id)
		}
		return b[:n], true
	case 17:
		if port := binary.BigEndian.Uint16(b[2:]); port != Port || int(binary.BigEndian.Uint16(b[4:])) != len(b) || l.crc || l.icv || l.entropy != "" {
			t.Errorf("%s: UDP to port %d, %x", id, port, b[:8])
		}
		return b[8:], false
	}
	t.Fatalf("%s: IP protocol %d", id, proto)
	return nil, false
}
