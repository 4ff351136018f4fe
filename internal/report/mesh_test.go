package report

import (
	"testing"

	"github.com/uetkit/uetkit/internal/page"
)

const aMesh = `{"schema":"uetperf/1","config":{"test":"mesh"},"runs":[{"transport":{},"mesh":{
		"hosts":[{"name":"a","addr":"1","host":{"name":"x"}},{"name":"b","addr":"2","host":{"name":"y"}},{"name":"c","addr":"3","error":"gone"}],
		"median_bps":10e9,"median_ns":10000,"pairs":[
		{"from":0,"to":1,"goodput_bps":10e9,"latency_ns":{"p50":10000}},
		{"from":1,"to":0,"goodput_bps":5e9,"slow":true,"latency_ns":{"p50":14000}},
		{"from":1,"to":2,"error":"no answer"},{"from":7,"to":2}]}}]}`

// The page of a test between many hosts has a heat map of each measure: the worse than the
// median, the darker. What failed says so, and pairs that stand out have a table.
func TestMeshMaps(t *testing.T) {
	r := parse(t, aMesh)
	tables := map[string]page.Table{}
	for _, b := range r.Special() {
		if tab, ok := b.(page.Table); ok {
			tables[tab.Caption[:5]] = tab
		}
	}
	bw, lat, pairs := tables["Bandw"], tables["Half "], tables["Pairs"]
	if len(bw.Heads) != 4 || len(bw.Rows) != 2 || bw.Heads[1].Name != "to a" {
		t.Fatalf("%+v", bw)
	}
	for _, c := range []struct {
		cell page.Cell
		text string
		heat int
	}{
		{bw.Rows[0][2], "10.00", 0}, {bw.Rows[1][1], "5.00", page.MostHeat}, {lat.Rows[0][2], "10.0", 0}, {lat.Rows[1][1], "14.0", 2},
		{bw.Rows[1][3], "failed", 0}, {bw.Rows[0][1], "", 0},
	} {
		if c.cell.Text != c.text || c.cell.Heat != c.heat {
			t.Errorf("%+v, want %q with heat %d", c.cell, c.text, c.heat)
		}
	}
	if bw.Rows[1][3].Help != "no answer" {
		t.Errorf("%+v", bw.Rows[1][3])
	}
	if len(pairs.Rows) != 2 || pairs.Rows[0][0].Text != "slow" || pairs.Rows[1][0].Text != "failed" {
		t.Errorf("%+v", pairs.Rows)
	}
}

// A mesh has the latency of small messages and no client of its own.
func TestMeshSaysWhatItMeasured(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","command":["uetperf","mesh","a","b"],"host":{"name":"x"},"config":{"test":"mesh"},"runs":[{"size":65536,"latency_ns":{"p50":5000},"transport":{},"mesh":{"hosts":[],"pairs":[]}}]}`)
	if x := tiles(r)[0]; x.Name != "latency, p50" || x.Note != "at size 8" {
		t.Errorf("%+v", x)
	}
	if b := CDF([]*Rec{r}, AxesOf([]*Rec{r})); len(b) != 0 {
		t.Errorf("histograms that a mesh does not keep are missed: %v", b)
	}
	for _, f := range r.Environment() {
		if f.Name == "server" || f.Name == "client" {
			t.Errorf("%+v", f)
		}
	}
	if b := repeat(r); len(b) != 2 || b[1] != page.Text("On each of the hosts: uetperf serve --mesh") {
		t.Errorf("%v", b)
	}
}
