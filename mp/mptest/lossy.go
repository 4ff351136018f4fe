package mptest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"sync"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// A lossy network has a relay between each two ranks that speak with each other. Each rank
// sees the relay in place of the other one.
type lossy struct {
	share float64
	seed  uint64

	mu     sync.Mutex
	relays map[[2]int]*relay // by rank, the lower first
	closed bool
}

func newLossy(share float64, seed uint64) *lossy {
	return &lossy{share: share, seed: seed, relays: map[[2]int]*relay{}}
}

// address finds the socket address on a card.
var address = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// card returns the card of rank to as rank from is to see it: with the address of the relay
// between them.
func (l *lossy) card(from int, fromCard []byte, to int, toCard []byte) ([]byte, error) {
	key, cards := [2]int{from, to}, [2][]byte{fromCard, toCard}
	side := 0
	if from > to {
		key, cards, side = [2]int{to, from}, [2][]byte{toCard, fromCard}, 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	r := l.relays[key]
	if r == nil {
		var ends [2]netip.AddrPort
		for i, c := range cards {
			at, err := netip.ParseAddrPort(string(address.Find(c)))
			if err != nil {
				return nil, fmt.Errorf("mptest: the card of rank %d: %w", key[i], err)
			}
			ends[i] = at
		}
		var err error
		if r, err = openRelay(ends, func(direction int) *badnet.Line {
			stream := uint64(key[0])<<32 | uint64(key[1])<<1 | uint64(direction)
			return &badnet.Line{Faults: badnet.Faults{Loss: l.share}, Rand: badnet.One(rand.New(rand.NewPCG(l.seed, stream)))}
		}); err != nil {
			return nil, fmt.Errorf("mptest: relay: %w", err)
		}
		l.relays[key] = r
	}
	return bytes.Replace(toCard, address.Find(toCard), []byte(r.socks[side].LocalAddr().String()), 1), nil
}

// close ends the relays and waits for their goroutines.
func (l *lossy) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, r := range l.relays {
		for _, s := range r.socks {
			_ = s.Close()
		}
		r.wg.Wait()
	}
}

// A relay is between two ranks.
type relay struct {
	ends  [2]netip.AddrPort
	socks [2]*net.UDPConn // socks[i] is what rank i sees in place of the other
	wg    sync.WaitGroup
}

func openRelay(ends [2]netip.AddrPort, line func(direction int) *badnet.Line) (*relay, error) {
	r := &relay{ends: ends}
	for i := range r.socks {
		s, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ends[i].Addr(), 0)))
		if err != nil {
			if i == 1 {
				_ = r.socks[0].Close()
			}
			return nil, err
		}
		_ = s.SetReadBuffer(4 << 20) // what does not fit is lost as well
		r.socks[i] = s
	}
	for i := range r.socks {
		r.wg.Go(func() { r.run(i, line(i)) })
	}
	return r, nil
}

// run relays what a rank sends.
func (r *relay) run(from int, line *badnet.Line) {
	in, out, to := r.socks[from], r.socks[1-from], r.ends[1-from]
	begun, buf := time.Now(), make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an error of an earlier packet
		}
		if line.Lost(time.Since(begun)) == badnet.Passed {
			_, _ = out.WriteToUDPAddrPort(buf[:n], to)
		}
	}
}
