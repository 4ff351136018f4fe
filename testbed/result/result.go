// Package result is the result of a run of a scenario: one result.json per run, from which
// the reports are made.
package result

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/fabric"
)

// A Verdict is how a run ended.
type Verdict string

// The verdicts. Inconclusive is a failure that a too slow machine may have caused.
// Unsupported means that the substrate or an implementation cannot run the scenario (exit
// status 127). Error means that the testbed could not run it.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
	Unsupported  Verdict = "unsupported"
	Error        Verdict = "error"
)

// A Result is one run of one scenario.
type Result struct {
	Schema    string        `json:"schema"` // "uetkit-testbed/1"
	Scenario  string        `json:"scenario"`
	Question  string        `json:"question"`
	Expect    string        `json:"expect"` // the expected outcome, in words
	Substrate string        `json:"substrate"`
	Seed      uint64        `json:"seed"`
	Command   []string      `json:"command"` // the command line that repeats the run
	Started   time.Time     `json:"started"`
	Took      time.Duration `json:"took_ns"` // whole run, up to down
	Phases    []Phase       `json:"phases"`
	Verdict   Verdict       `json:"verdict"`
	Reason    string        `json:"reason,omitempty"` // reason of a verdict other than pass, one line
	Asserts   []Assert      `json:"asserts"`
	Hosts     []Host        `json:"hosts"`
	// Topology is the switch as it was set up, Switch its counters, Series samples of them.
	Topology fabric.Config `json:"topology"`
	Switch   *fabric.Stats `json:"switch,omitempty"`
	Series   []Sample      `json:"series,omitempty"`
	// Files are the files of the switch: its log and its decisions, a JSON line each.
	Files    []string `json:"files,omitempty"`
	Timeline []Mark   `json:"timeline"` // what happened when, process faults too
	Health   Health   `json:"health"`
	// Metrics has every name that assertions may use, with its value.
	Metrics map[string]float64 `json:"metrics"`
	Machine record.Host        `json:"machine"`
}

// A Phase is a part of the run's time: build, up, run, down.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// An Assert is one evaluated assertion.
type Assert struct {
	Expr  string `json:"expr"`
	Why   string `json:"why,omitempty"` // what it is for
	Pass  bool   `json:"pass"`
	Value string `json:"value"` // the expression with what its names stood for
}

// A Host is one host of the topology with the files that it left.
type Host struct {
	Name  string `json:"name"`
	Role  string `json:"role"` // client, server
	Addr  string `json:"addr"`
	Image string `json:"image,omitempty"`
	Exit  *int   `json:"exit,omitempty"`
	// Ended is when a client ended, counted from the zero of the timeline.
	Ended   time.Duration  `json:"ended_ns,omitempty"`
	Command []string       `json:"command,omitempty"`
	Record  *record.Record `json:"record,omitempty"`
	// Logs, Captures and other files are relative to the folder of result.json.
	Files []string `json:"files,omitempty"`
	Log   string   `json:"log,omitempty"` // the last lines of its output
}

// A Sample is the switch at one moment of the run.
type Sample struct {
	At    time.Duration    `json:"at_ns"` // since the zero of the timeline
	Bytes map[string]int64 `json:"bytes"` // sent by each line so far
	Wait  map[string]int64 `json:"wait"`  // bytes waiting in each line
	Lost  map[string]int64 `json:"lost"`  // packets lost at each line so far, for whatever reason
	Trim  map[string]int64 `json:"trim"`
	Mark  map[string]int64 `json:"mark"`
}

// A Mark is one moment of the timeline.
type Mark struct {
	At   time.Duration `json:"at_ns"`
	What string        `json:"what"`
}

// Health says whether the machine was fast enough.
type Health struct {
	OK  bool     `json:"ok"`
	Why []string `json:"why,omitempty"`
	// SwitchPPS is what the switch forwards per second and core, measured on this
	// machine before the run; SwitchDrops are packets it lost itself; LateP99 is how late
	// packets left it.
	SwitchPPS   float64       `json:"switch_pps,omitempty"`
	SwitchDrops uint64        `json:"switch_drops"`
	LateP99     time.Duration `json:"late_p99_ns"`
	// Stall is the share of time in which a task waited for a processor (PSI), -1
	// if the kernel does not say.
	Stall float64 `json:"stall"`
}
