// Package images has the sources of the container images. They are built from scratch;
// nothing is pulled.
package images

import _ "embed"

//go:embed host.Dockerfile
var Host []byte

//go:embed switch.Dockerfile
var Switch []byte
