package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each flag of the table belongs to commands that exist, once per command, and its help
// names its value.
func TestFlagTable(t *testing.T) {
	root := (&line{}).root()
	commands := []string{selfName}
	for _, c := range root.Commands() {
		commands = append(commands, c.Name())
	}
	have := map[string]bool{}
	for _, r := range (&params{}).table() {
		if !strings.Contains(r.help, r.unit) || (r.unit == "") != isSwitch(r.to) {
			t.Errorf("--%s: unit %q, help %q, value %T", r.name, r.unit, r.help, r.to)
		}
		for _, c := range strings.Fields(r.on) {
			if !slices.Contains(commands, c) {
				t.Errorf("--%s is of %q, which is no command", r.name, c)
			}
			if have[c+" --"+r.name] {
				t.Errorf("%s has --%s twice", c, r.name)
			}
			have[c+" --"+r.name] = true
		}
	}
	for _, c := range root.Commands() {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !have[c.Name()+" --"+f.Name] && f.Name != "help" && c.Name() != "help" {
				t.Errorf("--%s of %s is not in the table", f.Name, c.Name())
			}
		})
	}
}

func isSwitch(to any) bool { _, is := to.(*bool); return is }

// The flags of one command line do not change another command line or another command.
func TestFlagsStayWithTheirCommand(t *testing.T) {
	a, _ := parse([]string{"lat", "h", "-n", "5", "--mode", "rod"}, io.Discard, io.Discard)
	b, _ := parse([]string{"bw", "h"}, io.Discard, io.Discard)
	if a == nil || b == nil || a.Spec.Mode != "rod" || a.Spec.Iters != 5 || a.Spec.Warmup != 5 || a.Spec.Window != 0 ||
		b.Spec.Mode != "rud" || b.Spec.Iters != 0 || b.Spec.Window != 64 || b.Spec.Warmup != 128 {
		t.Errorf("%+v, %+v", a, b)
	}
}
