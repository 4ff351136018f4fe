package pds

import (
	"net/netip"
	"time"
)

// GuessLimit is how many guesses a second are tolerated before they are news (T3). A guess
// is a packet that names a live PDC but cannot belong to it: it has another address, another
// PDCID of the peer, or a PSN far outside of the window. Delay and restarts cause some.
// Arbitrary, far below what a search of the numbers takes.
const GuessLimit = 100

// guessed counts a guess. The caller counts the drop.
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
