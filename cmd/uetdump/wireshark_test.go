package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The dissector of docs/wireshark is played by tshark, and says of each packet what uetdump -J
// says. UETKIT_TSHARK is set where there is a tshark (.ci/run wireshark).
const (
	dissector = "../../docs/wireshark/uet.lua"
	tsharkEnv = "UETKIT_TSHARK"
)

// A pdmlField is a field of what tshark -T pdml prints.
type pdmlField struct {
	Name string `xml:"name,attr"`
	Show string `xml:"show,attr"`
}

// shown are the fields that the dissector names as uetdump -J does. Those of a sealed packet are in
// an object there.
var shown = []string{"part", "parts", "ev", "len", "trailer", "type", "flags", "psn", "spdcid", "dpdcid", "cack", "ack_psn", "nack", "ctl", "opcode", "msg_id", "data",
	"sealed.sdi", "sealed.ssi", "sealed.an", "sealed.epoch", "sealed.tsc"}

// keep brings the value of one field to one form. It returns "" for one that says nothing: uetdump
// leaves out what is 0 where no packet has it so.
func keep(name, value string) string {
	switch name {
	case "trailer", "type", "nack", "ctl", "opcode":
		return value
	}
	n, err := strconv.ParseUint(value, 0, 64)
	if err != nil {
		return value
	}
	if n == 0 && (name == "spdcid" || name == "dpdcid" || name == "data" || name == "sealed.ssi") {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func tsharkSays(t *testing.T, capture string, args ...string) (frames []map[string]string) {
	t.Helper()
	c := exec.Command("tshark", append([]string{"-X", "lua_script:" + dissector, "-r", capture, "-T", "pdml"}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if s := stderr.String(); strings.Contains(s, "Lua") || strings.Contains(string(out), "Lua Error") {
		t.Fatalf("the script fails: %s%s", s, out)
	}
	if err != nil && len(out) == 0 { // it also fails for a capture that ends in the middle
		t.Fatalf("%v: %s", err, stderr.String())
	}
	d := xml.NewDecoder(bytes.NewReader(out))
	for {
		tok, err := d.Token()
		if err != nil {
			return frames
		}
		start, is := tok.(xml.StartElement)
		if !is || start.Name.Local != "packet" {
			continue
		}
		var p struct {
			Protos []struct {
				Name   string      `xml:"name,attr"`
				Fields []pdmlField `xml:"field"`
			} `xml:"proto"`
		}
		if err := d.DecodeElement(&p, &start); err != nil {
			t.Fatal(err)
		}
		frame := ""
		for _, proto := range p.Protos {
			if proto.Name == "frame" {
				for _, f := range proto.Fields {
					if f.Name == "frame.number" {
						frame = f.Show
					}
				}
			}
			if proto.Name != "uet" {
				continue
			}
			m := map[string]string{"frame": frame}
			for _, f := range proto.Fields {
				name := strings.TrimPrefix(f.Name, "uet.")
				for _, s := range shown {
					if v := keep(s, f.Show); s == name && v != "" {
						m[s] = v
					}
				}
			}
			frames = append(frames, m)
		}
	}
}

func uetdumpSays(t *testing.T, capture string) (packets []map[string]string) {
	t.Helper()
	cfg, code := parse([]string{"-J", capture}, &bytes.Buffer{}, os.Stderr)
	if cfg == nil {
		t.Fatal(code)
	}
	var out, stderr bytes.Buffer
	run(cfg, nil, &out, &stderr)
	for line := range strings.Lines(out.String()) {
		var j map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&j); err != nil {
			t.Fatal(err)
		}
		if j["frame"] == nil { // a summary
			continue
		}
		m := map[string]string{"frame": fmt.Sprint(j["frame"])}
		for _, s := range shown {
			var v any = j
			for _, step := range strings.Split(s, ".") {
				if o, is := v.(map[string]any); is {
					v = o[step]
				} else {
					v = nil
				}
			}
			if v != nil {
				if k := keep(s, fmt.Sprint(v)); k != "" {
					m[s] = k
				}
			}
		}
		packets = append(packets, m)
	}
	return packets
}

func TestWiresharkSaysWhatUetdumpSays(t *testing.T) {
	if os.Getenv(tsharkEnv) == "" {
		t.Skipf("%s is not set", tsharkEnv)
	}
	captures, err := filepath.Glob("testdata/captures/*.pcap*")
	if err != nil || len(captures) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	packets := 0
	for _, capture := range captures {
		t.Run(filepath.Base(capture), func(t *testing.T) {
			want, got := uetdumpSays(t, capture), tsharkSays(t, capture)
			other := func(p map[string]string) bool {
				// Wireshark shows no empty datagram, and IP fragments where the last one is.
				return p["len"] == "0" || filepath.Base(capture) == "links.pcapng" && slices.Contains([]string{"21", "22", "23", "24"}, p["frame"])
			}
			want, got = slices.DeleteFunc(want, other), slices.DeleteFunc(got, other)
			for i := range max(len(want), len(got)) {
				switch {
				case i >= len(got):
					t.Fatalf("%d packets, and uetdump has %d: %v", len(got), len(want), want[i])
				case i >= len(want):
					t.Fatalf("%d packets, and uetdump has %d: %v", len(got), len(want), got[i])
				case !reflect.DeepEqual(want[i], got[i]):
					t.Errorf("packet %d:\nuetdump %v\ntshark  %v", i+1, want[i], got[i])
				}
			}
			packets += len(want)
		})
	}
	if packets < 50 {
		t.Errorf("%d packets in all", packets)
	}
}

// A field can be used as a filter by the names that uetdump prints.
func TestWiresharkFilters(t *testing.T) {
	if os.Getenv(tsharkEnv) == "" {
		t.Skipf("%s is not set", tsharkEnv)
	}
	const capture = "testdata/captures/messages.pcap"
	count := 0
	for _, p := range uetdumpSays(t, capture) {
		if p["type"] == "RUD_REQ" && p["opcode"] == "TAGGED_SEND" {
			count++
		}
	}
	got := tsharkSays(t, capture, "-Y", `uet.type == "RUD_REQ" && uet.opcode == "TAGGED_SEND"`)
	if count == 0 || len(got) != count {
		t.Errorf("%d packets, and uetdump has %d", len(got), count)
	}
}
