package perf

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/version"
)

// Version is the version of the program.
const Version = version.Number

// ThisHost describes this host.
func ThisHost() record.Host {
	name, _ := os.Hostname()
	return record.Host{
		Name: name, OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(), CPUs: cpus0,
		CPU: cpuModel(contents("/proc/cpuinfo")), Governor: governor(), Virtual: virtual("/"),
	}
}

// governor returns what sets the clock of the first processor, "" if that is not known.
func governor() string { return firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") }

// cpuModel returns the model of the processors from the contents of /proc/cpuinfo.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name", "cpu model", "Model", "cpu": // x86, MIPS, ARM, POWER
			if v := strings.Join(strings.Fields(value), " "); v != "" {
				return v
			}
		}
	}
	return ""
}

// virtual says what the host is if it is not a machine of its own. root is the root of its files.
func virtual(root string) string {
	var is []string
	maker, _, _ := strings.Cut(contents(filepath.Join(root, "sys/class/dmi/id/sys_vendor")), "\n")
	product, _, _ := strings.Cut(contents(filepath.Join(root, "sys/class/dmi/id/product_name")), "\n")
	if flags := contents(filepath.Join(root, "proc/cpuinfo")); strings.Contains(flags, " hypervisor") {
		if whose := strings.Join(strings.Fields(maker+" "+product), " "); whose != "" {
			is = append(is, "virtual machine ("+whose+")")
		} else {
			is = append(is, "virtual machine")
		}
	}
	for _, mark := range []string{".dockerenv", "run/.containerenv", "run/systemd/container"} {
		if _, err := os.Stat(filepath.Join(root, mark)); err == nil {
			is = append(is, "container")
			break
		}
	}
	return strings.Join(is, ", ")
}

// contents returns what a file has, "" if it cannot be read.
func contents(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(b)
}

// ThisTool describes this program.
func ThisTool() record.Tool {
	i := version.Get()
	return record.Tool{Version: i.Version, Commit: i.Commit, Go: i.Go}
}
