package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// look is what Find makes of an environment before it connects.
func look(o Options) (*claim, string, error) {
	debug := newRecord()
	o.Debug = debug
	if err := o.complete(); err != nil {
		return nil, "", err
	}
	f := &finder{Options: o, log: &logger{w: o.Debug}}
	c, err := f.look()
	return c, debug.String(), err
}

func TestSources(t *testing.T) {
	slurmStep := []string{
		"SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=16",
		"SLURM_STEP_NODELIST=rack[03-05]n[7,9],x", "SLURM_STEP_RESV_PORTS=12000-12003",
	}
	ompi := []string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "PMIX_NAMESPACE=prte-1"}
	torch := []string{"RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=a.b", "MASTER_PORT=29500"}
	k8s := []string{"JOB_COMPLETION_INDEX=3", "MP_SIZE=4", "MP_ROOT=job-0.svc", "HOSTNAME=job-3"}
	pmi := []string{"PMI_FD=9", "PMI_RANK=6", "PMI_SIZE=7"}
	for _, c := range []struct {
		name string
		o    Options
		env  []string
		want string // launcher rank/size job root
		says string // in the debug lines
	}{
		{"none", Options{}, nil, "none 0/1  ", ""},
		{"options", Options{Rank: 2, Size: 3, Root: "h:5", Job: "j"}, pmi, "explicit 2/3 j h:5", "ignored PMI-1: explicit comes first"},
		{"options of one", Options{Size: 1}, pmi, "explicit 0/1  ", ""},
		{"variables", Options{}, append([]string{"MP_RANK=1", "MP_SIZE=2", "MP_ROOT=[::1]:77", "MP_JOB=j"}, pmi...), "explicit 1/2 j [::1]:77", "saw MP_RANK=1 MP_SIZE=2 MP_ROOT=[::1]:77 MP_JOB=j"},
		{"address without port", Options{Rank: 1, Size: 2, Root: "fe80::1"}, nil, "explicit 1/2  [fe80::1]:4793", ""},
		{"pmi", Options{}, append(append([]string{}, pmi...), ompi...), "PMI-1 6/7  ", "ignored Open MPI: PMI-1 comes first"},
		{"ompi", Options{Root: "h:1"}, append(append([]string{}, ompi...), slurmStep...), "Open MPI 1/3 prte-1 h:1", "ignored Slurm: Open MPI comes first"},
		{"ompi of one", Options{}, []string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, "Open MPI 0/1  ", ""},
		{"pmix without its package", Options{}, append([]string{"PMIX_RANK=1", "MP_ROOT=h:1"}, ompi...), "Open MPI 1/3 prte-1 h:1", "ignored PMIx: the program does not import mp/pmix"},
		{"slurm", Options{}, append(append([]string{}, slurmStep...), torch...), "Slurm 2/4 slurm-17.0 rack03n7:12000", "ignored torchrun: Slurm comes first"},
		{"slurm with a port", Options{}, append([]string{"MP_ROOT=:99"}, slurmStep...), "Slurm 2/4 slurm-17.0 rack03n7:99", ""},
		{"slurm with a root", Options{}, append([]string{"MP_ROOT=head"}, slurmStep...), "Slurm 2/4 slurm-17.0 head:12000", ""},
		{"the shell of salloc", Options{}, []string{"SLURM_JOB_ID=17", "SLURM_NTASKS=4", "SLURM_NODELIST=n[0-3]"}, "none 0/1  ", "ignored Slurm: no step of srun, but the shell of a job"},
		{"the script of sbatch", Options{}, []string{"SLURM_JOB_ID=17", "SLURM_NTASKS=4", "SLURM_PROCID=0"}, "none 0/1  ", "ignored Slurm"},
		{"an interactive step", Options{}, []string{"SLURM_JOB_ID=17", "SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1"}, "Slurm 0/1 slurm-17.4294967290 ", ""},
		{"kubernetes", Options{}, append(append([]string{}, k8s...), torch...), "Kubernetes 3/4 job job-0.svc:4793", "ignored torchrun: Kubernetes comes first"},
		{"a job that is no world", Options{}, []string{"JOB_COMPLETION_INDEX=3"}, "none 0/1  ", "neither MP_SIZE nor MP_ROOT is set"},
		{"torchrun", Options{}, torch, "torchrun 5/8  a.b:29500", ""},
		{"RANK alone", Options{}, []string{"RANK=colonel"}, "none 0/1  ", "it takes both RANK and WORLD_SIZE"},
		{"size 1 alone", Options{}, []string{"MP_SIZE=1"}, "none 0/1  ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Env = env(c.env...)
			got, debug, err := look(c.o)
			if err != nil {
				t.Fatal(err)
			}
			if s := fmt.Sprintf("%s %d/%d %s %s", got.launcher, got.rank, got.size, got.job, got.root); s != c.want {
				t.Errorf("%s, want %s", s, c.want)
			}
			if !strings.Contains(debug, c.says) {
				t.Errorf("no %q in:\n%s", c.says, debug)
			}
		})
	}
}

