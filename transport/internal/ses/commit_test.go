package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// S-CMT-03, R-CMPL-13: a target of another make that answers plain success to the question for
// durability has made nothing durable.
func TestCommitByStrangers(t *testing.T) {
	for _, rsp := range []*wire.Rsp{nil, {RC: wire.RCOK}, {Opcode: wire.RspResponse, RC: wire.RCOK, ModLen: 8}} {
		s := New(testConfig())
		h, err := s.send(1, &Op{Kind: EvWrite, Peer: 2, Key: 1, Buf: make([]byte, 8), Level: LevelCommit})
		if err != nil {
			t.Fatal(err)
		}
		for i, ask := range []bool{false, true} {
			p, ok := s.Peek(h, 1024)
			if !ok {
				t.Fatal("no piece")
			}
			b := s.AppendPiece(nil, p)
			if r, n, err := wire.ParseReqStd(b); err != nil || isCommit(&r, b[n:]) != ask {
				t.Fatalf("packet %d: %x", i, b)
			}
			if e := s.Event(); e != nil {
				t.Fatalf("%+v before the end", e)
			}
			if !ask {
				s.Answered(h, nil)
				var again bool
				if h, again = s.Resend(); !again {
					t.Fatal("there is no question")
				}
				s.On(h, 1)
				continue
			}
			s.Answered(h, rsp)
		}
		e := s.Event()
		if e == nil || e.Cause != Untold || !e.Unknown {
			t.Fatalf("%+v, want that nothing is known", e)
		}
		if !s.Idle() {
			t.Error("something is left")
		}
	}
}

// S-CMT-05: a target makes so many writes durable at a time, and of one peer as many as it serves reads; beyond that the question
// comes again. When one is done there is room for another.
func TestCommitsAreBounded(t *testing.T) {
	s := New(testConfig())
	if _, err := s.Register(RegionConfig{Key: 1, Buf: make([]byte, 100), Access: RemoteWrite, Endpoint: AllEndpoints, Persistent: true}); err != nil {
		t.Fatal(err)
	}
	var commits []uint64
	ask := func(peer uint32, id int) string {
		r := wire.ReqStd{Opcode: wire.OpWrite, Flags: single | wire.SESREL | wire.SESDC, MsgID: uint16(id), JobID: s.cfg.JobID, PIDonFEP: s.cfg.PIDonFEP, RI: s.cfg.RI, Match: 1, ReqLen: 8}
		a := answer(s.Request(&Source{Peer: peer, PDC: peer}, wire.NextReqStd, r.Append(nil)))
		if e := s.Event(); e != nil {
			commits = append(commits, e.Data)
		}
		return a
	}
	const peers = maxCommits / maxServesPeer
	for peer := range uint32(peers) {
		for i := range maxServesPeer {
			if a := ask(1+peer, 1+i); a != "response OK overflow 0 gtd" {
				t.Fatalf("question %d of peer %d: %s", i, peer, a)
			}
		}
		if a := ask(1+peer, maxServesPeer+1); a != "nack 09" {
			t.Fatalf("one more of peer %d: %s", peer, a)
		}
	}
	if a := ask(peers+1, 1); a != "nack 09" {
		t.Fatalf("one more of all: %s", a)
	}
	s.Committed(commits[0], wire.RCOK)
	if a := ask(peers+1, 1); a != "response OK overflow 0 gtd" {
		t.Fatalf("after one is done: %s", a)
	}
	if a := ask(peers+1, 2); a != "nack 09" {
		t.Fatalf("one more of all: %s", a)
	}
}
