package mp

import (
	"os"

	"github.com/uetkit/uetkit/mp/internal/boot"
	"github.com/uetkit/uetkit/uet"
)

// Stats returns the counters of this process's endpoint since Init.
func (w *World) Stats() uet.Stats { return w.ep.Stats() }

// Checksummed reports whether packets carry a checksum. Those that are sealed need none, and
// ranks on loopback addresses have none.
func (w *World) Checksummed() bool { return !w.sealed && !w.cfg.Endpoint.NoCRC }

// A Launch is what the environment says of a process.
type Launch struct {
	// Launcher is what started the process, as World.Launcher says it; "none" without one.
	Launcher string
	// Rank and Size are 0 where only the launcher itself knows them, as with PMIx.
	Rank, Size int
}

// Launched looks for a launcher as Init does, but connects to nothing and waits for nobody. An
// error says which variable of the environment is wrong. env nil: os.Getenv.
func Launched(env func(string) string) (Launch, error) {
	if env == nil {
		env = os.Getenv
	}
	l, err := boot.Look(boot.Options{Env: env})
	return Launch(l), err
}
