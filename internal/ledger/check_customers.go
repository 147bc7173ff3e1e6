package ledger

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Counter names what is counted of a customer: what he has of an item.
type Counter struct {
	ItemID   int64
	Customer stock.Customer
}

func (c Counter) String() string {
	return fmt.Sprintf("customer_units (item_id %d, client %q, customer %q)", c.ItemID, c.Customer.Client, c.Customer.Name)
}

// finding that a counter is not what the customer's deductions say.
func (c Counter) finding(sku, location string, evidence ...string) stock.Finding {
	item := stock.Item{SKU: stock.SKU(sku), Location: stock.Location(location)}
	return stock.Finding{
		Rule: stock.RuleCustomers, Subject: fmt.Sprintf("%s for customer %s of %s", item, c.Customer.Name, c.Customer.Client), Evidence: evidence,
	}
}

// CheckCustomers compares one page of what customers have, after the counter given, with their deductions. It returns the last counter it
// looked at and how many there were; fewer than limit are the last. A counter that is not there is found by [Ledger.CheckKeys].
func (l *Ledger) CheckCustomers(ctx context.Context, after Counter, limit int) (last Counter, n int, found []stock.Finding, err error) {
	rows, err := l.reads.CheckCustomers(ctx, dbsqlc.CheckCustomersParams{
		AfterItemID: after.ItemID, AfterClient: after.Customer.Client, AfterCustomer: after.Customer.Name, RowLimit: int32(limit),
	})
	if err != nil {
		return after, 0, nil, readError(err)
	}
	last = after
	for i := range rows {
		u := &rows[i]
		last = Counter{u.ItemID, stock.Customer{Client: u.Client, Name: u.Customer}}
		if u.Units != u.Taken {
			found = append(found, last.finding(u.Sku, u.Location, fmt.Sprintf("%v: units %d", last, u.Units),
				fmt.Sprintf("deduction_lines (item_id %d) of deductions of that customer: held + committed − returned is %d in sum", u.ItemID, u.Taken)))
		}
	}
	return last, len(rows), found, nil
}

// uncounted finds lines of deductions of customers who have no counter.
func (l *Ledger) uncounted(ctx context.Context, deductions []uuid.UUID) ([]stock.Finding, error) {
	rows, err := l.reads.FindUncounted(ctx, deductions)
	if err != nil {
		return nil, err
	}
	var found []stock.Finding
	for i := range rows {
		r := &rows[i]
		c := Counter{r.ItemID, stock.Customer{Client: r.Client, Name: r.Customer}}
		found = append(found, c.finding(r.Sku, r.Location, fmt.Sprintf("%v: none", c),
			fmt.Sprintf("deduction_lines (deduction_id %s, line_no %d): held + committed − returned is %d", r.ID, r.LineNo, r.Units)))
	}
	return found, nil
}
