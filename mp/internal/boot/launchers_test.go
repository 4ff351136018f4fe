package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Real launchers start trial: those that are installed. The step "launchers" of .ci/run
// installs them and wants no test skipped.

// trial builds the program once for all launchers of a test, without cgo. With the tag pmix
// it imports mp/pmix.
func trial(t *testing.T, tags string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "trial"+tags)
	cmd := exec.Command("go", "build", "-tags", tags, "-o", exe, "./trial")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// launch runs a launcher and returns its exit code and what came out.
func launch(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	code, stdout, stderr, err := start(t, time.Minute, env, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, stdout, stderr)
	}
	return code, stdout, stderr
}

// start is launch for a launcher that may not end or may crash: the error says so.
func start(t *testing.T, limit time.Duration, env []string, args ...string) (code int, stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	switch {
	case ctx.Err() != nil, cmd.ProcessState == nil:
	case cmd.ProcessState.ExitCode() < 0: // a signal
		code = -1
	default:
		code, err = cmd.ProcessState.ExitCode(), nil
	}
	return code, out.String(), errs.String(), err
}

// A launched is what one run of trial is to give.
type launched struct {
	name string
	env  []string
	args []string // of the launcher
	what []string // of trial
	n    int      // ranks
	code int      // -1: any but 0
	// says must occur in what comes out on the standard error, notSays must not.
	says, notSays string
	// tries is how often the launcher itself may fail, by a crash or by not ending in 15 s.
	tries int
}

func (c launched) run(t *testing.T, launcher, exe string, args []string) {
	line := slices.Concat(args, c.args, []string{"-n", fmt.Sprint(c.n), exe}, c.what)
	var code int
	var stdout, stderr string
	err := errors.New("not tried")
	for try := 1; err != nil && try < c.tries; try++ {
		if code, stdout, stderr, err = start(t, 15*time.Second, c.env, line...); err != nil {
			t.Logf("try %d: %v", try, err)
		}
	}
	if err != nil {
		code, stdout, stderr = launch(t, c.env, line...)
	}
	if code != c.code && (c.code != -1 || code == 0) {
		t.Errorf("exit %d, want %d", code, c.code)
	}
	if !strings.Contains(stderr, c.says) {
		t.Errorf("it does not say %q", c.says)
	}
	if c.notSays != "" && strings.Contains(stderr, c.notSays) {
		t.Errorf("it says %q", c.notSays)
	}
	if c.code == 0 {
		want := map[string]bool{}
		for rank := range c.n {
			want[fmt.Sprintf("rank %d of %d by %s: ok", rank, c.n, launcher)] = true
		}
		for _, line := range regexp.MustCompile(`rank \d+ of \d+ by .*: ok`).FindAllString(stdout, -1) {
			if !want[line] {
				t.Errorf("unexpected: %s", line)
			}
			delete(want, line)
		}
		for line := range want {
			t.Errorf("missing: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("standard output:\n%sstandard error:\n%s", stdout, stderr)
	}
}

func TestHydra(t *testing.T) {
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skip("no mpiexec.hydra: apt-get install mpich")
	}
	exe := trial(t, "")
	hostsFile := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hostsFile, []byte("127.0.0.1\n127.0.0.2\n127.0.0.3\n127.0.0.4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxies := []string{"-launcher", "fork", "-f", hostsFile}
	for _, c := range []launched{
		{name: "one", n: 1},
		{name: "one proxy", n: 8},
		{name: "four proxies", args: proxies, n: 8},
		{name: "by port", args: []string{"-pmi-port"}, n: 4},
		{name: "said", env: []string{"MP_DEBUG=boot"}, n: 2, says: "mp boot: took PMI-1: rank 1 of 2, job kvs_"},
		{name: "abort", what: []string{"abort", "2"}, n: 4, code: 3, says: "mp: rank 2 of 4 aborts the job: as it was told"},
		{name: "abort of many proxies", args: proxies, what: []string{"abort", "2"}, n: 4, code: 3, says: "mp: rank 2 of 4 aborts the job: as it was told"},
		{name: "one that does not come", env: []string{"MP_TIMEOUT=1s"}, what: []string{"missing", "2"}, n: 4, code: -1, says: "not all 4 ranks have come"},
		{
			name: "one of many proxies that does not come", env: []string{"MP_TIMEOUT=1s"}, args: proxies, what: []string{"missing", "2"}, n: 4, code: -1,
			says: "1 of 4 ranks are missing, or wait on the host of one that is: 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, "PMI-1", exe, []string{hydra}) })
	}
}

func TestOpenMPI(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skip("no mpirun.openmpi: apt-get install openmpi-bin")
	}
	exe := trial(t, "")
	args := []string{mpirun, "--allow-run-as-root", "--oversubscribe"}
	root := func() []string { return []string{"-x", "MP_ROOT=" + freeRoot(t)} }
	for _, c := range []launched{
		{name: "one", n: 1},
		{name: "with a root", args: root(), n: 8},
		{name: "without", n: 2, code: -1, says: "Open MPI's environment names no host of rank 0"},
		{name: "abort", args: root(), what: []string{"abort", "2"}, n: 4, code: 3, says: "mp: rank 2 of 4 aborts the job: as it was told"},
		{name: "one that does not come", args: append(root(), "-x", "MP_TIMEOUT=2s"), what: []string{"missing", "2"}, n: 4, code: -1, says: "4 ranks are missing: "},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, "Open MPI", exe, args) })
	}
}

// Open MPI again, through the library.
func TestPMIx(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skip("no mpirun.openmpi: apt-get install openmpi-bin libpmix2")
	}
	exe := trial(t, "pmix")
	args := []string{mpirun, "--allow-run-as-root", "--oversubscribe"}
	for _, c := range []launched{
		{name: "one", n: 1},
		{name: "many", n: 8},
		{name: "abort", what: []string{"abort", "2"}, n: 4, code: 3, says: "mp: rank 2 of 4 aborts the job: as it was told"},
		{
			// mpirun of Open MPI 4 hangs or crashes in one of ten such runs on a busy host: when
			// ranks end, by an abort or not, while it holds a fence.
			name: "one that does not come", args: []string{"-x", "MP_TIMEOUT=1s"}, what: []string{"missing", "2"}, n: 4, code: -1,
			says: "not all 4 ranks have come", tries: 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, "PMIx", exe, args) })
	}
	// A server that has gone.
	code, _, stderr := launch(t, []string{"PMIX_RANK=0", "PMIX_NAMESPACE=x.1", "PMIX_SERVER_URI41=x.0;tcp4://127.0.0.1:9"}, exe)
	if code != 1 || !strings.Contains(stderr, "pmix: PMIx_Init: ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
