package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/uetkit/uetkit/internal/spelling"
	"github.com/uetkit/uetkit/testbed/scenarios"
)

// File is the name of the file in a scenario's folder.
const File = "scenario.toml"

// Names returns the scenarios that the program carries, in order.
func Names() []string {
	var names []string
	entries, _ := fs.ReadDir(scenarios.FS, ".")
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Load reads a scenario: one that the program carries, or a folder given by a path (with a
// slash or a dot in it).
func Load(name string) (*Scenario, error) {
	if strings.ContainsAny(name, `./\`) && !slices.Contains(Names(), name) { // loss-0.1 is a name
		file := name
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			file = filepath.Join(name, File)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w (a folder with %s in it is wanted)", name, errors.Unwrap(err), File)
		}
		abs, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		s, err := Parse(file, data)
		if err != nil {
			return nil, err
		}
		s.Name, s.Path = filepath.Base(filepath.Dir(abs)), filepath.Dir(abs)
		return s, nil
	}
	file := path.Join(name, File)
	data, err := fs.ReadFile(scenarios.FS, file)
	if err != nil {
		how := "`testbed list` shows them all"
		if c := spelling.Closest(name, Names(), max(3, len(name)/2)); c != "" {
			how = c + " is meant? " + how
		}
		return nil, fmt.Errorf("no scenario %q: %s; a folder of your own is named by its path (./%s)", name, how, name)
	}
	s, err := Parse("testbed/scenarios/"+file, data)
	if err != nil {
		return nil, err
	}
	s.Name = name
	return s, nil
}

// Parse reads a scenario.toml and checks it. An error is one line: the file, the line, the
// key, the fault and how to mend it.
func Parse(file string, data []byte) (*Scenario, error) {
	s := &Scenario{}
	l := locator{file, strings.Split(string(data), "\n")}
	md, err := toml.Decode(string(data), s)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			if how := l.unquoted(pe.Position.Line); how != "" {
				return nil, fmt.Errorf("%s:%d: %s", file, pe.Position.Line, how)
			}
			key := pe.LastKey
			if key != "" {
				key += ": "
			}
			return nil, fmt.Errorf("%s:%d: %s%s", file, pe.Position.Line, key, oneLine(pe.Message))
		}
		why := oneLine(strings.TrimPrefix(err.Error(), "toml: "))
		if m := typeError.FindStringSubmatch(why); m != nil {
			line, _ := strconv.Atoi(m[1])
			if meant := l.meant(line, m[2], m[3]); meant != "" {
				m[3] = meant
			}
			return nil, fmt.Errorf("%s:%s: %s: %s", file, m[1], m[2], m[3])
		}
		return nil, fmt.Errorf("%s: %s", file, why)
	}
	for _, key := range md.Undecoded() {
		return nil, l.unknown(key)
	}
	if err := s.check(&l); err != nil {
		return nil, err
	}
	return s, nil
}

// typeError matches the TOML library's error for a value of the wrong type.
var typeError = regexp.MustCompile(`^line (\d+) \(last key "([^"]*)"\): (.*)$`)

// meant says how the value of a key is written that the TOML library found of the wrong type; ""
// if it does not know.
func (l *locator) meant(line int, key, why string) string {
	key = key[strings.LastIndex(key, ".")+1:]
	if line < 1 || line > len(l.lines) {
		return ""
	}
	value := regexp.MustCompile(`\b` + regexp.QuoteMeta(key) + `\s*=\s*("[^"]*"|[^\s,}#]+)`).FindStringSubmatch(l.lines[line-1])
	if value == nil {
		return ""
	}
	v := value[1]
	switch {
	case strings.HasSuffix(why, "destination has type string"):
		return fmt.Sprintf("it is written in quotes: %s = %q", key, v)
	case strings.Contains(why, "destination has type float"):
		return noShare(key, v)
	case strings.Contains(why, "destination has type integer"):
		return noWhole(key, v)
	case strings.Contains(why, "destination has type boolean"):
		return fmt.Sprintf("%s is neither true nor false", v)
	}
	return ""
}

// noShare says how a share is written that was written as v, such as 2% or "2%".
func noShare(key, v string) string {
	bare := strings.Trim(v, `"`)
	if share, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(bare, "%")), 64); err == nil && strings.HasSuffix(bare, "%") {
		return fmt.Sprintf("%s is no share of 1: %s = %g is meant?", v, key, share/100)
	}
	return fmt.Sprintf("%s is no number, such as %s = 0.02", v, key)
}

func noWhole(key, v string) string {
	return fmt.Sprintf("%s is no whole number, such as %s = 4", v, key)
}

// unquoted says how the first value on a line is written that stands there without the quotes that
// it needs; "" if there is none.
func (l *locator) unquoted(line int) string {
	if line < 1 || line > len(l.lines) {
		return ""
	}
	for _, b := range bare(l.lines[line-1]) {
		var as struct {
			X any `toml:"x"`
		}
		if _, err := toml.Decode("x = "+b.value, &as); err == nil {
			continue
		}
		if _, err := strconv.ParseFloat(b.value, 64); err == nil { // such as .5: quotes do not mend it
			continue
		}
		how := fmt.Sprintf("%q is meant? write it in quotes", b.value)
		switch kinds := kindsOf(b.key); {
		case strings.HasSuffix(b.value, "%") && slices.Contains(kinds, reflect.Float64), slices.Equal(kinds, []reflect.Kind{reflect.Float64}):
			how = noShare(b.key, b.value)
		case slices.Equal(kinds, []reflect.Kind{reflect.Int}):
			how = noWhole(b.key, b.value)
		case slices.Equal(kinds, []reflect.Kind{reflect.Bool}):
			how = fmt.Sprintf("%s is neither true nor false", b.value)
		}
		return b.key + ": " + how
	}
	return ""
}

// A bareValue is a value without quotes, and its key.
type bareValue struct{ key, value string }

// bare returns the values of a line that stand there without quotes.
func bare(text string) (out []bareValue) {
	key, word, quote := "", "", rune(0)
	end := func(next rune) {
		w := strings.TrimSpace(word)
		word = ""
		switch {
		case next == '=':
			key = w
		case w != "" && key != "" && !strings.ContainsRune(w, '\x00'):
			out = append(out, bareValue{key, w})
		}
	}
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
			word += "\x00" // stands for what is in quotes
		case r == '#':
			end(r)
			return out
		case strings.ContainsRune("=,[]{}", r):
			end(r)
		default:
			word += string(r)
		}
	}
	end(0)
	return out
}

