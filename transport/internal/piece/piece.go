// Package piece has the type that SES and PDS have in common: what of a message one packet
// carries. SES makes pieces, PDS keeps those whose packets are not answered and hands them
// back.
package piece

// A Piece is Len bytes at Off of a message. Up to four fields the compiler keeps in registers.
type Piece struct {
	Msg      uint32 // the message; its number says something to SES alone
	Off, Len uint32
	Kind     Kind
}

// A Kind says what a Piece is of.
type Kind uint8

// The kinds. Last goes with either of the others.
const (
	Data  Kind = 0
	Error Kind = 1    // the message was given up: MSG_ERROR
	Last  Kind = 0x80 // there will be none after it
)

// Last reports whether the message has no piece after p.
func (p Piece) Last() bool { return p.Kind&Last != 0 }

// Error reports whether p is a MSG_ERROR.
func (p Piece) Error() bool { return p.Kind&^Last == Error }
