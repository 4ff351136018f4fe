package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/spelling"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/metrics"
)

// TCP is the test that is none of uetperf: a stream of the kernel's TCP with cubic, which real hosts alone have.
const TCP = "tcp"

// The words that a scenario may use.
var (
	Tests      = []string{"ping", "lat", "bw", "rate", "load", "soak", "rr", TCP}
	Substrates = []string{"docker", "netns", "sim"}
	roles      = []string{"server", "client"}
	ops        = []string{"send", "tsend", "inject"}
	actions    = []string{"pause", "kill", "restart", "rekey"}
	securities = []string{"off", "psk", "tls"}
	modes      = []string{"rud", "rod"}
	levels     = []string{"inject", "transmit", "delivery"}
)

var hostName = regexp.MustCompile(`^[a-z][a-z0-9]{0,7}$`)

// A fault is an error at a key of the n-th table of a name.
type fault struct {
	table string
	n     int
	key   string
	err   error
}

// check returns the first fault as an error with file and line.
func (s *Scenario) check(l *locator) error {
	f := s.faults()
	if f == nil {
		return nil
	}
	where := f.key
	if f.table != "" {
		where = f.table
		if f.key != "" {
			where += "." + f.key
		}
	}
	if where != "" {
		where += ": "
	}
	return fmt.Errorf("%s:%d: %s%s", l.file, l.at(f.table, f.n, f.key), where, oneLine(f.err.Error()))
}

// unknownName matches what an expression says of a name that it does not have.
var unknownName = regexp.MustCompile(`unknown name ([a-z0-9]+)`)

// whose adds to an error about an unknown name that is a metric that it needs a client.
func whose(err error, clients []string) error {
	m := unknownName.FindStringSubmatch(err.Error())
	if m == nil || len(clients) == 0 {
		return err
	}
	if _, ok := assert.Lookup(m[1]); !ok {
		return err
	}
	return fmt.Errorf("%w (%s of whom? %s.%s is meant, or all.%s?)", err, m[1], clients[0], m[1], m[1])
}

// oneOf returns a fault for a value that is not in the list.
func oneOf(v string, among []string) error {
	if v == "" || slices.Contains(among, v) {
		return nil
	}
	how := strings.Join(among, ", ")
	if c := meantBy(v, among); c != "" {
		how += ": " + c + " is meant?"
	}
	return fmt.Errorf("%q is not one of %s", v, how)
}

// longWords are words that people write for one of ours.
var longWords = map[string]string{
	"bandwidth": "bw", "throughput": "bw", "latency": "lat", "pingpong": "lat", "request": "rr", "transactions": "rr",
	"container": "docker", "namespace": "netns", "simulator": "sim", "tagged": "tsend", "ordered": "rod", "unordered": "rud",
	"stop": "pause", "crash": "kill", "start": "restart", "clear": "off", "none": "off",
}

// meantBy returns the word of the list that is meant by v, "" if that is not known.
func meantBy(v string, among []string) string {
	v = strings.ToLower(v)
	if slices.Contains(among, v) {
		return v
	}
	known := slices.Clone(among)
	for long, word := range longWords {
		if slices.Contains(among, word) {
			known = append(known, long)
		}
	}
	slices.Sort(known)
	c := spelling.Closest(v, known, max(min(3, len(v)), len(v)/2))
	if word := longWords[c]; slices.Contains(among, word) {
		return word
	}
	return c
}

// faults returns the first fault, or nil.
func (s *Scenario) faults() *fault {
	top := func(key, format string, args ...any) *fault {
		return &fault{key: key, err: fmt.Errorf(format, args...)}
	}
	switch {
	case s.Question == "":
		return top("question", "it is missing: say in a sentence what the scenario answers")
	case s.Expect == "":
		return top("expect", "it is missing: say in a sentence what should come out")
	case s.Limit <= 0:
		return top("limit", "it is missing or not more than 0: say how long the run may take, such as \"30s\"")
	case len(s.Asserts) == 0:
		return top("", "there is no [[assert]]: nothing could go wrong")
	}
	if err := oneOf(s.Security, securities); err != nil {
		return &fault{key: "security", err: err}
	}
	for _, sub := range s.Substrates {
		if err := oneOf(sub, Substrates); err != nil {
			return &fault{key: "substrates", err: err}
		}
	}
	if m := s.Fabric.MTU; m != 0 && (m < 576 || m > 65535) {
		return &fault{table: "fabric", key: "mtu", err: fmt.Errorf("%d bytes is not 576 to 65535", m)}
	}
	for _, f := range []func() *fault{s.hostFaults, s.trafficFaults, s.actionFaults, s.fabricFaults, s.assertFaults} {
		if f := f(); f != nil {
			return f
		}
	}
	return nil
}

