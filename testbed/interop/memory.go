package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// rmaMTU is the payload of a packet at both ends: the target of a read must know it.
const rmaMTU = 1024

// memoryCaps are uetkit's capabilities in memory plays.
const memoryCaps = fi.Msg | fi.RMA | fi.Atomic

// rodOrder puts everything on one ROD PDC.
const rodOrder = fi.OrderSAS | fi.OrderSAW | fi.OrderWAS | fi.OrderWAW | fi.OrderRAW

// What a memory play does.
const (
	opWrite = "write"
	opRead  = "read"
	opAdd   = "fetch-add"
	opCAS   = "compare-and-swap"
)

// Codes of atomic operations and RCs on the wire.
const (
	wireSum   = 0x02
	wireCSwap = 0x0D

	rcAMOOp        = 0x0F
	rcAMOType      = 0x10
	rcAMOSize      = 0x11
	rcAMOUnaligned = 0x12
	rcPerm         = 0x17
	rcBadKey       = 0x1C
	rcBadAddr      = 0x1D
)

// A memory is one-sided operations of one kind and one direction: out if uetkit is the initiator.
type memory struct {
	op      string
	dir     string
	ordered bool
	long    bool // messages of several packets; of atomics many at once
	loss    float64

	// Chosen by the seed.
	seed                 uint64
	form                 string // of the peer's requests
	key                  uint64
	standard, sealed, v6 bool
	delivery             bool // uetkit's writes
	ackType              int
	goBackN              bool
	zeroRead             string
	ackData              int
	startPSN             uint32
}

// memories are all combinations, each with choices by the seed.
func memories(seed uint64) []memory {
	var all []memory
	for _, op := range []string{opWrite, opRead, opAdd, opCAS} {
		for i := range 16 {
			bit := func(n int) bool { return i>>n&1 == 1 }
			m := memory{op: op, dir: out, ordered: bit(1), long: bit(2), seed: seed<<16 + uint64(len(all))}
			if bit(0) {
				m.dir = in
			}
			if bit(3) {
				m.loss = 0.05
			}
			m.choose()
			all = append(all, m)
		}
	}
	return all
}

func (m *memory) choose() {
	r := rand.New(rand.NewPCG(m.seed, 2))
	coin := func(one int) bool { return r.IntN(one) == 0 }
	m.form, m.key = "std", 1+r.Uint64N(1<<40)
	if m.dir == in && m.op == opWrite && !m.long && coin(2) { // the form for one packet
		m.form = "medium"
	}
	m.standard, m.sealed, m.v6, m.delivery = coin(3), coin(4), coin(3), coin(2)
	m.ackType = []int{7, 8, 8, 9}[r.IntN(4)]
	m.goBackN = coin(2)
	m.zeroRead = []string{"default", "data"}[r.IntN(2)]
	m.ackData = []int{16, 16, 0, 1024}[r.IntN(4)]
	m.startPSN = uint32(1<<20 + r.IntN(1<<20))
	if coin(3) {
		m.startPSN = 0xFFFFFFF8
	}
}

func (m memory) String() string {
	who, mode, size := "uetkit asks", "RUD", "small"
	if m.dir == in {
		who = "peer asks"
	}
	if m.ordered {
		mode = "ROD"
	}
	if m.long {
		size = "long"
	}
	return fmt.Sprintf("memory: %s, %s, %s, %s, %g %% lost", m.op, who, mode, size, m.loss*100)
}

// choices names what the seed chose.
func (m memory) choices() string {
	s := []string{"ACK type " + fmt.Sprint(m.ackType)}
	add := func(yes bool, what string) {
		if yes {
			s = append(s, what)
		}
	}
	add(m.standard, "Standard")
	add(m.sealed, "sealed")
	add(m.v6, "IPv6")
	add(m.dir == in, m.form)
	add(m.dir == in && m.startPSN > 1<<31, "PSN wraps")
	add(m.ordered && m.goBackN, "go back N")
	add(m.dir == out && m.op == opWrite && m.delivery, "delivery complete")
	add(m.dir == out && m.op == opRead, fmt.Sprintf("up to %d bytes in an ACK, nothing by %s", m.ackData, m.zeroRead))
	return strings.Join(s, ", ")
}

// setup is how both ends of a memory play are opened.
func (m memory) setup(worker int) setup {
	a := args{
		"mtu": rmaMTU, "seed": m.seed % 1_000_003, "ack_type": m.ackType, "go_back_n": m.goBackN, "zero_read": m.zeroRead,
		"ack_data": m.ackData, "watch": []string{"control acknowledged"},
		"faults": args{"seed": m.seed % 1_000_003, "loss": m.loss, "dup": m.loss / 2, "reorder": m.loss},
	}
	if !m.sealed {
		a["start_psn"] = m.startPSN
	}
	return setup{
		worker: worker, v6: m.v6, standard: m.standard, sealed: m.sealed, peer: a, caps: memoryCaps,
		info: func(i *uet.Info) {
			i.Config.PayloadMTU = rmaMTU
			if m.ordered {
				i.Tx.MsgOrder = rodOrder
			}
		},
	}
}

