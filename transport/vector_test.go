package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// A mend replaces bytes of a sample's SES request that a rule makes wrong.
type mend struct {
	at  int // behind the last byte: to is what the sample lacks
	is  string
	to  string
	why string
}

// apply mends a copy of a request. The sample must have the wrong bytes.
func (m mend) apply(t *testing.T, ses []byte) []byte {
	t.Helper()
	is, to := unhex(t, m.is), unhex(t, m.to)
	if m.at > len(ses) || !bytes.HasPrefix(ses[m.at:], is) || len(is) > 0 && len(is) != len(to) || len(is) == 0 && m.at != len(ses) || bytes.Equal(is, to) {
		t.Fatalf("the sample has no %q at %d: %x", m.is, m.at, ses)
	}
	return slices.Concat(ses[:m.at], to, ses[m.at+len(is):])
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The wrong bytes that many samples have in common.
var (
	someGen  = mend{4, "77", "00", "S-GEN-02: another generation than 0 is of an RI that was disabled"}
	otherGen = mend{4, "ea", "00", someGen.why}
	noSOM    = mend{1, "2a", "2b", "S-AMO-01: what is one packet has SOM and EOM"}
	noEOM    = mend{1, "25", "27", noSOM.why}
	badKey   = mend{24, "1122", "0000", "UE 2: bits 61 to 56 of a memory key are reserved, and 55 to 48 are 0 in a key that a user chose"}
	fetches  = mend{0, "03", "04", "S-AMO-03: what compares returns the old value, so it is a fetching operation"}
)

const ctlWhy = "UE 3.4.2: cacheable is 0x01, coherent 0x02, the rest is reserved"

// mendedAtomics are the samples of atomic operations with their wrong bytes mended: the numbers are was at the
// target and then becomes; old is what it returns.
var mendedAtomics = []struct {
	name, sample     string
	mends            []mend
	key, base        uint64
	was, becomes     string // big-endian, elements of size bytes
	size             int
	fetched, hasData bool
	data             uint64
}{
	{name: "SUM of complex numbers", sample: "xdp2-uet_ses.pcap 5", key: 0x334455667788, base: 0xfedcba9876543210, size: 4,
		was: "3f800000 40000000", becomes: "40800000 40c00000", // 1+2i and 3+4i
		mends: []mend{noSOM, someGen, badKey,
			{40, "99887766", "00000008", "S-AMO-02: request_length is the length of the operands"},
			{44, "0a", "02", "S-AMO-08: complex numbers have no exclusive or of bits; here SUM"},
			{46, "c7", "03", ctlWhy},
			{48, "", "40400000 40800000", "S-AMO-01: the operands follow the extension"}}},
	{name: "BXOR, medium header", sample: "xdp2-uet_ses.pcap 8", key: 0xddeeff009988, base: 0x9876543298765432, size: 8,
		was: "00000000 0000ff00", becomes: "00000001 00000ff0",
		mends: []mend{someGen,
			{2, "1234", "0008", "S-AMO-02: bytes 2 and 3 of a medium header are the length"},
			{24, "ccbb", "0000", badKey.why},
			{33, "0c", "07", "S-AMO-08: complex numbers have no exclusive or of bits; here UINT64"},
			{34, "c7", "03", ctlWhy},
			{36, "", "00000001 0000f0f0", "S-AMO-01: the operands follow the extension"}}},
	{name: "PROD of complex numbers with data", sample: "xdp2-test_uet.pcap 7", key: 0x845fed, base: 0x1cbe991a14, size: 8, hasData: true, data: 0x12300845fed,
		was: "3ff0000000000000 4000000000000000", becomes: "c014000000000000 4024000000000000", // (1+2i)·(3+4i) = -5+10i
		mends: []mend{noEOM, otherGen,
			{40, "069f6bc7", "00000010", "S-AMO-02: request_length is the length of the operands"},
			{46, "c3", "03", ctlWhy},
			{48, "", "4008000000000000 4010000000000000", "S-AMO-01: the operands follow the extension"}}},
	{name: "CSWAP", sample: "xdp2-uet_ses.pcap 6", key: 0x334455667788, base: 0xfedcba9876543210, size: 4, fetched: true,
		was: "23456789 23456789", becomes: "fedcba09 87654321",
		mends: []mend{fetches, noSOM, someGen, badKey,
			{40, "99887766", "00000020", "S-AMO-02: request_length is the length of both operands"},
			{44, "11", "0d", "S-AMO-08: complex numbers have no order; here CSWAP"},
			{46, "c7", "03", ctlWhy}}},
	{name: "CSWAP that does not swap", sample: "xdp2-uet_ses.pcap 6", key: 0x334455667788, base: 0xfedcba9876543210, size: 4, fetched: true,
		was: "23456789 2345678a", becomes: "23456789 2345678a",
		mends: []mend{fetches, noSOM, someGen, badKey,
			{40, "99887766", "00000020", "S-AMO-02: request_length is the length of both operands"},
			{44, "11", "0d", "S-AMO-08: complex numbers have no order; here CSWAP"},
			{46, "c7", "03", ctlWhy}}},
	{name: "CSWAP_GE, medium header", sample: "xdp2-uet_ses.pcap 9", key: 0xddeeff009988, base: 0x9876543298765432, size: 8, fetched: true,
		was: "23456789 23456788", becomes: "fedcba09 87654321",
		mends: []mend{fetches, someGen,
			{2, "1234", "0020", "S-AMO-02: bytes 2 and 3 of a medium header are the length"},
			{24, "ccbb", "0000", badKey.why},
			{33, "0c", "07", "S-AMO-08: complex numbers have no order; here UINT64"},
			{34, "c7", "03", ctlWhy}}},
	{name: "CSWAP_GE of 128 bits", sample: "xdp2-test_uet.pcap 11", key: 0x845fed, base: 0x1cbe991a14, size: 16, fetched: true, hasData: true, data: 0x12300845fed,
		was: "00010203 04050607 08090a0b 0c0d0e0e", becomes: "0f0e0d0c 0b0a0908 07060504 03020100",
		mends: []mend{fetches, noEOM, otherGen,
			{40, "069f6bc7", "00000020", "S-AMO-02: request_length is the length of both operands"},
			{46, "c7", "03", ctlWhy}}},
}

// A sample of an atomic operation does what it says as soon as its wrong bytes are mended, and not before: with one of
// them it changes nothing. Reserved bits are none that hinder.
func TestVectorMendedAtomics(t *testing.T) {
	for _, c := range mendedAtomics {
		t.Run(c.name, func(t *testing.T) {
			was := inMachineOrder(unhex(t, c.was), c.size)
			execute := func(mends []mend) (*replay, []byte) {
				r, pro, ses := mended(t, c.sample, mends)
				memory := append(bytes.Clone(was), make([]byte, 64-len(was))...)
				if _, err := r.f.Register(RegionConfig{Key: c.key, Base: c.base, Buf: memory, Access: RemoteRead | RemoteWrite | RemoteAtomic, Endpoint: AllEndpoints}); err != nil {
					t.Fatal(err)
				}
				r.request(pro, 0, ses)
				return r, memory
			}
			r, memory := execute(c.mends)
			want := append(inMachineOrder(unhex(t, c.becomes), c.size), make([]byte, 64-len(was))...)
			if !bytes.Equal(memory, want) {
				t.Errorf("memory %x, want %x", memory, want)
			}
			rsp, data, rest := r.answer()
			switch {
			case c.fetched && (data == nil || data.RC != wire.RCOK || !bytes.Equal(rest, unhex(t, c.was))):
				t.Errorf("answer %v %v %x, want the old value", rsp, data, rest)
			case !c.fetched && (rsp == nil || rsp.Opcode != wire.RspDefault || rsp.RC != wire.RCOK): // S-AMO-04
				t.Errorf("answer %v", rsp)
			}
			e := r.f.NextEvent()
			if c.hasData != (e != nil) || e != nil && (!e.HasData || e.Data != c.data || e.Cause != OK) {
				t.Errorf("event %+v", e)
			}
			for i, m := range c.mends {
				if m.why == ctlWhy {
					continue
				}
				r, memory := execute(slices.Delete(slices.Clone(c.mends), i, i+1))
				rsp, data, _ := r.answer()
				if !bytes.HasPrefix(memory, was) || data != nil || rsp != nil && rsp.RC == wire.RCOK || r.f.NextEvent() != nil {
					t.Errorf("without the mend %q: memory %x, answer %v %v", m.why, memory[:len(was)], rsp, data)
				}
			}
		})
	}
}

// The sample of a deferrable send, with its wrong bytes mended, brings its message: at once if a receive waits for it, else
// when the target has asked for it.
func TestVectorMendedDeferrable(t *testing.T) {
	const message = "0123456789abcdef"
	text := mend{44, "", hex.EncodeToString([]byte(message)), "UE 3.4.2: a packet of a message carries its bytes"}
	for _, c := range []struct {
		sample  string
		mends   []mend
		token   uint32
		hasData bool
		data    uint64
	}{
		{sample: "xdp2-uet_ses.pcap 3", token: 0x87654321, mends: []mend{noSOM, someGen,
			{16, "12345678", "00000000", "S-DEF-02: the target has no token before it has asked"},
			{40, "99887766", "00000010", "UE 3.4.2: request_length is the length of the message, and as many bytes come"}, text}},
		{sample: "xdp2-test_uet.pcap 12", token: 0x98765432, hasData: true, data: 0x03456789abcdef01, mends: []mend{noEOM, otherGen,
			{16, "ba987654", "00000000", "S-DEF-02: the target has no token before it has asked"},
			{40, "fedcba98", "00000010", "UE 3.4.2: request_length is the length of the message, and as many bytes come"}, text}},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/late=%v", c.sample, late), func(t *testing.T) {
				r, pro, ses := mended(t, c.sample, c.mends)
				buf := make([]byte, 32)
				post := func() {
					if err := r.f.Post(r.now, &Op{Kind: OpRecv, Buf: buf}); err != nil {
						t.Fatal(err)
					}
					r.settle()
				}
				if !late {
					post()
				}
				r.request(pro, 0, ses)
				if late {
					if rsp, _, _ := r.answer(); rsp == nil || rsp.Opcode != wire.RspResponse || rsp.RC != wire.RCOK || rsp.List != wire.ListOverflow || rsp.ModLen != 0 { // S-DEF-03
						t.Fatalf("answer %v, want a deferral", rsp)
					}
					clear := wire.CP{Ctl: wire.CtlClear, SPDCID: mendedPDC, DPDCID: r.pdcid, Payload: uint32(firstPSN)} // which proves that its source is no forgery
					r.f.Receive(r.now, &dgram.Datagram{Data: clear.Append(nil), Remote: vectorA})
					post()
					h := parseAny(r.sent[len(r.sent)-1])
					if h.std == nil || h.std.Opcode != wire.OpDeferrableRTR {
						t.Fatalf("%v was sent, want an RTR", h.std)
					}
					if own, ours := h.std.RTRTokens(); own != c.token && ours != c.token {
						t.Errorf("RTR for %#x %#x, want %#x", own, ours, c.token)
					}
					again := bytes.Clone(ses)
					again[3]++ // S-DEF-07: a new message id
					own, ours := h.std.RTRTokens()
					if own != c.token {
						ours = own
					}
					binary.BigEndian.PutUint32(again[16:], ours)
					r.request(pro, 1, again)
				}
				e := r.f.NextEvent()
				if e == nil || e.Cause != OK || e.Len != len(message) || string(buf[:e.Len]) != message || e.HasData != c.hasData || e.Data != c.data {
					t.Errorf("event %+v, message %q", e, buf)
				}
			})
		}
	}
}

