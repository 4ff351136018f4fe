package pds_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file is the only part of the traces that uses the API of pds: a side turns the words
// of a script into calls, and what PDS reports into words.

// A side is one Table with a very simple owner.
type side struct {
	w    *world
	name string
	life int
	addr netip.AddrPort
	who  uint64 // Arrival.Who of this life at its peers
	tab  *pds.Table
	cfg  pds.Config
	cc   *traceCC

	stranger bool              // the application named none of the other sides
	replies  map[uint32]reply  // the answers of the message layer that are not OK, by message
	inbound  map[*pds.PDC]bool // PDCs with an incomplete message
	asked    map[*pds.PDC]bool // PDCs on which read data was asked for, and whether it is to come
	sending  bool              // messages of this side have not ended
	instead  bool              // a packet that is given up has a replacement
	news     []string
	counts   map[string]uint64 // the counters when the news were last consumed
}

// A reply is the answer of the message layer to a message.
type reply struct {
	gtd    bool
	rc     wire.RC
	refuse wire.NackCode
}

// newSide makes a Table. change has the words of the command table.
func newSide(w *world, name string, life int, change map[string]string) (*side, error) {
	i := int(name[0] - 'A')
	s := &side{
		w: w, name: name, life: life,
		addr:    netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(1 + i)}), 4793),
		who:     uint64(1+i) | uint64(life)<<8,
		cc:      &traceCC{window: 1 << 20},
		replies: map[uint32]reply{}, inbound: map[*pds.PDC]bool{}, asked: map[*pds.PDC]bool{}, counts: map[string]uint64{},
	}
	s.cfg = pds.Config{
		MPRange: 256, TxWindow: 256, EarlyBytes: 4096, Nominal: 48, Paths: 1,
		Limits: pds.Limits{
			AckTrigger: 16 << 10, AckMinAdd: 1 << 10, AckDelay: 20 * time.Microsecond,
			RTOInit: 5 * time.Millisecond, RTOMax: 500 * time.Millisecond, PeerTimeout: 40 * time.Second,
			SuspectTimeout: 3 * time.Second, NewPDCTime: time.Second, CloseReqTime: time.Second, Quarantine: 4 * time.Second,
			IdleClose: 30 * time.Second, MaxPDCs: 100, MaxPDCsPerSource: 50, MaxPDCsUnknown: 50, MaxPending: 20,
			MaxPendingPerSource: 10, MaxQuarantine: 100,
			StartPSN: func() wire.PSN { return w.start },
		},
	}
	for k, v := range change {
		if err := s.configure(k, v); err != nil {
			return nil, err
		}
	}
	s.tab = pds.New(s.cfg, rand.New(&idSource{rand.NewPCG(uint64(i+1), uint64(life))}), s)
	return s, nil
}

// An idSource draws PDCIDs whose lower byte leaves the timeouts without jitter.
type idSource struct{ src rand.Source }

func (r *idSource) Uint64() uint64 { return r.src.Uint64()&^(0xff<<32) | 0x80<<32 }

func (s *side) configure(k, v string) error {
	c := &s.cfg
	ints := map[string]*int{
		"mp_range": &c.MPRange, "tx_window": &c.TxWindow, "hold_bytes": &c.EarlyBytes, "ack_gen_trigger": &c.AckTrigger, "paths": &c.Paths,
		"max_pdcs": &c.MaxPDCs, "max_pdcs_per_source": &c.MaxPDCsPerSource, "max_pdcs_unknown": &c.MaxPDCsUnknown,
		"max_pending": &c.MaxPending, "max_pending_per_source": &c.MaxPendingPerSource, "max_quarantine": &c.MaxQuarantine,
		"window": &s.cc.window,
	}
	times := map[string]*time.Duration{
		"rto_init": &c.RTOInit, "rto_max": &c.RTOMax, "peer_timeout": &c.PeerTimeout, "suspect_timeout": &c.SuspectTimeout,
		"new_pdc_time": &c.NewPDCTime, "close_req_time": &c.CloseReqTime, "quarantine": &c.Quarantine, "idle_close": &c.IdleClose,
		"rnr_timeout": &c.RNRTimeout,
	}
	var err error
	switch {
	case ints[k] != nil:
		*ints[k], err = strconv.Atoi(v)
	case times[k] != nil:
		*times[k], err = time.ParseDuration(v)
	case k == "max_range":
		var n int
		n, err = strconv.Atoi(v)
		c.MaxRange = int32(n)
	case k == "secure":
		i := slices.Index([]string{"none", "0rtt", "1rtt"}, v)
		if i < 0 {
			return fmt.Errorf("secure is none, 0rtt or 1rtt")
		}
		c.Secure = [...]pds.Secure{pds.SecureNone, pds.SecureZeroRTT, pds.SecureOneRTT}[i]
	case k == "spec_retries":
		c.SpecRetries = true
	case k == "stranger":
		s.stranger = true
	default:
		return fmt.Errorf("a table has no %q", k)
	}
	return err
}

