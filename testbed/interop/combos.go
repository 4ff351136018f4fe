package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// maxWorkers is how many pairs of processes may run at once.
const maxWorkers = 4

// Which end an address is of.
const (
	ours = iota
	theirs
)

// host is an address of an end.
func host(worker int, v6 bool, end int) string {
	if v6 {
		return fmt.Sprintf("fd77::%d:%d", worker+1, end+1)
	}
	return fmt.Sprintf("10.77.%d.%d", worker+1, end+1)
}

// Directions of a combination.
const (
	out  = "uetkit sends"
	in   = "peer sends"
	both = "both send"
)

// A combo is one combination: what every pair of implementations must agree on, and by the seed one
// way of many in what each side may choose.
type combo struct {
	dir      string
	ordered  bool // ROD
	tagged   bool
	late     bool // receives are posted after the messages were sent
	form     string
	standard bool
	loss     float64
	sealed   bool

	// announced says that messages are announced and read: of those of the peer so many bytes go along, as
	// eager has them in turn.
	announced bool
	eager     []int

	seed uint64
	// Chosen by the seed.
	v6         bool
	ackType    int
	unexpected string
	goBackN    bool
	keepSyn    bool
	ccRequests bool
	closeAck   string
	startBy    string
	paths, evs int
	mtu        int // uetkit's
	peerMTU    int
	delivery   bool
	data       bool // messages carry remote CQ data
	oneTag     bool // all tagged messages have the same tag
	closer     string
	sizes      []int
}

// combos are all combinations, each with choices by the seed.
func combos(seed uint64) []combo {
	var all []combo
	for _, dir := range []string{out, in, both} {
		for _, form := range []string{"std", "medium"} {
			if dir == out && form == "medium" {
				continue // the peer sends nothing
			}
			for i := range 96 {
				bit := func(n int) bool { return i>>n&1 == 1 }
				c := combo{
					dir: dir, form: form, ordered: bit(0), tagged: bit(1), late: bit(2), standard: bit(3), sealed: bit(4),
					loss: []float64{0, 0.05, 0.2}[i>>5],
				}
				c.seed = seed<<16 + uint64(len(all))
				c.choose()
				all = append(all, c)
			}
		}
	}
	return all
}

// rendezvous are the combinations in which messages are announced, each with choices by the seed.
func rendezvous(seed uint64) []combo {
	var all []combo
	for _, dir := range []string{out, in, both} {
		for i := range 12 {
			bit := func(n int) bool { return i>>n&1 == 1 }
			c := combo{dir: dir, form: "std", ordered: bit(0), late: bit(1), announced: true, loss: []float64{0, 0.05, 0.2}[i>>2]}
			c.seed = seed<<16 + 1000 + uint64(len(all))
			c.choose()
			r := rand.New(rand.NewPCG(c.seed, 2))
			c.tagged, c.standard, c.sealed = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(3) == 0
			c.oneTag = c.oneTag && c.tagged
			c.mtu = c.peerMTU // the target of a read must know it
			if !c.standard {
				c.evs = 0 // memory is lent to one address, and with Symmetric a port that nobody has named is another
			}
			// Nothing goes along, a little, a packet, several, all.
			c.eager = []int{0, 0, 1 + r.IntN(200), c.peerMTU, 2*c.peerMTU + r.IntN(500), 1 << 30}
			all = append(all, c)
		}
	}
	return all
}

