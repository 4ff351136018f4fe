package lint

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/public.txt")

func TestHouseShowsUsersOnlyWhatIsForThem(t *testing.T) { report(t, house(t).Shown(ForUsers)) }

// The public names of the queues are listed, so that nothing becomes public by accident.
// The methods that promise places and write entries are behind internal/door.
func TestHousePublicNames(t *testing.T) {
	const file = "testdata/public.txt"
	m := house(t)
	var names []string
	for _, p := range ForUsers {
		if p.Listed {
			names = append(names, m.API(p.Dir)...)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(b))
	for _, n := range names {
		if !slices.Contains(listed, n) {
			t.Errorf("%s is public and not in %s; if that is meant: go test ./internal/lint -run PublicNames -update", n, file)
		}
	}
	for _, n := range listed {
		if !slices.Contains(names, n) {
			t.Errorf("%s has %s, which is not public; if that is meant: go test ./internal/lint -run PublicNames -update", file, n)
		}
	}
}

func TestShownFindsTypesOfOthers(t *testing.T) {
	m := sources(t, map[string]string{
		"internal/wait/w.go": "package wait\n\ntype Object struct{ Mu int }\n",
		"core/c.go":          "package core\n\ntype Config struct{}\n\ntype Box[T any] struct{}\n\nfunc (Box[T]) Hidden(Config) {}\n",
		"fi/f.go":            "package fi\n\ntype Errno int\n",
		"api/a.go": `package api

import (
	"example.org/m/core"
	"example.org/m/fi"
	"example.org/m/internal/wait"
)

type Queue struct {
	obj wait.Object
	inner
	Err fi.Errno
	All map[int][]*core.Config
}

type inner struct{}

func (inner) Join(o *wait.Object) {}

func (*Queue) Read() fi.Errno { return 0 }
func (*Queue) own() core.Config { return core.Config{} }

func Open() (*Queue, func(core.Config)) { return nil, nil }

type Group interface{ Add(wait.Object) }

type Nested struct{ In struct{ C chan core.Box[fi.Errno] } }
`,
	})
	all := []Public{{Dir: "fi"}, {Dir: "api"}}
	want(t, m.Shown(all),
		"api/a.go:13: api.Queue.All shows users a type of core",
		"api/a.go:18: api.Queue.Join shows users a type of internal/wait",
		"api/a.go:23: api.Open shows users a type of core",
		"api/a.go:25: api.Group.Add shows users a type of internal/wait",
		"api/a.go:27: api.Nested.In shows users a type of core",
	)
	all[1].Shows = []string{"core"}
	want(t, m.Shown(all), "api/a.go:18: internal/wait", "api/a.go:25: internal/wait")
	got := strings.Join(m.API("api"), " ")
	if list := "api.Group api.Group.Add api.Nested api.Nested.In api.Open api.Queue api.Queue.All api.Queue.Err api.Queue.Join api.Queue.Read"; got != list {
		t.Errorf("API: %s", got)
	}
}
