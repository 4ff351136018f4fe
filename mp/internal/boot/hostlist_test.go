package boot

import (
	"strings"
	"testing"
)

func TestFirstHost(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"a", "a"},
		{"node-1.example.org", "node-1.example.org"},
		{"a,b,c", "a"},
		{"n[0-3]", "n0"},
		{"n[008-011,20]", "n008"},
		{"n[7]", "n7"},
		{"n[5,1-3],m", "n5"},
		{"rack[1-2]n[3-4]", "rack1n3"},
		{"n[1-2].cluster", "n1.cluster"},
		{"x,n[1-2]", "x"},
		{"[1-2]", "1"},
		{"n[999999999]", "n999999999"},
	} {
		if got, err := firstHost(c.list); err != nil || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.list, got, err, c.want)
		}
	}
}

func TestFirstHostRefuses(t *testing.T) {
	for _, c := range []struct{ list, why string }{
		{"", "without a name"},
		{",a", "without a name"},
		{"a,", "without a name"},
		{"a,,b", "without a name"},
		{"n[", "not closed"},
		{"n[1-3", "not closed"},
		{"n[1,", "not closed"},
		{"n]", "too many"},
		{"n[1]]", "too many"},
		{"n[[1]]", "too many"},
		{"n[]", "no number"},
		{"n[1,]", "no number"},
		{"n[-1]", "no number"},
		{"n[1-]", "no number"},
		{"n[1-2-3]", "no number"},
		{"n[a-b]", "no number"},
		{"n[3-1]", "no number"},
		{"n[1 -2]", "no number"},
		{"n[1234567890]", "no number"},
		{"a b", "a host name with ' '"},
		{"a,b\n", `a host name with '\n'`},
		{"a=b", "a host name with '='"},
		{"é", "a host name with"},
		{"a,n[2-1]", "no number"}, // the whole list must parse
	} {
		if got, err := firstHost(c.list); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %q, %v, want %q", c.list, got, err, c.why)
		}
	}
}

// What parses has a first host that is a list of itself, and stays the first when others
// follow.
func FuzzFirstHost(f *testing.F) {
	for _, s := range []string{"a", "n[0-3]", "n[008-011,20],m", "r[1-2]n[3-4].x", "n[", "[1]", ",", "n[3-1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		first, err := firstHost(list)
		if err != nil {
			if first != "" {
				t.Errorf("%q: %q beside %v", list, first, err)
			}
			return
		}
		if first == "" || strings.ContainsAny(first, "[],= \n") {
			t.Fatalf("%q: the host %q", list, first)
		}
		if again, err := firstHost(first); err != nil || again != first {
			t.Errorf("%q alone: %q, %v", first, again, err)
		}
		if more, err := firstHost(list + ",z[1-2]"); err != nil || more != first {
			t.Errorf("%q and others: %q, %v", list, more, err)
		}
	})
}
