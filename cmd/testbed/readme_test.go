package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/scenario"
)

var update = flag.Bool("update", false, "write the table of scenarios into testbed/README.md")

// The README's table of scenarios agrees with the scenarios.
func TestReadmeTable(t *testing.T) {
	const file = "../../testbed/README.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const end = "<!-- end -->"
	head, rest, ok := strings.Cut(string(data), "-update -->\n")
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("no place for the table")
	}
	var b strings.Builder
	b.WriteString("| scenario | question | expected | tags |\n|---|---|---|---|\n")
	for _, name := range scenario.Names() {
		sc, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| [%s](scenarios/%s/README.md) | %s | %s | %s |\n", name, name, sc.Question, sc.Expect, strings.Join(sc.Tags, " "))
	}
	if old == b.String() {
		return
	}
	if !*update {
		t.Fatal("the table is not that of the scenarios: go test ./cmd/testbed -run TestReadme -update")
	}
	if err := os.WriteFile(file, []byte(head+"-update -->\n"+b.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
