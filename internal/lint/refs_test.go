package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unmended lists the places whose references are still wrong. It may only shrink: an entry
// with nothing to mend fails the test.
var unmended = []string{}

func TestHouseRefs(t *testing.T) {
	found, err := house(t).Refs(unmended)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestRefsFindsWhatIsNotThere(t *testing.T) {
	const rule = "R-" + "CQ-" // in two parts, so that internal/conformance does not count it as cited
	m := sources(t, map[string]string{
		"docs/protocol/README.md":       "# P\n\n| UE 3.5.8 | opening |\n| UE 3.5.12.7 | codes |\n",
		"docs/protocol/pds.md":          "| rule | what |\n| S-ACK-01 | an ACK |\n\nSee [there](README.md#p) and [here](README.md#q).\n",
		"docs/faults.md":                "## Rules over all rows\n\n| 1. one end | TestX |\n| F13 | restart | TestF13 |\n| T9 | ACKs | TestT9 |\n",
		"docs/conformance.md":           "| " + rule + "01 | a queue | x |\n",
		"docs/decisions/0003-an-ack.md": "# 3. An ACK\n\nUE §3.5.8 has it.\n",
		"a/a.go": strings.ReplaceAll(`// Package a is as UE 3.5.8 and 3.5.12.7 say (S-ACK-01, R+CQ-01, F13, T9, decision 3).
// See docs/decisions/0003, docs/protocol/pds.md, docs/faults.md#rules-over-all-rows,
// docs/faults.md rule 1, RFC 9000 §17.2, https://example.org/x.md and fi_cq(3).
package a

// UE 3.5.9; UE 3.5.8, 3.5.10
const x = "S-ACK-99 in a string is data"

// S-ACK-02, R+CQ-02, F14, T10 and F13 again.
// decision 4, docs/decisions/0005.
// spec.md, docs/none.md, docs/protocol/pds.md#nowhere, docs/faults.md rule 2.
// see §3.5.8, ses.md 2.1, U-20, design D5
var _ = x
`, "R+CQ-", rule),
		"a/testdata/s.txt": "# S-ACK-03\nA sends D7 a packet\n",
		"b/b.go":           "// Package b: S-ACK-04.\npackage b\n",
		"c/c.go":           "// Package c is mended.\npackage c\n",
	})
	if err := os.WriteFile(filepath.Join(m.root, "LICENSE"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	found, err := m.Refs([]string{"b/", "c/..."})
	if err != nil {
		t.Fatal(err)
	}
	want(t, found,
		"docs/protocol/pds.md:4: docs/protocol/README.md has no heading #q",
		"docs/decisions/0003-an-ack.md:3: § of which document",
		"a/a.go:6: UE 3.5.9 is not among",
		"a/a.go:6: UE 3.5.10 is not among",
		"a/a.go:9: no rule S-ACK-02",
		"a/a.go:9: no rule "+rule+"02",
		"a/a.go:9: no rule F14",
		"a/a.go:9: no rule T10",
		"a/a.go:10: no decision 4",
		"a/a.go:10: no decision 5",
		"a/a.go:10: docs/decisions/0005 is not in",
		"a/a.go:11: spec.md is not in",
		"a/a.go:11: docs/none.md is not in",
		"a/a.go:11: has no heading #nowhere",
		"a/a.go:11: docs/faults.md has no rule 2",
		"a/a.go:12: § of which document",
		"a/a.go:12: ses.md is not in",
		"a/a.go:12: refers to a text",
		"a/testdata/s.txt:1: no rule S-ACK-03",
		"c/...: nothing is left to mend",
	)
}
