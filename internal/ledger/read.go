package ledger

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// newView makes an empty view for a batch of n requests. Its write borrows the buffers of params, which
// belong to one writer.
func newView(n int, params *dbsqlc.WriteBatchParams) *view {
	resetParams(params)
	return &view{
		items: make(map[stock.Item]*itemRow, n), deductions: make(map[uuid.UUID]*deductionRow), write: params,
	}
}

// clone copies a row for one attempt, which may change it.
func (d *deductionRow) clone() *deductionRow {
	c := *d
	c.Lines = slices.Clone(d.Lines)
	return &c
}

// rows lists every item row in the view.
func (v *view) rows() []*itemRow {
	rows := make([]*itemRow, 0, len(v.items))
	for _, row := range v.items {
		rows = append(rows, row)
	}
	return rows
}

func readItems(ctx context.Context, q *dbsqlc.Queries, v *view, items []stock.Item, from reading) error {
	if len(items) == 0 {
		return nil
	}
	arg := dbsqlc.ReadItemsParams{Skus: make([]string, len(items)), Locations: make([]string, len(items))}
	for i, item := range items {
		arg.Skus[i], arg.Locations[i] = string(item.SKU), string(item.Location)
	}
	if from != locked {
		rows, err := q.ReadItems(ctx, arg)
		for i := range rows {
			v.addItem(&rows[i])
		}
		return err
	}
	rows, err := q.LockItems(ctx, dbsqlc.LockItemsParams(arg))
	for i := range rows {
		read := dbsqlc.ReadItemsRow(rows[i])
		v.addItem(&read)
	}
	return err
}

// readFences locks the newest claim of each key, so that nobody claims it before the transaction ends.
func readFences(ctx context.Context, q *dbsqlc.Queries, v *view, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	rows, err := q.HoldFences(ctx, keys)
	v.fences = make(map[string]stock.Token, len(rows))
	for i := range rows {
		if rows[i].InTime {
			v.fences[rows[i].Key] = stock.Token(rows[i].Token)
		}
	}
	return err
}

func (v *view) addItem(r *dbsqlc.ReadItemsRow) {
	item := stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)}
	v.items[item] = &itemRow{id: r.ID, seen: r.Version, lowAt: lowMark(r.LowStockAt), levels: stock.Levels{
		Item: item, OnHand: stock.Quantity(r.OnHand), Held: stock.Quantity(r.Held),
		SafetyStock: stock.Quantity(r.SafetyStock), Version: r.Version,
	}}
}

func readDeductions(ctx context.Context, q *dbsqlc.Queries, v *view, ids []uuid.UUID, from reading) error {
	if len(ids) == 0 {
		return nil
	}
	if from == locked {
		if _, err := q.LockDeductions(ctx, ids); err != nil {
			return err
		}
	}
	rows, err := q.ReadDeductions(ctx, ids)
	if err != nil {
		return err
	}
	var d *deductionRow
	for i := range rows {
		r := &rows[i]
		if d == nil || d.ID != r.ID {
			d = &deductionRow{deductionOf(r)}
			v.deductions[r.ID] = d
			v.now = r.ReadAt
		}
		d.Lines = append(d.Lines, lineOf(r))
	}
	return nil
}

func deductionOf(r *dbsqlc.ReadDeductionsRow) stock.Deduction {
	d := stock.Deduction{
		Customer: customerOf(r), CustomerLimit: stock.Quantity(r.CustomerLimit),
		ID: r.ID, Number: r.Number, Client: r.Client, OrderID: r.OrderID, Part: r.Part, State: stock.State(r.State), Revision: r.Revision,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if r.ExpiresAt != nil {
		d.ExpiresAt = *r.ExpiresAt
	}
	return d
}

func customerOf(r *dbsqlc.ReadDeductionsRow) stock.Customer {
	if r.Customer == "" {
		return stock.Customer{}
	}
	return stock.Customer{Client: r.Client, Name: r.Customer}
}

func lineOf(r *dbsqlc.ReadDeductionsRow) stock.Line {
	return stock.Line{
		No: int(r.LineNo), RequestLine: int(r.RequestLine), LineID: r.LineID, Item: stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)},
		Quantity: stock.Quantity(r.Quantity + r.Missing), Missing: stock.Quantity(r.Missing), Held: stock.Quantity(r.Held),
		Committed: stock.Quantity(r.Committed), Returned: stock.Quantity(r.Returned),
	}
}

