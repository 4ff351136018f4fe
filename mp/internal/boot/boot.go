// Package boot finds out which rank of which world this process is, from whatever launched
// it, and lets the ranks exchange one card each.
//
// A card is a few hundred bytes that the others need before the first message: address, key,
// release, MTU. Package boot does not look into it.
//
// The order is: Options, MP_RANK and MP_SIZE; PMI-1 (MPICH's Hydra, srun --mpi=pmi2, Flux);
// PMIx, if package mp/pmix is imported; Open MPI's variables; Slurm's; those of a Kubernetes
// Indexed Job; those of torchrun. With none of them it is a world of one. The last five
// meet at a root: rank 0 listens on TCP, the others come to it.
//
// There is no global state but the registration of mp/pmix: a test runs as many worlds as it
// likes in one process. The methods of a World may be called from any goroutine.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// MaxSize is the largest world.
	MaxSize = 1 << 20
	// MaxCard is the longest card in bytes.
	MaxCard = 16 << 10
	// DefaultTimeout is how long Put waits for the other ranks.
	DefaultTimeout = 2 * time.Minute
	// DefaultPort is the TCP port of a root that is named without one.
	DefaultPort = 4793
)

// Options say what the caller knows. The zero value finds out from the environment.
type Options struct {
	// Rank and Size place this process. Size 0: the environment says.
	Rank, Size int
	// Root is where rank 0 listens, "host", "host:port" or ":port". Empty: MP_ROOT, or what the
	// launcher names.
	Root string
	// Job is a name that all ranks have in common and others do not. Empty: MP_JOB, or the
	// launcher's name of the job.
	Job string
	// Env reads the environment. Nil: os.Getenv.
	Env func(string) string
	// Timeout is how long Put waits for the others, and Finalize for the launcher. 0: MP_TIMEOUT,
	// or DefaultTimeout.
	Timeout time.Duration
	// Debug gets a line for all that was seen, taken and ignored, and one each second about what
	// is waited for. Nil: Stderr if MP_DEBUG contains "boot".
	Debug io.Writer
	// Stderr gets the reason of an abort. Nil: os.Stderr.
	Stderr io.Writer
	// Exit ends the process after an abort, of this rank or of another. Nil: os.Exit.
	Exit func(code int)

	// net is what tests replace.
	net network
}

// A World is this process among its peers.
type World struct {
	Rank, Size int
	// Job is the name of the job; it may be empty.
	Job string
	// Launcher says where this was found: "explicit", "PMI-1", "PMIx", "Open MPI", "Slurm",
	// "Kubernetes", "torchrun" or "none".
	Launcher string

	svc     service
	timeout time.Duration
	tick    time.Duration
	log     *logger
	stderr  io.Writer
	exit    func(int)
	turn    chan struct{} // holds one token: whoever has it fetches a card

	mu    sync.Mutex // guards what follows
	state state
	cards map[int][]byte
}

type state int

const (
	found state = iota
	putting
	ready
	failed // Put failed
	over   // Finalize was called
)

// A service is what a launcher, or the root, offers.
type service interface {
	// put gives this rank's card and returns when all have given theirs.
	put(ctx context.Context, card []byte) error
	// card returns the card of another rank.
	card(ctx context.Context, rank int) ([]byte, error)
	// finalize says that this rank leaves in order, and lets go of everything.
	finalize(ctx context.Context) error
	// close lets go of everything without a word. It may be called while put waits.
	close()
	// abort asks for the end of the job.
	abort(code int, why string)
}

// Find finds out which rank of which world this process is. It connects to the launcher if
// that has a service, and rank 0 of a world with a root begins to listen.
func Find(ctx context.Context, o Options) (*World, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	f := &finder{Options: o, log: &logger{w: o.Debug}}
	c, err := f.look()
	if err != nil {
		f.log.printf("%v", err)
		return nil, err
	}
	w := &World{
		Rank: c.rank, Size: c.size, Job: c.job, Launcher: c.launcher,
		timeout: o.Timeout, tick: o.net.tick, log: f.log, stderr: o.Stderr, exit: o.Exit,
		turn: make(chan struct{}, 1), cards: map[int][]byte{},
	}
	w.turn <- struct{}{}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errDeadline)
	defer cancel()
	if err := c.connect(ctx, f, w); err != nil {
		f.log.printf("%v", err)
		return nil, err
	}
	f.log.printf("took %s: rank %d of %d%s", w.Launcher, w.Rank, w.Size, c.detail(w.Job))
	f.log.who.Store(&w.Rank)
	return w, nil
}

// A Launch is what the environment says of this process, before anything is connected.
type Launch struct {
	// Launcher is the one that Find would take, "none" without one.
	Launcher string
	// Rank and Size are 0 where only the launcher's service knows them.
	Rank, Size int
}

