package uet

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Provider error numbers, the Prov field of a cq.Error: a SES return code as it
// is on the wire; ProvNack plus the code of a PDS NACK; or one of the others.
const (
	// ProvNack is added to a PDS NACK code.
	ProvNack = 0x100
	// ProvGaveUp says that packet delivery gave the peer up: no acknowledgement within
	// PeerTimeout (R-ERR-33).
	ProvGaveUp = 0x1FF
	// ProvDrop is added to a transport.DropReason: why packets of a peer are
	// dropped.
	ProvDrop = 0x200
	// ProvPath is added to two sizes in KiB, in 4 bits each: the payload that the path to a
	// peer carries in one packet, and what interface and peer would take. It comes with
	// FI_EMSGSIZE in an event, whose data names the peer; nothing failed.
	ProvPath = 0x300
	// ProvUntold says that the peer is of a make that does not tell when the level is reached: of
	// FI_MATCH_COMPLETE it has the message and no receive for it, of FI_COMMIT_COMPLETE it has the
	// bytes. It comes with FI_EOPNOTSUPP.
	ProvUntold = 0x400
)

// rcErrno is the errno of each SES return code that ends an operation
// (UE 1.0.1 SES return codes; R-ERR-01 to R-ERR-32).
var rcErrno = [...]fi.Errno{
	wire.RCNull:               fi.EIO,          // ends nothing: S-CPL-02
	wire.RCOK:                 fi.EIO,          // success
	wire.RCBadGeneration:      fi.ENORX,        // R-ERR-01
	wire.RCDisabled:           fi.ESHUTDOWN,    // R-ERR-02
	wire.RCDisabledGen:        fi.ENORX,        // R-ERR-03
	wire.RCNoMatch:            fi.ENORX,        // R-ERR-04
	wire.RCUnsupportedOp:      fi.EOPNOTSUPP,   // R-ERR-05
	wire.RCUnsupportedSize:    fi.EMSGSIZE,     // R-ERR-06
	wire.RCATInvalid:          fi.EFAULT,       // R-ERR-07
	wire.RCATPerm:             fi.EACCES,       // R-ERR-08
	wire.RCATATSError:         fi.EREMOTEIO,    // R-ERR-09
	wire.RCATNoTrans:          fi.EFAULT,       // R-ERR-10
	wire.RCATOutOfRange:       fi.EFAULT,       // R-ERR-11
	wire.RCHostPoisoned:       fi.EREMOTEIO,    // R-ERR-12
	wire.RCHostUnsuccessCmpl:  fi.EREMOTEIO,    // R-ERR-13
	wire.RCAMOUnsupportedOp:   fi.EOPNOTSUPP,   // R-ERR-14
	wire.RCAMOUnsupportedDT:   fi.EOPNOTSUPP,   // R-ERR-15
	wire.RCAMOUnsupportedSize: fi.EMSGSIZE,     // R-ERR-16
	wire.RCAMOUnaligned:       fi.EINVAL,       // R-ERR-17
	wire.RCAMOFPNaN:           fi.EOTHER,       // R-ERR-19
	wire.RCAMOFPUnderflow:     fi.EOTHER,       // R-ERR-19
	wire.RCAMOFPOverflow:      fi.EOVERFLOW,    // R-ERR-18
	wire.RCAMOFPInexact:       fi.EOTHER,       // R-ERR-19
	wire.RCPermViolation:      fi.EACCES,       // R-ERR-20
	wire.RCOpViolation:        fi.EPERM,        // R-ERR-21
	wire.RCBadIndex:           fi.ECONNREFUSED, // R-ERR-22
	wire.RCBadPID:             fi.ECONNREFUSED, // R-ERR-23
	wire.RCBadJobID:           fi.EACCES,       // R-ERR-24
	wire.RCBadMKey:            fi.EKEYREJECTED, // R-ERR-25
	wire.RCBadAddr:            fi.EFAULT,       // R-ERR-26
	wire.RCCancelled:          fi.ECANCELED,    // R-ERR-27
	wire.RCUndeliverable:      fi.EHOSTUNREACH, // R-ERR-28
	wire.RCUncor:              fi.EIO,          // R-ERR-29
	wire.RCUncorTrnsnt:        fi.EREMOTEIO,    // R-ERR-30
	wire.RCTooLong:            fi.ETRUNC,       // R-ERR-31
	wire.RCInitiatorError:     fi.EIO,          // R-ERR-32, R-ERR-45
	wire.RCDropped:            fi.ENOBUFS,      // R-ERR-32
}

// rcErr returns the errno of a return code; reserved codes count as UNCOR
// (UE: 0x25–0x2F) or as other (R-ERR-32).
func rcErr(rc wire.RC) fi.Errno {
	switch {
	case int(rc) < len(rcErrno):
		return rcErrno[rc]
	case rc <= 0x2F:
		return rcErrno[wire.RCUncor]
	}
	return fi.EOTHER
}