// run plays it on a peer that runs already.
func (m memory) run(p *peer, worker int, id string) error {
	s := m.setup(worker)
	return on(s, func(pr *pair) error {
		err := map[string]func(*pair) error{opWrite: m.writes, opRead: m.reads, opAdd: m.adds, opCAS: m.swaps}[m.op](pr)
		if err != nil {
			return err
		}
		for _, e := range append(pr.of("opened"), pr.of("opened by peer")...) {
			if e.Ordered != m.ordered {
				return fmt.Errorf("a PDC is ordered: %v", e.Ordered)
			}
		}
		return m.end(pr)
	})(p, worker, id)
}

// end has the initiator end its PDC, and wants an orderly end.
func (m memory) end(pr *pair) error {
	err := pr.ep.Quiesce(pr.ep.to)
	if m.dir == in {
		err = pr.do("close", nil)
	}
	if err != nil {
		return err
	}
	if err := pr.closed(m.loss > 0); err != nil {
		return err
	}
	return pr.notOdd()
}

// closed waits for the end of all PDCs of the peer, and wants each in order. Where packets are lost, the
// last ACK of read data may be: then CLOSE finds data outstanding, and NACK 11 is right.
func (pr *pair) closed(lossy bool) error {
	err := pr.until("all PDCs closed", 10*time.Second, func() (bool, error) {
		e, err := pr.stats()
		return e.PDCs == 0, err
	})
	if err != nil {
		return err
	}
	for _, e := range pr.of("pdc closed") {
		if e.Why != "closed" && e.Why != "closed by peer" && !(lossy && e.Why == "closed with return data outstanding") {
			return fmt.Errorf("the peer's PDC ended: %s", e.Why)
		}
	}
	return nil
}

// notOdd wants that no data came to the peer that breaks a rule.
func (pr *pair) notOdd() error {
	e, err := pr.stats()
	for name, n := range e.all {
		if strings.HasPrefix(name, "odd: ") || name == "data for no message" {
			err = errors.Join(err, fmt.Errorf("the peer saw %v times %s", n, name))
		}
	}
	return err
}

// A place is where one operation writes or reads in a region.
type place struct{ at, size int }

// places are those of all operations, some of them side by side, and the size of the region.
func (m memory) places() (all []place, size int) {
	sizes := []int{0, 1, 7, 8, 15, 16, 17, 100, 1000, rmaMTU - 1, rmaMTU}
	if m.long {
		sizes = []int{rmaMTU + 1, 2 * rmaMTU, 5000, 3, 20_000, 65_537}
		if m.loss == 0 {
			sizes = append(sizes, 300_000)
		}
	}
	for n, s := range append(sizes, sizes...) {
		all = append(all, place{size, s})
		size += s + n%2*5
	}
	return all, size + 3
}

// A region is memory of uetkit, with a guard on both sides.
type region struct {
	mr       *uet.MR // nil when it is closed
	all, buf []byte
}

// close ends the registration: then nobody writes there any more.
func (r *region) close() error {
	mr := r.mr
	if r.mr = nil; mr == nil {
		return nil
	}
	return mr.Close()
}

func guarded(size int) (all, buf []byte) {
	all = bytes.Repeat([]byte{poison}, guard+size+guard)
	return all, all[guard : guard+size : guard+size]
}

// outside is an error if a guard was written.
func outside(all []byte) error {
	for i, b := range all {
		if (i < guard || i >= len(all)-guard) && b != poison {
			return fmt.Errorf("byte %d outside of %d was written", i-guard, len(all)-2*guard)
		}
	}
	return nil
}

func (pr *pair) register(size int, key uint64, access fi.Flags, fill []byte) (*region, error) {
	r := &region{}
	r.all, r.buf = guarded(size)
	copy(r.buf, fill)
	var err error
	r.mr, err = pr.ep.domain.RegMR(r.buf, access, 0, key, 0, nil)
	pr.regions = append(pr.regions, r)
	return r, err
}

// equal compares memory with what has to be there, and names the first byte that differs.
func equal(got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, not %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#02x, not %#02x", i, len(got), got[i], want[i])
		}
	}
	return nil
}

// check wants that a region has certain bytes and untouched guards. It ends the registration first.
func (r *region) check(want []byte) error {
	if err := r.close(); err != nil {
		return err
	}
	return errors.Join(equal(r.buf, want), outside(r.all))
}

// look wants that a region of the peer has certain bytes and untouched guards.
func (pr *pair) look(key uint64, want []byte) error {
	if err := pr.do("look", args{"key": key}); err != nil {
		return err
	}
	e, err := pr.want("a look", func(e event) bool { return e.Ev == "region" })
	switch {
	case err != nil:
		return err
	case !e.Guard:
		return errors.New("bytes outside of the peer's region were written")
	case e.SHA256 != digest(want):
		head, err := hex.DecodeString(e.Hex)
		if err != nil {
			return err
		}
		return fmt.Errorf("the peer's region is not as it should be: %w", equal(head, want[:min(len(head), len(want))]))
	}
	return nil
}

