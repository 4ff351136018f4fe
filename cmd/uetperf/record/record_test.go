package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// schema is the stable form of the record: the path and type of every key. A line may be
// added; changing or removing one requires uetperf/2.
const schema = `
command []string
config.arrivals string
config.base_rtt_ns int64
config.cc string
config.churn bool
config.complete string
config.crc bool
config.direction string
config.encapsulation string
config.ep string
config.impair string
config.mode string
config.mtu int
config.op string
config.parallel int
config.share_port bool
config.path_choice string
config.paths int
config.progress string
config.ranks int
config.rate float64
config.reduction string
config.rendezvous int64
config.repeat int
config.reply int64
config.root int
config.sec string
config.test string
config.trimming bool
config.type string
config.window int
error string
host.cpu string
host.cpus int
host.governor string
host.kernel string
host.name string
host.os string
host.virtual string
ok bool
path.driver string
path.ecn bool
path.gro.on bool
path.gro.why string
path.gso.on bool
path.gso.why string
path.interface string
path.local string
path.mtu int
path.rcvbuf int
path.rcvbuf_asked int
path.remote string
path.sndbuf int
path.sndbuf_asked int
peer.cpu string
peer.cpus int
peer.governor string
peer.kernel string
peer.name string
peer.os string
peer.virtual string
peer_tool.commit string
peer_tool.go string
peer_tool.version string
runs[].bytes int64
runs[].churn.close_ns.hdr string
runs[].churn.close_ns.max int64
runs[].churn.close_ns.mean float64
runs[].churn.close_ns.min int64
runs[].churn.close_ns.p50 int64
runs[].churn.close_ns.p90 int64
runs[].churn.close_ns.p99 int64
runs[].churn.close_ns.p999 int64
runs[].churn.close_ns.completion bool
runs[].churn.close_ns.rtt bool
runs[].churn.close_ns.stddev float64
runs[].churn.open_ns.hdr string
runs[].churn.open_ns.max int64
runs[].churn.open_ns.mean float64
runs[].churn.open_ns.min int64
runs[].churn.open_ns.p50 int64
runs[].churn.open_ns.p90 int64
runs[].churn.open_ns.p99 int64
runs[].churn.open_ns.p999 int64
runs[].churn.open_ns.completion bool
runs[].churn.open_ns.rtt bool
runs[].churn.open_ns.stddev float64
runs[].coll.algorithm string
runs[].coll.bus_bps float64
runs[].coll.count int64
runs[].coll.least_ns float64
runs[].coll.mean_ns float64
runs[].coll.time_ns float64
runs[].coll.wrong int64
runs[].connect_ns int64
runs[].cpu.peer_sys_ns int64
runs[].cpu.peer_user_ns int64
runs[].cpu.sys_ns int64
runs[].cpu.user_ns int64
runs[].data_check.dup int64
runs[].data_check.ok int64
runs[].data_check.wrong int64
runs[].data_check.wrong_bytes int64
runs[].duration_ns int64
runs[].error string
runs[].errors int64
runs[].first_ns int64
runs[].goodput_bps float64
runs[].incast.convergence_ns int64
runs[].incast.jain float64
runs[].incast.round_ns.hdr string
runs[].incast.round_ns.max int64
runs[].incast.round_ns.mean float64
runs[].incast.round_ns.min int64
runs[].incast.round_ns.p50 int64
runs[].incast.round_ns.p90 int64
runs[].incast.round_ns.p99 int64
runs[].incast.round_ns.p999 int64
runs[].incast.round_ns.completion bool
runs[].incast.round_ns.rtt bool
runs[].incast.round_ns.stddev float64
runs[].incast.rounds int64
runs[].incast.within float64
runs[].iters int64
runs[].last_error string
runs[].latency_ns.hdr string
runs[].latency_ns.max int64
runs[].latency_ns.mean float64
runs[].latency_ns.min int64
runs[].latency_ns.p50 int64
runs[].latency_ns.p90 int64
runs[].latency_ns.p99 int64
runs[].latency_ns.p999 int64
runs[].latency_ns.completion bool
runs[].latency_ns.rtt bool
runs[].latency_ns.stddev float64
runs[].load.late int64
runs[].load.late_after_ns int64
runs[].load.max_lag_ns int64
runs[].load.offered int64
runs[].load.offered_per_s float64
runs[].load.overloaded bool
runs[].load.unsent int64
runs[].measured_at string
runs[].mesh.apart_ns int64
runs[].mesh.hosts[].addr string
runs[].mesh.hosts[].ahead_ns int64
runs[].mesh.hosts[].error string
runs[].mesh.hosts[].host.cpu string
runs[].mesh.hosts[].host.cpus int
runs[].mesh.hosts[].host.governor string
runs[].mesh.hosts[].host.kernel string
runs[].mesh.hosts[].host.name string
runs[].mesh.hosts[].host.os string
runs[].mesh.hosts[].host.virtual string
runs[].mesh.hosts[].name string
runs[].mesh.hosts[].within_ns int64
runs[].mesh.jain float64
runs[].mesh.median_bps float64
runs[].mesh.median_ns float64
runs[].mesh.pairs[].error string
runs[].mesh.pairs[].far bool
runs[].mesh.pairs[].from int
runs[].mesh.pairs[].goodput_bps float64
runs[].mesh.pairs[].latency_ns.hdr string
runs[].mesh.pairs[].latency_ns.max int64
runs[].mesh.pairs[].latency_ns.mean float64
runs[].mesh.pairs[].latency_ns.min int64
runs[].mesh.pairs[].latency_ns.p50 int64
runs[].mesh.pairs[].latency_ns.p90 int64
runs[].mesh.pairs[].latency_ns.p99 int64
runs[].mesh.pairs[].latency_ns.p999 int64
runs[].mesh.pairs[].latency_ns.completion bool
runs[].mesh.pairs[].latency_ns.rtt bool
runs[].mesh.pairs[].latency_ns.stddev float64
runs[].mesh.pairs[].rtx uint64
runs[].mesh.pairs[].slow bool
runs[].mesh.pairs[].to int
runs[].mesh.pairs[].wrong int64
runs[].msgs int64
runs[].msgs_lost int64
runs[].msgs_per_s float64
runs[].msgs_sent int64
runs[].name string
runs[].op string
runs[].peer_transport.acks_rx uint64
runs[].peer_transport.acks_tx uint64
runs[].peer_transport.credit_wait_ns uint64
runs[].peer_transport.credits_granted uint64
runs[].peer_transport.credits_used uint64
runs[].peer_transport.drops map[string]uint64
runs[].peer_transport.dup uint64
runs[].peer_transport.ecn_ce uint64
runs[].peer_transport.ooo uint64
runs[].peer_transport.ops_rod uint64
runs[].peer_transport.ops_rud uint64
runs[].peer_transport.ops_rudi uint64
runs[].peer_transport.ops_uud uint64
runs[].peer_transport.rdv_rx uint64
runs[].peer_transport.rdv_tx uint64
runs[].peer_transport.rtx_nack uint64
runs[].peer_transport.rtx_probe uint64
runs[].peer_transport.rtx_rto uint64
runs[].peer_transport.rtx_sack uint64
runs[].peer_transport.rx_bytes uint64
runs[].peer_transport.rx_pkts uint64
runs[].peer_transport.trimmed uint64
runs[].peer_transport.tx_bytes uint64
runs[].peer_transport.tx_pkts uint64
runs[].series[].bytes int64
runs[].series[].cwnd_bytes int64
runs[].series[].drops uint64
runs[].series[].ecn uint64
runs[].series[].msgs int64
runs[].series[].rtt_ns int64
runs[].series[].rtx uint64
runs[].series[].t_ns int64
runs[].series[].trimmed uint64
runs[].setup_ns int64
runs[].size int64
runs[].soak.episodes int64
runs[].soak.failed int64
runs[].soak.kinds map[string]int64
runs[].soak.leaking int64
runs[].soak.leaks[].bound float64
runs[].soak.leaks[].end string
runs[].soak.leaks[].growth float64
runs[].soak.leaks[].leaks bool
runs[].soak.leaks[].mean float64
runs[].soak.leaks[].samples int
runs[].soak.leaks[].slope_per_h float64
runs[].soak.leaks[].what string
runs[].soak.rounds[].command string
runs[].soak.rounds[].duration_ns int64
runs[].soak.rounds[].error string
runs[].soak.rounds[].n int64
runs[].soak.rounds[].t_ns int64
runs[].streams[].bytes int64
runs[].streams[].direction string
runs[].streams[].duration_ns int64
runs[].streams[].ecn uint64
runs[].slowest.duration_ns int64
runs[].slowest.goodput_bps float64
runs[].slowest.of int
runs[].slowest.t_ns int64
runs[].streams[].goodput_bps float64
runs[].streams[].msgs int64
runs[].streams[].rtx uint64
runs[].streams[].spurious uint64
runs[].streams[].trimmed uint64
runs[].transport.acks_rx uint64
runs[].transport.acks_tx uint64
runs[].transport.credit_wait_ns uint64
runs[].transport.credits_granted uint64
runs[].transport.credits_used uint64
runs[].transport.drops map[string]uint64
runs[].transport.dup uint64
runs[].transport.ecn_ce uint64
runs[].transport.ooo uint64
runs[].transport.ops_rod uint64
runs[].transport.ops_rud uint64
runs[].transport.ops_rudi uint64
runs[].transport.ops_uud uint64
runs[].transport.rdv_rx uint64
runs[].transport.rdv_tx uint64
runs[].transport.rtx_nack uint64
runs[].transport.rtx_probe uint64
runs[].transport.rtx_rto uint64
runs[].transport.rtx_sack uint64
runs[].transport.rx_bytes uint64
runs[].transport.rx_pkts uint64
runs[].transport.trimmed uint64
runs[].transport.tx_bytes uint64
runs[].transport.tx_pkts uint64
schema string
seed uint64
started Time
tool.commit string
tool.go string
tool.version string
verdict[].assert string
verdict[].pass bool
verdict[].size int64
verdict[].value float64
world.hosts[].name string
world.hosts[].ranks int
world.launcher string
world.ranks int
world.sealed bool
`

