package inventory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }
