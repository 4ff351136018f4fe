package main

import (
	"encoding/hex"
)

// sealedArgs are the peer's settings for uetkit's cluster key of generation 1: the key is that of the
// secure domain 1, and the association number is the generation's lowest bit.
func sealedArgs() args {
	return args{"key": hex.EncodeToString(clusterKey[:]), "sdi": 1, "an": 1, "ssi": 0x70656572}
}
