package sandbox_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestEtcdKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnEtcd(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.URL()}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(t.Context(), "k")
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
}

func TestZooKeeperKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnZooKeeper(t)
	if _, err := zookeeper(t, server).Create("/k", []byte("v"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, _, err := zookeeper(t, server).Get("/k")
	if err != nil || string(data) != "v" {
		t.Fatalf("%q, %v", data, err)
	}
}

func zookeeper(t *testing.T, server *sandbox.ZooKeeper) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{server.Addr()}, time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