// walk lists the keys of t with their types.
func walk(t reflect.Type, path string, out *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		walk(t.Elem(), path+"[]", out)
	case t.Kind() == reflect.Struct && t.Name() != "Time":
		for i := range t.NumField() {
			f := t.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" {
				key = "(no key: " + f.Name + ")"
			}
			walk(f.Type, strings.TrimPrefix(path+"."+key, "."), out)
		}
	case t.Name() == "Time":
		*out = append(*out, path+" Time")
	default:
		*out = append(*out, path+" "+t.String())
	}
}

func TestSchema(t *testing.T) {
	var got []string
	walk(reflect.TypeFor[Record](), "", &got)
	sort.Strings(got)
	want := strings.Split(strings.TrimSpace(schema), "\n")
	sort.Strings(want)
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("the record has other keys than the schema says:\n%s", diff(want, got))
	}
}

func diff(want, got []string) string {
	in := func(l []string, s string) bool {
		i := sort.SearchStrings(l, s)
		return i < len(l) && l[i] == s
	}
	var b strings.Builder
	for _, s := range want {
		if !in(got, s) {
			fmt.Fprintf(&b, "- %s\n", s)
		}
	}
	for _, s := range got {
		if !in(want, s) {
			fmt.Fprintf(&b, "+ %s\n", s)
		}
	}
	return b.String()
}

