package fi

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestErrnoIs(t *testing.T) {
	// errors.Is finds an Errno, also in a wrapped error.
	wrapped := fmt.Errorf("post: %w", EAGAIN)
	if !errors.Is(wrapped, EAGAIN) || errors.Is(wrapped, EINVAL) {
		t.Error("EAGAIN is not found behind a wrapped error")
	}
	if !errors.Is(ECANCELED, context.Canceled) || !errors.Is(ETIMEDOUT, context.DeadlineExceeded) {
		t.Error("the errors of contexts do not match")
	}
	if errors.Is(EIO, context.Canceled) || errors.Is(EAGAIN, context.DeadlineExceeded) {
		t.Error("the errors of contexts match what they are not")
	}
	if Of(wrapped) != EAGAIN || Of(nil) != Success || Of(errors.New("x")) != EOTHER {
		t.Error("Of does not find the number")
	}
}

func TestErrnoNumbers(t *testing.T) {
	// libfabric's own numbers begin at 256, in this order.
	own := []Errno{
		EOTHER, ETOOSMALL, EOPBADSTATE, EAVAIL, EBADFLAGS, ENOEQ, EDOMAIN, ENOCQ, ECRC,
		ETRUNC, ENOKEY, ENOAV, EOVERRUN, ENORX, ENOMR, EFIREWALLADDR,
	}
	for i, e := range own {
		if int(e) != 256+i {
			t.Errorf("%v is %d, want %d", e, int(e), 256+i)
		}
	}
	seen := map[string]Errno{}
	for e, text := range errnoText {
		if text == "" || e.Error() != text {
			t.Errorf("error %d says %q", int(e), e.Error())
		}
		if other, ok := seen[text]; ok {
			t.Errorf("%d and %d both say %q", int(e), int(other), text)
		}
		seen[text] = e
	}
	if s := Errno(9999).Error(); s != "fi: error 9999" {
		t.Error(s)
	}
}

