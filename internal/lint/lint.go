// Package lint applies the rules of this module to its sources as a test: who may import
// whom; no clock, goroutine, socket or global randomness in the protocol core; packet
// sequence numbers compared as serial numbers; correct links and Go code in the Markdown
// pages; existing targets for the references in comments and documents. It only reads
// sources.
//
// `go test ./internal/lint` checks the module. A rule that gets in the way is changed in
// table.go, with its reason.
package lint

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Finding is one violation of a rule.
type Finding struct {
	Pos  string // file:line, the file relative to the module's root
	Text string
}

func (f Finding) String() string { return f.Pos + ": " + f.Text }

// A Module is the parsed source of a Go module.
type Module struct {
	Path string // module path
	fset *token.FileSet
	root string
	pkgs map[string]*pkg // by directory relative to the root, "." for the root

	types *checker // nil until packages are checked
}

type pkg struct {
	dir   string
	files []*ast.File // without tests
	tests []*ast.File // including the _test package
}

// Load parses every Go file under root, whatever its build constraints. It leaves out files
// with the constraint "ignore" and folders that the go command ignores.
func Load(root string) (*Module, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	m := &Module{fset: token.NewFileSet(), root: root, pkgs: map[string]*pkg{}}
	for line := range strings.Lines(string(mod)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			m.Path = strings.Trim(strings.TrimSpace(p), `"`)
			break
		}
	}
	if m.Path == "" {
		return nil, fmt.Errorf("lint: no module line in %s/go.mod", root)
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name == root {
				return nil
			}
			if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return filepath.SkipDir // a nested module
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		file, err := parser.ParseFile(m.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("lint: %w", err)
		}
		if ignored(file) {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		p := m.pkgs[dir]
		if p == nil {
			p = &pkg{dir: dir}
			m.pkgs[dir] = p
		}
		if strings.HasSuffix(base, "_test.go") {
			p.tests = append(p.tests, file)
		} else {
			p.files = append(p.files, file)
		}
		return nil
	})
	return m, err
}

// ignored reports whether a file has the constraint //go:build ignore.
func ignored(file *ast.File) bool {
	for _, group := range file.Comments {
		if group.Pos() > file.Package {
			break
		}
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil {
				if tag, ok := x.(*constraint.TagExpr); ok && tag.Tag == "ignore" {
					return true
				}
			}
		}
	}
	return false
}

// dirs returns the folders of the packages, sorted.
func (m *Module) dirs() []string {
	var dirs []string
	for dir := range m.pkgs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

func (m *Module) find(pos token.Pos, format string, args ...any) Finding {
	p := m.fset.Position(pos)
	name, err := filepath.Rel(m.root, p.Filename)
	if err != nil {
		name = p.Filename
	}
	return Finding{fmt.Sprintf("%s:%d", filepath.ToSlash(name), p.Line), fmt.Sprintf(format, args...)}
}

// A kind tells what an import path names: a package of this module, of the standard
// library, or of another module.
type kind uint8

const (
	ours kind = iota
	std
	foreign
)

func (m *Module) classify(imp string) (kind, string) {
	if imp == m.Path {
		return ours, "."
	}
	if dir, ok := strings.CutPrefix(imp, m.Path+"/"); ok {
		return ours, dir
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return std, imp
	}
	return foreign, imp
}

func importPath(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		return s.Path.Value
	}
	return p
}

// Imports checks every import against the table.
func (m *Module) Imports(t *Table) []Finding {
	var out []Finding
	for _, dir := range m.dirs() {
		p := m.pkgs[dir]
		row := t.row(dir)
		if row == nil {
			first := append(slices.Clone(p.files), p.tests...)[0]
			out = append(out, m.find(first.Package, "package %s is not in the import table (internal/lint/table.go)", dir))
			continue
		}
		for _, f := range p.files {
			for _, s := range f.Imports {
				switch k, imp := m.classify(importPath(s)); {
				case k == ours && imp != dir && !matchAny(row.May, imp) && !matchAny(t.Anywhere, imp):
					out = append(out, m.find(s.Pos(), "%s may not import %s", dir, imp))
				case k == foreign && !underAny(row.Foreign, imp):
					out = append(out, m.find(s.Pos(), "%s may not import %s: another module", dir, imp))
				}
			}
		}
		for _, f := range p.tests {
			for _, s := range f.Imports {
				switch k, imp := m.classify(importPath(s)); {
				case k == ours && imp != dir && !matchAny(row.May, imp) && !matchAny(row.TestsMay, imp) &&
					!matchAny(t.Anywhere, imp) && !matchAny(t.Tests, imp):
					out = append(out, m.find(s.Pos(), "tests of %s may not import %s", dir, imp))
				case k == foreign && !underAny(row.Foreign, imp) && !underAny(t.TestModules, imp):
					out = append(out, m.find(s.Pos(), "tests of %s may not import %s: another module", dir, imp))
				}
			}
		}
	}
	return out
}

// Reach returns the packages of other modules that dir imports, directly or through
// packages of this module, without tests. They are what a user of dir must build.
func (m *Module) Reach(dir string) []string {
	seen := map[string]bool{}
	var far []string
	var walk func(dir string)
	walk = func(dir string) {
		p := m.pkgs[dir]
		if p == nil || seen[dir] {
			return
		}
		seen[dir] = true
		for _, f := range p.files {
			for _, s := range f.Imports {
				switch k, imp := m.classify(importPath(s)); k {
				case ours:
					walk(imp)
				case foreign:
					far = append(far, imp)
				}
			}
		}
	}
	walk(dir)
	slices.Sort(far)
	return slices.Compact(far)
}

// matchAny reports whether a pattern covers dir. A pattern is one of path.Match, or a
// folder followed by "/...".
func matchAny(patterns []string, dir string) bool {
	for _, p := range patterns {
		if top, ok := strings.CutSuffix(p, "/..."); ok && (dir == top || strings.HasPrefix(dir, top+"/")) {
			return true
		}
		if ok, _ := path.Match(p, dir); ok {
			return true
		}
	}
	return false
}

// underAny reports whether imp is one of the paths, or below one of them.
func underAny(paths []string, imp string) bool {
	for _, p := range paths {
		if imp == p || strings.HasPrefix(imp, p+"/") {
			return true
		}
	}
	return false
}
