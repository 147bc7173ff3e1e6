package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// Most of the argument is about one process that holds a lock and writes to something that the lock is meant to guard.
// Here it is once; experiments differ in where the lock is, how the process writes, and what befalls it.

// How a holder writes to the register.
const (
	blindly     = "blindly"      // because it has the lock
	withToken   = "with token"   // with the fencing token that it claimed when it got the lock
	withVersion = "with version" // if the register is as it was when it got the lock
	withLease   = "with lease"   // if its lease says, right before, that it is still held
	ifNotOlder  = "if not older" // if the register has no write with a larger token
	sellSeen    = "sell"         // one unit less than were there when it got the lock
)

// holderArgs tell a holder where its lock and its register are, and how it writes.
type holderArgs struct {
	Lock     lockSpec
	Postgres string
	Name     string // of the register
	Writer   string
	How      string
}

// holder is a process that holds a lock.
type holder struct {
	register
	held heldLock
	how  string
	seen int64 // version of the register when the lock was granted
}

// playHolder takes the lock, prepares its write, says "ready", and writes when it is told "write". It then says "wrote",
// "refused" by the store, or "lost" by its lease.
func playHolder(ctx context.Context, c *Child) error {
	var args holderArgs
	if err := c.Args(&args); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, args.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	acquire, err := args.Lock.open(ctx, pool)
	if err != nil {
		return err
	}
	h := holder{register: register{pool, args.Name, args.Writer}, how: args.How}
	if h.held, err = acquire(ctx, args.Name, args.Writer); err != nil {
		return err
	}
	if err := h.prepare(ctx); err != nil {
		return err
	}
	c.Say("ready", "%s", h.held)
	if err := c.Await("write"); err != nil {
		return err
	}
	switch err := h.write(ctx); {
	case errors.Is(err, errStale):
		c.Say("end", "refused")
	case errors.Is(err, lock.ErrLost):
		c.Say("end", "lost")
	case err != nil:
		return err
	default:
		c.Say("end", "wrote")
	}
	return nil
}

// prepare does what comes between the lock and the write.
func (h *holder) prepare(ctx context.Context) (err error) {
	switch h.how {
	case withToken:
		return h.claim(ctx, h.held.token)
	case withVersion:
		h.seen, err = h.version(ctx)
	case sellSeen:
		h.seen, err = h.left(ctx)
	}
	return err
}

// write writes in the holder's way.
func (h *holder) write(ctx context.Context) error {
	switch h.how {
	case blindly:
		return h.register.write(ctx)
	case withToken:
		return h.writeClaimed(ctx, h.held.token)
	case withVersion:
		return h.writeIfUnchanged(ctx, h.seen)
	case sellSeen:
		return h.sell(ctx, h.seen-1)
	case ifNotOlder:
		return h.writeIfNotOlder(ctx, h.held.token)
	case withLease:
		if err := h.held.lease.Err(); err != nil {
			return err
		}
		return h.register.write(ctx)
	default:
		return fmt.Errorf("there is no way to write %q", h.how)
	}
}

// scene is most of the argument: A gets the lock and is about to write when something befalls it; B gets the lock, too, and
// writes; then A writes.
type scene struct {
	A, B lockSpec
	How  string
	// Befalls is what happens after A got the lock and before B asks; nil: nothing.
	Befalls func(ctx context.Context, a *actor) error
	// First is who writes first; B if empty.
	First string
}

// standStill stops A (SIGSTOP) until it is its turn to write.
func standStill(ctx context.Context, a *actor) error { return a.Stop(ctx) }

// played is what came of a scene.
type played struct {
	a, b     *actor
	endA     string // how each ended: wrote, refused, lost
	endB     string
	accepted []string // who wrote, in order
}

// overwritten: both wrote, and the write of A, who should not hold the lock any more, is what is left.
func (p played) overwritten() bool {
	return p.endA == "wrote" && p.endB == "wrote" && slices.Equal(p.accepted, []string{"B", "A"})
}

