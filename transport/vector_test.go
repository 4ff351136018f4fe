package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file plays one side of captures of other implementations, in the folder that UETKIT_VECTORS
// names, to a FEP, which is the other side. Numbers that each side draws for itself (PDCIDs, message ids)
// are translated, and the trailers, which cover addresses, are left out: package wire tests them.

// captured is one packet of a capture: what follows the entropy or UDP header, without a trailer.
type captured struct {
	fromA bool
	b     []byte
}

// capture reads a pcap file. A is who sent the first packet.
func capture(t *testing.T, name string) []captured {
	t.Helper()
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	file, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var out []captured
	var a []byte
	for b := file[24:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		ip := b[16+14:][:n-14]
		b = b[16+n:]
		if ip[0] != 0x45 {
			t.Fatalf("%s: a packet that is not of IPv4", name)
		}
		if a == nil {
			a = ip[12:16]
		}
		p := captured{fromA: bytes.Equal(ip[12:16], a), b: ip[28:binary.BigEndian.Uint16(ip[2:])]} // behind UDP
		if ip[9] == 253 {
			p.b = ip[24 : len(p.b)+28-wire.CRCLen] // behind the entropy header
		}
		out = append(out, p)
	}
	return out
}

const (
	vectorKey  = 0x123 // of the region that the captured operations access
	vectorAddr = 0x40  // where in it
)

var vectorA, vectorB = netip.MustParseAddrPort("192.0.2.1:4793"), netip.MustParseAddrPort("192.0.2.2:4793")

// A replay is a FEP that talks with one side of a capture.
type replay struct {
	t      *testing.T
	f      *FEP
	now    time.Duration
	remote netip.AddrPort
	d      dgram.Datagram
	pdcid  uint16 // that the FEP gave its PDC
	msgs   []uint16
	sent   [][]byte // what it has sent
}

func newReplay(t *testing.T, local, remote netip.AddrPort, start uint32) *replay {
	cfg := Config{Local: local, NoCRC: true}
	cfg.StartPSN = func() wire.PSN { return wire.PSN(start) }
	f, err := New(cfg, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return &replay{t: t, f: f, now: time.Second, remote: remote, d: dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}}
}

// collect takes what the FEP sends, and learns its numbers.
func (r *replay) collect() {
	for range 2 {
		for r.f.Transmit(r.now, &r.d) {
			for rest := r.d.Data; len(rest) > 0; {
				var b []byte
				b, rest = r.d.Next(rest)
				b = bytes.Clone(b)
				r.sent = append(r.sent, b)
				switch h := parseAny(b); {
				case h.req != nil:
					if r.pdcid = h.req.SPDCID; h.std != nil && !slices.Contains(r.msgs, h.std.MsgID) {
						r.msgs = append(r.msgs, h.std.MsgID)
					}
				case h.ack != nil:
					r.pdcid = h.ack.SPDCID
				}
			}
		}
		r.f.Flush(r.now)
	}
}

// receive gives the FEP a captured packet, whose PDCIDs and message ids become those of the FEP.
func (r *replay) receive(b []byte) {
	h := parseAny(b)
	if h.rsp != nil && len(r.msgs) >= int(h.rsp.MsgID) && h.rsp.MsgID > 0 {
		h.rsp.MsgID = r.msgs[h.rsp.MsgID-1]
	}
	if h.data != nil && len(r.msgs) > 0 {
		h.data.ReadMsgID = r.msgs[h.data.ReadMsgID-1]
	}
	switch {
	case h.req != nil && h.req.Flags&wire.FlagSYN == 0:
		h.req.DPDCID = r.pdcid
	case h.ack != nil:
		h.ack.DPDCID = r.pdcid
	case h.cp != nil:
		h.cp.DPDCID = r.pdcid
	}
	r.f.Receive(r.now, &dgram.Datagram{Data: h.append(nil), Remote: r.remote})
	r.now += 10 * time.Microsecond
	r.f.Advance(r.now)
}

// A parsed is a packet, taken apart.
type parsed struct {
	req  *wire.Req
	ack  *wire.Ack
	cp   *wire.CP
	std  *wire.ReqStd
	rsp  *wire.Rsp
	data *wire.RspData
	rest []byte
}

