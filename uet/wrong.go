package uet

import "github.com/uetkit/uetkit/fi"

// A wrong is the error of a call that cannot work as it was made: an errno, and what is wrong and
// mends it. Each is made once, so that returning it costs nothing.
type wrong struct {
	errno fi.Errno
	text  string
}

func (w *wrong) Error() string { return "uet: " + w.text + ": " + w.errno.Error() }

// Unwrap returns the errno.
func (w *wrong) Unwrap() error { return w.errno }

// What may be wrong with more than one call.
var (
	errNotEnabled  error = &wrong{fi.EOPBADSTATE, "the endpoint is not enabled: bind its queues and its vector, then call Enable"} // R-EP-01
	errEnabled     error = &wrong{fi.EOPBADSTATE, "the endpoint is enabled: bind and set what it needs before Enable"}             // R-EP-05
	errClosed      error = &wrong{fi.EBADF, "the endpoint is closed: OpenEndpoint of its Domain opens another"}
	errZero        error = &wrong{fi.EBADF, "the endpoint is a zero value, which nobody opened: take one that OpenEndpoint of a Domain returns"}
	errUnopened    error = &wrong{fi.EOPBADSTATE, errZero.(*wrong).text} // errZero of calls that need an enabled endpoint
	errParent      error = &wrong{fi.EBADF, "what this is to be opened in is closed, or was never opened: GetInfo, OpenFabric and OpenDomain come first"}
	errParentGone  error = &wrong{fi.EBADF, "it is closed already, or was never opened"}
	errParentBusy  error = &wrong{fi.EBUSY, "something that was opened in it is still open: close that first"}
	errQueueGone   error = &wrong{fi.EBADF, "the queue, counter or vector is closed, or was never opened: open one in the endpoint's domain (event queues in its fabric)"}
	errForeign     error = &wrong{fi.EDOMAIN, "the queue, counter or vector is not of the endpoint's domain (event queues: fabric): open it there, not by New of its package"}
	errNoInfo      error = &wrong{fi.EINVAL, "the Info is nil: take one that GetInfo returns"}
	errNoObject    error = &wrong{fi.EINVAL, "there is nothing to bind: nil was given"}
	errBoundTwice  error = &wrong{fi.EINVAL, "the endpoint has one already for this purpose: bind one only"}
	errCQFlags     error = &wrong{fi.EBADFLAGS, "BindCQ takes fi.Transmit, fi.Recv or both, and fi.SelectiveCompletion besides"}
	errCntrFlags   error = &wrong{fi.EBADFLAGS, "BindCntr takes at least one of fi.Send, fi.Recv, fi.Read, fi.Write, fi.RemoteRead, fi.RemoteWrite"}
	errNoEvents    error = &wrong{fi.EOPNOTSUPP, "counting what peers do needs the capability fi.RMAEvent: ask for it in the Caps of the hints"} // R-CNTR-03
	errNoCQ        error = &wrong{fi.ENOCQ, "Enable: no completion queue for what the endpoint may do: BindCQ for fi.Transmit and for fi.Recv comes first"}
	errNoEQ        error = &wrong{fi.ENOEQ, "Enable: an FI_EP_MSG endpoint tells of its connection by an event queue: BindEQ comes first"}
	errNoAV        error = &wrong{fi.ENOAV, "Enable: no address vector, which names peers: BindAV comes first"}
	errNoPeer      error = &wrong{fi.EINVAL, "no address of the vector has this handle, or one of another family than the endpoint's: take a handle that Insert or InsertString returned"} // R-AV-19
	errTooLong     error = &wrong{fi.EMSGSIZE, "the message is longer than the endpoint takes: see Info.Ep.MaxMsgSize, and Info.Tx.InjectSize for an injected one"}                        // R-MSG-02
	errNoMsg       error = &wrong{fi.EINVAL, "the message is nil: it names buffers and the peer"}
	errIov         error = &wrong{fi.EINVAL, "the vector has more buffers than IovLimit"}                                                // R-MSG-17
	errCallFlags   error = &wrong{fi.EBADFLAGS, "the call does not take all of these flags"}                                             // R-ORD-12 among others
	errNoCap       error = &wrong{fi.EOPNOTSUPP, "the endpoint lacks the capability for this call: ask for it in the Caps of the hints"} // R-MSG-19
	errNoOption    error = &wrong{fi.ENOPROTOOPT, "there is no such option, or it cannot be set"}
	errOptionValue error = &wrong{fi.EINVAL, "the option does not take this value: GetOpt tells the value in force"}
	errNoConn      error = &wrong{fi.ENOSYS, "only FI_EP_MSG endpoints have connections: ask for Ep.Type fi.EpMsg, or insert the peer's address and send"}
	errMRFlags     error = &wrong{fi.EBADFLAGS, "the registration does not take all of these flags"}
	errNoMRAttr    error = &wrong{fi.EINVAL, "the MRAttr is nil: it names the memory and who may access it"}
	errNoMemory    error = &wrong{fi.EINVAL, "there is no memory to register: give at least one byte"}
	errMRRights    error = &wrong{fi.EINVAL, "access is some of fi.Send, fi.Recv, fi.Read, fi.Write, fi.RemoteRead, fi.RemoteWrite"}
	errMRAttr      error = &wrong{fi.EINVAL, "the offset of a region must be 0, and its authorization key 3 or 4 bytes"}
	errRMAIov      error = &wrong{fi.EINVAL, "RMAIov must be one stretch of the peer's memory, as long as Iov"}
)