func (s *Scenario) hostFaults() *fault {
	seen := map[string]bool{}
	var clients, servers int
	for i, h := range s.Hosts {
		bad := func(key, format string, args ...any) *fault {
			return &fault{"host", i, key, fmt.Errorf(format, args...)}
		}
		switch {
		case !hostName.MatchString(h.Name):
			return bad("name", "%q is not a lower case letter and up to 7 letters or digits, as it must be to stand in assertions and interface names", h.Name)
		case slices.Contains(metrics.Reserved, h.Name):
			return bad("name", "%q means something else in assertions: take another", h.Name)
		case h.Role != "server" && h.Role != "client":
			return bad("role", "%w", cmp.Or(oneOf(h.Role, roles), errors.New("it is missing: server or client")))
		case h.Count < 0:
			return bad("count", "%d is negative", h.Count)
		}
		if h.Role == "client" {
			clients += max(h.Count, 1)
		} else {
			servers += max(h.Count, 1)
		}
		if clients+servers > MaxHosts {
			return bad("count", "that makes more than %d hosts", MaxHosts)
		}
		for _, n := range (&Scenario{Hosts: []Host{h}}).Nodes(Base) {
			if seen[n.Name] {
				return bad("name", "a second host %q", n.Name)
			}
			seen[n.Name] = true
		}
		if h.Count > 0 && seen[h.Name] {
			return bad("name", "%q is a host and a group", h.Name)
		}
	}
	switch {
	case servers == 0:
		return &fault{err: errors.New("there is no [[host]] with role = \"server\"")}
	case clients == 0:
		return &fault{err: errors.New("there is no [[host]] with role = \"client\"")}
	}
	return nil
}

// named returns the names of the hosts of a role, and of groups of them.
func (s *Scenario) named(role string, groups bool) []string {
	var names []string
	for _, h := range s.Hosts {
		if h.Role == role && h.Count > 0 && groups {
			names = append(names, h.Name)
		}
	}
	for _, n := range s.Nodes(Base) {
		if role == "" || n.Role == role {
			names = append(names, n.Name)
		}
	}
	return names
}

func (s *Scenario) trafficFaults() *fault {
	for i, t := range s.Traffic {
		bad := func(key, format string, args ...any) *fault {
			return &fault{"traffic", i, key, fmt.Errorf(format, args...)}
		}
		clients, servers := s.named("client", true), s.named("server", false)
		for _, c := range []struct {
			key, v string
			among  []string
		}{
			{"test", t.Test, Tests},
			{"op", t.Op, ops},
			{"mode", t.Mode, modes},
			{"complete", t.Complete, levels},
		} {
			if err := oneOf(c.v, c.among); err != nil {
				return bad(c.key, "%w", err)
			}
		}
		pingpong := t.Test == "ping" || t.Test == "lat"
		switch {
		case !slices.Contains(clients, t.From):
			return bad("from", "there is no client %q; there are %s", t.From, strings.Join(clients, ", "))
		case !slices.Contains(servers, t.To):
			return bad("to", "there is no server %q; there are %s", t.To, strings.Join(servers, ", "))
		case t.Test == "":
			return bad("test", "it is missing; there are %s", strings.Join(Tests, ", "))
		case t.At < 0:
			return bad("at", "it is negative")
		case t.Iters < 0:
			return bad("iters", "%d is negative", t.Iters)
		case t.Time < 0:
			return bad("time", "it is negative")
		case t.Iters > 0 && t.Time > 0:
			return bad("time", "iters and time are two ways to say how long: give one")
		case t.Test == TCP && t != (Traffic{From: t.From, To: t.To, At: t.At, Test: TCP, Time: t.Time}):
			return bad("test", "%s takes from, to, at and time alone", TCP)
		case t.Test == TCP && (len(s.Substrates) == 0 || slices.Contains(s.Substrates, "sim")):
			return bad("test", "the simulator has no TCP: say substrates = [\"docker\", \"netns\"]")
		case t.Iters == 0 && t.Time == 0 && !pingpong:
			return bad("", "say how long by iters or time")
		case t.Time+t.At > s.Limit:
			return bad("time", "it ends after the limit of %s", s.Limit)
		case pingpong && (t.Window != 0 || t.Parallel != 0 || t.Reverse || t.Bidir):
			return bad("", "%s sends one message at a time: window, parallel, reverse and bidir mean nothing to it", t.Test)
		case t.Reverse && t.Bidir:
			return bad("bidir", "both ways and the reverse way exclude each other: give one")
		case t.Test == "load" && t.Rate == "":
			return bad("rate", "load needs one, such as \"20k/s\"")
		case t.Test != "load" && t.Rate != "":
			return bad("rate", "only test = \"load\" has a rate")
		case t.Test != "rr" && t.Churn:
			return bad("churn", "only test = \"rr\" opens and closes for each transaction")
		}
	}
	for _, n := range s.Nodes(Base) {
		if n.Role == "client" && len(s.Of(n)) == 0 {
			return &fault{err: fmt.Errorf("client %s has no [[traffic]]: give it some or leave it out", n.Name)}
		}
	}
	return nil
}

