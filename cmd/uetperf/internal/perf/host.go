package perf

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// Version is the version of the program.
const Version = "0.1"

// ThisHost describes this host.
func ThisHost() record.Host {
	name, _ := os.Hostname()
	return record.Host{Name: name, OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(), CPUs: cpus0}
}

// ThisTool describes this program.
func ThisTool() record.Tool {
	t := record.Tool{Version: Version, Go: runtime.Version()}
	if bi, ok := debug.ReadBuildInfo(); ok {
		dirty := false
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				t.Commit = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
		if dirty {
			t.Commit += "+"
		}
	}
	return t
}
