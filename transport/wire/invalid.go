// Package wire is the bytes of every Ultra Ethernet Transport header: UE 1.0.1
// §3.4 (SES) and §3.5 (PDS), and the arithmetic of packet sequence numbers.
//
// Nothing here remembers anything. Parse functions take the bytes at the front
// of a slice, keep none of them and allocate nothing; Append methods append to
// one. Everything on the wire is big-endian.
package wire

// An Invalid says which field of which header is at fault.
type Invalid struct {
	Header string // "RUD/ROD request", "ACK", …
	Field  string // "length", "type", …
}

func (e *Invalid) Error() string { return "wire: " + e.Header + ": invalid " + e.Field }
