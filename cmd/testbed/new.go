package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/testbed/scenario"
)

// start is a scenario to begin with. Its comments explain the keys.
//
//go:embed start
var start embed.FS

func newScenarioCommand(cfg *config) *cobra.Command {
	return &cobra.Command{
		Use: "new FOLDER", Short: "begin a scenario of your own",
		Long: `new makes a folder with a scenario.toml that runs as it is and whose comments explain it,
and a README. What is there already is left alone.`,
		Example: "  testbed new ./mine && testbed run ./mine --substrate sim",
		Args:    one("FOLDER"),
		RunE:    func(_ *cobra.Command, args []string) error { return cfg.newScenario(args[0]) },
	}
}

func explainCommand(cfg *config) *cobra.Command {
	return &cobra.Command{
		Use: "explain [KEY]", Short: "say what the keys of a scenario mean, and how their values are written",
		Example: "  testbed explain\n  testbed explain rule\n  testbed explain event.on",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("explain takes one KEY, not %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return scenario.Keys(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return scenario.Explain(cfg.stdout, strings.Join(args, ""))
		},
	}
}

// newScenario writes the folder.
func (cfg *config) newScenario(dir string) error {
	dir = filepath.Clean(dir)
	name := filepath.Base(dir)
	if strings.ContainsAny(name, "./\\") || strings.TrimSpace(name) == "" {
		return fmt.Errorf("new: %q is no name for a scenario", name)
	}
	files, err := fs.Sub(start, "start")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &failure{err}
	}
	for _, file := range []string{scenario.File, "README.md"} {
		b, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		if err := writeNew(filepath.Join(dir, file), strings.ReplaceAll(string(b), "NAME", name)); err != nil {
			return &failure{err}
		}
	}
	path := dir
	if !filepath.IsAbs(path) {
		path = "./" + filepath.ToSlash(path) // without a slash it would be the name of a scenario of the program
	}
	fmt.Fprintf(cfg.stdout, "%s\nplay it: testbed run %s --substrate sim\n", filepath.Join(dir, scenario.File), path)
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("new: %s is there already", name)
		}
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