// Look says which launcher Find would take, and connects to nothing.
func Look(o Options) (Launch, error) {
	if err := o.complete(); err != nil {
		return Launch{}, err
	}
	f := &finder{Options: o, log: &logger{}}
	c, err := f.look()
	if err != nil {
		return Launch{}, err
	}
	return Launch{c.launcher, c.rank, c.size}, nil
}

// complete fills in what o leaves open.
func (o *Options) complete() error {
	if o.Env == nil {
		o.Env = os.Getenv
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	if o.Debug == nil && slices.Contains(strings.Split(o.Env("MP_DEBUG"), ","), "boot") {
		o.Debug = o.Stderr
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
		if s := o.Env("MP_TIMEOUT"); s != "" {
			d, err := time.ParseDuration(s)
			if err != nil || d <= 0 {
				return &ConfigError{What: "MP_TIMEOUT", Value: s, Why: "no positive duration such as 90s"}
			}
			o.Timeout = d
		}
	}
	if o.Timeout < 0 {
		return &ConfigError{What: "Options.Timeout", Value: o.Timeout.String(), Why: "negative"}
	}
	o.net.complete()
	return nil
}

// Put gives this process's card and waits until all have given theirs, at most for the
// Timeout of the Options. It keeps no reference to card.
func (w *World) Put(ctx context.Context, card []byte) error {
	if len(card) > MaxCard {
		return &ConfigError{What: "card", Value: fmt.Sprintf("%d bytes", len(card)), Why: fmt.Sprintf("longer than %d", MaxCard)}
	}
	w.mu.Lock()
	if w.state != found {
		defer w.mu.Unlock()
		if w.state == over {
			return ErrFinalized
		}
		return errors.New("boot: Put was called before")
	}
	w.state = putting
	card = slices.Clone(card)
	w.cards[w.Rank] = card
	w.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errDeadline)
	defer cancel()
	err := w.svc.put(ctx, card)

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == over {
		return ErrFinalized
	}
	if err != nil {
		w.state = failed
		w.log.printf("%v", err)
		return err
	}
	w.state = ready
	w.log.printf("all %d ranks are there", w.Size)
	return nil
}

// Card returns the card of a rank. It is fetched when first asked for. The caller does not
// change it.
func (w *World) Card(ctx context.Context, rank int) ([]byte, error) {
	if rank < 0 || rank >= w.Size {
		return nil, &ConfigError{What: "rank", Value: fmt.Sprint(rank), Why: fmt.Sprintf("the world has %d", w.Size)}
	}
	if card, err := w.known(rank); card != nil || err != nil {
		return card, err
	}
	select {
	case <-w.turn:
		defer func() { w.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, stopped(ctx, "the card of rank %d", rank)
	}
	if card, err := w.known(rank); card != nil || err != nil {
		return card, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errDeadline)
	defer cancel()
	card, err := w.svc.card(ctx, rank)
	if err != nil {
		return nil, err
	}
	if card == nil {
		card = []byte{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cards[rank] = card
	return card, nil
}

// known returns the card of a rank if it is here, and an error if it is not the time for it.
func (w *World) known(rank int) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.state {
	case over:
		return nil, ErrFinalized
	case ready:
		return w.cards[rank], nil
	}
	return nil, errors.New("boot: Card needs a Put that succeeded")
}

// Finalize tells the launcher that this process ends in order. Rank 0 of a world with a root
// waits in it for the others, since they may still ask it for cards. After a Put that failed,
// or has not returned, there is nothing to end in order: it lets go and returns. A process that exits
// without it has failed in the eyes of most launchers, which then kill the others.
func (w *World) Finalize(ctx context.Context) error {
	w.mu.Lock()
	if w.state == over {
		w.mu.Unlock()
		return ErrFinalized
	}
	was := w.state
	w.state = over
	w.mu.Unlock()
	if was == putting || was == failed {
		w.svc.close()
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errDeadline)
	defer cancel()
	err := w.svc.finalize(ctx)
	if err != nil {
		w.log.printf("%v", err)
	}
	return err
}

// Abort ends the job: it prints why, has the launcher or the root end the other ranks, and
// exits with the code, or with 1 if that is 0.
func (w *World) Abort(code int, why string) {
	if code == 0 {
		code = 1
	}
	fmt.Fprintf(w.stderr, "mp: rank %d of %d aborts the job: %s\n", w.Rank, w.Size, why)
	w.svc.abort(code, why)
	w.exit(code)
}

// alone is the service of a world of one.
type alone struct{}

func (alone) put(context.Context, []byte) error { return nil }

func (alone) card(context.Context, int) ([]byte, error) {
	panic("BUG: boot: a world of one fetches a card")
}
func (alone) finalize(context.Context) error { return nil }
func (alone) close()                         {}
func (alone) abort(int, string)              {}