// nackErr returns the errno of the PDS NACK that ended an operation. A NACK for lack of
// resources is retried until PeerTimeout; its errno then says which resource was short
// (F32). The others end the PDC (R-ERR-34).
func nackErr(c wire.NackCode) fi.Errno {
	if c >= wire.NackNoPDCAvail && c <= wire.NackNoResource {
		return fi.ENOBUFS
	}
	return fi.ECONNABORTED
}

// errno returns the errno and the provider error number of a failed operation:
// the one table behind every error completion.
func errno(cause transport.Cause, rc wire.RC, nack wire.NackCode) (err fi.Errno, prov uint32) {
	switch {
	case nack != 0:
		prov = ProvNack + uint32(nack)
	case rc > wire.RCOK:
		prov = uint32(rc)
	}
	switch cause {
	case transport.Rejected: // R-ERR-01 to 32
		return rcErr(rc), prov
	case transport.Truncated: // R-ERR-38, R-MSG-11
		return fi.ETRUNC, prov
	case transport.Cancelled, transport.Closed: // R-ERR-37, F27
		return fi.ECANCELED, prov
	case transport.TimedOut: // R-ERR-33, F9
		return fi.ETIMEDOUT, ProvGaveUp
	case transport.Unreachable: // R-ERR-35, F11
		return fi.EHOSTUNREACH, prov
	case transport.Aborted: // R-ERR-34, F12, F31
		return nackErr(nack), prov
	case transport.PeerError: // R-ERR-45
		if prov == 0 {
			prov = uint32(wire.RCInitiatorError)
		}
		return fi.EIO, prov
	case transport.NoResource: // F32
		return fi.ENOBUFS, prov
	case transport.NotReady: // F18, R-ERR-01, 03, 04
		return fi.ENORX, prov
	case transport.TooBig: // F7
		return fi.EMSGSIZE, prov
	case transport.NoKey: // F33
		return fi.EKEYREJECTED, prov
	case transport.NoMessage: // R-ERR-39, R-TAG-08
		return fi.ENOMSG, prov
	case transport.Untold: // R-CMPL-12
		return fi.EOPNOTSUPP, ProvUntold
	}
	return fi.EOTHER, prov
}

// dropErr returns the errno of a peer whose packets are dropped for a reason (F14, F31,
// T3).
func dropErr(r transport.DropReason) fi.Errno {
	switch r {
	case transport.DropCRC:
		return fi.ECRC
	case transport.DropAuth, transport.DropSDI, transport.DropKey, transport.DropEpoch:
		return fi.EKEYREJECTED
	case transport.DropSource, transport.DropBinding:
		return fi.EACCES
	}
	return fi.EPROTO
}

func dropText(r transport.DropReason) string {
	switch r {
	case transport.DropCRC:
		return "wrong CRC: only one end has a CRC, or somebody between changes addresses"
	case transport.DropClear:
		return "in clear, and this end is secured"
	case transport.DropSecured:
		return "secured, and this end is in clear"
	case transport.DropAuth:
		return "not sealed with this end's key, or somebody between changes addresses"
	case transport.DropKey:
		return "no key for them, or no longer"
	case transport.DropSDI:
		return "of another secure domain"
	case transport.DropEpoch:
		return "of an epoch that is over"
	case transport.DropBinding:
		return "from another sender than it claims to be"
	case transport.DropSource:
		return "somebody guesses the numbers of connections"
	}
	return r.String()
}

// ProvString explains a provider error number (fi_cq_strerror). It never
// returns an empty string (R-CQ-95).
func ProvString(prov uint32) string {
	switch {
	case prov == 0:
		return "no provider error"
	case prov == ProvGaveUp:
		return "packet delivery gave up: no acknowledgement from the peer"
	case prov == ProvUntold:
		return "the peer keeps the message without a receive, and does not tell when one matches it"
	case prov > ProvNack && prov < ProvGaveUp:
		return "PDS NACK " + wire.NackCode(prov-ProvNack).String()
	case prov >= ProvDrop && prov < ProvDrop+uint32(transport.NumDropReasons):
		return "packets of the peer are dropped: " + dropText(transport.DropReason(prov-ProvDrop))
	case prov > ProvPath && prov < ProvPath+0x100:
		return fmt.Sprintf("the path to the peer carries %d bytes of payload in a packet, the interface %d", prov>>4&15<<10, prov&15<<10)
	case prov <= 0x3F:
		return "SES return code " + wire.RC(prov).String()
	}
	return "unknown provider error"
}

// postErr turns an error of the transport into the errno a posting call
// returns.
func postErr(err error) error {
	switch err {
	case nil:
		return nil
	case transport.ErrFull: // R-EP-20, R-ERR-42
		return fi.EAGAIN
	case transport.ErrTooLong: // R-MSG-02
		return errTooLong
	case transport.ErrNoPeer: // R-AV-19
		return errNoPeer
	case transport.ErrClosed:
		return errClosed
	case transport.ErrHalted: // Tuning.Halt
		return fi.ESHUTDOWN
	case transport.ErrNoKey: // F33
		return fi.EKEYREJECTED
	}
	return err
}
