//go:build unix && !linux

package fi

// Numbers that not every Unix has; above those any of them uses, below those of
// libfabric's own.
const (
	ENODATA      Errno = 250
	EREMOTEIO    Errno = 251
	EKEYREJECTED Errno = 252
)
