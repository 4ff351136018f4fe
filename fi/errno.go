// Package fi is the words of libfabric that all packages of the API share:
// error numbers, flags, capabilities, enumerations. It has no behaviour and
// imports nothing of the module.
package fi

import (
	"context"
	"errors"
	"strconv"
)

// An Errno is an error number of fi_errno(3). Those below 256 are the
// platform's. It is an error and compares by errors.Is.
type Errno int

// Error numbers of libfabric's own; EAGAIN and the like are the platform's, see
// errno_unix.go.
const (
	EOTHER        Errno = 256 // unspecified error
	ETOOSMALL     Errno = 257 // provided buffer is too small
	EOPBADSTATE   Errno = 258 // operation not permitted in current state
	EAVAIL        Errno = 259 // error available
	EBADFLAGS     Errno = 260 // flags not supported
	ENOEQ         Errno = 261 // missing or unavailable event queue
	EDOMAIN       Errno = 262 // invalid resource domain
	ENOCQ         Errno = 263 // missing or unavailable completion queue
	ECRC          Errno = 264 // CRC error
	ETRUNC        Errno = 265 // truncation error
	ENOKEY        Errno = 266 // required key not available
	ENOAV         Errno = 267 // missing or unavailable address vector
	EOVERRUN      Errno = 268 // queue has been overrun
	ENORX         Errno = 269 // receiver not ready
	ENOMR         Errno = 270 // memory registration limit exceeded
	EFIREWALLADDR Errno = 271 // host is unreachable because of a firewall
)

// Success is no error.
const Success Errno = 0

// Error returns the text of fi_strerror(3).
func (e Errno) Error() string {
	if s, ok := errnoText[e]; ok {
		return s
	}
	return "fi: error " + strconv.Itoa(int(e))
}

// Is makes ECANCELED match context.Canceled, ETIMEDOUT match
// context.DeadlineExceeded, and numbers of the platform its syscall.Errno.
func (e Errno) Is(target error) bool {
	switch target {
	case context.Canceled:
		return e == ECANCELED
	case context.DeadlineExceeded:
		return e == ETIMEDOUT
	}
	return e.isPlatform(target)
}

// Of returns the Errno behind an error, EOTHER if there is none, Success for
// nil.
func Of(err error) Errno {
	if err == nil {
		return Success
	}
	var e Errno
	if errors.As(err, &e) {
		return e
	}
	return EOTHER
}

var errnoText = map[Errno]string{
	Success:       "success",
	EOTHER:        "unspecified error",
	ETOOSMALL:     "provided buffer is too small",
	EOPBADSTATE:   "operation not permitted in current state",
	EAVAIL:        "error available",
	EBADFLAGS:     "flags not supported",
	ENOEQ:         "missing or unavailable event queue",
	EDOMAIN:       "invalid resource domain",
	ENOCQ:         "missing or unavailable completion queue",
	ECRC:          "CRC error",
	ETRUNC:        "truncation error",
	ENOKEY:        "required key not available",
	ENOAV:         "missing or unavailable address vector",
	EOVERRUN:      "queue has been overrun",
	ENORX:         "receiver not ready, no receive buffers available",
	ENOMR:         "memory registration limit exceeded",
	EFIREWALLADDR: "host address unreachable because of a firewall",
	EPERM:         "operation not permitted",
	ENOENT:        "no such entry",
	EIO:           "input/output error",
	EAGAIN:        "resource temporarily unavailable",
	ENOMEM:        "out of memory",
	EACCES:        "permission denied",
	EFAULT:        "bad address",
	EBUSY:         "device or resource busy",
	ENODEV:        "no such device",
	EINVAL:        "invalid argument",
	EMFILE:        "too many open files",
	ENOSPC:        "no space left",
	ENOSYS:        "function not implemented",
	EBADF:         "bad handle",
	ENOMSG:        "no message of desired type",
	ENODATA:       "no data available",
	EOVERFLOW:     "value too large",
	EMSGSIZE:      "message too long",
	ENOPROTOOPT:   "protocol not available",
	EOPNOTSUPP:    "operation not supported",
	EPROTO:        "protocol error",
	EADDRINUSE:    "address already in use",
	EADDRNOTAVAIL: "cannot assign requested address",
	ENETDOWN:      "network is down",
	ENETUNREACH:   "network is unreachable",
	ECONNABORTED:  "connection aborted",
	ECONNRESET:    "connection reset",
	ENOBUFS:       "no buffer space available",
	EISCONN:       "already connected",
	ENOTCONN:      "not connected",
	ESHUTDOWN:     "endpoint is shut down",
	ETIMEDOUT:     "timed out",
	ECONNREFUSED:  "connection refused",
	EHOSTDOWN:     "host is down",
	EHOSTUNREACH:  "no route to host",
	EALREADY:      "already in progress",
	EINPROGRESS:   "in progress",
	EREMOTEIO:     "remote I/O error",
	ECANCELED:     "operation canceled",
	EKEYREJECTED:  "key was rejected",
	EINTR:         "interrupted",
	E2BIG:         "argument list too long",
}
