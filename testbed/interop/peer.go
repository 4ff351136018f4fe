package main

import (
	"bufio"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed peer/*.py
var source embed.FS

// python is the interpreter that has Debian's modules.
const python = "/usr/bin/python3"

// errTools says that the peer cannot run here.
var errTools = errors.New("the peer needs " + python + " 3.11 with the Debian packages python3-cryptography and python3-crcmod")

// tools checks that the peer can run.
func tools() error {
	out, err := exec.Command(python, "-c", "import sys, cryptography, crcmod; assert sys.version_info >= (3, 11)").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", errTools, lastLine(out))
	}
	return nil
}

func lastLine(b []byte) string {
	lines := []rune(string(b))
	end := len(lines)
	for end > 0 && lines[end-1] == '\n' {
		end--
	}
	start := end
	for start > 0 && lines[start-1] != '\n' {
		start--
	}
	return string(lines[start:end])
}

// unpack writes the peer's program to a folder.
func unpack(dir string) error {
	return fs.WalkDir(source, "peer", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := source.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o644)
	})
}

// args is a command to the peer.
type args map[string]any

// An event is what the peer says happened.
type event struct {
	Ev, ID, What, Command, Why string

	IP   string
	Port uint16
	EVs  []uint16

	Ctx       int
	OK        bool
	RC        *int
	Nack      *int
	Len       int
	MsgLen    int
	Tag       uint64
	Data      *uint64
	Initiator uint32
	Guard     bool
	SHA256    string
	List      int
	Retries   int
	Target    bool
	Ordered   bool
	Value     uint64
	Hex       string

	Code    int
	Psn     uint32
	Spdcid  int
	Dpdcid  int
	Payload uint32
	NextHdr int `json:"next_hdr"`
	Ctl     int
	Start   uint32
	Flags   int
	Opaque  int
	EVPort  uint16 `json:"ev_port"`
	Pdcid   int

	PDCs, Undelivered, Posted, Lost int

	all map[string]any // of "stats", each counter by its name
}

// count is a counter of a "stats" event.
func (e event) count(name string) int {
	v, _ := e.all[name].(float64)
	return int(v)
}

// A peer is a process of the other implementation.
type peer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan event // closed at its end
	stderr *tail
}

// startPeer starts a peer in the folder that unpack filled.
func startPeer(dir string) (*peer, error) {
	p := &peer{cmd: exec.Command(python, filepath.Join(dir, "peer.py")), events: make(chan event, 4096), stderr: &tail{}}
	p.cmd.Stderr = p.stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	return p, nil
}

func (p *peer) read(out io.Reader) {
	defer close(p.events)
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			e = event{Ev: "error", What: err.Error(), Command: s.Text()}
		}
		if e.Ev == "stats" {
			_ = json.Unmarshal(s.Bytes(), &e.all)
		}
		p.events <- e
	}
}

// do gives the peer a command.
func (p *peer) do(what, id string, a args) error {
	c := args{"do": what, "id": id}
	for k, v := range a {
		c[k] = v
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err = p.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("the peer is gone: %w; it said: %s", err, p.stderr)
	}
	return nil
}

// stop ends the process and waits for its end.
func (p *peer) stop() error {
	_ = p.do("quit", "", nil)
	_ = p.in.Close()
	late := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for range p.events { // until it has closed its output
	}
	return p.cmd.Wait()
}

// A tail keeps the end of what was written to it.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > 4096 {
		t.b = t.b[len(t.b)-4096:]
	}
	return len(b), nil
}

func (t *tail) String() string { return string(t.b) }
