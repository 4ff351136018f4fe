package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// fake is a substrate of goroutines. Its switch answers on the socket, its hosts do what
// the test says.
type fake struct {
	t *testing.T
	// client acts for a client in each of its lives, from its start on, and returns its exit
	// status. gone is closed when it is killed or the lab goes down.
	client func(life int, out string, gone <-chan struct{}) int
	server int // exit status of the server when it is stopped
	upErr  error
	noSeen bool // the switch never sees a packet
	late   time.Duration
	deaf   string // a host that never becomes ready

	mu    sync.Mutex
	did   []string
	downs int
	exits chan substrate.Exit
	lives map[string]int
	lazy  time.Duration // how long it takes to begin a pause
	gone  map[string]chan struct{}
	began time.Time
	wg    sync.WaitGroup
	spec  *substrate.Spec
	ln    net.Listener
}

func (f *fake) Name() string                                     { return "fake" }
func (f *fake) Available(context.Context) error                  { return nil }
func (f *fake) Prepare(context.Context, string, io.Writer) error { return nil }
func (f *fake) Exits() <-chan substrate.Exit                     { return f.exits }
func (f *fake) Shell(host string) string                         { return host }
func (f *fake) Log(_ context.Context, host string, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s says\n", host)
	return err
}
func (f *fake) Leftovers(context.Context, string, func(string) bool) ([]string, error) {
	return nil, nil
}

func (f *fake) Up(_ context.Context, s *substrate.Spec) (substrate.Lab, error) {
	if f.upErr != nil {
		return nil, f.upErr
	}
	f.spec, f.exits, f.lives, f.gone = s, make(chan substrate.Exit, 16), map[string]int{}, map[string]chan struct{}{}
	l, err := net.Listen("unix", filepath.Join(s.Out, substrate.Socket))
	if err != nil {
		return nil, err
	}
	f.ln = l
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/series", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") })
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		var st SwitchStats
		f.mu.Lock()
		if !f.began.IsZero() && !f.noSeen {
			started := fabric.Duration(time.Second)
			st.Fabric.Started, st.Fabric.Now = &started, started+fabric.Duration(time.Since(f.began))
		}
		f.mu.Unlock()
		st.Fabric.Lines = map[string]fabric.LineStats{}
		st.Fabric.Whys = map[string]uint64{"lost_random": 3}
		st.Health.LateP99 = f.late
		_ = json.NewEncoder(w).Encode(st)
	})
	srv := &http.Server{Handler: mux}
	f.wg.Go(func() { _ = srv.Serve(l) })
	f.t.Cleanup(func() { _ = srv.Close(); f.wg.Wait() })
	for _, h := range s.Hosts {
		f.start(h)
	}
	return f, nil
}

func (f *fake) start(h substrate.Host) {
	f.mu.Lock()
	f.lives[h.Name]++
	life, gone := f.lives[h.Name], make(chan struct{})
	f.gone[h.Name] = gone
	f.mu.Unlock()
	if h.Name != f.deaf {
		_ = os.WriteFile(filepath.Join(h.Out, agent.Ready), nil, 0o644)
	}
	if h.Role != "client" {
		return
	}
	f.wg.Go(func() {
		for {
			if _, err := os.Stat(filepath.Join(h.Out, agent.Go)); err == nil {
				break
			}
			select {
			case <-gone:
				return
			case <-time.After(time.Millisecond):
			}
		}
		f.mu.Lock()
		if f.began.IsZero() {
			f.began = time.Now()
		}
		f.mu.Unlock()
		code := f.client(life, h.Out, gone)
		select {
		case <-gone: // the code that killed it reports the exit
		default:
			f.exits <- substrate.Exit{Host: h.Name, Code: code, At: time.Now()}
		}
	})
}

func (f *fake) Do(_ context.Context, host string, a substrate.Action) error {
	f.mu.Lock()
	f.did = append(f.did, string(a)+" "+host)
	gone := f.gone[host]
	f.mu.Unlock()
	switch a {
	case substrate.Pause:
		time.Sleep(f.lazy)
	case substrate.Kill:
		close(gone)
		f.exits <- substrate.Exit{Host: host, Code: 137, At: time.Now()}
	case substrate.Start:
		f.start(f.spec.Hosts[slices.IndexFunc(f.spec.Hosts, func(h substrate.Host) bool { return h.Name == host })])
	case substrate.Stop:
		code := 0
		if host != substrate.SwitchName {
			code = f.server
		}
		f.exits <- substrate.Exit{Host: host, Code: code, At: time.Now()}
	}
	return nil
}

func (f *fake) Down(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.downs++
	for _, g := range f.gone {
		select {
		case <-g:
		default:
			close(g)
		}
	}
	return nil
}

