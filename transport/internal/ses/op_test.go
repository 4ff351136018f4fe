package ses

import "time"

// A Send and a Recv are the fields of an Op that the tests set.
type (
	Send struct {
		Tagged           bool
		Buf              []byte
		Iov              [][]byte
		Tag, Data        uint64
		HasData          bool
		DeliveryComplete bool
		Copy             bool
		Early            bool
		Silent           bool
		Ordered          bool
		Target           Target
		Peer             uint32
		Context          any
		Flags            uint64
		Now              time.Duration
	}
	Target struct {
		JobID    uint32
		PIDonFEP uint16
		RI       uint16
		Relative bool
	}
	Recv struct {
		Tagged          bool
		Buf             []byte
		Iov             [][]byte
		Tag, Ignore     uint64
		SourcePeer      uint32 // 0: any
		SourceInitiator uint32
		Multi           bool
		MinFree         int
		Look            Look
		Context         any
		Flags           uint64
		Now             time.Duration
	}
)

func (m *Send) op() *Op {
	op := &Op{
		Kind: kind(EvSend, m.Tagged), Peer: PeerID(m.Peer), PIDonFEP: m.Target.PIDonFEP, RI: m.Target.RI, JobID: m.Target.JobID,
		Absolute: !m.Target.Relative, Buf: m.Buf, Iov: m.Iov, Tag: m.Tag, Data: m.Data, HasData: m.HasData, Inject: m.Copy,
		Ordered: m.Ordered, Visible: m.DeliveryComplete, Silent: m.Silent, Context: m.Context, Flags: m.Flags,
	}
	if m.Early {
		op.Level = LevelInject
	}
	return op
}

func (r *Recv) op() *Op {
	return &Op{
		Kind: kind(EvRecv, r.Tagged), Peer: PeerID(r.SourcePeer), SrcInitiator: r.SourceInitiator, Buf: r.Buf, Iov: r.Iov, Tag: r.Tag,
		Ignore: r.Ignore, Multi: r.Multi, MinFree: r.MinFree, Look: r.Look, Context: r.Context, Flags: r.Flags,
	}
}

func (s *SES) sendOp(m *Send) (Handle, error) { return s.send(m.Now, m.op()) }
func (s *SES) recvOp(r *Recv) error           { return s.Recv(r.Now, r.op()) }

// send is Send of an operation that says its length.
func (s *SES) send(now time.Duration, op *Op) (Handle, error) { return s.Send(now, op, op.Bytes()) }
