package pds

import (
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// News is what a Table found out in a call. The owner takes it by NextNews after each call
// of a method that receives, advances, sends or closes, and before the next.
type News struct {
	Kind     NewsKind
	Path     uint8
	PathNews PathNews // of Path
	Why      Reason
	PDC      *PDC      // nil for NewsGuessed
	Ref      Ref       // of NewsAnswered and NewsFailed
	Rsp      *wire.Rsp // of NewsAnswered: what the ACK carried, borrowed by the call; nil: the default response
	Msgs     []uint32  // of NewsPassed: Ref.Msg of each packet
}

// NewsKind is what a piece of News tells.
type NewsKind uint8

// The kinds of News.
const (
	// NewsAnswered: the packet with Ref was executed by the target. Without Rsp only a CACK
	// covered it: the default response.
	NewsAnswered NewsKind = iota + 1
	// NewsPassed: the packets of Msgs were executed by the target, in this order; a CACK
	// covered them: the default response.
	NewsPassed
	// NewsFailed: the packet with Ref will never be answered, because of Why. It may have been
	// executed: the network delays packets, and copies them.
	NewsFailed
	// NewsGone: the PDC no longer exists, after all its NewsFailed. Its Slot is free from when
	// NextNews returned this.
	NewsGone
	// NewsAwake: the PDC may have something to send.
	NewsAwake
	// NewsOwesAck: the PDC has an ACK or a control packet to send.
	NewsOwesAck
	// NewsProven: the source of the PDC receives what is sent to it.
	NewsProven
	// NewsRefused: the target began to refuse messages of the PDC for want of room, NACK 09.
	NewsRefused
	// NewsSilent: nothing was heard of what is outstanding for so long that a PROBE, or all of
	// it, goes out.
	NewsSilent
	// NewsPath: what became of a packet that left by that path, with Config.Paths above 1 only.
	NewsPath
	// NewsGuessed: within a second more than GuessLimit packets had numbers that no packet of
	// the PDC they name can have (T3). It comes once a second at most; see Guesser.
	NewsGuessed
)

// PathNews is what a packet tells of the path it took.
type PathNews uint8

// The news of a path.
const (
	PathGood   PathNews = iota // it arrived
	PathMarked                 // it arrived with ECN CE; follows PathGood
	PathLost                   // it is taken for lost
)

// An Owner answers what a Table has to know of the message layer. It must not call the
// Table.
type Owner interface {
	// GiveUp ends the message of a packet that its target was not ready for in RNRTimeout,
	// on a PDC that goes on. It returns what goes in the place of the packet and its
	// nominal size, 0: nothing does.
	GiveUp(p *PDC, ref Ref, code wire.NackCode) (instead Ref, n int)
	// InboundOpen reports whether messages from this PDC are incomplete.
	InboundOpen(p *PDC) bool
	// Known reports whether the application inserted the address.
	Known(addr netip.AddrPort) bool
	// Pending reports whether something is queued for the PDC.
	Pending(p *PDC) bool
}

// newsList is the news that the owner has not taken, in the order in which it happened.
type newsList struct {
	q    []News
	head int
	msgs []uint32 // what News.Msgs are parts of
}

func (l *newsList) put(n News) { l.q = append(l.q, n) }

// HasNews reports whether NextNews has something.
func (t *Table) HasNews() bool { return len(t.news.q) != 0 }

// NextNews takes the oldest news, nil if there is none. It is valid until the next call of
// any method.
func (t *Table) NextNews() *News {
	l := &t.news
	if l.head == len(l.q) {
		l.q, l.head, l.msgs = l.q[:0], 0, l.msgs[:0]
		return nil
	}
	n := &l.q[l.head]
	l.head++
	if n.Kind == NewsGone {
		t.free = append(t.free, n.PDC.Slot)
	}
	return n
}

// Guesser is where the last packet came from that cannot belong to the PDC it names.
func (t *Table) Guesser() netip.AddrPort { return t.guesser }

func (p *PDC) tell(k NewsKind) { p.t.news.put(News{Kind: k, PDC: p}) }

// wake tells that the PDC may have something to send.
func (p *PDC) wake() { p.tell(NewsAwake) }

// oweAck tells that the PDC has an ACK or a control packet to send.
func (p *PDC) oweAck() { p.tell(NewsOwesAck) }

// pathNews tells what became of a packet that left by one of several paths.
func (p *PDC) pathNews(k *txPkt, news PathNews) {
	if p.t.cfg.Paths > 1 {
		p.t.news.put(News{Kind: NewsPath, PDC: p, Path: k.path, PathNews: news})
	}
}