// kindsOf returns the kinds of values that keys of a name have, each once; those that are written
// in quotes are strings, integers of all sizes one kind.
func kindsOf(key string) (kinds []reflect.Kind) {
	key = key[strings.LastIndex(key, ".")+1:]
	for _, t := range explained() {
		for _, e := range t.keys {
			for i, k := range e.keys {
				if k == key && !slices.Contains(kinds, e.kinds[i]) {
					kinds = append(kinds, e.kinds[i])
				}
			}
		}
	}
	return kinds
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// A locator finds the lines of keys.
type locator struct {
	file  string
	lines []string
}

// header returns the name of the table that a line opens, and whether it is one of an
// array.
func header(line string) (table string, ok bool) {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") || !strings.HasSuffix(line, "]") {
		return "", false
	}
	return strings.Trim(line, "[] \t"), true
}

// at returns the line of a key in the n-th table of a name (n from 0), or else of the
// table's head, or 0. The table "" is the part before all tables.
func (l *locator) at(table string, n int, key string) int {
	now, seen, head := "", -1, 0
	for i, line := range l.lines {
		if t, ok := header(line); ok {
			now = t
			if t == table {
				if seen++; seen == n {
					head = i + 1
				}
			}
			continue
		}
		if now != table || table != "" && seen != n || key == "" {
			continue
		}
		k, _, ok := strings.Cut(line, "=")
		k = strings.TrimSpace(k)
		if ok && (k == key || strings.HasPrefix(k, key+".")) {
			return i + 1
		}
	}
	return head
}

// unknown returns the error about a key that nothing reads.
func (l *locator) unknown(key toml.Key) error {
	last := key[len(key)-1]
	line := 0
	now := ""
	for i, text := range l.lines {
		if t, ok := header(text); ok {
			now = t
			if t == key.String() {
				line = i + 1
				break
			}
			continue
		}
		// The key itself, or an inline table that contains it.
		prefix := strings.TrimPrefix(strings.TrimPrefix(key.String(), now), ".")
		first, _, _ := strings.Cut(prefix, ".")
		k, v, ok := strings.Cut(text, "=")
		k = strings.TrimSpace(k)
		if ok && strings.HasPrefix(key.String(), now) && (k == prefix || k == first && strings.Contains(v, last)) {
			line = i + 1
			break
		}
	}
	known := fields(reflect.TypeFor[Scenario](), key[:len(key)-1])
	how := "there is nothing to set"
	if len(known) > 0 {
		how = "there are " + strings.Join(known, ", ")
		if c := spelling.Closest(last, known, 3); c != "" {
			how = fmt.Sprintf("%s is meant? (%s)", c, how)
		}
	}
	return fmt.Errorf("%s:%d: unknown key %s: %s", l.file, line, key, how)
}

// fields returns the keys of the table at a path.
func fields(t reflect.Type, at toml.Key) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("toml")
		if tag == "" || tag == "-" {
			continue
		}
		if len(at) > 0 && tag == at[0] {
			return fields(t.Field(i).Type, at[1:])
		}
		names = append(names, tag)
	}
	if len(at) > 0 {
		return nil
	}
	slices.Sort(names)
	return names
}
