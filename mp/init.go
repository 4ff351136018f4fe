package mp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/mp/internal/boot"
	"github.com/uetkit/uetkit/uet"
)

// Config says what the caller knows. The zero Config finds all out.
type Config struct {
	// Rank and Size place this process. Size 0: the launcher says.
	Rank, Size int
	// Root is where rank 0 listens, where the launcher has no service: "host:port". Empty:
	// MP_ROOT, or what the launcher names.
	Root string
	// Job is the name of the job; a rank of another is refused. Empty: MP_JOB, or the
	// launcher's name.
	Job string
	// Exchange brings the cards of the ranks to each other. nil: the launcher, or the root,
	// does. With one, Rank and Size count.
	Exchange Exchange
	// Address is the local IP address, or a host that has it. Empty: MP_ADDRESS; else
	// 127.0.0.1 where the launcher says that all ranks are on this host; else that of the
	// first interface.
	Address string
	// Clear leaves messages in clear. Default: a world whose ranks may be on several hosts is
	// sealed with a random key, which rank 0 puts on its card. All ranks must agree.
	Clear bool
	// Endpoint holds the settings of the provider: bounds, times, a key of the program's own. Its JobID is
	// made of the random key of a sealed world, or of Job in clear, unless it is set.
	Endpoint uet.Config
	// Timeout bounds the meeting of the ranks and the reading of a card. 0: MP_TIMEOUT, or 2
	// minutes.
	Timeout time.Duration
	// Choose picks the algorithm of a collective, which must be the same at all ranks. nil is
	// Choice.
	Choose func(Call) Algorithm
	// Debug gets lines about what was found and chosen. nil: standard error, of what MP_DEBUG
	// lists: boot, coll.
	Debug io.Writer
	// Env reads the environment. nil: os.Getenv.
	Env func(string) string
}

// An Exchange brings cards from rank to rank before the first message.
type Exchange interface {
	// Put gives this process's card and returns when all ranks have given theirs.
	Put(ctx context.Context, card []byte) error
	// Card returns the card of a rank.
	Card(ctx context.Context, rank int) ([]byte, error)
	// Finalize says that this process ends in order.
	Finalize(ctx context.Context) error
	// Abort ends the job, this process included.
	Abort(code int, why string)
}

// Init joins a world: it finds out which rank of which world this process is, opens the
// endpoint and meets the other ranks.
func Init(ctx context.Context, cfg Config) (*World, error) {
	if cfg.Env == nil {
		cfg.Env = os.Getenv
	}
	if cfg.Choose == nil {
		cfg.Choose = Choice
	}
	if cfg.Timeout < 0 {
		return nil, &ErrArg{"Init", "timeout", cfg.Timeout, "negative"}
	}
	w := &World{cfg: cfg, rank: cfg.Rank, size: cfg.Size, job: cfg.Job, ex: cfg.Exchange, begun: time.Now(), most: uet.MaxMsgSize}
	if w.ex == nil {
		b, err := boot.Find(ctx, boot.Options{
			Rank: cfg.Rank, Size: cfg.Size, Root: cfg.Root, Job: cfg.Job, Env: cfg.Env, Timeout: cfg.Timeout, Debug: cfg.Debug,
		})
		if err != nil {
			return nil, fmt.Errorf("mp: init: %w", err)
		}
		w.rank, w.size, w.job, w.ex, w.launcher = b.Rank, b.Size, b.Job, b, b.Launcher
	}
	err := w.join(ctx)
	if err == nil {
		return w, nil
	}
	w.closed.Store(true)
	_ = w.shut()
	if w.cfg.Exchange == nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = w.ex.Finalize(end)
		cancel()
	}
	return nil, fmt.Errorf("mp: init: %w", err)
}

// join opens the endpoint and meets the others.
func (w *World) join(ctx context.Context) error {
	if w.size < 1 || w.size > MaxSize {
		return &ErrArg{"Init", "size", w.size, fmt.Sprintf("not 1 to %d", MaxSize)}
	}
	if w.rank < 0 || w.rank >= w.size {
		return &ErrArg{"Init", "rank", w.rank, fmt.Sprintf("the world has %d", w.size)}
	}
	if w.cfg.Timeout == 0 {
		w.cfg.Timeout = boot.DefaultTimeout
		if d, err := time.ParseDuration(w.cfg.Env("MP_TIMEOUT")); err == nil && d > 0 {
			w.cfg.Timeout = d
		}
	}
	if w.cfg.Debug == nil && slices.Contains(strings.Split(w.cfg.Env("MP_DEBUG"), ","), "coll") {
		w.cfg.Debug = os.Stderr
	}
	w.place()
	w.share()
	w.peers = make([]peer, w.size)
	w.comms = map[uint32]*Comm{}
	w.ids.init()
	w.world = w.newComm(0, nil, w.rank)
	if w.sealed {
		return w.joinSealed(ctx)
	}
	w.id = w.cfg.Endpoint.JobID
	if w.id == 0 && w.job != "" {
		w.cfg.Endpoint.JobID = jobID(fmt.Appendf(nil, "%d ranks of %s", w.size, w.job))
	}
	if err := w.open(0); err != nil {
		return err
	}
	name, err := w.ep.Name()
	if err != nil {
		return &ErrTransport{"name", err}
	}
	k := card{release: release, job: w.job, host: hostname(), addr: name.String(), sealed: "no", crc: w.crc(), id: w.id}
	return w.ex.Put(ctx, k.bytes())
}

