package ledger

import (
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// resetParams empties every list and keeps its memory for the next batch.
func resetParams(p *dbsqlc.WriteBatchParams) {
	*p = dbsqlc.WriteBatchParams{
		ItemIds: p.ItemIds[:0], ItemVersions: p.ItemVersions[:0], ItemOnHand: p.ItemOnHand[:0],
		ItemHeld: p.ItemHeld[:0], ItemSteps: p.ItemSteps[:0],
		ChangeIds: p.ChangeIds[:0], ChangeRevisions: p.ChangeRevisions[:0], ChangeGuards: p.ChangeGuards[:0],
		ChangeStates: p.ChangeStates[:0], ChangeHolds: p.ChangeHolds[:0],
		LineChangeIds: p.LineChangeIds[:0], LineChangeNos: p.LineChangeNos[:0], LineChangeHeld: p.LineChangeHeld[:0],
		LineChangeCommitted: p.LineChangeCommitted[:0], LineChangeReturned: p.LineChangeReturned[:0],
		OpClients: p.OpClients[:0], OpKeys: p.OpKeys[:0], OpFingerprints: p.OpFingerprints[:0],
		OpDeductions: p.OpDeductions[:0], OpItems: p.OpItems[:0], OpVersions: p.OpVersions[:0], OpKinds: p.OpKinds[:0],
		DeductionIds: p.DeductionIds[:0], DeductionHolds: p.DeductionHolds[:0], DeductionStates: p.DeductionStates[:0],
		DeductionClients: p.DeductionClients[:0], DeductionOrders: p.DeductionOrders[:0], DeductionParts: p.DeductionParts[:0],
		DeductionNumbers: p.DeductionNumbers[:0],
		LineDeductions:   p.LineDeductions[:0], LineItems: p.LineItems[:0], LineQuantities: p.LineQuantities[:0],
		DeductionCustomers: p.DeductionCustomers[:0], DeductionLimits: p.DeductionLimits[:0],
		LineHeld: p.LineHeld[:0], LineCommitted: p.LineCommitted[:0], LineNos: p.LineNos[:0], LineIds: p.LineIds[:0],
		LineMissing: p.LineMissing[:0], LineRequests: p.LineRequests[:0],
		CountItems: p.CountItems[:0], CountUnits: p.CountUnits[:0], CountClients: p.CountClients[:0], CountCustomers: p.CountCustomers[:0],
		MovementItems: p.MovementItems[:0], MovementVersions: p.MovementVersions[:0],
		MovementDeltaOnHand: p.MovementDeltaOnHand[:0], MovementDeltaHeld: p.MovementDeltaHeld[:0],
		MovementOnHand: p.MovementOnHand[:0], MovementHeld: p.MovementHeld[:0],
		MovementDeductions: p.MovementDeductions[:0], MovementKinds: p.MovementKinds[:0],
		MovementActors: p.MovementActors[:0], MovementReasons: p.MovementReasons[:0], MovementReferences: p.MovementReferences[:0],
		EventItems: p.EventItems[:0], EventVersions: p.EventVersions[:0], EventOnHand: p.EventOnHand[:0],
		EventHeld: p.EventHeld[:0], EventSafetyStock: p.EventSafetyStock[:0], EventLowStockAt: p.EventLowStockAt[:0],
		EventKinds: p.EventKinds[:0],
	}
}

// single is the batch as the arguments of WriteOne, if it comes to one new deduction of one line and nothing else.
func (v *view) single(batch []*request) (dbsqlc.WriteOneParams, bool) {
	w := v.write
	op, ok := batch[0].op.(*deduct)
	if !ok || v.special || len(batch) != 1 || len(w.DeductionIds) != 1 || len(w.LineDeductions) != 1 || len(w.ChangeIds) != 0 || len(w.EventItems) != 0 {
		return dbsqlc.WriteOneParams{}, false
	}
	return dbsqlc.WriteOneParams{
		ItemID: w.ItemIds[0], SeenVersion: w.ItemVersions[0], OnHand: w.ItemOnHand[0], Held: w.ItemHeld[0],
		Client: op.Client, Key: op.Key, Fingerprint: op.fingerprint[:],
		DeductionID: op.id, Hold: w.DeductionHolds[0], State: w.DeductionStates[0], OrderID: op.OrderID, Part: op.Part,
		Number:   op.number,
		Quantity: w.LineQuantities[0], LineHeld: w.LineHeld[0], LineCommitted: w.LineCommitted[0], LineID: w.LineIds[0],
		DeltaOnHand: w.MovementDeltaOnHand[0], DeltaHeld: w.MovementDeltaHeld[0], MovementKind: w.MovementKinds[0],
	}, true
}

// rush is the batch as the arguments of WriteDeducts, if it is nothing but new deductions. Their movements were
// appended line by line, so they have the places of the lines.
func (v *view) rush() (dbsqlc.WriteDeductsParams, bool) {
	w := v.write
	if v.special || len(w.ChangeIds) != 0 || len(w.OpKeys) != len(w.DeductionIds) || len(w.MovementItems) != len(w.LineItems) || len(w.EventItems) != 0 {
		return dbsqlc.WriteDeductsParams{}, false
	}
	return dbsqlc.WriteDeductsParams{
		ItemIds: w.ItemIds, ItemVersions: w.ItemVersions, ItemOnHand: w.ItemOnHand, ItemHeld: w.ItemHeld, ItemSteps: w.ItemSteps,
		DeductionIds: w.DeductionIds, DeductionHolds: w.DeductionHolds, Clients: w.DeductionClients, Keys: w.OpKeys,
		Fingerprints: w.OpFingerprints, Orders: w.DeductionOrders, Parts: w.DeductionParts, Numbers: w.DeductionNumbers,
		LineDeductions: w.LineDeductions, LineItems: w.LineItems, LineQuantities: w.LineQuantities, LineHeld: w.LineHeld,
		LineNos: w.LineNos, LineIds: w.LineIds,
		MovementVersions: w.MovementVersions, MovementOnHand: w.MovementOnHand, MovementHeld: w.MovementHeld,
	}, true
}

// learned remembers rows and tells whoever listens.
func (l *Ledger) learned(rows []*itemRow, epoch uint32) {
	for _, row := range rows {
		row.levels.Epoch = epoch
	}
	l.memory.learn(rows)
	if l.cfg.Seen == nil || len(rows) == 0 {
		return
	}
	levels := make([]stock.Levels, len(rows))
	for i, row := range rows {
		levels[i] = row.levels
	}
	l.cfg.Seen(levels)
}
