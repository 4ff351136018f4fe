package lint

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Refs checks the references in comments and documents: to a file, a heading, a numbered
// rule, a decision, or a section of a public specification. The target must be in this
// repository, or be a section that docs/protocol/README.md lists, because readers may have
// nothing but the repository.
//
// It checks the comments of Go files, the documents (.md and .txt), and the lines with # of
// test scripts (.txt in testdata). It leaves out the files that unmended names, but each of
// those patterns must still match a wrong reference.
func (m *Module) Refs(unmended []string) ([]Finding, error) {
	k, err := m.known()
	if err != nil {
		return nil, err
	}
	mended := map[string]bool{}
	for _, u := range unmended {
		mended[u] = true
	}
	var out []Finding
	report := func(name string, line int, text string) {
		for _, why := range k.check(name, text) {
			if u := slices.IndexFunc(unmended, func(p string) bool { return coversFile(p, name) }); u >= 0 {
				mended[unmended[u]] = false
				continue
			}
			out = append(out, Finding{fmt.Sprintf("%s:%d", name, line), why})
		}
	}
	for _, dir := range m.dirs() {
		p := m.pkgs[dir]
		for _, f := range slices.Concat(p.files, p.tests) {
			for _, group := range f.Comments {
				for _, c := range group.List {
					pos := m.fset.Position(c.Pos())
					name := m.rel(pos.Filename)
					for i, text := range strings.Split(c.Text, "\n") {
						report(name, pos.Line+i, text)
					}
				}
			}
		}
	}
	for _, name := range k.documents {
		text, err := os.ReadFile(filepath.Join(m.root, name))
		if err != nil {
			return nil, fmt.Errorf("lint: %w", err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(name, "/testdata/") && !strings.HasPrefix(line, "#") {
				continue // the file is a log of a test, not prose
			}
			report(name, i+1, line)
		}
	}
	for _, u := range unmended {
		if mended[u] {
			out = append(out, Finding{u, "nothing is left to mend here: take it out of unmended"})
		}
	}
	return out, nil
}

// coversFile reports whether a pattern covers a file. A pattern is a file, a folder
// followed by "/" for the files in it, or by "/..." for all below it.
func coversFile(pattern, name string) bool {
	if top, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(name, top+"/")
	}
	if strings.HasSuffix(pattern, "/") {
		return path.Dir(name)+"/" == pattern
	}
	return pattern == name
}

func (m *Module) rel(name string) string {
	r, err := filepath.Rel(m.root, name)
	if err != nil {
		return name
	}
	return filepath.ToSlash(r)
}

// known has everything that may be referred to.
type known struct {
	root      string
	documents []string            // documents to check
	headings  map[string][]string // anchors of headings, by document
	rules     map[string]bool     // such as S-ACK-01, R-CQ-127, F13, T9
	faults    map[string]bool     // numbers of the rules above the table of docs/faults.md
	decisions map[string]bool     // such as 1, 2
	sections  map[string]bool     // of the UE specification
}

var (
	heading     = regexp.MustCompile(`^#+ +(.*)`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
	ruleRow     = regexp.MustCompile(`^\| *([SR]-[A-Z]+-[0-9]+|[FT][0-9]+[a-z]?) *\|`)
	faultRow    = regexp.MustCompile(`^\| *([0-9]+)\. `)
	sectionRow  = regexp.MustCompile(`^\| UE ([0-9.]+) \|`)
	decision    = regexp.MustCompile(`^0*([0-9]+)-.*\.md$`)
)

// known collects everything that may be referred to.
func (m *Module) known() (*known, error) {
	k := &known{
		root: m.root, headings: map[string][]string{}, rules: map[string]bool{}, faults: map[string]bool{},
		decisions: map[string]bool{}, sections: map[string]bool{},
	}
	err := filepath.WalkDir(m.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		switch {
		case d.IsDir() && name != m.root && (base[0] == '.' || base[0] == '_' || base == "vendor"):
			return filepath.SkipDir
		case d.IsDir():
		case path.Ext(base) == ".md":
			k.documents = append(k.documents, m.rel(name))
			return k.read(m.rel(name))
		case path.Ext(base) == ".txt":
			k.documents = append(k.documents, m.rel(name))
		}
		return nil
	})
	return k, err
}

// read adds a document.
func (k *known) read(name string) error {
	text, err := os.ReadFile(filepath.Join(k.root, name))
	if err != nil {
		return fmt.Errorf("lint: %w", err)
	}
	dir, base := path.Split(name)
	if n := decision.FindStringSubmatch(base); n != nil && dir == "docs/decisions/" {
		k.decisions[n[1]] = true
	}
	fenced := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if h := heading.FindStringSubmatch(line); h != nil && !fenced {
			k.headings[name] = append(k.headings[name], anchor(h[1]))
		}
		switch {
		case name == "docs/faults.md":
			if n := faultRow.FindStringSubmatch(line); n != nil {
				k.faults[n[1]] = true
			}
			fallthrough
		case dir == "docs/protocol/" || name == "docs/conformance.md":
			if n := ruleRow.FindStringSubmatch(line); n != nil {
				k.rules[n[1]] = true
			}
			if n := sectionRow.FindStringSubmatch(line); n != nil {
				k.sections[n[1]] = true
			}
		}
	}
	return nil
}

