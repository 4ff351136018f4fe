package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	modules "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

const installed = "v0.1.0-rc.1"

// proxyOf makes a module proxy of files that has the tree as a version, and the modules of this
// host's cache. It returns what GOPROXY has to be.
func proxyOf(t *testing.T, tree string) string {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, module, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(at, installed+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(t.TempDir(), "clone") // the tree may be a worktree, which modzip does not know
	if out, err := exec.Command("git", "clone", "-q", "--shared", tree, clone).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, out)
	}
	if err := modzip.CreateFromVCS(f, modules.Version{Path: module, Version: installed}, clone, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": installed + "\n", installed + ".mod": string(mod),
		installed + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, installed),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + filepath.ToSlash(dir) + ",file://" + filepath.ToSlash(filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download"))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// What the README says of go install holds on a host without a C compiler and without the tree,
// and so do the programs. It takes minutes: .ci/run release has it.
func TestGoInstall(t *testing.T) {
	if os.Getenv("UETKIT_INSTALL") == "" {
		t.Skip("set UETKIT_INSTALL: it builds everything once more")
	}
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin, empty := t.TempDir(), t.TempDir()
	tools := t.TempDir() // the only folder of PATH: go, and no compiler for C
	if err := os.Symlink(filepath.Join(goEnv(t, "GOROOT"), "bin", "go"), filepath.Join(tools, "go")); err != nil {
		t.Fatal(err)
	}
	// With -trimpath what the archives were compiled to serves again.
	env := []string{
		"PATH=" + tools, "HOME=" + t.TempDir(), "GOPROXY=" + proxyOf(t, tree), "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOBIN=" + bin, "GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -trimpath",
	}
	do := func(name string, args ...string) string { t.Helper(); return output(t, empty, env, name, args...) }
	do(filepath.Join(tools, "go"), "install", module+"/cmd/...@"+installed)
	for _, p := range []string{"uetperf", "uetdump", "uetswitch", "testbed"} {
		if said := do(filepath.Join(bin, p), "--version"); !strings.HasPrefix(said, p+" "+installed+", commit ") {
			t.Errorf("%s says that it is %q", p, said)
		}
		if runtime.GOOS == "linux" {
			if err := static(filepath.Join(bin, p)); err != nil {
				t.Error(err)
			}
		}
	}
	do(filepath.Join(bin, "uetperf"), "info")
	out := do(filepath.Join(bin, "testbed"), "run", "clean", "--substrate", "sim", "--out", t.TempDir())
	if !strings.Contains(out, "1 pass") {
		t.Error(out)
	}
	t.Run("containers", func(t *testing.T) { containersOfDynamicPrograms(t, env, bin, empty) })
}

// output runs a command in a folder, with this environment alone, and returns what it says.
func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, env
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
	}
	return string(out)
}

// Where there is a C compiler, go install makes programs that need libraries. The containers of the
// testbed then get those of this host.
func containersOfDynamicPrograms(t *testing.T, env []string, bin, empty string) {
	if exec.Command("docker", "version").Run() != nil {
		t.Skip("no engine answers")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler")
	}
	env = append(env, "PATH="+os.Getenv("PATH"))
	do := func(name string, args ...string) string { t.Helper(); return output(t, empty, env, name, args...) }
	do("go", "install", module+"/cmd/testbed@"+installed)
	playInContainers(t, env, bin, empty)
}

// What the README says of go install ./cmd/... in the tree holds where there is a C compiler: neither
// it nor the go command nor the tree is needed afterwards, for containers either.
func TestInstallFromTheTree(t *testing.T) {
	if os.Getenv("UETKIT_INSTALL") == "" {
		t.Skip("set UETKIT_INSTALL: it builds everything once more")
	}
	if exec.Command("docker", "version").Run() != nil {
		t.Skip("no engine answers")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler")
	}
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin, tools := t.TempDir(), t.TempDir()
	output(t, tree, append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=1"), "go", "install", "./cmd/...")
	for _, name := range []string{"docker", "docker-compose"} { // the plugin of docker is elsewhere
		if path, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	playInContainers(t, []string{"PATH=" + tools, "HOME=" + os.Getenv("HOME")}, bin, t.TempDir())
}

// playInContainers plays a scenario in containers with installed programs that need libraries.
func playInContainers(t *testing.T, env []string, bin, empty string) {
	do := func(name string, args ...string) string { t.Helper(); return output(t, empty, env, name, args...) }
	testbed := filepath.Join(bin, "testbed")
	f, err := elf.Open(testbed)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if static(testbed) == nil {
		t.Fatal("the testbed is static, and nothing is tested")
	}
	names := []string{"--prefix", "instl", "--base", "198.18.16.0"}
	defer do(testbed, append([]string{"down", "--images"}, names...)...)
	out := do(testbed, append([]string{"run", "clean", "--substrate", "docker", "--no-bench", "--out", t.TempDir()}, names...)...)
	if !strings.Contains(out, "1 pass") && !strings.Contains(out, "1 inconclusive") {
		t.Error(out)
	}
}
