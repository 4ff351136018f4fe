package ses_test

import (
	"bytes"
	"fmt"
	"strings"
)

// This file has the commands of the traces for memory regions.

// A memory is a region of the script.
type memory struct {
	name         string
	key, base    uint64
	job          uint32
	access       string
	counts, once bool
	all, buf     []byte // all of it, whatever its parts; buf is nil if it has parts
	iov          [][]byte
	region       *region
}

// fill is what is in a region that nobody wrote to.
const fill = 0xee

func (w *world) region(a *args) {
	e := w.party(a)
	m := &memory{name: a.pos(), key: a.num("key", 0), base: a.num("addr", 0), job: uint32(a.num("job", 0)), access: a.str("access", "rw"),
		counts: a.has("counts"), once: a.has("once")}
	m.all = bytes.Repeat([]byte{fill}, int(a.num("len", 0)))
	m.buf, m.iov = inParts(m.all, int(a.num("parts", 1)))
	r, err := e.register(m)
	if err != nil {
		w.printf("%s: %s", e.name, errorWords(err))
		return
	}
	m.region = r
	w.memory[m.name] = m
}

func (w *world) remove(a *args) {
	e := w.party(a)
	e.deregister(w.memory[a.pos()].region)
}

// bytes prints what was written to a region: where, and which part of which message it is.
func (w *world) bytes(a *args) {
	e, m := w.party(a), w.memory[a.pos()]
	const gap = 8 // so many bytes of fill in a row were not written
	written := false
	for at := 0; at < len(m.all); {
		if m.all[at] == fill {
			at++
			continue
		}
		end := at
		if i := bytes.Index(m.all[at:], bytes.Repeat([]byte{fill}, gap)); i >= 0 {
			end += i
		} else {
			end = len(m.all)
		}
		w.printf("%s: %s: %d to %d: %s", e.name, m.name, at, end, w.part(m.all[at:end]))
		at, written = end, true
	}
	if !written {
		w.printf("%s: %s: nothing", e.name, m.name)
	}
}

// part names the message that has b somewhere.
func (w *world) part(b []byte) string {
	for _, o := range w.posts {
		if i := bytes.Index(o.bytes, b); i >= 0 && !o.recv {
			if i == 0 && len(b) == len(o.bytes) {
				return o.name
			}
			return fmt.Sprintf("%d to %d of %s", i, i+len(b), o.name)
		}
	}
	w.t.Fatalf("%d bytes that are in no message: %x", len(b), b[:min(len(b), 32)])
	return ""
}

// remoteWords prints the event of a write that a peer did.
func (w *world) remoteWords(at *endpoint, e *ending) {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: remote write: %d bytes to %s", at.name, e.n, e.region)
	if e.hasData {
		fmt.Fprintf(&s, ", data %#x", e.data)
	}
	p := w.byNum(e.peer)
	fmt.Fprintf(&s, ", from %s", p.name)
	if e.initiator != p.initiator {
		fmt.Fprintf(&s, " initiator %d", e.initiator)
	}
	if e.cause != "ok" || e.over != 0 || e.tag != 0 || e.buf != nil || e.unknown || e.multi {
		w.t.Fatalf("%s: the event of a remote write: %+v", at.name, *e)
	}
	w.printf("%s", s.String())
}
