package page

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a file through a temporary one beside it, so that an existing file stays
// until the new one is complete. It writes directly to what is no regular file, such as a
// pipe.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	if at, err := filepath.EvalSymlinks(name); err == nil {
		name = at
	}
	mode := fs.FileMode(0o666)
	if st, err := os.Stat(name); err == nil {
		if st.IsDir() {
			return fmt.Errorf("%s is a folder: name a file in it", name)
		}
		if !st.Mode().IsRegular() {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(write(f), f.Close())
		}
		mode = st.Mode().Perm()
	}
	tmp := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s.%d.tmp", filepath.Base(name), os.Getpid()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) { // name the file that was asked for
			err = &fs.PathError{Op: "create", Path: name, Err: pe.Err}
		}
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	b := bufio.NewWriter(f)
	if err := errors.Join(write(b), b.Flush(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
