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
