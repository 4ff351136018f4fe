package topo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A Flow is one message from a host to another.
type Flow struct {
	ID       int
	Src, Dst int
	Start    time.Duration // after the start of the run
	Size     int           // bytes
}

// A Matrix is the traffic of a run.
type Matrix struct {
	Nodes int
	Flows []Flow
}

// Incast returns a Matrix in which hosts 0 to n-1 each send size bytes to host n at once.
func Incast(n, size int) Matrix {
	m := Matrix{Nodes: n + 1}
	for i := range n {
		m.Flows = append(m.Flows, Flow{ID: i + 1, Src: i, Dst: n, Size: size})
	}
	return m
}

// Permutation returns a Matrix in which each of n hosts sends size bytes to another, and gets as many
// from one. The seed chooses which.
func Permutation(seed uint64, n, size int) Matrix {
	r := rand.New(rand.NewPCG(seed, 0x7065726d))
	m, to := Matrix{Nodes: n}, r.Perm(n)
	for i := range to {
		if to[i] == i {
			j := (i + 1) % n
			to[i], to[j] = to[j], to[i]
		}
	}
	for i, d := range to {
		m.Flows = append(m.Flows, Flow{ID: i + 1, Src: i, Dst: d, Size: size})
	}
	return m
}

// ParseCM reads a connection matrix of htsim (a .cm file): lines "Nodes N", "Connections C", and per
// flow "src->dst id I start T size S", with T in picoseconds. The flow's id defaults to its place. It
// refuses triggers and failures, which this package does not play, and ignores prio and msg.
func ParseCM(text string) (Matrix, error) {
	var m Matrix
	want := -1
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		err := func() error {
			switch src, dst, ok := strings.Cut(f[0], "->"); {
			case ok:
				flow, err := parseFlow(src, dst, f[1:])
				if flow.ID == 0 {
					flow.ID = len(m.Flows) + 1
				}
				if m.Flows = append(m.Flows, flow); err == nil && max(flow.Src, flow.Dst) >= m.Nodes {
					err = fmt.Errorf("a host beyond the %d of Nodes", m.Nodes)
				}
				return err
			case len(f) == 2 && f[0] == "Nodes":
				return number(f[1], &m.Nodes)
			case len(f) == 2 && f[0] == "Connections":
				return number(f[1], &want)
			case len(f) == 2 && (f[0] == "Triggers" || f[0] == "Failures") && f[1] == "0":
				return nil
			}
			return fmt.Errorf("%q is not understood", f[0])
		}()
		if err != nil {
			return m, fmt.Errorf("topo: line %d of a connection matrix: %w", n, err)
		}
	}
	if want >= 0 && len(m.Flows) != want {
		return m, fmt.Errorf("topo: the connection matrix has %d flows and says %d", len(m.Flows), want)
	}
	return m, nil
}

// parseFlow reads the line of one flow.
func parseFlow(src, dst string, words []string) (f Flow, err error) {
	if err := number(src, &f.Src); err != nil {
		return f, err
	}
	if err := number(dst, &f.Dst); err != nil {
		return f, err
	}
	if f.Src == f.Dst {
		return f, fmt.Errorf("host %d sends to itself", f.Src)
	}
	start := false
	for len(words) > 0 {
		k := words[0]
		if len(words) == 1 {
			return f, fmt.Errorf("%q without a value", k)
		}
		v := words[1]
		words = words[2:]
		switch k {
		case "id":
			err = number(v, &f.ID)
		case "size":
			err = number(v, &f.Size)
		case "start":
			var ps float64
			if ps, err = strconv.ParseFloat(v, 64); err == nil && !(ps >= 0 && ps < math.MaxInt64) {
				err = fmt.Errorf("start %s", v)
			}
			f.Start, start = time.Duration(math.Round(ps/1000)), true
		case "prio", "msg":
		default:
			err = fmt.Errorf("%q is not understood", k)
		}
		if err != nil {
			return f, err
		}
	}
	if !start || f.Size == 0 {
		return f, fmt.Errorf("a flow without start or size")
	}
	return f, nil
}

func number(s string, to *int) error {
	n, err := strconv.ParseUint(s, 10, 31)
	*to = int(n)
	return err
}

// CM writes a Matrix as htsim reads it.
func (m Matrix) CM() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nodes %d\nConnections %d\n", m.Nodes, len(m.Flows))
	for _, f := range m.Flows {
		fmt.Fprintf(&b, "%d->%d id %d start %d size %d\n", f.Src, f.Dst, f.ID, int64(f.Start)*1000, f.Size)
	}
	return b.String()
}
