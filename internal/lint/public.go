package lint

import (
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A Public package is for users: its API is stable.
type Public struct {
	Dir string
	// Shows lists packages of this module that are not for users but whose types it shows. Why
	// tells what for.
	Shows []string
	Why   string
	// Listed says that testdata/public.txt lists every exported name.
	Listed bool
}

// API lists the exported names of a package as PACKAGE.NAME, PACKAGE.TYPE.METHOD and
// PACKAGE.TYPE.FIELD, including those that a type embeds.
func (m *Module) API(dir string) []string {
	var names []string
	for name := range m.public(dir) {
		names = append(names, strings.ReplaceAll(dir, "/", ".")+"."+name)
	}
	slices.Sort(names)
	return names
}

// Shown finds exported names of public packages with types from packages of this module
// that are not for users.
func (m *Module) Shown(all []Public) []Finding {
	var out []Finding
	for _, p := range all {
		for name, obj := range m.public(p.Dir) {
			for _, dir := range m.shownBy(obj.Type()) {
				if !slices.ContainsFunc(all, func(q Public) bool { return q.Dir == dir }) && !slices.Contains(p.Shows, dir) {
					out = append(out, m.find(obj.Pos(), "%s.%s shows users a type of %s", p.Dir, name, dir))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Pos, b.Pos) })
	return out
}

// public returns the exported objects of a package by name.
func (m *Module) public(dir string) map[string]types.Object {
	pkg := m.checker().check(dir)
	out := map[string]types.Object{}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !token.IsExported(name) {
			continue
		}
		out[name] = obj
		tn, ok := obj.(*types.TypeName)
		if !ok {
			continue
		}
		if s, ok := tn.Type().Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if f.Exported() {
					out[name+"."+f.Name()] = f
				}
			}
		}
		of := tn.Type()
		if !types.IsInterface(of) {
			of = types.NewPointer(of)
		}
		set := types.NewMethodSet(of)
		for i := range set.Len() {
			if f := set.At(i).Obj(); f.Exported() {
				out[name+"."+f.Name()] = f
			}
		}
	}
	return out
}

// shownBy returns the folders of this module whose types occur in a type. It ignores the
// fields and methods of named types.
func (m *Module) shownBy(t types.Type) []string {
	var dirs []string
	seen := map[types.Type]bool{}
	var walk func(types.Type)
	tuple := func(t *types.Tuple) {
		for v := range t.Variables() {
			walk(v.Type())
		}
	}
	walk = func(t types.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t := t.(type) {
		case *types.Alias:
			walk(t.Rhs())
		case *types.Named:
			if p := t.Obj().Pkg(); p != nil {
				if k, dir := m.classify(p.Path()); k == ours {
					dirs = append(dirs, dir)
				}
			}
			for a := range t.TypeArgs().Types() {
				walk(a)
			}
		case *types.Pointer:
			walk(t.Elem())
		case *types.Slice:
			walk(t.Elem())
		case *types.Array:
			walk(t.Elem())
		case *types.Chan:
			walk(t.Elem())
		case *types.Map:
			walk(t.Key())
			walk(t.Elem())
		case *types.Signature:
			tuple(t.Params())
			tuple(t.Results())
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() || f.Embedded() {
					walk(f.Type())
				}
			}
		case *types.Interface:
			for f := range t.Methods() {
				walk(f.Type())
			}
		}
	}
	walk(t)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
