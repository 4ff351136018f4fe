package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/uet"
)

// F33: a cluster key is changed while messages flow, and none is lost.
func TestRotateWhileRunning(t *testing.T) {
	t.Parallel()
	folder := newKeys(t)
	s := newServer(t, "--keys", folder)
	file := t.TempDir() + "/r.json"
	c := runClient(t, intervals, "bw", s.addr, "--sec", "psk", "--keys", folder, "-s", "64K", "-t", "12s", "-w", "1", "-i", "100ms", "-c", "-W", "8", "-J", file)
	key := filepath.Join(folder, "cluster.key")
	seen := watchReadings(t, key)
	for range 3 {
		if _, err := keys.Rotate(folder); err != nil {
			t.Fatal(err)
		}
		seen.wait(2)
		// When a host reads again, it has applied what it read before.
		same, err := uet.ReadClusterKey(key)
		if err == nil {
			err = uet.WriteClusterKey(key, same...)
		}
		if err != nil {
			t.Fatal(err)
		}
		seen.wait(2)
	}
	if code := c.code(t); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
	r := recordIn(t, file)
	if run := r.Runs[0]; run.DataCheck.Wrong != 0 || *run.Lost != 0 || run.Transport.Drops["auth"] != 0 {
		t.Errorf("%+v", run)
	}
	if out, err := uetperf("lat", s.addr, "--sec", "psk", "--keys", folder, "-s", "8", "-n", "10").CombinedOutput(); err != nil {
		t.Errorf("with the new key: %v: %s", err, out)
	}
}

// readings notices that other processes read a file. Hosts look at their files now and
// then, and nothing else shows that they did.
type readings struct {
	t    *testing.T
	file *os.File // inotify on the folder
	name string
	buf  [4096]byte
	rest []byte
}

func watchReadings(t *testing.T, path string) *readings {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	r := &readings{t: t, file: os.NewFile(uintptr(fd), "inotify"), name: filepath.Base(path)}
	t.Cleanup(func() { _ = r.file.Close() })
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_CLOSE_NOWRITE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait waits until the file was replaced and n processes have read it since.
func (r *readings) wait(n int) {
	r.t.Helper()
	for mask := uint32(0); mask&unix.IN_MOVED_TO == 0; mask = r.next() {
	}
	for n > 0 {
		if r.next()&unix.IN_CLOSE_NOWRITE != 0 {
			n--
		}
	}
}

// next returns the next event of the file.
func (r *readings) next() (mask uint32) {
	r.t.Helper()
	for {
		if len(r.rest) == 0 {
			_ = r.file.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, err := r.file.Read(r.buf[:])
			if err != nil {
				r.t.Fatalf("nobody reads %s: %v", r.name, err)
			}
			r.rest = r.buf[:n]
		}
		mask, end := binary.NativeEndian.Uint32(r.rest[4:]), unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(r.rest[12:])
		name := bytes.TrimRight(r.rest[unix.SizeofInotifyEvent:end], "\x00")
		if r.rest = r.rest[end:]; string(name) == r.name {
			return mask
		}
	}
}