func (s *side) say(f string, a ...any) { s.news = append(s.news, fmt.Sprintf(f, a...)) }

// traceCC is a congestion control context that permits everything unless the script says
// otherwise, and sums up what it is told.
type traceCC struct {
	window, inFlight int
	srtt             time.Duration

	arrived, gap, timer, refused, trimmed, gone, spurious int
	rtt                                                   time.Duration
	marked                                                bool
}

func (c *traceCC) CanSend(n int) bool { return c.inFlight+n <= c.window }
func (c *traceCC) OnSend(_ time.Duration, n int) bool {
	c.inFlight += n
	return c.inFlight+n > c.window
}

func (c *traceCC) OnAck(_ time.Duration, n int, rtt time.Duration, ce bool, _ uint8, _ bool) {
	c.inFlight -= n
	c.arrived += n
	c.marked = c.marked || ce
	if rtt > 0 {
		c.srtt, c.rtt = rtt, rtt
	}
}

func (c *traceCC) OnLoss(_ time.Duration, n int, rto bool) {
	c.inFlight -= n
	if rto {
		c.timer += n
	} else {
		c.gap += n
	}
}
func (c *traceCC) OnTaken() {}

func (c *traceCC) OnSpurious() { c.spurious++ }
func (c *traceCC) OnNack(_ time.Duration, n int, trimmed bool) {
	c.inFlight -= n
	if trimmed {
		c.trimmed += n
	} else {
		c.refused += n
	}
}

func (c *traceCC) OnGone(n int) {
	c.inFlight -= n
	c.gone += n
}
func (c *traceCC) SRTT() time.Duration { return c.srtt }
func (c *traceCC) RTO() time.Duration  { return max(5*time.Millisecond, 4*c.srtt) }
func (c *traceCC) Window() int         { return c.window }
func (c *traceCC) InFlight() int       { return c.inFlight }

// take returns what it was told since the last take.
func (c *traceCC) take() string {
	var out []string
	add := func(n int, what string) {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s %d", what, n))
		}
	}
	add(c.arrived, "arrived")
	if c.rtt != 0 {
		out = append(out, fmt.Sprint("rtt ", shortTime(c.rtt)))
	}
	if c.marked {
		out = append(out, "marked")
	}
	add(c.gap, "lost")
	add(c.timer, "timed out")
	add(c.trimmed, "trimmed")
	add(c.refused, "refused")
	add(c.spurious, "sent again in vain:")
	*c = traceCC{window: c.window, inFlight: c.inFlight, srtt: c.srtt}
	if out == nil {
		return ""
	}
	return "cc: " + strings.Join(out, ", ")
}

// What PDS reports to its owner.

func (s *side) pdc(p *pds.PDC) string { return s.w.label(s, p.ID()) }

// heed consumes the news of the Table and prints what a reader wants to know.
func (s *side) heed() {
	for n := s.tab.NextNews(); n != nil; n = s.tab.NextNews() {
		switch p := n.PDC; n.Kind {
		case pds.NewsAnswered:
			s.answered(n.Piece, n.Rsp)
		case pds.NewsPassed:
			for _, msg := range n.Msgs {
				s.answered(piece.Piece{Msg: msg}, nil)
			}
		case pds.NewsFailed:
			if n.Unrun {
				s.say("%v certainly not executed", refText(n.Piece))
				break
			}
			s.say("%v failed: %v", refText(n.Piece), whyText(n.Why))
		case pds.NewsGone:
			s.say("%s is gone: %v", s.pdc(p), whyText(n.Why))
		case pds.NewsProven:
			s.say("%s is proven", s.pdc(p))
		case pds.NewsRefused:
			s.say("%s finds the target without room", s.pdc(p))
		case pds.NewsPath:
			s.say("path %d is %s", n.Path, map[pds.PathNews]string{pds.PathGood: "good", pds.PathMarked: "marked", pds.PathLost: "lossy"}[n.PathNews])
		case pds.NewsGuessed:
			s.say("somebody guesses numbers from the address of %s", s.w.byAddr(s.tab.Guesser()).name)
		}
	}
}

