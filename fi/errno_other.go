//go:build !unix

package fi

// Where the system has no errno of its own the numbers are Linux's.
const (
	EPERM         Errno = 1
	ENOENT        Errno = 2
	EINTR         Errno = 4
	EIO           Errno = 5
	E2BIG         Errno = 7
	EBADF         Errno = 9
	EAGAIN        Errno = 11
	ENOMEM        Errno = 12
	EACCES        Errno = 13
	EFAULT        Errno = 14
	EBUSY         Errno = 16
	ENODEV        Errno = 19
	EINVAL        Errno = 22
	EMFILE        Errno = 24
	ENOSPC        Errno = 28
	ENOSYS        Errno = 38
	ENOMSG        Errno = 42
	ENODATA       Errno = 61
	EOVERFLOW     Errno = 75
	EMSGSIZE      Errno = 90
	ENOPROTOOPT   Errno = 92
	EOPNOTSUPP    Errno = 95
	EPROTO        Errno = 71
	EADDRINUSE    Errno = 98
	EADDRNOTAVAIL Errno = 99
	ENETDOWN      Errno = 100
	ENETUNREACH   Errno = 101
	ECONNABORTED  Errno = 103
	ECONNRESET    Errno = 104
	ENOBUFS       Errno = 105
	EISCONN       Errno = 106
	ENOTCONN      Errno = 107
	ESHUTDOWN     Errno = 108
	ETIMEDOUT     Errno = 110
	ECONNREFUSED  Errno = 111
	EHOSTDOWN     Errno = 112
	EHOSTUNREACH  Errno = 113
	EALREADY      Errno = 114
	EINPROGRESS   Errno = 115
	EREMOTEIO     Errno = 121
	ECANCELED     Errno = 125
	EKEYREJECTED  Errno = 129
)

func (e Errno) isPlatform(error) bool { return false }
