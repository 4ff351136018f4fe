// Conformance tells which test covers which rule. It collects the rule numbers (R-AREA-nn of
// the libfabric interface and S-AREA-nn of the UET semantics, see rules.txt) that the tests of
// the module cite and the exceptions in docs/conformance-exceptions.txt, and writes
// docs/conformance.md. Rules S of areas that rules.txt does not have (docs/protocol) are none
// of its business.
//
//	go run ./internal/conformance
//
// A citation counts for the test whose body or comment contains it, and for the tests that use the helper
// that contains it; a helper of more than four is named itself, once. Lists may be short: "R-CQ-47, -48 and -49", "R-CQ-12 to
// -16". Exceptions are lines "R-AREA-nn why", in the order of the rules.
//
// A rule with neither a test nor an exception is open and must be in open.txt, whose first
// line bounds their number. This program removes rules that are no longer open from the
// list. The list must never grow.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	rulesFile      = "internal/conformance/rules.txt"
	openFile       = "internal/conformance/open.txt"
	exceptionsFile = "docs/conformance-exceptions.txt"
	outFile        = "docs/conformance.md"
)

func main() {
	root, err := moduleRoot()
	if err == nil {
		err = rewrite(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// moduleRoot returns the nearest folder with go.mod, here or above.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// rewrite updates the files.
func rewrite(root string) error {
	s, err := load(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, outFile), s.document(), 0o644); err != nil {
		return err
	}
	if more := s.unlisted(); len(more) > 0 {
		return fmt.Errorf("neither a test nor an exception for %v", more)
	}
	return os.WriteFile(filepath.Join(root, openFile), s.openList(), 0o644)
}

// A rule is the number of a rule.
type rule struct {
	area string // such as "R-CQ"
	n    int
}

func (r rule) String() string { return fmt.Sprintf("%s-%02d", r.area, r.n) }

// state is everything that was read.
type state struct {
	areas   []area
	tests   map[rule][]string // "cq/read_test.go:TestReadInOrder", sorted
	excepts map[rule]string
	listed  map[rule]bool // the rules in open.txt
	most    int           // the bound in open.txt
}

type area struct {
	name, about string // "R-CQ", what it is about
	rules       []titled
}

// A titled rule has a number in its area and says what it is about.
type titled struct {
	n     int
	title string
}

// heading returns the heading of the area in the document: the rules R are older and have
// short ones.
func (a area) heading() string { return strings.TrimPrefix(a.name, "R-") }

// load reads the rules, the exceptions, the open rules and the tests.
func load(root string) (*state, error) {
	s := &state{excepts: map[rule]string{}, listed: map[rule]bool{}}
	for _, f := range []struct {
		name string
		read func([]byte) error
	}{{rulesFile, s.readRules}, {exceptionsFile, s.readExceptions}, {openFile, s.readOpen}} {
		b, err := os.ReadFile(filepath.Join(root, f.name))
		if err == nil {
			err = f.read(b)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	var err error
	if s.tests, err = collect(root, s.counts); err != nil {
		return nil, err
	}
	for r, by := range s.tests {
		if !s.known(r) {
			return nil, fmt.Errorf("%s: there is no rule %v", by[0], r)
		}
	}
	return s, nil
}

// area returns the area of a rule, or nil.
func (s *state) area(r rule) *area {
	if i := slices.IndexFunc(s.areas, func(a area) bool { return a.name == r.area }); i >= 0 {
		return &s.areas[i]
	}
	return nil
}

func (s *state) known(r rule) bool {
	a := s.area(r)
	return a != nil && slices.ContainsFunc(a.rules, func(t titled) bool { return t.n == r.n })
}

// counts reports whether a citation is to be collected: other sublayers have areas of their
// own, which are not listed here.
func (s *state) counts(r rule) bool {
	return strings.HasPrefix(r.area, "R-") || s.area(r) != nil
}

// all calls f for every rule, in order.
func (s *state) all(f func(r rule, title string)) {
	for _, a := range s.areas {
		for _, t := range a.rules {
			f(rule{a.name, t.n}, t.title)
		}
	}
}

// lines calls f for every line that is not a comment.
func lines(b []byte, f func(line string) error) error {
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// ruleLine splits "R-CQ-01 text".
func ruleLine(line string) (rule, string, error) {
	name, text, _ := strings.Cut(line, " ")
	r, ok := parseRule(name)
	if !ok || text == "" {
		return rule{}, "", fmt.Errorf("%q is no rule and text", line)
	}
	return r, strings.TrimSpace(text), nil
}

func (s *state) readRules(b []byte) error {
	about := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": "); ok && strings.HasPrefix(line, "# ") {
			about[name] = text
		}
	}
	return lines(b, func(line string) error {
		r, title, err := ruleLine(line)
		if err != nil {
			return err
		}
		if s.area(r) == nil {
			s.areas = append(s.areas, area{name: r.area, about: about[strings.TrimPrefix(r.area, "R-")]})
		}
		last := &s.areas[len(s.areas)-1]
		before := 0
		if k := len(last.rules); k > 0 {
			before = last.rules[k-1].n
		}
		// The rules R have no gaps.
		if last.name != r.area || r.n <= before || strings.HasPrefix(r.area, "R-") && r.n != before+1 {
			return fmt.Errorf("%v is out of turn", r)
		}
		last.rules = append(last.rules, titled{r.n, title})
		return nil
	})
}

func (s *state) readExceptions(b []byte) error {
	var before rule
	return lines(b, func(line string) error {
		r, why, err := ruleLine(line)
		switch {
		case err != nil:
			return err
		case !s.known(r):
			return fmt.Errorf("there is no rule %v", r)
		case compare(before, r) >= 0 && before.area != "":
			return fmt.Errorf("%v is out of order or there twice", r)
		}
		before = r
		s.excepts[r] = why
		return nil
	})
}

func compare(a, b rule) int {
	return cmp.Or(cmp.Compare(a.area, b.area), cmp.Compare(a.n, b.n))
}

func (s *state) readOpen(b []byte) error {
	err := lines(b, func(line string) error {
		if n, ok := strings.CutPrefix(line, "at most "); ok {
			var err error
			s.most, err = strconv.Atoi(n)
			return err
		}
		r, ok := parseRule(line)
		if !ok || !s.known(r) {
			return fmt.Errorf("%q is no rule", line)
		}
		s.listed[r] = true
		return nil
	})
	if err == nil && len(s.listed) > s.most {
		err = fmt.Errorf("%d rules are listed, at most %d may be", len(s.listed), s.most)
	}
	return err
}

// open returns the rules with neither a test nor an exception.
func (s *state) open() (rs []rule) {
	s.all(func(r rule, _ string) {
		if len(s.tests[r]) == 0 && s.excepts[r] == "" {
			rs = append(rs, r)
		}
	})
	return rs
}

// unlisted returns the open rules that open.txt does not list.
func (s *state) unlisted() []rule {
	return slices.DeleteFunc(s.open(), func(r rule) bool { return s.listed[r] })
}

// openList returns open.txt without the rules that are no longer open.
func (s *state) openList() []byte {
	var b bytes.Buffer
	rs := slices.DeleteFunc(s.open(), func(r rule) bool { return !s.listed[r] })
	b.WriteString("# Rules that have neither a test nor an exception yet. go run ./internal/conformance\n" +
		"# takes out what has; nothing is put in, and the number only goes down.\n")
	fmt.Fprintf(&b, "at most %d\n", len(rs))
	for _, r := range rs {
		fmt.Fprintln(&b, r)
	}
	return b.Bytes()
}

// document returns docs/conformance.md.
func (s *state) document() []byte {
	var b bytes.Buffer
	b.WriteString(`# Conformance

Which test holds which rule of the libfabric interface (R) and of the semantic sublayer of UET (S). Written by

    go run ./internal/conformance

from what the tests cite, ` + "`" + rulesFile + "` and `" + exceptionsFile + "`" + `. A rule is tested,
excepted with a reason, or open (` + "`" + openFile + "`" + `, which may only shrink).
`)
	s.overview(&b, "R", "")
	s.overview(&b, "S", "\nThe rules of UET are told in [protocol/ses.md](protocol/ses.md) as far as uetkit has more to say about them.\n")
	for _, a := range s.areas {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| rule | about | held by |\n|---|---|---|\n", a.heading(), upper(a.about))
		for _, t := range a.rules {
			r := rule{a.name, t.n}
			held := strings.Join(s.tests[r], "<br>")
			if why := s.excepts[r]; why != "" {
				if held != "" {
					held += "<br>"
				}
				held += "*excepted:* " + why
			}
			if held == "" {
				held = "**open**"
			}
			fmt.Fprintf(&b, "| %v | %s | %s |\n", r, t.title, held)
		}
	}
	return b.Bytes()
}

// overview writes the table of the areas of one kind, R or S, and what stands above it.
func (s *state) overview(b *bytes.Buffer, kind, about string) {
	var sum [4]int
	for i, a := range s.areas {
		if !strings.HasPrefix(a.name, kind+"-") {
			continue
		}
		if i == 0 || !strings.HasPrefix(s.areas[i-1].name, kind+"-") {
			b.WriteString(about + "\n| area | what | rules | tested | excepted | open |\n|---|---|--:|--:|--:|--:|\n")
		}
		var n [4]int
		n[0] = len(a.rules)
		for _, t := range a.rules {
			r := rule{a.name, t.n}
			switch {
			case len(s.tests[r]) > 0:
				n[1]++
			case s.excepts[r] != "":
				n[2]++
			default:
				n[3]++
			}
		}
		for i := range sum {
			sum[i] += n[i]
		}
		fmt.Fprintf(b, "| [%s](#%s) | %s | %d | %d | %d | %d |\n", a.heading(), strings.ToLower(a.heading()), a.about, n[0], n[1], n[2], n[3])
	}
	if sum[0] > 0 {
		fmt.Fprintf(b, "| all | | %d | %d | %d | %d |\n", sum[0], sum[1], sum[2], sum[3])
	}
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
