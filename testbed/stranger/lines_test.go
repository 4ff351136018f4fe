package main

import (
	"os"
	"testing"

	"github.com/uetkit/uetkit/testbed/stranger/commands"
)

// Placeholders are filled in and comments go.
func TestFilled(t *testing.T) {
	for in, want := range map[string]string{
		"uetperf bw HOST -t 10s   # fast":        "uetperf bw 198.18.252.1 -t 10s",
		"uetperf incast H1 --from H2,H3,H4":      "uetperf incast 198.18.252.1 --from 198.18.252.2,198.18.252.3,198.18.252.4",
		"uetperf mesh rack1-{01..16} -J m.json":  "uetperf mesh 198.18.252.1 198.18.252.2 198.18.252.3 198.18.252.4 -J m.json",
		"uetdump --ops x.pcapng":                 "uetdump --ops x.pcapng",
		"uetperf doctor 198.18.77.2 -q":          "uetperf doctor 198.18.252.1 -q",
		"uetperf report a.json -o b.html   # so": "uetperf report a.json -o b.html",
	} {
		l := line{commands.Command{Text: in}}
		if got := l.filled(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The pages have commands, and most of them are run.
func TestPages(t *testing.T) {
	ran, all := 0, 0
	for _, page := range first {
		data, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		lines := extract(page, string(data))
		for _, l := range lines {
			if l.Inline {
				if (l.skip() == "") != whole.MatchString(l.Text) && l.skip() == "" {
					t.Errorf("%s:%d: %s is run", l.Page, l.Line, l.Text)
				}
				continue
			}
			if all++; l.skip() == "" {
				ran++
			}
		}
	}
	if all < 50 || ran*3 < all*2 {
		t.Errorf("%d of %d commands are run", ran, all)
	}
}
