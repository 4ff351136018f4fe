//go:build unix

package mp_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
)

// rankEnv tells the test binary that it is a rank of TestKilledProcess: rank, root.
const rankEnv = "MP_TEST_KILL"

// TestKilledRank is a rank of TestKilledProcess.
func TestKilledRank(t *testing.T) {
	at := strings.Fields(os.Getenv(rankEnv))
	if len(at) != 2 {
		t.Skip("not a rank of TestKilledProcess")
	}
	rank, err := strconv.Atoi(at[0])
	if err != nil {
		t.Fatal(err)
	}
	c := fast
	c.Rank, c.Size, c.Root, c.Address, c.Timeout = rank, 4, at[1], "127.0.0.1", 20*time.Second
	w, err := mp.Init(limit(t), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx := limit(t)
	x := make([]float64, 20_000)
	for i := 0; ; i++ {
		if err = mp.Allreduce(ctx, w.World(), x, x, mp.Sum); err != nil {
			break
		}
		if i == 20 {
			fmt.Println("RUNNING")
		}
	}
	var f *mp.ErrPeerFailed
	if !errors.As(err, &f) {
		t.Fatalf("rank %d: %v", rank, err)
	}
	fmt.Printf("FAILED %d %s\n", f.Rank, f.Host)
}

// A process that is killed in the midst of collectives ends them at all others, which name it
// and its host.
func TestKilledProcess(t *testing.T) {
	const p, killed = 4, 2
	root := port(t)
	type line struct {
		rank int
		text string
	}
	lines := make(chan line, 100)
	cmds := make([]*exec.Cmd, p)
	for r := range p {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledRank$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", rankEnv, r, root))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = cmd
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		go func() {
			s := bufio.NewScanner(out)
			for s.Scan() {
				lines <- line{r, s.Text()}
			}
			lines <- line{r, "EOF"}
		}()
	}
	running, failed, over := 0, 0, 0
	limit := time.After(50 * time.Second)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for over < p {
		select {
		case l := <-lines:
			switch {
			case l.text == "RUNNING":
				if running++; running == p {
					if err := cmds[killed].Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			case strings.HasPrefix(l.text, "FAILED"):
				if failed++; l.text != fmt.Sprintf("FAILED %d %s", killed, host) {
					t.Errorf("rank %d: %s", l.rank, l.text)
				}
			case l.text == "EOF":
				over++
			case l.text != "PASS" && l.rank != killed:
				t.Logf("rank %d: %s", l.rank, l.text)
			}
		case <-limit:
			t.Fatalf("%d run, %d found the dead one", running, failed)
		}
	}
	if failed != p-1 {
		t.Errorf("%d ranks found the dead one, want %d", failed, p-1)
	}
}
