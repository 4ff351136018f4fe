package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	ruleName = regexp.MustCompile(`^([RS]-[A-Z]+)-([0-9]{2,3})$`)
	citation = regexp.MustCompile(`\b([RS]-[A-Z]+)-([0-9]{2,3})\b`)
	// These match what may follow a citation: another number of the same area, or the end of a
	// range.
	another = regexp.MustCompile(`^(?:, and|, or|,| and| or) -([0-9]{2,3})\b`)
	through = regexp.MustCompile(`^ (?:to|through|…) (?:[RS]-[A-Z]+)?-?([0-9]{2,3})\b`)
	blanks  = regexp.MustCompile(`\s+`)
)

func parseRule(s string) (rule, bool) {
	m := ruleName.FindStringSubmatch(s)
	if m == nil {
		return rule{}, false
	}
	n, _ := strconv.Atoi(m[2])
	return rule{m[1], n}, true
}

// cited returns the rules that a text cites.
func cited(text string) (rs []rule) {
	text = blanks.ReplaceAllString(text, " ")
	for _, m := range citation.FindAllStringSubmatchIndex(text, -1) {
		area := text[m[2]:m[3]]
		n, _ := strconv.Atoi(text[m[4]:m[5]])
		rs = append(rs, rule{area, n})
		for rest := text[m[1]:]; ; {
			if k := another.FindStringSubmatch(rest); k != nil {
				n, _ = strconv.Atoi(k[1])
				rs = append(rs, rule{area, n})
				rest = rest[len(k[0]):]
			} else if k := through.FindStringSubmatch(rest); k != nil {
				last, _ := strconv.Atoi(k[1])
				for n++; n <= last; n++ {
					rs = append(rs, rule{area, n})
				}
				n = last
				rest = rest[len(k[0]):]
			} else {
				break
			}
		}
	}
	slices.SortFunc(rs, compare)
	return slices.Compact(rs) // a range may repeat its last number
}

// A decl is a top-level declaration of a test file: a function, a type, or a variable that
// may hold test cases.
type decl struct {
	at    string // file:line
	name  string // file:Name
	test  string // file:Name if it is a test, an example or a fuzz target; else ""
	rules []rule
	uses  map[string]bool // all names that occur in it
}

// few is how many tests that use a helper are named for a rule that the helper cites. Of more, the helper is.
const few = 4

// collect reads all tests of the module. It returns the tests that cite each rule that counts, and the
// helpers of many tests that do.
func collect(root string, counts func(rule) bool) (map[rule][]string, error) {
	packages := map[string]map[string][]*decl{} // by folder and package name, then by declared name
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "vendor"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasPrefix(rel, "internal/conformance/") {
			return nil // examples of citations, not citations
		}
		return readTests(path, rel, packages, counts)
	})
	if err != nil {
		return nil, err
	}
	found := map[rule]map[string]bool{}
	hold := func(d *decl, by string) {
		for _, r := range d.rules {
			if found[r] == nil {
				found[r] = map[string]bool{}
			}
			found[r][by] = true
		}
	}
	for _, decls := range packages {
		reached := map[*decl][]string{} // by which tests
		for _, ds := range decls {
			for _, d := range ds {
				if d.test == "" {
					continue
				}
				for used := range reach(d, decls) {
					if len(used.rules) > 0 {
						reached[used] = append(reached[used], d.test)
					}
				}
			}
		}
		for _, ds := range decls {
			for _, d := range ds {
				tests := reached[d]
				switch {
				case len(d.rules) == 0:
				case len(tests) == 0:
					return nil, fmt.Errorf("%s: %v is cited where no test comes by", d.at, d.rules[0])
				case len(tests) > few:
					hold(d, fmt.Sprintf("%s, a helper of %d tests", d.name, len(tests)))
				default:
					for _, test := range tests {
						hold(d, test)
					}
				}
			}
		}
	}
	tests := map[rule][]string{}
	for r, by := range found {
		tests[r] = slices.Sorted(maps.Keys(by))
	}
	return tests, nil
}

// reach returns the declarations that d uses, directly or indirectly, without other tests.
func reach(d *decl, decls map[string][]*decl) map[*decl]bool {
	seen := map[*decl]bool{d: true}
	for todo := []*decl{d}; len(todo) > 0; {
		d := todo[0]
		todo = todo[1:]
		for name := range d.uses {
			for _, u := range decls[name] {
				if !seen[u] && u.test == "" {
					seen[u] = true
					todo = append(todo, u)
				}
			}
		}
	}
	return seen
}

// readTests adds the declarations of a file to those of its package. A folder may have two
// packages, which do not use each other's declarations.
func readTests(path, rel string, packages map[string]map[string][]*decl, counts func(rule) bool) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	in := filepath.Dir(rel) + " " + file.Name.Name
	if packages[in] == nil {
		packages[in] = map[string][]*decl{}
	}
	decls := packages[in]
	line := func(p token.Pos) string { return fmt.Sprintf("%s:%d", rel, fset.Position(p).Line) }
	counted := func(text string) []rule {
		return slices.DeleteFunc(cited(text), func(r rule) bool { return !counts(r) })
	}
	taken := map[*ast.CommentGroup]bool{}
	for _, top := range file.Decls {
		d := &decl{at: line(top.Pos()), uses: map[string]bool{}}
		from := top.Pos()
		var names []string
		switch top := top.(type) {
		case *ast.FuncDecl:
			names = []string{top.Name.Name}
			if top.Doc != nil {
				from = top.Doc.Pos()
			}
			if top.Recv == nil && isTest(top.Name.Name) {
				d.test = rel + ":" + top.Name.Name
			}
		case *ast.GenDecl:
			if top.Doc != nil {
				from = top.Doc.Pos()
			}
			for _, spec := range top.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				}
			}
		}
		for _, g := range file.Comments {
			if g.Pos() >= from && g.End() <= top.End() {
				taken[g] = true
				d.rules = append(d.rules, counted(g.Text())...)
			}
		}
		ast.Inspect(top, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				d.uses[n.Name] = true
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					d.rules = append(d.rules, counted(n.Value)...)
				}
			}
			return true
		})
		if len(names) > 0 {
			d.name = rel + ":" + names[0]
		}
		for _, name := range names {
			decls[name] = append(decls[name], d)
		}
	}
	for _, g := range file.Comments {
		// A comment before the package clause is about the file. Any other comment with a
		// citation must belong to a declaration.
		if rs := counted(g.Text()); len(rs) > 0 && !taken[g] {
			return fmt.Errorf("%s: %v is cited where no test comes by", line(g.Pos()), rs[0])
		}
	}
	return nil
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}
