package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// lockShop is a shop with a few locks taken, as other processes of it would.
type lockShop struct {
	*shop
	args   []string // where the command finds the stores
	leases map[string]*lock.Fenced
}

// newLockShop holds the key "job/settle" on the back ends named; on the first of them somebody waits for it.
func newLockShop(t *testing.T, backends ...string) *lockShop {
	t.Helper()
	s := &lockShop{shop: newShop(t, ""), leases: map[string]*lock.Fenced{}}
	var database, redis string
	for _, setting := range s.env {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "HOLDFAST_DATABASE_URL":
			database = value
		case "HOLDFAST_REDIS_URL":
			redis = value
		}
	}
	config := lockConfig{Lock: "auto", LockPrefix: strings.Trim(sandbox.Prefix(t), ":")}
	s.env = append(s.env, "HOLDFAST_LOCK_PREFIX="+config.LockPrefix)
	s.args = []string{"--database-url=" + database, "--redis-url=" + redis, "--lock-prefix=" + config.LockPrefix}
	b, err := openLocks(t.Context(), &config, database, redis, leastLease)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, backend := range b.All {
		name := backend.Properties().Backend
		if !slices.Contains(backends, name) {
			continue
		}
		locker := lock.NewFenced(backend, lock.TTL(time.Minute))
		lease, err := locker.Acquire(t.Context(), "job/settle", lock.Meta("settle 2026-05-01"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Release() })
		s.leases[name] = lease
		if name == backends[0] {
			waiting := make(chan struct{})
			go func() {
				defer close(waiting)
				if next, err := locker.Acquire(t.Context(), "job/settle"); err == nil {
					_ = next.Release()
				}
			}()
			t.Cleanup(func() { <-waiting })
		}
	}
	return s
}

// locks runs the command and returns what it printed.
func (s *lockShop) locks(t *testing.T, wantCode int, flags ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), slices.Concat([]string{"locks"}, s.args, flags), &out, &errs); code != wantCode {
		t.Fatalf("exit code %d, want %d: %s", code, wantCode, errs.String())
	}
	return out.String(), errs.String()
}

func TestLocksShowsWhoHoldsWhatWhere(t *testing.T) {
	t.Parallel()
	held := []string{"redis", "postgres", "postgres-advisory"}
	s := newLockShop(t, held...)
	var lists []lockList
	for end := time.Now().Add(serviceLimit); ; {
		out, _ := s.locks(t, exitFine, "--json")
		if err := json.Unmarshal([]byte(out), &lists); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if waiting := lists[0].Locks[0].Waiting; waiting != nil && *waiting == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nobody is seen to wait: %s", out)
		}
	}
	if len(lists) != len(held) {
		t.Fatalf("%d back ends: %+v", len(lists), lists)
	}
	for i, list := range lists {
		if list.Backend != held[i] || list.Error != "" || len(list.Locks) != 1 {
			t.Fatalf("back end %d: %+v", i, list)
		}
		l, lease := list.Locks[0], s.leases[list.Backend]
		owner, err := lock.ParseOwner(lease.Owner())
		if err != nil {
			t.Fatal(err)
		}
		if l.Owner == nil || l.Value != lease.Owner() {
			t.Fatalf("%s: held by %q, want %q", list.Backend, l.Value, lease.Owner())
		}
		if diff := cmp.Diff(owner, *l.Owner); diff != "" || l.Owner.Meta != "settle 2026-05-01" {
			t.Errorf("%s: owner: %s", list.Backend, diff)
		}
		if l.Key != "job/settle" || l.Token != lease.Fence() || l.Token == 0 {
			t.Errorf("%s: key %q with token %d, want %d", list.Backend, l.Key, l.Token, lease.Fence())
		}
		if l.RemainingMS == nil || *l.RemainingMS <= 0 || *l.RemainingMS > time.Minute.Milliseconds() {
			t.Errorf("%s: left: %v", list.Backend, l.RemainingMS)
		}
		if l.HeldMS == nil || *l.HeldMS < 0 || *l.HeldMS > serviceLimit.Milliseconds() {
			t.Errorf("%s: held for: %v", list.Backend, l.HeldMS)
		}
	}

	table, _ := s.locks(t, exitFine)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 1+len(held) {
		t.Fatalf("%d lines:\n%s", len(lines), table)
	}
	for i, name := range held {
		fields := strings.Fields(lines[i+1])
		if fields[0] != name || fields[1] != "job/settle" || !strings.HasSuffix(lines[i+1], "settle 2026-05-01") {
			t.Errorf("line %q", lines[i+1])
		}
	}
}

// A back end that is away hides nothing of the others, and is not passed over in silence.
func TestLocksSaysWhichBackEndIsAway(t *testing.T) {
	t.Parallel()
	s := newLockShop(t, "postgres")
	out, errs := s.locks(t, exitNo, "--lock-etcd=http://127.0.0.1:1", "--json")
	var lists []lockList
	if err := json.Unmarshal([]byte(out), &lists); err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		if away := list.Backend == "etcd"; away != (list.Error != "") {
			t.Errorf("%s: error %q", list.Backend, list.Error)
		}
		if list.Backend == "postgres" && len(list.Locks) != 1 {
			t.Errorf("postgres: %+v", list.Locks)
		}
	}
	if !strings.Contains(errs, "etcd") {
		t.Errorf("on stderr: %q", errs)
	}
}

func TestLocksOfAServiceAreOnItsAdminListener(t *testing.T) {
	t.Parallel()
	s := newLockShop(t, "redis")
	i := s.open(t)
	response, err := http.Get("http://" + i.admin + "/locks")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", response.Status, err)
	}
	var lists []lockList
	if err := json.Unmarshal(body, &lists); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	// The service's own jobs may hold locks beside the one that the test took.
	if lists[0].Backend != "redis" || !slices.ContainsFunc(lists[0].Locks, func(l heldLock) bool { return l.Value == s.leases["redis"].Owner() }) {
		t.Errorf("%s", body)
	}
}

func TestPropertiesOfEveryBackEndArePrinted(t *testing.T) {
	t.Parallel()
	s := newLockShop(t)
	flags := []string{
		"--properties", "--lock=etcd", "--lock-etcd=http://127.0.0.1:1", "--lock-zookeeper=127.0.0.1:1",
		"--lock-redlock=redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3", "--lock-confirm=1",
	}
	out, _ := s.locks(t, exitFine, append(flags, "--json")...)
	var all []lock.Properties
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Backend)
		if p.Fencing == lock.NoTokens {
			t.Errorf("%s has no tokens: what must not run twice could not be kept there", p.Backend)
		}
	}
	want := []string{"etcd", "redis+wait", "redlock", "zookeeper", "postgres", "postgres-advisory"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	text, _ := s.locks(t, exitFine, flags...)
	for _, p := range all {
		if !strings.Contains(text, string(p.Failover)) || !strings.Contains(text, string(p.Clock)) {
			t.Errorf("not all of %s is in:\n%s", p.Backend, text)
		}
	}
}

func TestLockSettingsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	s := newLockShop(t)
	for _, flag := range []string{
		"--lock=etcd", "--lock=redlock", "--lock-confirm=-1", "--lock-prefix=a/b", "--lock-redlock=redis://127.0.0.1:1,redis://127.0.0.1:2",
	} {
		if _, errs := s.locks(t, exitNo, flag); !strings.Contains(errs, "HOLDFAST_LOCK") {
			t.Errorf("%s: %q", flag, errs)
		}
	}
}
