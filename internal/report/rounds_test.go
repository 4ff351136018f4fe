package report

import (
	"strings"
	"testing"

	"github.com/uetkit/uetkit/internal/page"
)

// Of a repeated test, tiles and tables have the median of the rounds and the range, as the
// terminal and compare do. The rounds themselves are folded.
func TestRoundsAreMedians(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"lat","op":"send","repeat":3},"runs":[
		{"size":8,"msgs":10,"goodput_bps":3e9,"msgs_lost":0,"data_check":{"ok":10},"latency_ns":{"p50":4000,"p99":9000},"transport":{"rtx_rto":0,"ooo":0}},
		{"size":64,"msgs":10,"latency_ns":{"p50":9000},"transport":{"rtx_rto":1}},
		{"size":8,"msgs":10,"goodput_bps":9e9,"msgs_lost":2,"data_check":{"ok":10},"latency_ns":{"p50":2000,"p99":7000},"transport":{"rtx_rto":5,"ooo":0},"load":{"offered":40,"overloaded":true}},
		{"size":64,"msgs":10,"latency_ns":{"p50":9000},"transport":{"rtx_rto":1}},
		{"size":8,"msgs":10,"goodput_bps":4e9,"msgs_lost":0,"data_check":{"ok":10},"latency_ns":{"p50":5000,"p99":8000},"transport":{"rtx_rto":1,"ooo":0},"load":{"offered":60,"overloaded":false}}]}`)
	tab := r.Results("")
	if len(tab.Rows) != 2 || !strings.HasPrefix(tab.Note, "Medians of 3 rounds; below each the least … most. ") {
		t.Fatalf("%d rows, %q", len(tab.Rows), tab.Note)
	}
	check := func(what string, got map[string]page.Cell, key, text, rng string) {
		t.Helper()
		if c := got[key]; c.Text != text || c.Range != rng {
			t.Errorf("%s: %s is %q [%s], want %q [%s]", what, key, c.Text, c.Range, text, rng)
		}
	}
	first, second := cells(t, tab, 0), cells(t, tab, 1)
	check("8", first, "p50|µs", "4.00", "2.00 … 5.00")
	check("8", first, "goodput|Gb/s", "4.000", "3.000 … 9.000")
	check("8", first, "rtx|", "1", "0 … 5")
	check("8", first, "lost|msgs", "0", "0 … 2")
	check("8", first, "data|", "30 ok", "")
	check("64", second, "p50|µs", "9.00", "")
	if first["lost|msgs"].Tone != page.Bad {
		t.Error("lost messages of a round are not marked")
	}
	all := r.rounds()[0].(page.Details).Body[0].(page.Table)
	if len(all.Rows) != 5 {
		t.Errorf("%d rounds, want 5", len(all.Rows))
	}
	check("round", cells(t, all, 2), "p50|µs", "2.00", "")
	load := cells(t, r.Special()[0].(page.Table), 0)
	check("load", load, "offered|", "50", "40 … 60")
	if load["run|"].Text != "8" || load["overloaded|"].Text != "yes" {
		t.Errorf("%+v", load)
	}
	shown := map[string]page.Tile{}
	for _, x := range tiles(r) {
		shown[x.Name] = x
	}
	for name, want := range map[string][2]string{
		"latency, p50": {"4 µs", "median of 3, 2 µs … 5 µs, at size 8"}, "latency, p99": {"8 µs", "median of 3, 7 µs … 9 µs, at size 8"},
		"goodput": {"4 Gb/s", "median of 3, 3 Gb/s … 9 Gb/s, at size 8"},
	} {
		if got := shown[name]; got.Value != want[0] || got.Note != want[1] {
			t.Errorf("%s is %+v, want %q", name, got, want)
		}
	}
	if once := parse(t, `{"schema":"uetperf/1","runs":[{"size":8,"latency_ns":{"p50":1}},{"size":8,"latency_ns":{"p50":2}}]}`); len(once.Results("").Rows) != 2 || once.rounds() != nil {
		t.Error("runs of a test that was not repeated are joined")
	}
}

// Packets sent again are those that were lost and those that the other end had already. One end
// sends again what comes twice at the other.
func TestSentAgainIsLostAndSpurious(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw"},"runs":[
		{"size":8,"transport":{"tx_pkts":90,"rtx_rto":5,"rtx_sack":2,"dup":0},"peer_transport":{"tx_pkts":10,"rtx_rto":0,"dup":3}},
		{"size":64,"transport":{"tx_pkts":100,"rtx_rto":3,"dup":0},"peer_transport":{"dup":0}}]}`)
	for row, want := range [][3]string{{"7", "4", "3"}, {"3", "3", "0"}} {
		got := cells(t, r.Results(""), row)
		if got["rtx|"].Text != want[0] || got["lost|pkts"].Text != want[1] || got["spur|pkts"].Text != want[2] {
			t.Errorf("rtx %v, lost %v, spurious %v, want %v", got["rtx|"], got["lost|pkts"], got["spur|pkts"], want)
		}
	}
	for _, x := range tiles(r) {
		if x.Name == "sent again" && (x.Value != "10" || x.Note != "7 lost, 3 spurious; 5 % of 200 packets") {
			t.Errorf("%+v", x)
		}
	}
	half := parse(t, `{"schema":"uetperf/1","runs":[{"transport":{"rtx_rto":5}}]}`)
	c := cells(t, half.Results(""), 0)
	if _, shown := c["lost|pkts"]; c["rtx|"].Text != "5" || shown {
		t.Errorf("what the other end had is not known: %+v", c)
	}
}
