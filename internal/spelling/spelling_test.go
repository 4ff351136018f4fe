package spelling

import "testing"

func TestClosest(t *testing.T) {
	words := []string{"latency", "loss", "late", "rate"}
	for _, c := range []struct {
		word string
		most int
		want string
	}{
		{"los", 3, "loss"},
		{"rat", 2, "rate"},
		{"ltaency", 3, "latency"}, // two letters changed
		{"ltaency", 2, ""},
		{"loss", 1, "loss"},
		{"", 3, ""},
	} {
		if got := Closest(c.word, words, c.most); got != c.want {
			t.Errorf("Closest(%q, %d) = %q, want %q", c.word, c.most, got, c.want)
		}
	}
}
