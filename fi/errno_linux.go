package fi

import "syscall"

const (
	ENODATA      = Errno(syscall.ENODATA)
	EREMOTEIO    = Errno(syscall.EREMOTEIO)
	EKEYREJECTED = Errno(syscall.EKEYREJECTED)
)