func parseAny(b []byte) (h parsed) {
	pro, err := wire.ParsePrologue(b)
	n, next := 0, pro.Next
	switch {
	case err != nil:
	case pro.Type == wire.TypeNack:
		panic(wire.Dump(b))
	case pro.Type == wire.TypeCP:
		cp, k, e := wire.ParseCP(b)
		h.cp, n, err, next = &cp, k, e, wire.NextNone
	case pro.Type >= wire.TypeAck && pro.Type <= wire.TypeAckCCX:
		a, k, e := wire.ParseAck(b)
		h.ack, n, err = &a, k, e
	default:
		q, k, e := wire.ParseReq(b)
		h.req, n, err = &q, k, e
	}
	k := 0
	var e error
	switch b := b[n:]; next {
	case wire.NextReqStd:
		var s wire.ReqStd
		s, k, e = wire.ParseReqStd(b)
		h.std = &s
	case wire.NextRsp:
		var s wire.Rsp
		s, k, e = wire.ParseRsp(b)
		h.rsp = &s
	case wire.NextRspData:
		var s wire.RspData
		s, k, e = wire.ParseRspData(b)
		h.data = &s
	}
	if err := errors.Join(err, e); err != nil {
		panic(err)
	}
	h.rest = b[n+k:]
	return h
}

func (h *parsed) append(b []byte) []byte {
	switch {
	case h.cp != nil:
		b = h.cp.Append(b)
	case h.ack != nil:
		b = h.ack.Append(b)
	default:
		b = h.req.Append(b)
	}
	switch {
	case h.std != nil:
		b = h.std.Append(b)
	case h.rsp != nil:
		b = h.rsp.Append(b)
	case h.data != nil:
		b = h.data.Append(b)
	}
	return append(b, h.rest...)
}

