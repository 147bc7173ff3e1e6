package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/client/api"
)

// The types of the contract that calls are made of.
type (
	// NewDeduction is what an order wants taken or held.
	NewDeduction = api.NewDeduction
	// NewLine is a line of it.
	NewLine = api.NewLine
	// Deduction is what an order took or holds.
	Deduction = api.Deduction
	// Item is a SKU at a location with its figures.
	Item = api.Item
	// Levels are the figures of an item at a version.
	Levels = api.Levels
	// Commit says what of a hold is taken.
	Commit = api.Commit
	// Return says which goods came back.
	Return = api.Return
	// Extension moves the end of a hold.
	Extension = api.Extension
	// Adjustment changes what is physically there.
	Adjustment = api.Adjustment
	// AdjustmentResult is what became of an adjustment.
	AdjustmentResult = api.AdjustmentResult
	// Operation is what happened under a key.
	Operation = api.Operation
	// Problem is why a request was not carried out (RFC 9457).
	Problem = api.Problem
	// ShortLine is a line of which there is not enough.
	ShortLine = api.ShortLine
)

// Client calls one Holdfast as one client of it. It is safe for concurrent use.
type Client struct {
	server   string
	token    string
	http     *http.Client
	patience time.Duration
}

// Option changes a client.
type Option func(*Client)

// WithHTTPClient has requests sent by h. Its Timeout bounds one attempt.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithPatience bounds one call with all its attempts, when its context does not end before; 30 s without it.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// attemptTimeout bounds one attempt: longer than a service takes to say that it cannot (its request deadline is 5 s by default).
const attemptTimeout = 10 * time.Second

// New makes a client for the service at server, such as https://stock.internal, with a token of it.
func New(server, token string, options ...Option) *Client {
	c := &Client{server: strings.TrimSuffix(server, "/") + "/", token: token, patience: 30 * time.Second}
	c.http = &http.Client{Timeout: attemptTimeout}
	for _, change := range options {
		change(c)
	}
	return c
}

// NewKey makes a random key, for requests that have no name of their own. Keep it until the answer is known.
func NewKey() string { return uuid.NewString() }

// OrderKey is a key for the deduction of an order part: the same at every attempt, after a restart of the caller too.
func OrderKey(orderID, part string) string {
	return "order-" + url.QueryEscape(orderID) + "/" + url.QueryEscape(part)
}

// Outcome is a deduction as it is after a call.
type Outcome struct {
	Deduction
	Replayed bool // nothing was done by the attempt that was answered: an earlier one, or an earlier call, had
}

// Deduct takes stock for an order, or holds it: all lines or none. [ErrInsufficientStock] comes with every short line.
func (c *Client) Deduct(ctx context.Context, key string, d *NewDeduction) (*Outcome, error) {
	return c.change(ctx, key, func() (*http.Request, error) {
		return api.NewCreateDeductionRequest(c.server, &api.CreateDeductionParams{IdempotencyKey: key}, *d)
	})
}

// Commit takes what a deduction holds; a nil commit takes everything. Only one with KeepRest needs a key.
func (c *Client) Commit(ctx context.Context, key string, id uuid.UUID, commit *Commit) (*Outcome, error) {
	params := new(api.CommitDeductionParams)
	if key != "" {
		params.IdempotencyKey = &key
	}
	return c.change(ctx, key, func() (*http.Request, error) {
		if commit == nil {
			return api.NewCommitDeductionRequestWithBody(c.server, id, params, "application/json", http.NoBody)
		}
		return api.NewCommitDeductionRequest(c.server, id, params, *commit)
	})
}

// Release gives back what a deduction holds.
func (c *Client) Release(ctx context.Context, id uuid.UUID) (*Outcome, error) {
	return c.change(ctx, "", func() (*http.Request, error) { return api.NewReleaseDeductionRequest(c.server, id) })
}

// Extend moves a hold's expiry.
func (c *Client) Extend(ctx context.Context, id uuid.UUID, extension Extension) (*Outcome, error) {
	return c.change(ctx, "", func() (*http.Request, error) { return api.NewExtendDeductionRequest(c.server, id, extension) })
}

// Return books goods that came back.
func (c *Client) Return(ctx context.Context, key string, id uuid.UUID, back Return) (*Outcome, error) {
	return c.change(ctx, key, func() (*http.Request, error) {
		return api.NewReturnDeductionRequest(c.server, id, &api.ReturnDeductionParams{IdempotencyKey: key}, back)
	})
}

// Adjust changes what is physically there.
func (c *Client) Adjust(ctx context.Context, key, sku, location string, adjustment Adjustment) (*AdjustmentResult, error) {
	var done AdjustmentResult
	_, err := c.do(ctx, key, &done, func() (*http.Request, error) {
		return api.NewAdjustItemRequest(c.server, sku, &api.AdjustItemParams{Location: &location, IdempotencyKey: key}, adjustment)
	})
	return &done, err
}

// Item with its figures; [ErrNotFound] when there is none.
func (c *Client) Item(ctx context.Context, sku, location string) (*Item, error) {
	var item Item
	_, err := c.do(ctx, "", &item, func() (*http.Request, error) {
		return api.NewGetItemRequest(c.server, sku, &api.GetItemParams{Location: &location})
	})
	return &item, err
}

// Operation tells what happened under a key; [ErrNotFound] when nothing has, which a request on its way may yet change.
func (c *Client) Operation(ctx context.Context, key string) (*Operation, error) {
	var done Operation
	_, err := c.do(ctx, key, &done, func() (*http.Request, error) { return api.NewGetOperationRequest(c.server, key) })
	return &done, err
}

// Void gives a key up. If nothing happened under it, nothing ever will, and the answer's kind is "void"; if something did, that is
// the answer.
func (c *Client) Void(ctx context.Context, key string) (*Operation, error) {
	var done Operation
	_, err := c.do(ctx, key, &done, func() (*http.Request, error) { return api.NewVoidOperationRequest(c.server, key) })
	return &done, err
}

// change is a call that is answered with a deduction.
func (c *Client) change(ctx context.Context, key string, build func() (*http.Request, error)) (*Outcome, error) {
	var done Outcome
	header, err := c.do(ctx, key, &done.Deduction, build)
	if err != nil {
		return nil, err
	}
	done.Replayed = header.Get("Idempotent-Replayed") == "true"
	return &done, nil
}