// jobID makes a JobID of what all ranks of a world share and others do not have. A packet of another world, for a
// port that a rank here has taken over, has another one, and is refused.
func jobID(of []byte) uint32 {
	sum := sha256.Sum256(append([]byte("uetkit mp JobID "), of...))
	return max(binary.BigEndian.Uint32(sum[:])>>8, 2) // 0 is none, 1 that of endpoints which name none
}

// share makes a rank run on one processor at a time where ranks outnumber processors, as there is less
// than one for each: a second thread of a rank takes the processor from the other ranks, and holds locks
// while it waits for it (decision 42). What the program or its environment has set stays.
func (w *World) share() {
	if w.spin == patience && w.cfg.Env("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == runtime.NumCPU() {
		runtime.GOMAXPROCS(1)
	}
}

// patience is how long ranks that outnumber the processors of their host poll before they sleep,
// and yield between the polls. A wake-up takes 50 µs and a second thread; a step of a collective
// takes as long for each rank that shares the processor (decision 42).
const patience = 2 * time.Millisecond

// place decides about the address, whether the world is sealed, and how long waits poll: not
// at all where ranks are goroutines that outnumber processors, because a yield lets other
// processes run and not other goroutines.
func (w *World) place() {
	local := localSize(w.cfg.Env, w.rank)
	here := w.size == 1 || local == w.size
	if ip, err := netip.ParseAddr(w.cfg.Address); err == nil && ip.IsLoopback() {
		local = w.size
	}
	switch {
	case w.cfg.Exchange != nil:
		if local > runtime.NumCPU() {
			w.spin = -1
		}
	case local > hostProcessors():
		w.spin = patience
	}
	if w.cfg.Address == "" {
		w.cfg.Address = w.cfg.Env("MP_ADDRESS")
	}
	if w.cfg.Address == "" && here {
		w.cfg.Address = "127.0.0.1"
	}
	w.sealed = !w.cfg.Clear && !here && w.cfg.Exchange == nil && w.cfg.Endpoint.Security == nil
	// From a loopback address one reaches this host alone, and no wire that damages packets.
	ip, err := netip.ParseAddr(w.cfg.Address)
	w.oneHost = err == nil && ip.IsLoopback()
	if w.oneHost && !w.sealed && !w.cfg.Endpoint.Tuning.Trimming {
		w.cfg.Endpoint.NoCRC = true
	}
}

// localSize is how many ranks the launcher says that it started on this host, 0 if it does not
// say.
func localSize(env func(string) string, rank int) int {
	for _, name := range []string{"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"} {
		if n, err := strconv.Atoi(env(name)); err == nil {
			return n
		}
	}
	// Slurm says it of a step of one node. A shell may have inherited the variables of another step, in
	// which this process is another rank, or which has another size.
	if env("SLURM_STEP_NUM_NODES") == "1" && env("SLURM_PROCID") == strconv.Itoa(rank) {
		n, _ := strconv.Atoi(env("SLURM_STEP_NUM_TASKS"))
		return n
	}
	return 0
}

// hostProcessors is how many processors the host has, where the system says that: a launcher
// may have bound this process to some of them. Otherwise it is how many this process may use.
func hostProcessors() int {
	list, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	return max(runtime.NumCPU(), processors(string(list)))
}

// processors counts those of a list as 0-3,6. It is 0 if the list is none.
func processors(list string) (n int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || lo < 0 || hi < lo {
			return 0
		}
		n += hi - lo + 1
	}
	return n
}

