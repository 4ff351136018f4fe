package main

import (
	"slices"
	"testing"
)

func TestHubFigure(t *testing.T) {
	if v, err := hubFigure([]byte(`{"kmsgs": 250.5, "opened": 20}`), "kmsgs"); err != nil || v != 250.5 {
		t.Error(v, err)
	}
	for _, bad := range []string{"", "{}", "12"} {
		if _, err := hubFigure([]byte(bad), "kmsgs"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A row that compares many endpoints with few differs from what it is compared with in the number alone.
func TestManyRows(t *testing.T) {
	rows := manyRows()
	if len(rows) != 15 {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.clean == nil {
			continue
		}
		p := slices.Index(r.uet, "-P") + 1
		if r.uet[p] != "1000" || r.clean[p] != "10" || !slices.Equal(slices.Delete(slices.Clone(r.uet), p, p+1), slices.Delete(slices.Clone(r.clean), p, p+1)) {
			t.Errorf("%s: %v against %v", r.what, r.uet, r.clean)
		}
	}
}
