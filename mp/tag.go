package mp

// The 64 bits of a tag on the wire, from the top: context of the communicator (16), rank of
// the sender in it (16), kind (2), tag (30).
const (
	tagBits  = 30
	kindBits = 2
	rankBits = 16
	ctxBits  = 16

	kindShift = tagBits
	rankShift = kindShift + kindBits
	ctxShift  = rankShift + rankBits

	tagMask  = 1<<tagBits - 1
	rankMask = (1<<rankBits - 1) << rankShift

	// MaxTag is the largest tag (MPI_TAG_UB).
	MaxTag = tagMask
	// MaxSize is the largest world.
	MaxSize = 1 << rankBits
)

// Wildcards of receives and probes.
const (
	AnySource = -1
	AnyTag    = -1
)

// The kinds of messages.
const (
	kindUser = iota // point to point
	kindColl        // a step of a collective
	kindPart        // what is behind the first part of a message that was cut
	kindNone        // no message: a receive of it waits for the end of a collective
)

func wireTag(ctx uint32, rank, kind, tag int) uint64 {
	return uint64(ctx)<<ctxShift | uint64(rank)<<rankShift | uint64(kind)<<kindShift | uint64(tag)
}

func wireRank(t uint64) int { return int(t >> rankShift & (1<<rankBits - 1)) }
func wireUser(t uint64) int { return int(t & tagMask) }

// match is the tag of a receive and the bits of it that it ignores.
func match(ctx uint32, src, kind, tag int) (bits, ignore uint64) {
	if src == AnySource {
		src, ignore = 0, rankMask
	}
	if tag == AnyTag {
		tag, ignore = 0, ignore|tagMask
	}
	return wireTag(ctx, src, kind, tag), ignore
}