// anchor returns the anchor that GitHub gives a heading.
func anchor(h string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h), ""), " ", "-")
}

// These match references.
var (
	fileRef     = regexp.MustCompile(`[A-Za-z0-9_./-]*[A-Za-z0-9_]\.md\b(#[a-z0-9_-]+)?|\bdocs/[A-Za-z0-9_./-]*[A-Za-z0-9_/]`)
	webLink     = regexp.MustCompile(`https?://\S+`)
	ruleRef     = regexp.MustCompile(`\b[SR]-[A-Z]+-[0-9]+\b|\b[FT][1-9][0-9]?\b`)
	faultRule   = regexp.MustCompile(`docs/faults\.md,? rule ([0-9]+)`)
	decisionRef = regexp.MustCompile(`\bdecisions? 0*([0-9]+)(?:(?:,| and| to) 0*([0-9]+))*\b|docs/decisions/0*([0-9]+)`)
	ueRef       = regexp.MustCompile(`\bUE §?([2-9](?:\.[0-9]+)*)((?:(?:,| and| to|, and) §?[2-9](?:\.[0-9]+)+)*)`)
	number      = regexp.MustCompile(`[2-9](?:\.[0-9]+)+`)
	paragraph   = regexp.MustCompile(`((?:RFC|SP) [0-9A-Z-]+,? )?§`)
	paper       = regexp.MustCompile(`\b[Dd]esign (?:D[0-9]|§|[0-9])|\bD[0-9]{1,2}\b|\bU-[0-9]{2}\b`)
)

// check returns what is wrong with the references in one line of a file.
func (k *known) check(name, text string) []string {
	var out []string
	text = webLink.ReplaceAllString(text, "")
	for _, ref := range fileRef.FindAllString(text, -1) {
		file, frag, _ := strings.Cut(ref, "#")
		at := k.where(name, file)
		switch {
		case at == "":
			out = append(out, fmt.Sprintf("%s is not in this repository", file))
		case frag != "" && !slices.Contains(k.headings[at], frag):
			out = append(out, fmt.Sprintf("%s has no heading #%s", at, frag))
		}
	}
	for _, ref := range ruleRef.FindAllString(text, -1) {
		if !k.rules[ref] && !(strings.HasPrefix(ref, "R-") && name == "internal/conformance/rules.txt") {
			out = append(out, fmt.Sprintf("there is no rule %s in docs/protocol, docs/conformance.md or docs/faults.md", ref))
		}
	}
	for _, ref := range faultRule.FindAllStringSubmatch(text, -1) {
		if !k.faults[ref[1]] {
			out = append(out, fmt.Sprintf("docs/faults.md has no rule %s", ref[1]))
		}
	}
	for _, ref := range decisionRef.FindAllStringSubmatch(text, -1) {
		for _, n := range ref[1:] {
			if n != "" && !k.decisions[n] {
				out = append(out, fmt.Sprintf("there is no decision %s in docs/decisions", n))
			}
		}
	}
	for _, ref := range ueRef.FindAllStringSubmatch(text, -1) {
		for _, s := range append([]string{ref[1]}, number.FindAllString(ref[2], -1)...) {
			if !k.sections[s] {
				out = append(out, fmt.Sprintf("UE %s is not among the sections in docs/protocol/README.md", s))
			}
		}
	}
	for _, ref := range paragraph.FindAllStringSubmatch(text, -1) {
		if ref[1] == "" {
			out = append(out, "§ of which document? Write UE 3.5.11.4, RFC 9000 §17, or docs/x.md#heading")
		}
	}
	if ref := paper.FindString(text); ref != "" {
		out = append(out, fmt.Sprintf("%q refers to a text that is not in this repository", ref))
	}
	return out
}

// where finds a file that another file names, relative to the root or to that file.
func (k *known) where(name, file string) string {
	for _, at := range []string{file, path.Join(path.Dir(name), file)} {
		at = path.Clean(at)
		if _, err := os.Stat(filepath.Join(k.root, filepath.FromSlash(at))); err == nil {
			return at
		}
		if dir, base := path.Split(at); base != "" { // docs/decisions/0011 stands for the file with that prefix
			if l, _ := filepath.Glob(filepath.Join(k.root, filepath.FromSlash(dir), base+"-*.md")); len(l) == 1 {
				return at
			}
		}
	}
	return ""
}