func (s *side) answered(r piece.Piece, rsp *wire.Rsp) {
	if rsp == nil {
		s.say("%v answered by default", refText(r))
	} else {
		s.say("%v answered %v", refText(r), rspText(rsp))
	}
}

func (s *side) Noop(r piece.Piece) (piece.Piece, int) {
	return piece.Piece{Msg: r.Msg, Kind: piece.Noop}, 100
}

func (s *side) GiveUp(p *pds.PDC, r piece.Piece, code wire.NackCode) (piece.Piece, int) {
	s.say("%v given up: NACK %v", refText(r), code)
	if s.instead && r.Kind == 0 {
		r.Kind = 1
		return r, 100
	}
	return piece.Piece{}, 0
}
func (s *side) Expects(uint32) bool         { return false }
func (s *side) Awaits(p *pds.PDC) bool      { return s.asked[p] }
func (s *side) Asked(p *pds.PDC) bool       { _, ok := s.asked[p]; return ok }
func (s *side) InboundOpen(p *pds.PDC) bool { return s.inbound[p] }
func (s *side) Known(netip.AddrPort) bool   { return !s.stranger }
func (s *side) Pending(*pds.PDC) bool       { return false }

func refText(r piece.Piece) string {
	if r.Kind == piece.Return {
		return fmt.Sprintf("msg %d", r.Msg)
	}
	if r.Kind != 0 {
		return fmt.Sprintf("what replaces msg %d", r.Msg)
	}
	return fmt.Sprintf("msg %d", r.Msg)
}

func whyText(r pds.Reason) string {
	s := map[pds.Why]string{
		pds.WhyTimeout: "the peer is silent", pds.WhyUnreachable: "the peer cannot be reached", pds.WhyNack: "refused",
		pds.WhyNoResource: "the peer lacks something", pds.WhyNotReady: "the peer is not ready", pds.WhyTooBig: "large packets do not pass",
		pds.WhyProtocol: "the peer breaks the protocol", pds.WhyClosed: "closed", pds.WhyNoKey: "no key",
	}[r.Why]
	if r.Nack != 0 {
		s += fmt.Sprintf(", NACK %v", r.Nack)
	}
	return s
}

// drops are the counters that say what became of a packet about which there is no other
// news.
func (s *side) drops() (names []string, n []uint64) {
	t := &s.tab.Stats
	for _, c := range []struct {
		name string
		n    uint64
	}{
		{"a duplicate", t.RxDup},
		{"dropped: no such PDC", t.DropNoPDC},
		{"dropped: not from the peer of the PDC", t.DropSource},
		{"dropped: acknowledges what was not sent", t.DropUnsent},
		{"dropped: stale", t.DropStale},
		{"dropped: a bound is reached", t.DropLimit},
		{"dropped: too many of them", t.DropRate},
		{"dropped: the header does not fit", t.DropHeader},
		{"dropped: from another life", t.DropBinding},
	} {
		names, n = append(names, c.name), append(n, c.n)
	}
	return names, n
}

// tell returns the news as text and forgets it.
func (s *side) tell() string {
	names, n := s.drops()
	for i, name := range names {
		if n[i] != s.counts[name] {
			s.say("%s", name)
			s.counts[name] = n[i]
		}
	}
	if c := s.cc.take(); c != "" {
		s.say("%s", c)
	}
	out := strings.Join(joined(s.news), "; ")
	s.news = nil
	return out
}

// joined merges news that say the same of successive messages.
func joined(news []string) []string {
	var out []string
	first, last, what := 0, 0, ""
	for _, line := range news {
		var n int
		rest := ""
		if _, err := fmt.Sscanf(line, "msg %d ", &n); err == nil {
			_, rest, _ = strings.Cut(line[4:], " ")
		}
		if rest != "" && rest == what && n == last+1 {
			last = n
			out[len(out)-1] = fmt.Sprintf("msg %d..%d %s", first, last, rest)
			continue
		}
		first, last, what = n, n, rest
		out = append(out, line)
	}
	return out
}

// What a script does.

