package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// A program that sends messages is small: whoever imports uet gets no command lines, plots or tables with
// it, and QUIC, TLS and zap only by packages that it names (uet/msg, uet/zaplog). The linker would keep
// what those prepare when a program begins, a quarter of it, even if nothing used them.
func TestHelloIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		t.Skip("the bounds are for linux/amd64")
	}
	for _, c := range []struct {
		flags string
		most  int64 // bytes
	}{{"", 8_200_000}, {"-s -w", 5_600_000}} { // 8,000,000 and 5,500,000 before endpoints shared ports and opened by others
		bin := filepath.Join(t.TempDir(), "hello")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", c.flags, "-o", bin, "./testdata/hello")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		st, err := os.Stat(bin)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("-ldflags %q: %d bytes", c.flags, st.Size())
		if st.Size() > c.most {
			t.Errorf("-ldflags %q: %d bytes are more than %d", c.flags, st.Size(), c.most)
		}
		if out, err := exec.Command(bin).CombinedOutput(); err != nil || string(out) != "hello <nil>\n" {
			t.Errorf("%v: %s", err, out)
		}
	}
}