func TestRecordLeavesOutWhatWasNotMeasured(t *testing.T) {
	var b bytes.Buffer
	if err := (&Record{Schema: Schema, Runs: []Run{{Size: 8}}}).Write(&b); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	run := m["runs"].([]any)[0].(map[string]any)
	for _, key := range []string{"latency_ns", "goodput_bps", "msgs_per_s", "msgs_lost", "data_check", "peer_transport", "cpu", "setup_ns", "error"} {
		if v, ok := run[key]; ok {
			t.Errorf("run has %q = %v, which nobody measured", key, v)
		}
	}
	for _, key := range []string{"peer", "path", "error"} {
		if v, ok := m[key]; ok {
			t.Errorf("record has %q = %v", key, v)
		}
	}
	if v := m["verdict"]; v == nil {
		t.Error("verdict is null, not an empty list")
	}
	zero := 0.0
	b.Reset()
	_ = (&Record{Runs: []Run{{GoodputBPS: &zero}}}).Write(&b)
	if !strings.Contains(b.String(), `"goodput_bps": 0`) {
		t.Error("a measured zero is left out")
	}
}

func TestCountersAdd(t *testing.T) {
	// Every counter is summed: reflection sets all of them to 1.
	fill := func() Counters {
		c := Counters{Drops: map[string]uint64{"crc": 1}}
		v := reflect.ValueOf(&c).Elem()
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Uint64 {
				v.Field(i).SetUint(1)
			}
		}
		return c
	}
	var sum Counters
	a, b := fill(), fill()
	sum.Add(&a)
	sum.Add(&b)
	v := reflect.ValueOf(sum)
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Uint64 && v.Field(i).Uint() != 2 {
			t.Errorf("%s is %d after adding 1 and 1", v.Type().Field(i).Name, v.Field(i).Uint())
		}
	}
	if sum.Drops["crc"] != 2 || sum.Rtx() != 8 {
		t.Errorf("drops %v, rtx %d", sum.Drops, sum.Rtx())
	}
}

