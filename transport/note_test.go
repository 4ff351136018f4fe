package transport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// carry moves one train and returns its notes, one text for each packet: its type, why it
// is sent and, behind an arrow, what became of it. lose decides which packets are lost, by
// the place in the train and the note. carry takes 50 µs.
func (p *pipe) carry(from, to *FEP, lose func(i int, what string) bool) (out []string) {
	p.t.Helper()
	if !from.Transmit(p.now, &p.d) {
		return nil
	}
	notes := slices.Clone(from.Notes())
	if len(notes) != p.d.Segments() {
		p.t.Fatalf("%d notes of %d packets", len(notes), p.d.Segments())
	}
	p.now += 50 * time.Microsecond
	i := 0
	for rest := p.d.Data; len(rest) > 0; i++ {
		var b []byte
		b, rest = p.d.Next(rest)
		h := notes[i].Plain
		if h == nil {
			h = b
		}
		name := wire.Type(h[0] >> 3).String()
		if c, _, err := wire.ParseCP(h); err == nil {
			name = c.Ctl.String()
		}
		s := name + ": " + notes[i].Why
		if lose != nil && lose(i, s) {
			out = append(out, s+" → lost")
			continue
		}
		to.Receive(p.now, &dgram.Datagram{Data: slices.Clone(b), Remote: from.cfg.Local})
		if got := to.Notes(); len(got) != 1 {
			p.t.Fatalf("%d notes of one packet received", len(got))
		} else if got[0].Why != "" {
			s += " → " + got[0].Why
		}
		out = append(out, s)
	}
	return out
}

// all carries everything both ways until nothing is left, and returns the notes.
func (p *pipe) all() (out []string) {
	p.t.Helper()
	for {
		n := len(out)
		p.a.Flush(p.now)
		p.b.Flush(p.now)
		out = append(out, p.carry(p.a, p.b, nil)...)
		out = append(out, p.carry(p.b, p.a, nil)...)
		if len(out) == n {
			return out
		}
	}
}

func (p *pipe) advance(d time.Duration) {
	p.now += d
	p.a.Advance(p.now)
	p.b.Advance(p.now)
}

func wantNotes(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("notes\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func lost(int, string) bool { return true }

func withNotes(c *Config) { c.Notes = true }

// Notes say why each packet is sent, and what became of each received one.
func TestNotesReasons(t *testing.T) {
	p := newPipe(t, withNotes)
	send := func(n int) {
		p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, n), Context: "recv"})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, n), Context: "send"})
	}
	send(2048)
	wantNotes(t, p.all(),
		"RUD_REQ: new", "RUD_REQ: new",
		"ACK_CC: because of AR or SYN",
		"CLEAR_CMD: greeting: shows the PDCID that the peer just told")

	// UE 3.5.20.3: four later packets overtake the first.
	send(5 * 1024)
	wantNotes(t, p.carry(p.a, p.b, func(i int, _ string) bool { return i == 0 }),
		"RUD_REQ: new → lost", "RUD_REQ: new → out of order", "RUD_REQ: new", "RUD_REQ: new", "RUD_REQ: new")
	wantNotes(t, p.all(),
		"ACK_CC: because of AR or SYN",
		"RUD_REQ: SACK: later ones arrived → out of order",
		"ACK_CC: because CACK moved on")

	// UE 3.5.16: a PROBE follows silence after the last packet.
	send(100)
	wantNotes(t, p.carry(p.a, p.b, lost), "RUD_REQ: new → lost")
	p.advance(time.Millisecond)
	wantNotes(t, p.all(),
		"PROBE: silence after the last packet",
		"ACK_CC: because of a PROBE",
		"RUD_REQ: probe: its answer shows it missing",
		"ACK_CC: because of a resend")

	// The ACK is lost: the packet is resent and is a duplicate.
	send(100)
	wantNotes(t, p.carry(p.a, p.b, nil), "RUD_REQ: new")
	p.b.Flush(p.now)
	wantNotes(t, p.carry(p.b, p.a, lost), "ACK_CC: because of AR or SYN → lost")
	var got []string
	for range 100 {
		p.advance(100 * time.Microsecond)
		p.a.Flush(p.now)
		got = append(got, p.carry(p.a, p.b, func(_ int, what string) bool { return what != "RUD_REQ: RTO" })...)
		if slices.Contains(got, "RUD_REQ: RTO → duplicate") {
			break
		}
	}
	if len(got) < 3 || got[0] != "PROBE: silence after the last packet → lost" ||
		!slices.Contains(got, "RUD_REQ: probe: silence after the last packet → lost") || !slices.Contains(got, "RUD_REQ: RTO → duplicate") {
		t.Errorf("notes %q", got)
	}
	wantNotes(t, p.all(), "ACK_CC: because of a duplicate")
}

