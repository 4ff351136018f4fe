// Package page is the look of offline HTML reports: one file with its style and
// its figures inside, which loads nothing from anywhere, in light and dark, on
// screen and on paper.
//
// A report is a Doc of sections, a section a list of blocks: text, facts, tables,
// figures, files. All strings are text, from whomever they come: the package
// escapes them. Figures are SVG drawn by gonum.org/v1/plot, and have their numbers
// in a table or a sentence beside them for those who do not see them.
package page

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"path"
	"strings"
)

// A Doc is one page.
type Doc struct {
	Title string
	Lead  string // a sentence or two below the title
	Badge *Cell  // verdict beside the title
	// Sections are listed in a table of contents when there are more than two.
	Sections []Section
	Foot     string // last line: what made the page
}

// A Section is a heading and what is below it.
type Section struct {
	Title string
	Badge *Cell
	Body  []Block

	ID    string // the address in the page, #ID; one is made of the title if empty
	Level int    // of the heading, set by Write
}

// A Block is one of the types of this package that say so.
type Block interface{ kind() string }

// Text is a paragraph.
type Text string

// Warn is a paragraph that must not be missed.
type Warn string

// Facts are names with values.
type Facts []Fact

// A Fact is one of them.
type Fact struct {
	Name  string
	Value Cell
}

// Tiles are the few numbers that a reader came for.
type Tiles []Tile

// A Tile is one of them.
type Tile struct {
	Name, Value, Note string
	Tone              Tone
}

// Pre is text as it is, such as a log or a command.
type Pre struct {
	Name string // for those who do not see it
	Text string
}

// Details are folded away until asked for.
type Details struct {
	Summary string
	Open    bool
	Body    []Block
}

// A Download is a file inside the page.
type Download struct {
	Name string // of the file
	Type string // such as application/json
	Data []byte
}

// Links lead to files beside the page.
type Links []Link

// A Link is a path relative to the page. One that leads elsewhere is shown as text.
type Link struct{ Path, Name string }

// A Table is rows of cells below heads.
type Table struct {
	Caption string
	Heads   []Head
	Rows    [][]Cell
	Note    string
}

// A Head is what stands above a column.
type Head struct {
	Name, Unit string
	Help       string // what it is, in words
	Left       bool   // text, not numbers
}

// A Tone is what a cell means.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Bad   Tone = "bad"
	Fair  Tone = "fair" // neither: to be looked at
	Muted Tone = "muted"
)

// A Cell is one value.
type Cell struct {
	Text string
	Tone Tone
	Mark bool   // as a badge
	Help string // in words, shown on pointing
	Code bool
	To   string // the ID of a section that it leads to
	// Missing stands for what was not measured, which is not a zero.
	Missing bool
}

// Long cells may take several lines.
func (c Cell) Long() bool { return len(c.Text) > 44 }

// NotMeasured is what stands where nothing was measured.
const NotMeasured = "not measured"

// None is the cell of what was not measured.
func None() Cell { return Cell{Text: NotMeasured, Missing: true} }

// T is a cell of text.
func T(format string, args ...any) Cell {
	if len(args) == 0 {
		return Cell{Text: format}
	}
	return Cell{Text: fmt.Sprintf(format, args...)}
}

// Maybe is a cell of text, or of what was not measured if there is none.
func Maybe(text string) Cell {
	if text == "" {
		return None()
	}
	return Cell{Text: text}
}

// BadIf is a cell of text, which is bad or means nothing.
func BadIf(bad bool, text string) Cell {
	c := Cell{Text: text}
	if bad {
		c.Tone = Bad
	}
	return c
}

// Number is a cell of v in a unit of so many, or of what was not measured.
func Number(v *float64, per float64, prec int) Cell {
	if v == nil {
		return None()
	}
	return Cell{Text: Fixed(*v/per, prec)}
}

// Mark is a badge.
func Mark(text string, tone Tone) Cell { return Cell{Text: text, Tone: tone, Mark: true} }

// Passed is the badge of a verdict.
func Passed(ok bool) Cell {
	if ok {
		return Mark("pass", Good)
	}
	return Mark("fail", Bad)
}

func (Text) kind() string     { return "text" }
func (Warn) kind() string     { return "warn" }
func (Facts) kind() string    { return "facts" }
func (Tiles) kind() string    { return "tiles" }
func (Pre) kind() string      { return "pre" }
func (Details) kind() string  { return "details" }
func (Download) kind() string { return "download" }
func (Links) kind() string    { return "links" }
func (Table) kind() string    { return "table" }
func (Figure) kind() string   { return "figure" }
func (Section) kind() string  { return "section" }

// Href is the file as an address that needs no network.
func (d Download) Href() template.URL {
	return template.URL("data:" + d.Type + ";base64," + base64.StdEncoding.EncodeToString(d.Data))
}

// Size is its size for people.
func (d Download) Size() string { return Bytes(float64(len(d.Data))) }

// Href is where the link leads, empty if that is not beside the page.
func (l Link) Href() template.URL {
	p := path.Clean(strings.ReplaceAll(l.Path, "\\", "/"))
	if p == "." || p == ".." || path.IsAbs(p) || strings.HasPrefix(p, "../") {
		return ""
	}
	return template.URL("./" + (&urlPath{p}).String())
}

var (
	//go:embed page.html
	layout string
	//go:embed page.css
	style string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"kind":  Block.kind,
		"style": func() template.CSS { return template.CSS(colours() + style) },
	}).Parse(layout))
)

// Write writes the page.
func Write(w io.Writer, d Doc) error {
	ids := map[string]int{}
	d.Sections = number(d.Sections, 2, ids)
	return page.ExecuteTemplate(w, "page", d)
}

// number gives sections what headings need: a level, and an address of their own.
func number(in []Section, level int, ids map[string]int) []Section {
	out := make([]Section, len(in))
	for i, s := range in {
		s.Level = min(level, 6)
		if s.ID == "" {
			s.ID = slug(s.Title)
			if ids[s.ID]++; ids[s.ID] > 1 {
				s.ID = fmt.Sprintf("%s-%d", s.ID, ids[s.ID])
			}
		}
		body := make([]Block, len(s.Body))
		for k, b := range s.Body {
			if sub, ok := b.(Section); ok {
				b = number([]Section{sub}, level+1, ids)[0]
			}
			body[k] = b
		}
		s.Body = body
		out[i] = s
	}
	return out
}

func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() > 40 {
			break
		}
	}
	return "s-" + strings.Trim(b.String(), "-")
}
