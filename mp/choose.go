package mp

import "strconv"

// An Algorithm is a way to do a collective. 0 is for collectives that have one way only.
type Algorithm uint8

// The algorithms.
const (
	Dissemination Algorithm = iota + 1
	Binomial
	ScatterAllgather
	RecursiveDoubling
	Ring
	Rabenseifner
	Linear
	Pairwise
	Bruck
	Chain
	algorithms
)

var algorithmNames = [algorithms]string{
	"none", "dissemination", "binomial", "scatter-allgather", "recursive-doubling", "ring", "rabenseifner", "linear", "pairwise", "bruck", "chain",
}

func (a Algorithm) String() string {
	if a >= algorithms {
		return "Algorithm(" + strconv.Itoa(int(a)) + ")"
	}
	return algorithmNames[a]
}

// A Call is what an algorithm is chosen by.
type Call struct {
	Kind  Kind
	Ranks int
	Bytes int // of a block: the vector of a reduction, what each rank gives of an Allgather
	Count int // elements of it
	// OneHost says that all ranks of the world are on one host, at loopback addresses: then it
	// counts how many bytes go in all, not how many each rank sends.
	OneHost bool
}

// Sizes at which the choice changes, in bytes.
const (
	shortBcast     = 64 << 10
	shortAllreduce = 16 << 10
	shortGather    = 4 << 10
	shortAllgather = 4 << 10
	pairAllreduce  = 64 << 10 // of two ranks
	midAllreduce   = 1 << 20
	shortAlltoall  = 32 << 10
)

// Choice is the algorithm that mp takes unless Config.Choose says otherwise.
func Choice(c Call) Algorithm {
	switch c.Kind {
	case KindBarrier:
		return Dissemination
	case KindBcast:
		if c.Bytes > shortBcast && c.Ranks > 3 && !c.OneHost {
			return ScatterAllgather
		}
		return Binomial
	case KindReduce:
		if c.Bytes > midAllreduce && c.Ranks > 2 && c.Count >= c.Ranks {
			return Ring
		}
		return Binomial
	case KindAllreduce:
		switch {
		case c.Bytes <= shortAllreduce || c.Ranks < 3 && c.Bytes <= pairAllreduce || c.Count < c.Ranks:
			return RecursiveDoubling
		case c.Ranks < 3: // each computes half, and segments overlap
			return Pairwise
		case c.Bytes <= midAllreduce:
			return Rabenseifner
		}
		return Ring
	case KindReduceScatter:
		return Ring
	case KindGather, KindScatter:
		if c.Bytes <= shortGather && c.Ranks > 3 {
			return Binomial
		}
		return Linear
	case KindAllgather:
		if c.Bytes <= shortAllgather {
			return Bruck
		}
		return Ring
	case KindAlltoall:
		if c.Bytes <= shortAlltoall {
			return Linear
		}
		return Pairwise
	case KindScan, KindExscan:
		return RecursiveDoubling
	}
	return 0
}
