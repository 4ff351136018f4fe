package simtest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/wire"
)

const simSDI = 0x5d15d1

// simKey returns the key of a generation, which all hosts share.
func simKey(gen uint8) (k tss.Key) {
	for i := range k {
		k[i] = byte(i*37+5) ^ gen
	}
	return k
}

// domain makes the secure domain of a new life of the host. Each life draws its source and its
// first TSC at random, as all processes that share a key must.
func (h *Host) domain() *tss.Domain {
	d, gen := h.w.newDomain(uint64(h.Index)<<32|uint64(h.Life()), h.Addr().Addr())
	h.gen, h.has, h.epoch = gen, gen, d.Self().Epoch()
	return d
}

// newDomain makes a secure domain for a life with that number, and returns the generation of the key that it seals with.
func (w *World) newDomain(life uint64, local netip.Addr) (*tss.Domain, uint8) {
	rng := rand.New(rand.NewPCG(w.spec.Seed^0x747373, life))
	cfg := tss.Config{SDI: simSDI, Mode: tss.Cluster, UseSSI: true, SSI: rng.Uint32(), Local: local}
	if f := w.spec.Domain; f != nil {
		f(&cfg)
	}
	d, err := tss.New(cfg)
	gen := w.gen
	if err == nil {
		err = d.Install(gen&1, simKey(gen))
	}
	if err == nil && gen > 0 { // others may seal with the key before
		err = d.Install((gen-1)&1, simKey(gen-1))
	}
	if err == nil {
		err = d.Use(w.Net.Now(), gen&1, uint16(rng.Uint32()), rng.Uint64()>>17)
	}
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	return d, gen
}

// NextKey makes all hosts that are up open packets sealed with one more key. The key before the
// last is forgotten.
func (w *World) NextKey() {
	w.nextKey()
	for _, h := range w.Hosts {
		h.NewKey()
	}
}

func (w *World) nextKey() {
	w.gen++
	if err := w.ledger.eye.dom.Install(w.gen&1, simKey(w.gen)); err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
}

// NewKey makes the host open packets sealed with the newest key. If there was only one key, it
// makes a second.
func (h *Host) NewKey() {
	w := h.w
	if w.gen == 0 {
		w.nextKey()
	}
	if h.FEP != nil && h.has < w.gen {
		if err := h.dom.Install(w.gen&1, simKey(w.gen)); err != nil {
			panic(fmt.Sprintf("simtest: %v", err))
		}
		h.has = w.gen
	}
}

// UseKey makes the host seal with the newest key.
func (h *Host) UseKey() {
	if h.FEP == nil || h.gen == h.w.gen {
		return
	}
	h.NewKey()
	if err := h.dom.Use(h.w.Net.Now(), h.has&1, h.epoch, 0); err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	h.gen = h.has
	h.w.note("%s seals with key %d", h.Name(), h.gen)
}

// An eye opens the sealed packets of all hosts for the ledger. It checks that no two of them
// have the same key and IV (T24).
type eye struct {
	dom *tss.Domain
	ivs map[iv]uint64 // by IV, the ID of the packet
	buf []byte
}

type iv struct {
	ssi   uint32
	epoch uint16
	key   uint8 // generation
	tsc   uint64
}

func newEye(ipv6 bool) *eye {
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if ipv6 {
		local = netip.IPv6Loopback()
	}
	d, err := tss.New(tss.Config{SDI: simSDI, Mode: tss.Cluster, UseSSI: true, SSI: 1<<32 - 1, Local: local})
	if err == nil {
		err = d.Install(0, simKey(0))
	}
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	return &eye{dom: d, ivs: map[iv]uint64{}}
}

