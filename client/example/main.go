// Command example is an order service in a hundred lines. It reads orders from standard input, one a line: id, SKU and quantity. It takes
// stock for each, and prints one line for each when it knows what came of it: "sold ID", or "short ID".
//
// It loses no order and sells none twice, whatever dies: the journal has each order before Holdfast is asked, and what came of it after.
// An order without a result is asked for again, under the same key, which tells what happened if it did.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/holdfast-stock/holdfast/client"
)

// order is what a customer wants.
type order struct {
	id, sku  string
	quantity int64
}

// journal is a file of lines: "want ID SKU QUANTITY" when an order came in, "sold ID" or "short ID" when it ended.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func (j *journal) write(line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintln(j.file, line); err != nil {
		return err
	}
	return j.file.Sync() // before it is acted upon
}

// open reads which orders have no result yet, and goes on writing at the end.
func open(path string) (*journal, map[string]order, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	pending := make(map[string]order)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var what string
		var o order
		if _, err := fmt.Sscan(lines.Text(), &what, &o.id, &o.sku, &o.quantity); err == nil && what == "want" {
			pending[o.id] = o
		} else {
			delete(pending, o.id)
		}
	}
	return &journal{file: file}, pending, nil
}

// sell takes stock for one order. An error means that it has no result yet; it is in the journal. Before an order is called short its key is given
// up: an attempt whose answer was lost may still be on its way, and must not take anything later.
func sell(ctx context.Context, stock *client.Client, j *journal, o order) error {
	key, result := client.OrderKey(o.id, ""), "sold "
	_, err := stock.Deduct(ctx, key, &client.NewDeduction{
		OrderId: o.id, Lines: []client.NewLine{{Sku: o.sku, Quantity: o.quantity}},
	})
	if errors.Is(err, client.ErrInsufficientStock) || errors.Is(err, client.ErrKeyVoided) {
		var done *client.Operation
		if done, err = stock.Void(ctx, key); err == nil && done.Kind == "void" {
			result = "short "
		}
	}
	if err != nil {
		return fmt.Errorf("order %s: %w", o.id, err)
	}
	fmt.Println(result + o.id)
	return j.write(result + o.id)
}

func run(ctx context.Context, in io.Reader, path string) error {
	stock := client.New(os.Getenv("HOLDFAST_URL"), os.Getenv("HOLDFAST_TOKEN"))
	j, pending, err := open(path)
	if err != nil {
		return err
	}
	orders, failed := make(chan order), make(chan error, 1)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for o := range orders {
				if err := sell(ctx, stock, j, o); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for _, o := range pending {
		orders <- o
	}
	for lines := bufio.NewScanner(in); lines.Scan() && ctx.Err() == nil; {
		var o order
		if _, err := fmt.Sscan(lines.Text(), &o.id, &o.sku, &o.quantity); err != nil {
			return fmt.Errorf("order %q: %w", lines.Text(), err)
		}
		if err := j.write(fmt.Sprintf("want %s %s %d", o.id, o.sku, o.quantity)); err != nil {
			return err
		}
		orders <- o
	}
	close(orders)
	workers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdin, "orders.journal"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