func (s *side) open(now time.Duration, to *side, mode wire.Mode) (label string, start wire.PSN, ok bool) {
	p := s.tab.Open(now, uint32(1+to.addr.Addr().As4()[3]), to.addr, mode, s.cc)
	if p == nil {
		return "", 0, false
	}
	return s.pdc(p), p.StartPSN(), true
}

// find is the PDC with a label, or the latest one of the side.
func (s *side) find(label string) *pds.PDC {
	if label == s.name {
		var last *pds.PDC
		for _, p := range s.pdcs() {
			last = p
		}
		return last
	}
	id, ok := s.w.ids[label]
	if !ok {
		return nil
	}
	return s.tab.Lookup(id)
}

// pdcs are the PDCs by their labels.
func (s *side) pdcs() []*pds.PDC {
	var all []*pds.PDC
	s.tab.Each(func(p *pds.PDC) { all = append(all, p) })
	number := func(p *pds.PDC) int {
		n, _ := strconv.Atoi(s.pdc(p)[1:])
		return n
	}
	slices.SortFunc(all, func(p, q *pds.PDC) int { return number(p) - number(q) })
	return all
}

// push sends one packet of a message. If it may not be sent, push says why.
func (s *side) push(now time.Duration, p *pds.PDC, msg uint32, size, path int, ar bool) (*packet, string) {
	can := (*pds.PDC).CanPush
	if !p.Initiator() {
		if can = (*pds.PDC).CanReturn; p.CCC() == nil {
			p.SetCCC(now, s.cc)
		}
	}
	if !can(p, size) {
		v := p.View()
		switch {
		case p.Unproven():
			return nil, "the initiator may be forged"
		case v.PeerWindow:
			return nil, "the PSN window of the peer is used up"
		case v.OwnWindow:
			return nil, "as many are outstanding as this side sends"
		case v.SynRange:
			return nil, "the target has to answer first"
		case !p.Usable():
			return nil, "the PDC is " + stateText(p.State())
		}
		return nil, "the congestion window is full"
	}
	s.w.pushed++
	r := piece.Piece{Msg: msg, Off: uint32(s.w.pushed)}
	if !p.Initiator() {
		r.Kind = piece.Return
	}
	p.Push(now, r, size, uint8(path))
	var b []byte
	if p.Initiator() {
		b = p.Header(nil)
	} else {
		b = p.ReturnHeader(now, nil)
	}
	if ar || p.Nearly() {
		b[1] |= byte(wire.FlagAR)
	}
	k := &packet{from: s, size: size, src: s.port(path), dst: *p.Remote()}
	k.b = body(b, r)
	return k, ""
}

func (s *side) port(path int) netip.AddrPort {
	return netip.AddrPortFrom(s.addr.Addr(), s.addr.Port()+uint16(path))
}

// body appends what a message layer would append: here the numbers of the message.
func body(b []byte, r piece.Piece) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Msg)
	b = append(b, byte(r.Kind))
	return append(b, make([]byte, wire.ReqStdLen-5)...)
}

// receive passes a packet to the Table as a FEP does.
func (s *side) receive(now time.Duration, k *packet, how arrival) {
	in := &pds.Arrival{Now: now, From: how.src, CE: how.ce, Paused: how.paused}
	if s.cfg.Secure != pds.SecureNone {
		in.Who = how.who
	}
	switch b := k.b; wire.Type(b[0] >> 3) {
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		s.ack(in, k)
	case wire.TypeNack, wire.TypeNackCCX:
		if n, _, err := wire.ParseNack(b); err == nil {
			s.tab.ReceiveNack(in, &n)
			s.heed()
		}
	case wire.TypeCP:
		if c, _, err := wire.ParseCP(b); err == nil {
			s.tab.ReceiveCP(in, &c)
			s.heed()
			if p := s.tab.Lookup(c.DPDCID); p != nil {
				s.release(now, p)
			}
		}
	default:
		s.request(in, k, how.trimmed)
	}
}

func (s *side) ack(in *pds.Arrival, k *packet) {
	if h := wire.Plain(k.b); h != nil && s.w.fast {
		var rsp wire.Rsp
		rsp.Parse(h.Rsp())
		p := s.tab.Lookup(h.DPDCID())
		if msg, ok := s.tab.ReceivePlain(in, p, h); ok {
			s.heed()
			s.answered(piece.Piece{Msg: msg}, &rsp)
			return
		}
	}
	a, n, err := wire.ParseAck(k.b)
	if err != nil {
		return
	}
	var rsp *wire.Rsp
	if a.Next == wire.NextRsp {
		rsp = new(wire.Rsp)
		rsp.Parse(k.b[n:])
	}
	s.tab.ReceiveAck(in, &a, rsp)
	s.heed()
}

