package report

import (
	"os"
	"testing"

	"github.com/uetkit/uetkit/internal/page/pagetest"
)

// wideLoad is a record with many columns, wide numbers and rounds.
const wideLoad = `{"schema":"uetperf/1","config":{"test":"load","op":"tsend","repeat":2},"runs":[` + wideRun + `,` + wideRun2 + `]}`

const (
	wideRun  = `{"size":65536,"msgs":1000000,"duration_ns":100000000000,"setup_ns":1234567,"first_ns":99999,"goodput_bps":12345678901,"msgs_per_s":123456,"msgs_lost":0,"latency_ns":{"min":17500,"p50":121340,"p90":1949690,"p99":10362880,"p999":10362880,"max":12343600,"mean":835930.5,"stddev":1884690.5,"hdr":""},"transport":{"tx_pkts":1234567,"rtx_sack":12345,"dup":12345,"ooo":123456,"trimmed":1,"ecn_ce":12345},"peer_transport":{"tx_pkts":1234567,"rtx_rto":1,"dup":1,"ooo":5,"trimmed":0,"ecn_ce":0},"cpu":{"user_ns":50000000000,"sys_ns":50000000000,"peer_user_ns":50000000000,"peer_sys_ns":1},"data_check":{"ok":1000000}}`
	wideRun2 = `{"size":65536,"msgs":2000000,"duration_ns":200000000000,"setup_ns":2234567,"first_ns":89999,"goodput_bps":22345678901,"msgs_per_s":223456,"msgs_lost":0,"latency_ns":{"min":18500,"p50":221340,"p90":2949690,"p99":20362880,"p999":20362880,"max":22343600,"mean":935930.5,"stddev":2884690.5,"hdr":""},"transport":{"tx_pkts":2234567,"rtx_sack":22345,"dup":22345,"ooo":223456,"trimmed":1,"ecn_ce":22345},"peer_transport":{"tx_pkts":2234567,"rtx_rto":1,"dup":1,"ooo":5,"trimmed":0,"ecn_ce":0},"cpu":{"user_ns":60000000000,"sys_ns":50000000000,"peer_user_ns":50000000000,"peer_sys_ns":1},"data_check":{"ok":1000000}}`
)

// Pages fit phones, and their tables fit a screen.
func TestPagesFitTheirWindows(t *testing.T) {
	example, err := os.ReadFile("../../docs/example/report.html")
	if err != nil {
		t.Fatal(err)
	}
	load := parse(t, wideLoad)
	pagetest.Fits(t, map[string]string{
		"example": string(example),
		"lat":     html(t, "", read(t, "testdata/lat.json")...),
		"load":    html(t, "", load),
		"mixed":   html(t, "", append(read(t, "testdata/lat.json", "testdata/bw.json", "testdata/failed.json"), load)...),
		"mesh":    html(t, "", parse(t, aMesh)),
	})
}
