package ledger

import (
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
)

// recallers is how many look-ups may be on their way at once; requests gather meanwhile.
const recallers = 1

// runRecalls answers look-ups by key and rehearsals, many with one reading, until their sequencer is closed.
func (l *Ledger) runRecalls() {
	var batch []*request
	var params dbsqlc.WriteBatchParams
	for {
		var ok bool
		if batch, ok = l.recalls.take(batch); !ok {
			return
		}
		l.answerRecalls(batch, &params)
	}
}

func (l *Ledger) answerRecalls(batch []*request, params *dbsqlc.WriteBatchParams) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Patience)
	defer cancel()
	v := newView(0, params)
	err := readBasis(ctx, l.reads, v, batch, basis{justRead, true})
	for _, r := range batch {
		if err != nil {
			r.done <- refuse(readError(err))
			continue
		}
		r.done <- r.op.decide(v)
	}
}
