package main

import (
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

func TestTrip(t *testing.T) {
	half, whole := &record.Latency{}, &record.Latency{RTT: true}
	for _, c := range []struct {
		run  record.Run
		op   string
		want string
	}{
		{record.Run{}, "tsend", ""}, {record.Run{Latency: half}, "tsend", "half"}, {record.Run{Latency: whole}, "tsend", "whole"},
		{record.Run{Latency: half}, "read", "whole"}, {record.Run{Latency: whole, Coll: &record.Coll{}}, "allreduce", "call"},
	} {
		if got := trip(&c.run, c.op); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.op, c.run.Latency, got, c.want)
		}
	}
}
