package keys

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoadFindsItsName(t *testing.T) {
	dir := t.TempDir()
	if _, err := Make(dir, []string{"alice", "bob", Client}, time.Now()); err != nil {
		t.Fatal(err)
	}
	load := func(name, usual string) error {
		s, err := LoadTLS(dir, name, usual)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	check(t, load("", Client))
	check(t, load("bob", Server))
	if err := load("", Server); err == nil || !strings.Contains(err.Error(), "alice, bob, client: say which") {
		t.Errorf("nobody named: %v", err)
	}
	if err := load("carol", Server); err == nil || !strings.Contains(err.Error(), `no certificate of "carol"; there are alice, bob, client`) {
		t.Errorf("nobody's name: %v", err)
	}
	// A host that has only its own files need not name itself.
	for _, f := range []string{"ca.key", "bob.key", "bob.pem", "client.key", "client.pem"} {
		check(t, os.Remove(filepath.Join(dir, f)))
	}
	check(t, load("", Server))
	psk, err := LoadPSK(dir)
	check(t, err)
	check(t, psk.Close())
	for _, err := range []error{load("", "x"), func() error { _, err := LoadPSK(filepath.Join(dir, "none")); return err }()} {
		if err != nil && !strings.Contains(err.Error(), "uetperf keys") {
			t.Errorf("%v does not say what to do", err)
		}
	}
}

func TestMakeLeavesNothingHalf(t *testing.T) {
	dir := t.TempDir()
	for _, there := range []string{"ca.key", "alice.pem", "cluster.key", "revoked"} {
		check(t, os.WriteFile(filepath.Join(dir, there), []byte("x"), 0o600))
		if _, err := Make(dir, []string{"alice"}, time.Now()); err == nil || !strings.Contains(err.Error(), "never overwritten") {
			t.Errorf("with %s there: %v", there, err)
		}
		names, err := os.ReadDir(dir)
		check(t, err)
		if len(names) != 1 {
			t.Errorf("with %s there: %v", there, names)
		}
		check(t, os.Remove(filepath.Join(dir, there)))
	}
	if _, err := Make(dir, []string{strings.Repeat("x", 65)}, time.Now()); err == nil {
		t.Error("a name of any length")
	}
	for _, bad := range []string{"", ".", "..", ".hidden", "a/b", "a b", "#a", "ca", "cluster", "a\nb"} {
		if _, err := Make(dir, []string{bad}, time.Now()); err == nil {
			t.Errorf("%q is a name", bad)
		}
		if err := Remove(dir, bad); err == nil {
			t.Errorf("%q can be removed", bad)
		}
	}
}

// uet understands the file that Remove writes.
func TestRemoveAndRotate(t *testing.T) {
	dir := t.TempDir()
	if _, err := Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	check(t, Remove(dir, Client))
	check(t, Remove(dir, Server))
	b, err := os.ReadFile(filepath.Join(dir, "revoked"))
	check(t, err)
	if string(b) != "client\nserver\n" {
		t.Errorf("revoked: %q", b)
	}
	// A whole rotation and one step more: the file is valid after each.
	var said []string
	for range 4 {
		s, err := Rotate(dir)
		check(t, err)
		said = append(said, s)
		psk, err := LoadPSK(dir)
		check(t, err)
		check(t, psk.Close())
	}
	if !strings.Contains(said[3], "generation 3 is made") || slices.Contains(said[:3], said[3]) {
		t.Errorf("said %q", said)
	}
	// Without a valid key there is nothing to rotate.
	check(t, os.WriteFile(filepath.Join(dir, "cluster.key"), []byte("nonsense"), 0o600))
	if _, err := Rotate(dir); err == nil {
		t.Error("nonsense was rotated")
	}
}
