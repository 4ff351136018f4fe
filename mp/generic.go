package mp

import (
	"context"
	"fmt"
	"unsafe"
)

// Send is Comm.Send of numbers.
func Send[T Number](ctx context.Context, c *Comm, s []T, dst, tag int) error {
	return c.Send(ctx, bytesOf(s), dst, tag)
}

// Ssend is Comm.Ssend of numbers.
func Ssend[T Number](ctx context.Context, c *Comm, s []T, dst, tag int) error {
	return c.Ssend(ctx, bytesOf(s), dst, tag)
}

// Isend is Comm.Isend of numbers.
func Isend[T Number](c *Comm, s []T, dst, tag int) (Request, error) {
	return c.Isend(bytesOf(s), dst, tag)
}

// Recv is Comm.Recv of numbers. A message that ends in the middle of one is an ErrElement.
func Recv[T Number](ctx context.Context, c *Comm, s []T, src, tag int) (Status, error) {
	st, err := c.Recv(ctx, bytesOf(s), src, tag)
	if err == nil {
		_, err = Count[T](st)
	}
	return st, err
}

// Irecv is Comm.Irecv of numbers.
func Irecv[T Number](c *Comm, s []T, src, tag int) (Request, error) {
	return c.Irecv(bytesOf(s), src, tag)
}

// Count is how many numbers a message had (MPI_Get_count).
func Count[T Number](st Status) (int, error) {
	var z T
	size := int(unsafe.Sizeof(z))
	if st.Len%size != 0 {
		return 0, &ErrElement{Len: st.Len, Size: size}
	}
	return st.Len / size, nil
}

// An ErrElement says that a message is not of the type that it was received as: its length is
// no multiple.
type ErrElement struct {
	Len, Size int
}

func (e *ErrElement) Error() string {
	return fmt.Sprintf("mp: a message of %d bytes was received as elements of %d", e.Len, e.Size)
}

// scratch returns memory of a communicator for n numbers. slot tells apart what is needed at
// the same time. Only who is in a collective calls.
func scratch[T Number](c *Comm, slot, n int) []T {
	var z T
	words := (n*int(unsafe.Sizeof(z)) + 7) / 8
	m := c.coll.scratch[slot]
	if cap(m) < words {
		m = make([]uint64, words)
		c.coll.scratch[slot] = m
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m[:cap(m)]))), max(n, 0))[:n:n]
}

// A span is the numbers of a block when n of them are divided into parts.
func span[T any](v []T, part, parts int) []T {
	return v[part*len(v)/parts : (part+1)*len(v)/parts]
}

// spans are the blocks from first up to before last.
func spans[T any](v []T, first, last, parts int) []T {
	return v[first*len(v)/parts : last*len(v)/parts]
}

// lengths fails if a slice of a collective has not the length that it needs.
func lengths(kind Kind, what string, have, want int) error {
	if have == want {
		return nil
	}
	return &ErrArg{kind.String(), what, have, fmt.Sprintf("needs a length of %d", want)}
}
