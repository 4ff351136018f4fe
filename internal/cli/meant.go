package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/internal/spelling"
)

// Meant is the end of an error about a word that is not in a list: ": did you mean WORD?" with the
// nearest one of it, or "" if none is near.
func Meant(word string, among ...string) string {
	if near := nearest(word, among); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

func nearest(word string, among []string) string {
	return spelling.Closest(strings.ToLower(word), among, max(min(3, len(word)), len(word)/2))
}

// MeantFlag is Meant for an error that may be about an unknown flag of a command.
func MeantFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var there []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			there = append(there, f.Name)
		}
	})
	if near := nearest(unknown.GetSpecifiedName(), there); near != "" {
		return ": did you mean --" + near + "?"
	}
	return ""
}
