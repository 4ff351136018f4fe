package ses

import (
	"bytes"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// open opens an endpoint of s with that name.
func open(t *testing.T, s *SES, name Identity, change ...func(*EndpointConfig)) EndpointID {
	t.Helper()
	cfg := EndpointConfig{Identity: name}
	for _, f := range change {
		f(&cfg)
	}
	id, err := s.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// S-ERR-54, S-ERR-55, T17: only requests of the job learn which part of the name is wrong.
func TestEndpointOfARequest(t *testing.T) {
	s := New(testConfig())
	one := s.Name(0)
	open(t, s, Identity{JobID: 9, PIDonFEP: 5, RI: 7})
	open(t, s, Identity{JobID: one.JobID, PIDonFEP: one.PIDonFEP, RI: 8})
	for _, c := range []struct {
		job     uint32
		pid, ri uint16
		rel     bool
		want    wire.RC
	}{
		{one.JobID, one.PIDonFEP, one.RI, true, wire.RCOK},
		{9, 5, 7, true, wire.RCOK},
		{one.JobID, one.PIDonFEP, 8, false, wire.RCOK},
		{9, one.PIDonFEP, one.RI, true, wire.RCBadPID},
		{9, 5, 8, true, wire.RCBadIndex},
		{one.JobID, one.PIDonFEP, 7, true, wire.RCBadIndex},
		{one.JobID, 5, 7, true, wire.RCBadPID},
		{10, 5, 7, true, wire.RCBadJobID},
		{10, 5, 7, false, wire.RCPermViolation},
	} {
		r := wire.ReqStd{Opcode: wire.OpSend, Flags: single, MsgID: 1, JobID: c.job, PIDonFEP: c.pid, RI: c.ri}
		if c.rel {
			r.Flags |= wire.SESREL
		}
		if res := s.Request(&Source{Peer: 1, PDC: 1}, wire.NextReqStd, r.Append(nil)); res.Rsp.RC != c.want {
			t.Errorf("job %d, pid %d, index %d: %v, want %v", c.job, c.pid, c.ri, res.Rsp.RC, c.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	s := New(testConfig())
	if _, err := s.Open(EndpointConfig{Identity: s.Name(0)}); err != ErrInUse {
		t.Errorf("the name of another endpoint: %v", err)
	}
	for _, name := range []Identity{{JobID: 1 << 24}, {PIDonFEP: 1 << 12}, {RI: 1 << 12}} {
		if _, err := s.Open(EndpointConfig{Identity: name}); err != ErrName {
			t.Errorf("%+v: %v", name, err)
		}
	}
	for i := 1; i < maxEndpoints; i++ {
		open(t, s, Identity{JobID: 5, RI: uint16(i & 0xfff), PIDonFEP: uint16(i >> 12)})
	}
	if _, err := s.Open(EndpointConfig{Identity: Identity{JobID: 6}}); err != ErrEndpoints {
		t.Errorf("one more than there may be: %v", err)
	}
	s.CloseEndpoint(7)
	if id := open(t, s, Identity{JobID: 6}); id != 7 || s.Endpoints() != maxEndpoints {
		t.Errorf("the place of one that closed: %d, of %d", id, s.Endpoints())
	}
	s.CancelAll()
	if _, err := s.Open(EndpointConfig{Identity: Identity{JobID: 8}}); err != ErrClosed {
		t.Errorf("when all are closed: %v", err)
	}
}

// Each endpoint has its own bound of operations and does not use up another's.
func TestEndpointsAreFullApart(t *testing.T) {
	s := New(testConfig())
	few := open(t, s, Identity{JobID: 5}, func(c *EndpointConfig) { c.MaxSends, c.MaxRecvs = 2, 1 })
	send := func(id EndpointID) error { _, err := s.send(0, &Op{Endpoint: id, Kind: EvSend, Peer: 1}); return err }
	recv := func(id EndpointID) error { return s.Recv(0, &Op{Endpoint: id, Kind: EvRecv, Buf: make([]byte, 8)}) }
	for i, err := range []error{send(0), send(0), send(0), recv(0), recv(0), send(few), send(few), recv(few)} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if a, b := send(few), recv(few); a != ErrFull || b != ErrFull {
		t.Errorf("beyond the bounds: %v, %v", a, b)
	}
	if a, b := send(0), recv(0); a != nil || b != nil {
		t.Errorf("another endpoint: %v, %v", a, b)
	}
	if a, b := send(44), recv(44); a != ErrClosed || b != ErrClosed {
		t.Errorf("one that never was: %v, %v", a, b)
	}
}

// R-ORD-07: a fence holds only for the sends of its endpoint; sends of another endpoint to the
// same peer pass it.
func TestFenceOfAnotherEndpoint(t *testing.T) {
	s := New(testConfig())
	other := open(t, s, Identity{JobID: 5})
	h := func(id EndpointID) Handle {
		h, err := s.send(0, &Op{Endpoint: id, Kind: EvSend, Peer: 1, Buf: make([]byte, 8)})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h(0)
	if !s.Fence(h(0), true) {
		t.Error("a fence with a send before it does not wait")
	}
	if s.Fenced(other, 1) || s.Fence(h(other), false) || s.Fence(h(other), true) == false {
		t.Error("the fence of one endpoint holds back another's sends, or a fence does not see its own")
	}
	if !s.Fenced(0, 1) {
		t.Error("there is no fence")
	}
}

// When an endpoint closes, the messages for it are dropped and their room is free again. The
// messages for another endpoint stay.
func TestCloseEndpointDropsItsMessages(t *testing.T) {
	s, from := New(testConfig()), New(testConfig())
	other := open(t, s, Identity{JobID: 5, RI: 3})
	deliver := func(job uint32, pid, ri uint16, n int, pdc uint32, parts int) {
		h, err := from.send(0, &Op{Kind: EvTSend, Peer: 1, JobID: job, PIDonFEP: pid, RI: ri, Tag: 4, Buf: make([]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		for range parts {
			p, _ := from.Peek(h, 1024)
			if res := s.Request(&Source{Peer: 2, PDC: pdc}, wire.NextReqStd, from.AppendPiece(nil, p)); res.Rsp.RC > wire.RCOK {
				t.Fatal(res.Rsp.RC)
			}
		}
	}
	own := s.Name(0)
	deliver(5, 0, 3, 100, 1, 1)
	deliver(5, 0, 3, 5000, 2, 2) // more is to come
	deliver(own.JobID, own.PIDonFEP, own.RI, 100, 1, 1)
	if n, _ := s.Unexpected(); n != 3 {
		t.Fatalf("%d messages wait", n)
	}
	if err := s.Recv(0, &Op{Endpoint: other, Kind: EvTRecv, Tag: 99, Buf: make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	s.CloseEndpoint(other)
	if n, bytes := s.Unexpected(); n != 1 || bytes != 128 || s.InProgress() != 0 {
		t.Errorf("%d messages, %d bytes and %d in progress are left", n, bytes, s.InProgress())
	}
	if e := s.Event(); e == nil || e.Cause != Cancelled || e.Endpoint != other || s.Event() != nil {
		t.Errorf("the receive ends as %+v", e)
	}
	if err := s.Recv(0, &Op{Kind: EvTRecv, Tag: 4, Buf: make([]byte, 100)}); err != nil {
		t.Fatal(err)
	}
	if e := s.Event(); e == nil || e.Cause != OK || e.Endpoint != 0 {
		t.Errorf("the message of the other endpoint ends as %+v", e)
	}
}

// When an endpoint is released its sends have ended, and packets that have to go again have the bytes that they had,
// whatever the application does with its buffers. Another endpoint's sends go on.
func TestReleasedSendGoesAgainFromACopy(t *testing.T) {
	for name, op := range map[string]Op{
		"buffer": {Buf: bytes.Repeat([]byte{7}, 3000)},
		"vector": {Iov: [][]byte{bytes.Repeat([]byte{7}, 1500), bytes.Repeat([]byte{7}, 1500)}},
		"silent": {Buf: bytes.Repeat([]byte{7}, 3000), Silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(testConfig())
			other := open(t, s, Identity{JobID: 5})
			kept, err := s.send(0, &Op{Kind: EvTSend, Peer: 1, Buf: make([]byte, 8), Context: "kept"})
			if err != nil {
				t.Fatal(err)
			}
			op.Kind, op.Endpoint, op.Peer, op.Context = EvTSend, other, 1, "gone"
			h, err := s.send(0, &op)
			if err != nil {
				t.Fatal(err)
			}
			first, _ := s.Peek(h, 1024)
			packet := s.AppendPiece(nil, first)
			s.LeaveEndpoint(other)
			if s.Event() != nil {
				t.Error("a send ended when its endpoint left")
			}
			if s.ReleaseEndpoint(other); s.Event() != nil {
				t.Error("a send ended though its endpoint has not closed")
			}
			s.CloseEndpoint(other)
			if s.Event() != nil {
				t.Error("a send ended with a packet under way")
			}
			s.ReleaseEndpoint(other)
			e := s.Event()
			if e == nil || e.Cause != Cancelled || e.Context != "gone" || e.Endpoint != other || e.Unknown || s.Event() != nil {
				t.Fatalf("the send ends as %+v", e)
			}
			clear(op.Buf)
			for _, v := range op.Iov {
				clear(v)
			}
			if again := s.Append(nil, first); !bytes.Equal(again, packet) {
				t.Error("the packet goes again with other bytes")
			}
			if sends, _ := s.PostedBy(other); sends != 1 {
				t.Errorf("%d sends", sends)
			}
			last, ok := s.Peek(h, 1024)
			if !ok || !last.Error() {
				t.Fatalf("the target is told by %+v", last)
			}
			s.AppendPiece(nil, last)
			s.Answered(h, &wire.Rsp{Opcode: wire.RspDefault})
			s.Answered(h, &wire.Rsp{Opcode: wire.RspDefault})
			if sends, _ := s.PostedBy(other); sends != 0 || s.Event() != nil {
				t.Errorf("%d sends are left, or one ended twice", sends)
			}
			p, _ := s.Peek(kept, 1024)
			s.AppendPiece(nil, p)
			if s.Answered(kept, &wire.Rsp{Opcode: wire.RspDefault}); s.Event() == nil {
				t.Error("the send of the other endpoint did not end")
			}
		})
	}
}

// What a released send has still to get is dropped: its memory is the application's.
func TestReleasedReadTakesNoData(t *testing.T) {
	s := New(testConfig())
	other := open(t, s, Identity{JobID: 5})
	into := make([]byte, 100)
	h, err := s.send(0, &Op{Kind: EvRead, Endpoint: other, Peer: 1, Buf: into, Context: "read"})
	if err != nil {
		t.Fatal(err)
	}
	s.On(h, 3)
	p, _ := s.Peek(h, 1024)
	s.AppendPiece(nil, p)
	_, m := s.lookup(h)
	id := m.hdr.MsgID
	s.CloseEndpoint(other)
	s.ReleaseEndpoint(other)
	if e := s.Event(); e == nil || e.Cause != Cancelled || e.Context != "read" {
		t.Fatalf("the read ends as %+v", e)
	}
	s.ReadData(3, &wire.RspData{RC: wire.RCOK, ReadMsgID: id, PayloadLen: 100}, bytes.Repeat([]byte{1}, 100))
	if !bytes.Equal(into, make([]byte, 100)) {
		t.Error("data was written to the buffer of a read that had ended")
	}
	s.Answered(h, &wire.Rsp{Opcode: wire.RspDefault})
	if sends, _ := s.PostedBy(other); sends != 0 || s.Event() != nil {
		t.Errorf("%d sends are left, or one ended twice", sends)
	}
}

// Halt: a message of one endpoint that failed stops no message of another to the same peer.
func TestHaltIsOfAnEndpoint(t *testing.T) {
	cfg := testConfig()
	cfg.Halt = true
	s := New(cfg)
	other := open(t, s, Identity{JobID: 5})
	post := func(id EndpointID) (Handle, error) {
		return s.send(0, &Op{Kind: EvTSend, Endpoint: id, Peer: 1, Buf: make([]byte, 8), Ordered: true})
	}
	h, err := post(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := post(other); err != nil {
		t.Fatal(err)
	}
	p, _ := s.Peek(h, 1024)
	s.AppendPiece(nil, p)
	s.Failed(h, TimedOut, 0)
	s.Halt()
	if e := s.Event(); e == nil || e.Endpoint != 0 || s.Event() != nil {
		t.Error("more ended than the message that failed")
	}
	if _, err := post(0); err != ErrHalted {
		t.Errorf("the endpoint of the message that failed: %v", err)
	}
	if _, err := post(other); err != nil {
		t.Errorf("another endpoint: %v", err)
	}
	s.Unhalt(1)
	if _, err := post(0); err != nil {
		t.Errorf("after Unhalt: %v", err)
	}
}
