package cli

import (
	"net"
	"strings"

	"github.com/spf13/cobra"
)

// Values lets the shell complete the values of a flag from words.
func Values(c *cobra.Command, flag string, words ...string) {
	complete(c, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// Parts lets the shell complete what the parts of the value of a flag begin with, from words. A
// comma, && or || divides parts.
func Parts(c *cobra.Command, flag string, words ...string) {
	complete(c, flag, func(_ *cobra.Command, _ []string, said string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		before := said[:strings.LastIndexAny(said, ",&| ")+1]
		for _, w := range words {
			out = append(out, before+w)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// Lazy is Values with words that take time to find: they are asked for when the shell asks.
func Lazy(c *cobra.Command, flag string, words func() []string) {
	complete(c, flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return words(), cobra.ShellCompDirectiveNoFileComp
	})
}

// Interfaces lets the shell complete the value of a flag from the interfaces of this host.
func Interfaces(c *cobra.Command, flag string) {
	Lazy(c, flag, func() (names []string) {
		list, _ := net.Interfaces()
		for _, i := range list {
			names = append(names, i.Name)
		}
		return names
	})
}

// Files lets the shell complete the value of a flag from files with these endings, from all if
// there are none.
func Files(c *cobra.Command, flag string, endings ...string) {
	must(c.MarkFlagFilename(flag, endings...))
}

// Folders lets the shell complete the value of a flag from folders.
func Folders(c *cobra.Command, flag string) { must(c.MarkFlagDirname(flag)) }

// Free keeps the shell from offering files for flags whose values are something else.
func Free(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		complete(c, f, cobra.NoFileCompletions)
	}
}

// Args lets the shell complete arguments: the n-th one from places[n]; nil offers nothing. Behind
// them nothing is offered.
func Args(places ...[]string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(places) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return places[len(args)], cobra.ShellCompDirectiveNoFileComp
	}
}

// FilesOf lets the shell complete all arguments from files with these endings.
func FilesOf(endings ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}

func complete(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	must(c.RegisterFlagCompletionFunc(flag, f))
}

func must(err error) {
	if err != nil {
		panic("BUG: " + err.Error())
	}
}