// guaranteed and returned are what the answers among packets say that must not be lost: each response that
// is no default one, and read data by its place. pair is the message id by which messages are numbered.
func guaranteed(packets [][]byte) (out []string) {
	for _, b := range packets {
		switch h := parseAny(b); {
		case h.rsp != nil && h.rsp.Opcode != wire.RspDefault:
			out = append(out, fmt.Sprintf("message %d: %v %v, %d bytes", h.rsp.MsgID, h.rsp.Opcode, h.rsp.RC, h.rsp.ModLen))
		case h.data != nil:
			out = append(out, fmt.Sprintf("message %d: %v of %d at %d: %x", h.data.ReadMsgID, h.data.RC, h.data.ModLen, h.data.MsgOff, h.rest))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// acked is the highest CACK among packets.
func acked(packets [][]byte) (cack wire.PSN) {
	for i, b := range packets {
		if h := parseAny(b); h.ack != nil && (i == 0 || h.ack.CACK.After(cack)) {
			cack = h.ack.CACK
		}
	}
	return cack
}

// The captures of one-sided operations, and what their initiator does.
var oneSided = []struct {
	file string
	op   OpKind
	ops  int
	len  int
	rod  bool
	key  uint64
	word uint64 // remote CQ data, 0: none
	fail wire.RC
}{
	{file: "refprov-write-rud-ackcc.pcap", op: OpWrite, ops: 1, len: 5000, key: vectorKey},
	{file: "refprov-write-rod-ackccx-perpkt.pcap", op: OpWrite, ops: 1, len: 2500, rod: true, key: vectorKey},
	{file: "refprov-write-imm-dc.pcap", op: OpWrite, ops: 1, len: 100, key: vectorKey, word: 0xdeadbeefcafef00d},
	{file: "refprov-write-loss-ackcc.pcap", op: OpWrite, ops: 1, len: 9000, key: vectorKey},
	{file: "refprov-write-badkey.pcap", op: OpWrite, ops: 1, len: 100, key: 0x999, fail: wire.RCBadMKey},
	{file: "refprov-read-rud.pcap", op: OpRead, ops: 1, len: 2500, key: vectorKey},
	{file: "refprov-read-small-ackdata.pcap", op: OpRead, ops: 2, len: 16, key: vectorKey},
}

// payload is what a capture carries, by message offset.
func payload(packets []captured, n int) []byte {
	b := make([]byte, n)
	for _, p := range packets {
		h := parseAny(p.b)
		switch {
		case h.data != nil:
			copy(b[h.data.MsgOff:], h.rest)
		case h.std != nil && h.std.Flags&wire.SESSOM == 0:
			copy(b[h.std.MsgOff:], h.rest)
		case h.std != nil:
			copy(b, h.rest)
		}
	}
	return b
}

// A FEP to which the captured requests of another implementation come does what that one's target did: the
// same bytes are in memory, the same data comes back, and the same responses, but that it acknowledges
// several packets at once.
func TestVectorTarget(t *testing.T) {
	for _, c := range oneSided {
		t.Run(strings.TrimSuffix(c.file, ".pcap"), func(t *testing.T) {
			packets := capture(t, c.file)
			r := newReplay(t, vectorB, vectorA, 0)
			memory := pattern(16<<10, 9)
			if c.op == OpRead {
				copy(memory[vectorAddr:], payload(packets, c.len))
			}
			want := bytes.Clone(memory)
			if c.op == OpWrite && c.fail == wire.RCNull {
				copy(want[vectorAddr:], payload(packets, c.len))
			}
			if _, err := r.f.Register(RegionConfig{Key: vectorKey, Buf: memory, Access: RemoteRead | RemoteWrite, Endpoint: AllEndpoints}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.f.Peer(vectorA, true); err != nil { // else no read data is returned before the source has shown that it receives
				t.Fatal(err)
			}
			var theirs [][]byte
			for _, p := range packets {
				if p.fromA {
					r.receive(p.b)
					r.collect()
				} else {
					theirs = append(theirs, p.b)
				}
			}
			if !bytes.Equal(memory, want) {
				t.Error("the bytes in memory are others")
			}
			if got, want := guaranteed(r.sent), guaranteed(theirs); !slices.Equal(got, want) {
				t.Errorf("answers\n%q, want\n%q", got, want)
			}
			if got, want := acked(r.sent), acked(theirs); got != want {
				t.Errorf("CACK %#x at last, want %#x", uint32(got), uint32(want))
			}
			var word uint64
			for e := r.f.NextEvent(); e != nil; e = r.f.NextEvent() {
				word = e.Data
			}
			if word != c.word {
				t.Errorf("remote CQ data %#x, want %#x", word, c.word)
			}
			if n := r.f.PDCs(); n != 0 {
				t.Errorf("%d PDCs are left after the CLOSE", n)
			}
			for why, n := range r.f.Stats().Drops {
				if n != 0 {
					t.Errorf("%d packets were dropped: %v", n, DropReason(why))
				}
			}
		})
	}
}

// A FEP that does what the captured initiator did sends the same requests, but for choices of its own, and
// takes the captured answers for what they are.
func TestVectorInitiator(t *testing.T) {
	for _, c := range oneSided {
		t.Run(strings.TrimSuffix(c.file, ".pcap"), func(t *testing.T) {
			packets := capture(t, c.file)
			first := parseAny(packets[0].b)
			r := newReplay(t, vectorA, vectorB, uint32(first.req.PSN))
			data := payload(packets, c.len)
			to, err := r.f.Peer(vectorB, true)
			if err != nil {
				t.Fatal(err)
			}
			var theirs, bufs [][]byte
			for i := range packets {
				if packets[i].fromA {
					theirs = append(theirs, packets[i].b)
				}
			}
			post := func() {
				op := Op{Kind: c.op, Peer: to, RI: 15, Key: c.key, RemoteAddr: vectorAddr, Ordered: c.rod, Buf: bytes.Clone(data), Level: LevelTransmit}
				if c.op == OpRead {
					clear(op.Buf)
				}
				if c.word != 0 {
					op.HasData, op.Data, op.Level = true, c.word, LevelDelivery
				}
				bufs = append(bufs, op.Buf)
				if err := r.f.Post(r.now, &op); err != nil {
					t.Fatal(err)
				}
				r.collect()
			}
			post()
			var events []Event
			for _, p := range packets {
				if p.fromA {
					if h := parseAny(p.b); h.std != nil && int(h.std.MsgID) > len(bufs) {
						post()
					}
					continue
				}
				if h := parseAny(p.b); h.ack != nil && h.ack.Next == wire.NextNone {
					continue // of its CLOSE: the FEP keeps its PDC
				}
				r.receive(p.b)
				r.collect()
				for e := r.f.NextEvent(); e != nil; e = r.f.NextEvent() {
					events = append(events, *e)
				}
			}
			if len(events) != c.ops {
				t.Fatalf("%d operations ended, want %d", len(events), c.ops)
			}
			for i, e := range events {
				switch {
				case c.fail != wire.RCNull && (e.Cause != Rejected || e.RC != c.fail):
					t.Errorf("operation %d ends with %v %v, want %v", i, e.Cause, e.RC, c.fail)
				case c.fail == wire.RCNull && e.Cause != OK:
					t.Errorf("operation %d ends with %v %v", i, e.Cause, e.RC)
				case c.op == OpRead && !bytes.Equal(bufs[i], data):
					t.Errorf("read %d brings other bytes", i)
				}
			}
			if got, want := requests(r.sent), requests(theirs); !slices.Equal(got, want) {
				t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// requests are the requests among packets, each once, without what an initiator chooses for itself: ids, when
// it asks for ACKs, what it clears and what it sends again. Where the captured one leaves EOM out of a read of
// one packet, by a mistake, it is set.
func requests(packets [][]byte) (out []string) {
	for _, b := range packets {
		h := parseAny(b)
		if h.std == nil {
			continue
		}
		s := *h.std
		s.MsgID = 0
		if s.Opcode == wire.OpRead && s.Flags&wire.SESSOM != 0 {
			s.HeaderData = 0 // there it says how much it asks for (S-RMA-68)
			if s.ReqLen <= 1024 {
				s.Flags |= wire.SESEOM
			}
		}
		out = append(out, fmt.Sprintf("%v psn %#x: %v %x", h.req.Mode(), uint32(h.req.PSN), &s, h.rest))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sampleAnswers is what a FEP answers to the sample requests of XDP2, which are syntax and no conversation:
// as they are, and with generation 0. They are READs with header data, parts of messages that say more than
// they have, atomic operations on types of one packet that is none, a deferral and a RTR that nobody asked
// for, rendezvous without its extension, and one that is too short for any answer.
var sampleAnswers = map[string][2]string{
	"xdp2-uet_ses.pcap 1":   {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 2":   {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 3":   {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 4":   {"RESPONSE UNDELIVERABLE", "RESPONSE UNDELIVERABLE"},
	"xdp2-uet_ses.pcap 5":   {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 6":   {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 7":   {"RESPONSE BAD_MKEY", "RESPONSE BAD_MKEY"},
	"xdp2-uet_ses.pcap 8":   {"RESPONSE BAD_GENERATION", "RESPONSE AMO_UNSUPPORTED_OP"},
	"xdp2-uet_ses.pcap 9":   {"RESPONSE BAD_GENERATION", "RESPONSE AMO_UNSUPPORTED_OP"},
	"xdp2-uet_ses.pcap 10":  {"RESPONSE BAD_GENERATION", "RESPONSE UNSUPPORTED_SIZE"},
	"xdp2-uet_ses.pcap 11":  {"RESPONSE BAD_GENERATION", "RESPONSE AMO_UNSUPPORTED_OP"},
	"xdp2-uet_ses.pcap 12":  {"RESPONSE BAD_GENERATION", "RESPONSE AMO_UNSUPPORTED_OP"},
	"xdp2-uet_ses.pcap 16":  {"RESPONSE BAD_GENERATION", "RESPONSE OP_VIOLATION"},
	"xdp2-uet_ses.pcap 17":  {"RESPONSE UNSUPPORTED_OP", "RESPONSE UNSUPPORTED_OP"},
	"xdp2-test_uet.pcap 6":  {"RESPONSE UNDELIVERABLE", "RESPONSE UNDELIVERABLE"},
	"xdp2-test_uet.pcap 7":  {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-test_uet.pcap 8":  {"nothing", "nothing"},
	"xdp2-test_uet.pcap 9":  {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-test_uet.pcap 10": {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-test_uet.pcap 11": {"RESPONSE OP_VIOLATION", "RESPONSE OP_VIOLATION"},
	"xdp2-test_uet.pcap 12": {"RESPONSE BAD_GENERATION", "RESPONSE UNDELIVERABLE"},
}

// No sample of a request of any kind, right or not, is taken for what it is not: each gets its answer, no byte
// of memory changes, and no operation of the target ends.
func TestVectorSamples(t *testing.T) {
	seen := 0
	for _, file := range []string{"xdp2-uet_ses.pcap", "xdp2-test_uet.pcap"} {
		for i, p := range capture(t, file) {
			pro, err := wire.ParsePrologue(p.b)
			if err != nil || pro.Type != wire.TypeRUDReq && pro.Type != wire.TypeRODReq || pro.Next > wire.NextReqStd {
				continue
			}
			_, n, err := wire.ParseReq(p.b)
			if err != nil {
				continue
			}
			id := fmt.Sprintf("%s %d", file, i+1)
			var got [2]string
			for k := range got {
				ses := bytes.Clone(p.b[n:])
				if k == 1 {
					ses[4] = 0 // the generation
				}
				got[k] = answerTo(t, id, pro, ses)
			}
			if seen++; got != sampleAnswers[id] {
				t.Errorf("%q: {%q, %q},", id, got[0], got[1])
			}
		}
	}
	if seen != len(sampleAnswers) {
		t.Errorf("%d samples, want %d", seen, len(sampleAnswers))
	}
}

// answerTo is the answer of a FEP to a SES request that opens a PDC.
func answerTo(t *testing.T, id string, pro wire.Prologue, ses []byte) string {
	t.Helper()
	job, pid, ri := binary.BigEndian.Uint32(ses[4:])&0xffffff, binary.BigEndian.Uint16(ses[8:])&0xfff, binary.BigEndian.Uint16(ses[10:])&0xfff
	cfg := Config{Local: vectorB, NoCRC: true}
	cfg.Identity = Identity{JobID: job, PIDonFEP: pid, RI: ri, Initiator: 16}
	f, err := New(cfg, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Peer(vectorA, true); err != nil {
		t.Fatal(err)
	}
	memory := pattern(1<<16, 3)
	before := bytes.Clone(memory)
	for _, key := range []uint64{5, uint64(ri) | wire.MKeyOptimized} {
		if _, err := f.Register(RegionConfig{Key: key, Buf: memory, Access: RemoteRead | RemoteWrite | RemoteAtomic, Endpoint: AllEndpoints}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Post(time.Second, &Op{Kind: OpTRecv, Buf: memory, Tag: 1}); err != nil {
		t.Fatal(err)
	}
	h := wire.Req{Type: pro.Type, Next: pro.Next, Flags: wire.FlagSYN | wire.FlagAR, SPDCID: 7, ClearOff: -1, PSN: 100}
	f.Receive(time.Second, &dgram.Datagram{Data: append(h.Append(nil), ses...), Remote: vectorA})
	f.Flush(time.Second)
	answer := "nothing"
	for d := (dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}); f.Transmit(time.Second, &d); f.Flush(time.Second) {
		switch pro, _ := wire.ParsePrologue(d.Data); pro.Type {
		case wire.TypeNack:
			n, _, _ := wire.ParseNack(d.Data)
			answer = n.Code.String()
		default:
			if a := parseAny(d.Data); a.rsp != nil {
				answer = fmt.Sprintf("%v %v", a.rsp.Opcode, a.rsp.RC)
			} else {
				answer = "other"
			}
		}
	}
	if !bytes.Equal(memory, before) {
		t.Errorf("%s: memory changed", id)
	}
	if e := f.NextEvent(); e != nil {
		t.Errorf("%s: an operation ended: %v", id, e.Cause)
	}
	return answer
}
