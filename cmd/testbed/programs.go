package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/substrate/docker"
)

// programs are the programs that run in labs.
var programs = []string{"testbed", "uetperf", "uetswitch"}

const module = "github.com/uetkit/uetkit"

// binaries returns a folder with the programs: the one given, the folder of this program,
// or a folder that they are built into, from the source found here or, if this program was
// installed as a version of the module, from that version.
func (cfg *config) binaries(ctx context.Context, r *lab.Registry, containers bool) (string, error) {
	if cfg.bin != "" {
		dir, err := filepath.Abs(cfg.bin)
		if err != nil {
			return "", err
		}
		if p, why := unfit(ctx, dir, containers); p != "" {
			return "", fmt.Errorf("--bin %s %s: build it by CGO_ENABLED=0 go build -o %s ./cmd/%s", cfg.bin, why, cfg.bin, p)
		}
		return dir, nil
	}
	there := ""
	if self, err := os.Executable(); err == nil {
		dir := filepath.Dir(self)
		p, why := unfit(ctx, dir, containers)
		if p == "" {
			return dir, nil
		}
		there = dir + " " + why
	}
	to, alone := filepath.Join(r.Dir(), "bin"), len(r.List()) == 0
	root, err := source()
	if err == nil {
		return build(ctx, root, to, alone)
	}
	if v := installed(); v != "" {
		cfg.say("%s: building %s %s without them", there, module, v)
		return install(ctx, v, to, alone)
	}
	return "", fmt.Errorf("%s, and %w", there, err)
}

// installed is the version of the module that this program was installed as; "" if it was built
// from a tree, or there is no go command.
func installed() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok || bi.Main.Path != module || bi.Main.Version == "(devel)" || bi.Main.Sum == "" {
		return ""
	}
	if _, err := exec.LookPath("go"); err != nil {
		return ""
	}
	return bi.Main.Version
}

// unfit returns the first program in a folder that cannot be used, and why; "" if all can.
// Containers get the libraries that a program needs from this host.
func unfit(ctx context.Context, dir string, containers bool) (program, why string) {
	for _, p := range programs {
		file := filepath.Join(dir, p)
		if _, err := os.Stat(file); err != nil {
			return p, "has no " + p
		}
		if !containers {
			continue
		}
		if _, err := docker.Libraries(ctx, file); err != nil {
			return p, fmt.Sprintf("has a %s that needs libraries, which containers cannot get: %s (CGO_ENABLED=0 go install ./cmd/... makes one that needs none)", p, oneLine(err))
		}
	}
	return "", ""
}

// source is the root of the module, at or above the current folder.
func source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		data, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && slices.Contains(strings.Split(string(data), "\n"), "module "+module) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", errors.New("this is not the project's source to build the programs of labs from: run inside it, or in it \"go install ./cmd/...\", which puts all programs beside this one, or say where they are by --bin")
		}
	}
}

// build builds static programs into a folder of dir that is named after their contents, so
// that no program is replaced under a running lab. alone says that no lab runs.
func build(ctx context.Context, root, dir string, alone bool) (string, error) {
	return staged(dir, alone, func(stage string) error {
		goBuild := func(flags ...string) error {
			args := append([]string{"build", "-ldflags=-s -w", "-o", stage + "/"}, flags...)
			for _, p := range programs {
				args = append(args, "./cmd/"+p)
			}
			return goRun(ctx, root, nil, args...)
		}
		err := goBuild()
		if err != nil && strings.Contains(err.Error(), "VCS status") {
			err = goBuild("-buildvcs=false") // git refuses to read the source of another user
		}
		return err
	})
}

// install is build for a version of the module instead of a tree.
func install(ctx context.Context, version, dir string, alone bool) (string, error) {
	return staged(dir, alone, func(stage string) error {
		args := []string{"install", "-ldflags=-s -w"}
		for _, p := range programs {
			args = append(args, module+"/cmd/"+p+"@"+version)
		}
		return goRun(ctx, stage, []string{"GOBIN=" + stage}, args...)
	})
}

// goRun runs a go command that makes static programs.
func goRun(ctx context.Context, dir string, env []string, args ...string) error {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Env = dir, slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"}, env)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, strings.Join(strings.Fields(said.String()), " "))
	}
	return nil
}

// staged makes programs in a folder that then gets the name of their contents.
func staged(dir string, alone bool, programsInto func(stage string) error) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp(dir, "stage")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	if err := programsInto(stage); err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, p := range programs {
		f, err := os.Open(filepath.Join(stage, p))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	to := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil))[:12])
	if _, err := os.Stat(to); err == nil {
		return to, nil
	}
	if alone {
		old, _ := os.ReadDir(dir)
		for _, e := range old {
			if !strings.HasPrefix(e.Name(), "stage") {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
	}
	if err := os.Chmod(stage, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(stage, to); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return to, nil
}
