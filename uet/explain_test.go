package uet

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// whole fails unless each reason has a Why and a Mend.
func whole(t *testing.T, list []Reason) {
	t.Helper()
	for _, r := range list {
		if r.Field == "" || r.Why == "" || r.Mend == "" || strings.HasSuffix(r.Why, ".") || strings.Contains(r.String(), "%!") {
			t.Errorf("not a whole reason: %+v", r)
		}
	}
}

func refusesAll(list []Reason) bool {
	return slices.ContainsFunc(list, func(r Reason) bool { return r.Interface == "" })
}

func TestExplainSaysWhatIsAtFault(t *testing.T) {
	for name, h := range refusedHints {
		t.Run(name, func(t *testing.T) {
			list := Explain(&h.Info)
			whole(t, list)
			if !refusesAll(list) {
				t.Errorf("GetInfo refuses, Explain does not: %v", list)
			}
			if !slices.ContainsFunc(list, func(r Reason) bool { return r.Field == h.field }) {
				t.Errorf("%s is not named: %v", h.field, list)
			}
		})
	}
}

// Explain and GetInfo agree about every pair of hints, whether they are refused or not.
func TestExplainAgreesWithGetInfo(t *testing.T) {
	all := []Info{{}, {Caps: fi.Msg}, {Ep: EpAttr{Type: fi.EpMsg}}, {AddrFormat: fi.FormatSockaddr4}, {Config: Config{PayloadMTU: 1024}},
		{Config: Config{PayloadMTU: 8192}}, {Domain: DomainAttr{Name: "lo"}}, {SrcAddr: wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:0"))},
		{DestAddr: wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:1"))}, {Tx: TxAttr{InjectSize: 8192}}, {Tx: TxAttr{InjectSize: 8193}}}
	for _, h := range refusedHints {
		all = append(all, h.Info)
	}
	served := 0
	for i := range all {
		infos, err := GetInfo("", "", 0, &all[i])
		list := Explain(&all[i])
		whole(t, list)
		if err == nil {
			served++
		}
		if (err == nil) == refusesAll(list) || (err == nil) != (len(infos) > 0) || err != nil && !errors.Is(err, fi.ENODATA) {
			t.Errorf("%+v: GetInfo %d entries, %v; Explain %v", all[i], len(infos), err, list)
		}
		for _, in := range infos {
			if slices.ContainsFunc(list, func(r Reason) bool { return r.Interface == in.Domain.Name }) {
				t.Errorf("%+v: %s is offered and refused: %v", all[i], in.Domain.Name, list)
			}
		}
	}
	if served < 5 {
		t.Errorf("only %d hints were served", served)
	}
}

func TestExplainInterfaces(t *testing.T) {
	hints, tmpl := &Info{}, match(&Info{}, &reasons{})
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for name, c := range map[string]struct {
		iface netInterface
		hints *Info
		want  string // field and what is available
	}{
		"down":          {netInterface{name: "x", down: true}, hints, "Domain down"},
		"no address":    {netInterface{name: "x"}, hints, "Domain no address"},
		"error":         {netInterface{name: "x", err: os.ErrNotExist}, hints, "Domain file does not exist"},
		"good":          {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4}}, hints, ""},
		"other name":    {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4}}, &Info{Domain: DomainAttr{Name: "y"}}, "Domain.Name x"},
		"small mtu":     {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4}}, &Info{Config: Config{PayloadMTU: 4096}}, "Config.PayloadMTU 1024 with an MTU of 1500"},
		"injects":       {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4}}, &Info{Tx: TxAttr{InjectSize: 2000}}, "Tx.InjectSize 1024"},
		"family":        {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4}}, &Info{AddrFormat: fi.FormatSockaddr6}, "AddrFormat 192.0.2.1"},
		"two, one good": {netInterface{name: "x", mtu: 1500, addrs: []netip.Addr{v4, v6}}, &Info{AddrFormat: fi.FormatSockaddr6}, "AddrFormat 192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			var why reasons
			tmpl := *tmpl
			tmpl.Config = c.hints.Config
			if c.iface.asked(c.hints, &why) {
				for _, ip := range c.iface.addrs {
					c.iface.way(&tmpl, c.hints, ip, wire.Addr{}, wire.Addr{}, netip.Addr{}, &why)
				}
			}
			whole(t, why.list)
			got := ""
			for _, r := range why.list {
				if r.Interface != "x" {
					t.Errorf("of %q", r.Interface)
				}
				got += r.Field + " " + r.Have
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Tests exercise every refusal in getinfo.go.
func TestExplainEveryRefusalIsWalked(t *testing.T) {
	src, err := os.ReadFile("getinfo.go")
	if err != nil {
		t.Fatal(err)
	}
	walked := map[string]bool{"Ep.MaxOrder": true, "Config.PayloadMTU": true} // TestExplainInterfaces, and one of three
	for _, h := range refusedHints {
		walked[h.field] = true
	}
	walked["Domain"] = true // TestExplainInterfaces
	calls := regexp.MustCompile(`(?:why\.[a-zA-Z0]+|refuse)\((?:l\.name, )?"([A-Za-z.]+)"`).FindAllStringSubmatch(string(src), -1)
	if len(calls) < 50 {
		t.Fatalf("only %d refusals found", len(calls))
	}
	for _, c := range calls {
		if !walked[c[1]] {
			t.Errorf("no hints of a test are refused for %s", c[1])
		}
	}
}

// The error of GetInfo says which hint cannot be met, and at which interface.
func TestInfoErrorSaysWhy(t *testing.T) {
	for _, c := range []struct {
		hints      *Info
		node       string
		says, lies string
	}{
		{&Info{Caps: fi.HMEM}, "", "Caps HMEM: a user-space UDP transport", "no interface"},
		{&Info{Domain: DomainAttr{Name: "nosuch0"}}, "", "Domain.Name nosuch0 (there is ", "no interface serves"},
		{&Info{SrcAddr: wire.Addr{IP: netip.MustParseAddr("192.0.2.1")}}, "", "lo: SrcAddr 192.0.2.1 (there is ", "no interface serves"},
		{&Info{Config: Config{Security: &Security{}}}, "", "Config.Security a zero Security", "interface"},
		{&Info{Caps: fi.HMEM}, "127.0.0.1", "Caps HMEM", "interface"},
	} {
		_, err := GetInfo(c.node, "", 0, c.hints)
		var e *InfoError
		if !errors.Is(err, fi.ENODATA) || !errors.As(err, &e) {
			t.Errorf("%v", err)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.lies) {
			t.Errorf("%q: %v", c.says, err)
		}
		if c.node == "" && !slices.Equal(e.Reasons, Explain(c.hints)) {
			t.Errorf("other reasons than Explain's: %v", e.Reasons)
		}
	}
	for _, c := range []struct{ node, service, says string }{
		{"127.0.0.1:4793", "", `say node "127.0.0.1", service "4793"`},
		{"127.0.0.1", "nosuchservice", `service "nosuchservice"`},
		{"no host", "", `node "no host"`},
	} {
		if _, err := GetInfo(c.node, c.service, 0, nil); !errors.Is(err, fi.ENODATA) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, %q: %v", c.node, c.service, err)
		}
	}
}