func (s *side) request(in *pds.Arrival, k *packet, trimmed wire.NackCode) {
	now := in.Now
	h, n, err := wire.ParseReq(k.b)
	if err != nil {
		return
	}
	m := pds.Meta{PSN: h.PSN, Size: k.size, Len: k.size, AR: h.Flags&(wire.FlagAR|wire.FlagSYN) != 0, Retx: h.Flags&wire.FlagRETX != 0, CE: in.CE, Late: in.Paused}
	if trimmed != 0 {
		s.tab.ReceiveTrimmed(in, &h, trimmed, false)
		s.heed()
		return
	}
	if pl := wire.PlainRequest(k.b); pl != nil && s.w.fast {
		if p := s.tab.ReceiveNext(in, pl); p != nil {
			m.Next = true
			s.execute(now, p, &m, k.b[n:])
			return
		}
	}
	p, v := s.tab.ReceiveReq(in, &h)
	s.heed()
	if p == nil {
		return
	}
	if p.Peer == 0 {
		p.SetPeer(uint32(1+in.From.Addr().As4()[3]), !s.stranger)
	}
	switch v {
	case pds.Deliver:
		s.execute(now, p, &m, k.b[n:])
	case pds.Keep:
		early, _ := p.Early()
		p.KeepEarly(now, &m, h.Next, k.b[n:])
		if e, _ := p.Early(); e > early {
			s.say("msg %d waits for its turn", binary.BigEndian.Uint32(k.b[n:]))
		}
	}
}

// execute is the message layer.
func (s *side) execute(now time.Duration, p *pds.PDC, m *pds.Meta, b []byte) bool {
	msg := binary.BigEndian.Uint32(b)
	text := refText(piece.Piece{Msg: msg, Kind: piece.Kind(b[4])})
	if !m.Early && p.Later(m.PSN) {
		text += fmt.Sprintf(" behind a refused one, %d follow", p.Behind(m.PSN))
	}
	r, ok := s.replies[msg]
	if !ok || r.rc == 0 {
		r.rc = wire.RCOK
	}
	switch {
	case r.refuse != 0:
		s.say("%s refused", text)
		if m.Early {
			p.EarlyRefused(now, r.refuse)
		} else {
			p.Refuse(now, m.PSN, r.refuse)
		}
		return false
	case r.gtd:
		s.say("%s taken, its response is kept", text)
	default:
		s.say("%s taken", text)
	}
	p.Accept(now, m, &wire.Rsp{Opcode: wire.RspResponse, RC: r.rc, MsgID: uint16(msg)}, r.gtd)
	if m.Early {
		p.EarlyDone()
	} else if p.Mode() == wire.ROD {
		s.release(now, p)
	}
	return true
}

// release executes the early ROD packets that are next in order.
func (s *side) release(now time.Duration, p *pds.PDC) {
	for {
		m, _, b, ok := p.NextEarly()
		if !ok || !s.execute(now, p, &m, b) {
			return
		}
	}
}

// take returns everything that is to be sent.
func (s *side) take(now time.Duration) []*packet {
	var out []*packet
	add := func(b []byte, size int, path int, dst netip.AddrPort) {
		out = append(out, &packet{from: s, b: b, size: size, src: s.port(path), dst: dst, why: causeText(s.tab.Cause)})
	}
	all := s.pdcs()
	for _, p := range all { // data comes first
		if p.State() == pds.Quiesce && !s.sending && !p.Lost() {
			s.tab.Drained(now, p)
			s.heed()
		}
		var last *packet // a request
		for p.State() != pds.Closed && p.CanResend() {
			n, _, _ := p.NextLost()
			dst := *p.Remote()
			if a := p.Resend(now, 0); a.IsCP {
				add(a.CP.Append(nil), n, 0, dst)
			} else {
				add(body(a.Req.Append(nil), a.Piece), n, 0, dst)
				last = out[len(out)-1]
			}
		}
		if last != nil {
			last.b[1] |= byte(wire.FlagAR)
		}
	}
	for {
		l, ok := s.tab.NextLoose()
		if !ok {
			break
		}
		s.tab.Cause = pds.CauseNone
		add(slices.Clone(l.B[:l.N]), 0, int(l.Path), l.Remote)
	}
	for _, p := range all {
		for p.CtlOwed() {
			c, ok := p.NextCtl(now)
			if !ok {
				break
			}
			add(c.Append(nil), 0, 0, *p.Remote())
		}
		for p.AckOwed() {
			dst, path := p.AckTo()
			add(p.NextAck(now, nil), 0, int(path), *dst)
		}
	}
	return out
}

