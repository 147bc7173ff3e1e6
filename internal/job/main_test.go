package job_test

import (
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
	goleak.VerifyTestMain(sandbox.Tests(m))
}
