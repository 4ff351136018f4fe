//go:build linux

package boot

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurmConf describes four nodes on this host that nothing but the test knows.
const slurmConf = `
ClusterName=boot
SlurmctldHost=%[2]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.sock
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool.%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.%%n.pid
MpiDefault=none
MpiParams=ports=21200-21299
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=boot0 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=%[4]d CPUs=8 State=UNKNOWN
NodeName=boot1 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=%[5]d CPUs=8 State=UNKNOWN
NodeName=boot2 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=%[6]d CPUs=8 State=UNKNOWN
NodeName=boot3 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=%[7]d CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
`

// slurmUp starts a Slurm of its own and waits until its nodes are idle. It returns the
// variable that leads the commands to it.
func slurmUp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm") // not t.TempDir: munged wants its socket in a folder that all may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var (
		ports     []any
		listeners []net.Listener // all open at once, so that the ports differ
	)
	for range 5 {
		ln, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	for _, ln := range listeners {
		ln.Close()
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 1024)
	rand.Read(key)
	conf := filepath.Join(dir, "slurm.conf")
	for name, content := range map[string][]byte{
		"key":        key,
		"slurm.conf": fmt.Appendf(nil, slurmConf, append([]any{dir, host}, ports...)...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"state", "spool.boot0", "spool.boot1", "spool.boot2", "spool.boot3"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	daemon := func(args ...string) {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = 5 * time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
			defer kill.Stop()
			cmd.Wait()
			if t.Failed() {
				t.Logf("%v said:\n%s", args, &out)
			}
		})
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	sock := in("munge.sock")
	daemon("munged", "-F", "--key-file="+in("key"), "--socket="+sock, "--pid-file="+in("munged.pid"), "--log-file="+in("munged.log"), "--seed-file="+in("seed"))
	waitFor(t, "munged", func() bool { _, err := os.Stat(sock); return err == nil })
	daemon("slurmctld", "-D", "-f", conf)
	for i := range 4 {
		daemon("slurmd", "-D", "-N", fmt.Sprintf("boot%d", i), "-f", conf)
	}
	waitFor(t, "four idle nodes", func() bool {
		cmd := exec.Command("sinfo", "-h", "-N", "-o", "%T")
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.Output()
		return err == nil && strings.Count(string(out), "idle\n") == 4
	})
	return "SLURM_CONF=" + conf
}

// waitFor asks until it is so.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(end) {
			t.Fatalf("no %s after 30 s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestSlurm(t *testing.T) {
	if os.Getenv("UETKIT_LAUNCHERS") == "" {
		t.Skip("UETKIT_LAUNCHERS is not set: it starts daemons as root")
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s: apt-get install slurm-wlm munge", name)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("its daemons need root")
	}
	conf := slurmUp(t)
	exe := trial(t, "")
	abort := "mp: rank 2 of 4 aborts the job: as it was told"
	for _, c := range []struct {
		launched
		launcher string
	}{
		{launched{name: "pmi2", args: []string{"-N4", "--mpi=pmi2"}, n: 8}, "PMI-1"},
		{launched{name: "pmi2 on one node", args: []string{"-N1", "--mpi=pmi2"}, n: 4}, "PMI-1"},
		{launched{name: "abort", args: []string{"-N4", "--mpi=pmi2"}, what: []string{"abort", "2"}, n: 4, code: -1, says: abort}, "PMI-1"},
		{launched{
			name: "one that does not come", env: []string{"MP_TIMEOUT=1s"}, args: []string{"-N4", "--mpi=pmi2", "--kill-on-bad-exit=1"},
			what: []string{"missing", "2"}, n: 4, code: -1, says: "not all 4 ranks have come",
		}, "PMI-1"},
		{launched{name: "one without a plugin", args: []string{"--mpi=none"}, n: 1}, "Slurm"},
		{launched{
			name: "a host that has no address", env: []string{"MP_TIMEOUT=1s"}, args: []string{"-N4", "--mpi=none", "--kill-on-bad-exit=1"},
			n: 4, code: -1, says: "boot: root boot0:212",
		}, "Slurm"},
		{launched{name: "with a root", env: []string{"MP_ROOT=" + freeRoot(t)}, args: []string{"-N4", "--mpi=none"}, n: 8}, "Slurm"},
		{launched{name: "with a reserved port", env: []string{"MP_ROOT=127.0.0.1", "MP_DEBUG=boot"}, args: []string{"-N4", "--mpi=none"}, n: 4, says: "root 127.0.0.1:212"}, "Slurm"},
		{launched{name: "abort with a root", env: []string{"MP_ROOT=" + freeRoot(t)}, args: []string{"-N4", "--mpi=none"}, what: []string{"abort", "2"}, n: 4, code: 3, says: abort}, "Slurm"},
	} {
		c.env = append(c.env, conf)
		t.Run(c.name, func(t *testing.T) { c.run(t, c.launcher, exe, []string{"srun"}) })
	}
	// The shell of a job is no rank.
	t.Run("salloc", func(t *testing.T) {
		code, stdout, stderr := launch(t, []string{conf}, "salloc", "-N2", "-n4", exe)
		if code != 0 || !strings.HasPrefix(stdout, "rank 0 of 1 by none: ok") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
	})
	t.Run("pmix", func(t *testing.T) {
		launched{env: []string{conf}, args: []string{"-N1", "--mpi=pmix"}, n: 4}.run(t, "PMIx", trial(t, "pmix"), []string{"srun"})
	})
}
