package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// network is how worlds reach each other; tests replace parts of it.
type network struct {
	listen func(ctx context.Context, addr string) (net.Listener, error)
	dial   func(ctx context.Context, addr string) (net.Conn, error)
	tick   time.Duration // between two messages about a wait
	host   string        // this host's name
	pmix   Connector     // instead of the one that is registered
}

func (n *network) complete() {
	if n.listen == nil {
		n.listen = func(ctx context.Context, addr string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", addr)
		}
	}
	if n.dial == nil {
		n.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if n.tick == 0 {
		n.tick = time.Second
	}
	if n.host == "" {
		n.host, _ = os.Hostname()
	}
}

// A claim is what one source says of this process.
type claim struct {
	launcher   string
	rank, size int
	job        string
	root       string // where rank 0 listens
	conn       func(ctx context.Context, f *finder, w *World) (service, error)
}

func (c *claim) detail(job string) string {
	s := ""
	if job != "" {
		s += ", job " + job
	}
	if c.root != "" && c.size > 1 {
		s += ", root " + c.root
	}
	return s
}

// connect gives w its service.
func (c *claim) connect(ctx context.Context, f *finder, w *World) (err error) {
	switch {
	case c.conn != nil:
		w.svc, err = c.conn(ctx, f, w)
	case c.size == 1:
		w.svc = alone{}
	case c.rank == 0:
		w.svc, err = listenRoot(ctx, f, c, w)
	default:
		w.svc = newMember(f, c, w)
	}
	return err
}

// A source is a way to be launched.
type source struct {
	name string
	vars []string // what of the environment belongs to it
	// find returns nil and a reason if this process was not launched so.
	find func(*finder) (*claim, string, error)
}

// sources are in the order in which they win.
var sources = []source{
	{"explicit", []string{"MP_RANK", "MP_SIZE", "MP_ROOT", "MP_JOB"}, explicit},
	{"PMI-1", []string{"PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE"}, pmi1},
	{"PMIx", []string{"PMIX_RANK", "PMIX_NAMESPACE"}, pmix},
	{"Open MPI", []string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, openMPI},
	{"Slurm", []string{"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_RESV_PORTS"}, slurm},
	{"Kubernetes", []string{"JOB_COMPLETION_INDEX"}, kubernetes},
	{"torchrun", []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, torchrun},
}

// A finder goes through the sources for one world.
type finder struct {
	Options
	log *logger
}

// look returns the claim of the first source that has one.
func (f *finder) look() (*claim, error) {
	var taken *claim
	for _, s := range sources {
		var seen []string
		for _, v := range s.vars {
			if value := f.Env(v); value != "" {
				seen = append(seen, v+"="+clip(value))
			}
		}
		if len(seen) > 0 {
			f.log.printf("saw %s", strings.Join(seen, " "))
		}
		if taken != nil {
			if len(seen) > 0 {
				f.log.printf("ignored %s: %s comes first", s.name, taken.launcher)
			}
			continue
		}
		c, why, err := s.find(f)
		switch {
		case err != nil:
			return nil, err
		case c != nil:
			c.launcher = s.name
			taken = c
		case why != "" && (len(seen) > 0):
			f.log.printf("ignored %s: %s", s.name, why)
		}
	}
	if taken == nil {
		if size := f.Env("MP_SIZE"); size != "" && size != "1" {
			return nil, &ConfigError{What: "MP_SIZE", Value: size, Why: "nothing says which rank this is: set MP_RANK"}
		}
		taken = &claim{launcher: "none", size: 1}
	}
	switch {
	case f.Job != "":
		taken.job = f.Job
	case f.Env("MP_JOB") != "":
		taken.job = f.Env("MP_JOB")
	}
	return taken, nil
}

// rankSize reads two variables that must both be there and fit.
func (f *finder) rankSize(rankVar, sizeVar string) (rank, size int, err error) {
	if size, err = f.number(sizeVar, 1, MaxSize); err != nil {
		return 0, 0, err
	}
	if rank, err = f.number(rankVar, 0, MaxSize-1); err != nil {
		return 0, 0, err
	}
	if rank >= size {
		return 0, 0, &ConfigError{What: rankVar, Value: f.Env(rankVar), Why: fmt.Sprintf("no rank of a world of %s=%d", sizeVar, size)}
	}
	return rank, size, nil
}

func (f *finder) number(name string, from, to int) (int, error) {
	s := f.Env(name)
	if s == "" {
		return 0, &ConfigError{What: name, Why: "not set"}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < from || n > to {
		return 0, &ConfigError{What: name, Value: s, Why: fmt.Sprintf("no number from %d to %d", from, to)}
	}
	return n, nil
}

// has says whether all these variables have a value.
func (f *finder) has(names ...string) bool {
	for _, n := range names {
		if f.Env(n) == "" {
			return false
		}
	}
	return true
}

// rootOf returns where rank 0 listens: what the caller says, then MP_ROOT, then what the
// launcher knows. A part that is missing comes from the next.
func (f *finder) rootOf(size int, host, port, hint string) (string, error) {
	if size == 1 {
		return "", nil
	}
	what, s := "Options.Root", f.Root
	if s == "" {
		what, s = "MP_ROOT", f.Env("MP_ROOT")
	}
	if s != "" {
		h, p, err := splitRoot(s)
		if err != nil {
			return "", &ConfigError{What: what, Value: s, Why: err.Error()}
		}
		if h != "" {
			host = h
		}
		if p != "" {
			port = p
		} else if port == "" {
			port = strconv.Itoa(DefaultPort)
		}
	}
	if host == "" || port == "" {
		return "", &ConfigError{What: "MP_ROOT", Value: s, Why: "needed as HOST:PORT of rank 0: " + hint}
	}
	return net.JoinHostPort(host, port), nil
}

// splitRoot takes "host", "host:port", ":port", "[v6]:port" or "v6" apart.
func splitRoot(s string) (host, port string, err error) {
	if ip := net.ParseIP(strings.Trim(s, "[]")); ip != nil {
		return ip.String(), "", nil
	}
	host = s
	if strings.Contains(s, ":") {
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", "", errors.New("no HOST:PORT")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", "", errors.New("the port is no number from 1 to 65535")
		}
	}
	if strings.ContainsAny(host, " \t/[]@,") || host == "" && port == "" {
		return "", "", errors.New("no host name")
	}
	return host, port, nil
}

func explicit(f *finder) (*claim, string, error) {
	c := &claim{}
	var err error
	switch {
	case f.Size > 0:
		c.rank, c.size = f.Rank, f.Size
		if f.Rank < 0 || f.Rank >= f.Size || f.Size > MaxSize {
			return nil, "", &ConfigError{What: "Options.Rank", Value: strconv.Itoa(f.Rank), Why: fmt.Sprintf("no rank of a world of %d", f.Size)}
		}
	case f.Size < 0 || f.Rank != 0:
		return nil, "", &ConfigError{What: "Options.Size", Value: strconv.Itoa(f.Size), Why: fmt.Sprintf("rank %d needs the size of its world", f.Rank)}
	case f.has("MP_RANK"):
		if c.rank, c.size, err = f.rankSize("MP_RANK", "MP_SIZE"); err != nil {
			return nil, "", err
		}
	default:
		return nil, "without MP_RANK it says nothing of this process", nil
	}
	c.root, err = f.rootOf(c.size, "", "", "a rank that is set by hand needs it")
	return c, "", err
}

// registered is how mp/pmix connects, if it is imported.
var registered atomic.Pointer[Connector]

// A Connector reaches a PMIx server.
type Connector func(ctx context.Context) (Client, error)

// A Client is a PMIx client. One goroutine at a time uses it; Abort may be called beside another
// call.
type Client interface {
	Rank() int
	Size() int
	Job() string
	// Put stores a value under a key, and Fence waits until all ranks have fenced.
	Put(key, value string) error
	Fence() error
	// Get returns the value that a rank has put.
	Get(rank int, key string) (string, error)
	Finalize() error
	Abort(code int, why string)
}

// RegisterPMIx makes PMIx known. Package mp/pmix calls it when it is imported.
func RegisterPMIx(c Connector) { registered.Store(&c) }

func pmix(f *finder) (*claim, string, error) {
	if !f.has("PMIX_RANK", "PMIX_NAMESPACE") {
		return nil, "PMIX_RANK or PMIX_NAMESPACE is not set", nil
	}
	connect := f.net.pmix
	if c := registered.Load(); connect == nil && c != nil {
		connect = *c
	}
	if connect == nil {
		return nil, "the program does not import mp/pmix", nil
	}
	return &claim{conn: func(ctx context.Context, f *finder, w *World) (service, error) {
		return connectPMIx(ctx, connect, f, w)
	}}, "", nil
}

func openMPI(f *finder) (*claim, string, error) {
	if !f.has("OMPI_COMM_WORLD_RANK") && !f.has("OMPI_COMM_WORLD_SIZE") {
		return nil, "", nil
	}
	rank, size, err := f.rankSize("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	if err != nil {
		return nil, "", err
	}
	root, err := f.rootOf(size, "", "", "Open MPI's environment names no host of rank 0. "+
		"mpirun -x MP_ROOT=HOST:PORT sets it; a program that imports mp/pmix needs none")
	if err != nil {
		return nil, "", err
	}
	return &claim{rank: rank, size: size, job: f.Env("PMIX_NAMESPACE"), root: root}, "", nil
}

// slurm takes the variables of a step only. Those of a job are also in the shell of salloc and
// in the script of sbatch, where this process is no task.
func slurm(f *finder) (*claim, string, error) {
	if !f.has("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS") {
		return nil, "no step of srun, but the shell of a job", nil
	}
	rank, size, err := f.rankSize("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
	if err != nil {
		return nil, "", err
	}
	c := &claim{rank: rank, size: size, job: "slurm-" + f.Env("SLURM_JOB_ID") + "." + f.Env("SLURM_STEP_ID")}
	if size == 1 {
		return c, "", nil
	}
	host, port := "", ""
	if list := f.Env("SLURM_STEP_NODELIST"); list != "" {
		if host, err = firstHost(list); err != nil {
			return nil, "", &ConfigError{What: "SLURM_STEP_NODELIST", Value: list, Why: err.Error()}
		}
	}
	if ports := f.Env("SLURM_STEP_RESV_PORTS"); ports != "" {
		if port, err = firstPort(ports); err != nil {
			return nil, "", &ConfigError{What: "SLURM_STEP_RESV_PORTS", Value: ports, Why: err.Error()}
		}
	}
	c.root, err = f.rootOf(size, host, port, "srun reserved no port. srun --mpi=pmi2 needs neither, "+
		"MP_ROOT=:PORT takes the first host of the step")
	return c, "", err
}

// firstPort returns the first port of "12000-12003" or "12000,12005".
func firstPort(s string) (string, error) {
	first := strings.Trim(s, "[]")
	if i := strings.IndexAny(first, "-,"); i >= 0 {
		first = first[:i]
	}
	if n, err := strconv.Atoi(first); err != nil || n < 1 || n > 65535 {
		return "", errors.New("no port from 1 to 65535 comes first")
	}
	return first, nil
}

func kubernetes(f *finder) (*claim, string, error) {
	if !f.has("JOB_COMPLETION_INDEX") {
		return nil, "", nil
	}
	if !f.has("MP_SIZE") && !f.has("MP_ROOT") && f.Root == "" {
		return nil, "neither MP_SIZE nor MP_ROOT is set", nil
	}
	rank, size, err := f.rankSize("JOB_COMPLETION_INDEX", "MP_SIZE")
	if err != nil {
		return nil, "", err
	}
	root, err := f.rootOf(size, "", "", "the pod with index 0 behind its headless service, such as job-0.svc")
	if err != nil {
		return nil, "", err
	}
	// The host name of a pod of an Indexed Job is JOB-INDEX.
	job, _ := strings.CutSuffix(f.Env("HOSTNAME"), "-"+strconv.Itoa(rank))
	return &claim{rank: rank, size: size, job: job, root: root}, "", nil
}

func torchrun(f *finder) (*claim, string, error) {
	if !f.has("RANK", "WORLD_SIZE") {
		return nil, "it takes both RANK and WORLD_SIZE", nil
	}
	rank, size, err := f.rankSize("RANK", "WORLD_SIZE")
	if err != nil {
		return nil, "", err
	}
	root, err := f.rootOf(size, f.Env("MASTER_ADDR"), f.Env("MASTER_PORT"), "or MASTER_ADDR and MASTER_PORT")
	if err != nil {
		return nil, "", err
	}
	return &claim{rank: rank, size: size, job: f.Env("TORCHELASTIC_RUN_ID"), root: root}, "", nil
}
