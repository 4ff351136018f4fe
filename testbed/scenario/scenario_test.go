package scenario

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// Every embedded scenario can be read and has a README with its name.
func TestCarriedScenarios(t *testing.T) {
	names := Names()
	if len(names) < 2 {
		t.Fatalf("only %v", names)
	}
	for _, name := range names {
		s, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name != name || s.Question == "" {
			t.Errorf("%s: %+v", name, s)
		}
		readme, err := os.ReadFile(filepath.Join("..", "scenarios", name, "README.md"))
		if err != nil || !strings.HasPrefix(string(readme), "# "+name+"\n") {
			t.Errorf("%s: README.md is missing or does not begin with the name: %v", name, err)
		}
	}
}

const good = `question = "q"
expect = "e"
limit = "10s"

[fabric]
to = { rate = "1Gbit/s" }

[[fabric.spine]]
delay = "1ms"

[[host]]
name = "s"
role = "server"

[[host]]
name = "c"
role = "client"
count = 2

[[traffic]]
from = "c"
to = "s"
test = "bw"
time = "2s"

[[event]]
at = "1s"
on = ["s.to"]
down = true

[[action]]
at = "1s"
host = "s"
do = "pause"
for = "1s"

[[assert]]
expr = "c1.lost == 0"
`

func TestParse(t *testing.T) {
	s, err := Parse("x.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(s.Limit); got != 10*time.Second {
		t.Errorf("limit %v", got)
	}
	nodes := s.Nodes(Base)
	if len(nodes) != 3 || nodes[2].Name != "c2" || nodes[2].Addr.String() != "198.18.18.2" || nodes[2].Gateway.String() != "198.18.18.1" {
		t.Errorf("nodes %+v", nodes)
	}
	if len(s.Of(nodes[1])) != 1 || s.Of(nodes[1])[0].From != "c1" || len(s.Of(nodes[0])) != 0 {
		t.Errorf("traffic %+v", s.Of(nodes[1]))
	}
}

