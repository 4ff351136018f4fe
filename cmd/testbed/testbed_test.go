package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/substrate/docker"
)

// call runs a command line in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestList(t *testing.T) {
	code, out, _ := call(t, "list")
	if code != exitOK || !strings.Contains(out, "\nloss-1 ") && !strings.HasPrefix(out, "loss-1 ") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	for line := range strings.Lines(out) {
		if len(strings.Fields(line)) < 5 {
			t.Errorf("not a scenario a line: %q", line)
		}
	}
	if code, out, _ := call(t, "list", "--only", "clea*"); code != exitOK || strings.Count(out, "\n") != 1 {
		t.Errorf("exit %d: %q", code, out)
	}
}

// Help may be asked for before the name of the command.
func TestHelpOfACommand(t *testing.T) {
	_, want, _ := call(t, "run", "-h")
	code, out, errs := call(t, "-h", "run")
	if code != exitOK || errs != "" || out != want || !strings.Contains(out, "--substrate") {
		t.Errorf("exit %d: %s%s", code, errs, out)
	}
}

func TestVersion(t *testing.T) {
	if code, out, errs := call(t, "--version"); code != exitOK || errs != "" || !strings.HasPrefix(out, "testbed 0") || !strings.Contains(out, ", wire UE ") {
		t.Errorf("exit %d: %s%s", code, errs, out)
	}
}

// An error in a command line is one line, with exit status 2.
func TestUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"play -h", `unknown command "play": there are list, new, explain, up, run`},
		{"play", `unknown command "play": there are list, new, explain, up, run`},
		{"run claen", `no scenario "claen": clean is meant? ` + "`testbed list`"},
		{"run zzzzzz", `no scenario "zzzzzz": ` + "`testbed list`"},
		{"run ./nowhere", "no such file"},
		{"run clean --substrate lxc", `--substrate "lxc" is not docker, netns, sim or auto`},
		{"run clean --parallel 0", "--parallel 0 is not 1 to"},
		{"run clean --seed 0", "--seed 0 is not at least 1"},
		{"run clean --keep --substrate sim", "--keep: the simulator leaves nothing"},
		{"run clean --seed x", `--seed: "x" is not a whole number (see testbed run -h)`},
		{"run clean --only nothing", "no scenario has the name or tag nothing"},
		{"run clean --only [", `--only "[" is no pattern`},
		{"run clean --image x", `--image "x" is not server=IMAGE`},
		{"run clean --image server=x --substrate netns", "--image needs --substrate docker"},
		{"run clean --base 10.0.0.0", "base 10.0.0.0/24 is not in 198.18.0.0/15"},
		{"run clean --base 198.19.250.0", "take 198.18.16.0"},
		{"run clean --base x", `--base "x" is no address`},
		{"run clean --prefix A-1", `prefix "A-1" is not 1 to 10 lower case letters`},
		{"run clean --nonsense", "unknown flag: --nonsense"},
		{"up", "up takes one SCENARIO, not 0"},
		{"up clean --substrate sim", "the simulator has no lab"},
		{"down now", `unexpected "now"`},
		{"report", "report takes one FOLDER, not 0"},
		{"report /nonexistent", "there is no folder /nonexistent"},
	} {
		code, out, said := call(t, strings.Fields(tt.args)...)
		if code != exitUsage || out != "" || !strings.Contains(said, tt.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q; want one line with %q", tt.args, code, out, said, tt.want)
		}
	}
}

func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	if code, _, said := call(t, "report", dir); code != exitUsage || !strings.Contains(said, "there is no result.json") {
		t.Errorf("exit %d, %s", code, said)
	}
	for text, want := range map[string]string{"{": "is no result", `{"schema":"x"}`: `has the schema "x"`} {
		if err := os.WriteFile(filepath.Join(dir, "result.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, said := call(t, "report", dir); code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s: exit %d, %s", text, code, said)
		}
	}
}

