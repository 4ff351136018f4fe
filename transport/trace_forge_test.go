package transport

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// forge makes a packet that no FEP sent and delivers it at once. The first word says from
// and to whom: forge A>B nack code=CLOSING psn=1 spdcid=A1 dpdcid=B1. A sender x1, x2, … is
// an address without a FEP.
func (tr *trace) forge(args []string) error {
	from, to, _ := strings.Cut(args[0], ">")
	src, err := tr.anybody(from)
	if err != nil {
		return err
	}
	dst, err := tr.node(to)
	if err != nil {
		return err
	}
	m := tracePacket{tr: tr, from: src, to: dst, words: map[string]string{}}
	for _, w := range args[2:] {
		name, v, _ := strings.Cut(w, "=")
		m.words[name] = v
	}
	b := m.make(args[1])
	if m.err != nil {
		return m.err
	}
	for name := range m.words {
		if !slices.Contains(m.read, name) {
			return fmt.Errorf("no word %q", name)
		}
	}
	if args[1] != "raw" {
		a, z := src.addr, dst.addr
		b = wire.AppendCRC(b, 0, wire.CRCPrefix(a.Addr(), z.Addr(), a.Port(), z.Port(), uint16(8+len(b)+wire.CRCLen)))
	}
	tos := dgram.ECT0
	if m.has("ce") {
		tos = dgram.CE
	}
	tr.deliver([]*tracePkt{{from: src, to: dst, b: b, seg: len(b), tos: tos | uint8(m.num("dscp"))<<2}})
	return m.err
}

// anybody returns a FEP, or an address without one.
func (tr *trace) anybody(name string) (*traceNode, error) {
	if !strings.HasPrefix(name, "x") {
		return tr.node(name)
	}
	for _, n := range tr.ghosts {
		if n.name == name {
			return n, nil
		}
	}
	k, err := strconv.ParseUint(name[1:], 10, 16)
	if err != nil {
		return nil, err
	}
	n := &traceNode{name: name, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(k >> 8), byte(k)}), 4793)}
	tr.ghosts = append(tr.ghosts, n)
	return n, nil
}

// A tracePacket is a packet that is made from words.
type tracePacket struct {
	tr       *trace
	from, to *traceNode
	words    map[string]string
	read     []string
	err      error
}

func (m *tracePacket) has(name string) bool {
	m.read = append(m.read, name)
	_, ok := m.words[name]
	return ok
}

// num is the value of a word, 0 if the word is missing.
func (m *tracePacket) num(name string) int64 {
	if !m.has(name) {
		return 0
	}
	n, err := strconv.ParseInt(m.words[name], 0, 64)
	if err != nil {
		m.err = err
	}
	return n
}

// id is a PDCID: a name that was printed, or a number.
func (m *tracePacket) id(word string, n *traceNode) uint16 {
	if !m.has(word) {
		return 0
	}
	for k, name := range m.tr.ids {
		if name == m.words[word] && (k.node == n.name || name[0] >= 'A') {
			return k.id
		}
	}
	k, err := strconv.ParseUint(m.words[word], 10, 16)
	if err != nil {
		m.err = err
	} else if k != 0 && m.tr.ids[tracePDCID{n.name, uint16(k)}] == "" {
		m.tr.ids[tracePDCID{n.name, uint16(k)}] = m.words[word]
	}
	return uint16(k)
}

// psn is a PSN that is given relative to the Start_PSN of the PDC.
func (m *tracePacket) psn(word string, start wire.PSN) wire.PSN {
	return start.Add(int(m.num(word)))
}

func (m *tracePacket) flags(pairs ...any) (f wire.Flags) {
	for i := 0; i < len(pairs); i += 2 {
		if m.has(pairs[i+1].(string)) {
			f |= pairs[i].(wire.Flags)
		}
	}
	return f
}

