package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Movements of last year become a checkpoint beside a service that runs, and a file that a second run adds nothing to.
func TestRetainArchivesWhatIsOld(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "")
	service := shop.open(t)
	service.bring(t, "sku,delta\nMUG,5\nMUG,6\nCUP,7\n", exitFine)
	url := strings.TrimPrefix(shop.env[0], "HOLDFAST_DATABASE_URL=")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Exec(t.Context(), "UPDATE movements SET at = at - interval '1 year'"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	retain := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"retain", "--database-url=" + url}, args...), &out, &errs); code != want {
			t.Fatalf("exit code %d, want %d: %s%s", code, want, out.String(), errs.String())
		}
		return out.String()
	}
	day := time.Now().AddDate(0, -1, 0).UTC().Format(time.DateOnly)
	retain(exitUsage, "--before="+day)
	retain(exitUsage, "--before="+day, "--archive="+dir, "--discard")
	retain(exitNo, "--before="+time.Now().AddDate(0, 0, 2).Format(time.DateOnly), "--discard")
	retain(exitNo, "--before="+day, "--archive="+filepath.Join(dir, "none", "x"))
	want(t, "first", retain(exitFine, "--before="+day, "--archive="+dir), "2 movements of 1 item rolled up\n")
	want(t, "second", retain(exitFine, "--before="+day, "--archive="+dir), "0 movements of 0 items rolled up\n")
	if _, err := os.Stat(filepath.Join(dir, "movements-before-"+day+".ndjson.gz")); err != nil {
		t.Error(err)
	}
	a, err := service.api().send(t.Context(), request{method: "GET", path: stockPath("MUG", "/movements", "")})
	if err != nil || !strings.Contains(string(a.body), `{"movements":[{"version":2,"kind":"checkpoint","delta_on_hand":11,`) {
		t.Errorf("%s, %v", a.body, err)
	}
}
