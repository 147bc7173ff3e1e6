package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// roleVariable makes the test binary play a part in another test instead of running tests, see [roles].
const roleVariable = "HOLDFAST_SANDBOX_ROLE"

func TestMain(m *testing.M) {
	if role, ok := roles()[os.Getenv(roleVariable)]; ok {
		role()
		return
	}
	goleak.VerifyTestMain(sandbox.Tests(m))
}

// play runs the test binary again in a role.
func play(role string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func scalar[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// alive reports whether a process runs; one that ended and was not reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}
