package docker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a program needs is its loader and the files that this loads, at paths; a file that is no
// program needs nothing, and a loader that is not here is an error.
func TestLibraries(t *testing.T) {
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skip("no /bin/sh")
	}
	loader, err := loaderOf("/bin/sh")
	if err != nil || loader == "" {
		t.Skip("no program here that needs libraries")
	}
	files, err := Libraries(t.Context(), "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	libc := slices.ContainsFunc(files, func(f string) bool { return bytes.Contains([]byte(filepath.Base(f)), []byte("libc.")) })
	if !slices.Contains(files, loader) || !libc && !bytes.Contains([]byte(loader), []byte("musl")) {
		t.Errorf("%v", files)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || !filepath.IsAbs(f) || !st.Mode().IsRegular() {
			t.Errorf("%s: %v", f, err)
		}
	}
	file := filepath.Join(t.TempDir(), "program")
	for _, c := range []struct {
		content []byte
		fails   bool
	}{{nil, false}, {[]byte("#!/bin/sh\n"), false}, {bytes.ReplaceAll(sh, []byte("/ld-"), []byte("/xd-")), true}} {
		if err := os.WriteFile(file, c.content, 0o755); err != nil {
			t.Fatal(err)
		}
		if files, err := Libraries(t.Context(), file); (err != nil) != c.fails || len(files) > 0 {
			t.Errorf("%d bytes: %v, %v", len(c.content), files, err)
		}
	}
}

// Why the engine does not answer is one short line in the usual cases.
func TestSilent(t *testing.T) {
	for said, want := range map[string]string{
		"docker version: exit status 1: permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: connect: permission denied": "this user may not use Docker: join the group docker, or be root",
		"docker version: exit status 1: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?":                                "no engine answers: start dockerd",
		"docker version: exit status 1: something else": "no engine answers: docker version: exit status 1: something else",
	} {
		if got := silent(errors.New(said)).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