// readNames looks up orders, what customers have, and keys. Keys come last: every look-up sees what was committed when it
// began, and whoever finds a live order has to find the key that made it, or a retry would be told that another key did.
func readNames(ctx context.Context, q *dbsqlc.Queries, v *view, n needs) error {
	if defect.On(defect.IgnoreKey) {
		return nil
	}
	if err := readLive(ctx, q, v, n.orders); err != nil {
		return err
	}
	if err := readUnits(ctx, q, v, n.units); err != nil {
		return err
	}
	return readOperations(ctx, q, v, n.keys)
}

func readOperations(ctx context.Context, q *dbsqlc.Queries, v *view, keys []stock.Keyed) error {
	if len(keys) == 0 {
		return nil
	}
	arg := dbsqlc.FindOperationsParams{Clients: make([]string, len(keys)), Keys: make([]string, len(keys))}
	for i, k := range keys {
		arg.Clients[i], arg.Keys[i] = k.Client, k.Key
	}
	found, err := q.FindOperations(ctx, arg)
	if err != nil {
		return err
	}
	v.operations = make(map[stock.Keyed]operationRow, len(found))
	for i := range found {
		v.operations[stock.Keyed{Client: found[i].Client, Key: found[i].Key}] = operationOf(&found[i])
	}
	return nil
}

func readLive(ctx context.Context, q *dbsqlc.Queries, v *view, orders []orderPart) error {
	if len(orders) == 0 {
		return nil
	}
	arg := dbsqlc.FindLiveParams{
		Clients: make([]string, len(orders)), Orders: make([]string, len(orders)), Parts: make([]string, len(orders)),
	}
	for i, o := range orders {
		arg.Clients[i], arg.Orders[i], arg.Parts[i] = o.client, o.order, o.part
	}
	found, err := q.FindLive(ctx, arg)
	if err != nil {
		return err
	}
	v.live = make(map[orderPart]uuid.UUID, len(found))
	for i := range found {
		v.live[orderPart{found[i].Client, found[i].OrderID, found[i].Part}] = found[i].ID
	}
	return nil
}

func readUnits(ctx context.Context, q *dbsqlc.Queries, v *view, about []possession) error {
	if len(about) == 0 {
		return nil
	}
	v.units = make(map[possession]*unitsRow, len(about))
	arg := dbsqlc.ReadCustomerUnitsParams{
		Skus: make([]string, len(about)), Locations: make([]string, len(about)),
		Clients: make([]string, len(about)), Customers: make([]string, len(about)),
	}
	for i, p := range about {
		v.units[p] = new(unitsRow) // unless there is one
		arg.Skus[i], arg.Locations[i] = string(p.item.SKU), string(p.item.Location)
		arg.Clients[i], arg.Customers[i] = p.customer.Client, p.customer.Name
	}
	found, err := q.ReadCustomerUnits(ctx, arg)
	for i := range found {
		f := &found[i]
		p := possession{
			stock.Customer{Client: f.Client, Name: f.Customer}, stock.Item{SKU: stock.SKU(f.Sku), Location: stock.Location(f.Location)},
		}
		v.units[p].units = stock.Quantity(f.Units)
	}
	return err
}

func operationOf(r *dbsqlc.FindOperationsRow) operationRow {
	op := operationRow{
		kind: stock.OperationKind(r.Kind), at: r.At,
		name: stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)},
	}
	copy(op.fingerprint[:], r.Fingerprint)
	if r.DeductionID != nil {
		op.deduction = *r.DeductionID
	}
	if r.ItemID != nil {
		op.item = *r.ItemID
	}
	if r.Version != nil {
		op.version = *r.Version
	}
	return op
}