// The sample of a rendezvous send, with its wrong bytes mended and the extension that it lacks, has its target read the message.
func TestVectorMendedRendezvous(t *testing.T) {
	const message = "0123456789abcdef"
	ext := wire.Rendezvous{ReadPIDonFEP: 0x678, ReadRI: 0x9ab, ReadOff: 0, ReadMatch: 0x123}
	r, pro, ses := mended(t, "xdp2-uet_ses.pcap 16", []mend{someGen,
		{12, "fedcba9876543210", "0000000000000000", "UE 3.4.2: a message begins at the front of its receive"},
		{40, "99887766", "00000010", "UE 3.4.2: request_length is the length of the message, and as many bytes come"},
		{44, "", hex.EncodeToString(ext.Append(nil)), "S-RDV-01: the extension says how to read the message"}})
	buf := make([]byte, 32)
	if err := r.f.Post(r.now, &Op{Kind: OpTRecv, Buf: buf, Tag: 0x1122334455667788}); err != nil {
		t.Fatal(err)
	}
	r.request(pro, 0, ses)
	read := parsed{}
	for _, b := range r.sent {
		if h := parseAny(b); h.std != nil && h.std.Opcode == wire.OpRead {
			read = h
		}
	}
	if read.std == nil || read.std.Match != ext.ReadMatch || read.std.ReqLen != uint32(len(message)) || read.std.RI != ext.ReadRI || read.std.PIDonFEP != ext.ReadPIDonFEP || read.std.JobID != 0xabcdef { // S-RDV-02
		t.Fatalf("READ %v", read.std)
	}
	answer := parsed{
		ack: &wire.Ack{Type: wire.TypeAck, Next: wire.NextRspData, Req: wire.ReqClear, AckPSNOff: 1, SPDCID: 9, DPDCID: read.req.SPDCID, CACK: read.req.PSN.Add(-1)},
		data: &wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: read.std.MsgID, JobID: read.std.JobID, ReadMsgID: read.std.MsgID,
			PayloadLen: uint16(len(message)), ModLen: uint32(len(message))},
		rest: []byte(message),
	}
	r.f.Receive(r.now, &dgram.Datagram{Data: answer.append(nil), Remote: vectorA})
	e := r.f.NextEvent()
	if e == nil || e.Cause != OK || e.Len != len(message) || string(buf[:e.Len]) != message || e.Tag != 0x1122334455667788 {
		t.Errorf("event %+v, message %q", e, buf)
	}
}

