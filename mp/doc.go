// Package mp passes messages between ranks, with the words and the semantics of MPI.
//
//	w, err := mp.Init(ctx, mp.Config{}) // rank, size and peers from whatever launched the program
//	c := w.World()                      // the communicator of all ranks
//	x := []float64{float64(c.Rank())}
//	err = mp.Allreduce(ctx, c, x, x, mp.Sum)
//	err = w.Close(ctx)
//
// Each process has one endpoint of package uet. Messages are tagged messages of it, ordered
// by FI_ORDER_SAS, and the provider matches them: messages of one source, tag and
// communicator never overtake each other.
//
// All calls may be made from any goroutine. There is no goroutine of mp's own, but one for each
// nonblocking collective until it is over: who waits drives the endpoint for all others, and
// hands over when it leaves. A wait ends with its context; the buffer is the caller's again
// then, and messages between two ranks go on.
//
// A world has no global state, so a process may have several.
package mp
