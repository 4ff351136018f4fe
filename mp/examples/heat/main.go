// Command heat computes how heat spreads on a square plate whose upper edge is kept hot. Each
// rank has a band of rows. Start it with any launcher; with -file it goes on where the last run
// ended, with any number of ranks:
//
//	go build ./mp/examples/heat && mpiexec -n 4 ./heat -size 512 -steps 2000 -file plate
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"

	"github.com/uetkit/uetkit/mp"
)

func main() {
	size := flag.Int("size", 256, "points of a side")
	steps := flag.Int("steps", 1000, "steps to compute")
	every := flag.Int("every", 500, "steps between checkpoints")
	file := flag.String("file", "", "file of the checkpoint")
	flag.Parse()
	mp.Main(func(ctx context.Context, c *mp.Comm) error {
		p, err := load(ctx, c, *size, *file)
		if err != nil {
			return err
		}
		for done := 0; done < *steps; {
			n := min(*every, *steps-done)
			change, err := p.run(ctx, n)
			if err != nil {
				return err
			}
			done += n
			if c.Rank() == 0 {
				fmt.Printf("step %d: largest change %.3g\n", p.step, change)
			}
			if err := p.save(ctx, *file); err != nil {
				return err
			}
		}
		return nil
	})
}

// A plate is this rank's band of rows, with a row of the neighbours above and below it.
type plate struct {
	c         *mp.Comm
	size      int
	step      int64
	now, next []float64
}

// rows is how many rows a rank has.
func rows(size, rank, ranks int) int { return (rank+1)*size/ranks - rank*size/ranks }

// row is a row of a band; 0 is the neighbour's.
func (p *plate) row(v []float64, i int) []float64 { return v[i*p.size : (i+1)*p.size] }

func (p *plate) mine() int { return rows(p.size, p.c.Rank(), p.c.Size()) }

// load reads the checkpoint at rank 0 and deals it out, or begins with a cold plate.
func load(ctx context.Context, c *mp.Comm, size int, file string) (*plate, error) {
	if size < c.Size() {
		return nil, fmt.Errorf("%d rows for %d ranks", size, c.Size())
	}
	p := &plate{c: c, size: size}
	p.now = make([]float64, (p.mine()+2)*size)
	p.next = make([]float64, len(p.now))
	var bands [][]float64
	start := []int64{0}
	if c.Rank() == 0 {
		all := make([]float64, size*size)
		for i := range size {
			all[i] = 100 // the hot edge
		}
		if err := read(file, start, all); err != nil {
			return nil, err
		}
		bands = p.bands(all)
	}
	if err := mp.Bcast(ctx, c, start, 0); err != nil {
		return nil, err
	}
	p.step = start[0]
	return p, mp.Scatterv(ctx, c, bands, p.now[size:len(p.now)-size], 0)
}

// bands are the rows of each rank in the whole plate.
func (p *plate) bands(all []float64) (b [][]float64) {
	for r := range p.c.Size() {
		n := rows(p.size, r, p.c.Size()) * p.size
		b, all = append(b, all[:n]), all[n:]
	}
	return b
}

// run computes steps and returns the largest change of a point in the last one.
func (p *plate) run(ctx context.Context, steps int) (float64, error) {
	n, up, down := p.mine(), p.c.Rank()-1, p.c.Rank()+1
	change := []float64{0}
	for range steps {
		for _, x := range []struct{ to, out, in int }{{up, 1, 0}, {down, n, n + 1}} {
			if x.to < 0 || x.to == p.c.Size() {
				continue
			}
			if err := mp.Send(ctx, p.c, p.row(p.now, x.out), x.to, 1); err != nil {
				return 0, err
			}
			if _, err := mp.Recv(ctx, p.c, p.row(p.now, x.in), x.to, 1); err != nil {
				return 0, err
			}
		}
		change[0] = 0
		for i := 1; i <= n; i++ {
			a, b, d, out := p.row(p.now, i-1), p.row(p.now, i), p.row(p.now, i+1), p.row(p.next, i)
			copy(out, b)
			if up < 0 && i == 1 || down == p.c.Size() && i == n {
				continue // the edges stay as they are
			}
			for j := 1; j < p.size-1; j++ {
				out[j] = b[j] + 0.2*(a[j]+d[j]+b[j-1]+b[j+1]-4*b[j])
				change[0] = max(change[0], out[j]-b[j], b[j]-out[j])
			}
		}
		p.now, p.next = p.next, p.now
		p.step++
	}
	return change[0], mp.Allreduce(ctx, p.c, change, change, mp.Max)
}

// save gathers the plate at rank 0 and writes it.
func (p *plate) save(ctx context.Context, file string) error {
	if file == "" {
		return nil
	}
	var all []float64
	var bands [][]float64
	if p.c.Rank() == 0 {
		all = make([]float64, p.size*p.size)
		bands = p.bands(all)
	}
	if err := mp.Gatherv(ctx, p.c, p.now[p.size:len(p.now)-p.size], bands, 0); err != nil || p.c.Rank() != 0 {
		return err
	}
	f, err := os.Create(file + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(binary.Write(f, binary.LittleEndian, p.step), binary.Write(f, binary.LittleEndian, all), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// read fills in what a checkpoint has, if there is one.
func read(file string, step []int64, all []float64) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := f.Stat()
	if err != nil {
		return err
	}
	if s.Size() != int64(8+8*len(all)) {
		return fmt.Errorf("%s is no checkpoint of a plate of this size", file)
	}
	return errors.Join(binary.Read(f, binary.LittleEndian, step), binary.Read(f, binary.LittleEndian, all))
}
