package perf

import (
	"os"
	"runtime"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/version"
)

// Version is the version of the program.
const Version = version.Number

// ThisHost describes this host.
func ThisHost() record.Host {
	name, _ := os.Hostname()
	return record.Host{Name: name, OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(), CPUs: cpus0}
}

// ThisTool describes this program.
func ThisTool() record.Tool {
	i := version.Get()
	return record.Tool{Version: i.Version, Commit: i.Commit, Go: i.Go}
}
