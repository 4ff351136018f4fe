package fabric

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestUnitsText(t *testing.T) {
	for _, c := range []struct {
		v    interface{ UnmarshalText([]byte) error }
		in   string
		want int64
		out  string
	}{
		{new(Duration), "1.5ms", 1500000, "1.5ms"},
		{new(Duration), "0", 0, "0s"},
		{new(Bytes), "64KiB", 65536, "64KiB"},
		{new(Bytes), "1.5kB", 1500, "1500"},
		{new(Bytes), "9000", 9000, "9kB"},
		{new(Bytes), "9001 B", 9001, "9001"},
		{new(Bytes), "3MiB", 3 << 20, "3MiB"},
		{new(Bytes), "0", 0, "0"},
		{new(Bytes), "-2kB", -2000, "-2kB"},
		{new(Rate), "1Gbit/s", 1e9, "1Gbit/s"},
		{new(Rate), "2.5Gbit/s", 2.5e9, "2500Mbit/s"},
		{new(Rate), "500Mbit/s", 5e8, "500Mbit/s"},
		{new(Rate), "10kbit/s", 1e4, "10kbit/s"},
		{new(Rate), "7 bit/s", 7, "7bit/s"},
		{new(Rate), "1e9", 1e9, "1Gbit/s"},
		{new(Rate), "0", 0, "0bit/s"},
	} {
		if err := c.v.UnmarshalText([]byte(c.in)); err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		var got int64
		var text encoding.TextMarshaler
		switch v := c.v.(type) {
		case *Duration:
			got, text = int64(*v), *v
		case *Bytes:
			got, text = int64(*v), *v
		case *Rate:
			got, text = int64(*v), *v
		}
		out, err := text.MarshalText()
		if got != c.want || string(out) != c.out || err != nil {
			t.Errorf("%T %q is %d and written %q, want %d and %q", c.v, c.in, got, out, c.want, c.out)
		}
	}
}

func TestUnitsRefuse(t *testing.T) {
	for _, c := range []struct {
		v  encoding.TextUnmarshaler
		in string
	}{
		{new(Duration), "5"},
		{new(Duration), ""},
		{new(Bytes), "64Kib"},
		{new(Bytes), "B"},
		{new(Bytes), "inf"},
		{new(Bytes), "9000000TiB"},
		{new(Bytes), "1e30"},
		{new(Rate), "1GB/s"},
		{new(Rate), "fast"},
		{new(Rate), "0x10"},
		{new(Rate), "NaNbit/s"},
	} {
		err := c.v.UnmarshalText([]byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.in) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%T %q: %v", c.v, c.in, err)
		}
	}
}

func TestConfigJSON(t *testing.T) {
	in := `{"seed":3,"ports":[{"name":"a","addrs":["198.18.16.0/24"],"from":{},"to":{"rate":"1Gbit/s","delay":"1.5ms","queue":"64KiB",
		"ecn":{"min":1000,"max":"2kB"},"rule":[]}}],"classes":{},"events":[{"at":0,"for":"2s","on":["a.to"],"set":{"rate":1000000}}]}`
	var c Config
	if err := json.Unmarshal([]byte(in), &c); err != nil {
		t.Fatal(err)
	}
	to := c.Ports[0].To
	if to.Rate != 1e9 || to.Delay != Duration(1500*time.Microsecond) || to.Queue != 65536 || to.ECN.Min != 1000 || to.ECN.Max != 2000 ||
		c.Events[0].For != Duration(2*time.Second) || c.Events[0].Set.Rate != 1e6 {
		t.Fatalf("read %+v", c)
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"rate":"1Gbit/s"`, `"delay":"1.5ms"`, `"queue":"64KiB"`, `"set":{"rate":"1Mbit/s"}`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	var again Config
	if err := json.Unmarshal(out, &again); err != nil || again.Ports[0].To.Rate != 1e9 {
		t.Errorf("read again: %v %+v", err, again)
	}
	if err := json.Unmarshal([]byte(`{"ports":[{"to":{"delay":5}}]}`), &c); err == nil {
		t.Error("a delay without unit was taken")
	}
}