// mended returns a sample's SES request without what is wrong in it, its prologue, and a target that has the names which
// it is for.
func mended(t *testing.T, sample string, mends []mend) (*replay, wire.Prologue, []byte) {
	t.Helper()
	file, n, _ := strings.Cut(sample, " ")
	i, err := strconv.Atoi(n)
	if err != nil {
		t.Fatal(err)
	}
	b := capture(t, file)[i-1].b
	pro, err := wire.ParsePrologue(b)
	if err != nil {
		t.Fatal(err)
	}
	_, k, err := wire.ParseReq(b)
	if err != nil {
		t.Fatal(err)
	}
	ses := b[k:]
	for _, m := range mends {
		ses = m.apply(t, ses)
	}
	cfg := Config{Local: vectorB, NoCRC: true}
	cfg.Identity = Identity{JobID: binary.BigEndian.Uint32(ses[4:]) & 0xffffff, PIDonFEP: binary.BigEndian.Uint16(ses[8:]) & 0xfff, RI: binary.BigEndian.Uint16(ses[10:]) & 0xfff, Initiator: 16}
	f, err := New(cfg, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Peer(vectorA, true); err != nil {
		t.Fatal(err)
	}
	return &replay{t: t, f: f, now: time.Second, remote: vectorA, d: dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}}, pro, ses
}

