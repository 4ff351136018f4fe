package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew instead of comparing with it")

// Dump prints each packet of testdata/dump.txt as the file says. The file has packets in
// hex, from the PDS or security header to the end of the data, each with its text below. A
// line that begins with # is a comment, one that begins with > is the text, the others are
// hex.
func TestDump(t *testing.T) {
	const name = "testdata/dump.txt"
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out, packet bytes.Buffer
	n := 0
	flush := func() {
		if packet.Len() > 0 {
			out.WriteString("> " + Dump(packet.Bytes()) + "\n")
			packet.Reset()
			n++
		}
	}
	for line := range strings.Lines(string(old)) {
		s := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(s, ">"):
			continue
		case s == "" || strings.HasPrefix(s, "#"):
			flush()
		default:
			b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
			if err != nil {
				t.Fatalf("%s: %q: %v", name, s, err)
			}
			packet.Write(b)
		}
		out.WriteString(line)
	}
	flush()
	if n < 12 {
		t.Errorf("%d packets are too few", n)
	}
	if *rewrite {
		if err := os.WriteFile(name, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if bytes.Equal(out.Bytes(), old) {
		return
	}
	was, is := strings.SplitAfter(string(old), "\n"), strings.SplitAfter(out.String(), "\n")
	for i := 0; i < max(len(was), len(is)); i++ {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			t.Errorf("%s:%d\n got %swant %s-rewrite writes it anew", name, i+1, strings.Join(is[i:min(i+1, len(is))], ""), strings.Join(was[i:min(i+1, len(was))], ""))
			break
		}
	}
}

// Dump prints one line for any bytes, and says what is wrong.
func TestDumpHostile(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"", "wire: prologue: invalid length: "},
		{"11", "wire: prologue: invalid length: 11"},
		{"0000", "wire: prologue: invalid type: 0000"},
		{ // an atomic without an extension, and with half of one
			"2180 0000 00000001 0308 0001 00 000001 0000 000f 0000000000000000 00000010 0000000000000000 0000 0000 00000000 00000008",
			"RUDI_REQ - nh=REQ_STD pkt_id=0x1 | ATOMIC REL msg_id=0x1 gen=0 job=1 pid=0 ri=15 buf_off=0x0 initiator=16 match/key=0x0 " +
				"payload_len=0 msg_off=0 req_len=8 | wire: atomic extension: invalid length: ",
		},
		{
			"3100 0000 030b 0008 00 000001 0000 000f 0000000000000000 00000010 0000000000000000 0d0702",
			"UUD_REQ nh=REQ_MEDIUM | ATOMIC REL+EOM+SOM gen=0 job=1 pid=0 ri=15 buf_off=0x0 initiator=16 match/key=0x0 req_len=8 | " +
				"wire: compare-and-swap extension: invalid length: 0d0702",
		},
		{"1180", "wire: RUD/ROD request: invalid length: 1180"},
		{"fd80" + strings.Repeat("ab", 60), "wire: prologue: invalid type: fd80" + strings.Repeat("ab", 46) + "… (62 bytes)"},
	} {
		b, _ := unhex(t, c.hex)
		if got := Dump(b); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.hex, got, c.want)
		}
	}
}

func FuzzDump(f *testing.F) {
	b, err := os.ReadFile("testdata/dump.txt")
	if err != nil {
		f.Fatal(err)
	}
	for p := range strings.SplitSeq(string(b), "\n\n") {
		var packet []byte
		for line := range strings.Lines(p) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ">") {
				h, _ := unhex(f, line)
				packet = append(packet, h...)
			}
		}
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		was := bytes.Clone(b)
		if s := Dump(b); s == "" || strings.ContainsAny(s, "\n\r\x00") || len(s) > 1000 {
			t.Errorf("%x is told as %q", b, s)
		}
		if !bytes.Equal(b, was) {
			t.Errorf("%x became %x", was, b)
		}
	})
}
