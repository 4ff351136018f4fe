package report

import (
	"testing"

	"github.com/uetkit/uetkit/internal/page"
)

// The page of a soak says what both ends threw away, and whether that matters.
func TestSoakDrops(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"soak"},"runs":[{"transport":{"drops":{"stale":120}},"peer_transport":{"drops":{"kernel":7}},
		"soak":{"episodes":1,"kinds":{},"leaks":[]}}]}`)
	for _, b := range r.Special() {
		tab, ok := b.(page.Table)
		if !ok {
			continue
		}
		if len(tab.Rows) != 2 {
			t.Fatalf("%+v", tab)
		}
		for i, want := range []map[string]string{
			{"verdict|": "harmless", "end|": "client", "reason|": "stale", "datagrams|": "120"},
			{"verdict|": "look", "end|": "server", "reason|": "kernel", "datagrams|": "7"},
		} {
			got := cells(t, tab, i)
			for k, v := range want {
				if got[k].Text != v {
					t.Errorf("row %d: %s is %q, want %q", i, k, got[k].Text, v)
				}
			}
		}
		return
	}
	t.Error("the page does not say it")
}