// leave writes a record of n messages, of which lost were lost.
func leave(t *testing.T, out string, n, lost int64) {
	t.Helper()
	goodput := 1e6
	r := record.Record{Schema: record.Schema, OK: true, Runs: []record.Run{{Msgs: n, Bytes: n, DurationNS: 1e9, GoodputBPS: &goodput, Lost: &lost, DataCheck: &record.Check{OK: n}}}}
	data, err := json.Marshal(&r)
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "0.json"), data, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

const base = `question = "q"
expect = "e"
limit = "20s"
[[host]]
name = "s"
role = "server"
[[host]]
name = "c"
role = "client"
`

const flow = `
[[traffic]]
from = "c"
to = "s"
test = "bw"
iters = 10
`

const holds = `
[[assert]]
expr = "c.msgs == 10"
`

func parse(t *testing.T, src string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("test.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	sc.Name = "test"
	return sc
}

// options returns the options for a run on f.
func options(t *testing.T, f *fake) Options {
	t.Helper()
	f.t = t
	reg, err := lab.Open("test", scenario.Base, shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	return Options{Substrate: f, Registry: reg, Seed: 1, Out: t.TempDir(), Say: t.Logf}
}

// shortDir returns a folder whose path leaves room for that of a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// done is a client that completes its work at once.
func done(t *testing.T) func(int, string, <-chan struct{}) int {
	return func(_ int, out string, _ <-chan struct{}) int { leave(t, out, 10, 0); return 0 }
}

func TestPass(t *testing.T) {
	f := &fake{client: done(t)}
	o := options(t, f)
	r := Scenario(t.Context(), parse(t, base+flow+holds), o)
	if r.Verdict != result.Pass || f.downs != 1 {
		t.Fatalf("%s: %s, %d downs", r.Verdict, r.Reason, f.downs)
	}
	if got := strings.Join(f.did, ", "); got != "stop s, stop switch" {
		t.Errorf("did %s", got)
	}
	if r.Metrics["c.msgs"] != 10 || r.Metrics["net.lost_random"] != 3 || len(r.Asserts) != 1 || !r.Asserts[0].Pass || r.Asserts[0].Value != "c.msgs = 10" {
		t.Errorf("%+v %v", r.Asserts, r.Metrics)
	}
	data, err := os.ReadFile(filepath.Join(o.Out, "test-fake", "result.json"))
	if err != nil || !strings.Contains(string(data), `"verdict": "pass"`) {
		t.Errorf("result.json: %v", err)
	}
	for _, file := range []string{"c.log", "c/0.json", "s.log", "switch.log", "switch/config.json"} {
		if _, err := os.Stat(filepath.Join(o.Out, "test-fake", file)); err != nil {
			t.Error(err)
		}
	}
	if labs := o.Registry.List(); len(labs) != 0 {
		t.Errorf("left %+v", labs)
	}
}

// The verdict and its reason follow from what went wrong.
func TestVerdicts(t *testing.T) {
	timing := strings.Replace(holds, "expr", "timing = true\nexpr", 1)
	for _, tt := range []struct {
		name string
		src  string
		f    *fake
		want result.Verdict
		why  string
	}{
		{"assert", flow + strings.Replace(holds, "10", "11", 1), &fake{}, result.Fail, "c.msgs == 11 (c.msgs = 10)"},
		{"client fails", flow + holds, &fake{client: func(int, string, <-chan struct{}) int { return 1 }}, result.Fail, "client c ended with exit status 1"},
		{"client says unsupported", flow + holds, &fake{client: func(int, string, <-chan struct{}) int { return 127 }}, result.Unsupported, "c: exit status 127"},
		{"no record", flow + holds, &fake{client: func(int, string, <-chan struct{}) int { return 0 }}, result.Fail, "left no record"},
		{"messages lost", flow + holds, &fake{client: func(_ int, out string, _ <-chan struct{}) int { leave(t, out, 10, 2); return 0 }}, result.Fail, "client c has 2 messages lost"},
		{"server fails", flow + holds, &fake{server: 2}, result.Fail, "server s ended with exit status 2"},
		{"up fails", flow + holds, &fake{upErr: errors.New("no room")}, result.Error, "up: no room"},
		{"late, but no question of time", flow + strings.Replace(holds, "10", "11", 1), &fake{late: time.Second}, result.Fail, "c.msgs == 11"},
		{"late", flow + strings.Replace(timing, "10", "11", 1), &fake{late: time.Second}, result.Inconclusive, "packets left the switch up to 1s late"},
		{"late and passed", flow + timing, &fake{late: time.Second}, result.Pass, ""},
		{"late client", flow + holds, &fake{late: time.Second, client: func(_ int, out string, _ <-chan struct{}) int { leave(t, out, 10, 0); return agent.ExitLimit }}, result.Inconclusive, "did not end within"},
		{"late client, messages on the way", flow + strings.Replace(holds, "c.msgs == 10", "c.lost == 0", 1), &fake{late: time.Second, client: func(_ int, out string, _ <-chan struct{}) int { leave(t, out, 10, 2); return agent.ExitLimit }}, result.Inconclusive, "did not end within"},
		{"slow client", flow + holds, &fake{client: func(_ int, out string, _ <-chan struct{}) int { leave(t, out, 10, 0); return agent.ExitLimit }}, result.Fail, "did not end within"},
		{"may fail", strings.Replace(flow, "iters", "may_fail = true\niters", 1) + strings.Replace(holds, "c.msgs == 10", "c.error == 1", 1), &fake{client: func(int, string, <-chan struct{}) int { return 1 }}, result.Pass, ""},
		{"other substrate", flow + holds + "on = [\"sim\"]\n" + strings.Replace(holds, "10", "11", 1) + "on = [\"netns\"]\n", &fake{}, result.Pass, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.f
			if f.client == nil {
				f.client = done(t)
			}
			r := Scenario(t.Context(), parse(t, base+tt.src), options(t, f))
			if r.Verdict != tt.want || !strings.Contains(r.Reason, tt.why) {
				// A stall of this machine must not affect the test.
				if r.Verdict == result.Inconclusive && strings.Contains(r.Reason, "waited for a processor") {
					t.Skip("this machine stalls: " + r.Reason)
				}
				t.Errorf("%s: %s; want %s: %s", r.Verdict, r.Reason, tt.want, tt.why)
			}
			if tt.f.upErr == nil && f.downs != 1 {
				t.Errorf("down %d times", f.downs)
			}
		})
	}
}

func TestUnsupportedSubstrate(t *testing.T) {
	f := &fake{client: done(t)}
	r := Scenario(t.Context(), parse(t, "substrates = [\"sim\"]\n"+base+flow+holds), options(t, f))
	if r.Verdict != result.Unsupported || !strings.Contains(r.Reason, "for sim only") {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// Actions happen in the order of their times, which count from the first packet.
func TestTimeline(t *testing.T) {
	f := &fake{client: func(life int, out string, gone <-chan struct{}) int {
		if life == 1 {
			<-gone
		}
		leave(t, out, 10, 0)
		return 0
	}}
	src := base + strings.Replace(flow, "iters", "may_fail = true\niters", 1) + holds + `
[[action]]
at = "600ms"
host = "c"
do = "restart"
[[action]]
at = "400ms"
host = "c"
do = "kill"
[[action]]
at = "100ms"
for = "50ms"
host = "s"
do = "pause"
[[event]]
at = "1ms"
for = "1ms"
every = "2ms"
times = 2
on = ["s.to"]
down = true
`
	r := Scenario(t.Context(), parse(t, src), options(t, f))
	if r.Verdict != result.Pass {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	if got, want := strings.Join(f.did, ", "), "pause s, resume s, kill c, start c, stop s, stop switch"; got != want {
		t.Errorf("did %s, want %s", got, want)
	}
	var marks []string
	for i, m := range r.Timeline {
		marks = append(marks, m.What)
		if i > 0 && m.At < r.Timeline[i-1].At {
			t.Errorf("%q is at %v, after %v", m.What, m.At, r.Timeline[i-1].At)
		}
	}
	want := []string{
		"first packet", "s.to: down for 1ms", "s.to: down for 1ms", "s is paused", "s goes on", "c is killed", "c ended with exit status 137", "c is started again",
		"c ended with exit status 0",
	}
	if !slices.Equal(marks, want) {
		t.Errorf("marks\n%s\nwant\n%s", strings.Join(marks, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range r.Timeline {
		if m.What == "c is killed" && m.At < 400*time.Millisecond {
			t.Errorf("killed at %v, before its time", m.At)
		}
	}
}

// A pause is as long as the scenario says, even if it begins late.
func TestPauseLasts(t *testing.T) {
	over := make(chan struct{})
	f := &fake{lazy: 300 * time.Millisecond}
	f.client = func(_ int, out string, _ <-chan struct{}) int { <-over; leave(t, out, 10, 0); return 0 }
	o := options(t, f)
	o.Say = func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), "goes on") {
			close(over)
		}
	}
	r := Scenario(t.Context(), parse(t, base+flow+holds+"[[action]]\nat = \"1ms\"\nfor = \"100ms\"\nhost = \"s\"\ndo = \"pause\"\n"), o)
	at := map[string]time.Duration{}
	for _, m := range r.Timeline {
		at[m.What] = m.At
	}
	if d := at["s goes on"] - at["s is paused"]; d < 99*time.Millisecond || at["s is paused"] < f.lazy {
		t.Errorf("paused at %v for %v", at["s is paused"], d)
	}
}

// Actions that are due after the clients' end are not done, and the timeline says so.
func TestTimelineTooLate(t *testing.T) {
	f := &fake{client: done(t)}
	r := Scenario(t.Context(), parse(t, base+flow+holds+"[[action]]\nat = \"15s\"\nfor = \"1s\"\nhost = \"s\"\ndo = \"pause\"\n"), options(t, f))
	if r.Verdict != result.Pass || strings.Contains(strings.Join(f.did, " "), "pause") {
		t.Errorf("%s: %s; did %v", r.Verdict, r.Reason, f.did)
	}
	if last := r.Timeline[len(r.Timeline)-1].What; !strings.Contains(last, "not done") {
		t.Errorf("the last mark is %q", last)
	}
}

// An interrupt takes the lab down.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{client: func(_ int, _ string, gone <-chan struct{}) int { cancel(); <-gone; return 1 }}
	o := options(t, f)
	r := Scenario(ctx, parse(t, base+flow+holds), o)
	if r.Verdict != result.Error || r.Reason != "interrupted" || f.downs != 1 || len(o.Registry.List()) != 0 {
		t.Errorf("%s: %s, %d downs", r.Verdict, r.Reason, f.downs)
	}
}

func TestKeep(t *testing.T) {
	f := &fake{client: done(t)}
	o := options(t, f)
	o.Keep = true
	r := Scenario(t.Context(), parse(t, base+flow+holds), o)
	if r.Verdict != result.Pass || f.downs != 0 {
		t.Errorf("%s: %s, %d downs", r.Verdict, r.Reason, f.downs)
	}
	labs := o.Registry.List()
	if len(labs) != 1 || !labs[0].Kept || labs[0].Scenario != "test" {
		t.Errorf("labs %+v", labs)
	}
	if len(f.did) != 0 {
		t.Errorf("did %v to a lab that is kept", f.did)
	}
}

// If the switch ends, the verdict is an error with the last words of the switch.
func TestSwitchEnds(t *testing.T) {
	f := &fake{}
	f.client = func(_ int, _ string, gone <-chan struct{}) int {
		f.exits <- substrate.Exit{Host: substrate.SwitchName, Code: 1, At: time.Now()}
		<-gone
		return 1
	}
	r := Scenario(t.Context(), parse(t, base+flow+holds), options(t, f))
	if r.Verdict != result.Error || !strings.Contains(r.Reason, "the switch ended with exit status 1: switch says") || f.downs != 1 {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// Several records of a client become one.
func TestRecordsJoined(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{
		`{"schema":"uetperf/1","config":{"test":"bw","op":"tsend"},"ok":true,"runs":[{"msgs":1}]}`, `{`,
		`{"schema":"uetperf/1","config":{"test":"lat"},"ok":true,"error":"late","runs":[{"msgs":2},{"name":"x","msgs":3}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := records(dir)
	if r == nil || len(r.Runs) != 3 || r.OK || !strings.Contains(r.Error, "1.json is no record") {
		t.Fatalf("%+v", r)
	}
	if r.Runs[0].Name != "bw tsend" || r.Runs[1].Name != "lat" || r.Runs[2].Name != "x" {
		t.Errorf("names %q %q %q", r.Runs[0].Name, r.Runs[1].Name, r.Runs[2].Name)
	}
	if records(t.TempDir()) != nil {
		t.Error("a record of nothing")
	}
}

// If hosts and switch share processors, a failed assertion about time is inconclusive. One
// about data is not.
func TestCrowded(t *testing.T) {
	sc := parse(t, base+flow+strings.Replace(strings.Replace(holds, "10", "11", 1), "expr", "timing = true\nexpr", 1))
	for _, tt := range []struct {
		sub  string
		cpus int
		want result.Verdict
	}{{"netns", 2, result.Inconclusive}, {"netns", 3, result.Fail}, {"sim", 1, result.Fail}} {
		for _, timing := range []bool{true, false} {
			want := tt.want
			if sc.Asserts[0].Timing = timing; !timing {
				want = result.Fail
			}
			r := &result.Result{Substrate: tt.sub, Hosts: []result.Host{{Name: "s", Role: "server"}, {Name: "c", Role: "client", Exit: new(int), Record: &record.Record{}}}}
			r.Machine.CPUs = tt.cpus
			if Evaluate(sc, r, 1, nil); r.Verdict != want {
				t.Errorf("%s, %d processors, timing %v: %s, %s", tt.sub, tt.cpus, timing, r.Verdict, r.Reason)
			}
		}
	}
}
