package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// gateCrash: what a counter in Redis does when the process behind it dies.
func gateCrash() *Experiment {
	return &Experiment{
		Number: 19, Name: "gate-crash",
		Question: "May stock be counted down in Redis before it is written to the database?",
		Claim: "Not by a plain counter: a process that dies between the two leaves the counter too low for ever, and nobody can tell " +
			"by how much. Holdfast's gate takes a ticket with a deadline against a base with the ledger's version.",
		Setup:       "An item with one unit left. A process counts it down in Redis (Lua, atomic) and is killed before it writes to Postgres.",
		Anomalies:   []Case{{"the unit is there, and nobody can ever buy it", countDownAndDie}},
		Protections: []Case{{"a ticket with a deadline: refused while it may be in use, and available again afterwards", ticketAndDie}},
		Roles:       map[string]Role{"counter": countDown, "ticket": takeTicket},
	}
}

// countScript is the usual script: enough? Then less.
const countScript = `if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then return 0 end
redis.call('DECR', KEYS[1]) return 1`

type gateArgs struct{ Redis, Name string }

// countDown counts one unit down, and never gets to the database.
func countDown(ctx context.Context, c *Child) error {
	var args gateArgs
	if err := c.Args(&args); err != nil {
		return err
	}
	granted, err := newRedisClient(args.Redis).Eval(ctx, countScript, []string{args.Name}).Int()
	if err != nil {
		return err
	}
	c.Say("counted", "%d", granted)
	return c.Await("never")
}

// dieAt starts a process and kills it when it is at a step.
func (s *Stage) dieAt(ctx context.Context, role, step string, args any) (said string, err error) {
	a, err := s.Process("A", role, args)
	if err != nil {
		return "", err
	}
	if said, err = a.Expect(ctx, step); err != nil {
		return "", err
	}
	s.Mark("A", Plain, "%s: %s", step, said)
	a.Kill()
	s.Begin("A", Gone, "kill -9")
	return said, nil
}

func countDownAndDie(ctx context.Context, s *Stage) (bool, error) {
	client, err := s.redisClient(ctx)
	if err != nil {
		return false, err
	}
	if err := client.Set(ctx, s.Name(), 1, 0).Err(); err != nil {
		return false, err
	}
	granted, err := s.dieAt(ctx, "counter", "counted", gateArgs{client.Options().Addr, s.Name()})
	if err != nil {
		return false, err
	}
	next, err := client.Eval(ctx, countScript, []string{s.Name()}).Int()
	if err != nil {
		return false, err
	}
	s.Mark("B", Wrong, "granted: %d", next)
	left, err := client.PTTL(ctx, s.Name()).Result()
	s.Note("the database has one unit, the counter none, and it has no end (PTTL %d)", left)
	return granted == "1" && next == 0 && left == -1, err
}

// gateOf is a gate in front of an item of which the ledger says that one unit is there.
func gateOf(client redis.UniversalClient, prefix string) *gate.Gate {
	return gate.New(client, gate.Config{
		Prefix: prefix, CallTimeout: patience, Ample: -1, TicketLife: gateTicketLife,
		Confirm: func(context.Context, []stock.Item) ([]stock.Levels, error) { return []stock.Levels{gateLevels()}, nil },
	})
}

const gateTicketLife = time.Second

func gateLevels() stock.Levels {
	return stock.Levels{Item: stock.Item{SKU: "lab", Location: stock.DefaultLocation}, OnHand: 1, Version: 1, Epoch: 1}
}

func takeOne(ctx context.Context, g *gate.Gate, order string) gate.Answer {
	return g.Take(ctx, gate.TicketFor("lab", order, ""), []stock.WantedLine{{Item: gateLevels().Item, Quantity: 1}})
}

// takeTicket takes a ticket for the unit, and never gets to the database.
func takeTicket(ctx context.Context, c *Child) error {
	var args gateArgs
	if err := c.Args(&args); err != nil {
		return err
	}
	c.Say("asked", "%v", takeOne(ctx, gateOf(newRedisClient(args.Redis), args.Name), "order-A").Verdict)
	return c.Await("never")
}

func ticketAndDie(ctx context.Context, s *Stage) (bool, error) {
	client, err := s.redisClient(ctx)
	if err != nil {
		return false, err
	}
	first, err := s.dieAt(ctx, "ticket", "asked", gateArgs{client.Options().Addr, s.Name()})
	if err != nil {
		return false, err
	}
	g := gateOf(client, s.Name())
	defer g.Close()
	began := time.Now()
	meanwhile := takeOne(ctx, g, "order-B").Verdict
	s.Mark("B", Refused, "%v, while the ticket of A may be in use", meanwhile)
	var then gate.Verdict
	err = s.Until(ctx, "the ticket of A ends", func() (bool, error) {
		then = takeOne(ctx, g, "order-B").Verdict
		return then != gate.Short, nil
	})
	s.Mark("B", Right, "%v", then)
	s.Note("A's ticket kept others out for at most %v more", time.Since(began).Round(10*time.Millisecond))
	return first == fmt.Sprint(gate.Granted) && meanwhile == gate.Short && then == gate.Granted, err
}
