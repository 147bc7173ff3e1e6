package lock

import (
	"context"
	"errors"
	"fmt"
)

// Token is a fencing token: of two grants of one key the later has the greater token. Whatever must not be written
// by a holder that lost its lease without noticing takes a Token and compares it where it writes: claim the token
// first, then check it in every transaction (doc.go says why one comparison is not enough).
type Token int64

// TokenSource numbers holds. It has to survive what the back end of the lease does not.
type TokenSource interface {
	// Draw returns the token of a hold: greater than the tokens of all holds of the key drawn before, and the
	// same one if the hold was drawn before.
	Draw(ctx context.Context, key, hold string) (Token, error)
	// Last returns the token drawn last for each key; keys without one are left out.
	Last(ctx context.Context, keys []string) (map[string]Token, error)
	// Origin says where its tokens come from.
	Origin() TokenOrigin
}

// WithTokens makes a back end that has no tokens a fenced one: every grant gets its token from the source.
//
// The token is drawn while the key is held, and then the lease is renewed: only a renewal that succeeds proves that
// nobody else was granted the key before the draw, so that tokens grow in the order of grants. An acquire thus
// costs one draw and one renewal more. Should the back end forget a lease and grant the key twice, the two holders
// still have different tokens.
func WithTokens(backend Backend, source TokenSource) FencedBackend {
	return &numberedBackend{Backend: backend, source: source}
}

// numberedBackend draws a token for every grant of the back end it wraps.
type numberedBackend struct {
	Backend
	source TokenSource
}

func (n *numberedBackend) Fencing() TokenOrigin { return n.source.Origin() }

func (n *numberedBackend) Properties() Properties {
	p := n.Backend.Properties()
	p.Fencing = n.source.Origin()
	return p
}

func (n *numberedBackend) Acquire(ctx context.Context, c Claim) (Grant, error) {
	grant, err := n.Backend.Acquire(ctx, c)
	if err != nil {
		return Grant{}, err
	}
	// From here on the key is held: an error is a claim to be given up, whosever fault it is.
	bounded, cancel := context.WithDeadline(ctx, deadline(grant))
	defer cancel()
	token, err := n.source.Draw(bounded, c.Key, grant.Hold)
	if err != nil {
		return Grant{}, errors.Join(ErrUnknownOutcome, fmt.Errorf("draw a token for %s: %w", c.Key, err))
	}
	grant.Token = token
	renewed, err := n.Backend.Renew(bounded, grant)
	if err != nil {
		return Grant{}, errors.Join(ErrUnknownOutcome, fmt.Errorf("confirm the token of %s: %w", c.Key, err))
	}
	return renewed, nil
}

func (n *numberedBackend) List(ctx context.Context, limit int) ([]Held, error) {
	held, err := n.Backend.List(ctx, limit)
	if err != nil || len(held) == 0 {
		return held, err
	}
	keys := make([]string, len(held))
	for i, h := range held {
		keys[i] = h.Key
	}
	tokens, err := n.source.Last(ctx, keys)
	if err != nil {
		return held, fmt.Errorf("look up tokens: %w", err)
	}
	for i := range held {
		held[i].Token = tokens[held[i].Key]
	}
	return held, nil
}
