package uet_test

import (
	"testing"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/zero"
	"github.com/uetkit/uetkit/poll"
	"github.com/uetkit/uetkit/uet"
)

// An object that was declared and never opened refuses every call that can fail, and panics in
// none.
func TestZeroObjectsRefuse(t *testing.T) {
	zero.Refuse(t, func(err error) bool { return err != nil && fi.Of(err) != fi.EOTHER }, map[string]bool{
		// They need nothing of their object, or find nothing to do.
		"uet.Endpoint.AtomicValid": true, "uet.Endpoint.FetchAtomicValid": true, "uet.Endpoint.CompareAtomicValid": true, "uet.Domain.QueryAtomic": true, "uet.Domain.UnmapKey": true,
		"uet.Security.MarshalText": true, "uet.Security.Rekey": true, "uet.Security.Reload": true, "uet.Security.Close": true,
		"poll.Set.Poll": true, "poll.Set.Close": true, // a zero Set is an empty one
	},
		&uet.Fabric{}, &uet.Domain{}, &uet.Endpoint{}, &uet.Alias{}, &uet.PassiveEndpoint{}, &uet.ConnReq{}, &uet.MR{}, &uet.Security{},
		&cq.CQ{}, &eq.EQ{}, &cntr.Counter{}, &av.AV{}, &poll.Set{}, &poll.WaitSet{})
}
