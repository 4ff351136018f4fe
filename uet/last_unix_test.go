//go:build unix

package uet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// lastEnv makes the test binary a process whose last call is an inject. Its value is how it
// ends, "close" or "flush", and the file with the cluster key, if there is one.
const lastEnv = "UET_TEST_LAST"

func init() {
	if how := os.Getenv(lastEnv); how != "" {
		if err := lastProcess(how); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// lastProcess is one process. It says its address and reads its rank and all addresses. It
// receives a message from each process of a lower rank, injects one to each of a higher rank,
// and ends.
func lastProcess(how string) error {
	hints := &Info{}
	how, file, _ := strings.Cut(how, " ")
	if file != "" {
		var err error
		if hints.Config.Security, err = LoadClusterKey(file); err != nil {
			return err
		}
	}
	infos, err := GetInfo("127.0.0.1", "", fi.Source, hints)
	if err != nil {
		return err
	}
	f, err := OpenFabric(infos[0], nil)
	if err != nil {
		return err
	}
	d, err := f.OpenDomain(infos[0], nil)
	if err != nil {
		return err
	}
	q, err := d.OpenCQ(cq.Attr{WaitObj: fi.WaitUnspec}, nil)
	if err != nil {
		return err
	}
	peers, err := d.OpenAV(av.Attr{}, nil)
	if err != nil {
		return err
	}
	ep, err := d.OpenEndpoint(infos[0], nil)
	if err != nil {
		return err
	}
	if err := errors.Join(ep.BindCQ(q, fi.Transmit|fi.Recv), ep.BindAV(peers), ep.Enable()); err != nil {
		return err
	}
	name, err := ep.Name()
	if err != nil {
		return err
	}
	fmt.Println(name)
	in, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	all := strings.Fields(in)
	var rank int
	if _, err := fmt.Sscan(all[0], &rank); err != nil {
		return err
	}
	var to []fi.Addr
	for _, a := range all[1:] {
		h, err := peers.InsertString(a)
		if err != nil {
			return err
		}
		to = append(to, h)
	}
	for range rank {
		if err := ep.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, nil); err != nil {
			return err
		}
	}
	for got := 0; got < rank; {
		n, err := q.SRead(make([]cq.Entry, 1), 1, patience)
		if err != nil {
			return fmt.Errorf("rank %d has %d messages: %w", rank, got, err)
		}
		got += n
	}
	for _, h := range to[rank+1:] {
		if err := ep.TInject([]byte("the last"), h, 1); err != nil {
			return err
		}
	}
	if how == "close" {
		return ep.Close()
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	return ep.Flush(ctx)
}

func TestLastInjectArrives(t *testing.T) {
	// Eight processes whose last call is an inject, followed by Close, or by Flush and the end
	// of the process. Nobody waits for a message of a process that is gone. With a key, the
	// first message to a peer is sent again when the peer has named its first PSN.
	const runs, procs = 12, 8
	path := filepath.Join(t.TempDir(), "key")
	ok(t, WriteClusterKey(path, NewKey(1)))
	exe, err := os.Executable()
	ok(t, err)
	for run := range runs {
		how := []string{"close", "flush", "close " + path, "flush " + path}[run%4]
		var cmds [procs]*exec.Cmd
		var ins [procs]io.WriteCloser
		var outs [procs]*bufio.Scanner
		var names []string
		for i := range procs {
			c := exec.Command(exe)
			c.Env = append(os.Environ(), lastEnv+"="+how)
			c.Stderr = os.Stderr
			ins[i], err = c.StdinPipe()
			ok(t, err)
			out, err := c.StdoutPipe()
			ok(t, err)
			ok(t, c.Start())
			cmds[i], outs[i] = c, bufio.NewScanner(out)
		}
		for _, o := range outs {
			if !o.Scan() {
				t.Fatal("a process says no address")
			}
			names = append(names, o.Text())
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range procs {
			_, _ = fmt.Fprintln(ins[i], i, strings.Join(names, " "))
			wg.Go(func() {
				for outs[i].Scan() {
					t.Errorf("run %d, %s: rank %d: %s", run, how, i, outs[i].Text())
				}
				_ = cmds[i].Wait()
			})
		}
		wg.Wait()
		if d := time.Since(start); d > patience/2 {
			t.Errorf("run %d, %s: took %v", run, how, d)
		}
		if t.Failed() {
			return
		}
	}
}
