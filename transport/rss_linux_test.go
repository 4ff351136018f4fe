package transport

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
)

// F22: with a memory limit of Go (GOMEMLIMIT) of what the process has without unexpected messages,
// plus UnexpectedBytes and a tenth, a flood of unexpected messages that fills the room never makes
// its resident memory grow by more. The process is one of its own, because the runtime counts all
// memory of one together.
func TestF22RSSWithinTheCap(t *testing.T) {
	if invariant.On {
		t.Skip("the race detector has its own memory")
	}
	const name, limit = "UETKIT_RSS_CHILD", 64 << 20
	if os.Getenv(name) == "" {
		c := exec.Command(os.Args[0], "-test.run", "^TestF22RSSWithinTheCap$", "-test.v")
		c.Env = append(os.Environ(), name+"=1")
		out, err := c.CombinedOutput()
		if t.Logf("%s", bytes.TrimSpace(out)); err != nil || !strings.Contains(string(out), "grew by") {
			t.Errorf("the process that was flooded: %v", err)
		}
		return
	}
	s := newStar(t, 4)
	rng := rand.New(rand.NewPCG(1, 22))
	buf := make([]byte, 1<<20)
	var to []PeerID
	for _, f := range s.leaf {
		if _, err := s.hub.Peer(f.cfg.Local, true); err != nil {
			t.Fatal(err)
		}
		id, _ := f.Peer(s.hub.cfg.Local, true)
		to = append(to, id)
	}
	// flood keeps sending until most bytes are kept, or for long no room was found.
	flood := func(most int64) {
		for full := 0; full < 50 && s.hub.Load().UnexpectedBytes < most; {
			n := s.hub.Stats().Refused
			for i, f := range s.leaf {
				_ = f.Post(s.now, &Op{Kind: OpSend, Peer: to[i], RI: 15, Buf: buf[:1<<(8+rng.IntN(13))*(1+rng.IntN(4))/4]})
			}
			s.exchange()
			s.rest()
			if s.hub.Stats().Refused > n {
				full++
			}
			s.now += time.Millisecond
		}
	}
	flood(1 << 20) // the senders have their memory
	debug.FreeOSMemory()
	before := rss(t)
	debug.SetMemoryLimit(before + limit*11/10)
	flood(1 << 40)
	grown := rss(t) - before
	l := s.hub.Load()
	t.Logf("%d messages of %d KiB are kept, resident memory grew by %d KiB", l.Unexpected, l.UnexpectedBytes>>10, grown>>10)
	if l.UnexpectedBytes < limit*8/10 {
		t.Error("the endpoint is not full: the test does not test")
	}
	if grown > limit*11/10 {
		t.Errorf("resident memory grew by %d KiB, the cap is %d", grown>>10, limit>>10)
	}
}

// rss is the resident memory of the process, in bytes.
func rss(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no VmRSS in %s", b)
	return 0
}
