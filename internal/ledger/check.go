package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
)

// oldestServer is the Postgres version this is tested on; older ones are refused rather than hoped for.
const oldestServer = 150000

// Check reads the settings that the promise "acknowledged means durable" rests on, and returns a sentence for
// each that breaks it. The error is that of a database that cannot be asked.
func Check(ctx context.Context, url string) (broken []string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the ledger: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	s, err := dbsqlc.New(conn).ReadSettings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's settings: %w", err)
	}
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	must(s.Fsync == "on", "fsync is %s: a crash of the server can lose or tear what was acknowledged", s.Fsync)
	must(s.FullPageWrites == "on", "full_page_writes is %s: a crash can leave torn pages", s.FullPageWrites)
	must(s.SynchronousCommit != "off", "synchronous_commit is off: a crash of the server loses what was acknowledged last")
	must(s.ServerVersion >= oldestServer, "the server's version is %d: %d or newer is needed", s.ServerVersion, oldestServer)
	must(s.Encoding == "UTF8", "the database's encoding is %s, not UTF8", s.Encoding)
	must(!s.InRecovery, "the server is a standby: it takes no writes")
	return broken, nil
}
