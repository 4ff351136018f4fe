// Command stranger does what somebody does who found the repository a minute ago: it installs the
// programs, measures through a firewall that lets the named ports through and by addresses of both families,
// and runs the commands of the README and of the pages for users as they are written there, those of
// sentences, too.
//
//	go run ./testbed/stranger [-list] [-only TEXT] [-limit 10s]
//
// It needs Linux and root, for two network namespaces with a veth pair, and nft. A command that goes on
// for longer than the limit is interrupted, and must end as an interrupted one. HOST and other placeholders
// are the server's address; a line that needs what is not here, such as Slurm, is named with its reason. Exit
// status: 0 if all is as promised, 1 if something is not, 2 for wrong usage.
package main

import (
	"regexp"
	"strings"

	"github.com/uetkit/uetkit/testbed/stranger/commands"
)

// first are the pages whose commands are run first, in this order: some need what those before them made.
// Those of the other pages follow.
var first = []string{"README.md", "docs/network-engineer.md", "docs/test-lab.md", "docs/go-programmer.md", "docs/mp.md", "docs/conformance.md", "docs/wireshark/README.md", "testbed/README.md", "CONTRIBUTING.md"}

// addrs are the addresses of the servers' namespace.
var addrs = []string{"198.18.252.1", "198.18.252.2", "198.18.252.3", "198.18.252.4"}

// A line is a command of a page.
type line struct{ commands.Command }

// extract returns the commands of a page.
func extract(page, text string) (out []line) {
	for _, c := range commands.Extract(page, text) {
		out = append(out, line{c})
	}
	return out
}

// skips says which commands are not run, and why.
var skips = []struct{ like, why string }{
	{`^srun( |$)`, "it needs Slurm"},
	{`^(mpiexec|mpirun)( |$)`, "it needs an MPI; the test of the launchers runs it"},
	{`^go install ./cmd/\.\.\.$`, "it is how the programs came here"},
	{`^\$EDITOR `, "it is for people"},
	{`IMAGE`, "it needs an image of somebody else"},
	{`^go test`, "it is a test, and CI runs all of them"},
	{`^go (run|install) .*@latest`, "it needs what is published; the test of the release does it"},
	{`^go run ./testbed/interop( -seed|  |$)`, "the test against the other implementation runs it"},
	{`^python3 .*/tmp/packets`, "it shows what that test wrote"},
	{`^python3 (selftest|show|peer)\.py`, "the test against the other implementation runs it"},
	{`valgrind`, "it needs valgrind, and takes minutes"},
	{`127\.0\.0\.1:14793`, "it is for the server of the line before, which valgrind slows down"},
	{`^go run ./testbed/bars`, "it measures for long"},
	{`--only ci --substrate`, "CI runs it"},
	{`^(\.ci/|git |strace |perf |valgrind |taskset |time )`, "it is for people who change the code"},
	{`…`, "it is a pattern"},
}

// mentioned is why a command of a sentence is not run that lacks what it needs, or is a part of one.
const mentioned = "it is a mention, and the tests of the programs check that it is right"

// whole matches commands of sentences that are run as they stand. The others are mentions.
var whole = regexp.MustCompile(`^uetperf (serve|doctor|info|completion|--version|(bw|soak|ping) HOST|keys KEYS --)|^uetdump (-\S+( \d+)? )*(--\S+( \d+)? )?\S+\.pcapng$|^testbed (new|run) \./|^go (install|build|doc) `)

// skip returns why a line is not run; "" if it is.
func (l *line) skip() string {
	for _, s := range skips {
		if regexp.MustCompile(s.like).MatchString(l.Text) {
			return s.why
		}
	}
	if l.Inline && (!whole.MatchString(l.Text) || strings.Contains(l.Text, "serve -h")) {
		return mentioned
	}
	return ""
}

// filled returns the command with placeholders filled in.
func (l *line) filled() string {
	s, _, _ := strings.Cut(l.Text, "  #")
	return strings.NewReplacer(
		"H1 H2 H3 H4", strings.Join(addrs, " "), "H1 --from H2,H3,H4", addrs[0]+" --from "+strings.Join(addrs[1:], ","),
		"rack1-{01..16}", strings.Join(addrs, " "), "HOST", addrs[0], "198.18.77.2", addrs[0], "192.0.2.7", addrs[0], "IP:PORT", "127.0.0.1:9099",
	).Replace(strings.TrimSpace(s))
}

// may returns the exit codes that a command may end with if it is not interrupted.
func (l *line) may() []int {
	switch {
	case strings.Contains(l.Text, "uetperf doctor"), strings.Contains(l.Text, "--assert"), strings.Contains(l.Text, "compare"):
		return []int{0, 1} // what it finds is another matter
	}
	return []int{0}
}
