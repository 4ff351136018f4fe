package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A codec is the test of one header. Every header has the same five tests, and its test file
// has only the tables: vectors, refusals, and values that are our own bugs.
//
//  1. Each vector parses to its value, is written again as it was, and prints as its text.
//     Each of its bits matters or is reserved, tried one by one.
//  2. Every shorter prefix is refused by the name of the length.
//  3. Append writes its bytes and no others into a buffer full of 0xa5.
//  4. Each refusal names its field; each value out of range panics.
//  5. Whatever parses comes back from Append and Parse as the same value (fuzz).
//
// The source of a vector is a capture and the number of the packet in it (refprov-* of the
// UEC reference provider, xdp2-* of XDP2), "computed", or "layout": put together by hand from
// the section that the codec cites, each field with a value of its own.
type codec[H comparable] struct {
	parse   func([]byte) (H, int, error)
	put     func(*H, []byte) []byte
	text    func(*H) string
	vectors []vector[H]
	most    []H // values with every field at the end of its range, which is no bug
	refused []refusal
	bugs    []bug[H]
}

// A vector is a header as bytes and as a value.
type vector[H any] struct {
	name string
	// bytes has one field per line: hex, then "/" and a hex mask of the reserved bits if
	// there are any, then a comment from # on.
	bytes string
	want  H
	text  string // the result of String
	min   int    // length of the shortest prefix that parses, 0 for all of it
}

// A refusal is bytes that do not parse, in the notation of vectors.
type refusal struct {
	name, bytes string
	want        Invalid
}

// A bug is a value that our own code must not produce.
type bug[H any] struct {
	name string
	h    H
}

// unhex reads the notation of vectors.
func unhex(t testing.TB, s string) (b, reserved []byte) {
	t.Helper()
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		for _, f := range strings.Fields(line) {
			f, mask, _ := strings.Cut(f, "/")
			v, err := hex.DecodeString(f)
			if err != nil {
				t.Fatalf("%q: %v", f, err)
			}
			m := make([]byte, len(v))
			if mask != "" {
				if m, err = hex.DecodeString(mask); err != nil || len(m) != len(v) {
					t.Fatalf("mask %q of %q", mask, f)
				}
			}
			b, reserved = append(b, v...), append(reserved, m...)
		}
	}
	return b, reserved
}

func (c *codec[H]) test(t *testing.T) {
	for _, v := range c.vectors {
		t.Run(v.name, func(t *testing.T) { c.vector(t, &v) })
	}
	for _, h := range c.most {
		b := c.put(&h, nil)
		if got, n, err := c.parse(b); err != nil || n != len(b) || got != h {
			t.Errorf("the most that fits is %+v, written as %x, read as %+v, %d bytes, %v", h, b, got, n, err)
		}
	}
	for _, r := range c.refused {
		t.Run("refuse "+r.name, func(t *testing.T) {
			b, _ := unhex(t, r.bytes)
			c.refuse(t, b, r.want)
		})
	}
	for _, g := range c.bugs {
		t.Run("bug "+g.name, func(t *testing.T) { wantBug(t, func() { c.put(&g.h, nil) }) })
	}
}

// wantBug runs f, which must panic with "BUG: ".
func wantBug(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: wire: ") {
			t.Errorf("panic %q, want one that says BUG: wire", s)
		}
	}()
	f()
}