// joinSealed is join of a world that is sealed. The key comes with the card of rank 0, and the
// own address must be on the own card before that. So the port is held first, and the endpoint
// opened on it when the key is here.
func (w *World) joinSealed(ctx context.Context) error {
	infos, err := uet.GetInfo(w.cfg.Address, "", fi.Source, &uet.Info{Config: w.cfg.Endpoint})
	if err != nil {
		return &ErrTransport{"address " + w.cfg.Address, err}
	}
	at := infos[0].SrcAddr
	free := func() {}
	if at.Port == 0 {
		c, err := portrange.Bind(portrange.Range(w.cfg.Endpoint.Socket.Ports), 0, func(port uint16) (*net.UDPConn, error) {
			return net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.IP, port)))
		})
		if err != nil {
			return &ErrTransport{"port", err}
		}
		free, at.Port = func() { _ = c.Close() }, c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	w.id = w.cfg.Endpoint.JobID
	k := card{release: release, job: w.job, host: hostname(), addr: at.String(), sealed: "yes", crc: w.crc(), id: w.id}
	key := uet.NewKey(1)
	if w.rank == 0 {
		k.key = key.Key[:]
	}
	err = w.ex.Put(ctx, k.bytes())
	if err == nil && w.rank != 0 {
		err = w.readKey(ctx, &key)
	}
	free()
	if err != nil {
		return err
	}
	if w.cfg.Endpoint.Security, err = uet.NewClusterKey(key); err != nil {
		return &ErrTransport{"key", err}
	}
	if w.id == 0 {
		w.cfg.Endpoint.JobID = jobID(key.Key[:])
	}
	w.cfg.Address = at.IP.String()
	return w.open(at.Port)
}

// readKey reads the key of the world from the card of rank 0.
func (w *World) readKey(ctx context.Context, key *uet.ClusterKey) error {
	raw, err := w.ex.Card(ctx, 0)
	if err != nil {
		return fmt.Errorf("the card of rank 0: %w", err)
	}
	k, err := parseCard(raw)
	if err == nil {
		err = k.fits(w)
	}
	if err == nil && len(k.key) != len(key.Key) {
		err = errors.New("it has no key")
	}
	if err != nil {
		return fmt.Errorf("the card of rank 0: %w", err)
	}
	copy(key.Key[:], k.key)
	return nil
}

// release names what ranks must have in common. It changes with the wire format of mp.
const release = "mp2"

// A card is what a rank says of itself before the first message: lines of a name and a value.
type card struct {
	release, job, host, addr string
	sealed, crc              string // yes or no
	key                      []byte // of the world, at rank 0
	id                       uint32 // the JobID that Config names, 0 if none
}

func (k *card) bytes() []byte {
	b := fmt.Appendf(nil, "release %s\njob %s\nhost %s\naddr %s\nsealed %s\ncrc %s\n", k.release, k.job, k.host, k.addr, k.sealed, k.crc)
	if k.id != 0 {
		b = fmt.Appendf(b, "jobid %d\n", k.id)
	}
	if k.key != nil {
		b = fmt.Appendf(b, "key %x\n", k.key)
	}
	return b
}

func parseCard(raw []byte) (*card, error) {
	k := &card{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch name {
		case "release":
			k.release = value
		case "job":
			k.job = value
		case "host":
			k.host = value
		case "addr":
			k.addr = value
		case "sealed":
			k.sealed = value
		case "crc":
			k.crc = value
		case "jobid":
			id, err := strconv.ParseUint(value, 10, 24)
			if err != nil {
				return nil, errors.New("its JobID is none")
			}
			k.id = uint32(id)
		case "key":
			key, err := hex.DecodeString(value)
			if err != nil {
				return nil, errors.New("its key is no number")
			}
			k.key = key
		}
	}
	if k.release == "" {
		return nil, fmt.Errorf("it is none: %.40q", raw)
	}
	return k, nil
}

// fits says why a rank does not belong to this world.
func (k *card) fits(w *World) error {
	mine := yes(w.sealed)
	switch {
	case k.release != release:
		return fmt.Errorf("host %s has release %s, this is %s", k.host, k.release, release)
	case k.job != w.job:
		return fmt.Errorf("host %s is of job %q, this is %q", k.host, k.job, w.job)
	case k.id != w.id:
		return fmt.Errorf("host %s has Config.Endpoint.JobID %d, this rank %d", k.host, k.id, w.id)
	case k.sealed != mine:
		return fmt.Errorf("host %s seals its messages: %s, this rank: %s", k.host, k.sealed, mine)
	case k.crc != w.crc():
		return fmt.Errorf("host %s has a checksum on its packets: %s, this rank: %s", k.host, k.crc, w.crc())
	}
	return nil
}

// crc says whether packets have a checksum.
func (w *World) crc() string { return yes(!w.cfg.Endpoint.NoCRC) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
