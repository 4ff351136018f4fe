package mp

import (
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestLocalSize(t *testing.T) {
	// A launcher that says that all ranks are on this host is believed; variables that a shell has
	// inherited of another step are not.
	for _, c := range []struct {
		name string
		env  map[string]string
		rank int
		want int
	}{
		{"nothing", nil, 0, 0},
		{"Hydra", map[string]string{"MPI_LOCALNRANKS": "4"}, 3, 4},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 1, 2},
		{"Slurm, one node", map[string]string{"SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, 2, 4},
		{"Slurm, two nodes", map[string]string{"SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, 2, 0},
		{"another rank of Slurm", map[string]string{"SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, 2, 0},
		{"no number", map[string]string{"MPI_LOCALNRANKS": "x"}, 0, 0},
	} {
		if got := localSize(func(k string) string { return c.env[k] }, c.rank); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPatience(t *testing.T) {
	// Ranks that a launcher started poll for long where they outnumber the processors of the
	// host, not those that they are bound to. Ranks of one process then do not poll.
	procs, mine := hostProcessors(), runtime.NumCPU()
	started := func(n int) Config {
		return Config{Env: func(k string) string {
			if k == "MPI_LOCALNRANKS" {
				return strconv.Itoa(n)
			}
			return ""
		}}
	}
	inside := Config{Exchange: alone{}, Address: "127.0.0.1", Env: func(string) string { return "" }}
	for _, c := range []struct {
		name string
		cfg  Config
		size int
		want time.Duration
	}{
		{"one for each processor", started(procs), procs, 0},
		{"one more", started(procs + 1), procs + 1, patience},
		{"those on this host count", started(procs), 2 * procs, 0},
		{"goroutines, one for each processor", inside, mine, 0},
		{"goroutines, one more", inside, mine + 1, -1},
	} {
		w := &World{cfg: c.cfg, size: c.size}
		w.place()
		if w.spin != c.want {
			t.Errorf("%s: polls for %v, want %v", c.name, w.spin, c.want)
		}
	}
	if procs < mine {
		t.Errorf("the host has %d processors, this process %d", procs, mine)
	}
}

// alone is an Exchange that does nothing.
type alone struct{ Exchange }

func TestProcessors(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-1\n": 2, "0-3,6,8-9": 7, "": 0, "x": 0, "3-1": 0, "0-": 0, "-1": 0} {
		if got := processors(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	// A rank uses one processor where ranks outnumber them, unless somebody has chosen.
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	mine := runtime.NumCPU()
	for _, c := range []struct {
		name     string
		spin     time.Duration
		env      string
		set, get int
	}{
		{"ranks outnumber processors", patience, "", mine, 1},
		{"they do not", 0, "", mine, mine},
		{"ranks are goroutines", -1, "", mine, mine},
		{"GOMAXPROCS is set", patience, "7", mine, mine},
		{"the program has chosen", patience, "", mine + 1, mine + 1},
	} {
		runtime.GOMAXPROCS(c.set)
		w := &World{spin: c.spin, cfg: Config{Env: func(k string) string {
			if k == "GOMAXPROCS" {
				return c.env
			}
			return ""
		}}}
		w.share()
		if got := runtime.GOMAXPROCS(0); got != c.get {
			t.Errorf("%s: %d, want %d", c.name, got, c.get)
		}
	}
}
