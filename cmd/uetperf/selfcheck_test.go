package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// The self-check, which new users run first, passes. The uetperf step of .ci/run checks
// that it takes less than a minute on a host of its own.
func TestSelfCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	t.Parallel() // it mostly waits: every step has a fixed time
	file := t.TempDir() + "/r.json"
	cmd := uetperf("-J", file, "--assert", "wrong==0")
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &progress, &out)
	}
	r := recordIn(t, file)
	want := steps(1)
	if !r.OK || len(r.Runs) != len(want) || r.Peer == nil || r.Path == nil {
		t.Errorf("ok %v, %d runs, want %d", r.OK, len(r.Runs), len(want))
	}
	for _, run := range r.Runs {
		if run.Name == "" || run.DataCheck == nil || run.DataCheck.OK == 0 || run.DataCheck.Wrong != 0 || run.Lost == nil || *run.Lost != 0 || run.Error != "" {
			t.Errorf("run %+v", run)
		}
		if !strings.Contains(out.String(), run.Name) || !strings.Contains(progress.String(), run.Name) {
			t.Errorf("%q is not in table or progress", run.Name)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "PASSED: all ") {
		t.Errorf("verdict %q", last)
	}
}

// The self-check has each operation, mode level and kind of endpoint, and each check can be run.
func TestSelfCheckHasAll(t *testing.T) {
	has := map[string]bool{}
	for _, st := range steps(1) {
		has[st.spec.Op], has[st.spec.Mode], has[st.spec.Complete], has[st.spec.Endpoint()] = true, true, true, true
		spec := st.spec
		if spec.Test != traffic.Soak {
			if err := spec.Validate(); err != nil {
				t.Errorf("%s: %v", st.name, err)
			}
		}
	}
	want := []string{traffic.Send, traffic.TSend, traffic.Inject, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS,
		traffic.RUD, traffic.ROD, traffic.RUDI, traffic.UUD, "inject", "transmit", "delivery", "match", traffic.RDM, traffic.MSG, traffic.Dgram}
	if perf.Durable() == nil {
		want = append(want, "commit")
	}
	for _, w := range want {
		if !has[w] {
			t.Errorf("no check of %s", w)
		}
	}
}

// The self-check finds each way in which a step can fail.
func TestSelfCheckFindsFaults(t *testing.T) {
	zero, one := int64(0), int64(1)
	good := func() row {
		return row{
			step:  &step{name: "x", spec: traffic.Spec{Test: traffic.BW}, impair: &relay.Faults{Loss: 0.01}},
			run:   record.Run{Msgs: 5, Lost: &zero, DataCheck: &record.Check{OK: 5}, Transport: record.Counters{RtxSACK: 1}},
			relay: relay.Stats{In: 100, Lost: 1},
		}
	}
	r := good()
	if r.findFaults(); r.faults != nil {
		t.Fatalf("a good row: %v", r.faults)
	}
	for want, spoil := range map[string]func(*row){
		"broken":                      func(r *row) { r.err = errors.New("broken") },
		"nothing was measured":        func(r *row) { r.run.Msgs = 0 },
		"nothing was verified":        func(r *row) { r.run.DataCheck = nil },
		"1 messages wrong":            func(r *row) { r.run.DataCheck.Wrong = 1 },
		"1 messages lost":             func(r *row) { r.run.Lost = &one },
		"did not tell":                func(r *row) { r.run.Lost = nil },
		"the relay has lost nothing":  func(r *row) { r.relay.Lost = 0 },
		"nothing was sent again":      func(r *row) { r.run.Transport.RtxSACK = 0 },
		"the relay has reordered not": func(r *row) { r.step.impair.Reorder = 0.1 },
	} {
		r := good()
		spoil(&r)
		if r.findFaults(); len(r.faults) != 1 || !strings.Contains(r.faults[0], want) {
			t.Errorf("%s: found %q", want, r.faults)
		}
		var out bytes.Buffer
		o := &outcome{cfg: &Config{}, people: &out}
		o.printRows([]row{r})
		o.verdict([]row{r}, o.finish(nil), time.Second)
		if !strings.Contains(out.String(), "FAILED: 1 of 1 checks failed") {
			t.Errorf("%s: verdict %s", want, &out)
		}
	}
}

// A step that the user or the time limit ended is no fault, but the self-check has not
// passed either.
func TestSelfCheckCutShort(t *testing.T) {
	for err, want := range map[error]string{context.Canceled: "interrupted", context.DeadlineExceeded: "cut short"} {
		r := row{step: &step{name: "x", impair: &relay.Faults{Loss: 0.01}}, err: err}
		if r.findFaults(); len(r.faults) != 0 || r.summary() != want {
			t.Errorf("%v: faults %q, summary %q", err, r.faults, r.summary())
		}
		var out bytes.Buffer
		o := &outcome{cfg: &Config{}, people: &out, json: &output{}, csv: &output{}}
		o.printRows([]row{r})
		if err := o.finish(err); o.rec.OK || err == nil {
			t.Errorf("%v is well", want)
		}
		if o.verdict([]row{r}, err, time.Second); !strings.Contains(out.String(), "│ "+want+" │") || !strings.HasSuffix(out.String(), "FAILED: the self-check ended early, in 1 check (1 s)\n") {
			t.Errorf("%s", &out)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var b bytes.Buffer
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {errSilent(1), 1}, {errors.New("x"), 1}, {&usage{errors.New("x")}, 2}, {perf.ErrUnreachable, 3},
	} {
		if got := complain(c.err, &b); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
	}
	b.Reset()
	complain(errors.New("two\nlines"), &b)
	if b.String() != "uetperf: two lines\n" {
		t.Errorf("%q", b.String())
	}
}

// The folder of keys is made where that can be done.
func TestTemporary(t *testing.T) {
	good := t.TempDir()
	got, err := temporary(filepath.Join(good, "none"), good)
	if err != nil || filepath.Dir(got) != good {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := temporary(filepath.Join(good, "none")); err == nil {
		t.Errorf("made %q in a folder that is not there", got)
	}
}