func (c *codec[H]) vector(t *testing.T, v *vector[H]) {
	b, reserved := unhex(t, v.bytes)
	whole := slices.Concat(b, []byte{0xff, 0xa5, 0xff}) // with bytes behind the header

	h, n, err := c.parse(whole)
	if err != nil || n != len(b) || h != v.want {
		t.Fatalf("parse\n got %+v, %d bytes, %v\nwant %+v, %d bytes", h, n, err, v.want, len(b))
	}
	if s := c.text(&h); s != v.text {
		t.Errorf("text\n got %s\nwant %s", s, v.text)
	}

	// Append to a buffer full of 0xa5, behind 3 bytes of another header.
	dirty := bytes.Repeat([]byte{0xa5}, 3+len(b)+64)
	out := c.put(&h, dirty[:3])
	if &out[0] != &dirty[0] || len(out) != 3+len(b) {
		t.Fatalf("append: %d bytes into a buffer with room, want %d", len(out), 3+len(b))
	}
	if !bytes.Equal(out[3:], b) {
		t.Errorf("append\n got %x\nwant %x", out[3:], b)
	}
	rest := slices.Concat(dirty[:3], dirty[len(out):])
	if !bytes.Equal(rest, bytes.Repeat([]byte{0xa5}, len(rest))) {
		t.Errorf("append wrote outside of its %d bytes: %x", len(b), dirty)
	}
	if out := c.put(&h, nil); !bytes.Equal(out, b) {
		t.Errorf("append to nil: %x", out)
	}

	for i := range b {
		if v.min > 0 && i >= v.min {
			break
		}
		var inv *Invalid
		if h, n, err := c.parse(b[:i]); !errors.As(err, &inv) || inv.Field != "length" || n != 0 || h != *new(H) {
			t.Errorf("%d of %d bytes: %+v, %d, %v", i, len(b), h, n, err)
		}
	}

	for i := range 8 * len(b) {
		bit := byte(0x80) >> (i % 8)
		flipped := slices.Clone(whole)
		flipped[i/8] ^= bit
		h, n, err := c.parse(flipped)
		same := err == nil && h == v.want && n == len(b)
		if same != (reserved[i/8]&bit != 0) {
			t.Errorf("bit %#x of byte %d flipped: %+v, %d bytes, %v; reserved: %t", bit, i/8, h, n, err, !same)
		}
		if err != nil {
			continue
		}
		out := c.put(&h, nil) // must not panic: what parses is no bug
		if same && !bytes.Equal(out, b) {
			t.Errorf("reserved bit %#x of byte %d is sent", bit, i/8)
		}
		if again, _, err := c.parse(out); err != nil || again != h {
			t.Errorf("bit %#x of byte %d flipped: %+v, written as %x, read as %+v, %v", bit, i/8, h, out, again, err)
		}
	}

	if a := testing.AllocsPerRun(100, func() { h, n, err = c.parse(b) }); a != 0 {
		t.Errorf("parse allocates %v times", a)
	}
	if a := testing.AllocsPerRun(100, func() { out = c.put(&h, dirty[:0]) }); a != 0 {
		t.Errorf("append allocates %v times", a)
	}
}

func (c *codec[H]) refuse(t *testing.T, b []byte, want Invalid) {
	t.Helper()
	var inv *Invalid
	if h, n, err := c.parse(b); !errors.As(err, &inv) || *inv != want || n != 0 || h != *new(H) {
		t.Errorf("%x: %+v, %d bytes, %v, want %v", b, h, n, err, &want)
	}
}

func (c *codec[H]) fuzz(f *testing.F) {
	for _, v := range c.vectors {
		b, _ := unhex(f, v.bytes)
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	for _, r := range c.refused {
		b, _ := unhex(f, r.bytes)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		was := slices.Clone(b)
		h, n, err := c.parse(b)
		if !bytes.Equal(b, was) {
			t.Fatalf("parse changed %x to %x", was, b)
		}
		var inv *Invalid
		if err != nil {
			if !errors.As(err, &inv) || n != 0 || h != *new(H) {
				t.Fatalf("%+v, %d bytes, %v", h, n, err)
			}
			return
		}
		if n <= 0 || n > len(b) {
			t.Fatalf("%d of %d bytes read", n, len(b))
		}
		out := c.put(&h, nil)
		if h2, n2, err := c.parse(out); err != nil || n2 != len(out) || h2 != h {
			t.Fatalf("%x is %+v, is written as %x, which is %+v, %d bytes, %v", b[:n], h, out, h2, n2, err)
		}
		if c.text(&h) == "" {
			t.Fatalf("%+v has no text", h)
		}
	})
}