// open returns a sent packet as it was before it was sealed.
func (e *eye) open(w *World, p *sim.Packet) []byte {
	h, _, err := wire.ParseTSS(p.Data)
	if err != nil {
		w.Failf("%s sends a packet that is not sealed: % x", p.From.Name, p.Data)
	}
	gen := w.gen
	if gen&1 != h.AN {
		gen-- // the key before
	}
	k := iv{h.SSI, h.Epoch, gen, h.TSC}
	if other, ok := e.ivs[k]; ok && other != p.ID {
		w.Failf("%s seals datagram %d with the IV of datagram %d: %v", p.From.Name, p.ID, other, h)
	}
	e.ivs[k] = p.ID
	var outer [wire.OuterMax]byte
	n := wire.PutOuter(&outer, &p.Src, &p.Dst, uint16(8+len(p.Data)))
	e.buf = append(e.buf[:0], p.Data...)
	// A packet that opens a PDC by a path port, or a request of RUDI there, is sealed for the main port (docs/decisions/0061).
	var main [wire.OuterMax]byte
	var other []byte
	for _, t := range w.Hosts {
		if to := t.Addr(); to.Addr() == p.Dst.Addr() && to != p.Dst {
			other = main[:wire.PutOuter(&main, &p.Src, &to, uint16(8+len(p.Data)))]
		}
	}
	plain, _, second, why := e.dom.OpenEither(w.Net.Now(), e.buf, outer[:n], other, p.Src.Addr())
	if why != tss.Good {
		w.Failf("%s sends a packet that does not open: %v: %v", p.From.Name, why, h)
	}
	if second && (len(plain) < 2 || plain[1]&byte(wire.FlagSYN) == 0 && wire.Type(plain[0]>>3) != wire.TypeRUDIReq) {
		w.Failf("%s sends a packet to a path port that is sealed for the main one, and opens no PDC: % x", p.From.Name, plain)
	}
	return plain
}

// A Member is an attacker that has the key of all hosts and seals anything.
type Member struct {
	w   *World
	dom *tss.Domain
}

// Member makes a Member whose packets name the source ssi of an epoch.
func (w *World) Member(ssi uint32, epoch uint16) *Member {
	d, err := tss.New(tss.Config{SDI: simSDI, Mode: tss.Cluster, UseSSI: true, SSI: ssi, Local: w.Hosts[0].Addr().Addr()})
	if err == nil {
		err = d.Install(w.gen&1, simKey(w.gen))
	}
	if err == nil {
		err = d.Use(0, w.gen&1, epoch, 1<<47)
	}
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	return &Member{w, d}
}

// Forge seals a packet, which it borrows, and sends it to a host as if from src.
func (m *Member) Forge(to int, src netip.AddrPort, plain []byte) {
	b, _ := m.dom.Begin(nil)
	b = append(append(b, plain...), make([]byte, wire.ICVLen)...)
	var outer [wire.OuterMax]byte
	dst := m.w.Hosts[to].Addr()
	n := wire.PutOuter(&outer, &src, &dst, uint16(8+len(b)))
	m.dom.Seal(b, outer[:n])
	m.w.Forge(to, src, b, false)
}

// SDI is the secure domain of all hosts.
const SDI = simSDI

// Kind returns the kind of a sealed packet, for tests that want one of each.
func Kind(w *World, p *sim.Packet) string {
	c := *p
	r := read(w.ledger.eye.open(w, &c), 0)
	switch r.class {
	case classData:
		return fmt.Sprintf("request, ROD %v, SYN %v, %d bytes", r.rod, r.syn, r.n)
	case classCP:
		return fmt.Sprintf("control packet %d", r.next)
	case classAck:
		return fmt.Sprintf("ACK of type %d, next header %d", r.typ, r.next)
	case classNack:
		return fmt.Sprintf("NACK %#x", r.code)
	}
	return fmt.Sprint("class ", r.class)
}

// LoseKey removes the key that the host seals with.
func (h *Host) LoseKey() {
	h.w.note("%s has no key any more", h.Name())
	h.dom.Revoke(h.gen & 1)
}
