package ledger

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
)

// Archive is a file of movements that were rolled up, one JSON object a line. When its name ends in .gz, each step adds a
// gzip member of its own: together they are one gzip file, which can be cut between them.
type Archive struct{ path string }

// NewArchive names the file. The ledger knows it by its base name, so that belongs to one file only.
func NewArchive(path string) *Archive { return &Archive{path} }

// archived is a line.
type archived struct {
	SKU         string     `json:"sku"`
	Location    string     `json:"location"`
	Version     int64      `json:"version"`
	Kind        string     `json:"kind"`
	DeltaOnHand int64      `json:"delta_on_hand"`
	DeltaHeld   int64      `json:"delta_held"`
	OnHand      int64      `json:"on_hand"`
	Held        int64      `json:"held"`
	Reason      string     `json:"reason"`
	Reference   string     `json:"reference"`
	Actor       string     `json:"actor"`
	Deduction   *uuid.UUID `json:"deduction_id,omitempty"`
	At          time.Time  `json:"at"`
}

func appendArchived(lines []byte, item *dbsqlc.ListItemsByAgeRow, m *dbsqlc.RollUpMovementsRow) ([]byte, error) {
	line, err := json.Marshal(&archived{
		SKU: item.Sku, Location: item.Location, Version: m.Version, Kind: m.Kind,
		DeltaOnHand: m.DeltaOnHand, DeltaHeld: m.DeltaHeld, OnHand: m.OnHand, Held: m.Held,
		Reason: m.Reason, Reference: m.Reference, Actor: m.Actor, Deduction: m.DeductionID, At: m.At.UTC(),
	})
	return append(append(lines, line...), '\n'), err
}

// append writes lines behind what is in force, syncs them, and notes in the caller's transaction that they are. The file is kept from others
// until it is closed, which has to be after that transaction: a process that stands still loses its session to the ledger and the lock
// there, but not this one, and could write over what another has put in force meanwhile.
func (a *Archive) append(ctx context.Context, q *dbsqlc.Queries, lines []byte, movements int) (file *os.File, err error) {
	if file, err = os.OpenFile(a.path, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	switch err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("archive %s: another process writes to it", a.path)
	case err == nil:
		err = a.appendTo(ctx, file, q, lines, movements)
	}
	return file, err
}

func (a *Archive) appendTo(ctx context.Context, file *os.File, q *dbsqlc.Queries, lines []byte, movements int) error {
	name := filepath.Base(a.path)
	if _, err := q.StartArchive(ctx, name); err != nil {
		return readError(err)
	}
	inForce, err := q.GetArchive(ctx, name)
	if err != nil {
		return readError(err)
	}
	if strings.HasSuffix(name, ".gz") {
		if lines, err = compress(lines); err != nil {
			return err
		}
	}
	if err := a.write(file, lines, inForce); err != nil {
		return err
	}
	grown, err := q.GrowArchive(ctx, dbsqlc.GrowArchiveParams{
		Name: name, SeenBytes: inForce, Bytes: inForce + int64(len(lines)), Movements: int64(movements),
	})
	switch {
	case err != nil:
		return readError(err)
	case grown != 1:
		return fmt.Errorf("archive %s: somebody else writes to it", name)
	}
	return nil
}

// write replaces whatever the file has beyond what is in force. On return the bytes are on disk.
func (a *Archive) write(file *os.File, lines []byte, inForce int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < inForce {
		return fmt.Errorf("archive %s has %d bytes where the ledger knows of %d: it is not the file that was written before", a.path, info.Size(), inForce)
	}
	if err := file.Truncate(inForce); err != nil {
		return err
	}
	if _, err := file.WriteAt(lines, inForce); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if inForce > 0 {
		return nil
	}
	return syncDirectory(filepath.Dir(a.path)) // the file is new in it
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func compress(lines []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(lines); err != nil {
		return nil, err
	}
	err := w.Close() // writes what is left
	return packed.Bytes(), err
}
