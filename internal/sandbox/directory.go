package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// directory holds the files of one server, locked so that no two processes run a server in the same place.
// The kernel drops the lock with its owner, so a kill -9 leaves nothing that has to be cleared by hand.
type directory struct {
	path      string
	temporary bool
	lock      *os.File
}

const temporaryPattern = "holdfast-sandbox-*"

// openDirectory takes a directory, creating it if need be; with an empty path a temporary one that close removes.
func openDirectory(path string) (*directory, error) {
	d := &directory{path: path, temporary: path == ""}
	var err error
	if d.temporary {
		removeAbandoned()
		if d.path, err = os.MkdirTemp("", temporaryPattern); err == nil {
			err = os.Chmod(d.path, 0o755) // a server that runs as another user has to get through
		}
	} else if d.path, err = filepath.Abs(path); err == nil {
		err = os.MkdirAll(d.path, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if d.lock, err = lockFile(d.file("lock"), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("directory %s is in use by another process: %w", d.path, err)
	}
	return d, nil
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// close gives the directory up, and removes it if it was temporary.
func (d *directory) close() error {
	var err error
	if d.temporary {
		err = os.RemoveAll(d.path)
	}
	return errors.Join(err, d.lock.Close())
}

// removeAbandoned removes temporary directories whose owner was killed before it could.
func removeAbandoned() {
	const settled = time.Minute // a younger one may not be locked yet
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), temporaryPattern))
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !ours(info) || time.Since(info.ModTime()) < settled {
			continue
		}
		lock, err := lockFile(filepath.Join(path, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // in use
		}
		_ = os.RemoveAll(path) // what is left is tried again by the next run
		_ = lock.Close()
	}
}

// ours reports whether a file belongs to the user we run as. Anybody can make one of any name in a temporary
// directory.
func ours(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}

// lockFile opens a file and takes its lock; closing it gives the lock back.
func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
