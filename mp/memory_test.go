package mp

import (
	"slices"
	"sync"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// A memory is a provider without a network: it matches messages in lists, for worlds of more
// ranks than a test has sockets for.
type memory struct {
	mu    sync.Mutex
	recvs map[memoryKey][]*request
	early map[memoryKey][]early
}

// An early message waits for its receive.
type early struct {
	bytes []byte
	mark  uint64
}

// A memoryKey is to whom a message goes, and its tag, which has its source.
type memoryKey struct {
	rank int32
	tag  uint64
}

// MemoryWorlds are n worlds without endpoints, for collectives without a context that ends.
func MemoryWorlds(n int, choose func(Call) Algorithm) []*World {
	m := &memory{recvs: map[memoryKey][]*request{}, early: map[memoryKey][]early{}}
	worlds := make([]*World, n)
	for rank := range worlds {
		w := &World{rank: rank, size: n, most: 1 << 30, cfg: Config{Choose: choose}, peers: make([]peer, n), comms: map[uint32]*Comm{}}
		for i := range w.peers {
			w.peers[i].known.Store(true)
		}
		w.ids.init()
		w.world = w.newComm(0, nil, rank)
		w.drv.driving.Store(true) // so that those who wait sleep until their request is done
		w.instead = func(r *request) error { m.post(w, r); return nil }
		worlds[rank] = w
	}
	return worlds
}

func (m *memory) post(w *World, r *request) {
	if r.kind == opRecv {
		m.receive(memoryKey{int32(w.rank), r.msg.Tag}, r)
		return
	}
	data := early{slices.Clone(r.buf), r.msg.Data}
	k := memoryKey{r.peer, r.msg.Tag}
	m.mu.Lock()
	var to *request
	if l := m.recvs[k]; len(l) > 0 {
		to, m.recvs[k] = l[0], l[1:]
	} else {
		m.early[k] = append(m.early[k], data)
	}
	m.mu.Unlock()
	if to != nil {
		fill(to, k.tag, data)
	}
	r.completed(&cq.Entry{})
}

func (m *memory) receive(k memoryKey, r *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.early[k]
	if len(l) == 0 {
		m.recvs[k] = append(m.recvs[k], r)
		return
	}
	m.early[k] = l[1:]
	go fill(r, k.tag, l[0]) // its world is locked
}

func fill(r *request, tag uint64, m early) {
	copy(r.buf, m.bytes)
	r.completed(&cq.Entry{Flags: fi.RemoteCQData, Tag: tag, Len: len(m.bytes), Data: m.mark})
}
