package main

import (
	"testing"
	"time"
)

// A time is from the beginning, of a day, or whole; of a day it is the next one at or
// after the capture's, half a day back.
func TestMoment(t *testing.T) {
	first := time.Date(2026, 1, 2, 23, 59, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"1.5":                       first.Add(1500 * time.Millisecond),
		"-1":                        first.Add(-time.Second),
		"20ms":                      first.Add(20 * time.Millisecond),
		"23:59:30.25":               first.Add(30250 * time.Millisecond),
		"00:00:10":                  first.Add(70 * time.Second),
		"23:58:00":                  first.Add(-time.Minute),
		"2026-01-03T01:00:00+01:00": first.Add(time.Minute),
	} {
		m, err := parseMoment(s, true)
		if err != nil || !m.in(first).Equal(want) {
			t.Errorf("%s is %v, want %v (%v)", s, m.in(first), want, err)
		}
	}
	for _, s := range []string{"", "tomorrow", "1e12", "25:00:00", "nan"} {
		if m, err := parseMoment(s, true); err == nil {
			t.Errorf("%q is %+v", s, m)
		}
	}
}
