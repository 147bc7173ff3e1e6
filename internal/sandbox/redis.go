package sandbox

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisConfig says how to run a Redis server. The zero value is a server on a free port that keeps nothing.
type RedisConfig struct {
	Dir      string            // where its files are kept between runs; empty: a temporary directory, removed by Stop
	Port     int               // on 127.0.0.1; 0: a free one
	Settings map[string]string // directives of redis.conf, over the defaults
}

// Redis is a private Redis server on loopback.
type Redis struct {
	server
}

// redisDefaults never evict, keep nothing on disk, and let a replica start without waiting for others.
func redisDefaults() map[string]string {
	return map[string]string{
		"save":                     `""`,
		"appendonly":               "no",
		"maxmemory-policy":         "noeviction",
		"repl-diskless-sync":       "yes",
		"repl-diskless-sync-delay": "0",
	}
}

// StartRedis runs a Redis server and returns when it answers. It ends with Stop, with Kill, or with this process.
func StartRedis(ctx context.Context, config RedisConfig) (*Redis, error) {
	binaries, err := redisPackage.find(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	r := &Redis{server{name: "redis", dir: dir, port: config.Port, quit: syscall.SIGTERM}}
	r.ready = r.answers
	r.program = func() (program, error) {
		settings := redisDefaults()
		maps.Copy(settings, config.Settings)
		settings["bind"] = "127.0.0.1"
		settings["port"] = strconv.Itoa(r.port)
		settings["dir"] = dir.path
		file := dir.file("redis.conf")
		run := program{path: binaries.path("redis-server"), args: []string{file}, env: binaries.env, dir: dir.path, log: dir.file("server.log")}
		return run, os.WriteFile(file, redisConf(settings), 0o644)
	}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return r, nil
}

// redisConf is the text of a configuration file, in a fixed order.
func redisConf(settings map[string]string) []byte {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		text.WriteString(name + " " + settings[name] + "\n")
	}
	return []byte(text.String())
}

// answers reports whether the child itself, not another server that took the port, answers and has loaded its data.
func (r *Redis) answers(ctx context.Context, child *process) bool {
	client := r.client()
	defer client.Close()
	info, err := client.Info(ctx, "server", "persistence").Result()
	return err == nil &&
		strings.Contains(info, "process_id:"+strconv.Itoa(child.pid)+"\r\n") &&
		strings.Contains(info, "loading:0\r\n")
}

// client is a connection for our own commands: no retries, short timeouts, nothing in the background. (With a pool
// of one, a single refused connection would start a goroutine that redials for a second.)
func (r *Redis) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.Addr(), Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, PoolSize: 10,
		ContextTimeoutEnabled: true, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