func TestSourcesRefuse(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		env  string
		what string
		why  string
	}{
		{"rank without size", Options{Rank: 1}, "", "Options.Size", "needs the size"},
		{"negative size", Options{Size: -1}, "", "Options.Size", "needs the size"},
		{"rank of size", Options{Rank: 2, Size: 2}, "", "Options.Rank", "no rank of a world of 2"},
		{"negative rank", Options{Rank: -1, Size: 2}, "", "Options.Rank", "no rank"},
		{"negative timeout", Options{Timeout: -1}, "", "Options.Timeout", "negative"},
		{"no root", Options{Rank: 0, Size: 2}, "", "MP_ROOT", "needed as HOST:PORT"},
		{"bad root", Options{Rank: 0, Size: 2, Root: "a:b:c"}, "", "Options.Root", "no HOST:PORT"},
		{"bad port", Options{Rank: 0, Size: 2}, "MP_ROOT=a:99999", "MP_ROOT", "1 to 65535"},
		{"port 0", Options{Rank: 0, Size: 2}, "MP_ROOT=a:0", "MP_ROOT", "1 to 65535"},
		{"url", Options{Rank: 0, Size: 2}, "MP_ROOT=http://a", "MP_ROOT", "1 to 65535"},
		{"no host", Options{Rank: 0, Size: 2}, "MP_ROOT=:7", "MP_ROOT", "needed as HOST:PORT"},
		{"timeout", Options{}, "MP_TIMEOUT=soon", "MP_TIMEOUT", "no positive duration"},
		{"MP_RANK without MP_SIZE", Options{}, "MP_RANK=1", "MP_SIZE", "not set"},
		{"MP_SIZE alone", Options{}, "MP_SIZE=8", "MP_SIZE", "set MP_RANK"},
		{"huge size", Options{}, "MP_RANK=1 MP_SIZE=1048577", "MP_SIZE", "no number from 1"},
		{"ompi without root", Options{}, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "MP_ROOT", "names no host of rank 0"},
		{"ompi by half", Options{}, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE", "not set"},
		{"ompi rank", Options{}, "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK", "no rank"},
		{"slurm without port", Options{}, "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a", "MP_ROOT", "--mpi=pmi2"},
		{"slurm rank", Options{}, "SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a", "SLURM_PROCID", "no rank"},
		{"slurm hostlist", Options{}, "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a[1-", "SLURM_STEP_NODELIST", "not closed"},
		{"slurm ports", Options{}, "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a SLURM_STEP_RESV_PORTS=x", "SLURM_STEP_RESV_PORTS", "no port"},
		{"kubernetes without size", Options{}, "JOB_COMPLETION_INDEX=0 MP_ROOT=a", "MP_SIZE", "not set"},
		{"kubernetes without root", Options{}, "JOB_COMPLETION_INDEX=0 MP_SIZE=2", "MP_ROOT", "headless service"},
		{"kubernetes index", Options{}, "JOB_COMPLETION_INDEX=2 MP_SIZE=2 MP_ROOT=a", "JOB_COMPLETION_INDEX", "no rank"},
		{"torchrun without master", Options{}, "RANK=0 WORLD_SIZE=2", "MP_ROOT", "MASTER_ADDR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Env = env(strings.Fields(c.env)...)
			_, err := Find(testContext(t), c.o)
			if e := wantError[*ConfigError](t, err, c.why); e.What != c.what {
				t.Errorf("it names %s, want %s", e.What, c.what)
			}
		})
	}
}

// MP_DEBUG=boot without a writer goes to Stderr.
func TestDebugVariable(t *testing.T) {
	for value, want := range map[string]bool{"": false, "coll": false, "coll,boot": true} {
		stderr := newRecord()
		w, err := Find(testContext(t), Options{Env: env("MP_DEBUG=" + value), Stderr: stderr})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(stderr.String(), "mp boot: took none: rank 0 of 1"); got != want {
			t.Errorf("MP_DEBUG=%s writes %q", value, stderr)
		}
		w.Finalize(t.Context())
	}
}

func TestWorldOfOne(t *testing.T) {
	ctx := testContext(t)
	stderr, codes := newRecord(), []int{}
	w, err := Find(ctx, Options{Env: env(), Stderr: stderr, Exit: func(c int) { codes = append(codes, c) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Card(ctx, 0); err == nil {
		t.Error("a card before Put")
	}
	card := []byte("me")
	if err := w.Put(ctx, card); err != nil {
		t.Fatal(err)
	}
	card[0] = 'x' // it is the caller's again
	if got, err := w.Card(ctx, 0); err != nil || string(got) != "me" {
		t.Errorf("%q, %v", got, err)
	}
	for _, rank := range []int{-1, 1} {
		_, err := w.Card(ctx, rank)
		wantError[*ConfigError](t, err, "the world has 1")
	}
	w.Abort(0, "why")
	if len(codes) != 1 || codes[0] != 1 || stderr.String() != "mp: rank 0 of 1 aborts the job: why\n" {
		t.Errorf("exit %v, %q", codes, stderr)
	}
	if err := w.Finalize(ctx); err != nil {
		t.Error(err)
	}
	if err := w.Put(ctx, nil); !errors.Is(err, ErrFinalized) {
		t.Errorf("Put after Finalize: %v", err)
	}
}

// A name that leads nowhere yet is asked again.
func TestRootNameComesLate(t *testing.T) {
	addr := freeRoot(t)
	tries := 0
	run(t, 2, func(rank int) Options {
		o := Options{Rank: rank, Size: 2, Root: "job-0.svc:" + addr[strings.LastIndexByte(addr, ':')+1:], Env: env()}
		o.net.listen = func(ctx context.Context, _ string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", addr)
		}
		if rank == 1 {
			o.net.dial = func(ctx context.Context, name string) (net.Conn, error) {
				if tries++; tries < 4 {
					return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
				}
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}
		}
		return o
	})
	if tries != 4 {
		t.Errorf("%d tries", tries)
	}
}
