// Package piece has the type that SES and PDS share: the part of a message that one packet
// carries. SES makes pieces. PDS keeps each piece until its packet is finished, and hands
// it back.
package piece

// A Piece is Len bytes of a message from Off on. It has four fields because the compiler
// keeps structs of up to four fields in registers.
type Piece struct {
	Msg      uint32 // the message, a number that only SES interprets
	Off, Len uint32
	Kind     Kind
}

// A Kind says what a Piece carries.
type Kind uint8

// The kinds. Last is combined with Data or Error.
const (
	Data  Kind = 0
	Error Kind = 1    // the message was given up: MSG_ERROR
	Last  Kind = 0x80 // the message has no piece after this one
)

// Last reports whether the message has no piece after p.
func (p Piece) Last() bool { return p.Kind&Last != 0 }

// Error reports whether p is a MSG_ERROR.
func (p Piece) Error() bool { return p.Kind&^Last == Error }
