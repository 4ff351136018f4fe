// Command release makes the archives of a release: static programs for each system, with manual
// pages, completions and checksums. Times, owners and paths in them do not depend on who makes them
// where, so that the same commit and Go give the same bytes.
//
//	go run ./internal/release -o dist                     all systems
//	go run ./internal/release -o dist linux/amd64         one
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/version"
)

const (
	module  = "github.com/uetkit/uetkit"
	linkVar = module + "/internal/version."
)

// systems are those that a release is made for.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"}

// papers are the files of the top folder that go into every archive.
var papers = []string{"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("o", "dist", "`FOLDER` for the archives")
	name := flag.String("version", "", "what the release is called, as v0.1.0; none: made of the commit")
	flag.Parse()
	if err := release(ctx, *out, *name, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// A maker makes the archives of one release.
type maker struct {
	version, commit string
	time            time.Time // of all files
	out, work       string
}

func release(ctx context.Context, out, name string, targets []string) error {
	if len(targets) == 0 {
		targets = systems
	}
	for _, t := range targets {
		if !slices.Contains(systems, t) {
			return fmt.Errorf("%q is not one of %s", t, strings.Join(systems, ", "))
		}
	}
	m := &maker{version: name, out: out}
	if err := m.identify(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m.work = work
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	common, err := m.common(ctx)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, t := range targets {
		file, err := m.archive(ctx, t, common)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.Base(file))
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// identify finds out which commit this is.
func (m *maker) identify(ctx context.Context) error {
	said, err := run(ctx, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, at, _ := strings.Cut(strings.TrimSpace(said), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("git log says %q", said)
	}
	changed, err := run(ctx, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	m.commit, m.time = commit, time.Unix(seconds, 0).UTC()
	if m.version == "" {
		m.version = "v" + version.Number + ".0-" + commit[:12]
	}
	if changed != "" {
		m.commit += "+"
	}
	return nil
}

// build builds all programs for a system into a folder.
func (m *maker) build(ctx context.Context, target, dir string) error {
	goos, goarch, _ := strings.Cut(target, "/")
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}
	_, err := run(ctx, env, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator),
		"-ldflags=-s -w -buildid= -X "+linkVar+"release="+m.version+" -X "+linkVar+"commit="+m.commit, "./cmd/...")
	return err
}

// common returns what all archives have: papers and pages, manual pages, completions.
func (m *maker) common(ctx context.Context) ([]entry, error) {
	bin := filepath.Join(m.work, "here")
	if err := m.build(ctx, runtime.GOOS+"/"+runtime.GOARCH, bin); err != nil {
		return nil, err
	}
	files, err := paperFiles(ctx, ".")
	if err != nil {
		return nil, err
	}
	all, err := paperEntries(".", m.commit, files)
	if err != nil {
		return nil, err
	}
	programs, err := os.ReadDir(bin)
	if err != nil {
		return nil, err
	}
	man := filepath.Join(m.work, "man")
	for _, p := range programs {
		file := filepath.Join(bin, p.Name())
		name := strings.TrimSuffix(p.Name(), ".exe")
		if _, err := run(ctx, nil, file, "__man", man); err != nil {
			return nil, err
		}
		for shell, as := range map[string]string{"bash": name, "zsh": "_" + name, "fish": name + ".fish", "powershell": name + ".ps1"} {
			script, err := run(ctx, nil, file, "completion", shell)
			if err != nil {
				return nil, err
			}
			all = append(all, entry{"completions/" + shell + "/" + as, 0o644, []byte(script)})
		}
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		data, err := os.ReadFile(filepath.Join(man, p.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, entry{"man/man1/" + p.Name(), 0o644, data})
	}
	return all, nil
}

// archive makes the archive of a system and returns its name.
func (m *maker) archive(ctx context.Context, target string, common []entry) (string, error) {
	name := "uetkit-" + m.version + "-" + strings.ReplaceAll(target, "/", "-")
	bin := filepath.Join(m.work, name)
	if err := m.build(ctx, target, bin); err != nil {
		return "", err
	}
	programs, err := os.ReadDir(bin)
	if err != nil {
		return "", err
	}
	all := slices.Clone(common)
	for _, p := range programs {
		file := filepath.Join(bin, p.Name())
		if strings.HasPrefix(target, "linux/") {
			if err := static(file); err != nil {
				return "", err
			}
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		all = append(all, entry{p.Name(), 0o755, data})
	}
	if strings.HasPrefix(target, "linux/") {
		data, err := os.ReadFile("Dockerfile")
		if err != nil {
			return "", err
		}
		all = append(all, entry{"Dockerfile", 0o644, data})
	}
	pack, ending := tarGz, ".tar.gz"
	if strings.HasPrefix(target, "windows/") {
		pack, ending = zipped, ".zip"
	}
	data, err := pack(name, all, m.time)
	if err != nil {
		return "", err
	}
	file := filepath.Join(m.out, name+ending)
	return file, os.WriteFile(file, data, 0o644)
}

// static fails for a program that needs libraries.
func static(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static", filepath.Base(file))
		}
	}
	return nil
}

// run runs a command and returns its output; its error has what it said.
func run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}
