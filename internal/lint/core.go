package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// coreStd are the packages of the standard library that a Core package may import: none
// that waits, uses the system or differs between two runs.
var coreStd = []string{
	"bytes", "cmp", "container/heap", "container/list", "encoding/binary", "encoding/hex", "errors", "fmt", "hash", "hash/crc32", "io", "iter",
	"maps", "math", "math/bits", "math/rand/v2", "net/netip", "slices", "sort", "strconv", "strings", "time", "unsafe",
	"crypto/aes", "crypto/cipher", "crypto/hkdf", "crypto/hmac", "crypto/sha256", "crypto/subtle",
}

// coreUses are the names that a Core package may use of packages that have forbidden names,
// too: time without a clock, randomness that was passed in.
var coreUses = map[string][]string{
	"time":         {"Duration", "ParseDuration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	"math/rand/v2": {"Rand", "New", "Source", "PCG", "NewPCG", "ChaCha8", "NewChaCha8", "Zipf", "NewZipf"},
}

// Core checks that the table's Core packages, without their tests, are state machines. It
// checks their imports, and that they use no clock, no global randomness, no goroutine and
// no channel.
func (m *Module) Core(t *Table) []Finding {
	var out []Finding
	for _, dir := range m.dirs() {
		row := t.row(dir)
		if row == nil || !row.Core {
			continue
		}
		for _, f := range m.pkgs[dir].files {
			out = append(out, m.coreFile(row, dir, f)...)
		}
	}
	return out
}

// coreFile checks one file of a Core package.
func (m *Module) coreFile(row *Row, dir string, f *ast.File) []Finding {
	var out []Finding
	names := map[string]string{} // local name of a restricted package → its path
	for _, s := range f.Imports {
		k, imp := m.classify(importPath(s))
		if k != std {
			continue // Imports checks those
		}
		if !slices.Contains(coreStd, imp) && !slices.Contains(row.Std, imp) {
			out = append(out, m.find(s.Pos(), "%s is core: it may not import %q", dir, imp))
		}
		if coreUses[imp] == nil {
			continue
		}
		name := imp[strings.LastIndexByte(imp, '/')+1:]
		if imp == "math/rand/v2" {
			name = "rand"
		}
		if s.Name != nil {
			name = s.Name.Name
		}
		if name == "." {
			out = append(out, m.find(s.Pos(), "%s is core: dot import of %q hides its use", dir, imp))
		}
		names[name] = imp
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, m.find(n.Pos(), "%s is core: it starts a goroutine", dir))
		case *ast.ChanType:
			out = append(out, m.find(n.Pos(), "%s is core: it has a channel", dir))
		case *ast.SelectStmt:
			out = append(out, m.find(n.Pos(), "%s is core: it waits in a select", dir))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if imp := names[x.Name]; imp != "" && !slices.Contains(coreUses[imp], n.Sel.Name) {
					out = append(out, m.find(n.Pos(), "%s is core: it may not use %s.%s", dir, x.Name, n.Sel.Name))
				}
			}
		}
		return true
	})
	return out
}

// Types checks two rules that need types. Sequence numbers (wire.PSN) must not be ordered
// by <, min or max, which are wrong across 2³². Core packages must not range over a map,
// because the order differs between two runs with one seed. A range whose order does not
// matter has a comment with "any order" on its line.
//
// Other modules and the standard library are not loaded, so an expression whose type
// depends on them is not checked.
func (m *Module) Types(t *Table) []Finding {
	c := m.checker()
	var out []Finding
	for _, dir := range m.dirs() {
		c.check(dir)
		row := t.row(dir)
		core := row != nil && row.Core
		info := c.info[dir]
		for _, f := range m.pkgs[dir].files {
			out = append(out, m.typesFile(dir, f, info, core)...)
		}
	}
	return out
}

// typesFile checks one file. core says that its package is Core.
func (m *Module) typesFile(dir string, f *ast.File, info *types.Info, core bool) []Finding {
	var out []Finding
	free := map[int]bool{} // lines with "any order"
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.Contains(c.Text, "any order") {
				free[m.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			switch n.Op {
			case token.LSS, token.GTR, token.LEQ, token.GEQ:
				if m.isPSN(info.TypeOf(n.X)) || m.isPSN(info.TypeOf(n.Y)) {
					out = append(out, m.find(n.OpPos, "PSNs compared by %s: use Before, After, Sub or InWindow", n.Op))
				}
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "min" || name.Name == "max") {
				for _, a := range n.Args {
					if m.isPSN(info.TypeOf(a)) {
						out = append(out, m.find(n.Pos(), "%s of PSNs: use Before or After", name.Name))
						break
					}
				}
			}
		case *ast.RangeStmt:
			if !core || free[m.fset.Position(n.Pos()).Line] {
				break
			}
			if typ := info.TypeOf(n.X); typ != nil {
				if _, ok := typ.Underlying().(*types.Map); ok {
					out = append(out, m.find(n.Pos(), "%s is core: it ranges over a map, in another order each run", dir))
				}
			}
		}
		return true
	})
	return out
}

// isPSN reports whether t is the type PSN of the module's transport/wire.
func (m *Module) isPSN(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok {
		return false
	}
	obj := named.Obj()
	return obj.Name() == "PSN" && obj.Pkg() != nil && obj.Pkg().Path() == m.Path+"/transport/wire"
}

// A checker type-checks the module's own packages and replaces all others by empty ones. It
// ignores the errors that follow from that.
type checker struct {
	m    *Module
	done map[string]*types.Package
	info map[string]*types.Info
}

// checker returns the checker of m, which checks each package once.
func (m *Module) checker() *checker {
	if m.types == nil {
		m.types = &checker{m: m, done: map[string]*types.Package{}, info: map[string]*types.Info{}}
	}
	return m.types
}

func (c *checker) Import(imp string) (*types.Package, error) {
	if k, dir := c.m.classify(imp); k == ours && c.m.pkgs[dir] != nil {
		return c.check(dir), nil
	}
	if imp == "unsafe" {
		return types.Unsafe, nil
	}
	p := c.done[imp]
	if p == nil {
		name := imp[strings.LastIndexByte(imp, '/')+1:]
		if imp == "math/rand/v2" {
			name = "rand"
		}
		p = types.NewPackage(imp, name)
		p.MarkComplete()
		c.done[imp] = p
	}
	return p, nil
}

func (c *checker) check(dir string) *types.Package {
	imp := c.m.Path + "/" + dir
	if p := c.done[imp]; p != nil {
		return p
	}
	c.done[imp] = types.NewPackage(imp, "") // ends an import cycle
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: c, Error: func(error) {}}
	p, _ := conf.Check(imp, c.m.fset, c.m.pkgs[dir].files, info)
	c.done[imp] = p
	c.info[dir] = info
	return p
}
