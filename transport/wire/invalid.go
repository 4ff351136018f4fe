// Package wire encodes and decodes every Ultra Ethernet Transport header: SES (UE 3.4), PDS
// (UE 3.5) and the security header of TSS (UE 3.7). It also has the CRC trailer, and the
// arithmetic of packet sequence numbers. Dump prints a packet on one line.
//
// Nothing here keeps state. Parse functions read the front of a slice, keep none of it and
// allocate nothing; Append methods append to a slice. Everything on the wire is big-endian.
//
// Reserved bits are sent as 0 and ignored on receipt: a parsed header never shows one, and
// Append panics if a field has one. (The fields cc_flags and pdc_info, which have names but
// no use yet, are shown.) Reserved values of a code (opcode, return code, NACK code, next
// header) are returned, and the reader decides what to do about them. Values that would
// make the header one of another kind (type, version, ctl_type, opcode of a response) are
// an error. Where fields share a place, flags and codes say which one is read and written.
package wire

// An Invalid says which field of which header is wrong.
type Invalid struct {
	Header string // "RUD/ROD request", "ACK", …
	Field  string // "length", "type", …
}

func (e *Invalid) Error() string { return "wire: " + e.Header + ": invalid " + e.Field }
