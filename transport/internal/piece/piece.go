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
type Kind uint16

// The kinds. Recut, Void and Last are combined with the others.
const (
	Data  Kind = 0
	Error Kind = 1 // the message was given up: MSG_ERROR
	// Noop carries nothing: a NO_OP, which shows the target that this side is there (F7).
	Noop Kind = 2
	// Ask carries nothing: it asks for a part of a read.
	Ask Kind = 4
	// Return is read data, which goes from the target of a PDC to its initiator.
	Return Kind = 8
	// End carries nothing: no more follows of a message that its target has deferred.
	End Kind = 0x10
	// Recut is a part of a piece that was handed out before and is cut anew (F7).
	Recut Kind = 0x20
	// Void means that the piece is too long for the path. In its place, under the PSN that it
	// used, goes a request without payload that every target refuses. The answer says whether
	// the target had the piece before (F7).
	Void Kind = 0x40
	Last Kind = 0x80 // the message has no piece after this one
	// Atomic is an atomic operation, which is never cut.
	Atomic Kind = 0x100
	// Small means the small header. Of read data it says that it answers a request without a message id. Of
	// a write or a read it is combined with Last.
	Small Kind = 0x200
	// Loan is a message whose bytes the target reads: it carries none, and says where they are.
	Loan Kind = 0x400
)

// Last reports whether the message has no piece after p.
func (p Piece) Last() bool { return p.Kind&Last != 0 }

// Error reports whether p is a MSG_ERROR.
func (p Piece) Error() bool { return p.Kind&^Last == Error }

// Returns reports whether p is read data, or goes in place of it.
func (p Piece) Returns() bool { return p.Kind&^(Last|Void|Small) == Return }

// Void reports whether another request goes in place of p.
func (p Piece) Void() bool { return p.Kind&Void != 0 }
