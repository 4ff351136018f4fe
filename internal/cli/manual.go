package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/internal/version"
)

// manualRequest asks a program for its manual pages, as __complete of cobra asks it for completions.
const manualRequest = "__man"

// Manual lets a program answer `PROGRAM __man FOLDER` by writing its manual pages. The command is
// there only when it is asked for.
func Manual(root *cobra.Command, args []string) {
	if len(args) == 0 || args[0] != manualRequest {
		return
	}
	root.AddCommand(&cobra.Command{
		Use: manualRequest + " FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return writePages(root, args[0]) },
	})
}

// writePages writes the page of a command and those of the commands below it.
func writePages(c *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), page(c), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writePages(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// A sheet is a manual page while it is written, in the macros of man(7).
type sheet struct{ strings.Builder }

// page returns the manual page of a command. Help texts are kept as they are: paragraphs are
// filled, indented lines are not.
func page(c *cobra.Command) []byte {
	c.InitDefaultHelpFlag()
	var s sheet
	name := pageName(c)
	s.macro("TH", strings.ToUpper(name), "1", "", c.Root().Name()+" "+version.Get().Version, "uetkit")
	s.macro("SH", "NAME")
	s.line(name + ` \- ` + roff(c.Short))
	s.macro("SH", "SYNOPSIS")
	use := c.UseLine()
	if c.HasAvailableFlags() && !strings.Contains(use, "[flags]") {
		use += " [flags]"
	}
	s.line(roff(use))
	s.macro("SH", "DESCRIPTION")
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	s.text(text)
	s.commands(c)
	s.flags("OPTIONS", c.NonInheritedFlags())
	s.flags("OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		s.macro("SH", "EXAMPLES")
		s.text(c.Example)
	}
	s.also(c)
	return []byte(s.String())
}

func (s *sheet) line(text string) { fmt.Fprintf(s, "%s\n", text) }

func (s *sheet) macro(name string, args ...string) {
	s.WriteString("." + name)
	for _, a := range args {
		s.WriteString(` "` + strings.ReplaceAll(roff(a), `"`, `\(dq`) + `"`)
	}
	s.WriteString("\n")
}

func (s *sheet) commands(c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	s.macro("SH", "COMMANDS")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			s.macro("TP")
			s.line(`\fB` + roff(sub.Name()) + `\fR`)
			s.line(roff(sub.Short))
		}
	}
}

func (s *sheet) flags(title string, flags *pflag.FlagSet) {
	any := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if !any {
			s.macro("SH", title)
			any = true
		}
		s.macro("TP")
		head := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			head = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + head
		}
		unit, usage := pflag.UnquoteUsage(f)
		if unit != "" {
			head += ` \fI` + roff(unit) + `\fR`
		}
		s.line(head)
		if d := f.DefValue; d != "" && d != "0" && d != "false" && d != "[]" && d != "0s" {
			usage += " (default " + d + ")"
		}
		s.line(roff(usage))
	})
}

// text writes a help text.
func (s *sheet) text(text string) {
	literal := false
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case line == "" && !literal:
			s.macro("PP")
			continue
		case line != "" && indented && !literal:
			s.macro("RS", "2")
			s.macro("nf")
			literal = true
		case line != "" && !indented && literal:
			s.macro("fi")
			s.macro("RE")
			s.macro("PP")
			literal = false
		}
		s.line(roff(strings.TrimPrefix(line, "  ")))
	}
	if literal {
		s.macro("fi")
		s.macro("RE")
	}
}

// also names the pages of the commands beside, above and below.
func (s *sheet) also(c *cobra.Command) {
	var names []string
	if c.HasParent() {
		names = append(names, pageName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, pageName(sub))
		}
	}
	if len(names) == 0 {
		return
	}
	s.macro("SH", "SEE ALSO")
	for i, n := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		s.line(`\fB` + roff(n) + `\fR(1)` + end)
	}
}

// roff escapes a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
