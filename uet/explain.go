package uet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/fi"
)

// A Reason says why GetInfo refuses something, and what to do.
type Reason struct {
	// Interface is the interface (the domain) that is refused. It is "" if everything is
	// refused and GetInfo returns nothing.
	Interface string `json:"interface,omitempty"`
	// Field is the field of Info that causes the refusal: "Caps", "Ep.Type", "Tx.OpFlags",
	// "Config.PayloadMTU", …; "Domain" if it is the state of the interface.
	Field string `json:"field"`
	// Asked is what the hints ask for, Have what is available; "" says nothing.
	Asked string `json:"asked,omitempty"`
	Have  string `json:"have,omitempty"`
	// Why and Mend are one sentence each, without a full stop.
	Why  string `json:"why"`
	Mend string `json:"mend"`
}

func (r Reason) String() string {
	s := r.Field
	if r.Interface != "" {
		s = r.Interface + ": " + s
	}
	if r.Asked != "" {
		s += " " + r.Asked
	}
	if r.Have != "" {
		s += " (there is " + r.Have + ")"
	}
	return s + ": " + r.Why + "; " + r.Mend
}

// An InfoError is the error of GetInfo when nothing meets the hints. It is fi.ENODATA by errors.Is.
type InfoError struct {
	// Reasons are what Explain returns, with the node of the call.
	Reasons []Reason
}

// saidReasons is how many reasons the text of an InfoError has.
const saidReasons = 8

// Error names the hints that cannot be met, or, if all can be met somewhere, what is missing at
// each interface.
func (e *InfoError) Error() string {
	general := slices.ContainsFunc(e.Reasons, func(r Reason) bool { return r.Interface == "" && r.Why != noInterface })
	var alike []Reason
	for _, r := range e.Reasons {
		if general != (r.Interface == "") || r.Why == noInterface {
			continue
		}
		i := slices.IndexFunc(alike, func(o Reason) bool {
			return o.Field == r.Field && o.Asked == r.Asked && o.Why == r.Why && o.Mend == r.Mend
		})
		if i < 0 {
			alike = append(alike, r)
			continue
		}
		o := &alike[i]
		o.Interface, o.Have = listed(o.Interface, r.Interface), listed(o.Have, r.Have)
	}
	// The state of an interface that the hints may not even mean comes last.
	slices.SortStableFunc(alike, func(a, b Reason) int { return boolOrder(a.Field == "Domain", b.Field == "Domain") })
	var said []string
	left := max(0, len(alike)-saidReasons)
	for _, r := range alike[:len(alike)-left] {
		said = append(said, r.String())
	}
	if left > 0 {
		said = append(said, fmt.Sprintf("and %d more, which Explain has", left))
	}
	if len(said) == 0 {
		said = []string{"this host has no network interface"}
	}
	return "nothing meets the hints: " + strings.Join(said, ". ")
}

// listed adds a word to a list, unless it is the last one there.
func listed(list, word string) string {
	if word == "" || list == word || strings.HasSuffix(list, ", "+word) {
		return list
	}
	return list + ", " + word
}

// Unwrap returns fi.ENODATA.
func (e *InfoError) Unwrap() error { return fi.ENODATA }

// noInterface is the reason beside those of each interface.
const noInterface = "no interface serves the hints"

// Explain returns the reasons why GetInfo, with these hints and no node, offers less or
// nothing: hints that cannot be met, and interfaces that are unusable or do not meet them.
// It has a Reason without an Interface exactly if GetInfo returns nothing. It uses
// GetInfo's own code to decide. To ask about a peer, set hints.DestAddr.
func Explain(hints *Info) []Reason {
	var why reasons
	if _, err := getInfo("", "", 0, hints, &why); err != nil && !errors.Is(err, fi.ENODATA) {
		why.refuse("Domain", "", err, "the system does not tell its network interfaces", "look at what the system says (ip addr show)")
	}
	return why.list
}

// reasons collects the reasons for refusals.
type reasons struct{ list []Reason }

// refused reports whether everything is refused.
func (r *reasons) refused() bool {
	return slices.ContainsFunc(r.list, func(x Reason) bool { return x.Interface == "" })
}

// err returns fi.EINVAL with the first reason why everything is refused.
func (r *reasons) err() error {
	for _, x := range r.list {
		if x.Interface == "" {
			return fmt.Errorf("%v: %w", x, fi.EINVAL)
		}
	}
	return nil
}

func (r *reasons) refuse(field string, asked, have any, why, mend string) {
	r.refuseAt("", field, asked, have, why, mend)
}

func (r *reasons) refuseAt(iface, field string, asked, have any, why, mend string) {
	r.list = append(r.list, Reason{iface, field, fmt.Sprint(asked), fmt.Sprint(have), why, mend})
}

// had removes the reasons for single addresses of an interface that meets the hints with
// another address.
func (r *reasons) had(iface string) {
	r.list = slices.DeleteFunc(r.list, func(x Reason) bool { return x.Interface == iface })
}

