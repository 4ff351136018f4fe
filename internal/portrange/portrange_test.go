package portrange

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Range{"20000-20063": {20000, 20063}, "7": {7, 7}, "1-65535": {1, 65535}, " 5 - 6 ": {5, 6}} {
		if r, err := Parse(s); r != want || err != nil {
			t.Errorf("%q: %v, %v", s, r, err)
		}
	}
	for _, s := range []string{"", "-", "0", "0-5", "6-5", "1-65536", "a-b", "1-2-3", "20000:20063", "-5", "0-0"} {
		if r, err := Parse(s); err == nil {
			t.Errorf("%q is %v", s, r)
		}
	}
}

func TestBind(t *testing.T) {
	// bind takes each port once.
	taken := map[uint16]bool{}
	bind := func(port uint16) (uint16, error) {
		if taken[port] {
			return 0, syscall.EADDRINUSE
		}
		taken[port] = true
		return port, nil
	}
	r := Range{65530, 65535}
	for i := range 6 {
		if p, err := Bind(r, 0, bind); err != nil || p < r.First {
			t.Fatalf("%d: %d, %v", i, p, err)
		}
	}
	if _, err := Bind(r, 0, bind); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "65530-65535") {
		t.Errorf("a full range: %v", err)
	}
	if p, err := Bind(Range{}, 0, bind); p != 0 || err != nil {
		t.Errorf("no range: %d, %v", p, err)
	}
	// The last ports are left out for those that follow.
	for range 20 {
		if p, err := Bind(Range{10, 13}, 3, func(port uint16) (uint16, error) { return port, nil }); p != 10 || err != nil {
			t.Fatalf("the first of four in a row: %d, %v", p, err)
		}
	}
	if _, err := Bind(Range{10, 13}, 4, bind); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("five in a row of four: %v", err)
	}
	// Another error ends the search.
	tries := 0
	if _, err := Bind(Range{10, 20}, 0, func(uint16) (int, error) { tries++; return 0, syscall.EACCES }); !errors.Is(err, syscall.EACCES) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}
