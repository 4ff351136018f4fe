package mp

// Name is the address of this rank's endpoint.
func (w *World) Name() string {
	a, err := w.ep.Name()
	if err != nil {
		return err.Error()
	}
	return a.String()
}

// WireTag is the tag of a message of the world in the provider.
func WireTag(rank, tag int) uint64 { return wireTag(0, rank, kindUser, tag) }

// JobID is that of this rank's endpoint.
func (w *World) JobID() uint32 { return w.cfg.Endpoint.JobID }

// Vanish closes the endpoint without a word, as a process that is killed does.
func (w *World) Vanish() error {
	w.closed.Store(true)
	w.cancelAll(ErrClosed)
	return w.shut()
}

// Parts is how many messages collectives of this rank on c have sent.
func (c *Comm) Parts() int {
	c.coll.mu.Lock()
	defer c.coll.mu.Unlock()
	return c.coll.parts + c.coll.away
}

// CutAt makes the world cut messages that are longer than n bytes.
func (w *World) CutAt(n int) { w.most = n }

// MaxSends is how many sends the provider has at most.
const MaxSends = maxSends

// Room is how many more sends the provider takes now.
func (w *World) Room() int {
	n, err := w.ep.TxSizeLeft()
	if err != nil {
		return -1
	}
	return n
}

// HearBye is what a rank does that hears that another one leaves.
func (w *World) HearBye(rank byte) { w.heard(append([]byte{ctlBye, rank}, make([]byte, byeLen-1)...)) }

// HearBroken is what a rank does that hears of another one why collectives on c broke.
func (c *Comm) HearBroken(err error) { c.w.heard(c.brokenBy(err)) }

// Copied is how many bytes of copied sends of this rank are not acknowledged.
func (c *Comm) Copied() int { return int(c.w.copied.Load()) }

// AheadMax and EagerMax are bounds of what collectives copy.
const (
	AheadMax = aheadMax
	EagerMax = eagerMax
)