// A refusal is one line with the file, the line and the key.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"no TOML", `question = "q"`, `question = `, "x.toml:1: "},
		{"unknown key", `limit = "10s"`, `limti = "10s"`, "x.toml:3: unknown key limti: limit is meant?"},
		{"unknown key in a table", `role = "server"`, "role = \"server\"\nrolle = 1", "x.toml:14: unknown key host.rolle: role is meant?"},
		{"unknown key in an inline table", `rate = "1Gbit/s" }`, `rat = "1Gbit/s" }`, "x.toml:6: unknown key fabric.to.rat: rate is meant?"},
		{"unknown table", "[[action]]", "[[actoin]]", "unknown key actoin"},
		{"bad unit", `"1Gbit/s"`, `"1 furlong"`, "x.toml:6: fabric.to.rate: \"1 furlong\" is no rate"},
		{"wrong type", `count = 2`, `count = "two"`, `x.toml:18: host.count: "two" is no whole number, such as count = 4`},
		{"no question", `question = "q"`, ``, "question: it is missing"},
		{"no limit", `limit = "10s"`, ``, "limit: it is missing"},
		{"no server", `role = "server"`, `role = "client"`, `no [[host]] with role = "server"`},
		{"bad role", `role = "server"`, `role = "sevrer"`, `x.toml:13: host.role: "sevrer" is not one of server, client`},
		{"reserved name", "name = \"s\"\n", "name = \"min\"\n", "x.toml:12: host.name: \"min\" means something else"},
		{"bad name", "name = \"s\"\n", "name = \"S-1\"\n", "x.toml:12: host.name"},
		{"same name", `name = "c"`, `name = "s"`, "x.toml:"},
		{"too many hosts", `count = 2`, `count = 99`, "x.toml:18: host.count: that makes more than 32 hosts"},
		{"traffic from nobody", `from = "c"`, `from = "d"`, `x.toml:21: traffic.from: there is no client "d"; there are c, c1, c2`},
		{"traffic from a server", `from = "c"`, `from = "s"`, "x.toml:21: traffic.from"},
		{"traffic to nobody", `to = "s"`, `to = "t"`, `x.toml:22: traffic.to: there is no server "t"; there are s`},
		{"unknown test", `test = "bw"`, `test = "bandwidth"`, `x.toml:23: traffic.test: "bandwidth" is not one of ping, lat, bw, rate, load, soak, rr, tcp: bw is meant?`},
		{"misspelt test", `test = "bw"`, `test = "bandwith"`, "bw is meant?"},
		{"misspelt action", `do = "pause"`, `do = "pasue"`, "pause is meant?"},
		{"no action", `do = "pause"`, ``, "action.do: it is missing: one of pause"},
		{"no role", `role = "server"`, ``, "host.role: it is missing: server or client"},
		{"word of another list", `test = "bw"`, `test = "stop"`, "load, soak, rr"},
		{"time without quotes", `time = "2s"`, `time = 50ms`, `x.toml:24: time: "50ms" is meant? write it in quotes`},
		{"time in two words", `time = "2s"`, `time = 50 ms # or so`, `x.toml:24: time: "50 ms" is meant?`},
		{"rate without quotes", `"1Gbit/s"`, `1Gbit/s`, `x.toml:6: rate: "1Gbit/s" is meant? write it in quotes`},
		{"second value of a table", `"1Gbit/s"`, `"1Gbit/s", delay = 20us`, `x.toml:6: delay: "20us" is meant? write it in quotes`},
		{"size without quotes", `time = "2s"`, "time = \"2s\"\nsize = 64K", `x.toml:25: size: "64K" is meant? write it in quotes`},
		{"word without quotes", `test = "bw"`, `test = bw`, `x.toml:23: test: "bw" is meant? write it in quotes`},
		{"list without quotes", `on = ["s.to"]`, `on = [s.to]`, `on: "s.to" is meant? write it in quotes`},
		{"percent without quotes", `delay = "1ms"`, "delay = \"1ms\"\nrule = [{ loss = 2% }]", `loss: 2% is no share of 1: loss = 0.02 is meant?`},
		{"count in words", `count = 2`, `count = 2k`, `x.toml:18: count: 2k is no whole number, such as count = 4`},
		{"truth of another language", `limit = "10s"`, "limit = \"10s\"\ncapture = True", `x.toml:4: capture: True is neither true nor false`},
		{"no value at all", `time = "2s"`, `time = .5`, "x.toml:24: "},
		{"share above 1", `delay = "1ms"`, "delay = \"1ms\"\nrule = [{ loss = 2 }]", "loss: 2 is no share of 1: loss = 0.02 is meant (2 %)?"},
		{"no length", `time = "2s"`, ``, "x.toml:20: traffic: say how long"},
		{"both lengths", `time = "2s"`, "time = \"2s\"\niters = 3", "traffic.time: iters and time"},
		{"longer than the limit", `time = "2s"`, `time = "2m"`, "x.toml:24: traffic.time: it ends after the limit of 10s"},
		{"window of lat", `test = "bw"`, "test = \"lat\"\nwindow = 3", "mean nothing to it"},
		{"tcp with a size", `test = "bw"`, "test = \"tcp\"\nsize = \"64K\"", "x.toml:23: traffic.test: tcp takes from, to, at and time alone"},
		{"tcp in the simulator", `test = "bw"`, `test = "tcp"`, "x.toml:23: traffic.test: the simulator has no TCP"},
		{"idle client", `from = "c"`, `from = "c1"`, "client c2 has no [[traffic]]"},
		{"event nowhere", `on = ["s.to"]`, `on = ["z.to"]`, "x.toml:26: event: "},
		{"negative rate", `rate = "1Gbit/s"`, `rate = "-1Gbit/s"`, "x.toml:"},
		{"share in percent", `delay = "1ms"`, "delay = \"1ms\"\nrule = [{ loss = \"2%\" }]", `fabric.spine.rule.loss: "2%" is no share of 1: loss = 0.02 is meant?`},
		{"share in words", `delay = "1ms"`, "delay = \"1ms\"\nrule = [{ loss = \"some\" }]", `"some" is no number, such as loss = 0.02`},
		{"text without quotes", `time = "2s"`, "time = \"2s\"\nsize = 65536", `traffic.size: it is written in quotes: size = "65536"`},
		{"misspelt word", `limit = "10s"`, "limit = \"10s\"\nsubstrates = [\"dcoker\"]", "docker is meant?"},
		{"bad loss", `delay = "1ms"`, "delay = \"1ms\"\nrule = [{ loss = 1.5 }]", "the switch refuses it"},
		{"action on nobody", `host = "s"`, `host = "z"`, `x.toml:33: action.host: there is no host "z"; there are s, c1, c2`},
		{"endless pause", "do = \"pause\"\nfor = \"1s\"", `do = "pause"`, "x.toml:31: action.for: say how long"},
		{"restart of the living", `do = "pause"`, `do = "restart"`, "x.toml:34: action.do: s is not dead at 1s"},
		{"rekey in clear", "host = \"s\"\ndo = \"pause\"", `do = "rekey"`, `rekey changes the cluster key: it needs security = "psk"`},
		{"client killed for good", "host = \"s\"\ndo = \"pause\"", "host = \"c1\"\ndo = \"kill\"", "client c1 is killed for good: say may_fail"},
		{"misspelt metric", "c1.lost", "c1.lsot", "x.toml:38: assert.expr: \"c1.lsot == 0\": "},
		{"metric of nobody", "c1.lost == 0", "p99 < 50ms", "(p99 of whom? c1.p99 is meant, or all.p99?)"},
		{"unknown client", "c1.lost", "c3.lost", "x.toml:38: assert.expr: \"c3.lost == 0\": unknown name c3"},
		{"nothing asserted", "[[assert]]\nexpr = \"c1.lost == 0\"\n", "", "there is no [[assert]]"},
		{"unknown substrate", `limit = "10s"`, "limit = \"10s\"\nsubstrates = [\"podman\"]", `x.toml:4: substrates: "podman" is not one of docker, netns, sim`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := strings.Replace(good, tt.old, tt.new, 1)
			if src == good {
				t.Fatal("nothing was changed")
			}
			_, err := Parse("x.toml", []byte(src))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "x.toml:") {
				t.Errorf("%v; want one line with %q", err, tt.want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"claen":     "`testbed list`",
		"./nowhere": "no such file",
	} {
		if _, err := Load(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
}

func TestLoadFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(dir)
	if err != nil || s.Name != "mine" || s.Path != dir {
		t.Errorf("%+v, %v", s, err)
	}
}

// The addresses in rules and the groups in events follow the lab.
func TestTopologyMoves(t *testing.T) {
	s, err := Parse("x.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	s.Fabric.To.Rules = []fabric.Rule{{Match: fabric.Match{Src: netip.MustParsePrefix("198.18.17.2/32")}}}
	s.Events = []fabric.Event{{On: []string{"c.from", "spine.0"}}}
	base := netip.MustParsePrefix("198.18.255.0/24")
	cfg := s.Topology(7, base)
	if got := cfg.Ports[1].Addrs[0].String(); got != "198.19.0.0/24" {
		t.Errorf("c1 is in %s", got)
	}
	if got := cfg.Ports[0].To.Rules[0].Match.Src.String(); got != "198.19.0.2/32" {
		t.Errorf("the rule is about %s", got)
	}
	if got := s.Fabric.To.Rules[0].Match.Src.String(); got != "198.18.17.2/32" {
		t.Errorf("the scenario itself was changed: %s", got)
	}
	if got := strings.Join(cfg.Events[0].On, " "); got != "c1.from c2.from spine.0" {
		t.Errorf("the event is on %s", got)
	}
}