// turnedAway: A did try to write and came to that end; B's write is the only one.
func (p played) turnedAway(end string) bool {
	return p.endB == "wrote" && p.endA == end && slices.Equal(p.accepted, []string{"B"})
}

func refusedByStore(p played) bool { return p.turnedAway("refused") }
func lostItsLease(p played) bool   { return p.turnedAway("lost") }

func (sc scene) play(ctx context.Context, s *Stage) (played, error) {
	var p played
	var err error
	if p.a, err = s.holder(ctx, "A", sc.A, sc.How); err != nil {
		return p, err
	}
	if err := p.a.ready(ctx); err != nil {
		return p, err
	}
	if sc.Befalls != nil {
		if err := sc.Befalls(ctx, p.a); err != nil {
			return p, err
		}
	}
	if p.b, err = s.holder(ctx, "B", sc.B, sc.How); err != nil {
		return p, err
	}
	if err := p.b.ready(ctx); err != nil {
		return p, err
	}
	turns := []func() error{
		func() (err error) { p.endB, err = p.b.write(ctx, Right); return err },
		func() (err error) { p.endA, err = p.a.goOnAndWrite(ctx); return err },
	}
	if sc.First == "A" {
		slices.Reverse(turns)
	}
	for _, turn := range turns {
		if err := turn(); err != nil {
			return p, err
		}
	}
	if p.accepted, err = p.a.accepted(ctx); err != nil {
		return p, err
	}
	s.Note("A %s, B %s; the store accepted: %s", p.endA, p.endB, strings.Join(p.accepted, ", then "))
	return p, nil
}

// on is a case's Run that plays the scene on a lock that is the same for both, and judges it.
func on(spec func(context.Context, *Stage) (lockSpec, error), how string, seen func(played) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		where, err := spec(ctx, s)
		if err != nil {
			return false, err
		}
		p, err := scene{A: where, B: where, How: how, Befalls: standStill}.play(ctx, s)
		return err == nil && seen(p), err
	}
}

// actor is a holder as the experiment sees it.
type actor struct {
	*Process
	register
	stage *Stage
}

// holder starts a process that takes the lock of this run, and writes as told.
func (s *Stage) holder(ctx context.Context, name string, where lockSpec, how string) (*actor, error) {
	url, err := s.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := s.Pool(ctx, url)
	if err != nil {
		return nil, err
	}
	p, err := s.Process(name, "holder", holderArgs{Lock: where, Postgres: url, Name: s.Name(), Writer: name, How: how})
	if err != nil {
		return nil, err
	}
	return &actor{Process: p, register: register{pool, s.Name(), name}, stage: s}, nil
}

// ready waits until the holder has the lock and is about to write.
func (a *actor) ready(ctx context.Context) error {
	held, err := a.Expect(ctx, "ready")
	if err == nil {
		a.stage.Begin(a.Process.name, Holds, "%s", held)
	}
	return err
}

// write lets the holder write, and returns how that ended; tone is what it means if it succeeds.
func (a *actor) write(ctx context.Context, tone Tone) (string, error) {
	if err := a.Tell("write"); err != nil {
		return "", err
	}
	end, err := a.Expect(ctx, "end")
	if err != nil {
		return "", err
	}
	a.stage.Mark(a.Process.name, map[string]Tone{"wrote": tone, "refused": Refused, "lost": Refused}[end], "%s", end)
	return end, nil
}

// goOnAndWrite lets a holder go on that may stand still, and write, which it should not.
func (a *actor) goOnAndWrite(ctx context.Context) (string, error) {
	if err := a.Continue(); err != nil {
		return "", err
	}
	return a.write(ctx, Wrong)
}

// holderRole is the roles of experiments whose processes are holders.
var holderRole = map[string]Role{"holder": playHolder}
