// Package images has what the container images are made of, from scratch: nothing is
// pulled.
package images

import _ "embed"

//go:embed host.Dockerfile
var Host []byte

//go:embed switch.Dockerfile
var Switch []byte
