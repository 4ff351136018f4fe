//go:build unix

package lab

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/scenario"
)

func open(t *testing.T) *Registry {
	t.Helper()
	r, err := Open("t", scenario.Base, filepath.Join(t.TempDir(), "labs"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func claim(t *testing.T, r *Registry) *Lab {
	t.Helper()
	l, err := r.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	return l
}

// Concurrent labs have different numbers, names and addresses, and release them.
func TestClaim(t *testing.T) {
	r := open(t)
	a, b := claim(t, r), claim(t, r)
	if a.Name != "t0" || b.Name != "t1" || a.Base.String() != "198.18.16.0/24" || b.Base.String() != "198.18.48.0/24" {
		t.Errorf("%+v, %+v", a.Info, b.Info)
	}
	if labs := r.List(); len(labs) != 2 {
		t.Errorf("%d labs", len(labs))
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Dir); !os.IsNotExist(err) {
		t.Errorf("%s stands: %v", a.Dir, err)
	}
	if c := claim(t, r); c.Name != "t0" {
		t.Errorf("%s, not the number that was given back", c.Name)
	}
	if last := scenario.Network(r.Base, Max*scenario.MaxHosts-1); !scenario.Range.Contains(last.Addr()) {
		t.Errorf("the last lab's last host is at %s, out of %s", last, scenario.Range)
	}
}

// The folder of labs goes when no lab is up, and not before.
func TestRemove(t *testing.T) {
	r := open(t)
	l := claim(t, r)
	if err := r.Remove(); err == nil || !strings.Contains(err.Error(), "t0") {
		t.Errorf("with a lab: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.Dir(), "bin", "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder stands: %v", err)
	}
}

// When all numbers are in use, the error is one line that says what to do.
func TestClaimTooMany(t *testing.T) {
	r := open(t)
	for range Max {
		claim(t, r)
	}
	if _, err := r.Claim(); err == nil || !strings.Contains(err.Error(), "testbed down") {
		t.Errorf("%v", err)
	}
}

// A lab whose owner was killed has a folder and no lock. A kept lab counts as owned
// although no owner runs.
func TestOwned(t *testing.T) {
	r := open(t)
	killed, kept, runs := claim(t, r), claim(t, r), claim(t, r)
	kept.Kept = true
	if err := kept.Release(); err != nil {
		t.Fatal(err)
	}
	_ = killed.lock.Close() // as at the end of the program
	for l, want := range map[*Lab]bool{killed: false, kept: true, runs: true} {
		if got := r.Owned(l.Name); got != want {
			t.Errorf("%s owned: %v, want %v", l.Name, got, want)
		}
	}
	r.Sweep(r.Owned)
	for l, want := range map[*Lab]bool{killed: false, kept: true, runs: true} {
		if _, err := os.Stat(l.Dir); (err == nil) != want {
			t.Errorf("%s: %v", l.Dir, err)
		}
	}
	if l := claim(t, r); l.Number != killed.Number {
		t.Errorf("%s, not that of the killed", l.Name)
	}
	if err := r.Forget(kept.Name); err != nil || r.Owned(kept.Name) {
		t.Errorf("%v; %s is owned still", err, kept.Name)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, tt := range []struct{ prefix, base, want string }{
		{"", "198.18.16.0/24", "prefix"},
		{"a1", "198.18.16.0/24", "lower case letters"},
		{"t", "10.0.0.0/24", "is not in 198.18.0.0/15"},
		{"t", "198.19.128.0/24", "room for"},
	} {
		if _, err := Open(tt.prefix, netip.MustParsePrefix(tt.base), dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("t", scenario.Base, dir); err == nil || !strings.Contains(err.Error(), "not this user's alone") {
		t.Errorf("a folder of everybody: %v", err)
	}
}

func TestIsLab(t *testing.T) {
	for name, want := range map[string]bool{"uettb0": true, "uettb11": true, "uettb": false, "uettbx": false, "other0": false, "uettb0-s": false} {
		if got := IsLab(name, "uettb"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The folder stays as long as somebody uses it, and who comes after it was removed makes it anew.
func TestRemoveLeavesWhatIsUsed(t *testing.T) {
	r, err := Open("t", scenario.Base, filepath.Join(t.TempDir(), "labs"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Use()
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.Use()
	if err != nil {
		t.Fatal(err)
	}
	first()
	if err := r.Remove(); !errors.Is(err, ErrInUse) {
		t.Errorf("removed under a run: %v", err)
	}
	second()
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	third, err := r.Use()
	if err != nil {
		t.Fatal(err)
	}
	third()
	if _, err := r.Claim(); err != nil {
		t.Error(err)
	}
}