// UE 3.5.20.3: before the target was heard, only the RTO causes resends.
func TestNotesRTO(t *testing.T) {
	p := newPipe(t, withNotes)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 10), Context: "send"})
	wantNotes(t, p.carry(p.a, p.b, lost), "RUD_REQ: new → lost")
	p.advance(10 * time.Millisecond)
	wantNotes(t, p.carry(p.a, p.b, nil), "RUD_REQ: RTO")
}

// UE 3.5.12.7: the note of a packet that a NACK refused names the code.
func TestNotesNack(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Notes, c.UnexpectedBytes = true, 1 })
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 100), Context: "send"})
	wantNotes(t, p.all(), "RUD_REQ: new", "NACK: answers what came")
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 100), Context: "recv"})
	p.advance(20 * time.Millisecond)
	if got := p.all(); len(got) == 0 || got[0] != "RUD_REQ: NACK NO_SES_MSG_AVAIL" {
		t.Errorf("notes %q", got)
	}
}

// The note of a packet that is dropped below PDS says why.
func TestNotesDropped(t *testing.T) {
	p := newPipe(t, withNotes)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 10), Context: "send"})
	p.a.Transmit(p.now, &p.d)
	p.d.Data[20] ^= 1
	for _, c := range []struct {
		d    dgram.Datagram
		want string
	}{
		{dgram.Datagram{Data: p.d.Data, Remote: p.a.cfg.Local}, "dropped: " + DropCRC.String()},
		{dgram.Datagram{Remote: p.a.cfg.Local}, "dropped: " + DropShort.String()},
		{dgram.Datagram{Data: p.d.Data}, "dropped: " + DropSource.String()},
	} {
		p.b.Receive(p.now, &c.d)
		if got := p.b.Notes(); len(got) != 1 || got[0].Why != c.want {
			t.Errorf("notes %+v, want %q", got, c.want)
		}
	}
}

// The notes of a secured FEP have the packets in plain, byte for byte the same at both
// ends, and the received packets as they came.
func TestNotesPlain(t *testing.T) {
	sec := secured(t, nil)
	p := newPipe(t, func(c *Config) { sec(c); c.Notes = true })
	msg := []byte("attack at dawn")
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 5000), Context: "recv"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: bytes.Repeat(msg, 200), Context: "send"})
	if !p.a.Transmit(p.now, &p.d) || p.d.Segments() != 3 {
		t.Fatalf("%d packets", p.d.Segments())
	}
	sent := p.a.Notes()
	wire0 := slices.Clone(p.d.Data)
	p.d.Remote = p.a.cfg.Local
	p.b.Receive(p.now, &p.d)
	got := p.b.Notes()
	if len(sent) != 3 || len(got) != 3 {
		t.Fatalf("%d and %d notes", len(sent), len(got))
	}
	for i := range sent {
		h, _, err := wire.ParseReq(sent[i].Plain)
		if err != nil || int(h.PSNOffset) != i || !bytes.Contains(sent[i].Plain, msg) || !bytes.Equal(sent[i].Plain, got[i].Plain) {
			t.Errorf("packet %d: %v, sent %x, received %x", i, err, sent[i].Plain, got[i].Plain)
		}
		at := i * p.d.Seg
		if want := wire0[at:min(at+p.d.Seg, len(wire0))]; !bytes.Equal(got[i].Whole, want) {
			t.Errorf("packet %d came as %x, want %x", i, got[i].Whole, want)
		}
	}
	// AR was set on the last packet after it was encoded.
	if h, _, _ := wire.ParseReq(sent[2].Plain); h.Flags&wire.FlagAR == 0 {
		t.Error("AR of the last packet is missing")
	}

	bad := dgram.Datagram{Data: slices.Clone(wire0[:p.d.Seg]), Remote: p.a.cfg.Local}
	bad.Data[50] ^= 1
	p.b.Receive(p.now, &bad)
	if n := p.b.Notes(); len(n) != 1 || n[0].Plain != nil || n[0].Why != "dropped: "+DropAuth.String() || n[0].Whole[49] != wire0[49] {
		t.Errorf("of a forged packet: %+v", n)
	}
}

// Without Config.Notes there are no notes.
func TestNotesOff(t *testing.T) {
	p := newPipe(t, nil)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 10), Context: "send"})
	if !p.a.Transmit(p.now, &p.d) || p.a.Notes() != nil {
		t.Errorf("notes %v", fmt.Sprint(p.a.Notes()))
	}
}
