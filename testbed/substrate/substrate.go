// Package substrate defines what labs consist of: a switch, and hosts each on a network of
// its own. Hosts reach each other only through the switch. The sub-packages make labs of
// containers and of network namespaces.
package substrate

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"
)

// ErrUnsupported is wrapped by the error of a substrate that cannot run here.
var ErrUnsupported = errors.New("unsupported here")

// A Spec describes a lab to be brought up.
type Spec struct {
	// Name is the lab's name and begins the names of everything in it. Dir is the folder of
	// its files, which exists as long as the lab.
	Name string
	Dir  string
	// Bin is the folder of the programs: testbed, uetperf, uetswitch.
	Bin   string
	MTU   int
	Hosts []Host
	// Switch are the arguments of uetswitch. OutArg in them stands for its folder Out,
	// which contains the files that they name.
	Switch []string
	Out    string
	Since  time.Time // when it began to be brought up
}

// A Host is one host of a lab.
type Host struct {
	Name    string
	Role    string
	Image   string // of containers; "" means the project's own
	Net     netip.Prefix
	Addr    netip.Addr
	Gateway netip.Addr // of the switch, on Net
	// Env is the environment without UET_OUT and UET_KEYS, which depend on where the
	// substrate puts the folders Out and Keys ("" means none).
	Env  []string
	Out  string
	Keys string
}

// Mount points of Out and Keys where hosts have a file system of their own.
const (
	OutMount  = "/out"
	KeysMount = "/keys"
)

// OutArg stands for the folder Out of the switch, whose path depends on the substrate.
const OutArg = "{out}"

// SwitchName is the name of the switch among the hosts.
const SwitchName = "switch"

// Socket is the name of the unix socket in the switch's Out. Its HTTP interface answers
// there from any network namespace.
const Socket = "http.sock"

// An Exit is the end of a host's process.
type Exit struct {
	Host string
	Code int
	At   time.Time
}

// A Lab is a lab that is up. Methods may be called from several goroutines.
type Lab interface {
	// Do carries out one of the Actions on a host.
	Do(ctx context.Context, host string, a Action) error
	// Exits reports processes that end, that of the switch too.
	Exits() <-chan Exit
	// Log copies the output of a host to w.
	Log(ctx context.Context, host string, w io.Writer) error
	// Shell returns a command line, for people, that runs a program in a host.
	Shell(host string) string
	// Down takes the lab down, also if only a part of it is up. It may be called again.
	Down(ctx context.Context) error
}

// An Action acts on the process of a host.
type Action string

// The actions.
const (
	Pause  Action = "pause"
	Resume Action = "resume"
	Kill   Action = "kill"  // the host is gone; its address answers nobody
	Start  Action = "start" // after Kill, at the same address
	Stop   Action = "stop"  // SIGTERM
)

// A Substrate makes labs.
type Substrate interface {
	Name() string
	// Available returns why the substrate cannot be used here, wrapping ErrUnsupported.
	Available(ctx context.Context) error
	// Prepare makes what all labs share: images. It reports long steps on w.
	Prepare(ctx context.Context, bin string, w io.Writer) error
	// Up brings a lab up and returns when all of its processes have been started. A
	// lab that could not be brought up is taken down.
	Up(ctx context.Context, s *Spec) (Lab, error)
	// Leftovers removes the remains of labs without an owner: those whose names begin with
	// prefix and for which owned returns false. It returns the names of what it removed.
	Leftovers(ctx context.Context, prefix string, owned func(lab string) bool) ([]string, error)
}