// A value that was measured and is 0 is written; one that was not measured is absent.
func TestCPUOfThePeer(t *testing.T) {
	for want, c := range map[string]CPU{
		`{"user_ns":0,"sys_ns":7}`:                                  {SysNS: 7},
		`{"user_ns":0,"sys_ns":7,"peer_user_ns":0,"peer_sys_ns":9}`: {SysNS: 7, PeerSysNS: 9},
		`{"user_ns":5,"sys_ns":0,"peer_user_ns":3,"peer_sys_ns":0}`: {UserNS: 5, PeerUserNS: 3},
	} {
		b, err := json.Marshal(&Run{CPU: &c})
		if err != nil || !strings.Contains(string(b), `"cpu":`+want) {
			t.Errorf("%v: %s, want %s", err, b, want)
		}
		var back Run
		if err := json.Unmarshal(b, &back); err != nil || *back.CPU != c {
			t.Errorf("%v: %+v", err, back.CPU)
		}
	}
}

func TestWorst(t *testing.T) {
	pair := func(from, to int, bad bool) MeshPair { return MeshPair{From: from, To: to, Slow: bad} }
	two := Mesh{Hosts: make([]MeshHost, 2), Pairs: []MeshPair{pair(0, 1, true), pair(1, 0, true)}}
	if _, bad, _ := two.Worst(); bad != 0 {
		t.Error("of two hosts one is blamed")
	}
	three := Mesh{Hosts: make([]MeshHost, 3), Pairs: []MeshPair{pair(0, 1, false), pair(0, 2, true), pair(1, 2, true), pair(1, 0, false), pair(2, 0, true), pair(2, 1, false)}}
	if host, bad, of := three.Worst(); host != 2 || bad != 3 || of != 4 {
		t.Errorf("host %d, %d of %d", host, bad, of)
	}
}

func TestCompletes(t *testing.T) {
	for _, c := range []struct {
		latency *Latency
		op      string
		want    bool
	}{
		{nil, "read", false}, {&Latency{RTT: true}, "read", true}, {&Latency{RTT: true}, "tsend", false}, {&Latency{RTT: true, Completion: true}, "tsend", true},
	} {
		if got := (&Record{Config: Config{Op: c.op}}).Completes(&Run{Latency: c.latency}); got != c.want {
			t.Errorf("%s %+v: %v", c.op, c.latency, got)
		}
	}
}

func TestTrip(t *testing.T) {
	half, whole, single := &Latency{}, &Latency{RTT: true}, &Latency{RTT: true, Completion: true}
	for _, c := range []struct {
		run  Run
		op   string
		want string
	}{
		{Run{}, "tsend", ""}, {Run{Latency: half}, "tsend", "half"}, {Run{Latency: whole}, "tsend", "whole"}, {Run{Latency: single}, "tsend", "whole"},
		{Run{Latency: half}, "read", "whole"}, {Run{Latency: whole, Coll: &Coll{}}, "allreduce", "call"},
	} {
		if got := (&Record{Config: Config{Op: c.op}}).Trip(&c.run); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.op, c.run.Latency, got, c.want)
		}
	}
}
