// Package scenarios embeds the scenario folders, so that the testbed's program works
// anywhere.
package scenarios

import "embed"

// FS has one folder per scenario, with README.md and scenario.toml.
//
//go:embed */README.md */scenario.toml
var FS embed.FS
