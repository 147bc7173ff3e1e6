package lab

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// servers are what all experiments of a lab share, each started when the first one asks for it.
type servers struct {
	progress  io.Writer
	redis     once[*sandbox.Redis]
	postgres  once[*sandbox.Postgres]
	etcd      once[*sandbox.Etcd]
	zookeeper once[*sandbox.ZooKeeper]
}

// once starts a server at most once.
type once[S interface {
	comparable
	Stop(ctx context.Context) error
}] struct {
	mu     sync.Mutex // held while it starts
	server S
	err    error
}

func (o *once[S]) get(start func() (S, error)) (S, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var none S
	if o.server == none && o.err == nil {
		o.server, o.err = start()
	}
	return o.server, o.err
}

func (o *once[S]) stop(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var none S
	if o.server == none {
		return nil
	}
	return o.server.Stop(ctx)
}

func (s *servers) stop(ctx context.Context) error {
	return errors.Join(s.redis.stop(ctx), s.postgres.stop(ctx), s.etcd.stop(ctx), s.zookeeper.stop(ctx))
}
