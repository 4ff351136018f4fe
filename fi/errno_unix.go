//go:build unix

package fi

import "syscall"

// The platform's error numbers, by their names in errno(3).
const (
	EPERM         = Errno(syscall.EPERM)
	ENOENT        = Errno(syscall.ENOENT)
	EINTR         = Errno(syscall.EINTR)
	EIO           = Errno(syscall.EIO)
	E2BIG         = Errno(syscall.E2BIG)
	EBADF         = Errno(syscall.EBADF)
	EAGAIN        = Errno(syscall.EAGAIN)
	ENOMEM        = Errno(syscall.ENOMEM)
	EACCES        = Errno(syscall.EACCES)
	EFAULT        = Errno(syscall.EFAULT)
	EBUSY         = Errno(syscall.EBUSY)
	ENODEV        = Errno(syscall.ENODEV)
	EINVAL        = Errno(syscall.EINVAL)
	EMFILE        = Errno(syscall.EMFILE)
	ENOSPC        = Errno(syscall.ENOSPC)
	ENOSYS        = Errno(syscall.ENOSYS)
	ENOMSG        = Errno(syscall.ENOMSG)
	EOVERFLOW     = Errno(syscall.EOVERFLOW)
	EMSGSIZE      = Errno(syscall.EMSGSIZE)
	ENOPROTOOPT   = Errno(syscall.ENOPROTOOPT)
	EOPNOTSUPP    = Errno(syscall.EOPNOTSUPP)
	EPROTO        = Errno(syscall.EPROTO)
	EADDRINUSE    = Errno(syscall.EADDRINUSE)
	EADDRNOTAVAIL = Errno(syscall.EADDRNOTAVAIL)
	ENETDOWN      = Errno(syscall.ENETDOWN)
	ENETUNREACH   = Errno(syscall.ENETUNREACH)
	ECONNABORTED  = Errno(syscall.ECONNABORTED)
	ECONNRESET    = Errno(syscall.ECONNRESET)
	ENOBUFS       = Errno(syscall.ENOBUFS)
	EISCONN       = Errno(syscall.EISCONN)
	ENOTCONN      = Errno(syscall.ENOTCONN)
	ESHUTDOWN     = Errno(syscall.ESHUTDOWN)
	ETIMEDOUT     = Errno(syscall.ETIMEDOUT)
	ECONNREFUSED  = Errno(syscall.ECONNREFUSED)
	EHOSTDOWN     = Errno(syscall.EHOSTDOWN)
	EHOSTUNREACH  = Errno(syscall.EHOSTUNREACH)
	EALREADY      = Errno(syscall.EALREADY)
	EINPROGRESS   = Errno(syscall.EINPROGRESS)
	ECANCELED     = Errno(syscall.ECANCELED)
)

// isPlatform reports whether target is the platform's error of the same number.
func (e Errno) isPlatform(target error) bool {
	s, ok := target.(syscall.Errno)
	return ok && s == syscall.Errno(e) && e < EOTHER
}
