package ses

import (
	"testing"
)

// TestEndpointsCloseApart shows that an endpoint which closes looks at what it has, and one which opens at a few of those that closed:
// four times as many endpoints take four times as many steps.
func TestEndpointsCloseApart(t *testing.T) {
	few, many := closeSteps(t, 32), closeSteps(t, 128)
	if t.Logf("%d and %d steps", few, many); few == 0 || many > 5*few {
		t.Errorf("%d steps for 32 endpoints, %d for 128", few, many)
	}
}

// closeSteps returns the steps in which n endpoints close, and n others open. Each has some of all that there is.
func closeSteps(t *testing.T, n int) uint64 {
	t.Helper()
	g := newRig(t)
	for i := range n {
		id := open(t, g.SES, Identity{JobID: 5, RI: uint16(i)})
		for k := range 4 { // the first leaves, the third is a fence, and the fourth is behind it
			h, err := g.SES.send(0, &Op{Endpoint: id, Kind: EvSend, Peer: 1, Buf: make([]byte, 8), Context: k})
			if err != nil {
				t.Fatal(err)
			}
			if !g.Fence(h, k == 2) && k == 0 {
				drain(g.SES, h, 64)
			}
		}
		if err := g.Recv(0, &Op{Endpoint: id, Kind: EvTRecv, Tag: 1, Buf: make([]byte, 8)}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Register(RegionConfig{Endpoint: id, Key: uint64(i) + 1, Buf: make([]byte, 8), Access: RemoteWrite}); err != nil {
			t.Fatal(err)
		}
		src := Source{Peer: uint32(i) + 1, PDC: uint32(i) + 1}
		for _, size := range [...]int{8, 100} { // one is complete, the other has one packet of two
			to := Target{JobID: 5, RI: uint16(i), Relative: true}
			g.deliver(src, packets(g.mate, &Send{Buf: make([]byte, size), Target: to}, 64)[0])
		}
	}
	if g.kept != 2*n || g.open != n || g.numFences != n {
		t.Fatalf("%d unexpected messages, %d of them open, %d fences", g.kept, g.open, g.numFences)
	}
	for id := EndpointID(1); int(id) <= n; id++ {
		g.LeaveEndpoint(id)
		if g.Undelivered(id, 0, 0, true, func(uint32) bool { return true }) {
			t.Fatal("nothing was injected")
		}
		g.CloseEndpoint(id)
		g.ReleaseEndpoint(id)
	}
	ended := 0
	for e := g.Event(); e != nil; e = g.Event() {
		if ended++; e.Cause != Cancelled {
			t.Fatalf("%+v", *e)
		}
	}
	if ended != 5*n || g.Regions() != 0 || g.kept != 0 || g.open != 0 || g.in.live() != 0 {
		t.Errorf("%d operations ended of %d endpoints; left: %d regions, %d unexpected messages, %d of %d others", ended, n, g.Regions(), g.kept, g.open, g.in.live())
	}
	for i := range n { // what has left is not answered yet, so all numbers are in use
		if id := open(t, g.SES, Identity{JobID: 6, RI: uint16(i)}); int(id) != n+1+i {
			t.Fatalf("endpoint %d opened as %d", i, id)
		}
	}
	return g.walked
}

// TestNumberIsUsedAgain shows that an endpoint gets the number, and the places, of the one that closed first and is done.
func TestNumberIsUsedAgain(t *testing.T) {
	g := newRig(t)
	first, second := open(t, g.SES, Identity{JobID: 5}), open(t, g.SES, Identity{JobID: 6})
	h := g.SES.mustSend(t, first)
	drain(g.SES, h, 64)
	places := g.sends.used
	g.SES.mustSend(t, second)
	g.CloseEndpoint(first)
	g.CloseEndpoint(second)
	if id := open(t, g.SES, Identity{JobID: 7, Initiator: 70}); id != second {
		t.Fatalf("number %d, while %d waits for an answer", id, first)
	}
	h = g.SES.mustSend(t, second)
	_, m := g.lookup(h)
	if g.sends.used != places+1 || m.hdr.Initiator != 70 || m.ep != g.endpoints[second] {
		t.Errorf("%d places for sends, initiator %d", g.sends.used, m.hdr.Initiator)
	}
	if g.CloseEndpoint(second); g.endpoints[second].sends != 0 {
		t.Error("the send of the second life has not ended")
	}
}

// mustSend sends 8 bytes to peer 1.
func (s *SES) mustSend(t *testing.T, id EndpointID) Handle {
	t.Helper()
	h, err := s.send(0, &Op{Endpoint: id, Kind: EvSend, Peer: 1, Buf: make([]byte, 8)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
