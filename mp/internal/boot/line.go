package boot

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Both the PMI server and the root speak in lines "cmd=name key=value key=value".

var errLong = errors.New("the line is too long")

// readLine reads one line of at most limit bytes, without its end. A line that the end of the
// stream cuts is io.ErrUnexpectedEOF.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return "", errLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return strings.TrimRight(string(line), "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// fields are the keys and values of one line.
type fields map[string]string

// parseLine takes a line apart. Words without "=" belong to no key and are left out: servers
// write messages of several words.
func parseLine(line string) (fields, error) {
	f := fields{}
	for word := range strings.FieldsSeq(line) {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			continue
		}
		if _, twice := f[key]; !twice {
			f[key] = value
		}
	}
	if f["cmd"] == "" {
		return nil, fmt.Errorf("%q is no line of this protocol", clip(line))
	}
	return f, nil
}

// number returns the value of a key as a number from 0 to limit.
func (f fields) number(key string, limit int) (int, error) {
	s, ok := f[key]
	if !ok {
		return 0, fmt.Errorf("the answer has no %s", key)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > limit {
		return 0, fmt.Errorf("%s=%s is no number from 0 to %d", key, clip(s), limit)
	}
	return n, nil
}

// exitCode is with what an abort ends a process. 0 would be no failure.
func (f fields) exitCode() int {
	code, err := f.number("code", 255)
	if err != nil || code == 0 {
		return 1
	}
	return code
}

// bytes returns the value of a key, decoded.
func (f fields) bytes(key string) ([]byte, error) {
	s, ok := f[key]
	if !ok {
		return nil, fmt.Errorf("the line has no %s", key)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return b, nil
}

// text is bytes as a string that is fit to be shown.
func (f fields) text(key string) string {
	b, err := f.bytes(key)
	if err != nil {
		return ""
	}
	return string(b)
}

// encode writes bytes without blanks, equal signs and semicolons.
func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
