package lock_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestMain also proves that no locker, lease or back end leaves a goroutine behind.
func TestMain(m *testing.M) {
	// These tests wait for time to pass far more than they compute: one for each processor would take minutes. The flags are
	// read first, for one of the command line would take this back.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(testRun{sandbox.Tests(m)})
}

// testRun stops our servers too.
type testRun struct{ *sandbox.TestRun }

func (r testRun) Run() int {
	code := r.TestRun.Run()
	if err := stopServers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