// all waits until n operations of the initiator have ended, and returns an error if one failed.
func (m memory) all(pr *pair, n int) error {
	err := pr.until("all operations", limit, func() (bool, error) {
		if m.dir == in {
			for _, e := range pr.of("sent") {
				if !e.OK {
					return false, fmt.Errorf("peer: operation %d failed: RC %s, NACK %s, %s", e.Ctx, code(e.RC), code(e.Nack), e.Why)
				}
			}
			return len(pr.of("sent")) >= n, nil
		}
		for _, d := range pr.ep.done {
			if d.err != nil {
				return false, fmt.Errorf("uetkit: operation %d failed: %w, provider %#x", d.n, d.err, d.err.Prov)
			}
		}
		return len(pr.ep.done) >= n, nil
	})
	if err != nil {
		return fmt.Errorf("%w; uetkit: %d ended, peer: %d; uetkit counted: %s; %w", err, len(pr.ep.done), len(pr.of("sent")), pr.ep.counters(), pr.notOdd())
	}
	seen, ended := map[int]bool{}, 0
	if m.dir == in {
		for _, e := range pr.of("sent") {
			seen[e.Ctx] = true
			ended++
		}
	} else {
		for _, d := range pr.ep.done {
			seen[d.n] = true
			ended++
		}
	}
	if ended != n || len(seen) != n {
		return fmt.Errorf("%d operations, %d ended, %d of them different", n, ended, len(seen))
	}
	return nil
}

// ask is what the commands of the peer for one-sided operations have in common.
func (m memory) ask(pr *pair, a args) args {
	a["to"], a["key"], a["ordered"], a["form"], a["seed"] = pr.self(), m.key, m.ordered, m.form, m.seed
	return a
}

// warm has the peer send a packet as one who knows that the PDC is established: before that, uetkit sends
// no return data.
func (m memory) warm(pr *pair) error {
	return errors.Join(pr.control(0, m.ordered), pr.control(0, m.ordered))
}

func (m memory) writes(pr *pair) error {
	places, size := m.places()
	want := bytes.Repeat([]byte{poison}, size)
	var at, sizes []int
	data := 0 // how many with data
	for n, p := range places {
		copy(want[p.at:], content(m.seed, n, p.size))
		at, sizes = append(at, p.at), append(sizes, p.size)
	}
	if m.dir == in {
		r, err := pr.register(size, m.key, fi.RemoteWrite, nil)
		if err != nil {
			return err
		}
		a := m.ask(pr, args{"at": at, "sizes": sizes, "dc": m.delivery})
		if m.form == "std" {
			a["data"], data = 500, len(places)
		}
		if err := pr.do("write", a); err != nil {
			return err
		}
		if err := m.all(pr, len(places)); err != nil {
			return err
		}
		err = pr.until("remote CQ data", limit, func() (bool, error) { return len(pr.ep.remote) >= data, nil })
		var came []uint64
		for _, c := range pr.ep.remote {
			came = append(came, c.Data-500)
			if n := c.Data - 500; n < uint64(len(places)) && c.Len != places[n].size {
				err = errors.Join(err, fmt.Errorf("write %d of %d bytes has length %d at its target", n, places[n].size, c.Len))
			}
		}
		return errors.Join(err, r.check(want), dataOf(came, data))
	}
	if err := pr.do("region", args{"key": m.key, "size": size, "rights": []string{"write"}}); err != nil {
		return err
	}
	if _, err := pr.stats(); err != nil { // it is there
		return err
	}
	for n, p := range places {
		msg := &uet.RMAMsg{
			Iov: [][]byte{content(m.seed, n, p.size)}, Addr: pr.ep.to,
			RMAIov: []uet.RMAIov{{Addr: uint64(p.at), Len: uint64(p.size), Key: m.key}}, Context: &op{n: n},
		}
		flags := fi.Completion
		if m.delivery {
			flags |= fi.DeliveryComplete
		}
		if n%3 != 1 { // those with data are the first ones by number
			msg.Data = uint64(data)
			flags |= fi.RemoteCQData
			data++
		}
		if err := pr.ep.again(func() error { return pr.ep.WriteMsg(msg, flags) }); err != nil {
			return err
		}
	}
	if err := m.all(pr, len(places)); err != nil {
		return err
	}
	err := pr.look(m.key, want) // and what was written before has been said
	var came []uint64
	for _, e := range pr.of("written") {
		came = append(came, *e.Data)
	}
	return errors.Join(err, dataOf(came, data))
}

// dataOf wants remote CQ data 0 to n-1, each once.
func dataOf(came []uint64, n int) error {
	slices.Sort(came)
	for i, d := range came {
		if d != uint64(i) {
			return fmt.Errorf("remote CQ data %v, not 0 to %d", came, n-1)
		}
	}
	if len(came) != n {
		return fmt.Errorf("remote CQ data came %d times, not %d", len(came), n)
	}
	return nil
}

func (m memory) reads(pr *pair) error {
	places, size := m.places()
	memory := content(m.seed, 0, size)
	if m.dir == in {
		return m.peerReads(pr, places, memory)
	}
	if err := pr.do("region", args{"key": m.key, "size": size, "seed": m.seed, "ctx": 0, "rights": []string{"read"}}); err != nil {
		return err
	}
	if _, err := pr.stats(); err != nil {
		return err
	}
	alls := make([][]byte, len(places))
	for n, p := range places {
		all, buf := guarded(p.size)
		alls[n] = all
		if err := pr.ep.again(func() error { return pr.ep.Read(buf, pr.ep.to, uint64(p.at), m.key, &op{n: n}) }); err != nil {
			return err
		}
	}
	if err := m.all(pr, len(places)); err != nil {
		return err
	}
	for n, p := range places {
		if err := errors.Join(equal(alls[n][guard:guard+p.size], memory[p.at:p.at+p.size]), outside(alls[n])); err != nil {
			return fmt.Errorf("read %d: %w", n, err)
		}
	}
	return pr.look(m.key, memory)
}

func (m memory) peerReads(pr *pair, places []place, memory []byte) error {
	r, err := pr.register(len(memory), m.key, fi.RemoteRead, memory)
	if err != nil {
		return err
	}
	var at, sizes []int
	short, long, empty := 0, 0, 0 // S-RMA-12: data in the ACK is of whole reads of few bytes
	for _, p := range places {
		at, sizes = append(at, p.at), append(sizes, p.size)
		switch {
		case p.size > 16:
			long += (p.size + rmaMTU - 1) / rmaMTU
		case p.size > 0:
			short++
		default:
			empty++
		}
	}
	if err := m.warm(pr); err != nil {
		return err
	}
	if err := pr.do("read", m.ask(pr, args{"at": at, "sizes": sizes})); err != nil {
		return err
	}
	if err := m.all(pr, len(places)); err != nil {
		return err
	}
	for _, e := range pr.of("sent") {
		p := places[e.Ctx]
		if e.Len != p.size || !e.Guard || e.SHA256 != digest(memory[p.at:p.at+p.size]) {
			return fmt.Errorf("read %d of %d bytes: %d came, guard %v, other bytes: %v", e.Ctx, p.size, e.Len, e.Guard,
				e.SHA256 != digest(memory[p.at:p.at+p.size]))
		}
	}
	e, err := pr.stats()
	if err != nil {
		return err
	}
	inACK, returned := e.count("data in ack"), e.count("data returned")
	if inACK < short || inACK > short+empty || returned != long { // a read of nothing may have a response without data
		return fmt.Errorf("data in %d ACKs and in %d packets of the return direction, of %d short reads and %d packets of others", inACK, returned, short, long)
	}
	return r.check(memory)
}

// count is how many atomics a play has.
func (m memory) count() int {
	if m.long {
		return 200
	}
	return 12
}

// An amo is an atomic and the old value that it got.
type amo struct{ operand, compare, old uint64 }

// atomics does all of them, at an offset each, and returns the old values and the memory in the end.
func (m memory) atomics(pr *pair, at []int, amos []amo) ([]uint64, error) {
	size := slices.Max(at) + 8
	words := make([]uint64, size/8)
	if m.dir == in {
		r, err := pr.register(size, m.key, fi.RemoteRead|fi.RemoteWrite, make([]byte, size))
		if err != nil {
			return nil, err
		}
		var operands, compares []uint64
		for _, a := range amos {
			operands, compares = append(operands, a.operand), append(compares, a.compare)
		}
		a := m.ask(pr, args{"at": at, "operand": operands, "compare": compares, "operation": wireSum})
		if m.op == opCAS {
			a["operation"] = wireCSwap
		}
		if err := m.warm(pr); err != nil {
			return nil, err
		}
		if err := pr.do("atomic", a); err != nil {
			return nil, err
		}
		if err := m.all(pr, len(amos)); err != nil {
			return nil, err
		}
		for _, e := range pr.of("sent") {
			if !e.Guard {
				return nil, fmt.Errorf("atomic %d: more came than the old value", e.Ctx)
			}
			amos[e.Ctx].old = e.Value
		}
		if err := errors.Join(r.close(), outside(r.all)); err != nil {
			return nil, err
		}
		for i := range words {
			words[i] = binary.NativeEndian.Uint64(r.buf[8*i:])
		}
		return words, nil
	}
	if err := pr.do("region", args{"key": m.key, "size": size, "zero": true}); err != nil {
		return nil, err
	}
	if _, err := pr.stats(); err != nil {
		return nil, err
	}
	alls := make([][]byte, len(amos))
	for n, a := range amos {
		all, old := guarded(8)
		alls[n] = all
		operand, compare := binary.NativeEndian.AppendUint64(nil, a.operand), binary.NativeEndian.AppendUint64(nil, a.compare)
		err := pr.ep.again(func() error {
			if m.op == opCAS {
				return pr.ep.CompareAtomic(operand, compare, old, pr.ep.to, uint64(at[n]), m.key, fi.Uint64, fi.CSwap, &op{n: n})
			}
			return pr.ep.FetchAtomic(operand, old, pr.ep.to, uint64(at[n]), m.key, fi.Uint64, fi.Sum, &op{n: n})
		})
		if err != nil {
			return nil, err
		}
	}
	if err := m.all(pr, len(amos)); err != nil {
		return nil, err
	}
	for n := range amos {
		if err := outside(alls[n]); err != nil {
			return nil, fmt.Errorf("atomic %d: %w", n, err)
		}
		amos[n].old = binary.NativeEndian.Uint64(alls[n][guard:])
	}
	for i := range words {
		if err := pr.do("look", args{"key": m.key, "at": 8 * i, "len": 8}); err != nil {
			return nil, err
		}
		e, err := pr.want("a look", func(e event) bool { return e.Ev == "region" })
		if err != nil {
			return nil, err
		}
		b, err := hex.DecodeString(e.Hex)
		if err != nil || len(b) != 8 || !e.Guard {
			return nil, fmt.Errorf("the peer's region: %q, guard %v: %w", e.Hex, e.Guard, err)
		}
		words[i] = binary.BigEndian.Uint64(b)
	}
	return words, nil
}

