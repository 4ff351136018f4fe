package main

import (
	"os"
	"path"
	"strings"
	"testing"
)

// Every link of a page of an archive leads to a file of the archive, or to the project's home.
func TestPapersLinkToWhatThereIs(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip(err) // what git knows of is asked below; a downloaded module has none
	}
	files, err := paperFiles(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := paperEntries("../..", "c0ffee+", files)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, e := range all {
		for f := e.name; f != "."; f = path.Dir(f) {
			has[f] = true
		}
	}
	inside, outside := 0, 0
	for _, e := range all {
		if path.Ext(e.name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(e.data), -1) {
			to, _, _ := strings.Cut(m[2], "#")
			switch {
			case strings.HasPrefix(to, home+"c0ffee/"):
				outside++
			case to == "" || strings.Contains(to, "://"):
			case has[path.Join(path.Dir(e.name), to)]:
				inside++
			default:
				t.Errorf("%s: no archive has %s", e.name, to)
			}
		}
	}
	for _, f := range []string{"README.md", "CONTRIBUTING.md", "docs/network-engineer.md", "docs/decisions/0010-who-is-who.md", "docs/img/packet.svg"} {
		if !has[f] {
			t.Errorf("no archive has %s", f)
		}
	}
	if inside < 50 || outside < 5 {
		t.Errorf("%d links inside, %d outside", inside, outside)
	}
}

func TestRelink(t *testing.T) {
	has := map[string]bool{"docs/a.md": true, "README.md": true}
	for in, want := range map[string]string{
		"[a](a.md) [b](b.md#x)": "[a](a.md) [b](https://h/docs/b.md#x)", "[r](../README.md#top)": "[r](../README.md#top)", "[s](../uet/x.go)": "[s](https://h/uet/x.go)",
		"[u](https://x/y) [h](#here)": "[u](https://x/y) [h](#here)",
	} {
		if got := relink("docs/p.md", in, has, "https://h/"); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
