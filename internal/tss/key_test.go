package tss

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
)

// leaks reports whether out has three bytes of k in a row, raw, in hex or as
// numbers.
func leaks(out []byte, k Key) bool {
	low := strings.ToLower(string(out))
	for i := range len(k) - 2 {
		p := k[i : i+3]
		for _, form := range []string{
			string(p), hex.EncodeToString(p), fmt.Sprintf("%d %d %d", p[0], p[1], p[2]), fmt.Sprintf("%d,%d,%d", p[0], p[1], p[2]),
			fmt.Sprintf("%d, %d, %d", p[0], p[1], p[2]), fmt.Sprintf("%#x, %#x, %#x", p[0], p[1], p[2]), fmt.Sprintf("% x", p),
			fmt.Sprintf("%o %o %o", p[0], p[1], p[2]), fmt.Sprintf("%b %b %b", p[0], p[1], p[2]),
		} {
			if strings.Contains(string(out), form) || strings.Contains(low, form) {
				return true
			}
		}
	}
	return false
}

// T40: a key does not show in anything that prints or encodes it, alone or inside other values,
// and a Domain shows no key either.
func TestT40KeyHidesItself(t *testing.T) {
	k := keyOf(40)
	if !leaks([]byte(fmt.Sprint([KeyLen]byte(k))), k) || !leaks(k[:], k) {
		t.Fatal("this test sees nothing")
	}
	d := pairOf(t, Config{SDI: 7, Local: addrA}).a
	install(t, d, 1, k)
	things := map[string]any{
		"key": k, "pointer": &k, "slice": []Key{k}, "map": map[string]Key{"k": k}, "as key": map[Key]int{k: 1},
		"field": struct {
			K Key
			P *Key
		}{k, &k}, "error": fmt.Errorf("with %v and %x: %w", k, k, ErrKeyUsed), "domain": d, "of domain": struct{ D *Domain }{d}, "config": d.cfg,
	}
	for name, x := range things {
		// Not %p: fmt prints the value of what is no pointer and does not ask its methods. go
		// vet refuses that.
		for _, verb := range strings.Split("v +v #v s q x X d o O b c U t e g T 64d -5x", " ") {
			if out := fmt.Appendf(nil, "%"+verb, x); leaks(out, k) {
				t.Errorf("%s with %%%s: %s", name, verb, out)
			}
		}
		if out, err := json.Marshal(x); err == nil && leaks(out, k) {
			t.Errorf("%s as JSON: %s", name, out)
		}
		var text, js, bin bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("x", "x", x)
		slog.New(slog.NewJSONHandler(&js, nil)).Info("x", "x", x)
		_ = gob.NewEncoder(&bin).Encode(x)
		enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{})
		_ = enc.AddReflected("x", x)
		out, err := enc.EncodeEntry(zapcore.Entry{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for how, b := range map[string][]byte{"slog text": text.Bytes(), "slog JSON": js.Bytes(), "gob": bin.Bytes(), "zap": out.Bytes()} {
			if len(b) == 0 && how != "gob" || leaks(b, k) {
				t.Errorf("%s in %s: %q", name, how, b)
			}
		}
	}
	if b, err := k.MarshalText(); err != nil || string(b) != k.String() {
		t.Error(b, err)
	}
	if !strings.Contains(k.String(), "hidden") || k.GoString() != k.String() || !strings.Contains(fmt.Sprintf("%x", k), "hidden") {
		t.Error("a hidden key must say that it is one")
	}
	if s := fmt.Sprintf("%x", d); s != d.String() || !strings.Contains(s, "sdi=7 direct send=0") {
		t.Error(s)
	}
	if s := (*Domain)(nil).String(); s != "TSS none" {
		t.Error(s)
	}
}