// choose makes the choices of a combination by its seed.
func (c *combo) choose() {
	r := rand.New(rand.NewPCG(c.seed, 0))
	coin := func(one int) bool { return r.IntN(one) == 0 }
	c.v6 = coin(3)
	c.ackType = []int{8, 8, 9, 7}[r.IntN(4)]
	c.unexpected = []string{"overflow", "late", "nomatch", "disable"}[r.IntN(4)]
	c.goBackN, c.keepSyn, c.ccRequests = coin(3), coin(3), coin(4)
	c.closeAck = []string{"at", "below"}[r.IntN(2)]
	c.startBy = []string{"given", "expected"}[r.IntN(2)]
	c.paths, c.evs = []int{1, 4}[r.IntN(2)], []int{0, 3}[r.IntN(2)]
	mtus := []int{1024, 2048, 4096, 8192}
	c.mtu, c.peerMTU = mtus[r.IntN(4)], mtus[r.IntN(4)]
	c.delivery, c.data = coin(3), !coin(4)
	c.oneTag = c.tagged && c.ordered && coin(2)
	c.closer = []string{"each", "peer asks", "abrupt"}[r.IntN(3)]
	// Sizes at the edges of packets, some between, and a long one where little is lost.
	edge := c.mtu
	if c.dir == in {
		edge = c.peerMTU
	}
	c.sizes = []int{0, 1, edge - 1, edge, edge + 1, 3*edge - 1}
	for range 10 {
		c.sizes = append(c.sizes, r.IntN(4*edge))
	}
	for range 8 {
		c.sizes = append(c.sizes, 1+r.IntN(200))
	}
	switch {
	case c.loss == 0 && coin(4):
		c.sizes = append(c.sizes, 1<<20+r.IntN(2<<20))
	case c.loss == 0:
		c.sizes = append(c.sizes, 100_000+r.IntN(300_000))
	case c.loss < 0.1:
		c.sizes = append(c.sizes, r.IntN(100_000))
	default:
		c.sizes = append(c.sizes, r.IntN(20_000))
	}
	r.Shuffle(len(c.sizes), func(i, j int) { c.sizes[i], c.sizes[j] = c.sizes[j], c.sizes[i] })
}

// pick returns how many are asked for: all without losses first, then a share of the others by the seed.
func pick(all []combo, n int, seed uint64) []combo {
	r := rand.New(rand.NewPCG(seed, 1))
	var clean, lossy []combo
	for _, c := range all {
		if c.loss == 0 {
			clean = append(clean, c)
		} else {
			lossy = append(lossy, c)
		}
	}
	r.Shuffle(len(clean), func(i, j int) { clean[i], clean[j] = clean[j], clean[i] })
	r.Shuffle(len(lossy), func(i, j int) { lossy[i], lossy[j] = lossy[j], lossy[i] })
	share := min(len(clean), n*5/8)
	return append(clean[:share:share], lossy[:min(len(lossy), n-share)]...)
}

// String names what must be agreed on.
func (c combo) String() string {
	word := func(yes bool, a, b string) string {
		if yes {
			return a
		}
		return b
	}
	if c.announced {
		return fmt.Sprintf("%s, announced, %s, %s, %g %% lost", c.dir, word(c.ordered, "ROD", "RUD"), word(c.late, "unexpected", "posted"), c.loss*100)
	}
	return fmt.Sprintf("%s, %s, %s, %s, %s, %s, %g %% lost, %s", c.dir, word(c.ordered, "ROD", "RUD"),
		word(c.tagged, "tagged", "send"), word(c.late, "unexpected", "posted"), word(c.dir == out, "-", c.form),
		word(c.standard, "Standard", "Symmetric"), c.loss*100, word(c.sealed, "sealed", "clear"))
}

// choices names what the seed chose.
func (c combo) choices() string {
	s := []string{fmt.Sprintf("MTU %d/%d", c.mtu, c.peerMTU)}
	add := func(yes bool, f string, a ...any) {
		if yes {
			s = append(s, fmt.Sprintf(f, a...))
		}
	}
	add(c.v6, "IPv6")
	add(c.announced && c.tagged, "tagged")
	add(c.announced && c.standard, "Standard")
	add(c.announced && c.sealed, "sealed")
	add(c.paths > 1, "%d paths", c.paths)
	add(c.evs > 0, "%d EVs", c.evs)
	add(c.dir != in, "ACK type %d", c.ackType)
	add(c.dir != in && c.late, "answers %s", c.unexpected)
	add(c.dir != in && c.ordered && c.goBackN, "go back N")
	add(c.dir != out && c.keepSyn, "keeps SYN")
	add(c.dir != out && c.ccRequests, "CC requests")
	add(c.sealed && c.dir != in, "start %s", c.startBy)
	add(c.delivery, "delivery complete")
	add(!c.data, "no data")
	add(c.oneTag, "one tag")
	add(true, "%s", map[string]string{"each": "each closes", "peer asks": "peer asks for CLOSE", "abrupt": "no close"}[c.closer])
	return strings.Join(s, ", ")
}