func (s *Scenario) actionFaults() *fault {
	dead := map[string]bool{}
	order := make([]int, len(s.Actions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(s.Actions[a].At) - int(s.Actions[b].At) })
	for _, i := range order {
		a := s.Actions[i]
		bad := func(key, format string, args ...any) *fault {
			return &fault{"action", i, key, fmt.Errorf(format, args...)}
		}
		hosts := s.named("", false)
		if err := oneOf(a.Do, actions); err != nil || a.Do == "" {
			return bad("do", "%w", cmp.Or(err, fmt.Errorf("it is missing: one of %s", strings.Join(actions, ", "))))
		}
		switch {
		case a.At < 0:
			return bad("at", "it is negative")
		case a.At >= s.Limit:
			return bad("at", "it is after the limit of %s", s.Limit)
		case a.Do == "rekey" && s.Security != "psk":
			return bad("do", "rekey changes the cluster key: it needs security = \"psk\"")
		case a.Do == "rekey" && a.Host != "":
			return bad("host", "the key is that of all hosts: leave it out")
		case a.Do == "rekey":
			continue
		case !slices.Contains(hosts, a.Host):
			return bad("host", "there is no host %q; there are %s", a.Host, strings.Join(hosts, ", "))
		case a.Do == "pause" && a.For <= 0:
			return bad("for", "say how long the pause is, such as for = \"3s\"")
		case a.Do == "restart" && !dead[a.Host]:
			return bad("do", "%s is not dead at %s: kill it before", a.Host, a.At)
		case a.Do != "restart" && dead[a.Host]:
			return bad("do", "%s is dead since before %s", a.Host, a.At)
		}
		dead[a.Host] = a.Do == "kill"
	}
	for _, n := range s.Nodes(Base) {
		if n.Role == "client" && dead[n.Name] && !s.MayFail(n) {
			return &fault{err: fmt.Errorf("client %s is killed for good: say may_fail = true in its [[traffic]]", n.Name)}
		}
	}
	return nil
}

// fabricFaults lets the switch check the hosts' own lines and the events one by one, so
// that the place of a fault is known.
func (s *Scenario) fabricFaults() *fault {
	try := func(events []fabric.Event) error {
		t := *s
		t.Events = events
		_, err := fabric.New(t.Topology(1, Base))
		return err
	}
	if err := try(nil); err != nil {
		return &fault{table: "fabric", err: fmt.Errorf("the switch refuses it: %w", err)}
	}
	for i := range s.Events {
		if err := try(s.Events[i : i+1]); err != nil {
			return &fault{table: "event", n: i, err: err}
		}
	}
	return nil
}

func (s *Scenario) assertFaults() *fault {
	cfg := s.Topology(1, Base)
	names := metrics.Names(s.named("client", false), metrics.LineNames(&cfg))
	for i, a := range s.Asserts {
		if _, err := names.Compile(a.Expr); err != nil {
			err = whose(err, s.named("client", false))
			return &fault{"assert", i, "expr", err}
		}
		for _, on := range a.On {
			if err := oneOf(on, Substrates); err != nil {
				return &fault{"assert", i, "on", err}
			}
		}
	}
	return nil
}
