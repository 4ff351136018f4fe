package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/internal/spelling"
)

// Who comes from perftest, iperf3 or sockperf has flags and commands of theirs at the fingertips.
// An unknown one is answered by what does the same here.

// habits are flags of other programs, without dashes, that no command here has.
var habits = map[string]string{
	// perftest
	"all":              "all sizes are -s 2:8M:*2",
	"bidirectional":    "both directions at once are --bidir",
	"connection":       "the endpoint type is -e rdm, msg or dgram",
	"cpu_util":         "records have the processor's load in any case (-J FILE)",
	"cq-mod":           "leave it out: completions are read in batches",
	"D":                "a duration is -t 10s",
	"device":           "the interface is named behind the host: uetperf lat HOST -d NAME",
	"duration":         "a duration is -t 10s",
	"events":           "readers sleep when nothing comes: leave it out",
	"F":                "leave it out: no clock of the processor is used",
	"gid-index":        "the interface is -d NAME, the address is that of HOST",
	"ib-dev":           "the interface is -d NAME",
	"ib-port":          "the interface is -d NAME",
	"inline_size":      "short messages go inline: leave it out",
	"outs":             "how many are under way is -W N",
	"post_list":        "how many are under way is -W N",
	"qp":               "parallel endpoints are -P N",
	"rdma_cm":          "connections are -e msg",
	"report_gbits":     "rates are printed in Gb/s: leave it out",
	"report-histogram": "the histogram is in the record: -J FILE, then uetperf report FILE",
	"run_infinitely":   "a long test is uetperf soak HOST -t 1h",
	"tx-depth":         "how many are under way is -W N",
	"x":                "the interface is -d NAME, the address is that of HOST",
	"I":                "short messages go inline: leave it out",
	"m":                "the payload of packets is --mtu N, the size of messages -s SIZE",
	"r":                "how many are under way is -W N",
	"rx-depth":         "how many are under way is -W N",
	"S":                "leave it out: packets of a kind have a traffic class of their own",
	"tclass":           "leave it out: packets of a kind have a traffic class of their own",
	// iperf3
	"1":        "a server for one client is serve --once",
	"4":        "the address family is that of HOST: name an IPv4 address",
	"6":        "the address family is that of HOST: name an IPv6 address",
	"A":        "processors are chosen outside: taskset -c 2 uetperf …",
	"B":        "the interface is -d NAME, and serve has --listen",
	"C":        "congestion control is --cc",
	"daemon":   "it stays in the foreground: let systemd start it, or put & behind it",
	"f":        "units are chosen by size; the record has plain numbers (-J FILE)",
	"json":     "the record is -J FILE, on standard output -J -",
	"k":        "a count of messages is -n N",
	"O":        "what comes before measuring is -w N",
	"o":        "the record is -J FILE",
	"T":        "leave it out: a record says what was measured",
	"V":        "counters of both ends are -v, the version is --version",
	"Z":        "leave it out: payload is copied once",
	"affinity": "processors are chosen outside: taskset -c 2 uetperf …",
	"b":        "a rate is that of uetperf load HOST --rate 20k/s",
	"bitrate":  "a rate is that of uetperf load HOST --rate 20k/s",
	"bind":     "the interface is -d NAME, and serve has --listen",
	"bytes":    "a count of messages is -n N, their size -s SIZE",
	"client":   "the client names the test: uetperf bw HOST, or lat, rate, rr, load",
	"format":   "units are chosen by size; the record has plain numbers (-J FILE)",
	"length":   "the size of messages is -s SIZE",
	"logfile":  "the record is -J FILE",
	"omit":     "what comes before measuring is -w N",
	"one-off":  "a server for one client is serve --once",
	"parallel": "parallel endpoints are -P N",
	"server":   "the server is uetperf serve",
	"set-mss":  "the payload of packets is --mtu N",
	"udp":      "everything goes over UDP: leave it out",
	"zerocopy": "leave it out: payload is copied once",
	// sockperf
	"host":            "the host stands behind the command: uetperf lat HOST",
	"port":            "the port stands behind the host, HOST:5201, and serve has --listen :5201",
	"p":               "the port stands behind the host, HOST:5201, and serve has --listen :5201",
	"rate":            "a rate is that of uetperf load HOST --rate 20k/s",
	"full-log":        "the histogram is in the record: -J FILE, then uetperf report FILE",
	"full-rtt":        "uetperf lat prints half round trips, rr whole ones",
	"ip":              "the host stands behind the command: uetperf lat HOST",
	"mps":             "a rate is that of uetperf load HOST --rate 20k/s",
	"msg-size":        "the size of messages is -s SIZE",
	"nonblocked":      "leave it out: readers poll before they sleep",
	"pps":             "a rate is that of uetperf load HOST --rate 20k/s",
	"reply-every":     "the size of answers is --reply of uetperf rr and load",
	"sender-affinity": "processors are chosen outside: taskset -c 2 uetperf …",
	"tcp":             "connections are -e msg",
}

