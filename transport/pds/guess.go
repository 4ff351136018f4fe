package pds

import (
	"net/netip"
	"time"
)

// GuessLimit is how many packets a second may name a live PDC and yet have
// numbers that no packet of it can have, before it is news (T3): another
// address, another PDCID of the peer, a PSN far outside of the window. Delay and
// restarts make some; arbitrary, far below what a search of the numbers takes.
const GuessLimit = 100

// guessed counts such a packet, besides as the drop it is.
func (t *Table) guessed(now time.Duration, from netip.AddrPort) {
	t.Stats.Guessed++
	if now-t.guessAt >= time.Second {
		t.guessAt, t.guesses = now, 0
	}
	if t.guesses++; t.guesses == GuessLimit+1 {
		t.guesser = from
		t.news.put(News{Kind: NewsGuessed})
	}
}
