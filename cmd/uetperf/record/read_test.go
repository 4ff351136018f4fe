package record

import (
	"bytes"
	"strings"
	"testing"
)

func whole(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	g := 1e9
	r := Record{Schema: Schema, Host: Host{Name: "a"}, Runs: []Run{{Size: 8, GoodputBPS: &g, Latency: &Latency{P50: 5}, Series: []Sample{{AtNS: 1}}}}, OK: true}
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadWhatWriteWrote(t *testing.T) {
	s := whole(t)
	for name, in := range map[string]string{"as it is": s, "with a byte order mark": "\ufeff" + s, "with blanks": "\n " + s + " \n", "with a key of tomorrow": strings.Replace(s, "{", `{"new":[1],`, 1)} {
		r, err := Read(strings.NewReader(in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b bytes.Buffer
		_ = r.Write(&b)
		if b.String() != s {
			t.Errorf("%s: reads as %s", name, b.String())
		}
	}
}

func TestReadRefuses(t *testing.T) {
	s := whole(t)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "is empty"},
		{"blanks", " \n", "is empty"},
		{"half", s[:len(s)/2], "ends in the middle of the record (after "},
		{"all but the end", strings.TrimRight(s, "}\n "), "ends in the middle"},
		{"text", "lat: 5 µs", "is not JSON (line 1, column 1"},
		{"another line", "{\n\"schema\": oops}", "is not JSON (line 2, column 11"},
		{"a list", "[" + s + "]", "is JSON, but an array and no record"},
		{"a number", "7", "is JSON, but a number and no record"},
		{"two", s + s, "goes on after the record's end (line "},
		{"foreign", `{"start":{"connected":[]}}`, `has no "schema"`},
		{"a schema of others", `{"schema":"iperf/3"}`, `has the schema "iperf/3", not "uetperf/1"`},
		{"newer", `{"schema":"uetperf/2","runs":7}`, `has the schema "uetperf/2", newer than "uetperf/1": read it with the uetperf that wrote it`},
		{"of the testbed", `{"schema":"uetkit-testbed/1"}`, "a result of the testbed"},
		{"a schema that is none", `{"schema":7}`, `has "schema" as a number where a record has a string`},
		{"a wrong type", strings.Replace(s, `"size": 8`, `"size": "8"`, 1), "as a string where a record has a whole number (line "},
		{"a fraction", strings.Replace(s, `"size": 8`, `"size": 8.5`, 1), "where a record has a whole number"},
		{"no list", strings.Replace(s, `"verdict": []`, `"verdict": 1`, 1), `has "verdict" as a number where a record has a list`},
	} {
		_, err := Read(strings.NewReader(c.in))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q, want %q", c.name, err, c.want)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
			t.Errorf("%s: not one line: %q", c.name, err)
		}
	}
}

func TestReadStopsAtItsBound(t *testing.T) {
	if _, err := Parse(bytes.Repeat([]byte(" "), MaxSize+1)); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("error %v", err)
	}
}

func FuzzRead(f *testing.F) {
	s := whole(f)
	for _, seed := range []string{s, s[:len(s)-20], "[" + s, `{"schema":"uetperf/9"}`, `{"schema":"uetperf/1","runs":[{}]}`, "\ufeff{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("not one line: %q", err)
		case err == nil:
			// A record that was read can be written and read again.
			var one, two bytes.Buffer
			if err := r.Write(&one); err != nil {
				t.Fatal(err)
			}
			again, err := Parse(one.Bytes())
			if err != nil {
				t.Fatalf("%v: %s", err, one.Bytes())
			}
			if _ = again.Write(&two); !bytes.Equal(one.Bytes(), two.Bytes()) {
				t.Errorf("changes when read again:\n%s\n%s", one.Bytes(), two.Bytes())
			}
		}
	})
}
