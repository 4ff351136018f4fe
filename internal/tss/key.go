package tss

import "fmt"

// KeyLen is the length of every key of the sublayer, in bytes: AES-256.
const KeyLen = 32

// A Key is the secret of a secure domain. It hides itself from all that prints or encodes it
// (T40): fmt with every verb but %p, which go vet rejects here, and encoders that ask for text,
// JSON or bytes. fmt does not call methods of unexported fields, so a type with a Key in one
// must hide itself, as Domain does.
type Key [KeyLen]byte

const hidden = "tss.Key(hidden)"

func (k Key) String() string                 { return hidden }
func (k Key) GoString() string               { return hidden }
func (k Key) Format(f fmt.State, _ rune)     { _, _ = f.Write([]byte(hidden)) }
func (k Key) MarshalText() ([]byte, error)   { return []byte(hidden), nil }
func (k Key) MarshalJSON() ([]byte, error)   { return []byte(`"` + hidden + `"`), nil }
func (k Key) MarshalBinary() ([]byte, error) { return []byte(hidden), nil }
