//go:build pmix

package main

import _ "github.com/uetkit/uetkit/mp/pmix"
