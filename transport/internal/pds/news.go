package pds

import (
	"net/netip"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// News is what a Table found out in a call. After each call that receives, advances, sends
// or closes the owner consumes it with NextNews, before the next call.
type News struct {
	Kind     NewsKind
	Path     uint8
	PathNews PathNews // what the packet tells of Path
	Why      Reason
	PDC      *PDC        // nil for NewsGuessed and NewsLacking
	Piece    piece.Piece // of NewsAnswered and NewsFailed
	Rsp      *wire.Rsp   // of NewsAnswered: the response, valid during the call; nil: the default response
	Msg      uint32      // of NewsUnkept: Piece.Msg; of NewsCredit the credit, of NewsCreditAsked the payload
	Msgs     []uint32    // of NewsPassed: Piece.Msg of each packet
	Probe    uint16      // of NewsCarried: the number that was given to ProbeSize
	// Unrun, of NewsFailed, says that no life of the target has executed the whole message of
	// Piece, or ever will: it may be sent again on another PDC (S-LIFE-03).
	Unrun bool
}

// NewsKind says what a News is about.
type NewsKind uint8

// The kinds of News.
const (
	// NewsAnswered: the target executed the packet with Piece. Rsp is nil if only a CACK
	// covered it: it had the default response.
	NewsAnswered NewsKind = iota + 1
	// NewsPassed: the target executed the packets of Msgs, in this order. A CACK covered
	// them: they had the default response.
	NewsPassed
	// NewsFailed: the packet with Piece will never be answered, because of Why. The target
	// may have executed it, as the network delays and duplicates packets.
	NewsFailed
	// NewsUnkept: the peer promised a RESPONSE for a packet of Msg, and none will come. If Why
	// is WhyNone the peer says by the default response that it was success, otherwise it has
	// lost it because of Why.
	NewsUnkept
	// NewsGone: the PDC no longer exists. It follows all NewsFailed of the PDC. Its Slot is
	// free once NextNews has returned it.
	NewsGone
	// NewsAwake: the PDC may have something to send.
	NewsAwake
	// NewsOwesAck: the PDC has an ACK or a control packet to send.
	NewsOwesAck
	// NewsProven: the source of the PDC has proved that it receives what is sent to it.
	NewsProven
	// NewsRefused: the target began to refuse messages of the PDC for lack of room (NACK
	// 09).
	NewsRefused
	// NewsSilent: the peer was silent about the outstanding packets for so long that a PROBE
	// leaves, or they are taken for lost.
	NewsSilent
	// NewsPath: a packet that left by Path arrived or was lost. Only with Config.Paths above
	// 1.
	NewsPath
	// NewsGuessed: more than GuessLimit guesses came within a second (T3). It comes once a
	// second at most. Guesser has the source.
	NewsGuessed
	// NewsTooLong: the longest packets of the PDC do not arrive, while shorter ones do (F7).
	NewsTooLong
	// NewsBlocks: the target has no receive for the packet Piece of a ROD PDC on which packets were
	// taken back (Table.Void).
	NewsBlocks
	// NewsCredit: the peer grants credit. NewsCreditAsked: it asks for credit. NewsCreditRefused: it
	// knows neither.
	NewsCredit
	NewsCreditAsked
	NewsCreditRefused
	// NewsCarried: the PROBE of ProbeSize with that number was answered.
	NewsCarried
	// NewsLacking: a peer of the application, or one that is authenticated, found no PDC free. CloseIdle makes room.
	NewsLacking
)

// PathNews is what a packet tells of the path that it took.
type PathNews uint8

// The news of a path.
const (
	PathGood   PathNews = iota // the packet arrived
	PathMarked                 // the packet arrived with ECN CE; follows PathGood
	PathLost                   // the packet is taken for lost
)

// An Owner answers what a Table must know of the message layer. It must not call the Table.
type Owner interface {
	// GiveUp ends the message of a packet whose target was not ready for RNRTimeout. The PDC
	// goes on. It returns the piece that replaces the packet and its nominal size, 0 if
	// nothing does.
	GiveUp(p *PDC, what piece.Piece, code wire.NackCode) (instead piece.Piece, n int)
	// Noop returns the piece of a NO_OP to the target of a piece, and its nominal size.
	Noop(what piece.Piece) (noop piece.Piece, n int)
	// InboundOpen reports whether messages from this PDC are incomplete.
	InboundOpen(p *PDC) bool
	// Known reports whether the application inserted the address.
	Known(addr netip.AddrPort) bool
	// Awaits reports whether something is to come that this side asked for on the PDC: read
	// data, or the RESPONSE of a message.
	Awaits(p *PDC) bool
	// Asked reports whether this side ever asked for read data on the PDC.
	Asked(p *PDC) bool
	// Expects reports whether the message with that Piece.Msg waits for a RESPONSE that was
	// promised (NO_RESPONSE).
	Expects(msg uint32) bool
	// Pending reports whether something is queued for the PDC.
	Pending(p *PDC) bool
}

// newsList is the news that the owner has not consumed, oldest first.
type newsList struct {
	q    []News
	head int
	msgs []uint32 // backing array of News.Msgs
}

func (l *newsList) put(n News) { l.q = append(l.q, n) }

// HasNews reports whether NextNews has something.
func (t *Table) HasNews() bool { return len(t.news.q) != 0 }

// NextNews removes and returns the oldest news, nil if there is none. It is valid until the
// next call of any method.
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

// Guesser is the source of the guess that exceeded GuessLimit.
func (t *Table) Guesser() netip.AddrPort { return t.guesser }

func (p *PDC) tell(k NewsKind) { p.t.news.put(News{Kind: k, PDC: p}) }

// wake tells that the PDC may have something to send.
func (p *PDC) wake() { p.tell(NewsAwake) }

// oweAck tells that the PDC has an ACK or a control packet to send.
func (p *PDC) oweAck() { p.tell(NewsOwesAck) }

// pathNews reports what became of a packet if there are several paths.
func (p *PDC) pathNews(k *txPkt, news PathNews) {
	if p.t.cfg.Paths > 1 {
		p.t.news.put(News{Kind: NewsPath, PDC: p, Path: k.path, PathNews: news})
	}
}
