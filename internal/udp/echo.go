package udp

import "time"

// MaxEchoes is the most ports that Echo keeps bound. It bounds the descriptors and the ports of
// the host that peers make a Conn use. Arbitrary: as many as the paths of one peer.
const MaxEchoes = 64

// echoRest is how long a port must not have been used before another may take its place. A peer
// that changes its entropy values all the time, or forges them, so costs 640 sockets a second at
// most, less than one part in a hundred of a processor. And a train may be sent by Echo's path as
// long after Echo. Arbitrary.
const echoRest = 100 * time.Millisecond

// echoes are the places for ports that Echo binds. A port that cannot be bound has a place, too,
// so that it is not tried for each packet.
type echoes struct {
	clock func() time.Time
	ports [MaxEchoes]uint16
	used  [MaxEchoes]time.Time
	bound [MaxEchoes]bool
	n     int // places in use
	last  int // the place that was found last
}

// find returns the place of a port, -1 if it has none.
func (e *echoes) find(ev uint16) int {
	if e.n > 0 && e.ports[e.last] == ev {
		return e.last
	}
	for i, p := range e.ports[:e.n] {
		if p == ev {
			e.last = i
			return i
		}
	}
	return -1
}

// echo reports whether a port is bound. open binds a port that has no place yet at place i, in
// place of the port there, if any.
func (e *echoes) echo(ev uint16, open func(i int, ev uint16) bool) bool {
	now := e.clock()
	i := e.find(ev)
	if i >= 0 && (e.bound[i] || now.Sub(e.used[i]) < echoRest) {
		if e.bound[i] {
			e.used[i] = now
		}
		return e.bound[i]
	}
	switch {
	case i >= 0: // it could not be bound a while ago
	case e.n < MaxEchoes:
		i = e.n
		e.n++
	default:
		i = 0
		for j := range e.used {
			if e.used[j].Before(e.used[i]) {
				i = j
			}
		}
		if now.Sub(e.used[i]) < echoRest {
			return false
		}
	}
	e.ports[i], e.used[i], e.last = ev, now, i
	e.bound[i] = open(i, ev)
	return e.bound[i]
}
