// Package cli has what the command lines of all programs share: the version, completion of the
// values of flags, and manual pages.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/internal/version"
)

// Version gives a program the flag --version. It has no short form: -v is often taken.
func Version(root *cobra.Command) {
	root.Version = version.Line(root.Name())
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print version, commit and the revision of the specification")
}
