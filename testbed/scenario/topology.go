package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// Base is the network of the first host, unless a lab has another: host i has the
// address 198.18.(16+i).2 and the switch .1 on the same network. Addresses in scenario
// files are these; Topology moves them.
var Base = netip.MustParsePrefix("198.18.16.0/24")

// Range contains all addresses of labs (RFC 2544). Hosts have a route for it to the switch.
var Range = netip.MustParsePrefix("198.18.0.0/15")

// MaxHosts bounds the hosts of a scenario, and so the networks of a lab.
const MaxHosts = 32

// A Node is one host of the topology, after Count was expanded.
type Node struct {
	Name    string
	Role    string
	Group   string // the Host's name in the file
	Net     netip.Prefix
	Addr    netip.Addr
	Gateway netip.Addr // the switch
	From    fabric.Line
	To      fabric.Line
}

// Nodes returns the hosts, one by one, with addresses from base on.
func (s *Scenario) Nodes(base netip.Prefix) []Node {
	var nodes []Node
	for _, h := range s.Hosts {
		for k := range max(h.Count, 1) {
			n := Node{Name: h.Name, Role: h.Role, Group: h.Name, From: s.Fabric.From, To: s.Fabric.To}
			if h.Count > 0 {
				n.Name += strconv.Itoa(k + 1)
			}
			if h.From != nil {
				n.From = *h.From
			}
			if h.To != nil {
				n.To = *h.To
			}
			n.Net = Network(base, len(nodes))
			n.Gateway = n.Net.Addr().Next()
			n.Addr = n.Gateway.Next()
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// HasTCP reports whether a server takes streams of TCP.
func (s *Scenario) HasTCP(server string) bool {
	return slices.ContainsFunc(s.Traffic, func(t Traffic) bool { return t.Test == TCP && t.To == server })
}

// Network returns the n-th /24 from base on.
func Network(base netip.Prefix, n int) netip.Prefix {
	a := base.Masked().Addr().As4()
	third := int(a[1])<<8 + int(a[2]) + n
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], byte(third >> 8), byte(third), 0}), 24)
}

// Topology returns the configuration of the switch between the hosts.
func (s *Scenario) Topology(seed uint64, base netip.Prefix) fabric.Config {
	cfg := fabric.Config{Seed: seed, Spines: s.Fabric.Spines, Classes: s.Fabric.Classes, Events: slices.Clone(s.Events)}
	for _, n := range s.Nodes(base) {
		cfg.Ports = append(cfg.Ports, fabric.Port{Name: n.Name, Addrs: []netip.Prefix{n.Net}, From: moved(n.From, base), To: moved(n.To, base)})
	}
	cfg.Spines = slices.Clone(cfg.Spines)
	for i := range cfg.Spines {
		cfg.Spines[i] = moved(cfg.Spines[i], base)
	}
	for i, e := range cfg.Events {
		if e.Rule != nil {
			r := movedRule(*e.Rule, base)
			cfg.Events[i].Rule = &r
		}
		if e.Set != nil {
			l := moved(*e.Set, base)
			cfg.Events[i].Set = &l
		}
		cfg.Events[i].On = s.lines(e.On)
	}
	return cfg
}

// lines resolves the groups in the names of lines: "c.from" stands for "c1.from", …
func (s *Scenario) lines(on []string) []string {
	var out []string
	for _, name := range on {
		group, end := name, ""
		for i := range len(name) {
			if name[i] == '.' {
				group, end = name[:i], name[i:]
				break
			}
		}
		i := slices.IndexFunc(s.Hosts, func(h Host) bool { return h.Name == group && h.Count > 0 })
		if i < 0 {
			out = append(out, name)
			continue
		}
		for k := range s.Hosts[i].Count {
			out = append(out, fmt.Sprintf("%s%d%s", group, k+1, end))
		}
	}
	return out
}

// moved returns a line with the addresses in its rules moved from Base to base.
func moved(l fabric.Line, base netip.Prefix) fabric.Line {
	l.Rules = slices.Clone(l.Rules)
	for i := range l.Rules {
		l.Rules[i] = movedRule(l.Rules[i], base)
	}
	return l
}

func movedRule(r fabric.Rule, base netip.Prefix) fabric.Rule {
	r.Match.Src, r.Match.Dst = movedPrefix(r.Match.Src, base), movedPrefix(r.Match.Dst, base)
	return r
}

func movedPrefix(p netip.Prefix, base netip.Prefix) netip.Prefix {
	if !p.IsValid() || p.Bits() < 24 {
		return p
	}
	for i := range MaxHosts {
		if from := Network(Base, i); from.Contains(p.Addr()) {
			b := p.Addr().As4()
			to := Network(base, i).Addr().As4()
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{to[0], to[1], to[2], b[3]}), p.Bits())
		}
	}
	return p
}

// Of returns the traffic of one host.
func (s *Scenario) Of(n Node) []Traffic {
	var out []Traffic
	for _, t := range s.Traffic {
		if t.From == n.Name || t.From == n.Group {
			t.From = n.Name
			out = append(out, t)
		}
	}
	return out
}

// MayFail reports whether a client may end in error: whether any of its traffic may.
func (s *Scenario) MayFail(n Node) bool {
	return slices.ContainsFunc(s.Of(n), func(t Traffic) bool { return t.MayFail })
}
