package job_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestMain also is the main of the runners that the tests start as processes of their own.
func TestMain(m *testing.M) {
	if os.Getenv(childConfig) != "" {
		os.Exit(child())
	}
	// These tests wait for time to pass far more than they compute: one for each processor would take minutes.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(sandbox.Tests(m))
}
