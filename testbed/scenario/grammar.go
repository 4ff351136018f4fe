package scenario

import (
	"net/netip"
	"reflect"
	"strings"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// A grammar says how the value of a key is written: an example, and what it is an example of.
type grammar struct{ example, of string }

// What times and sizes are.
const (
	times = "a time: a number with ns, us, ms, s, m or h"
	sizes = "bytes: a number, with kB, MB, GB, KiB, MiB or GiB"
)

// grammars are those of the keys whose type does not say it all, by table and key.
var grammars = map[string]grammar{
	"scenario.question":   {`"Does a stream get through 1 % loss?"`, "a sentence"},
	"scenario.expect":     {`"All arrives, at half the rate of the line."`, "a sentence"},
	"scenario.tags":       {`["ci"]`, "words of yours, and ci, long"},
	"scenario.limit":      {`"30s"`, times},
	"scenario.substrates": {`["docker", "netns"]`, "some of " + strings.Join(Substrates, ", ")},
	"scenario.security":   {`"psk"`, "one of " + strings.Join(securities, ", ")},

	"fabric.mtu": {"9000", "bytes, 576 to 65535"},

	"host.name":  {`"c"`, "a lower case letter, and up to 7 letters or digits"},
	"host.role":  {`"client"`, "server or client"},
	"host.count": {"4", "a number of hosts"},

	"line.delay":               {`"20us"`, times},
	"line.jitter":              {`"5us"`, times},
	"ecn.max":                  {`"256KiB"`, sizes},
	"line.mtu":                 {"1500", "bytes"},
	"ecn.prob":                 {"0.1", "a share of 1"},
	"trim.keep":                {"128", "bytes"},
	"classes.trimmable":        {"10", "a DSCP, 0 to 63"},
	"classes.trimmable_rtx":    {"12", "a DSCP, 0 to 63"},
	"classes.trimmed":          {"26", "a DSCP, 0 to 63"},
	"classes.trimmed_last_hop": {"28", "a DSCP, 0 to 63"},
	"classes.control":          {"46", "a DSCP, 0 to 63"},

	"rule.name":         {`"loss"`, "a word of yours"},
	"rule.loss":         {"0.02", "a share of 1: this is 2 %"},
	"rule.drop":         {"[0, 7, 8]", "numbers of packets, from 0 on"},
	"rule.first":        {"3", "a number of packets"},
	"rule.late":         {"0.5", "a share of 1"},
	"rule.reorder":      {"0.02", "a share of 1"},
	"rule.reorder_by":   {"3", "a number of packets"},
	"rule.duplicate":    {"0.02", "a share of 1"},
	"rule.copies":       {"2", "a number of copies"},
	"rule.corrupt":      {"0.02", "a share of 1"},
	"rule.corrupt_bits": {"4", "a number of bits"},
	"rule.ce":           {"0.1", "a share of 1"},
	"rule.trim":         {"0.1", "a share of 1"},

	"burst.enter": {"0.001", "a share of 1: how likely a packet begins a burst"},
	"burst.leave": {"0.2", "a share of 1: how likely a packet ends one, so bursts have 5 on average"},
	"burst.loss":  {"0.8", "a share of 1: how likely a packet of a burst is lost; 0 means 1"},

	"replay.keep": {"4096", "a number of packets"},
	"replay.rate": {"50.0", "packets a second"},

	"match.kind":     {`"data"`, "data, ack, nack, control, sealed or other; !data is all but data"},
	"match.flag":     {`"retx"`, "syn, retx or ar; !retx is without"},
	"match.src_port": {"4793", "a UDP port"},
	"match.dst_port": {"4793", "a UDP port"},
	"match.min_len":  {"1000", "bytes of the IP packet"},

	"event.at":    {`"2s"`, times},
	"event.for":   {`"500ms"`, times},
	"event.every": {`"1s"`, times},
	"event.times": {"5", "how often"},
	"event.on":    {`["s.to", "c.from"]`, "names of lines"},
	"event.clear": {`"loss"`, "the name of a rule"},

	"action.at":   {`"2s"`, times},
	"action.for":  {`"500ms"`, times},
	"action.host": {`"s"`, "the name of a host; c2 is the second of group c"},
	"action.do":   {`"pause"`, "one of " + strings.Join(actions, ", ")},

	"traffic.from":     {`"c"`, "a client, or a group of them"},
	"traffic.to":       {`"s"`, "a server"},
	"traffic.test":     {`"bw"`, "one of " + strings.Join(Tests, ", ")},
	"traffic.op":       {`"tsend"`, "one of " + strings.Join(ops, ", ")},
	"traffic.size":     {`"64K"`, "bytes, with K, M or G of 1024; \"8,64,1K\" are three, \"8:64K:*2\" is a sweep"},
	"traffic.iters":    {"10000", "a number of messages"},
	"traffic.at":       {`"1s"`, times},
	"traffic.time":     {`"4s"`, times},
	"traffic.base_rtt": {`"150us"`, times},
	"traffic.window":   {"16", "messages under way per stream"},
	"traffic.parallel": {"4", "streams"},
	"traffic.mode":     {`"rod"`, "rud (unordered) or rod (ordered)"},
	"traffic.complete": {`"delivery"`, "one of " + strings.Join(levels, ", ")},
	"traffic.paths":    {"32", "UDP source ports, 1 to 64"},
	"traffic.cc":       {`"nscc"`, "nscc"},
	"traffic.mtu":      {"2048", "payload bytes per packet: 1024, 2048, 4096 or 8192"},
	"traffic.rate":     {`"20k/s"`, "messages a second, with k, M or G"},

	"assert.expr": {`'c.goodput > 0.9 * line("s.to").rate'`, "what holds: names and numbers with < <= > >= == != + - * / && || !"},
	"assert.why":  {`"loss costs what is lost, not the window"`, "a sentence"},
	"assert.on":   {`["sim"]`, "some of " + strings.Join(Substrates, ", ")},
}

// grammarOf returns how the value of a key is written; the zero grammar for tables.
func grammarOf(table, key string, t reflect.Type) grammar {
	if g, ok := grammars[table+"."+key]; ok {
		return g
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[fabric.Duration]():
		return grammar{`"1.5ms"`, times}
	case reflect.TypeFor[fabric.Bytes]():
		return grammar{`"64KiB"`, sizes}
	case reflect.TypeFor[fabric.Rate]():
		return grammar{`"200Mbit/s"`, "a rate: a number with kbit/s, Mbit/s or Gbit/s"}
	case reflect.TypeFor[netip.Prefix]():
		return grammar{`"198.18.16.2/32"`, "addresses: a network, or one with /32"}
	}
	if t.Kind() == reflect.Bool {
		return grammar{"true", "true or false"}
	}
	return grammar{}
}

// kindOf is the kind of a value as it is written: what has quotes is a string, a list is of the kind
// of its elements.
func kindOf(t reflect.Type) reflect.Kind {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[fabric.Duration](), reflect.TypeFor[fabric.Bytes](), reflect.TypeFor[fabric.Rate](), reflect.TypeFor[netip.Prefix]():
		return reflect.String
	}
	switch k := t.Kind(); k {
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint16, reflect.Uint8:
		return reflect.Int
	default:
		return k
	}
}
