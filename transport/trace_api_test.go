package transport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file is the only part of the traces (testdata) that uses the API of a FEP.
// trace_test.go runs the scripts and prints what happens.

// A traceFEP is one FEP of a trace.
type traceFEP struct {
	f   *FEP
	dom *tss.Domain // nil means in clear
}

// traceWords are the words of the command "fep", with their effect on the Config.
var traceWords = map[string]func(c *Config, v string) error{
	"paths": func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		for i := range n {
			c.Paths = append(c.Paths, c.Local.Port()+uint16(i))
		}
		return err
	},
	"mtu":              traceInt(func(c *Config) *int { return &c.PayloadMTU }),
	"max_sends":        traceInt(func(c *Config) *int { return &c.MaxSends }),
	"max_recvs":        traceInt(func(c *Config) *int { return &c.MaxRecvs }),
	"unexpected_msgs":  traceInt(func(c *Config) *int { return &c.UnexpectedMsgs }),
	"open_per_peer":    traceInt(func(c *Config) *int { return &c.OpenPerPeer }),
	"mp_range":         traceInt(func(c *Config) *int { return &c.MPRange }),
	"recv_window":      traceInt(func(c *Config) *int { return &c.RecvWindow }),
	"lanes":            traceInt(func(c *Config) *int { return &c.Lanes }),
	"short":            traceInt(func(c *Config) *int { return &c.ShortMessage }),
	"window":           traceInt(func(c *Config) *int { return &c.Window }),
	"ack_trigger":      traceInt(func(c *Config) *int { return &c.AckTrigger }),
	"max_pdcs":         traceInt(func(c *Config) *int { return &c.MaxPDCs }),
	"max_pdcs_source":  traceInt(func(c *Config) *int { return &c.MaxPDCsPerSource }),
	"max_pdcs_unknown": traceInt(func(c *Config) *int { return &c.MaxPDCsUnknown }),
	"max_pending":      traceInt(func(c *Config) *int { return &c.MaxPending }),
	"max_quarantine":   traceInt(func(c *Config) *int { return &c.MaxQuarantine }),
	"ack_delay":        traceTime(func(c *Config) *time.Duration { return &c.AckDelay }),
	"rto_init":         traceTime(func(c *Config) *time.Duration { return &c.RTOInit }),
	"rto_max":          traceTime(func(c *Config) *time.Duration { return &c.RTOMax }),
	"peer_timeout":     traceTime(func(c *Config) *time.Duration { return &c.PeerTimeout }),
	"suspect_timeout":  traceTime(func(c *Config) *time.Duration { return &c.SuspectTimeout }),
	"new_pdc_time":     traceTime(func(c *Config) *time.Duration { return &c.NewPDCTime }),
	"close_req_time":   traceTime(func(c *Config) *time.Duration { return &c.CloseReqTime }),
	"quarantine":       traceTime(func(c *Config) *time.Duration { return &c.Quarantine }),
	"idle_close":       traceTime(func(c *Config) *time.Duration { return &c.IdleClose }),
	"rnr_timeout":      traceTime(func(c *Config) *time.Duration { return &c.RNRTimeout }),
	"known_only":       traceFlag(func(c *Config) *bool { return &c.KnownPeersOnly }),
	"trimming":         traceFlag(func(c *Config) *bool { return &c.Trimming }),
	"no_crc":           traceFlag(func(c *Config) *bool { return &c.NoCRC }),
	"one_rtt":          traceFlag(func(c *Config) *bool { return &c.OneRTT }),
	"clear_start":      traceFlag(func(c *Config) *bool { return &c.AcceptClearStart }),
	"atomics": func(c *Config, v string) error {
		c.Atomics = RemoteRead | RemoteWrite | RemoteAtomic
		return nil
	},
	"unexpected_share": func(c *Config, v string) (err error) {
		c.UnexpectedShare, err = strconv.ParseFloat(v, 64)
		return err
	},
	"job": func(c *Config, v string) error {
		n, err := strconv.ParseUint(v, 10, 24)
		c.JobID = uint32(n)
		return err
	},
}

func traceInt(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = strconv.Atoi(v)
		return err
	}
}

func traceTime(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = time.ParseDuration(v)
		return err
	}
}

func traceFlag(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = true
		return nil
	}
}