func (m memory) adds(pr *pair) error {
	n := m.count()
	at, amos := make([]int, n), make([]amo, n)
	for i := range n {
		at[i], amos[i].operand = 8, 1+uint64(i)<<uint(i%40)
	}
	words, err := m.atomics(pr, at, amos)
	if err != nil {
		return err
	}
	if words[0] != 0 {
		return fmt.Errorf("the number in front is %d", words[0])
	}
	return sums(amos, words[1], m.ordered)
}

// sums wants that additions to 0 took place one after the other, each once; in their order if ordered.
func sums(amos []amo, end uint64, ordered bool) error {
	done := slices.Clone(amos)
	if !ordered {
		slices.SortFunc(done, func(a, b amo) int { // no operand is 0: each sum is above those before
			if a.old < b.old {
				return -1
			}
			return 1
		})
	}
	sum := uint64(0)
	for i, a := range done {
		if a.old != sum {
			return fmt.Errorf("addition %d of %d found %#x, not %#x", i, len(done), a.old, sum)
		}
		sum += a.operand
	}
	if sum != end {
		return fmt.Errorf("the sum is %#x, not %#x", end, sum)
	}
	return nil
}

func (m memory) swaps(pr *pair) error {
	n := m.count()
	at, amos := make([]int, n), make([]amo, n)
	for i := range n {
		amos[i] = amo{operand: uint64(i + 1), compare: uint64(i)}
		if !m.ordered { // each has a number of its own
			at[i], amos[i] = 8*i, amo{operand: 0xFEED_0000_0000_0000 + uint64(i)}
		}
		if i%3 == 2 { // no such value is there
			amos[i].compare = 0xBAD
			if m.ordered && i+1 < n { // the next one swaps what stayed
				amos[i].operand = 0xBAD
			}
		}
		if m.ordered && i%3 == 0 && i > 0 {
			amos[i].compare = uint64(i - 1)
		}
	}
	words, err := m.atomics(pr, at, amos)
	if err != nil {
		return err
	}
	want := make([]uint64, len(words))
	for i, a := range amos {
		v := &want[at[i]/8]
		if a.old != *v {
			return fmt.Errorf("swap %d found %#x, not %#x", i, a.old, *v)
		}
		if a.compare == *v {
			*v = a.operand
		}
	}
	if !slices.Equal(words, want) {
		return fmt.Errorf("%#x in the end, not %#x", words, want)
	}
	return nil
}

// A refusal is an operation that the target must refuse.
type refusal struct {
	what   string
	op     string
	region int // 0 unknown, 1 to be read, 2 to be written, 3 both
	at     uint64
	size   int
	rc     int
	errno  fi.Errno
	// Only of the peer's requests: what the atomic header says instead.
	operation, datatype int
}

const refusedRegion = 3000

var refusals = []refusal{
	{"a write of an unknown key", opWrite, 0, 0, 100, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"a long write of an unknown key", opWrite, 0, 0, 2500, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"an empty write of an unknown key", opWrite, 0, 0, 0, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"a read of an unknown key", opRead, 0, 0, 100, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"a long read of an unknown key", opRead, 0, 0, 2500, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"an addition to an unknown key", opAdd, 0, 0, 8, rcBadKey, fi.EKEYREJECTED, 0, 0},
	{"a write out of bounds", opWrite, 2, refusedRegion - 99, 100, rcBadAddr, fi.EFAULT, 0, 0},
	{"a long write out of bounds", opWrite, 2, refusedRegion - 2499, 2500, rcBadAddr, fi.EFAULT, 0, 0},
	{"a read out of bounds", opRead, 1, refusedRegion - 15, 16, rcBadAddr, fi.EFAULT, 0, 0},
	{"a long read out of bounds", opRead, 1, refusedRegion - 2499, 2500, rcBadAddr, fi.EFAULT, 0, 0},
	{"a read far out of bounds", opRead, 1, 1 << 63, 100, rcBadAddr, fi.EFAULT, 0, 0},
	{"a write whose end is above 64 bits", opWrite, 2, 1<<64 - 50, 100, rcBadAddr, fi.EFAULT, 0, 0},
	{"an addition out of bounds", opAdd, 3, refusedRegion, 8, rcBadAddr, fi.EFAULT, 0, 0},
	{"a swap out of bounds", opCAS, 3, refusedRegion, 8, rcBadAddr, fi.EFAULT, 0, 0},
	{"a write without the right", opWrite, 1, 0, 100, rcPerm, fi.EACCES, 0, 0},
	{"a long write without the right", opWrite, 1, 0, 2500, rcPerm, fi.EACCES, 0, 0},
	{"a read without the right", opRead, 2, 0, 16, rcPerm, fi.EACCES, 0, 0},
	{"a long read without the right", opRead, 2, 0, 2500, rcPerm, fi.EACCES, 0, 0},
	{"an addition without the right to write", opAdd, 1, 0, 8, rcPerm, fi.EACCES, 0, 0},
	{"a fetching addition without the right to read", opAdd, 2, 0, 8, rcPerm, fi.EACCES, 0, 0},
	{"a swap without the right to write", opCAS, 1, 0, 8, rcPerm, fi.EACCES, 0, 0},
	{"an addition to an address that is not aligned", opAdd, 3, 12, 8, rcAMOUnaligned, fi.EINVAL, 0, 0},
}

