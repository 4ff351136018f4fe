package ranks

import (
	"cmp"
	"context"
	"slices"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/mp"
)

// Tags of the messages of a pair.
const tagData, tagDone = 1, 2

// pairs makes the operation of this rank: rank i of the first half and rank i of the second.
func (b *bench) pairs(x Shape) *op {
	half := b.c.Size() / 2
	first := b.c.Rank() < half
	other := b.c.Rank() + half
	if !first {
		other = b.c.Rank() - half
	}
	if b.Op == Latency {
		return b.roundTrip(int(x.Size), other, first)
	}
	return b.stream(int(x.Size), other, first)
}

// roundTrip is one message there and one back.
func (b *bench) roundTrip(size, other int, first bool) *op {
	out, in := make([]byte, size), make([]byte, size)
	c := b.c
	o := b.messages([][]byte{out}, [][]byte{in}, other)
	o.untimed = !first
	o.run = func(ctx context.Context) error {
		if first {
			if err := c.Send(ctx, out, other, tagData); err != nil {
				return err
			}
		}
		if _, err := c.Recv(ctx, in, other, tagData); err != nil || first {
			return err
		}
		return c.Send(ctx, out, other, tagData)
	}
	return o
}

// ownBytes bounds the buffers of a window in which each message has one of its own.
const ownBytes = 256 << 20

// stream is a window of messages, in one direction or in both, and an answer when all have come.
// They share a buffer. Where they are verified each has its own, unless they are too long: then
// all have the same contents.
func (b *bench) stream(size, other int, first bool) *op {
	sends, recvs := first || b.Op == BiBW, !first || b.Op == BiBW
	share := func(need bool) [][]byte {
		if !need {
			return nil
		}
		return slices.Repeat([][]byte{make([]byte, size)}, b.Window)
	}
	out, in := share(sends), share(recvs)
	o := b.messages(out[:min(1, len(out))], in[:min(1, len(in))], other)
	if size*b.Window <= ownBytes {
		own := func(shared [][]byte) [][]byte {
			all := make([][]byte, len(shared))
			for i := range all {
				all[i] = make([]byte, size)
			}
			return all
		}
		myOut, myIn := own(out), own(in)
		o = b.messages(myOut, myIn, other)
		o.checked = b.window(myOut, myIn, other)
	}
	o.run, o.untimed = b.window(out, in, other), !first
	return o
}

// window sends and receives the buffers at once, and then the word that all have come.
func (b *bench) window(out, in [][]byte, other int) func(context.Context) error {
	c := b.c
	qs := make([]mp.Request, 0, len(in)+len(out))
	return func(ctx context.Context) (err error) {
		qs = qs[:0]
		begin := func(q mp.Request, e error) bool {
			if err = e; err == nil {
				qs = append(qs, q)
			}
			return err == nil
		}
		for i := 0; i < len(in) && begin(c.Irecv(in[i], other, tagData)); i++ {
		}
		for i := 0; err == nil && i < len(out) && begin(c.Isend(out[i], other, tagData)); i++ {
		}
		if err := cmp.Or(err, mp.Waitall(ctx, qs, nil)); err != nil {
			return err
		}
		if len(in) > 0 {
			if err := c.Send(ctx, nil, other, tagDone); err != nil {
				return err
			}
		}
		if len(out) > 0 {
			_, err = c.Recv(ctx, nil, other, tagDone)
		}
		return err
	}
}

// messages is an op whose messages are filled and verified byte by byte. Both ends of a pair know
// what the other sends.
func (b *bench) messages(out, in [][]byte, other int) *op {
	// value is byte i of message m of a rank.
	value := func(round uint64, rank, m, i int) byte {
		return byte(mix(round, rank, uint64(m)<<32|uint64(i/8)) >> (8 * (i % 8)))
	}
	return &op{
		fill: func(round uint64) {
			for m := range out {
				for i := range out[m] {
					out[m][i] = value(round, b.c.Rank(), m, i)
				}
			}
			for m := range in {
				for i := range in[m] {
					in[m][i] = ^value(round, other, m, i) // nothing that is left of it passes
				}
			}
		},
		verify: func(round uint64) (c record.Check, elements int64) {
			for m := range in {
				bad := int64(0)
				for i := range in[m] {
					if in[m][i] != value(round, other, m, i) {
						bad++
					}
				}
				if c.WrongBytes += bad; bad > 0 {
					c.Wrong++
				} else {
					c.OK++
				}
			}
			return c, c.WrongBytes
		},
	}
}

// paired makes the result of pairs: of latency the times of all pairs, of bandwidths the sum over
// the time of the slowest.
func (b *bench) paired(run *record.Run, all []share, h *traffic.Histogram) {
	half := int64(len(all) / 2)
	if b.Op == Latency {
		run.Msgs = run.Iters * half
		run.Latency = h.Latency()
		return
	}
	run.Msgs = run.Iters * half * int64(b.Window)
	if b.Op == BiBW {
		run.Msgs *= 2
	}
	run.Bytes = run.Msgs * run.Size
	if run.DurationNS > 0 {
		secs := float64(run.DurationNS) / 1e9
		bps, rate := float64(run.Bytes)*8/secs, float64(run.Msgs)/secs
		run.GoodputBPS, run.MsgsPerS = &bps, &rate
	}
}
