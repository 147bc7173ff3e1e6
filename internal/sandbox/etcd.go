package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// EtcdConfig says how to run an etcd server. The zero value is one on a free port.
type EtcdConfig struct {
	Dir      string    // where its files are kept between runs; empty: a temporary directory, removed by Stop
	Port     int       // on 127.0.0.1, with its peer port 10,000 above; 0: a free one
	Progress io.Writer // gets a line before something takes long, as installing does; nil: nobody does
}

// Etcd is a private etcd server on loopback, a cluster of one. It syncs what it acknowledges.
type Etcd struct {
	server
}

// StartEtcd runs an etcd server and returns when it serves requests. It ends with Stop, with Kill, or with this
// process.
func StartEtcd(ctx context.Context, config EtcdConfig) (*Etcd, error) {
	found, err := etcdSoftware().find(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	e := &Etcd{server{name: "etcd", dir: dir, port: config.Port, quit: syscall.SIGTERM}}
	e.ready = e.serves
	e.program = func() (program, error) {
		peer := fmt.Sprintf("http://127.0.0.1:%d", e.port+10_000)
		return program{path: found.path("etcd"), args: []string{
			"--name=holdfast", "--data-dir=" + dir.file("data"), "--initial-cluster=holdfast=" + peer,
			"--listen-client-urls=" + e.URL(), "--advertise-client-urls=" + e.URL(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		}, env: found.env, dir: dir.path}, nil
	}
	if err := e.start(ctx, freePort); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return e, nil
}

// URL is the client endpoint of the server.
func (e *Etcd) URL() string { return "http://" + e.Addr() }

// serves reports whether the child, which says so in its log, serves requests, and has elected itself.
func (e *Etcd) serves(ctx context.Context, child *process) bool {
	if !strings.Contains(child.output(), "ready to serve client requests") {
		return false
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL()+"/health", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
