package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/scenario"
)

// Env is the environment of a host.
type Env struct {
	Role     string
	Case     string
	Peers    map[string]netip.Addr
	Gateway  netip.Addr
	Route    netip.Prefix
	Out      string
	Traffic  []scenario.Traffic
	Seed     uint64
	Limit    time.Duration
	Wait     bool // for the file go
	Security string
	Keys     string
	Capture  bool
	TCP      bool // a server also takes TCP connections
}

// Vars returns the variables of a host's environment, without UET_OUT and UET_KEYS, which
// the substrate adds.
func (e *Env) Vars() []string {
	var peers []string
	for name, a := range e.Peers {
		peers = append(peers, name+"="+a.String())
	}
	slices.Sort(peers)
	traffic, err := json.Marshal(e.Traffic)
	if err != nil {
		panic("BUG: traffic: " + err.Error())
	}
	vars := []string{
		"UET_ROLE=" + e.Role, "UET_CASE=" + e.Case, "UET_PEERS=" + strings.Join(peers, ","),
		"UET_GATEWAY=" + e.Gateway.String(), "UET_ROUTE=" + e.Route.String(), "UET_TRAFFIC=" + string(traffic),
		"UET_SEED=" + strconv.FormatUint(e.Seed, 10), "UET_LIMIT=" + e.Limit.String(),
	}
	if e.Wait {
		vars = append(vars, "UET_WAIT=1")
	}
	if e.Security != "" && e.Security != "off" {
		vars = append(vars, "UET_SEC="+e.Security)
	}
	if e.Capture {
		vars = append(vars, "UET_CAPTURE=1")
	}
	if e.TCP {
		vars = append(vars, "UET_TCP=1")
	}
	return vars
}

// ReadEnv reads the environment. Its error names the first wrong variable.
func ReadEnv(get func(string) string) (*Env, error) {
	e := &Env{
		Role: get("UET_ROLE"), Case: get("UET_CASE"), Out: get("UET_OUT"), Security: get("UET_SEC"), Keys: get("UET_KEYS"),
		Wait: get("UET_WAIT") == "1", Capture: get("UET_CAPTURE") == "1", TCP: get("UET_TCP") == "1", Peers: map[string]netip.Addr{},
	}
	if e.Role != "server" && e.Role != "client" {
		return nil, fmt.Errorf("UET_ROLE %q is not server or client", e.Role)
	}
	if e.Out == "" {
		return nil, errors.New("UET_OUT is empty: it names the folder for results")
	}
	for p := range strings.SplitSeq(get("UET_PEERS"), ",") {
		if p == "" {
			continue
		}
		name, addr, _ := strings.Cut(p, "=")
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return nil, fmt.Errorf("UET_PEERS: %q is not NAME=ADDRESS", p)
		}
		e.Peers[name] = a
	}
	var err error
	if s := get("UET_GATEWAY"); s != "" {
		if e.Gateway, err = netip.ParseAddr(s); err != nil {
			return nil, fmt.Errorf("UET_GATEWAY %q is no address", s)
		}
		if e.Route, err = netip.ParsePrefix(get("UET_ROUTE")); err != nil {
			return nil, fmt.Errorf("UET_ROUTE %q is not like %s", get("UET_ROUTE"), scenario.Range)
		}
	}
	if s := get("UET_TRAFFIC"); s != "" {
		if err := json.Unmarshal([]byte(s), &e.Traffic); err != nil {
			return nil, fmt.Errorf("UET_TRAFFIC: %w", err)
		}
	}
	if s := get("UET_SEED"); s != "" {
		if e.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return nil, fmt.Errorf("UET_SEED %q is no number", s)
		}
	}
	if s := get("UET_LIMIT"); s != "" {
		if e.Limit, err = time.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("UET_LIMIT %q is not like 30s", s)
		}
	}
	for i, t := range e.Traffic {
		if !e.Peers[t.To].IsValid() {
			return nil, fmt.Errorf("UET_TRAFFIC: entry %d goes to %q, which UET_PEERS does not name", i, t.To)
		}
	}
	return e, nil
}

// Command returns the uetperf command line for the i-th entry of the traffic.
func (e *Env) Command(i int) []string {
	t := e.Traffic[i]
	a := []string{t.Test, e.Peers[t.To].String()}
	if t.Op != "" {
		a = append(a, t.Op)
	}
	str := func(flag, v string) {
		if v != "" {
			a = append(a, flag, v)
		}
	}
	num := func(flag string, v int64) {
		if v != 0 {
			a = append(a, flag, strconv.FormatInt(v, 10))
		}
	}
	on := func(flag string, v bool) {
		if v {
			a = append(a, flag)
		}
	}
	str("-s", t.Size)
	num("-n", t.Iters)
	if t.Time > 0 {
		str("-t", time.Duration(t.Time).String())
	}
	num("-W", int64(t.Window))
	num("-P", int64(t.Parallel))
	str("--mode", t.Mode)
	str("--complete", t.Complete)
	str("--rate", t.Rate)
	on("-R", t.Reverse)
	on("--bidir", t.Bidir)
	on("-c", !t.NoCheck)
	on("--trim", t.Trim)
	// Hosts share processors, so the idle round trip is longer than that of the lines.
	str("--base-rtt", max(time.Duration(t.BaseRTT), sharedRTT).String())
	on("--churn", t.Churn)
	num("--paths", int64(t.Paths))
	str("--cc", t.CC)
	num("--mtu", int64(t.MTU))
	// Hosts share processors: a host that polls takes processor time from the switch.
	str("--progress", "auto")
	switch e.Security {
	case "psk":
		a = append(a, "--sec", "psk", "--keys", e.Keys)
	case "tls":
		a = append(a, "-e", "msg", "--sec", "tls", "--keys", e.Keys)
	}
	if e.Seed != 0 {
		// Concurrent streams have messages of their own.
		str("--seed", strconv.FormatUint(e.Seed+uint64(i), 10))
	}
	if e.Capture {
		str("--pcap", filepath.Join(e.Out, strconv.Itoa(i)+".pcapng"))
	}
	return append(a, "-q", "-J", filepath.Join(e.Out, strconv.Itoa(i)+".json"))
}

// sharedRTT is about the round trip of two hosts and a switch that share the same
// processors.
const sharedRTT = 500 * time.Microsecond
