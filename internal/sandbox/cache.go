package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// cacheDir is the user's directory for what can be made again, or one in the temporary directory where there is no
// home.
func cacheDir() (string, error) {
	if base, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(base, "holdfast")
		if err := os.MkdirAll(dir, 0o755); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), "holdfast-cache-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !ours(info) {
		return "", fmt.Errorf("%s belongs to somebody else", dir)
	}
	return dir, nil
}

// cached returns a directory of the cache, made by fill if it is not there. It appears whole or not at all, and one
// process at a time makes it.
func cached(name string, fill func(dir string) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	lock, err := lockFile(dir+".lock", syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // made while we waited
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil { // of a process that was killed
		return "", err
	}
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return "", err
	}
	if err := fill(fresh); err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return dir, os.Rename(fresh, dir)
}
