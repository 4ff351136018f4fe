package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// The commands of a page are those of blocks, of tables and of sentences, without output and prose.
func TestExtract(t *testing.T) {
	page := "# A page\n\nTake `uetperf lat HOST` or so, or `nothing`:\n\n    uetperf lat HOST -s 8   # fast\n    prose\n\n```\n$ uetdump --ops x.pcapng\nuetdumped, not\n  uetperf bw HOST\n```\n\n" +
		"| `uetdump -J x.pcapng` | JSON |\n| text | `go test ./a -run 'A\\|B'` |\n```sh\ngo run ./cmd/uetperf\n```\nuetperf is a program\n"
	var got []string
	for _, l := range Extract("p", page) {
		got = append(got, fmt.Sprintf("%d %v %s", l.Line, l.Inline, l.Text))
	}
	want := "3 true uetperf lat HOST;5 false uetperf lat HOST -s 8   # fast;9 false uetdump --ops x.pcapng;14 false uetdump -J x.pcapng;15 true go test ./a -run 'A|B';17 false go run ./cmd/uetperf"
	if s := strings.Join(got, ";"); s != want {
		t.Errorf("%q", s)
	}
}

func TestSimple(t *testing.T) {
	for in, want := range map[string]string{
		"uetperf bw HOST -t 1s   # fast": "uetperf,bw,HOST,-t,1s", "GOGC=off A=1 valgrind --tool=x uetperf serve": "uetperf,serve", "taskset -c 0 uetperf serve & uetperf bw a": "uetperf,serve;uetperf,bw,a",
		"go test ./a -run 'A|B C'": "go,test,./a,-run,A|B C", "mpiexec -n 4 uetperf coll x": "uetperf,coll,x", "mpirun": "mpirun", "uetperf mesh h{01..16} -q": "uetperf,mesh,h01,h16,-q", "uetdump a | grep x > y": "uetdump,a;grep,x", "srun --mpi=pmi2": "srun",
	} {
		c := Command{Text: in}
		var got []string
		for _, w := range c.Simple() {
			got = append(got, strings.Join(w, ","))
		}
		if s := strings.Join(got, ";"); s != want {
			t.Errorf("%q: %q, want %q", in, s, want)
		}
	}
}

// elsewhere says why a command is neither of a program of the tree nor of go. The tests of cmd/uetperf,
// cmd/uetdump, cmd/uetswitch and cmd/testbed check those of the programs.
var elsewhere = []struct{ like, why string }{
	{`^(tshark|python3|perf|strace|git|sh|sleep|grep)$`, "a program of somebody else"},
	{`^(mpiexec|mpirun|srun|valgrind|time|taskset)$`, "the starter itself is meant"},
	{`^\./(sum|heat)$`, "it was built by the command before"},
	{`^\$EDITOR$`, "it is for people"},
	{`^\.ci/`, "a script"},
}