// newTraceFEP makes a FEP. A key other than 0 secures it, as the source ssi of a domain.
func newTraceFEP(local netip.AddrPort, src rand.Source, start func() wire.PSN, words []string, key byte, ssi uint32) (*traceFEP, error) {
	cfg := Config{Local: local, Packets: Packets{StartPSN: start}, Messages: Messages{DeferrableMin: -1}}
	for _, w := range words {
		name, v, _ := strings.Cut(w, "=")
		set := traceWords[name]
		if set == nil {
			return nil, fmt.Errorf("no word %q", name)
		}
		if err := set(&cfg, v); err != nil {
			return nil, err
		}
	}
	n := &traceFEP{}
	if key != 0 {
		d, err := tss.New(tss.Config{SDI: 7, Mode: tss.Cluster, UseSSI: true, SSI: ssi, Local: local.Addr()})
		if err != nil {
			return nil, err
		}
		n.dom, cfg.TSS, cfg.Notes = d, d, true
	}
	var err error
	cfg.FirstID = 1 // so that the traces show small numbers
	n.f, err = New(cfg, rand.New(src))
	return n, err
}

// install lets a key open packets, use seals with it, revoke forgets it.
func (n *traceFEP) install(an, key byte) error { return n.dom.Install(an, testKey(key)) }

func (n *traceFEP) use(now time.Duration, an byte, epoch uint16) error {
	return n.dom.Use(now, an, epoch, 1000)
}

func (n *traceFEP) revoke(an byte) { n.dom.Revoke(an) }

// A tracePost is an operation of a trace.
type tracePost struct {
	recv, tagged bool
	to           netip.AddrPort // the target; of a receive the only source, if valid
	buf          []byte
	tag, ignore  uint64
	data         uint64
	hasData      bool
	level        string
	ordered      bool
	fence        bool
	inject       bool
	silent       bool
	multi        int // MinFree + 1
	look         string
	add, fetch   bool   // it adds its bytes to a receive with the tag
	at           uint64 // the offset in it
	ri           uint16
	pid          uint16
	job          uint32
	context      string
}

func (n *traceFEP) peer(addr netip.AddrPort, known bool) PeerID {
	id, err := n.f.Peer(addr, known)
	if err != nil {
		panic(err)
	}
	return id
}

func (n *traceFEP) post(now time.Duration, p *tracePost) error {
	op := Op{
		Kind: OpSend, Buf: p.buf, Tag: p.tag, Ignore: p.ignore, Data: p.data, HasData: p.hasData, Ordered: p.ordered, Fence: p.fence,
		Inject: p.inject, Silent: p.silent, RI: p.ri, PIDonFEP: p.pid, JobID: p.job, Context: p.context,
		Level: map[string]Level{"inject": LevelInject, "transmit": LevelTransmit, "delivery": LevelDelivery}[p.level],
		Look:  map[string]Look{"peek": LookPeek, "claim": LookPeekClaim, "discard": LookPeekDiscard, "take": LookClaim, "drop": LookClaimDiscard}[p.look],
	}
	if p.recv {
		op.Kind = OpRecv
	}
	if p.tagged {
		op.Kind++
	}
	if p.add {
		op.Kind, op.RemoteAddr = OpAtomic, p.at
		op.AMO = &AMO{Op: wire.AtomicSum, Type: wire.Uint8, Tagged: true}
		if p.fetch {
			op.Kind, op.AMO.Result = OpFetch, make([]byte, len(p.buf))
		}
	}
	if p.multi > 0 {
		op.Multi, op.MinFree = true, p.multi-1
	}
	if p.to.IsValid() {
		op.Peer = n.peer(p.to, true)
	}
	return n.f.Post(now, &op)
}

// A traceEvent is the end of an operation.
type traceEvent struct {
	context         string
	recv, tagged    bool
	ok              bool
	why             string // the cause, with wire codes
	buf             []byte // the bytes placed
	over            int
	tag, data       uint64
	hasData         bool
	from            netip.AddrPort
	multi, released bool
}

func (n *traceFEP) event() (t traceEvent, ok bool) {
	e := n.f.NextEvent()
	if e == nil {
		return t, false
	}
	t = traceEvent{
		context: e.Context.(string), recv: e.Kind.Recv(), tagged: e.Kind.Tagged(), ok: e.Cause == 0, why: e.Cause.String(), over: int(e.OverLen),
		tag: e.Tag, data: e.Data, hasData: e.HasData, from: n.f.PeerAddr(e.Peer), multi: e.Multi, released: e.Released,
	}
	if t.recv && e.Buf != nil {
		t.buf = e.Buf[:e.Len]
	}
	if e.RC != 0 {
		t.why += fmt.Sprintf(" rc=%v", e.RC)
	}
	if e.Nack != 0 {
		t.why += fmt.Sprintf(" nack=%v", e.Nack)
	}
	if e.Unknown {
		t.why += ", the target may have it"
	}
	return t, true
}

