package lint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// house returns this module.
func house(t *testing.T) *Module {
	t.Helper()
	m, err := loadHouse()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var loadHouse = sync.OnceValues(func() (*Module, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return Load(dir)
		}
		if dir == filepath.Dir(dir) {
			return nil, errors.New("no go.mod above this package")
		}
		dir = filepath.Dir(dir)
	}
})

func report(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

func TestHouseImports(t *testing.T) { report(t, house(t).Imports(&House)) }

func TestHouseCore(t *testing.T) { report(t, house(t).Core(&House)) }

func TestHouseTypes(t *testing.T) { report(t, house(t).Types(&House)) }

func TestHouseUetPullsInLittle(t *testing.T) {
	for _, imp := range house(t).Reach("uet") {
		if !underAny(UetReach, imp) {
			t.Errorf("importing uet pulls in %s", imp)
		}
	}
}

// sources writes a module and loads it.
func sources(t *testing.T, files map[string]string) *Module {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module example.org/m\n\ngo 1.26\n"
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// want compares findings with "file:line: part of the text", in any order.
func want(t *testing.T, found []Finding, lines ...string) {
	t.Helper()
	for _, line := range lines {
		pos, text, _ := strings.Cut(line, ": ")
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Pos == pos && strings.Contains(f.Text, text) })
		if i < 0 {
			t.Errorf("not found: %s", line)
			continue
		}
		found = slices.Delete(found, i, i+1)
	}
	for _, f := range found {
		t.Errorf("found, but should not be: %v", f)
	}
}

var planted = Table{
	Anywhere:    []string{"internal/check"},
	Tests:       []string{"sim"},
	TestModules: []string{"example.com/quick"},
	Rows: []Row{
		{Dir: "core", May: []string{"transport/wire"}, Core: true},
		{Dir: "transport/wire", Core: true},
		{Dir: "sim"},
		{Dir: "internal/*"},
		{Dir: "api", May: []string{"core"}, Foreign: []string{"example.com/log"}},
		{Dir: "cmd/...", May: []string{"api"}, Foreign: []string{"example.com/flags"}},
	},
}

const wire = `package wire

type PSN uint32

func (p PSN) Before(q PSN) bool { return int32(p-q) < 0 }
`

func TestImportsFindsForbiddenArrows(t *testing.T) {
	m := sources(t, map[string]string{
		"transport/wire/psn.go":     wire,
		"internal/check/c.go":       "package check\n",
		"core/a.go":                 "package core\n\nimport (\n\t_ \"example.org/m/transport/wire\"\n\t_ \"example.org/m/internal/check\"\n\t_ \"example.org/m/api\"\n\t_ \"example.com/log\"\n)\n",
		"core/a_test.go":            "package core_test\n\nimport (\n\t_ \"example.org/m/core\"\n\t_ \"example.org/m/sim\"\n\t_ \"example.com/quick/v2\"\n\t_ \"example.org/m/api\"\n\t_ \"example.com/flags\"\n)\n",
		"sim/s.go":                  "package sim\n",
		"api/a.go":                  "package api\n\nimport (\n\t_ \"example.org/m/core\"\n\t_ \"example.com/log/field\"\n\t_ \"example.com/logger\"\n\t_ \"example.org/m/sim\"\n)\n",
		"cmd/tool/main.go":          "package main\n\nimport _ \"example.org/m/core\"\n",
		"stray/s.go":                "package stray\n",
		"core/testdata/bad.go":      "package bad\n\nimport _ \"example.com/any\"\n",
		"other/go.mod":              "module example.org/other\n",
		"other/o.go":                "package other\n",
		"core/gen.go":               "//go:build ignore\n\npackage main\n\nimport _ \"example.com/any\"\n",
		".hidden/h.go":              "package hidden\n",
		"core/windows_only_test.go": "//go:build windows\n\npackage core\n\nimport _ \"example.com/none\"\n",
	})
	want(t, m.Imports(&planted),
		"core/a.go:6: core may not import api",
		"core/a.go:7: another module",
		"core/a_test.go:7: tests of core may not import api",
		"core/a_test.go:8: another module",
		"core/windows_only_test.go:5: another module",
		"api/a.go:6: may not import example.com/logger",
		"api/a.go:7: api may not import sim",
		"cmd/tool/main.go:3: cmd/tool may not import core",
		"stray/s.go:1: not in the import table",
	)
}

