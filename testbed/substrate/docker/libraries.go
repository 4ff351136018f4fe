package docker

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// libraryIndex tells the loader of glibc where libraries are that are not where it looks by itself.
const libraryIndex = "/etc/ld.so.cache"

// Libraries returns the files of this host that a program needs to run in an image from scratch: its
// loader and what that loads; none for a static program. An error says what is missing.
func Libraries(ctx context.Context, program string) ([]string, error) {
	loader, err := loaderOf(program)
	if err != nil || loader == "" {
		return nil, err
	}
	// The loaders of glibc and of musl both say what they would load.
	c := exec.CommandContext(ctx, loader, "--list", program)
	c.Env = []string{"LC_ALL=C"} // no LD_PRELOAD
	out, err := c.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w: %s", loader, err, lastLines(string(out), 1))
	}
	files := []string{loader}
	for line := range strings.Lines(string(out)) {
		name, file, found := strings.Cut(strings.TrimSpace(line), " => ")
		if !found {
			file = name
		}
		file, _, _ = strings.Cut(file, " (")
		if found && !filepath.IsAbs(file) {
			return nil, fmt.Errorf("%s is %s", name, file)
		}
		if filepath.IsAbs(file) && !slices.Contains(files, file) { // linux-vdso is no file
			files = append(files, file)
		}
	}
	if _, err := os.Stat(libraryIndex); err == nil {
		files = append(files, libraryIndex)
	}
	return files, nil
}

// loaderOf returns the loader that a program names, "" if it is static or none of this system's.
func loaderOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return "", err
		}
		return strings.TrimRight(string(b), "\x00"), nil
	}
	return "", nil
}

// librariesOf returns the libraries of several programs, each once.
func librariesOf(ctx context.Context, bin string, programs ...string) (all []string, err error) {
	for _, p := range programs {
		files, err := Libraries(ctx, filepath.Join(bin, p))
		if err != nil {
			return nil, fmt.Errorf("%s needs libraries: %w", p, err)
		}
		for _, f := range files {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
