// Package page writes offline HTML reports: one file with its style and figures inside,
// which loads nothing, in light and dark, for screen and paper.
//
// A report is a Doc of sections. A section is a list of blocks: text, facts, tables,
// figures, files. All strings are plain text from any source, which the package escapes.
// Figures are SVG drawn by gonum.org/v1/plot. A table or a sentence beside a figure gives
// its numbers to those who do not see it.
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
	Lead  string // one or two sentences below the title
	Badge *Cell  // verdict beside the title; nil means none
	// Sections are listed in a table of contents if there are more than two.
	Sections []Section
	Foot     string // last line: the program that made the page
}

// A Section is a heading with blocks below it.
type Section struct {
	Title string
	Badge *Cell
	Body  []Block

	ID    string // address within the page (#ID); made from the title if empty
	Level int    // level of the heading, set by Write
}

// A Block is a part of a page. The types below with a method kind are Blocks.
type Block interface{ kind() string }

// Text is a paragraph.
type Text string

// Warn is a paragraph that must not be missed.
type Warn string

// Facts are names with values.
type Facts []Fact

// A Fact is a name with its value.
type Fact struct {
	Name  string
	Value Cell
}

// Tiles are the few most important numbers.
type Tiles []Tile

// A Tile is one number with its name.
type Tile struct {
	Name, Value, Note string
	Tone              Tone
}

// Pre is preformatted text, such as a log or a command.
type Pre struct {
	Name string // description for those who do not see it
	Text string
}

// Details are folded until the reader opens them.
type Details struct {
	Summary string
	Open    bool
	Body    []Block
}

// A Download is a file that the page contains.
type Download struct {
	Name string // name of the file
	Type string // media type, such as application/json
	Data []byte
}

// Links lead to files beside the page.
type Links []Link

// A Link is a path relative to the page. A path that leads out of the page's folder is
// shown as text.
type Link struct{ Path, Name string }

// A Table is rows of cells below heads.
type Table struct {
	Caption string
	Heads   []Head
	Rows    [][]Cell
	Note    string
}

// A Head is the title of a column.
type Head struct {
	Name, Unit string
	Help       string // explanation in words
	Left       bool   // align left: text, not numbers
}

// A Tone is the meaning of a cell.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Bad   Tone = "bad"
	Fair  Tone = "fair" // between good and bad: worth a look
	Muted Tone = "muted"
)

// A Cell is one value.
type Cell struct {
	Text string
	Tone Tone
	Mark bool   // show as a badge
	Help string // explanation, shown on pointing
	Code bool
	// Range is the least and the most of several measurements, of which Text is the median.
	Range string
	To    string // ID of the section that the cell links to
	// Heat shades a cell of numbers: from 0, not at all, to MostHeat.
	Heat int
	// Missing means that nothing was measured, which differs from zero.
	Missing bool
}

// Long reports whether the cell may take several lines.
func (c Cell) Long() bool { return len(c.Text) > 44 }

// MostHeat is the most Cell.Heat.
const MostHeat = 5

// NotMeasured is the text of a cell without a measurement.
const NotMeasured = "not measured"

// None returns the cell for what was not measured.
func None() Cell { return Cell{Text: NotMeasured, Missing: true} }

// T returns a cell of text.
func T(format string, args ...any) Cell {
	if len(args) == 0 {
		return Cell{Text: format}
	}
	return Cell{Text: fmt.Sprintf(format, args...)}
}

// Maybe returns a cell of text, or None for "".
func Maybe(text string) Cell {
	if text == "" {
		return None()
	}
	return Cell{Text: text}
}

// BadIf returns a cell of text that is marked as bad if bad is true.
func BadIf(bad bool, text string) Cell {
	c := Cell{Text: text}
	if bad {
		c.Tone = Bad
	}
	return c
}

// Number returns a cell of v divided by per, or None for nil.
func Number(v *float64, per float64, prec int) Cell {
	if v == nil {
		return None()
	}
	return Cell{Text: Fixed(*v/per, prec)}
}

// Mark returns a badge.
func Mark(text string, tone Tone) Cell { return Cell{Text: text, Tone: tone, Mark: true} }

// Passed returns the badge of a verdict.
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

// Href returns the file as a data URL, which needs no network.
func (d Download) Href() template.URL {
	return template.URL("data:" + d.Type + ";base64," + base64.StdEncoding.EncodeToString(d.Data))
}

// Size returns the size for people.
func (d Download) Size() string { return Bytes(float64(len(d.Data))) }

// Href returns where the link leads, or "" if that is outside the page's folder.
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

// number gives each section the level of its heading and an ID of its own.
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
