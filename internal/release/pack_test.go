package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"testing"
	"time"
)

// The bytes of an archive depend neither on the order of its files nor on the zone of who makes it.
func TestPackedAlike(t *testing.T) {
	a, b := entry{"man/a.1", 0o644, []byte("page")}, entry{"uetx", 0o755, []byte("program")}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, pack := range map[string]func(string, []entry, time.Time) ([]byte, error){"tar": tarGz, "zip": zipped} {
		one, err := pack("uetkit", []entry{a, b}, at)
		if err != nil {
			t.Fatal(err)
		}
		two, err := pack("uetkit", []entry{b, a}, at.In(time.FixedZone("", 3600)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s: two archives of the same files differ", name)
		}
	}
}

func TestPackedFiles(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	all := []entry{{"uetx", 0o755, []byte("program")}}
	data, err := tarGz("uetkit", all, at)
	if err != nil {
		t.Fatal(err)
	}
	gz, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(gz)
	h, err := r.Next()
	if err != nil || h.Name != "uetkit/uetx" || h.Mode != 0o755 || h.Uid != 0 || h.Uname != "root" || !h.ModTime.Equal(at) {
		t.Errorf("%+v, %v", h, err)
	}
	if text, err := io.ReadAll(r); string(text) != "program" {
		t.Errorf("%q, %v", text, err)
	}
	if data, err = zipped("uetkit", all, at); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(z.File) != 1 || z.File[0].Name != "uetkit/uetx" || z.File[0].Mode() != fs.FileMode(0o755) || !z.File[0].Modified.Equal(at) {
		t.Errorf("%+v, %v", z, err)
	}
}
