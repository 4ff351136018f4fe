// Command rank is one rank of the rows M of testbed/bars: the loops of mpi/ranks.c, by mp.
//
//	rank SECONDS TEST:BYTES...
//
// Rank 0 prints a line "TEST BYTES MICROSECONDS" for each, and "init 0 MICROSECONDS" first. Of a
// TEST.p99 the time is the 99th percentile.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/uetkit/uetkit/mp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
}

// A test is a loop that is measured.
type test struct {
	once func(ctx context.Context, c *mp.Comm, a, b []byte) error
	per  int // messages or half round trips of a round
}

// window is how many messages a stream has under way.
const window = 64

var tests = map[string]test{
	"lat":     {lat, 2},
	"bw":      {stream, window},
	"barrier": {func(ctx context.Context, c *mp.Comm, _, _ []byte) error { return c.Barrier(ctx) }, 1},
	"bcast":   {func(ctx context.Context, c *mp.Comm, a, _ []byte) error { return mp.Bcast(ctx, c, a, 0) }, 1},
	"allreduce": {func(ctx context.Context, c *mp.Comm, a, b []byte) error {
		return mp.Allreduce(ctx, c, doubles(a), doubles(b), mp.Sum)
	}, 1},
	"alltoall": {func(ctx context.Context, c *mp.Comm, a, b []byte) error { return mp.Alltoall(ctx, c, a, b) }, 1},
}

func lat(ctx context.Context, c *mp.Comm, a, b []byte) (err error) {
	switch c.Rank() {
	case 0:
		if err = c.Send(ctx, a, 1, 1); err == nil {
			_, err = c.Recv(ctx, b, 1, 1)
		}
	case 1:
		if _, err = c.Recv(ctx, b, 0, 1); err == nil {
			err = c.Send(ctx, a, 0, 1)
		}
	}
	return err
}

func stream(ctx context.Context, c *mp.Comm, a, b []byte) (err error) {
	var q [window]mp.Request
	switch c.Rank() {
	case 0:
		for k := 0; k < len(q) && err == nil; k++ {
			q[k], err = c.Isend(a, 1, 1)
		}
		if err = errors.Join(err, mp.Waitall(ctx, q[:], nil)); err == nil {
			_, err = c.Recv(ctx, nil, 1, 2)
		}
	case 1:
		for k := 0; k < len(q) && err == nil; k++ {
			q[k], err = c.Irecv(b, 0, 1)
		}
		if err = errors.Join(err, mp.Waitall(ctx, q[:], nil)); err == nil {
			err = c.Send(ctx, nil, 0, 2)
		}
	}
	return err
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: rank SECONDS TEST:BYTES …, such as lat:8")
	}
	seconds, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return err
	}
	ctx := context.Background()
	begun := time.Now()
	w, err := mp.Init(ctx, mp.Config{})
	if err != nil {
		return err
	}
	c := w.World()
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	init := []float64{float64(time.Since(begun).Nanoseconds()) / 1e3}
	if err := mp.Allreduce(ctx, c, init, init, mp.Max); err != nil {
		return err
	}
	say := func(name string, n int, us float64) {
		if c.Rank() == 0 {
			fmt.Fprintf(os.Stdout, "%s %d %.3f\n", name, n, us)
		}
	}
	say("init", 0, init[0])
	for _, arg := range args[1:] {
		name, size, _ := strings.Cut(arg, ":")
		kind, tail := strings.CutSuffix(name, ".p99")
		t, ok := tests[kind]
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 {
			return fmt.Errorf("unknown test %q", arg)
		}
		us := 0.0
		if tail {
			us, err = t.tail(ctx, c, n)
		} else {
			us, err = t.measure(ctx, c, name, n, seconds)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		say(name, n, us)
	}
	return w.Close(ctx)
}

// measure returns the microseconds of a test with n bytes.
func (t test) measure(ctx context.Context, c *mp.Comm, name string, n int, seconds float64) (float64, error) {
	room := n
	if name == "alltoall" {
		room *= c.Size()
	}
	a, b := octets(make([]float64, room/8+1))[:room], octets(make([]float64, room/8+1))[:room]
	timed := func(rounds int) (time.Duration, error) {
		if err := c.Barrier(ctx); err != nil {
			return 0, err
		}
		begun := time.Now()
		for range rounds {
			if err := t.once(ctx, c, a, b); err != nil {
				return 0, err
			}
		}
		err := c.Barrier(ctx)
		return time.Since(begun), err
	}
	if _, err := timed(2); err != nil {
		return 0, err
	}
	took, err := timed(4)
	if err != nil {
		return 0, err
	}
	rounds := []int64{min(max(int64(seconds/(took.Seconds()/4+1e-9)), 4), 20_000)}
	if err := mp.Bcast(ctx, c, rounds, 0); err != nil {
		return 0, err
	}
	took, err = timed(int(rounds[0]))
	return took.Seconds() * 1e6 / float64(rounds[0]) / float64(t.per), err
}

// tailRounds and tailLimit bound the rounds of a tail.
const (
	tailRounds = 20_000
	tailLimit  = time.Minute
)

// tail returns the 99th percentile of tailRounds, or of those that tailLimit has time for, in
// microseconds. The first number that rank 0 sends says that a round is the last.
func (t test) tail(ctx context.Context, c *mp.Comm, n int) (float64, error) {
	a, b := octets(make([]float64, n/8+1))[:max(n, 8)], octets(make([]float64, n/8+1))[:max(n, 8)]
	took := make([]time.Duration, 0, tailRounds)
	begun := time.Now()
	for last := false; !last; {
		at := time.Now()
		if c.Rank() == 0 && (len(took) == tailRounds-1 || at.Sub(begun) > tailLimit) {
			last, doubles(a)[0] = true, 1
		}
		if err := t.once(ctx, c, a, b); err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
		last = last || c.Rank() != 0 && doubles(b)[0] != 0
	}
	slices.Sort(took)
	return float64(took[(len(took)*99+99)/100-1].Nanoseconds()) / 1e3 / float64(t.per), nil
}

// octets are the bytes of numbers, and doubles undoes that.
func octets(v []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

func doubles(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