// request gives the FEP the packet number n of a PDC that it opens.
func (r *replay) request(pro wire.Prologue, n int, ses []byte) {
	h := wire.Req{Type: pro.Type, Next: pro.Next, Flags: wire.FlagSYN | wire.FlagAR, SPDCID: mendedPDC, PSNOffset: uint16(n), ClearOff: -1, PSN: firstPSN.Add(n)}
	r.f.Receive(r.now, &dgram.Datagram{Data: append(h.Append(nil), ses...), Remote: r.remote})
	r.settle()
}

// settle has the FEP do what it has to.
func (r *replay) settle() {
	r.collect()
	r.now += 10 * time.Millisecond
	r.f.Advance(r.now)
	r.collect()
}

// The PDC by which mended samples come, at their end, and the PSN of the packet that opens it.
const (
	mendedPDC          = 7
	firstPSN  wire.PSN = 100
)

// answer is the last SES answer that the FEP has sent.
func (r *replay) answer() (rsp *wire.Rsp, data *wire.RspData, rest []byte) {
	for _, b := range r.sent {
		h := parseAny(b)
		if h.ack != nil && h.ack.Next == wire.NextRspDataSmall {
			d, n, err := wire.ParseRspDataSmall(h.rest)
			if err != nil {
				r.t.Fatal(err)
			}
			h.data, h.rest = &wire.RspData{RC: d.RC, PayloadLen: d.PayloadLen}, h.rest[n:]
		}
		if h.rsp != nil || h.data != nil {
			rsp, data, rest = h.rsp, h.data, h.rest
		}
	}
	return rsp, data, rest
}

// inMachineOrder is numbers of size bytes as this machine has them in memory.
func inMachineOrder(b []byte, size int) []byte {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		for n := range slices.Chunk(b, size) {
			slices.Reverse(n)
		}
	}
	return b
}
