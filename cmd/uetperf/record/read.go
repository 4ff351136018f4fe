package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxSize is the size limit of a record in bytes.
const MaxSize = 64 << 20

// Read reads one record. An error is one line that says what is wrong and how to mend it,
// without the name of the file. Unknown keys are no error: a newer uetperf wrote them.
func Read(r io.Reader) (*Record, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(b)
}

const giveOne = "give a file that uetperf -J wrote"

// Parse is like Read for bytes in memory.
func Parse(b []byte) (*Record, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("is larger than %d MiB, which no record is: %s", MaxSize>>20, giveOne)
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some shells put a byte order mark there
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, errors.New("is empty: the test wrote nothing, or the copy failed; " + giveOne)
	}
	var head struct {
		Schema *string `json:"schema"`
	}
	if err := decode(b, &head); err != nil {
		return nil, err
	}
	if err := known(head.Schema); err != nil {
		return nil, err
	}
	rec := new(Record)
	if err := decode(b, rec); err != nil {
		return nil, err
	}
	return rec, nil
}

// decode reads b, which must be a single object.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return wrong(b, err)
	}
	if rest := bytes.TrimSpace(b[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("goes on after the record's end (%s): give each record a file of its own", position(b, d.InputOffset()))
	}
	return nil
}

// wrong explains an error of encoding/json for a record.
func wrong(b []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends in the middle of the record (after %d bytes): it was cut off; copy it again, or repeat the test", len(b))
	case errors.As(err, &syntax):
		return fmt.Errorf("is not JSON (%s: %v): %s", position(b, syntax.Offset), syntax, giveOne)
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("is JSON, but %s and no record: %s", found(kind), giveOne)
	case errors.As(err, &kind):
		return fmt.Errorf("has %q as %s where a record has %s (%s): %s", kind.Field, found(kind), wanted(kind), position(b, kind.Offset), giveOne)
	}
	return fmt.Errorf("is no record (%s): %s", strings.Join(strings.Fields(err.Error()), " "), giveOne)
}

// found describes the value at fault, such as "a string".
func found(e *json.UnmarshalTypeError) string {
	word, which, _ := strings.Cut(e.Value, " ")
	article := "a "
	if strings.IndexByte("aeiou", word[0]) >= 0 {
		article = "an "
	}
	if len(which) > 30 {
		which = which[:30] + "…"
	}
	return strings.TrimSpace(article + word + " " + which)
}

func wanted(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case strings.HasPrefix(k, "int"), strings.HasPrefix(k, "uint"):
		return "a whole number"
	case strings.HasPrefix(k, "float"):
		return "a number"
	case k == "struct", k == "map":
		return "an object"
	case k == "slice":
		return "a list"
	default:
		return "a " + k
	}
}

func position(b []byte, at int64) string {
	at = max(0, min(at, int64(len(b))))
	before := b[:at]
	return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")), len(before)-1-bytes.LastIndexByte(before, '\n'))
}

// known returns an error if the schema is not this one.
func known(schema *string) error {
	if schema == nil {
		return errors.New(`has no "schema", which every record has: ` + giveOne)
	}
	s := *schema
	if s == Schema {
		return nil
	}
	name, version, _ := strings.Cut(s, "/")
	if n, err := strconv.Atoi(version); name == "uetperf" && err == nil && n > 1 {
		return fmt.Errorf("has the schema %q, newer than %q: read it with the uetperf that wrote it", s, Schema)
	}
	if name == "uetkit-testbed" {
		return fmt.Errorf("has the schema %q, a result of the testbed: the records of its hosts are in the files beside it", s)
	}
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return fmt.Errorf("has the schema %q, not %q: %s", s, Schema, giveOne)
}
