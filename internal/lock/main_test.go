package lock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestMain also proves that no locker, lease or back end leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }
