package uet

import (
	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/internal/door"
)

// The provider's side of queues, counters and address vectors, which their packages hide
// from users (internal/door).
type (
	completions = door.Completions[cq.Entry, cq.Error]
	batch       = door.Batch[cq.Entry, cq.Error]
	reporter    = door.Reporter[eq.Entry, eq.Error]
)

func completionsOf(q *cq.CQ) completions { return door.CQ(q).(completions) }

func countingOf(c *cntr.Counter) door.Counting { return door.Counter(c) }

func referencesOf(v *av.AV) door.References { return door.AV(v) }

// reporterOf binds an object to an event queue and reserves that many places.
func reporterOf(q *eq.EQ, places int) (reporter, error) {
	return door.EQ(q).(door.Events[eq.Entry, eq.Error]).Bind(places)
}
