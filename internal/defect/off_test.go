//go:build !defects

package defect_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/defect"
)

func TestNothingIsWrongWithoutTheTag(t *testing.T) {
	t.Setenv("HOLDFAST_DEFECT", "no such defect")
	t.Setenv("HOLDFAST_LATE_NEWS", "true")
	for _, name := range defect.All() {
		if defect.On(name) {
			t.Errorf("%s is on", name)
		}
	}
	if defect.LateNews() {
		t.Error("news come late")
	}
	for _, point := range defect.Points() {
		defect.Reach(point)
	}
	if err := defect.Start(t.Context(), "postgres://nobody@127.0.0.1:1/", slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if defect.SQL(nil) != nil || defect.Lua("return 1") != "return 1" {
		t.Error("statements or scripts are changed")
	}
}
