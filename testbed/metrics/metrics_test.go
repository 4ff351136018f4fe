package metrics

import (
	"math"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

func ptr[T any](v T) *T { return &v }

// ran is a run of two clients and a server behind a switch of 1 Gbit/s.
func ran() *result.Result {
	transport := record.Counters{TxPkts: 100, RxPkts: 40, RtxRTO: 1, RtxSACK: 2, Dup: 2, Drops: map[string]uint64{"crc": 3}}
	return &result.Result{
		Substrate: "netns",
		Topology:  fabric.Config{Ports: []fabric.Port{{Name: "c1"}, {Name: "c2"}, {Name: "s", To: fabric.Line{Rate: 1e9}}}, Spines: []fabric.Line{{}}},
		Switch: &fabric.Stats{
			Received: 1000, Sent: 990, Whys: map[string]uint64{"lost_random": 10},
			Lines: map[string]fabric.LineStats{"s.to": {Packets: 600, MaxWait: 4096, SentB: 5000, Whys: map[string]uint64{"lost_random": 7}}},
		},
		Hosts: []result.Host{
			{Name: "c1", Role: "client", Exit: ptr(0), Record: &record.Record{Runs: []record.Run{
				{
					Msgs: 10, Bytes: 1000, DurationNS: 1e9, GoodputBPS: ptr(100.0), Lost: ptr(int64(1)), Transport: transport, PeerTransport: &transport,
					DataCheck: &record.Check{OK: 9, Wrong: 1},
				},
				{Msgs: 5, DurationNS: 3e9, GoodputBPS: ptr(500.0), Latency: &record.Latency{P99: 2e6, Max: 3e6}},
				{Msgs: 5, DurationNS: 3e9, Latency: &record.Latency{P99: 1e6, Max: 5e6}},
			}}},
			{Name: "c2", Role: "client", Exit: ptr(137)},
			{Name: "s", Role: "server"},
		},
	}
}

func TestJudge(t *testing.T) {
	e := Of(ran(), 4.5)
	for _, tt := range []struct {
		src, value string
		pass       bool
	}{
		{"c1.msgs == 20", "c1.msgs = 20", true},
		{"c1.goodput == 400", "c1.goodput = 4e-07 Gb/s", true}, // weighted by time
		{"c1.p99_ms == 2 && c1.max_ms == 5", "c1.p99_ms = 2, c1.max_ms = 5", true},
		{"c1.rtx == 6 && c1.rtx_rto == 2", "c1.rtx = 6, c1.rtx_rto = 2", true}, // the sum of both ends
		{"c1.tx + c1.rx == 280", "c1.tx = 200, c1.rx = 80", true},
		{`c1.drops["crc"] == 6 && c1.drops["auth"] == 0`, `c1.drops.crc = 6, c1.drops.auth = 0`, true},
		{"c1.lost == 0", "c1.lost = 1", false},
		{"c1.wrong == 1 and c1.ok == 9", "c1.wrong = 1, c1.ok = 9", true},
		{"c1.exit == 0 and c1.error == 0", "c1.exit = 0, c1.error = 0", true},
		{"c2.exit == 137 and c2.error == 1", "c2.exit = 137, c2.error = 1", true},
		// The language is that of uetperf --assert.
		{"c1.p99 <= 2ms && c1.goodput = 400b/s", "c1.p99 = 2000 µs, c1.goodput = 4e-07 Gb/s", true},
		{"c1.rtx < 5% && all.LOST <= 5%", "c1.rtx = 3%, all.lost = 5%", true},
		{"c1.drops == 6 && c1.drops < 5%", "c1.drops = 6, c1.drops = 3%", true},
		{`line("s.to").rate == 1Gb/s && 1Mb/s > max.bw`, `line("s.to").rate = 1 Gb/s, max.bw = 4e-07 Gb/s`, true},
		// A comparison with what was not measured is false.
		{"c2.lost != 0", "c2.lost = not measured", false},
		{"c2.goodput >= 0", "c2.goodput = not measured", false},
		{"c2.lost == 0", "c2.lost = not measured", false},
		{"c1.setup_ms < 1e9", "c1.setup_ms = not measured", false},
		{"all.msgs == 20", "all.msgs = 20", true},
		{"min.goodput == 400", "min.goodput = 4e-07 Gb/s", true},
		{"max.exit == 137", "max.exit = 137", true},
		{"jain == 0.5", "jain = 0.5", true}, // one of two got everything
		{"net.lost_random == 10 && net.received == 1000 && net.trimmed == 0", "net.lost_random = 10, net.received = 1000, net.trimmed = 0", true},
		{`line("s.to").lost_random == 7 && line("s.to").max_waiting <= 4096`, `line("s.to").lost_random = 7, line("s.to").max_waiting = 4096`, true},
		{`line("s.to").rate == 1e9 && line("c1.from").rate == 0`, `line("s.to").rate = 1 Gb/s, line("c1.from").rate = 0 Gb/s`, true},
		{`all.goodput < 0.95 * line("s.to").rate`, `all.goodput = 4e-07 Gb/s, line("s.to").rate = 1 Gb/s`, true},
		{"took < 5", "took = 4.5", true},
		{"sim || took > 4", "took = 4.5", true},
		{`line("spine.0").packets == 0`, `line("spine.0").packets = 0`, true},
	} {
		pass, value, err := e.Evaluate(tt.src)
		if err != nil || pass != tt.pass || value != tt.value {
			t.Errorf("%s: %v, %q, %v; want %v, %q", tt.src, pass, value, err, tt.pass, tt.value)
		}
	}
}

func TestCheckNames(t *testing.T) {
	e := Names([]string{"c1", "c2"}, LineNames(&ran().Topology))
	for _, tt := range []struct{ src, want string }{
		{"c1.msgs > 0 && all.lost == 0 && jain > 0.9", ""},
		{`line("spine.0").lost_down == 0`, ""},
		{"c3.msgs > 0", "unknown name c3"},
		{"s.msgs > 0", "unknown name s"}, // a server has no metrics
		{"c1.goodputt > 0", "has no field goodputt"},
		{"net.lost_randum == 0", "has no field lost_randum"},
		{`line("s.too").packets > 0`, `there is no line "s.too"; there are c1.from`},
		{`line("s.to").nothing > 0`, "has no field nothing"},
		{`line(c1.msgs).packets > 0`, "line"},
		{"c1.msgs", "it is not true or false"},
		{"c1.msgs >", "unexpected token"},
		{`c1.msgs == "x"`, "mismatched types"},
	} {
		_, err := e.Compile(tt.src)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.src, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want one line with %q", tt.src, err, tt.want)
		}
	}
}

func TestFlatHasNumbersOnly(t *testing.T) {
	flat := Of(ran(), math.NaN()).Flat()
	for name, v := range flat {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%s = %v cannot be written as JSON", name, v)
		}
	}
	for name, want := range map[string]float64{"c1.goodput": 400, "net.sent": 990, "line.s.to.max_waiting": 4096, "c1.drops.crc": 6, "all.rtx": 6, "all.spurious": 4, "all.msgs": 20} {
		if flat[name] != want {
			t.Errorf("%s = %v, want %v", name, flat[name], want)
		}
	}
	if _, ok := flat["c2.goodput"]; ok {
		t.Error("c2.goodput was not measured and is there")
	}
}
