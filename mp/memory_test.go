package mp

import (
	"sync"

	"github.com/uetkit/uetkit/cq"
)

// A memory is a provider without a network: it matches messages in lists, for worlds of more
// ranks than a test has sockets for.
type memory struct {
	mu    sync.Mutex
	recvs map[memoryKey][]*request
	early map[memoryKey][][]byte
}

// A memoryKey is to whom a message goes, and its tag, which has its source.
type memoryKey struct {
	rank int32
	tag  uint64
}

// MemoryWorlds are n worlds without endpoints, for collectives without a context that ends.
func MemoryWorlds(n int, choose func(Call) Algorithm) []*World {
	m := &memory{recvs: map[memoryKey][]*request{}, early: map[memoryKey][][]byte{}}
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
	parts := r.iov[:r.niov]
	if r.niov == 0 {
		parts = [][]byte{r.buf}
	}
	if r.kind == opRecv {
		m.receive(memoryKey{int32(w.rank), r.msg.Tag}, r, parts)
		return
	}
	var data []byte
	for _, p := range parts {
		data = append(data, p...)
	}
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
		fill(to, to.iov[:to.niov], k.tag, data)
	}
	r.completed(&cq.Entry{})
}

func (m *memory) receive(k memoryKey, r *request, parts [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.early[k]
	if len(l) == 0 {
		m.recvs[k] = append(m.recvs[k], r)
		return
	}
	m.early[k] = l[1:]
	go fill(r, parts, k.tag, l[0]) // its world is locked
}

func fill(r *request, parts [][]byte, tag uint64, data []byte) {
	n := len(data)
	for _, p := range parts {
		data = data[copy(p, data):]
	}
	r.completed(&cq.Entry{Tag: tag, Len: n})
}