func TestCoreFindsClocksGoroutinesAndRandomness(t *testing.T) {
	m := sources(t, map[string]string{
		"core/a.go": `package core

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	clock "time"
)

const tick = 3 * clock.Second

var _ = clock.Now()

func f(r *rand.Rand, d clock.Duration, a netip.Addr) int {
	go func() { clock.Sleep(d) }()
	c := make(chan int)
	select {
	case <-c:
	case <-clock.After(d):
	}
	var mu sync.Mutex
	mu.Lock()
	_, _ = os.Getpid(), net.IP{}
	return rand.IntN(3) + r.IntN(3) + rand.New(rand.NewPCG(1, 2)).IntN(3)
}
`,
		"core/b.go":      "package core\n\nimport (\n\t\"math/rand\"\n\t. \"time\"\n)\n\nvar _ = rand.Int\n\nvar _ Duration\n",
		"core/a_test.go": "package core\n\nimport \"time\"\n\nvar _ = time.Now()\n",
		"api/a.go":       "package api\n\nimport \"time\"\n\nvar _ = time.Now()\n",
	})
	want(t, m.Core(&planted),
		`core/a.go:5: may not import "net"`,
		`core/a.go:7: may not import "os"`,
		`core/a.go:8: may not import "sync"`,
		"core/a.go:14: clock.Now",
		"core/a.go:17: starts a goroutine",
		"core/a.go:17: clock.Sleep",
		"core/a.go:18: channel",
		"core/a.go:19: select",
		"core/a.go:21: clock.After",
		"core/a.go:26: rand.IntN",
		`core/b.go:4: may not import "math/rand"`,
		`core/b.go:5: dot import`,
	)
}

func TestTypesFindsBareComparisons(t *testing.T) {
	m := sources(t, map[string]string{
		"transport/wire/psn.go": wire + "\nfunc bad(p, q PSN) bool { return p <= q }\n",
		"core/a.go": `package core

import (
	"bytes"

	w "example.org/m/transport/wire"
)

type seq = w.PSN

type state struct{ base w.PSN }

func f(s *state, n uint32, buf *bytes.Buffer, q seq) bool {
	if s.base < 5 {
		return q > s.base
	}
	for psn := s.base; psn.Before(q); psn++ {
		_ = int32(psn-q) < 0
		_ = n < uint32(psn)
		_ = psn == q
		_ = max(psn, q)
		_ = max(n, 3)
	}
	return buf.Len() < 3
}

func g(m map[int]w.PSN, l []int) {
	for range m {
	}
	for range m { // any order: they are counted
	}
	for range l {
	}
}
`,
		"api/a.go": "package api\n\nfunc g(m map[int]int) {\n\tfor range m {\n\t}\n}\n",
	})
	want(t, m.Types(&planted),
		"transport/wire/psn.go:7: PSNs compared by <=",
		"core/a.go:14: PSNs compared by <",
		"core/a.go:15: PSNs compared by >",
		"core/a.go:21: max of PSNs",
		"core/a.go:28: ranges over a map",
	)
}

func TestReachFollowsOwnPackages(t *testing.T) {
	m := sources(t, map[string]string{
		"api/a.go":      "package api\n\nimport _ \"example.org/m/core\"\n",
		"api/a_test.go": "package api\n\nimport _ \"example.com/quick\"\n",
		"core/c.go":     "package core\n\nimport (\n\t_ \"example.com/deep\"\n\t_ \"example.org/m/api\"\n)\n",
		"cmd/x/x.go":    "package main\n\nimport _ \"example.com/flags\"\n",
	})
	if got := m.Reach("api"); !slices.Equal(got, []string{"example.com/deep"}) {
		t.Errorf("Reach: %v", got)
	}
}

func TestTableHasAReasonForEveryException(t *testing.T) {
	// The layering of docs: the sublayers import only wire, SES and PDS the type of a piece, and
	// SES the arithmetic of atomics.
	for dir, may := range map[string][]string{
		"transport/internal/pds": {"transport/wire", "transport/internal/piece"}, "transport/internal/ses": {"transport/wire", "transport/internal/amo", "transport/internal/piece"},
		"transport/internal/cms": {"transport/wire"}, "internal/tss": {"transport/wire"},
	} {
		if row := House.row(dir); !slices.Equal(row.May, may) || !row.Core {
			t.Errorf("%s: %v", dir, row)
		}
	}
	if row := House.row("uet"); slices.Contains(row.May, "transport/internal/ses") && row.Why == "" {
		t.Error("uet imports transport/internal/ses without a reason")
	}
}