// causeText says why a packet is sent if a reader may wonder.
func causeText(c pds.Cause) string {
	if n := c.Nack(); n != 0 {
		return "refused, NACK " + n.String()
	}
	return map[pds.Cause]string{
		pds.CauseRTO: "RTO", pds.CauseSACK: "later ones arrived", pds.CauseReorder: "missing for the reordering time",
		pds.CauseProbe: "the answer of a PROBE shows it missing", pds.CauseTail: "silence after the last packet",
		pds.CauseRenumber: "renumbered", pds.CauseGreet: "shows that it knows the PDCID", pds.CauseArrived: "it arrived, its response did not",
		pds.CausePromised: "the promised response did not come",
		pds.CauseProbeAsk: "nothing outstanding asks for an ACK", pds.CauseProbeTail: "silence after the last packet",
		pds.CauseProbeRTO: "RTO", pds.CauseProbeShut: "the window is closed and no ACK comes", pds.CauseProbeMore: "the last PROBE did not cover it",
		pds.CauseAckRetx: "a resend came", pds.CauseAckCE: "CE", pds.CauseAckDup: "a duplicate came", pds.CauseAckHole: "CACK moves on",
		pds.CauseAckEarly: "a hole", pds.CauseAckBytes: "enough bytes came", pds.CauseAckLast: "this end closes",
		pds.CauseGtdAgain: "no CLEAR came", pds.CauseBehind: "behind a response that is kept",
	}[c]
}

func stateText(s pds.State) string {
	return map[pds.State]string{
		pds.Closed: "CLOSED", pds.Creating: "CREATING", pds.Established: "ESTABLISHED", pds.Quiesce: "QUIESCE", pds.AckWait: "ACK_WAIT",
		pds.CloseAckWait: "CLOSE_ACK_WAIT", pds.CloseRequested: "CLOSE_REQUESTED",
	}[s]
}

// state describes every PDC.
func (s *side) state(now time.Duration) []string {
	all := s.pdcs()
	if len(all) == 0 {
		return []string{s.name + " has no PDC"}
	}
	var out []string
	for _, p := range all {
		role := "target"
		if p.Initiator() {
			role = "initiator"
		}
		v := p.View()
		line := fmt.Sprintf("%s %v %s %s", s.pdc(p), p.Mode(), role, stateText(p.State()))
		if n, _ := p.Early(); n != 0 {
			line += fmt.Sprintf(", %d wait for their turn", n)
		}
		if p.Initiator() || p.Outstanding() != 0 {
			line += fmt.Sprintf(", outstanding %d, window %d of %d", p.Outstanding(), v.Ahead, v.Range)
		}
		if v.NextSend != 0 {
			line += fmt.Sprintf(", next %v", s.w.clock(v.NextSend))
		}
		if v.GiveUp != 0 {
			line += fmt.Sprintf(", gives up %v", s.w.clock(v.GiveUp))
		}
		out = append(out, line)
		var sent []string
		p.EachSent(func(x pds.Sent) {
			line := fmt.Sprintf("%v %s", refText(x.Piece), map[pds.SentState]string{
				pds.InFlight: "in flight", pds.Lost: "lost", pds.Refused: "refused, waits", pds.Arrived: "arrived, not answered",
			}[x.State])
			if x.Tries != 0 {
				line += fmt.Sprintf(", sent again %d", x.Tries)
			}
			sent = append(sent, line)
		})
		for _, line := range joined(sent) {
			out = append(out, "  "+line)
		}
	}
	return out
}

// The other commands of a script.

func (s *side) setWindow(n int)         { s.cc.window = n }
func (s *side) next() time.Duration     { return s.tab.NextTimeout() }
func (s *side) timers(at time.Duration) { s.tab.Advance(at); s.heed() }

func (s *side) do(now time.Duration, verb string, p *pds.PDC) {
	switch verb {
	case "close":
		s.tab.Close(now, p)
		s.heed()
	case "request-close":
		p.RequestClose(now)
	case "suspect":
		s.tab.Suspect(now, p, false)
	case "probe":
		p.Ask()
	}
}
