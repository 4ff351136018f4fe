// Package substrate says what labs are made of: a switch, and hosts each on a network of
// its own, whose only way to one another is the switch. Its sub-packages make labs of
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

// A Spec is a lab to be brought up.
type Spec struct {
	// Name is the lab's, and begins the names of everything in it; Dir the folder of its
	// files, which stands as long as the lab.
	Name string
	Dir  string
	// Bin is the folder of the programs: testbed, uetperf, uetswitch.
	Bin   string
	MTU   int
	Hosts []Host
	// Switch are the arguments of uetswitch; OutArg in them stands for its folder Out, which
	// has the files they name.
	Switch []string
	Out    string
	Since  time.Time // when it began to be brought up
}

// A Host is one host of a lab.
type Host struct {
	Name    string
	Role    string
	Image   string // of containers; "": the project's own
	Net     netip.Prefix
	Addr    netip.Addr
	Gateway netip.Addr // of the switch, on Net
	// Env is the environment without UET_OUT and UET_KEYS, which depend on where the
	// substrate puts the folders Out and Keys ("": none).
	Env  []string
	Out  string
	Keys string
}

// Mount points of Out and Keys where hosts have a file system of their own.
const (
	OutMount  = "/out"
	KeysMount = "/keys"
)

// OutArg stands for the folder of the switch, wherever the substrate puts it.
const OutArg = "{out}"

// SwitchName is the name of the switch among the hosts.
const SwitchName = "switch"

// Socket is the name of the unix socket in the switch's Out on which its HTTP interface
// answers, whatever network it is in.
const Socket = "http.sock"

// An Exit is the end of a host's process.
type Exit struct {
	Host string
	Code int
	At   time.Time
}

// A Lab is what is up. Methods may be called from several goroutines.
type Lab interface {
	// Do does one of the Actions to a host.
	Do(ctx context.Context, host string, a Action) error
	// Exits tells of processes that end, the switch's too.
	Exits() <-chan Exit
	// Log copies what a host said to w.
	Log(ctx context.Context, host string, w io.Writer) error
	// Shell is a command line that runs a program in a host, for people.
	Shell(host string) string
	// Down takes it down; also what is half up. It may be called again.
	Down(ctx context.Context) error
}

// An Action is done to the process of a host.
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
	// Available says why it cannot be used here, wrapping ErrUnsupported.
	Available(ctx context.Context) error
	// Prepare makes what all labs share: images. It says what takes long on w.
	Prepare(ctx context.Context, bin string, w io.Writer) error
	// Up brings a lab up and returns when all of its processes have been started. A
	// lab that could not be brought up is taken down.
	Up(ctx context.Context, s *Spec) (Lab, error)
	// Leftovers removes the remains of labs that have no owner any more: those whose
	// names begin with prefix and that owned does not know. It returns the names of
	// what it removed.
	Leftovers(ctx context.Context, prefix string, owned func(lab string) bool) ([]string, error)
}
