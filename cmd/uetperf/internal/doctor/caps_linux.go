package doctor

import (
	"os"
	"strconv"
	"strings"
)

const capNetAdmin = 12

// netAdmin reports whether the process has CAP_NET_ADMIN.
func netAdmin() (can, known bool) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, false
	}
	for _, line := range strings.Split(string(b), "\n") {
		if s, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(s), 16, 64)
			return n>>capNetAdmin&1 != 0, err == nil
		}
	}
	return false, false
}
