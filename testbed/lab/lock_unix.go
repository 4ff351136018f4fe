//go:build unix

package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock opens a file and locks it for this program. Closing the file, or the end of the
// program, unlocks it.
func tryLock(name string) (*os.File, error) { return lock(name, unix.LOCK_EX) }

// shareLock is tryLock that keeps others from locking the file, and not from sharing it.
func shareLock(name string) (*os.File, error) { return lock(name, unix.LOCK_SH) }

func lock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// ours returns an error for a folder that another user made or may write to. The folder is
// in a place where everybody may create one.
func ours(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not this user's alone", dir)
	}
	return nil
}
