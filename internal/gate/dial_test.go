package gate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestDialNeverRepeatsAScript(t *testing.T) {
	t.Parallel()
	single, ok := dial(t, "redis://user:secret@localhost:7000/3").(*redis.Client)
	if !ok {
		t.Fatal("no single client")
	}
	o := single.Options()
	if o.Addr != "localhost:7000" || o.Username != "user" || o.Password != "secret" || o.DB != 3 {
		t.Errorf("%+v", o)
	}
	// The library turns -1 into 0 retries.
	if o.MaxRetries != 0 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.Protocol != 2 || !o.DisableIdentity {
		t.Errorf("%+v", o)
	}
	if o.DialTimeout <= 0 || o.ReadTimeout <= 0 || o.WriteTimeout <= 0 || o.PoolTimeout <= 0 || o.MaintNotificationsConfig.Mode != "disabled" {
		t.Errorf("%+v", o)
	}
}

func TestDialCluster(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]string{
		"redis+cluster://a:1,b:2,c:3":                        {"a:1", "b:2", "c:3"},
		"redis+cluster://a:1":                                {"a:1"},
		"redis+cluster://u:p,%2Cw@a:1,b:2/?max_idle_conns=3": {"a:1", "b:2"},
		"rediss+cluster://a:1,[::1]:2":                       {"a:1", "[::1]:2"},
	} {
		client, ok := dial(t, address).(*redis.ClusterClient)
		if !ok {
			t.Fatalf("%s: no cluster client", address)
		}
		o := client.Options()
		if diff := cmp.Diff(want, o.Addrs); diff != "" {
			t.Errorf("%s: %s", address, diff)
		}
		if strings.Contains(address, "u:p") && (o.Password != "p,,w" || o.MaxIdleConns != 3) {
			t.Errorf("%s: %+v", address, o)
		}
		if strings.HasPrefix(address, "rediss") != (o.TLSConfig != nil) {
			t.Errorf("%s: TLS %v", address, o.TLSConfig)
		}
		if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.ClusterStateReloadInterval != 1e9 || o.Protocol != 2 {
			t.Errorf("%s: %+v", address, o)
		}
	}
}

func TestDialKeepsPasswordsOutOfErrors(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"redis://u:secret@host:port", "redis+cluster://u:secret@h:x y", "http://u:secret@h", "://u:secret@h", "",
		"redis://:secret/x@host", "redis+cluster://:secret/x@h,i", "redis://:x/secret@host", "redis://:%zsecret@host", "redis://u:x#secret@h/z",
	} {
		client, err := gate.Dial(address)
		if err == nil {
			t.Errorf("%s: %v", address, client.Close())
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}

func TestCheckPolicy(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := dial(t, "redis://"+server.Addr())
	if err := gate.CheckPolicy(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if err := gate.CheckPolicy(t.Context(), client); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Fatal(err)
	}
	server.Kill()
	if err := gate.CheckPolicy(t.Context(), client); err == nil {
		t.Fatal("a server that is gone has a policy")
	}
}
