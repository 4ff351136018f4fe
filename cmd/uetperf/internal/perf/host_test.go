package perf

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHostIsDescribed(t *testing.T) {
	for info, want := range map[string]string{
		"processor\t: 0\nmodel name\t: AMD EPYC  9B14\nflags : fpu\n":   "AMD EPYC 9B14",
		"processor\t: 0\nBogoMIPS\t: 50\n\nModel\t\t: Raspberry Pi 5\n": "Raspberry Pi 5",
		"cpu\t\t: POWER9, altivec supported\n":                          "POWER9, altivec supported",
		"":                                                              "",
	} {
		if got := cpuModel(info); got != want {
			t.Errorf("%q: %q, want %q", info, got, want)
		}
	}
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		if got := virtual(root); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is("")
	put("sys/class/dmi/id/sys_vendor", "Dell Inc.\n")
	put("sys/class/dmi/id/product_name", "PowerEdge R7625\n")
	put("proc/cpuinfo", "flags\t: fpu sse2\n")
	is("") // a machine of its own
	put("proc/cpuinfo", "flags\t: fpu hypervisor sse2\n")
	put("sys/class/dmi/id/sys_vendor", "QEMU\n")
	put("sys/class/dmi/id/product_name", "Standard PC (Q35)\n")
	is("virtual machine (QEMU Standard PC (Q35))")
	put(".dockerenv", "")
	is("virtual machine (QEMU Standard PC (Q35)), container")
}
