// Package version says which uetkit a program is.
package version

import (
	"regexp"
	"runtime"
	"runtime/debug"
)

// Number is the version that the source is on the way to.
const Number = "0.1"

// Wire is the revision of the specification whose packets are spoken.
const Wire = "UE 1.0.1"

// What the linker sets in releases, which are built without version control:
// -X github.com/uetkit/uetkit/internal/version.release=v0.1.0.
var release, commit string

// An Info says which source a program was built from.
type Info struct {
	Version string // "0.1", or what a release is called
	Commit  string // "" if not known; a + behind it if files were changed
	Go      string
}

// Get returns the Info of this program.
func Get() Info {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		bi = &debug.BuildInfo{}
	}
	return from(bi)
}

// pseudo matches versions that the go command makes for a commit without a tag.
var pseudo = regexp.MustCompile(`[-.][0-9]{14}-([0-9a-f]{12})(\+dirty)?$`)

func from(bi *debug.BuildInfo) Info {
	i := Info{Version: Number, Commit: commit, Go: runtime.Version()}
	changed := ""
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+"
			}
		}
	}
	switch v := bi.Main.Version; {
	case release != "":
		i.Version = release
	case pseudo.MatchString(v):
		if i.Commit == "" {
			i.Commit = pseudo.FindStringSubmatch(v)[1]
		}
	case v != "" && v != "(devel)":
		i.Version = v
	}
	if i.Commit != "" {
		i.Commit += changed
	}
	return i
}

// Line returns one line about a program: version, commit, wire revision and Go.
func Line(program string) string {
	i := Get()
	c := i.Commit
	if c == "" {
		c = "not known"
	} else if len(c) > 12 && c[len(c)-1] == '+' {
		c = c[:min(12, len(c)-1)] + "+"
	} else {
		c = c[:min(12, len(c))]
	}
	return program + " " + i.Version + ", commit " + c + ", wire " + Wire + ", " + i.Go + " " + runtime.GOOS + "/" + runtime.GOARCH
}