func (n *traceFEP) transmit(now time.Duration, d *dgram.Datagram) bool { return n.f.Transmit(now, d) }

// plain is the i-th packet of the train that transmit filled, before it was sealed; nil on
// a FEP in clear.
func (n *traceFEP) plain(i int) []byte {
	if notes := n.f.Notes(); i < len(notes) {
		return notes[i].Plain
	}
	return nil
}

func (n *traceFEP) receive(now time.Duration, d *dgram.Datagram) { n.f.Receive(now, d) }
func (n *traceFEP) advance(now time.Duration)                    { n.f.Advance(now) }
func (n *traceFEP) next() time.Duration                          { return n.f.NextTimeout() }
func (n *traceFEP) flush(now time.Duration)                      { n.f.Flush(now) }
func (n *traceFEP) ackAll(now time.Duration)                     { n.f.AckAll(now) }
func (n *traceFEP) close(now time.Duration)                      { n.f.Close(now) }
func (n *traceFEP) end(now time.Duration)                        { n.f.End(now) }
func (n *traceFEP) apart(on bool)                                { n.f.Apart(on) }
func (n *traceFEP) cancel(now time.Duration, context string) bool {
	return n.f.Cancel(now, 0, context)
}

func (n *traceFEP) quiesce(now time.Duration, addr netip.AddrPort) {
	n.f.Quiesce(now, n.peer(addr, true))
}

func (n *traceFEP) forget(addr netip.AddrPort) { n.f.Forget(n.peer(addr, false)) }

func (n *traceFEP) unreachable(now time.Duration, addr netip.AddrPort) { n.f.Unreachable(now, addr) }

// refused returns the counters of received packets that had no new effect, with a word for
// each.
func (n *traceFEP) refused() (words []string, counts []uint64) {
	s := n.f.Stats()
	for r, k := range s.Drops {
		words, counts = append(words, "dropped: "+DropReason(r).String()), append(counts, k)
	}
	return append(words, "had it", "trimmed"), append(counts, s.RxDup, s.RxTrimmed)
}

// load is the Load and other state of the FEP as text.
func (n *traceFEP) load() string {
	l := n.f.Load()
	s := n.f.Stats()
	out := fmt.Sprintf("%d sends, %d receives, %d unexpected, %d PDCs", l.Sends, l.Recvs, l.Unexpected, l.PDCs)
	if s.PDCAccepted+s.PDCOpened > 0 {
		out += fmt.Sprintf(" (%d opened, %d accepted, %d closed, %d in error)", s.PDCOpened, s.PDCAccepted, s.PDCClosed, s.PDCErrors)
	}
	if n.f.Idle() {
		out += ", at rest"
	}
	return out
}

// counters are all counters that are not 0, with their names.
func (n *traceFEP) counters() []string {
	s := n.f.Stats()
	var out []string
	add := func(name string, v uint64) {
		if v != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, v))
		}
	}
	add("rtx_rto", s.RtxRTO)
	add("rtx_sack", s.RtxSACK)
	add("rtx_nack", s.RtxNack)
	add("rtx_probe", s.RtxProbe)
	add("rtx_spurious", s.RtxSpurious)
	add("rx_dup", s.RxDup)
	add("rx_ooo", s.RxOOO)
	add("rx_ce", s.RxCE)
	add("rx_trimmed", s.RxTrimmed)
	add("acks_tx", s.AcksTx)
	add("acks_rx", s.AcksRx)
	add("acks_ce", s.AcksCE)
	for c, v := range s.NacksTx {
		add("nacks_tx "+wire.NackCode(c).String(), v)
	}
	for c, v := range s.NacksRx {
		add("nacks_rx "+wire.NackCode(c).String(), v)
	}
	for c, v := range s.CPTx {
		add("cp_tx "+wire.CtlType(c).String(), v)
	}
	for c, v := range s.CPRx {
		add("cp_rx "+wire.CtlType(c).String(), v)
	}
	add("pdc_opened", s.PDCOpened)
	add("pdc_accepted", s.PDCAccepted)
	add("pdc_closed", s.PDCClosed)
	add("pdc_errors", s.PDCErrors)
	add("quarantined", s.Quarantined)
	add("unexpected", s.Unexpected)
	for r, v := range s.Drops {
		add("drop "+DropReason(r).String(), v)
	}
	return out
}
