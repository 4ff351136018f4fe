package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestFromWhatTheBuildSays(t *testing.T) {
	const full = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		name, main, revision, modified string
		release, commit                string
		want                           Info
	}{
		{name: "no version control", main: "(devel)", want: Info{Version: Number}},
		{name: "a tree", main: "v0.0.0-20260102030405-0123456789ab", revision: full, want: Info{Version: Number, Commit: full}},
		{name: "a changed tree", main: "(devel)", revision: full, modified: "true", want: Info{Version: Number, Commit: full + "+"}},
		{name: "go install of a tag", main: "v1.2.3", want: Info{Version: "v1.2.3"}},
		{name: "go install of a commit", main: "v1.2.4-0.20260102030405-0123456789ab", want: Info{Version: Number, Commit: "0123456789ab"}},
		{name: "a release", main: "(devel)", release: "v1.2.3", commit: full, want: Info{Version: "v1.2.3", Commit: full}},
	} {
		t.Run(c.name, func(t *testing.T) {
			release, commit = c.release, c.commit
			defer func() { release, commit = "", "" }()
			bi := &debug.BuildInfo{}
			bi.Main.Version = c.main
			bi.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: c.revision}, {Key: "vcs.modified", Value: c.modified}}
			if c.revision == "" {
				bi.Settings = nil
			}
			c.want.Go = runtime.Version()
			if got := from(bi); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLine(t *testing.T) {
	defer func() { release, commit = "", "" }()
	release, commit = "v1.2.3", "0123456789abcdef+"
	got := Line("uetx")
	if want := "uetx v1.2.3, commit 0123456789ab+, wire UE 1.0.1, go"; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
		t.Errorf("%q does not begin with %q", got, want)
	}
}
