package assert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A literal is a number with its unit.
type literal struct {
	value float64
	unit  string
}

// A source is an expression in a form that expr can parse. Units are replaced by blanks and
// kept by the place of their number. Every character keeps its place, so that errors name
// the right column.
type source struct {
	text   string
	number map[int]literal
	equal  map[int]bool // places where < stands for a single =
}

var (
	token = regexp.MustCompile(`(?s)"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|` + "`[^`]*`" + `|//[^\n]*|/\*.*?\*/` + // nothing to read in these
		`|let\s+\w+\s*=|==|[<>!]=|0[xXoObB]\w+` +
		`|(?P<equal>=)|(?P<minus>−)` +
		`|(?P<name>(?i:tail-max|cpu-peer|msgs/s|p99\.9)\b)|[A-Za-z_$][\w$]*` +
		`|(?P<number>\.?[0-9][0-9._]*(?:[eE][-+]?[0-9]+)?)(?P<unit>\s*(?:%|/s\b|[A-Za-zµμ]+(?:/s)?\b))?`)
	plain    = regexp.MustCompile(`^(?:0|[1-9][0-9]{0,17})$`)
	operator = regexp.MustCompile(`^(?:and|or|not|in|matches|contains|startsWith|endsWith|else)$`)
	// afterShare matches what may follow 5% as a share rather than as the operator %.
	afterShare = regexp.MustCompile(`^\s*(?:$|[)\]},;:?&|=<>*/^]|!=|(?:and|or|not|in|else)\b)`)
)

// canon returns a name in the form that expr can parse.
func canon(name string) string {
	switch name {
	case "p99.9":
		return "p999"
	case "msgs/s":
		return "rate"
	}
	return strings.ReplaceAll(name, "-", "_")
}

// read makes the source of an expression.
func read(s string) (*source, error) {
	src := &source{number: map[int]literal{}, equal: map[int]bool{}}
	var out strings.Builder
	from, place := 0, 0 // from counts bytes of s, place characters
	// put replaces s[from:to] by text, padded with blanks.
	put := func(to int, text string) {
		n := utf8.RuneCountInString(s[from:to])
		out.WriteString(text)
		out.WriteString(strings.Repeat(" ", n-utf8.RuneCountInString(text)))
		from, place = to, place+n
	}
	group := func(m []int, name string) (string, int) {
		i := 2 * token.SubexpIndex(name)
		if m[i] < 0 {
			return "", m[1]
		}
		return s[m[i]:m[i+1]], m[i+1]
	}
	for _, m := range token.FindAllStringSubmatchIndex(s, -1) {
		put(m[0], s[from:m[0]])
		number, end := group(m, "number")
		switch name, _ := group(m, "name"); {
		case s[m[0]:m[1]] == "=":
			src.equal[place] = true
			put(m[1], "<")
		case s[m[0]:m[1]] == "−":
			put(m[1], "-")
		case name != "" && !strings.HasPrefix(strings.TrimLeft(s[m[1]:], " "), ".") && !strings.HasPrefix(s[m[1]:], "["):
			put(m[1], canon(strings.ToLower(name)))
		case number != "" && !strings.Contains(number, ".."):
			unit, to := group(m, "unit")
			if unit = strings.TrimSpace(unit); operator.MatchString(unit) || unit == "%" && !afterShare.MatchString(s[to:]) || unit == "/s" && strings.HasPrefix(s[to:], ".") {
				unit, to = "", end
			}
			if plain.MatchString(number) && unit == "" {
				put(end, number)
				break
			}
			v, err := strconv.ParseFloat(strings.ReplaceAll(number, "_", ""), 64)
			if err != nil {
				return nil, fmt.Errorf("%q is not a number", number)
			}
			src.number[place] = literal{v, unit}
			put(to, "0")
		}
		put(m[1], s[from:m[1]])
	}
	put(len(s), s[from:])
	src.text = out.String()
	return src, nil
}
