package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// A Plant is one bug: a text of a file, the text that replaces it, and the test that must
// then fail.
type Plant struct {
	ID      string   `toml:"id"`
	File    string   `toml:"file"`    // relative to the module's root
	Old     string   `toml:"old"`     // occurs in the file exactly once
	New     string   `toml:"new"`     // changes one condition
	Package string   `toml:"package"` // of the test: "./cq"
	Run     string   `toml:"run"`     // for -test.run
	Args    []string `toml:"args"`    // further arguments of the test binary
	Race    bool     `toml:"race"`    // use the race detector; only if nothing else shows the bug
	Panics  bool     `toml:"panics"`  // a panic suffices; only if no assertion can come first
	Why     string   `toml:"why"`     // the rule, and how the bug breaks it

	Room string `toml:"-"` // the table's file name
}

// load reads the tables of a folder, one file for each room.
func load(dir string) ([]Plant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
	if err != nil {
		return nil, err
	}
	var all []Plant
	taken := map[string]string{}
	for _, name := range files {
		var table struct {
			Plant []Plant `toml:"plant"`
		}
		meta, err := toml.DecodeFile(name, &table)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if u := meta.Undecoded(); len(u) > 0 {
			return nil, fmt.Errorf("%s: unknown key %v", name, u[0])
		}
		room := strings.TrimSuffix(filepath.Base(name), ".toml")
		for _, p := range table.Plant {
			p.Room = room
			if first, twice := taken[p.ID]; twice {
				return nil, fmt.Errorf("%s: id %q is taken in %s.toml", name, p.ID, first)
			}
			taken[p.ID] = room
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no plants in %s", dir)
	}
	slices.SortStableFunc(all, func(a, b Plant) int { return cmp.Compare(a.Room, b.Room) })
	return all, nil
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// planted returns the plant's file with the bug in it, or the error in the entry. It runs
// nothing.
func (p *Plant) planted(root string) ([]byte, error) {
	for _, f := range []struct{ name, value string }{
		{"id", p.ID}, {"file", p.File}, {"old", p.Old}, {"new", p.New}, {"package", p.Package}, {"run", p.Run}, {"why", p.Why},
	} {
		if f.value == "" && f.name != "new" {
			return nil, fmt.Errorf("no %s", f.name)
		}
	}
	if p.Old == p.New {
		return nil, fmt.Errorf("old and new are the same")
	}
	if strings.HasSuffix(p.File, "_test.go") {
		return nil, fmt.Errorf("%s is a test", p.File)
	}
	src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.File)))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(src, []byte(p.Old)); n != 1 {
		return nil, fmt.Errorf("old occurs %d times in %s", n, p.File)
	}
	src = bytes.Replace(src, []byte(p.Old), []byte(p.New), 1)
	if strings.HasSuffix(p.File, ".go") {
		if _, err := parser.ParseFile(token.NewFileSet(), p.File, src, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	return src, p.cited(root)
}

// cited returns an error if the package has no test that Run names.
func (p *Plant) cited(root string) error {
	top, _, _ := strings.Cut(p.Run, "/")
	want, err := regexp.Compile(top)
	if err != nil {
		return err
	}
	names, err := testsOf(filepath.Join(root, filepath.FromSlash(p.Package)))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, want.MatchString) {
		return fmt.Errorf("%s has no test %s", p.Package, p.Run)
	}
	return nil
}

// known caches the results of testsOf.
var known sync.Map

// testsOf returns the names of the tests in a folder.
func testsOf(dir string) ([]string, error) {
	if names, ok := known.Load(dir); ok {
		return names.([]string), nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			names = append(names, string(m[1]))
		}
	}
	known.Store(dir, names)
	return names, nil
}
