package simtest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// crowdClass is the class of the messages of a crowd.
const crowdClass = 99

// Crowd gives one host of a scenario little room for unexpected messages, and has another send it more short
// messages at about one time than a window of its PDC holds. Few receives are posted for them before Settle drains.
func (sc *Scenario) Crowd() {
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x63726f77))
	n := len(sc.Spec.Hosts)
	to := rng.IntN(n)
	from := (to + 1 + rng.IntN(n-1)) % n
	c := &sc.Spec.Hosts[to].Config
	c.MPRange, c.UnexpectedMsgs, c.UnexpectedBytes, c.UnexpectedShare = 128, 1+rng.IntN(8), int64(64<<10+rng.IntN(64<<10)), 1
	sc.Spec.Hosts[from].Config.MaxSends = 0
	at := time.Duration(rng.Int64N(int64(sc.Heal)/2 + 1))
	sc.Heal = max(sc.Heal, at+time.Duration(300+rng.IntN(500))*time.Millisecond)
	g := &generator{rng: rng, sc: sc}
	most := []int{8, 64, 1024, 10_000}[rng.IntN(4)]
	for range 40 + rng.IntN(200) {
		s := OpSpec{Kind: transport.OpTSend, Peer: to, Len: rng.IntN(most + 1), Class: crowdClass, HasData: g.chance(0.1), Ordered: g.chance(0.02)}
		s.Inject = g.chance(0.1) && s.Len <= 4096
		s.Level = []transport.Level{0, transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery, transport.LevelMatch}[rng.IntN(5)]
		id := g.add(Step{At: at + g.dur(0, time.Millisecond), Host: from, Kind: "post", Op: s})
		if g.chance(0.1) {
			g.add(Step{At: at + g.dur(0, 300*time.Millisecond), Host: from, Kind: "cancel", Of: id})
		}
		if g.chance(0.1) {
			g.add(Step{At: at + g.dur(0, 300*time.Millisecond), Host: to, Kind: "post", Op: OpSpec{Kind: transport.OpTRecv, Peer: Any, Len: most, Class: crowdClass}})
		}
	}
	slices.SortStableFunc(sc.Steps, func(a, b Step) int { return int(a.At - b.At) })
}
