package sandbox_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// stopAfter stops a server or a group of them when the test ends.
func stopAfter(t *testing.T, server interface{ Stop(context.Context) error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func proxyTo(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	proxy, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// TestFailoverOfRedisForgets is what an asynchronous replica is for here: a promoted one lacks what it had not got.
func TestFailoverOfRedisForgets(t *testing.T) {
	t.Parallel()
	master := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	link := proxyTo(t, master.Addr())
	replica, err := sandbox.StartRedisReplica(t.Context(), link.Addr(), sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, replica)
	writer, reader := redisClient(t, master.Addr()), redisClient(t, replica.Addr())
	if err := writer.Set(t.Context(), "early", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := writer.Wait(t.Context(), 1, patience).Val(); n != 1 {
		t.Fatalf("%d replicas have the first write", n)
	}
	link.Cut()
	if err := writer.Set(t.Context(), "late", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := reader.Exists(t.Context(), "early").Result(); n != 1 || err != nil {
		t.Errorf("the replica lost a write that it had: %v", err)
	}
	if n, err := reader.Exists(t.Context(), "late").Result(); n != 0 || err != nil {
		t.Errorf("the replica has a write that it cannot have got: %v", err)
	}
	if err := reader.Set(t.Context(), "later", "v", 0).Err(); err != nil {
		t.Errorf("a promoted replica refuses writes: %v", err)
	}
	if err := replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := redisClient(t, replica.Addr()).Set(t.Context(), "later", "v", 0).Err(); err != nil {
		t.Errorf("a promoted replica is one again after a restart: %v", err)
	}
}

// The first write after the start can be confirmed at once: who waits for a replica need not allow for its start.
func TestReplicaIsCountedAsSoonAsItIsStarted(t *testing.T) {
	t.Parallel()
	master := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	for count := range 2 { // the second must not be taken for the first
		replica, err := sandbox.StartRedisReplica(t.Context(), master.Addr(), sandbox.RedisConfig{})
		if err != nil {
			t.Fatal(err)
		}
		stopAfter(t, replica)
		info := redisClient(t, master.Addr()).Info(t.Context(), "replication").Val()
		line := regexp.MustCompile(fmt.Sprintf("port=%d,state=online,offset=([0-9]+)", replica.Port())).FindStringSubmatch(info)
		if len(line) == 0 || line[1] == "0" || !strings.Contains(info, fmt.Sprintf("connected_slaves:%d\r\n", count+1)) {
			t.Errorf("the master does not count its replica %d: %s", count+1, info)
		}
	}
}

func TestRedisMastersAreIndependent(t *testing.T) {
	t.Parallel()
	masters, err := sandbox.StartRedisMasters(t.Context(), 5, sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, masters)
	if err := redisClient(t, masters[0].Addr()).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range masters.Addrs()[1:] {
		client := redisClient(t, addr)
		if n, err := client.Exists(t.Context(), "k").Result(); n != 0 || err != nil {
			t.Errorf("%s: %d keys, %v", addr, n, err)
		}
	}
	if _, err := sandbox.StartRedisMasters(t.Context(), 2, sandbox.RedisConfig{Dir: t.TempDir()}); err == nil {
		t.Error("two masters share a directory")
	}
}

func TestRedisClusterReplacesADeadMaster(t *testing.T) {
	t.Parallel()
	nodes, err := sandbox.StartRedisCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, nodes)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: nodes.Addrs(), Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		ClusterStateReloadInterval: time.Second,
	})
	defer cluster.Close()
	keys := []string{"a", "b", "c", "d", "e", "f"} // in the slots of all three masters
	for _, key := range keys {
		if err := cluster.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	for _, node := range nodes[:3] {
		client := redisClient(t, node.Addr())
		if n := client.DBSize(t.Context()).Val(); n == 0 {
			t.Errorf("master %s has no key: the test shows nothing about it", node.Addr())
		}
		if n := client.Wait(t.Context(), 1, patience).Val(); n != 1 {
			t.Errorf("master %s has %d replicas", node.Addr(), n)
		}
	}
	nodes[0].Kill()
	replica := redisClient(t, nodes[3].Addr())
	eventually(t, "failover to the replica of the dead master", func() bool {
		role, err := replica.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
	for _, key := range keys {
		eventually(t, "answer for "+key, func() bool { return cluster.Get(t.Context(), key).Val() == "v" })
	}
}

// TestStandbyStreams shows the asynchronous kind: what the standby has not got when it is promoted is lost.
func TestStandbyStreams(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	link := proxyTo(t, primary.Addr())
	standby, err := sandbox.StartPostgresStandby(t.Context(), primary, sandbox.StandbyConfig{Name: "second", Via: link.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, standby)
	writer, reader := connect(t, primary.URL("postgres")), connect(t, standby.URL("postgres"))
	execute(t, writer, "CREATE TABLE kept AS SELECT 1 AS n")
	eventually(t, "the first write on the standby", func() bool {
		return scalar[bool](t, reader, "SELECT to_regclass('kept') IS NOT NULL")
	})
	link.Cut()
	execute(t, writer, "INSERT INTO kept VALUES (2)")
	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum := scalar[int](t, reader, "SELECT sum(n) FROM kept"); sum != 1 {
		t.Errorf("sum = %d", sum)
	}
	execute(t, reader, "INSERT INTO kept VALUES (3)")
	if segment := scalar[string](t, reader, "SELECT pg_walfile_name(pg_current_wal_lsn())"); !strings.HasPrefix(segment, "00000002") {
		t.Errorf("the promoted standby writes %s, on the timeline of the old primary", segment)
	}
}

// TestSynchronousStandby shows the other kind: without it the primary acknowledges nothing.
func TestSynchronousStandby(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	writer := connect(t, primary.URL("postgres"))
	execute(t, writer, "ALTER SYSTEM SET synchronous_standby_names = 'third'") // is not for a standby to inherit
	standby, err := sandbox.StartPostgresStandby(t.Context(), primary, sandbox.StandbyConfig{Name: "second", Synchronous: true})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, standby)
	execute(t, writer, "CREATE TABLE kept AS SELECT 1 AS n")
	if err := standby.Pause(); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	go func() {
		_, err := writer.Exec(context.Background(), "INSERT INTO kept VALUES (2)")
		committed <- err
	}()
	select {
	case err := <-committed:
		t.Fatalf("acknowledged without the standby: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := standby.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := connect(t, standby.URL("postgres"))
	if sum := scalar[int](t, reader, "SELECT sum(n) FROM kept"); sum != 3 {
		t.Errorf("sum = %d", sum)
	}
	if names := scalar[string](t, reader, "SHOW synchronous_standby_names"); names != "" {
		t.Fatalf("commits of the promoted standby wait for %s", names)
	}
	execute(t, reader, "INSERT INTO kept VALUES (4)")
}
