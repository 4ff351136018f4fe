package contract

import (
	"errors"
	"io/fs"

	"github.com/uetkit/uetkit/fi"
)

// Makes says what makes a folder of certificates.
const Makes = "`uetperf keys DIR NAME…` makes a folder with a certificate for each NAME"

// An unread is the error of a file of secrets that could not be read: what the system says, which
// names the file and the cause, the errno of the cause, and what mends it.
type unread struct {
	err  error
	mend string
}

func (u *unread) Error() string { return u.err.Error() + u.mend }

// Unwrap returns the error of the system, for fs.ErrNotExist, and the errno, which the system has
// as a type of its own.
func (u *unread) Unwrap() []error { return []error{u.err, u.errno()} }

func (u *unread) errno() fi.Errno {
	switch {
	case errors.Is(u.err, fs.ErrNotExist):
		return fi.ENOENT
	case errors.Is(u.err, fs.ErrPermission):
		return fi.EACCES
	}
	return fi.EIO
}

// Unreadable makes an error of reading a file one that says what to do. makes says what makes such
// files. An error that is of no file stays as it is.
func Unreadable(err error, makes string) error {
	var file *fs.PathError
	switch {
	case !errors.As(err, &file):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &unread{err, "; " + makes}
	case errors.Is(err, fs.ErrPermission):
		return &unread{err, "; run the program as the file's owner, who alone shall read it"}
	}
	return &unread{err, ""}
}
