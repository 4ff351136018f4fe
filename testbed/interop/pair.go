package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// standardPort is where everything goes under the encapsulation Standard.
const standardPort = 4793

// A pair is an endpoint of uetkit and one of the peer, opposite each other.
type pair struct {
	ep     *endpoint
	p      *peer
	id     string
	at     netip.AddrPort // the peer's
	evs    []uint16
	events []event // of the peer, oldest first
	key    *uet.Security

	regions []*region // of uetkit
}

// A setup says how to open a pair.
type setup struct {
	worker   int
	v6       bool
	standard bool
	sealed   bool
	rekey    bool // sealed with another key for each 256 packets
	ordered  bool
	caps     fi.Caps         // uetkit's, 0 for the default ones
	info     func(*uet.Info) // changes uetkit's Info; may be nil
	peer     args            // of the peer's "open"
}

// clusterKey is the key of sealed pairs.
var clusterKey = [32]byte{0: 0x75, 1: 0x65, 2: 0x74, 31: 1}

// open opens both ends and lets them know each other.
func open(p *peer, id string, s setup) (*pair, error) {
	pr := &pair{p: p, id: id}
	our, err := netip.ParseAddr(host(s.worker, s.v6, ours))
	if err != nil {
		return nil, err
	}
	port := uint16(0)
	a := args{"ip": host(s.worker, s.v6, theirs), "port": 0, "encap": "symmetric"}
	if s.standard {
		port, a["encap"], a["port"] = standardPort, "standard", standardPort
	}
	if s.sealed {
		if pr.key, err = uet.NewClusterKey(uet.ClusterKey{Generation: 1, Key: clusterKey}); err != nil {
			return nil, err
		}
		maps.Copy(a, sealedArgs())
	}
	if s.rekey {
		if err := pr.key.RekeyByTSC(0xff00, 8); err != nil {
			return nil, err
		}
		a["rekey_mask"], a["rekey_shift"] = 0xff00, 8
	}
	maps.Copy(a, s.peer)
	pr.ep, err = openEndpoint(netip.AddrPortFrom(our, port), s.caps, func(i *uet.Info) {
		i.Tx.MsgOrder = 0
		if s.ordered {
			i.Tx.MsgOrder = fi.OrderSAS
		}
		i.Config.Security = pr.key
		if s.standard {
			i.Config.Encapsulation = uet.Standard
		}
		if s.info != nil {
			s.info(i)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("uetkit: %w", err)
	}
	if err := p.do("open", id, a); err != nil {
		return nil, err
	}
	e, err := pr.want("open", func(e event) bool { return e.Ev == "open" })
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(e.IP)
	if err != nil {
		return nil, err
	}
	pr.at, pr.evs = netip.AddrPortFrom(ip, e.Port), e.EVs
	if dumps != "" {
		if err := pr.do("set", args{"dump": filepath.Join(dumps, id)}); err != nil {
			return nil, err
		}
	}
	return pr, pr.ep.know(pr.at)
}

// close closes both ends, without a word between them.
func (pr *pair) close() error {
	err := pr.do("shut", nil)
	if err == nil {
		_, err = pr.want("shut", func(e event) bool { return e.Ev == "shut" })
	}
	for _, r := range pr.regions {
		err = errors.Join(err, r.close())
	}
	err = errors.Join(err, pr.ep.Close())
	if pr.key != nil {
		err = errors.Join(err, pr.key.Close())
	}
	return err
}

// do gives the peer's end a command.
func (pr *pair) do(what string, a args) error { return pr.p.do(what, pr.id, a) }

// self is uetkit's address for a command.
func (pr *pair) self() args {
	return args{"ip": pr.ep.at.Addr().String(), "port": pr.ep.at.Port()}
}

// turn lets both ends go on for a moment and takes what they report.
func (pr *pair) turn() error {
	if err := pr.ep.poll(2 * time.Millisecond); err != nil {
		return fmt.Errorf("uetkit: %w", err)
	}
	for {
		select {
		case e, ok := <-pr.p.events:
			switch {
			case !ok:
				return fmt.Errorf("the peer is gone: %s", pr.p.stderr)
			case e.Ev == "error":
				return fmt.Errorf("the peer: %s, at %s", e.What, e.Command)
			case e.ID == pr.id:
				pr.events = append(pr.events, e)
			}
		default:
			return nil
		}
	}
}

// until lets both ends go on until a condition holds.
func (pr *pair) until(what string, limit time.Duration, holds func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not after %v: %s", limit, what)
		}
		if err := pr.turn(); err != nil {
			return err
		}
	}
}

// want waits for an event of the peer that was not looked at before, and takes it.
func (pr *pair) want(what string, is func(event) bool) (event, error) {
	var found event
	err := pr.until(what, 10*time.Second, func() (bool, error) {
		for i, e := range pr.events {
			if is(e) {
				found = e
				pr.events = append(pr.events[:i], pr.events[i+1:]...)
				return true, nil
			}
		}
		return false, nil
	})
	return found, err
}

// of are the peer's events of one kind.
func (pr *pair) of(kind string) []event {
	var out []event
	for _, e := range pr.events {
		if e.Ev == kind {
			out = append(out, e)
		}
	}
	return out
}

// stats asks the peer for its counters. When they come it has done everything that it was told before.
func (pr *pair) stats() (event, error) {
	if err := pr.do("stats", nil); err != nil {
		return event{}, err
	}
	return pr.want("stats", func(e event) bool { return e.Ev == "stats" })
}

// pause lets both ends go on for a while.
func (pr *pair) pause(d time.Duration) error {
	end := time.Now().Add(d)
	return pr.until("", 2*d+time.Second, func() (bool, error) { return time.Now().After(end), nil })
}
