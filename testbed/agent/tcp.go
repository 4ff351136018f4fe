package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// This file is the cross traffic of test = "tcp": a stream of the kernel's TCP with cubic, beside UET.

const (
	// tcpPort is the port of servers with UET_TCP.
	tcpPort = 4794
	// tcpWrite is how many bytes a client hands over at once.
	tcpWrite = 64 << 10
)

// sinkTCP reads what comes over TCP connections until ctx ends. Of each it answers the end with the number of
// bytes that came: 8 bytes, big endian.
func sinkTCP(ctx context.Context, addr netip.AddrPort) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go sinkOne(ctx, c)
		}
	}()
	return nil
}

// sinkOne reads one connection.
func sinkOne(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		stop()
		_ = c.Close()
	}()
	if n, err := io.Copy(io.Discard, c); err == nil {
		_ = binary.Write(c, binary.BigEndian, n) // or the client sees the end instead
	}
}

// streamTCP sends over TCP for a time and returns how many bytes the server then says that came, and how
// long that took in all.
func streamTCP(ctx context.Context, to netip.AddrPort, long time.Duration) (n int64, took time.Duration, err error) {
	d := net.Dialer{Control: cubic}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return 0, 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		stop()
		_ = c.Close()
	}()
	b := make([]byte, tcpWrite)
	var sent int64
	begun := time.Now()
	for time.Since(begun) < long {
		k, err := c.Write(b)
		if err != nil {
			return 0, 0, err
		}
		sent += int64(k)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, 0, err
	}
	if err = binary.Read(c, binary.BigEndian, &n); err == nil && n != sent {
		err = fmt.Errorf("the server says that %d bytes came of %d", n, sent)
	}
	return n, time.Since(begun), err
}

// tcp runs the i-th entry of the traffic, a stream of TCP, and leaves a record of it.
func (h *host) tcp(ctx context.Context, i int) exitCode {
	t := h.Traffic[i]
	to := netip.AddrPortFrom(h.Peers[t.To], tcpPort)
	fmt.Fprintf(h.stdout, "+ TCP to %v for %v\n", to, t.Time)
	started := time.Now()
	n, took, err := streamTCP(ctx, to, time.Duration(t.Time))
	if err == nil {
		err = h.leave(i, started, &t, n, took)
	}
	if err != nil {
		fmt.Fprintf(h.stderr, "agent: tcp: %v\n", err)
		return ExitFailed
	}
	return ExitOK
}

// leave writes the record of a stream of TCP.
func (h *host) leave(i int, started time.Time, t *scenario.Traffic, n int64, took time.Duration) error {
	goodput := float64(n) * 8 / took.Seconds()
	rec := &record.Record{
		Schema: record.Schema, Started: started, Seed: h.Seed, Config: record.Config{Test: t.Test, CC: "cubic"},
		Runs: []record.Run{{Size: tcpWrite, Bytes: n, DurationNS: int64(took), GoodputBPS: &goodput}}, OK: true,
	}
	f, err := os.Create(filepath.Join(h.Out, strconv.Itoa(i)+".json"))
	if err != nil {
		return err
	}
	return errors.Join(rec.Write(f), f.Close())
}
