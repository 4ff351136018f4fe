package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// With auto, what cannot be prepared is passed over with one line of why; asked for by name it is
// an error.
func TestAutoGoesOn(t *testing.T) {
	sc, err := scenario.Load("clean")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, asked string
		broken      []string
		want, said  string // the substrate, and where each line goes on
		fails       bool
	}{
		{name: "all well", asked: "auto", want: "docker"},
		{name: "no image", asked: "auto", broken: []string{"docker"}, want: "netns", said: "docker: not used, but netns: no room"},
		{name: "nothing", asked: "auto", broken: []string{"docker", "netns"}, want: "sim", said: "docker: not used, but netns: no room\nnetns: not used, but the simulator: no room"},
		{name: "by name", asked: "docker", broken: []string{"docker"}, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			cfg := &config{substrate: c.asked, stderr: &said}
			prepare := func(_ context.Context, _ *lab.Registry, needed map[string]substrate.Substrate) (prepared, error) {
				for name := range needed {
					if slices.Contains(c.broken, name) {
						return prepared{}, &failure{&unprepared{name, errors.New("no room")}}
					}
				}
				return prepared{bin: "bin"}, nil
			}
			subs := labSubstrates()
			if c.asked != "auto" {
				subs = subs[:1]
			}
			on, p, err := cfg.prepareFor(t.Context(), nil, []*scenario.Scenario{sc}, subs, prepare)
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if c.fails {
				return
			}
			got := "sim"
			if on[0] != nil {
				got = on[0].Name()
			}
			if got != c.want || strings.TrimSpace(said.String()) != c.said || (p.bin == "bin") != (got != "sim") {
				t.Errorf("on %s, %+v: %s", got, p, &said)
			}
		})
	}
}
