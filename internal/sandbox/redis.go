package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisConfig says how to run a Redis server. The zero value is a server on a free port that keeps nothing.
type RedisConfig struct {
	Dir      string            // where its files are kept between runs; empty: a temporary directory, removed by Stop
	Port     int               // on 127.0.0.1; 0: a free one
	Settings map[string]string // directives of redis.conf, over the defaults
	Env      []string          // NAME=value, beyond the few variables that every server gets
	Progress io.Writer         // gets a line before something takes long, as installing does; nil: nobody does
}

// Redis is a private Redis server on loopback.
type Redis struct {
	server
	settings map[string]string // over the defaults; guarded by mu once it runs
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
	r, err := newRedis(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := r.start(ctx, freePort); err != nil {
		return nil, errors.Join(err, r.dir.close())
	}
	return r, nil
}

// newRedis prepares a server to be started.
func newRedis(ctx context.Context, config RedisConfig) (*Redis, error) {
	found, err := redisSoftware().find(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	r := &Redis{
		server:   server{name: "redis", dir: dir, port: config.Port, quit: syscall.SIGTERM},
		settings: maps.Clone(config.Settings),
	}
	r.ready = r.answers
	r.program = func() (program, error) {
		settings := redisDefaults()
		maps.Copy(settings, r.settings)
		settings["bind"] = "127.0.0.1"
		settings["port"] = strconv.Itoa(r.port)
		settings["dir"] = dir.path
		file := dir.file("redis.conf")
		run := program{path: found.path("redis-server"), args: []string{file}, env: slices.Concat(found.env, config.Env), dir: dir.path}
		return run, os.WriteFile(file, redisConf(settings), 0o644)
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
func (r *Redis) answers(_ context.Context, child *process) bool {
	info, err := redisInfo(r.Addr())
	return err == nil &&
		strings.Contains(info, "process_id:"+strconv.Itoa(child.pid)+"\r\n") &&
		strings.Contains(info, "\nloading:0\r\n")
}

// redisInfo asks once, without the pool of a client, which would report every refused connection.
func redisInfo(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "INFO\r\n"); err != nil {
		return "", err
	}
	reply := bufio.NewReader(io.LimitReader(conn, 1<<20))
	header, err := reply.ReadString('\n') // $<length>
	if err != nil {
		return "", err
	}
	length, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(header, "$")), 10, 20)
	if err != nil {
		return "", err
	}
	info := make([]byte, length)
	_, err = io.ReadFull(reply, info)
	return string(info), err
}
