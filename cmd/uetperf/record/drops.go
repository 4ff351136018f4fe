package record

import (
	"cmp"
	"slices"
)

// A Drop is a number of datagrams that an end threw away for one reason.
type Drop struct {
	Reason string
	Count  uint64
	// Harmless says that such drops belong to the ordinary life of a test: what was in them is
	// known already, or is sent again.
	Harmless bool
	// What says what was in them, and for those that are not harmless what to look at.
	What string
}

// meanings are the reasons of drops. The words are those of transport.DropReason, and "kernel".
var meanings = map[string]Drop{
	"stale":   {Harmless: true, What: "acknowledgements that newer ones overtook, or that came twice"},
	"no_pdc":  {Harmless: true, What: "late packets of contexts that were closed meanwhile, as at the end of each test"},
	"trimmed": {Harmless: true, What: "packets that a switch cut; they are sent again"},
	"unsent":  {Harmless: true, What: "acknowledgements of what this end never sent: meant for an earlier endpoint at its port"},
	"limit":   {Harmless: true, What: "packets beyond a bound, such as messages without a receive; they are sent again"},
	"kernel":  {What: "the socket's receive buffer was full; they are sent again: larger buffers (uetperf doctor), a smaller window or fewer streams"},
	"crc":     {What: "bytes that changed on the way; they are sent again: look at the network, unless --impair corrupts"},
	"rate":    {What: "answers to packets of contexts that are not here, beyond 10 000 a second: somebody else sends to this port"},
	"short":   {What: "datagrams that are shorter than their headers: somebody else sends to this port, or the network cuts"},
	"type":    {What: "datagrams that are no packets of UET: somebody else sends to this port"},
	"next_hdr": {
		What: "packets whose headers contradict: another implementation, or bytes that changed with --crc off",
	},
	"header":  {What: "packets with a field that is wrong: another implementation, or bytes that changed with --crc off"},
	"length":  {What: "packets whose lengths contradict: another implementation, or bytes that changed with --crc off"},
	"source":  {What: "packets of a context that came from another address: NAT or a relay in between changes addresses"},
	"unknown": {What: "packets of sources that are not in the address vector: somebody else sends to this port"},
	"self":    {What: "packets that seem to come from this end itself: somebody forges them, or the network returns them"},
	"clear":   {What: "packets in clear, though this end is secured: give both ends --sec"},
	"secured": {What: "sealed packets, though this end is not secured: give both ends --sec"},
	"auth":    {What: "sealed packets that do not verify: changed on the way, forged, or the two ends have different keys"},
	"sdi":     {What: "sealed packets of another secure domain: somebody else sends to this port"},
	"key":     {What: "packets sealed by a key that this end does not have: give both ends the same --keys FOLDER"},
	"epoch":   {What: "packets sealed in an epoch that is over: late by minutes, or replayed"},
	"binding": {What: "sealed packets of a member that may not send here: forged, or replayed"},
	"replay":  {What: "sealed packets that came before: the network repeats them, or somebody replays them"},
}

// closedRate is "rate" beside at least as many "no_pdc": what was not answered was late, too. Tests
// that open a context for each message (--churn) have such bursts.
var closedRate = Drop{Harmless: true, What: "answers to late packets of contexts that were closed meanwhile, beyond 10 000 a second; the other end asks again"}

// Dropped lists what an end threw away: first what is not harmless, then by number.
func (c *Counters) Dropped() []Drop {
	var out []Drop
	for reason, n := range c.Drops {
		if n == 0 {
			continue
		}
		d, ok := meanings[reason]
		if !ok {
			d.What = "a reason that this release does not know"
		}
		if reason == "rate" && c.Drops["no_pdc"] >= n {
			d = closedRate
		}
		d.Reason, d.Count = reason, n
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Drop) int {
		switch {
		case a.Harmless != b.Harmless && b.Harmless:
			return -1
		case a.Harmless != b.Harmless:
			return 1
		}
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
