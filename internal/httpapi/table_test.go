package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

// sentinels are the errors that package stock declares, by name.
func sentinels(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../stock/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// rowsInSource are the errors of package stock that problem.go has a row for, by name.
func rowsInSource(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok || row.Type != nil || len(row.Elts) == 0 {
			return true
		}
		if cause, ok := row.Elts[0].(*ast.SelectorExpr); ok {
			names = append(names, cause.Sel.Name)
		}
		return true
	})
	return names
}

func TestEveryStockErrorHasARow(t *testing.T) {
	t.Parallel()
	rows, all := rowsInSource(t), sentinels(t)
	if len(all) < 15 {
		t.Fatalf("found only %d errors in package stock: %v", len(all), all)
	}
	for _, name := range all {
		if !slices.Contains(rows, name) {
			t.Errorf("stock.%s has no row in problem.go", name)
		}
	}
}

func TestErrorTableIsSound(t *testing.T) {
	t.Parallel()
	causes := map[error]bool{}
	for _, row := range httpapi.ProblemRows() {
		if causes[row.Cause] {
			t.Errorf("%v has two rows", row.Cause)
		}
		causes[row.Cause] = true
		if row.Status < 400 || row.Name == "" || strings.ToLower(row.Name) != row.Name {
			t.Errorf("%+v", row)
		}
	}
}

// What the routes ask for is what the contract says: a route that the table lacks, or that has no scope, fails here.
func TestRoutesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	type rule struct {
		Scopes []httpapi.Scope
		Query  []string
	}
	want, got := map[string]rule{}, map[string]rule{}
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			want[method+" "+path] = rule{scopesOf(t, op), queryOf(item, op)}
		}
	}
	for _, r := range httpapi.RouteRows() {
		slices.Sort(r.Query)
		got[r.Method+" "+r.Pattern] = rule{r.Scopes, r.Query}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-contract +table):\n%s", diff)
	}
}

// scopesOf lists the scopes of which any one will do.
func scopesOf(t *testing.T, op *openapi3.Operation) (scopes []httpapi.Scope) {
	t.Helper()
	if op.Security == nil || len(*op.Security) == 0 {
		t.Fatalf("%s names no scope", op.OperationID)
	}
	for _, way := range *op.Security {
		if len(way["bearer"]) != 1 {
			t.Fatalf("%s names a way in that is not by one scope", op.OperationID)
		}
		scopes = append(scopes, httpapi.Scope(way["bearer"][0]))
	}
	return scopes
}

func queryOf(item *openapi3.PathItem, op *openapi3.Operation) []string {
	var names []string
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		if p.Value.In == openapi3.ParameterInQuery {
			names = append(names, p.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}
