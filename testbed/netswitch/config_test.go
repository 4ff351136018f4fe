package netswitch

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/fabric"
)

func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switch.json")
	read := func(s string) (Config, error) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadConfig(path)
	}
	c, err := read(`{"fabric":{"seed":5,"ports":[{"name":"h1","addrs":["198.18.100.0/24"],"to":{"rate":"1Gbit/s","delay":"1ms"}}]},"interfaces":{"h1":"eth1"}}`)
	if err != nil || c.Fabric.Seed != 5 || c.Interfaces["h1"] != "eth1" || c.Fabric.Ports[0].To.Rate != 1e9 {
		t.Errorf("%+v %v", c, err)
	}
	for in, want := range map[string]string{
		`{"fabric":{"prts":[]}}`: `unknown field "prts"`,
		"{\n\n]":                 "line 3 is no JSON",
		`{"fabric":`:             "ends in the middle",
		``:                       "ends in the middle",
		`{} {}`:                  "more follows",
		`{"fabric":{"ports":[{"to":{"rate":"fast"}}]}}`: "fast",
		`{"fabric":{"ports":[{"addrs":["198.18"]}]}}`:   "198.18",
	} {
		if _, err := read(in); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", in, err)
		}
	}
	if _, err := ReadConfig(path + "x"); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("no file: %v", err)
	}
}

func TestChooseInterfaces(t *testing.T) {
	ifaces := []*netInterface{
		{name: "eth0", addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.2/16")}},
		{name: "eth1", addrs: []netip.Prefix{netip.MustParsePrefix("198.18.101.1/24")}},
		{name: "eth2", addrs: []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("198.18.100.1/24")}},
	}
	ports := []fabric.Port{
		{Name: "a", Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.100.0/24")}},
		{Name: "b", Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.101.0/24")}},
	}
	got, err := chooseInterfaces(&Config{Fabric: fabric.Config{Ports: ports}}, ifaces)
	if err != nil || got[0].name != "eth2" || got[1].name != "eth1" {
		t.Errorf("by address: %v %v", got, err)
	}
	got, err = chooseInterfaces(&Config{Fabric: fabric.Config{Ports: ports}, Interfaces: map[string]string{"a": "eth0"}}, ifaces)
	if err != nil || got[0].name != "eth0" || got[1].name != "eth1" {
		t.Errorf("by name: %v %v", got, err)
	}
}
