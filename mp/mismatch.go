package mp

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Whether ranks are in the same collective
//
// Every message of a collective has a mark as its remote CQ data, and messages of one rank to
// another come in order, so the marks of both must be equal. A rank that finds another mark sends
// its own header to the sender, which tells all ranks the two calls. So does a rank that waits
// long, since the one that it waits for may be in a collective that sends it nothing.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// markOf returns the mark of a call: its number in the upper 32 bits, and the CRC of all else that
// calls have in common if they match.
func markOf(h *[headLen]byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(h[:]))<<32 | uint64(crc32.Checksum(h[4:sameAt], castagnoli))
}

const (
	// unlikeAgain is how long a rank waits for the word of another before it asks again, and
	// unlikeTimes how often it asks. A rank that computes does not hear.
	unlikeAgain = time.Second
	unlikeTimes = 10
	// unlikeLen is how many bytes it says behind the communicator: the number of the message's call,
	// the bytes that it expected and those that came, and its header.
	unlikeLen = 4 + 8 + 8 + headLen
)

// mismatch returns the error for a message of src with a mark that is not that of this rank's call,
// or with another length: then it gives both in bytes. src knows its call; it tells all ranks.
func (c *Comm) mismatch(ctx context.Context, src int, mark uint64, want, got int) error {
	seq := uint32(mark >> 32)
	mine := c.head()
	// If the sender is behind, the call that it should have met is the one that tells.
	if then := &c.coll.last[seq%8]; then[4] != 0 && binary.LittleEndian.Uint32(then[:]) == seq && markOf(then) != mark {
		mine = then
	}
	b := binary.LittleEndian.AppendUint32(c.control(ctlUnlike), seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(want))
	b = binary.LittleEndian.AppendUint64(b, uint64(got))
	b = append(b, mine[:]...)

	unknown := &ErrMismatch{siteFrom(mine[:]), CallSite{Rank: src, Seq: seq, Count: -1, Root: -1}} // if src does not tell
	if want != got {
		unknown.B = unknown.A // but for the line
		unknown.B.Rank, unknown.B.Site = src, ""
		size := elem(mine[5]).size()
		unknown.A.Count, unknown.B.Count = want/size, got/size
	}
	r, err := c.postRecv(src, kindNone, nil) // it ends when the communicator breaks
	if err != nil {
		return unknown
	}
	for range unlikeTimes {
		c.w.whisper(int(c.global(src)), b)
		short, stop := context.WithTimeout(ctx, unlikeAgain)
		err = c.w.wait(short, until{one: r})
		stop()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	c.w.takeBack(r, unknown)
	if _, err = r.take(); errors.As(err, new(*ErrMismatch)) || errors.As(err, new(*ErrLeft)) || errors.Is(err, ErrClosed) {
		return err
	}
	return unknown
}

// heardUnlike deals with the word of a rank that got a message of this one in another collective:
// it breaks the communicator with both calls.
func (w *World) heardUnlike(b []byte) {
	c, b := w.about(b)
	if c == nil || len(b) < unlikeLen {
		return
	}
	seq := binary.LittleEndian.Uint32(b)
	want, got := binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
	at := siteFrom(b[20:])
	if !c.listens(at.Rank) {
		return
	}
	c.coll.mu.Lock()
	h := c.coll.last[seq%8]
	c.coll.mu.Unlock()
	mine := siteFrom(h[:])
	if mine.Seq != seq { // it was long ago
		mine = CallSite{Rank: c.rank, Seq: seq, Count: -1, Root: -1}
	} else if want != got {
		size := uint64(elem(h[5]).size())
		at.Count, mine.Count = int(want/size), int(got/size)
	}
	c.breakUp(&ErrMismatch{at, mine})
}

// listens reports whether the call of a rank is of interest: it is a member, and collectives are
// possible. If they are not, it is told why.
func (c *Comm) listens(rank int) bool {
	if rank < 0 || rank >= c.size {
		return false
	}
	e := c.broken.Load()
	if e != nil {
		c.w.whisper(int(c.global(rank)), c.brokenBy(*e))
	}
	return e == nil
}

// askLate asks the ranks for which collectives wait long what they are in.
func (w *World) askLate(now time.Duration) {
	type late struct {
		c    *Comm
		rank int32
	}
	var ask [pingBatch]late
	n := 0
	w.mu.Lock()
	for r := w.recvs; r != nil && n < len(ask); r = r.next {
		if r.ordered && now-r.since >= pingAfter {
			r.since = now
			ask[n] = late{r.c, r.peer}
			n++
		}
	}
	w.mu.Unlock()
	for _, l := range ask[:n] {
		b := l.c.control(ctlLate)
		l.c.coll.mu.Lock()
		b = append(b, l.c.head()[:]...)
		l.c.coll.mu.Unlock()
		w.whisper(int(l.rank), b)
	}
}

// heardLate deals with a rank that waits for this one: if this one is or was in another
// collective, the wait is in vain.
func (w *World) heardLate(b []byte) {
	c, b := w.about(b)
	if c == nil || len(b) < headLen {
		return
	}
	theirs := [headLen]byte(b)
	at := siteFrom(theirs[:])
	if !c.listens(at.Rank) {
		return
	}
	c.coll.mu.Lock()
	mine := c.coll.last[at.Seq%8]
	c.coll.mu.Unlock()
	if [4]byte(mine[:4]) == [4]byte(theirs[:4]) && [sameAt]byte(mine[:sameAt]) != [sameAt]byte(theirs[:sameAt]) {
		c.breakUp(&ErrMismatch{siteFrom(mine[:]), at})
	}
}
