package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-stock/holdfast/client/api"
)

const (
	// firstPause and lastPause bound the pause before a request is sent again; it doubles from one to the other.
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 16 << 20
)

// do sends a request until its answer is final, decodes a success, and returns the answer's header.
func (c *Client) do(ctx context.Context, key string, into any, build func() (*http.Request, error)) (http.Header, error) {
	until := time.Now().Add(c.patience)
	maybe := false // an attempt may have had its effect
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		header, body, err := c.attempt(ctx, build)
		if err == nil {
			return header, json.Unmarshal(body, into)
		}
		again, wait, unknown := judge(err, pause)
		maybe = maybe || unknown
		if !again {
			return nil, err
		}
		cause := sleep(ctx, wait, until)
		switch {
		case cause == nil:
			continue
		case maybe:
			return nil, &UnknownError{Key: key, Cause: ctx.Err(), Last: err}
		}
		return nil, err
	}
}

// errNoFinalAnswer marks an attempt that was not answered, or not by Holdfast.
var errNoFinalAnswer = errors.New("no answer")

// attempt sends the request once. An answer that is none of success is an [*Error].
func (c *Client) attempt(ctx context.Context, build func() (*http.Request, error)) (http.Header, []byte, error) {
	request, err := build()
	if err != nil {
		return nil, nil, fmt.Errorf("holdfast: make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.http.Do(request.WithContext(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoFinalAnswer, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoFinalAnswer, err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Header, body, nil
	}
	failed := new(Error)
	if json.Unmarshal(body, &failed.Problem) != nil || failed.Retry == "" {
		return nil, nil, fmt.Errorf("%w: status %d, not from Holdfast", errNoFinalAnswer, response.StatusCode)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failed.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, nil, failed
}

// judge says whether the same request is to be sent again, after which wait, and whether it may have had its effect. Pause is
// how long to wait when nothing was said.
func judge(err error, pause time.Duration) (again bool, wait time.Duration, unknown bool) {
	wait = rand.N(pause) + firstPause/2
	if errors.Is(err, errNoFinalAnswer) {
		return true, wait, true
	}
	var failed *Error
	if !errors.As(err, &failed) {
		return false, 0, false
	}
	unknown = failed.Outcome == api.Unknown
	again = unknown || failed.Retry == api.After
	if failed.RetryAfter > 0 {
		wait += failed.RetryAfter // the jitter on top keeps those who were told the same apart
	}
	return again, wait, unknown
}

// errPatience: no time is left for another attempt.
var errPatience = errors.New("patience is over")

// sleep until it is time for the next attempt; the error says that there is none.
func sleep(ctx context.Context, wait time.Duration, until time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if time.Now().Add(wait).After(until) {
		return errPatience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