func (m *tracePacket) make(kind string) []byte {
	s, d := m.id("spdcid", m.from), m.id("dpdcid", m.to)
	start, known := m.tr.startOf(&tracePkt{from: m.from, to: m.to}, s, d)
	if !known || m.has("life") {
		start = m.tr.start.Add(int(m.num("life")) << 20)
		m.tr.startName(start)
	}
	if !known && s != 0 {
		m.tr.starts[tracePDCID{m.from.name, s}] = start
	}
	switch kind {
	case "rud", "rod":
		h := wire.Req{
			Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: m.flags(wire.FlagRETX, "retx", wire.FlagAR, "ar", wire.FlagSYN, "syn"),
			PSN: m.psn("psn", start), SPDCID: s, DPDCID: d,
		}
		if kind == "rod" {
			h.Type = wire.TypeRODReq
		}
		if h.Flags&wire.FlagSYN != 0 {
			h.PSNOffset, h.DPDCID = uint16(h.PSN.Sub(start)), 0
		}
		h.ClearOff = -1
		if m.has("clear") {
			h.ClearOff = int16(m.psn("clear", start).Sub(h.PSN))
		}
		return m.message(h.Append(nil))
	case "ack":
		h := wire.Ack{
			Type: wire.TypeAckCC, Flags: m.flags(wire.AckFlagM, "m", wire.AckFlagRETX, "retx"), CACK: m.psn("cack", start), SPDCID: s, DPDCID: d,
			MPR: 16, SACKOff: 1, SACK: uint64(m.num("sack")), Req: wire.AckReq(m.num("req")),
		}
		if h.AckPSNOff = 0; m.has("psn") {
			h.AckPSNOff = int16(m.psn("psn", start).Sub(h.CACK))
		}
		if m.has("mpr") {
			h.MPR = uint8(m.num("mpr"))
		}
		if m.has("late") {
			h.CCState = uint64(wire.NewNSCC(0xffff, 0, 0))
		}
		if m.has("none") {
			return h.Append(nil)
		}
		h.Next = wire.NextRsp
		r := wire.Rsp{Opcode: wire.RspOpcode(m.num("rsp")), RC: wire.RC(m.num("rc")), MsgID: uint16(m.num("msg")), JobID: 1, ModLen: uint32(m.num("mod_len"))}
		b := h.Append(nil)
		if m.has("nscc") { // as in this side's own ACKs
			b = wire.AppendPlain(nil, h.CACK, s, d, h.MPR, wire.NewNSCC(0, 1, 0), &r)
			h.Type, b = wire.TypeAckCC, b[:wire.AckCCLen]
		}
		if m.has("version") {
			b = r.Append(b)
			b[h.Len()+1] |= 0x40
			return b
		}
		return r.Append(b)
	case "nack":
		code := wire.NackCode(0)
		m.has("code")
		for c := range 256 {
			if wire.NackCode(c).String() == m.words["code"] {
				code = wire.NackCode(c)
			}
		}
		h := wire.Nack{Type: wire.TypeNack, Code: code, PSN: m.psn("psn", start), SPDCID: s, DPDCID: d, Payload: uint32(m.num("payload"))}
		if m.has("expected") {
			h.Payload = uint32(m.psn("expected", start))
		}
		return h.Append(nil)
	case "ctrl":
		m.has("ctl")
		ctl := wire.CtlType(0)
		for c := range 10 {
			if wire.CtlType(c).String() == m.words["ctl"] {
				ctl = wire.CtlType(c)
			}
		}
		h := wire.CP{Ctl: ctl, Flags: m.flags(wire.FlagRETX, "retx", wire.FlagAR, "ar", wire.FlagSYN, "syn"), PSN: m.psn("psn", start), SPDCID: s, DPDCID: d}
		if h.Flags&wire.FlagSYN != 0 {
			h.DPDCID = 0
		}
		if m.has("clear") {
			h.Payload = uint32(m.psn("clear", start))
		}
		return h.Append(nil)
	case "raw":
		m.has("hex")
		b, err := hex.DecodeString(m.words["hex"])
		if err != nil {
			m.err = err
		}
		return b
	}
	m.err = fmt.Errorf("no kind of packet %q", kind)
	return nil
}

// message appends the SES header and the data of a request.
func (m *tracePacket) message(b []byte) []byte {
	n := int(m.num("data"))
	r := wire.ReqStd{
		Opcode: wire.OpSend, Flags: wire.SESREL | wire.SESSOM | wire.SESEOM, MsgID: 900, RI: 15, JobID: 1, Initiator: 16, ReqLen: uint32(n),
	}
	if m.has("tag") {
		r.Opcode, r.Match = wire.OpTaggedSend, uint64(m.num("tag"))
	}
	if m.has("msg") {
		r.MsgID = uint16(m.num("msg"))
	}
	if m.has("req_len") {
		r.ReqLen = uint32(m.num("req_len"))
		r.Flags &^= wire.SESEOM
	}
	if m.has("opcode") {
		r.Opcode = wire.Opcode(m.num("opcode"))
	}
	data := bytes.Repeat([]byte{0xf0}, n)
	m.tr.sent = append(m.tr.sent, traceMsg{"a forgery", data})
	return append(r.Append(b), data...)
}
