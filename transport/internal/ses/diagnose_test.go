package ses

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A view of a send that was answered NO_MATCH tells since when, how often and when next it is
// sent again.
func TestViewOfASendThatGoesAgain(t *testing.T) {
	s := New(Config{EndpointConfig: EndpointConfig{Identity: Identity{Initiator: 16, RI: 15}}})
	h, err := s.sendOp(&Send{Buf: make([]byte, 10), Context: "x", Now: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	look := func() (v SendView) {
		s.EachSend(AllEndpoints, func(p *SendView) { v = *p })
		return v
	}
	if v := look(); v.Handle != h || v.Stage != StageSend || v.Posted != 5*time.Second || v.Taken != 0 || v.Length != 10 {
		t.Errorf("posted: %+v", v)
	}
	if _, ok := s.Next(h, 1024); !ok {
		t.Fatal("no piece")
	}
	if v := look(); v.Stage != StageAnswers || v.Taken != 10 {
		t.Errorf("sent: %+v", v)
	}
	s.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch, MsgID: 1})
	s.Advance(6 * time.Second)
	if v := look(); v.Stage != StageAgain || v.RC != wire.RCNoMatch || v.Tries != 1 || v.Since != 6*time.Second || v.RetryAt <= 6*time.Second || v.Taken != 0 {
		t.Errorf("refused: %+v", v)
	}
	s.CancelAll()
	s.EachSend(AllEndpoints, func(v *SendView) { t.Errorf("ended: %+v", v) })
}