func TestErrnoIsNotAllocated(t *testing.T) {
	// Read and post return them on their hot paths, so they must not allocate.
	var err error
	if n := testing.AllocsPerRun(100, func() {
		for _, e := range []Errno{EAGAIN, EAVAIL} {
			if e == EAVAIL {
				err = EAVAIL
			} else {
				err = EAGAIN
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for %v", n, err)
	}
}

func TestFlagBits(t *testing.T) {
	// The bits are those of rdma/fabric.h.
	for _, c := range []struct {
		flag Flags
		bit  int
		name string
	}{
		{Msg, 1, "MSG"},
		{RMA, 2, "RMA"},
		{Tagged, 3, "TAGGED"},
		{Atomic, 4, "ATOMIC"},
		{Multicast, 5, "MULTICAST"},
		{Collective, 6, "COLLECTIVE"},
		{Read, 8, "READ"},
		{Write, 9, "WRITE"},
		{Recv, 10, "RECV"},
		{Send, 11, "SEND"},
		{Transmit, 11, "SEND"},
		{RemoteRead, 12, "REMOTE_READ"},
		{RemoteWrite, 13, "REMOTE_WRITE"},
		{MultiRecv, 16, "MULTI_RECV"},
		{RemoteCQData, 17, "REMOTE_CQ_DATA"},
		{More, 18, "MORE"},
		{Peek, 19, "PEEK"},
		{Trigger, 20, "TRIGGER"},
		{Fence, 21, "FENCE"},
		{Completion, 24, "COMPLETION"},
		{Event, 24, "COMPLETION"},
		{Inject, 25, "INJECT"},
		{InjectComplete, 26, "INJECT_COMPLETE"},
		{TransmitComplete, 27, "TRANSMIT_COMPLETE"},
		{DeliveryComplete, 28, "DELIVERY_COMPLETE"},
		{Affinity, 29, "AFFINITY"},
		{CommitComplete, 30, "COMMIT_COMPLETE"},
		{MatchComplete, 31, "MATCH_COMPLETE"},
		{AVUserID, 41, "AV_USER_ID"},
		{FirewallAddr, 42, "FIREWALL_ADDR"},
		{Peer, 43, "PEER"},
		{XPU, 44, "XPU"},
		{TaggedDirectedRecv, 45, "TAGGED_DIRECTED_RECV"},
		{TaggedMultiRecv, 46, "TAGGED_MULTI_RECV"},
		{HMEM, 47, "HMEM"},
		{ExactDirectedRecv, 48, "EXACT_DIRECTED_RECV"},
		{RMAPmem, 49, "RMA_PMEM"},
		{SourceErr, 50, "SOURCE_ERR"},
		{LocalComm, 51, "LOCAL_COMM"},
		{RemoteComm, 52, "REMOTE_COMM"},
		{SharedAV, 53, "SHARED_AV"},
		{ProvAttrOnly, 54, "PROV_ATTR_ONLY"},
		{NumericHost, 55, "NUMERICHOST"},
		{RMAEvent, 56, "RMA_EVENT"},
		{Source, 57, "SOURCE"},
		{AuthKey, 57, "SOURCE"},
		{NamedRxCtx, 58, "NAMED_RX_CTX"},
		{Discard, 58, "NAMED_RX_CTX"},
		{SyncErr, 58, "NAMED_RX_CTX"},
		{DirectedRecv, 59, "DIRECTED_RECV"},
		{Claim, 59, "DIRECTED_RECV"},
		{SelectiveCompletion, 59, "DIRECTED_RECV"},
		{Symmetric, 59, "DIRECTED_RECV"},
	} {
		if c.flag != 1<<c.bit || c.flag.String() != c.name {
			t.Errorf("%s is %v, want bit %d", c.name, c.flag, c.bit)
		}
	}
	if Levels.String() != "INJECT_COMPLETE|TRANSMIT_COMPLETE|DELIVERY_COMPLETE|COMMIT_COMPLETE|MATCH_COMPLETE" {
		t.Error(Levels)
	}
}

func TestOtherBits(t *testing.T) {
	// The bits are those of fi_getinfo(3) and the pages it refers to.
	for got, want := range map[string]string{
		Order(1<<9 - 1).String():                "RAR|RAW|RAS|WAR|WAW|WAS|SAR|SAW|SAS",
		Order(0xff << 32).String():              "RMA_RAR|RMA_RAW|RMA_WAR|RMA_WAW|ATOMIC_RAR|ATOMIC_RAW|ATOMIC_WAR|ATOMIC_WAW",
		MRMode(1<<13 - 1<<2).String():           "MR_LOCAL|MR_RAW|MR_VIRT_ADDR|MR_ALLOCATED|MR_PROV_KEY|MR_MMU_NOTIFY|MR_RMA_EVENT|MR_ENDPOINT|MR_HMEM|MR_COLLECTIVE|MR_XPU_DESC",
		(ModeContext | ModeContext2).String():   "CONTEXT2|CONTEXT",
		(ModeMsgPrefix | ModeRxCQData).String(): "RX_CQ_DATA|MSG_PREFIX",
		(Send | Tagged | Flags(1)).String():     "TAGGED|SEND|0x1",
		Flags(0).String() + Order(0).String():   "00",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEnumerations(t *testing.T) {
	// The values count from 0 in this order.
	for _, c := range []struct{ got, want string }{
		{list(5, func(i int) any { return CQFormat(i) }), "FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA FI_CQ_FORMAT_TAGGED"},
		{list(7, func(i int) any { return WaitObj(i) }), "FI_WAIT_NONE FI_WAIT_UNSPEC FI_WAIT_SET FI_WAIT_FD FI_WAIT_MUTEX_COND FI_WAIT_YIELD FI_WAIT_POLLFD"},
		{list(2, func(i int) any { return WaitCond(i) }), "FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD"},
		{list(7, func(i int) any { return EQEvent(i) }), "FI_NOTIFY FI_CONNREQ FI_CONNECTED FI_SHUTDOWN FI_MR_COMPLETE FI_AV_COMPLETE FI_JOIN_COMPLETE"},
		{list(4, func(i int) any { return EpType(i) }), "FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM FI_EP_RDM"},
		{list(3, func(i int) any { return AVType(i) }), "FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE"},
		{list(3, func(i int) any { return ResourceMgmt(i) }), "FI_RM_UNSPEC FI_RM_DISABLED FI_RM_ENABLED"},
		{list(2, func(i int) any { return CntrEvents(i) }), "FI_CNTR_EVENTS_COMP FI_CNTR_EVENTS_BYTES"},
		{list(4, func(i int) any { return Progress(i) }), "FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_PROGRESS_CONTROL_UNIFIED"},
		{list(6, func(i int) any { return Threading(i) }), "FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_FID FI_THREAD_DOMAIN FI_THREAD_COMPLETION FI_THREAD_ENDPOINT"},
		{fmt.Sprintln(FormatUnspec, FormatSockaddr, FormatSockaddr4, FormatSockaddr6, FormatStr, FormatSockaddrs), "FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_ADDR_STR FI_SOCKADDR_IP\n"},
		{fmt.Sprint(uint32(FormatSockaddr6), uint32(FormatStr), uint32(FormatSockaddrs)), "3 9 17"},
		{CQFormat(77).String(), "unknown (77)"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if AddrUnspec != 1<<64-1 || AddrNotAvail != AddrUnspec || KeyNotAvail != 1<<64-1 {
		t.Error("special values moved")
	}
}

func list(n int, value func(int) any) string {
	s := make([]any, n)
	for i := range s {
		s[i] = value(i)
	}
	line := fmt.Sprintln(s...)
	return line[:len(line)-1]
}