func TestReportAgain(t *testing.T) {
	dir := t.TempDir()
	r := result.Result{Schema: "uetkit-testbed/1", Scenario: "clean", Substrate: "sim", Verdict: result.Fail, Reason: "because", Command: []string{"testbed", "run", "clean"}}
	data, err := json.Marshal(&r)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "clean-sim"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clean-sim", "result.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, out, said := call(t, "report", dir)
	if code != exitOK || !strings.Contains(out, "because") || !strings.Contains(out, "repeat: testbed run clean") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	for _, f := range []string{"report.html", "junit.xml"} {
		if data, err := os.ReadFile(filepath.Join(dir, f)); err != nil || !bytes.Contains(data, []byte("clean")) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// The exit status is that of the worst result; it is 127 if all are unsupported.
func TestCode(t *testing.T) {
	for _, tt := range []struct {
		verdicts []result.Verdict
		want     int
	}{
		{[]result.Verdict{result.Pass, result.Inconclusive, result.Unsupported}, exitOK},
		{[]result.Verdict{result.Inconclusive}, exitOK},
		{[]result.Verdict{result.Pass, result.Fail}, exitFailed},
		{[]result.Verdict{result.Pass, result.Error}, exitFailed},
		{[]result.Verdict{result.Unsupported, result.Unsupported}, exitUnsupported},
	} {
		var rs []*result.Result
		for _, v := range tt.verdicts {
			rs = append(rs, &result.Result{Verdict: v})
		}
		got := 0
		if err := code(rs); err != nil {
			got = int(err.(exit))
		}
		if got != tt.want {
			t.Errorf("%v: exit %d, want %d", tt.verdicts, got, tt.want)
		}
	}
}

func TestWatchNothing(t *testing.T) {
	if code, out, _ := call(t, "watch", "--once", "--prefix", "tbnone"); code != exitOK || !strings.Contains(out, "no lab is up") {
		t.Errorf("exit %d, %s", code, out)
	}
	_ = os.RemoveAll(registryDir(t, "tbnone"))
}

func registryDir(t *testing.T, prefix string) string {
	t.Helper()
	r, err := lab.Open(prefix, netip.MustParsePrefix("198.18.16.0/24"), "")
	if err != nil {
		t.Fatal(err)
	}
	return r.Dir()
}

// Programs whose libraries are not here are refused for containers.
func TestProgramsAreFit(t *testing.T) {
	sh, err := os.ReadFile("/bin/sh")
	if libs, e := docker.Libraries(t.Context(), "/bin/sh"); err != nil || e != nil || len(libs) == 0 {
		t.Skip("no program here that needs libraries")
	}
	dir := t.TempDir()
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := func(containers bool, program, why string) {
		t.Helper()
		if p, w := unfit(t.Context(), dir, containers); p != program || !strings.Contains(w, why) {
			t.Errorf("%q, %q", p, w)
		}
	}
	want(false, "testbed", "has no testbed")
	for _, p := range programs {
		write(p, nil)
	}
	want(true, "", "")
	write("uetperf", sh)
	want(false, "", "")
	want(true, "", "")
	write("uetperf", bytes.ReplaceAll(sh, []byte("/ld-"), []byte("/xd-"))) // whose loader is nowhere
	want(false, "", "")
	want(true, "uetperf", "has a uetperf that needs libraries")
	want(true, "uetperf", "CGO_ENABLED=0 go install ./cmd/...")
}

// down leaves no folder behind when nothing runs, and says in one line at most why it cannot look for
// containers, with --images too.
func TestDownLeavesNothing(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	for _, args := range [][]string{{"down", "--prefix", "tbgone"}, {"down", "--images", "--prefix", "tbgone"}} {
		dir := registryDir(t, "tbgone")
		for _, left := range []string{"tbgone0", "bin/0123456789ab", "bin/stage1"} { // as a killed run leaves
			if err := os.MkdirAll(filepath.Join(dir, left), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := call(t, args...)
		if code != exitOK || out != "" || strings.Count(errs, "\n") > 1 || len(errs) > 120 {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v: %s is left", args, dir)
		}
	}
}
