package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/internal/cli"
)

// completeFlags lets the shell complete the values of the flags of a command, by what their rows
// say that they are.
func (p *params) completeFlags(c *cobra.Command) {
	for _, r := range p.rows {
		if v, ok := r.to.(*choice); ok {
			cli.Values(c, r.name, v.offered...)
			continue
		}
		switch _, isBool := r.to.(*bool); {
		case isBool:
		case r.unit == "INTERFACE":
			cli.Interfaces(c, r.name)
		case r.unit == "FOLDER":
			cli.Folders(c, r.name)
		case r.unit == "FILE":
			cli.Files(c, r.name)
		case strings.Contains(r.unit, "|"):
			cli.Values(c, r.name, strings.Split(r.unit, "|")...)
		case len(r.words) > 0:
			cli.Values(c, r.name, r.words...)
		case len(r.begins) > 0:
			cli.Parts(c, r.name, r.begins...)
		default:
			cli.Free(c, r.name)
		}
	}
}

// completeArgs lets the shell complete the arguments of a command.
func completeArgs(c *cobra.Command, t testDef) {
	switch {
	case len(t.ops) > 0 && strings.Contains(c.Use, "HOST"):
		c.ValidArgsFunction = cli.Args(nil, t.ops)
	case len(t.ops) > 0:
		c.ValidArgsFunction = cli.Args(t.ops)
	case strings.Contains(c.Use, ".json"):
		c.ValidArgsFunction = cli.FilesOf("json")
	case strings.Contains(c.Use, "FOLDER"): // all files, and so folders
	default:
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
}