// none adds the reason that no interface is left.
func (r *reasons) none(hints *Info, ifaces []netInterface) {
	if name := hints.Domain.Name; name != "" && !slices.ContainsFunc(ifaces, func(l netInterface) bool { return l.name == name }) {
		var names []string
		for _, l := range ifaces {
			names = append(names, l.name)
		}
		r.refuse("Domain.Name", name, strings.Join(names, ", "), "this host has no interface of that name", "leave Domain.Name out, or name one of these")
		return
	}
	r.refuse("Domain", hints.Domain.Name, "", noInterface, "see the reason of each interface")
}

// caps refuses the capabilities that are not available, each with a reason of its own.
func (r *reasons) caps(field string, want, there fi.Caps) {
	for bad := want &^ there; bad != 0; bad &= bad - 1 {
		c := bad & -bad
		n, ok := notOffered[c]
		if !ok {
			n = refusal{"there is no such capability here", "ask for " + there.String() + ", or leave " + field + " 0"}
		}
		switch exists := (primaryCaps|secondaryCaps)&c != 0; {
		case exists && field == "Caps":
			n = refusal{"datagrams do not have it", "use FI_EP_RDM, or leave it out"}
		case exists:
			n = refusal{"it is no capability of this object", "ask for it in Caps alone"}
		}
		r.refuse(field, c, "", n.why, n.mend)
	}
}

// within refuses capabilities of one direction: those that do not belong to it, and those
// that the endpoint as a whole does not have.
func (r *reasons) within(field string, want, direction, all fi.Caps) {
	r.caps(field, want, direction)
	if bad := want & direction &^ all; bad != 0 {
		r.refuse(field, bad, all, "a direction has no capability that the endpoint lacks", "ask for it in Caps as well, or leave "+field+" 0")
	}
}

// opFlags refuses default flags, each with a reason of its own.
func (r *reasons) opFlags(field string, want, there fi.Flags) {
	for bad := want &^ there; bad != 0; bad &= bad - 1 {
		f := bad & -bad
		n, ok := noFlag[f]
		switch {
		case ok:
		case f&fi.Levels != 0:
			n = refusal{"nothing answers a datagram", "use FI_EP_RDM, or leave it out"}
		default:
			n = refusal{"it cannot be a default of the operations of this direction", "give it with the call that needs it, or leave " + field + " 0"}
		}
		r.refuse(field, f, there, n.why, n.mend)
	}
}

func (r *reasons) order(field string, want, there fi.Order) {
	if bad := want &^ there; bad != 0 && there == 0 {
		r.refuse(field, bad, there, "datagrams may arrive in any order", "leave "+field+" 0, or use FI_EP_RDM")
	} else if bad != 0 {
		r.refuse(field, bad, there, "there is no such order", "take bits of FI_ORDER_…, or leave "+field+" 0")
	}
}

func (r *reasons) tclass(field string, c fi.TClass) {
	if _, ok := c.DSCP(); !ok {
		r.refuse(field, fmt.Sprintf("%#x", uint32(c)), "", "there is no such traffic class", "take one of FI_TC_…, one made of a DSCP, or 0")
	}
}

func (r *reasons) atMost(field string, asked, most int, why, mend string) {
	r.atLeast0(field, asked)
	if asked > most {
		r.refuse(field, asked, most, why, mend)
	}
}

func (r *reasons) atLeast0(field string, asked int) {
	if asked < 0 {
		r.refuse(field, asked, "", "it is negative", "leave "+field+" 0 for the default")
	}
}

// among refuses a value that is not in an enumeration.
func (r *reasons) among(field string, asked, last uint8) {
	if asked > last {
		r.refuse(field, asked, "", "there is no such model", "leave "+field+" 0 for the default")
	}
}

func (r *reasons) key(field string, key []byte) {
	if _, err := jobOf(key); err != nil {
		r.refuse(field, fmt.Sprintf("%d bytes", len(key)), "3 or 4 bytes, 24 bits", "an authorization key is a JobID", "give the JobID in 3 bytes, the highest first; Config.Security is what keeps others out")
	}
}

type refusal struct{ why, mend string }

const (
	noContexts    = "scalable endpoints are not offered"
	moreEndpoints = "open more endpoints, and bind them to the same queues"
)

// notOffered are capabilities that a libfabric program may ask for.
var notOffered = map[fi.Caps]refusal{
	fi.Multicast:    {"UET is unicast", "send to each peer"},
	fi.Collective:   {"collectives are the business of a layer above", "build them of messages"},
	fi.HMEM:         {"a user-space UDP transport reads and writes host memory only", "copy to host memory first"},
	fi.XPU:          {"a user-space UDP transport reads and writes host memory only", "copy to host memory first"},
	fi.NamedRxCtx:   {noContexts, moreEndpoints},
	fi.SharedAV:     {"an address vector belongs to one process", "insert the addresses in each process"},
	fi.Trigger:      {"operations that a counter starts are not built yet", "wait for the counter (cntr.Wait), then post"},
	fi.FirewallAddr: {"addresses have one form whether there is a firewall or not", "leave it out"},
	fi.Peer:         {"there are no providers below or above this one", "leave it out"},
}

// noFlag are the default flags of operations that are not offered.
var noFlag = map[fi.Flags]refusal{
	fi.CommitComplete: {"messages and reads would have it too, which are never durable", "give it to each call of WriteMsg or AtomicMsg that is to be durable"},
}