// Every command of the pages is one that is known, and those of go name packages, tests, benchmarks and
// flags that there are. Files that python3 and scripts need are there.
func TestCommands(t *testing.T) {
	all, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	checked, other := 0, 0
	built := map[string]string{} // test programs, by where go test -c puts them: the package
	for _, c := range all {
		for _, words := range c.Simple() {
			at := fmt.Sprintf("%s:%d: %s", c.Page, c.Line, c.Text)
			if pattern(words) {
				other++
				continue
			}
			if words[0] == "go" {
				checked++
				if err := goCommand(words[1:]); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				if i := slices.Index(words, "-o"); slices.Contains(words, "-c") && i > 0 {
					built[words[i+1]] = words[len(words)-1]
				}
				continue
			}
			if pkg := built[words[0]]; pkg != "" { // its flags are those of go test, with a prefix
				checked++
				args := []string{"test", pkg}
				for _, w := range words[1:] {
					args = append(args, strings.Replace(w, "-test.", "-", 1))
				}
				if err := goCommand(args); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				continue
			}
			if name, _ := program(words); name != "" {
				checked++
				continue
			}
			known := slices.ContainsFunc(elsewhere, func(e struct{ like, why string }) bool {
				return regexp.MustCompile(e.like).MatchString(words[0])
			})
			if !known {
				t.Errorf("%s: nobody checks %s", at, words[0])
			}
			other++
			var file string
			switch {
			case strings.HasPrefix(words[0], ".ci/"):
				file = words[0]
				if len(words) > 1 && words[0] == ".ci/run" && words[1] != "-l" {
					script, err := os.ReadFile(filepath.Join(root, ".ci/run"))
					if err != nil || !strings.Contains(string(script), "\nstep_"+strings.ReplaceAll(words[1], "-", "_")+"()") {
						t.Errorf("%s: there is no step %s (%v)", at, words[1], err)
					}
				}
			case words[0] == "python3" && len(words) > 1:
				file = words[1]
				if !strings.Contains(file, "/") {
					file = filepath.Join(filepath.Dir(c.Page), file)
				}
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	if checked < 200 || other > checked/2 {
		t.Errorf("%d commands are checked, %d are not", checked, other)
	}
}

// A command line of go that names what is not there is an error.
func TestGoCommand(t *testing.T) {
	for text, ok := range map[string]bool{
		"test ./testbed/stranger/commands -run GoCommand": true, "test ./testbed/stranger/commands -run NoSuchTest": false, "test ./nosuch": false, "test ./testbed/... -v": true,
		"test ./internal/sim -run Swarm -seeds 20": true, "test ./internal/sim -run Swarm -nosuch 20": false, "test ./cq -run '^$' -bench .": true, "test ./cq -run xxx -bench NoSuchBench": false,
		"test ./cmd/uetperf -run Scripts/wrong": true, "test ./cmd/uetperf -run Scripts/nosuch": false, "test ./cmd/uetperf -run 'Scripts/(ranks|nosuch)'": false, "run ./testbed/bars -only R1": true, "run ./testbed/bars -nosuch R1": false, "run ./fi": false,
		"install ./cmd/...": true, "install github.com/uetkit/uetkit/cmd/uetperf@latest": true, "install github.com/uetkit/uetkit/cmd/uetperv@latest": false, "run": false, "doc ./uet": true, "frobnicate": false,
	} {
		if err := goCommand(split(text)); (err == nil) != ok {
			t.Errorf("go %s: %v", text, err)
		}
	}
}

// module is the name of the module.
const module = "github.com/uetkit/uetkit/"

// goFlags are flags of go, with the value they take or without.
var goFlags = map[string]bool{
	"v": false, "race": false, "short": false, "c": false, "benchmem": false, "a": false,
	"o": true, "run": true, "bench": true, "fuzz": true, "fuzztime": true, "benchtime": true, "count": true, "cpu": true, "p": true, "tags": true, "timeout": true, "skip": true,
	"cpuprofile": true, "args": true,
}

// goCommand returns what is wrong with a command line of go, without its first word.
func goCommand(words []string) error {
	if len(words) < 2 {
		if slices.Contains([]string{"test", "run", "install", "build", "vet", "doc"}, strings.Join(words, "")) && len(words) == 1 && words[0] != "run" {
			return nil
		}
		return errors.New("it names nothing")
	}
	var dirs, own []string
	patterns := map[string]string{}
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch path, _, _ := strings.Cut(strings.TrimPrefix(w, module), "@"); {
		case words[0] == "run" && len(dirs) > 0, words[0] == "doc" && len(dirs) > 0:
			if name := strings.TrimLeft(w, "-"); words[0] == "run" && strings.HasPrefix(w, "-") {
				name, _, _ = strings.Cut(name, "=")
				own = append(own, name)
			}
		case strings.HasPrefix(w, "./") || w == "." || path != w && strings.Contains(w, "@"):
			found, err := packages(path)
			if err != nil {
				return err
			}
			dirs = append(dirs, found...)
		case strings.HasPrefix(w, "-"):
			name, value, has := strings.Cut(strings.TrimLeft(w, "-"), "=")
			takes, known := goFlags[name]
			if !known {
				own = append(own, name)
				continue
			}
			if takes && !has && i+1 < len(words) {
				i++
				value = words[i]
			}
			patterns[name] = value
		}
	}
	if len(dirs) == 0 {
		return errors.New("it names no package")
	}
	tests := words[0] == "test"
	for _, name := range own {
		if err := flagOf(dirs, name, tests); err != nil {
			return err
		}
	}
	switch words[0] {
	case "test":
		for flag, kind := range map[string]string{"run": "Test|Example|Fuzz", "bench": "Benchmark", "fuzz": "Fuzz"} {
			if p := patterns[flag]; p != "" && p != "^$" && !(p == "xxx" && patterns["bench"] != "") {
				if err := matches(dirs, kind, p); err != nil {
					return err
				}
			}
		}
	case "run":
		if src, _ := sources(dirs[0], false); !strings.Contains(src, "\npackage main\n") {
			return fmt.Errorf("%s is no program", dirs[0])
		}
	case "install", "build", "vet", "doc":
	default:
		return fmt.Errorf("go has no %s here", words[0])
	}
	return nil
}

// packages returns the folders that a pattern of packages names.
func packages(p string) (dirs []string, err error) {
	base, all := strings.CutSuffix(p, "...")
	err = filepath.WalkDir(filepath.Join(root, base), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if found, _ := filepath.Glob(filepath.Join(path, "*.go")); d.IsDir() && len(found) > 0 {
			dirs = append(dirs, path)
		}
		if d.IsDir() && !all {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%s is no package", p)
	}
	return dirs, err
}

// sources is the text of the Go files of a folder: all of them, or those that are no tests.
func sources(dir string, tests bool) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	var b strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") && !tests {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		b.WriteString("\n" + string(text))
	}
	return b.String(), err
}

// flagOf returns an error unless one of the packages defines a flag.
func flagOf(dirs []string, name string, tests bool) error {
	define := regexp.MustCompile(`\.(String|Bool|Int|Int64|Uint|Uint64|Float64|Duration|Var|Func|BoolFunc|TextVar|\w+Var)\([^"\n]*"` + regexp.QuoteMeta(name) + `"`)
	for _, dir := range dirs {
		src, err := sources(dir, tests)
		if err != nil {
			return err
		}
		if define.MatchString(src) {
			return nil
		}
		if strings.Contains(dir, "/cmd/") && strings.Contains(src, "cobra") { // its own test checks it
			return nil
		}
	}
	return fmt.Errorf("there is no flag -%s", name)
}

// matches returns an error if an alternative of a pattern of -run or -bench matches no test of the packages.
func matches(dirs []string, kind, p string) error {
	first, sub, _ := strings.Cut(p, "/")
	decl := regexp.MustCompile(`(?m)^func ((?:` + kind + `)\w*)\(`)
	var names, scripts []string
	for _, dir := range dirs {
		src, err := sources(dir, true)
		if err != nil {
			return err
		}
		for _, m := range decl.FindAllStringSubmatch(src, -1) {
			names = append(names, m[1])
		}
		found, _ := filepath.Glob(filepath.Join(dir, "testdata/script/*.txtar"))
		for _, f := range found {
			scripts = append(scripts, strings.TrimSuffix(filepath.Base(f), ".txtar"))
		}
	}
	one := func(p string, of []string) error {
		for alt := range strings.SplitSeq(strings.Trim(p, "()"), "|") {
			re, err := regexp.Compile(alt)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(of, re.MatchString) {
				return fmt.Errorf("no %s matches %s", kind, alt)
			}
		}
		return nil
	}
	if err := one(first, names); err != nil || sub == "" || len(scripts) == 0 || first != "Scripts" {
		return err
	}
	return one(sub, scripts)
}
