// Package wire is the bytes of every Ultra Ethernet Transport header: SES (UE 3.4),
// PDS (UE 3.5) and the security header of TSS (UE 3.7), the CRC behind them, and
// the arithmetic of packet sequence numbers. Dump tells a packet in one line.
//
// Nothing here remembers anything. Parse functions take the bytes at the front
// of a slice, keep none of them and allocate nothing; Append methods append to
// one. Everything on the wire is big-endian.
//
// Reserved bits are sent as zero and not looked at on receipt: a parsed header
// never shows one, and Append panics over a field with one. (cc_flags and
// pdc_info, which have a name but no use yet, are shown.) Reserved values of a
// code (opcode, return code, NACK code, next header) are handed on, because what
// to do about them is the reader's business; a header that they make another
// kind of (type, version, ctl_type, opcode of a response) is refused. Of fields
// that share a place only the one that flags and codes mean is read and written.
package wire

// An Invalid says which field of which header is at fault.
type Invalid struct {
	Header string // "RUD/ROD request", "ACK", …
	Field  string // "length", "type", …
}

func (e *Invalid) Error() string { return "wire: " + e.Header + ": invalid " + e.Field }
