package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// listLimits of one look at the locks: per back end, so that one that is away hides no other.
const (
	listLimit   = 5 * time.Second
	maxListed   = 1000
	waitUnknown = -1 // what [lock.Held] says then
)

type locksCommand struct {
	Ledger     ledgerAddress `embed:""`
	RedisURL   string        `env:"HOLDFAST_REDIS_URL" help:"Redis of the gate, redis://… or redis+cluster://…"`
	Locks      lockConfig    `embed:""`
	Properties bool          `help:"Show what each back end promises instead of what is held."`
	JSON       bool          `name:"json" help:"Print JSON."`
}

// Run prints who holds what on every configured back end; it fails if one of them cannot be asked.
func (c *locksCommand) Run(ctx context.Context, s streams) error {
	backends, err := openLocks(ctx, &c.Locks, c.Ledger.URL, c.RedisURL, leastLease)
	if err != nil {
		return err
	}
	defer backends.Close()
	if c.Properties {
		return c.printProperties(s.out, backends)
	}
	lists := backends.list(ctx)
	if c.JSON {
		err = printJSON(s.out, lists)
	} else {
		err = printLocks(s.out, lists)
	}
	for _, l := range lists {
		if l.Error != "" {
			fmt.Fprintf(s.err, "holdfast: %s: %s\n", l.Backend, l.Error)
			err = cmp.Or(err, errNo)
		}
	}
	return err
}

// lockList is what one back end says is held.
type lockList struct {
	Backend   string     `json:"backend"`
	Locks     []heldLock `json:"locks"`
	Truncated bool       `json:"truncated,omitempty"` // there may be more
	Error     string     `json:"error,omitempty"`     // it could not be asked, or not to the end
}

// heldLock is a key that somebody holds. What a back end does not tell is left out.
type heldLock struct {
	Key         string      `json:"key"`
	Owner       *lock.Owner `json:"owner,omitempty"` // decoded from Value, unless it is not ours
	Value       string      `json:"value"`
	HeldMS      *int64      `json:"held_ms,omitempty"` // since the claim was made, by its maker's clock and this one's
	RemainingMS *int64      `json:"remaining_ms,omitempty"`
	Token       lock.Token  `json:"token,omitempty"`
	Waiting     *int        `json:"waiting,omitempty"`
	Reentered   int         `json:"reentered,omitempty"`
}

// list asks all back ends at once.
func (b *lockBackends) list(ctx context.Context) []lockList {
	lists := make([]lockList, len(b.All))
	var asking sync.WaitGroup
	for i, backend := range b.All {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, listLimit)
			defer cancel()
			held, err := backend.List(ctx, maxListed)
			lists[i] = newLockList(backend.Properties().Backend, held, time.Now())
			if err != nil {
				lists[i].Error = err.Error()
			}
		})
	}
	asking.Wait()
	return lists
}

func newLockList(backend string, held []lock.Held, now time.Time) lockList {
	l := lockList{Backend: backend, Locks: make([]heldLock, len(held)), Truncated: len(held) == maxListed}
	for i := range held {
		h := &held[i]
		l.Locks[i] = heldLock{Key: h.Key, Value: h.Value, Token: h.Token, Reentered: h.Reentered}
		if h.Owner.Grant != "" {
			l.Locks[i].Owner, l.Locks[i].HeldMS = &h.Owner, new(now.Sub(h.Since).Milliseconds())
		}
		if h.Remaining > 0 {
			l.Locks[i].RemainingMS = new(h.Remaining.Milliseconds())
		}
		if h.Waiting != waitUnknown {
			l.Locks[i].Waiting = &h.Waiting
		}
	}
	slices.SortFunc(l.Locks, func(a, b heldLock) int { return cmp.Compare(a.Key, b.Key) })
	return l
}

// ServeHTTP answers GET /locks of the admin listener.
func (b *lockBackends) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = printJSON(w, b.list(r.Context())) // nobody is left to tell
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printLocks(w io.Writer, lists []lockList) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BACK END\tKEY\tHELD\tLEFT\tTOKEN\tWAITING\tHOST\tPID\tGRANT\tMETA")
	for _, list := range lists {
		for i := range list.Locks {
			l := &list.Locks[i]
			owner := lock.Owner{Host: l.Value} // whatever it is
			pid := "-"
			if l.Owner != nil {
				owner, pid = *l.Owner, strconv.Itoa(l.Owner.PID)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", list.Backend, l.Key, age(l.HeldMS), age(l.RemainingMS),
				told(int64(l.Token), l.Token != 0), waiters(l.Waiting), owner.Host, pid, cmp.Or(owner.Grant, "-"), owner.Meta)
		}
		if list.Truncated {
			fmt.Fprintf(table, "%s\t… and perhaps more\n", list.Backend)
		}
	}
	return table.Flush()
}

func age(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return (time.Duration(*ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

func told(n int64, yes bool) string {
	if !yes {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func waiters(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func (c *locksCommand) printProperties(w io.Writer, b *lockBackends) error {
	all := make([]lock.Properties, len(b.All))
	for i, backend := range b.All {
		all[i] = backend.Properties()
	}
	if c.JSON {
		return printJSON(w, all)
	}
	for i, p := range all {
		note := ""
		if i == 0 {
			note = "  (leases of this installation are taken here)"
		}
		order := "none among processes"
		if p.FIFO {
			order = "first come, first served"
		}
		sessions := "none"
		if p.Sessions {
			sessions = "one for every holder and waiter"
		}
		fmt.Fprintf(w, "%s%s\n", p.Backend, note)
		for _, line := range [][2]string{
			{"tokens", cmp.Or(string(p.Fencing), "none")},
			{"clock", string(p.Clock)},
			{"shortest lease", p.MinTTL.String()},
			{"order", order},
			{"waiters", string(p.Wake)},
			{"holder dies", "free " + string(p.Death)},
			{"restart", string(p.Restart)},
			{"failover", string(p.Failover)},
			{"connections", sessions},
		} {
			fmt.Fprintf(w, "  %-15s %s\n", line[0], line[1])
		}
	}
	return nil
}
