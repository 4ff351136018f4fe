//go:build linux && (amd64 || arm64)

package pmix

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// What a program says where there is no libpmix, or something else by its name.
func TestOpen(t *testing.T) {
	for _, c := range []struct{ name, call, why string }{
		{"libthisisnot.so.2", "dlopen", "Debian has it in libpmix2"},
		{"libc.so.6", "PMIx_", "the library does not have it"},
	} {
		_, err := open(c.name)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Call, c.call) || !strings.Contains(e.Why, c.why) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The layouts are those of pmix_common.h.
func TestLayout(t *testing.T) {
	var (
		p proc
		v value
	)
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"pmix_proc_t", unsafe.Sizeof(p), 260},
		{"rank", unsafe.Offsetof(p.rank), 256},
		{"pmix_value_t", unsafe.Sizeof(v), 32},
		{"data", unsafe.Offsetof(v.data), 8},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	b := []byte("hello\x00there")
	if s, err := text(&b[0]); s != "hello" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
	if s, err := text(nil); s != "" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
	if _, err := text(&make([]byte, maxText+1)[0]); err != nil {
		t.Errorf("%v", err)
	}
	long := []byte(strings.Repeat("x", maxText+1))
	if _, err := text(&long[0]); err == nil {
		t.Error("a text without end is read")
	}
}