// peerRefusals are requests that the peer can build and uetkit not.
var peerRefusals = []refusal{
	{what: "an unknown operation", op: opAdd, region: 3, size: 8, rc: rcAMOOp, operation: 0x20},
	{what: "the invalid operation", op: opAdd, region: 3, size: 8, rc: rcAMOOp, operation: 0x14},
	{what: "an unknown datatype", op: opAdd, region: 3, size: 8, rc: rcAMOType, datatype: 0x40},
	{what: "a datatype of 16 bytes with an operand of 8", op: opAdd, region: 3, size: 8, rc: rcAMOSize, datatype: 0x09},
}

// memoryRefused plays all refusals on one PDC, good operations between them, and wants each return code
// at the initiator and all memory as it was.
func memoryRefused(dir string, ordered bool, loss float64) func(*peer, int, string) error {
	m := memory{dir: dir, ordered: ordered, loss: loss, key: 100, form: "std", seed: 9, ackType: 8, ackData: 16, zeroRead: "default"}
	return func(p *peer, worker int, id string) error {
		return on(m.setup(worker), func(pr *pair) error {
			fill := content(m.seed, 0, refusedRegion)
			regions := make([]*region, 4)
			rights := [][]string{nil, {"read"}, {"write"}, {"read", "write"}}
			for i := 1; i < 4; i++ {
				key := m.key + uint64(i)
				if dir == out {
					a := args{"key": key, "size": refusedRegion, "seed": m.seed, "ctx": 0, "rights": rights[i]}
					if err := pr.do("region", a); err != nil {
						return err
					}
					continue
				}
				var err error
				if regions[i], err = pr.register(refusedRegion, key, []fi.Flags{0, fi.RemoteRead, fi.RemoteWrite, fi.RemoteRead | fi.RemoteWrite}[i], fill); err != nil {
					return err
				}
			}
			if _, err := pr.stats(); err != nil {
				return err
			}
			var errs []error
			list := refusals
			if dir == in {
				list = slices.Concat(refusals, peerRefusals)
			}
			for n, r := range list {
				if err := m.refuse(pr, 2*n, r); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", r.what, err))
				}
				good := refusal{op: opRead, region: 1, at: uint64(n), size: 100}
				if err := m.refuse(pr, 2*n+1, good); err != nil {
					errs = append(errs, fmt.Errorf("a read after %s: %w", r.what, err))
				}
			}
			errs = append(errs, pr.notOdd()) // and everything that happened was said
			if n := len(pr.of("opened")) + len(pr.of("opened by peer")); n != 1 {
				errs = append(errs, fmt.Errorf("%d PDCs were opened, not one", n))
			}
			for i := 1; i < 4; i++ {
				err := error(nil)
				if dir == out {
					err = pr.look(m.key+uint64(i), fill)
				} else {
					err = regions[i].check(fill)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})(p, worker, id)
	}
}

// refuse does one operation and wants its return code, none if it is 0.
func (m memory) refuse(pr *pair, n int, r refusal) error {
	key := m.key + uint64(r.region)
	if m.dir == in {
		a := args{"to": pr.self(), "key": key, "ordered": m.ordered, "ctx": n, "at": []uint64{r.at}, "seed": m.seed}
		what := r.op
		switch r.op {
		case opWrite, opRead:
			a["sizes"] = []int{r.size}
		default:
			what, a["operation"], a["operand"] = "atomic", wireSum, []uint64{1}
			if r.op == opCAS {
				a["operation"], a["compare"] = wireCSwap, []uint64{0}
			}
			if r.operation != 0 {
				a["operation"] = r.operation
			}
			if r.datatype != 0 {
				a["datatype"] = r.datatype
			}
		}
		if err := pr.do(what, a); err != nil {
			return err
		}
		e, err := pr.want("its end", func(e event) bool { return e.Ev == "sent" && e.Ctx == n })
		if err != nil {
			return err
		}
		if (r.rc == 0) != e.OK || r.rc != 0 && (e.RC == nil || *e.RC != r.rc) {
			return fmt.Errorf("RC %s, NACK %s, %s, not %#x", code(e.RC), code(e.Nack), e.Why, r.rc)
		}
		return nil
	}
	all, buf := guarded(r.size)
	word, ctx := make([]byte, 8), &op{n: n}
	err := pr.ep.again(func() error {
		switch r.op {
		case opWrite:
			return pr.ep.Write(buf, pr.ep.to, r.at, key, ctx)
		case opRead:
			return pr.ep.Read(buf, pr.ep.to, r.at, key, ctx)
		case opAdd:
			return pr.ep.FetchAtomic(word, buf, pr.ep.to, r.at, key, fi.Uint64, fi.Sum, ctx)
		default:
			return pr.ep.CompareAtomic(word, word, buf, pr.ep.to, r.at, key, fi.Uint64, fi.CSwap, ctx)
		}
	})
	if err != nil {
		return err
	}
	if err := pr.until("its end", 10*time.Second, func() (bool, error) { return len(pr.ep.done) > 0, nil }); err != nil {
		return err
	}
	d := pr.ep.done[0]
	pr.ep.done = pr.ep.done[1:]
	switch {
	case d.n != n:
		return fmt.Errorf("operation %d ended, not %d", d.n, n)
	case r.rc == 0 && d.err != nil:
		return d.err
	case r.rc == 0:
		want := content(m.seed, 0, refusedRegion)[r.at:]
		return errors.Join(equal(buf, want[:r.size]), outside(all))
	case d.err == nil:
		return fmt.Errorf("it succeeded")
	case d.err.Prov != uint32(r.rc) || d.err.Err != r.errno:
		return fmt.Errorf("%w, provider %#x, not %#x", d.err, d.err.Prov, r.rc)
	}
	return outside(all)
}

func rudRMA(i *uet.Info) { i.Config.PayloadMTU = rmaMTU }

func rod(i *uet.Info) {
	i.Config.PayloadMTU, i.Tx.MsgOrder = rmaMTU, rodOrder
}

var memoryCases = []named{
	{name: "memory: refused, uetkit asks", run: each(memoryRefused(out, false, 0), memoryRefused(out, true, 0), memoryRefused(out, false, 0.05))},
	{name: "memory: answers with old values are lost", run: each(
		played(memory{op: opAdd, dir: out, long: true, seed: 41}, args{"lose": args{"2:1": 30}}),
		played(memory{op: opAdd, dir: out, long: true, ordered: true, seed: 42}, args{"lose": args{"2:1": 30}}),
		played(memory{op: opCAS, dir: out, ordered: true, seed: 43, loss: 0.2}, args{"lose": args{"2:1": 5}}))},
	{name: "memory: peer tracks 8 PSNs, and CLEARs are lost", run: each(
		played(memory{op: opAdd, dir: out, seed: 44, long: true}, args{"window": 8, "deaf": 6}),
		played(memory{op: opRead, dir: out, seed: 45}, args{"window": 8, "deaf": 6, "ack_data": 2000}),
		played(memory{op: opRead, dir: in, seed: 46, long: true}, args{"window": 8}))},
	{name: "memory: both ask at once", run: each(crossed(false, opRead, 0), crossed(true, opRead, 0.05), crossed(false, opWrite, 0.05), crossed(true, opWrite, 0))},
	{name: "memory: an ordered message finds the write before it done", run: each(
		on(setup{ordered: true, caps: memoryCaps, info: rod, peer: args{"mtu": rmaMTU}}, after),
		on(setup{ordered: true, caps: memoryCaps, info: rod, peer: args{"mtu": rmaMTU, "faults": args{"loss": 0.1, "reorder": 0.2, "seed": 4}}}, after))},
	{name: "memory: peer asks for the end while data are under way", run: each(
		on(setup{caps: memoryCaps, info: rudRMA, peer: args{"mtu": rmaMTU}}, asked),
		on(setup{ordered: true, caps: memoryCaps, info: rod, peer: args{"mtu": rmaMTU}}, asked))},
	{name: "memory: a read begins a PDC", run: each(
		on(setup{caps: memoryCaps, peer: args{"give_up": 4}}, first(false)), on(setup{caps: memoryCaps, peer: args{"give_up": 4}}, first(true)),
		on(setup{caps: memoryCaps, sealed: true, peer: args{"give_up": 4}}, first(false)))},
	{name: "memory: request_length 32 of a compare-and-swap is echoed", run: on(setup{caps: memoryCaps, peer: args{"cswap_length": 32, "watch": []string{"control acknowledged"}}}, memory{op: opCAS, dir: in, form: "std", key: 4, seed: 4}.swaps)},
	{name: "memory: atomics with the medium header are answered in their form", run: on(setup{caps: memoryCaps, peer: args{"give_up": 4, "watch": []string{"control acknowledged"}}}, memory{op: opAdd, dir: in, form: "medium", key: 5, seed: 5}.adds)},
	{name: "memory: reads with the medium header are answered in their form", run: each(
		on(setup{caps: memoryCaps, info: rudRMA, peer: args{"give_up": 4, "mtu": rmaMTU, "watch": []string{"control acknowledged"}}}, memory{op: opRead, dir: in, form: "medium", key: 6, seed: 6}.reads),
		on(setup{caps: memoryCaps, info: rudRMA, peer: args{"give_up": 4, "mtu": rmaMTU, "ack_data": 0, "watch": []string{"control acknowledged"}}}, memory{op: opRead, dir: in, form: "medium", key: 6, seed: 7, loss: 0.05}.reads))},
	{name: "memory: refused, peer asks", run: each(memoryRefused(in, false, 0), memoryRefused(in, true, 0), memoryRefused(in, false, 0.05))},
}

// played is a memory play whose peer has other settings.
func played(m memory, a args) func(*peer, int, string) error {
	m.form, m.key, m.ackType, m.zeroRead, m.startPSN = "std", 6, 8, "default", 1<<30
	f := map[string]func(*pair) error{opWrite: m.writes, opRead: m.reads, opAdd: m.adds, opCAS: m.swaps}[m.op]
	return func(p *peer, worker int, id string) error {
		s := m.setup(worker)
		for k, v := range a {
			s.peer[k] = v
		}
		return on(s, func(pr *pair) error { return errors.Join(f(pr), m.end(pr)) })(p, worker, id)
	}
}

// crossed has both ends read and write at once, of regions of one key.
func crossed(ordered bool, op string, loss float64) func(*peer, int, string) error {
	ask := memory{op: op, dir: in, ordered: ordered, long: true, loss: loss, form: "std", key: 8, seed: 31, ackType: 8, zeroRead: "default"}
	serve := ask
	serve.dir, serve.seed = out, 32
	return func(p *peer, worker int, id string) error {
		return on(ask.setup(worker), func(pr *pair) error {
			places, size := ask.places()
			memory := content(ask.seed, 0, size)
			r, err := pr.register(size, ask.key, fi.RemoteRead|fi.RemoteWrite, memory)
			if err != nil {
				return err
			}
			if err := ask.warm(pr); err != nil {
				return err
			}
			a := ask.ask(pr, args{})
			var at, sizes []int
			for n, p := range places {
				at, sizes = append(at, p.at), append(sizes, p.size)
				if op == opWrite {
					copy(memory[p.at:], content(ask.seed, n, p.size))
				}
			}
			a["at"], a["sizes"] = at, sizes
			if err := pr.do(op, a); err != nil {
				return err
			}
			f := serve.reads
			if op == opWrite {
				f = serve.writes
			}
			if err := errors.Join(f(pr), ask.all(pr, len(places))); err != nil {
				return err
			}
			for _, e := range pr.of("sent") {
				if p := places[e.Ctx]; op == opRead && e.SHA256 != digest(memory[p.at:p.at+p.size]) {
					return fmt.Errorf("read %d of %d bytes has other bytes", e.Ctx, p.size)
				}
			}
			return errors.Join(r.check(memory), pr.notOdd())
		})(p, worker, id)
	}
}

// after wants that an ordered message finds the write before it done, in both directions.
func after(pr *pair) error {
	const size, rounds = 30_000, 10
	m := memory{dir: in, ordered: true, key: 9, form: "std", seed: 12}
	r, err := pr.register(size, m.key, fi.RemoteWrite, nil)
	if err != nil {
		return err
	}
	if err := pr.do("region", args{"key": m.key, "size": size}); err != nil {
		return err
	}
	for n := range rounds {
		want := content(m.seed, n, size)
		err := errors.Join(
			pr.ep.post(n, 100, false, 0, 0),
			pr.do("write", m.ask(pr, args{"at": []int{0}, "sizes": []int{size}, "ctx": n})),
			pr.do("send", args{"to": pr.self(), "sizes": []int{9}, "seed": 1, "ordered": true, "ctx": 1000 + n}))
		if err != nil {
			return err
		}
		err = pr.until("the peer's message", limit, func() (bool, error) { return len(pr.ep.ended(true)) > n, nil })
		if err := errors.Join(err, equal(r.buf, want), outside(r.all)); err != nil {
			return fmt.Errorf("the peer's write %d: %w", n, err)
		}
		if err := pr.do("post", args{"sizes": []int{100}, "ctx": n}); err != nil {
			return err
		}
		err = pr.ep.again(func() error { return pr.ep.Write(want, pr.ep.to, 0, m.key, &op{n: n}) })
		if err := errors.Join(err, pr.ep.send(message{n: n, content: content(2, n, 9)}, false, false)); err != nil {
			return err
		}
		if _, err := pr.want("uetkit's message", func(e event) bool { return e.Ev == "received" && e.Ctx == n }); err != nil {
			return err
		}
		if err := pr.look(m.key, want); err != nil {
			return fmt.Errorf("uetkit's write %d: %w", n, err)
		}
		if err := pr.until("the end of both", limit, func() (bool, error) { return len(pr.ep.ended(false)) == 2*(n+1), nil }); err != nil {
			return err
		}
	}
	return nil
}

// asked has the peer ask for the end of the PDC while its data are under way: all of them come.
func asked(pr *pair) error {
	const size, reads = 200_000, 4
	fill := content(3, 0, size)
	if err := pr.do("region", args{"key": 11, "size": size, "seed": 3, "ctx": 0}); err != nil {
		return err
	}
	if _, err := pr.stats(); err != nil {
		return err
	}
	for round := range 3 {
		pr.ep.done = nil
		alls := make([][]byte, reads)
		for n := range reads {
			all, buf := guarded(size)
			alls[n] = all
			if err := pr.ep.again(func() error { return pr.ep.Read(buf, pr.ep.to, 0, 11, &op{n: n}) }); err != nil {
				return err
			}
		}
		_, err := pr.want("data under way", func(e event) bool { return e.Ev == "opened by peer" })
		if err := errors.Join(err, pr.do("close", args{"targets": true}), memory{dir: out}.all(pr, reads)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for n := range reads {
			if err := errors.Join(equal(alls[n][guard:guard+size], fill), outside(alls[n])); err != nil {
				return fmt.Errorf("round %d, read %d: %w", round, n, err)
			}
		}
		if err := errors.Join(pr.do("close", args{"targets": true}), pr.closed(false)); err != nil { // also a PDC that was opened later
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return pr.notOdd()
}

// first has the peer begin a PDC with one read, whose data takes the return direction.
func first(ordered bool) func(*pair) error {
	return func(pr *pair) error {
		m := memory{dir: in, ordered: ordered, key: 3, form: "std", seed: 4}
		fill := content(m.seed, 0, 100)
		r, err := pr.register(len(fill), m.key, fi.RemoteRead, fill)
		if err != nil {
			return err
		}
		if err := pr.do("read", m.ask(pr, args{"at": []int{0}, "sizes": []int{100}})); err != nil {
			return err
		}
		return errors.Join(m.all(pr, 1), r.check(fill))
	}
}
