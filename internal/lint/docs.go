package lint

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Pages are the Markdown files of a module, by path relative to its root.
type Pages struct {
	root string
	text map[string]string
}

// LoadPages reads every Markdown file under root, except in folders that the go command
// ignores.
func LoadPages(root string) (*Pages, error) {
	p := &Pages{root: root, text: map[string]string{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != root && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_'):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(base) != ".md":
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		p.text[filepath.ToSlash(rel)] = string(b)
		return err
	})
	return p, err
}

// names returns the paths of the pages, sorted.
func (p *Pages) names() []string {
	var names []string
	for name := range p.text {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A block is a fenced block of a page.
type block struct {
	lang string
	line int // of the first line of text
	text []string
}

// blocks returns the fenced blocks of a page. prose has the lines of the page, blank where
// blocks were.
func (p *Pages) blocks(name string) (blocks []block, prose []string) {
	var b *block
	for i, line := range strings.Split(p.text[name], "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && b == nil:
			b = &block{lang: strings.TrimSpace(fence), line: i + 2}
		case isFence:
			blocks = append(blocks, *b)
			b = nil
		case b != nil:
			b.text = append(b.text, line)
		default:
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	return blocks, prose
}

var (
	linkRE     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codeRE     = regexp.MustCompile("`[^`]*`")
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Links finds broken links: to a file or folder that does not exist, or to a heading that
// the page does not have. It does not check web addresses.
func (p *Pages) Links() []Finding {
	var out []Finding
	for _, name := range p.names() {
		_, prose := p.blocks(name)
		for i, line := range prose {
			for _, m := range linkRE.FindAllStringSubmatch(codeRE.ReplaceAllString(line, ""), -1) {
				if why := p.link(name, m[1]); why != "" {
					out = append(out, Finding{fmt.Sprintf("%s:%d", name, i+1), fmt.Sprintf("link to %s: %s", m[1], why)})
				}
			}
		}
	}
	return out
}

// link returns what is wrong with a link of a page; "" if nothing is.
func (p *Pages) link(from, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" {
		return ""
	}
	to := from
	if u.Path != "" {
		to = filepath.ToSlash(filepath.Join(filepath.Dir(from), u.Path))
		if _, err := os.Stat(filepath.Join(p.root, to)); err != nil {
			return "there is no such file"
		}
	}
	if u.Fragment == "" || filepath.Ext(to) != ".md" {
		return ""
	}
	_, prose := p.blocks(to)
	for _, line := range prose {
		if title := strings.TrimLeft(line, "#"); title != line && slug(title) == u.Fragment {
			return ""
		}
	}
	return "there is no such heading"
}

// slug returns the anchor of a heading.
func slug(title string) string {
	title = notInSlugs.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
	return strings.ReplaceAll(title, " ", "-")
}

// Code finds fenced Go in pages that no Go file of the module contains line by line. Such
// code may not compile. Indentation is ignored.
func (p *Pages) Code(m *Module) ([]Finding, error) {
	var sources []string
	for _, dir := range m.dirs() {
		for _, f := range append(slices.Clone(m.pkgs[dir].tests), m.pkgs[dir].files...) {
			b, err := os.ReadFile(m.fset.Position(f.Package).Filename)
			if err != nil {
				return nil, err
			}
			sources = append(sources, "\n"+dedent(strings.Split(string(b), "\n"))+"\n")
		}
	}
	var out []Finding
	for _, name := range p.names() {
		blocks, _ := p.blocks(name)
		for _, b := range blocks {
			text := "\n" + dedent(b.text) + "\n"
			if b.lang == "go" && !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, text) }) {
				out = append(out, Finding{fmt.Sprintf("%s:%d", name, b.line), "no Go file has this block: put it into an Example"})
			}
		}
	}
	return out, nil
}

// dedent joins lines without their indentation.
func dedent(lines []string) string {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Readme checks README.md. It must have at most the given number of lines, and its first
// two sh blocks, which .ci/run runs, must have commands.
func (p *Pages) Readme(lines int) []Finding {
	var out []Finding
	if n := strings.Count(p.text["README.md"], "\n"); n > lines {
		out = append(out, Finding{"README.md", fmt.Sprintf("%d lines, and two screens are %d: move what is for one kind of reader into docs", n, lines)})
	}
	blocks, _ := p.blocks("README.md")
	n := 0
	for _, b := range blocks {
		if b.lang == "sh" && strings.TrimSpace(strings.Join(b.text, "")) != "" {
			n++
		}
	}
	if n < 2 {
		out = append(out, Finding{"README.md", fmt.Sprintf("%d sh blocks with commands: the first is the main job, the second the tests", n)})
	}
	return out
}