// rootHabits are short flags that mean something else behind a command.
var rootHabits = map[byte]string{'c': "client", 's': "server", 'l': "length", 'u': "udp", 'b': "bitrate", 'D': "D", 'q': "qp", 'x': "x", 'F': "F", 'a': "all", 'i': "ip", 'd': "device", 'P': "parallel"}

// commandHabits are commands of other programs.
var commandHabits = map[string]string{
	"server": "serve", "sr": "serve", "client": "bw HOST", "throughput": "bw HOST", "tp": "bw HOST", "ping-pong": "lat HOST", "pp": "lat HOST",
	"under-load": "load HOST", "ul": "load HOST", "playback": "load HOST", "latency": "lat HOST", "bandwidth": "bw HOST", "msgrate": "rate HOST",
	"iperf": "bw HOST", "iperf3": "bw HOST", "netperf": "bw HOST", "sockperf": "lat HOST", "fi_pingpong": "lat HOST", "pingpong": "lat HOST", "qperf": "bw HOST",
	"send_bw": "bw HOST", "send_lat": "lat HOST", "write_bw": "bw HOST write", "write_lat": "lat HOST write", "read_bw": "bw HOST read", "read_lat": "lat HOST read",
	"atomic_bw": "rate HOST atomic", "atomic_lat": "lat HOST atomic",
}

// instead says what there is instead of an unknown flag or command, "" if nothing comes to mind.
func instead(cmd *cobra.Command, err error) string {
	var flag *pflag.NotExistError
	if !errors.As(err, &flag) {
		return ""
	}
	name := flag.GetSpecifiedName()
	if s := flag.GetSpecifiedShortnames(); s != "" {
		if cmd.Name() == "serve" && name == "D" {
			name = "daemon"
		}
		if long, is := rootHabits[name[0]]; is && len(name) == 1 {
			return habits[long]
		}
		return habits[name]
	}
	if text := habits[strings.ReplaceAll(name, "_", "-")]; text != "" {
		return text
	}
	if text := habits[name]; text != "" {
		return text
	}
	var there []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			there = append(there, "--"+f.Name)
		}
	})
	if near := nearest("--"+name, there); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// insteadOf says what there is instead of an unknown command.
func insteadOf(name string, there []string) string {
	name = strings.TrimPrefix(name, "ib_")
	if use := commandHabits[name]; use != "" {
		return fmt.Sprintf("did you mean uetperf %s?", use)
	}
	if near := nearest(name, there); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}

// nearest returns the word that is at most a third of its letters away, or begins as word does; ""
// if none is.
func nearest(word string, among []string) string {
	best := spelling.Closest(word, among, len(word)/3+1)
	if best == "" && len(strings.Trim(word, "-")) > 2 {
		for _, w := range among {
			if strings.HasPrefix(w, word) {
				return w
			}
		}
	}
	return best
}
