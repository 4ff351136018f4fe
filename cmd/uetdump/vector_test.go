package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// Captures of other implementations, in the folder that UETKIT_VECTORS names: every
// packet is found, every CRC verifies where there are any, and the sealed ones of
// cluster mode open with the keys that the folder's README lists.
func TestVectorCaptures(t *testing.T) {
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.pcap"))
	if err != nil || len(names) == 0 {
		t.Fatal("no captures", err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ([01]) \| ([0-9a-f]{64}) \|$`).FindAllSubmatch(readme, 2)
	if len(row) != 2 {
		t.Fatalf("%d keys in the README", len(row))
	}
	keys, err := parseKeys([]byte(keyHeader + "\nkey 2 " + string(row[0][2]) + "\nkey 3 " + string(row[1][2]) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := openCapture(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		dec := &decoder{ports: map[uint16]bool{wire.Port: true}, keys: keys}
		frames, packets := 0, 0
		var f frame
		for err = r.next(&f); err == nil; err = r.next(&f) {
			frames++
			dec.frame(&f, func(p *packet) {
				packets++
				want := []trailer{trailerOK}
				switch {
				case strings.HasPrefix(base, "xdp2"):
					want = []trailer{trailerNone, trailerBad} // they have none; some say nothing of their length
				case strings.HasPrefix(base, "refprov-tss-cluster"):
					want = []trailer{trailerICVOK, trailerOK} // NACK 0x17 is in clear
				case strings.HasPrefix(base, "refprov-tss"):
					want = []trailer{trailerICVBad} // direct and server mode
				}
				if p.tail == trailerICVOK {
					opened++
				}
				ok := false
				for _, w := range want {
					ok = ok || p.tail == w
				}
				if !ok {
					t.Errorf("%s %d: trailer %v, want %v: %s", base, p.frame, p.tail, want, p.text())
				}
			})
		}
		if err != io.EOF || frames == 0 || packets != frames {
			t.Errorf("%s: %d packets in %d frames, %v", base, packets, frames, err)
		}
	}
	if opened < 30 {
		t.Errorf("%d packets opened", opened)
	}
}
