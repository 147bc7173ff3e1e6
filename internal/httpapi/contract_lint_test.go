package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

var (
	camelCase = regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)*$`)
	reference = regexp.MustCompile(`\$ref: "#/components/(\w+)/(\w+)"`)
	// problemName is how a description names a problem.
	problemName = regexp.MustCompile("`([a-z]+(?:-[a-z]+)*)`")
)

// eachOperation calls do with every operation of the contract, by method and path.
func eachOperation(t *testing.T, do func(name string, op *openapi3.Operation)) {
	t.Helper()
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			do(method+" "+path, op)
		}
	}
}

// The rules of a spec that people and generators can use.
func TestContractIsTidy(t *testing.T) {
	t.Parallel()
	doc := loadContract(t)
	ids, tags := map[string]bool{}, map[string]bool{}
	eachOperation(t, func(name string, op *openapi3.Operation) {
		if ids[op.OperationID] || !camelCase.MatchString(op.OperationID) {
			t.Errorf("%s: operationId %q is taken or not in camel case", name, op.OperationID)
		}
		ids[op.OperationID] = true
		if op.Summary == "" || strings.HasSuffix(op.Summary, ".") || op.Description == "" {
			t.Errorf("%s: needs a summary without a full stop, and a description", name)
		}
		if len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
			t.Errorf("%s: tags %v", name, op.Tags)
			return
		}
		tags[op.Tags[0]] = true
		for _, status := range []int{400, 401, 403, 422, 429, 431, 500, 503} { // any request may end so
			if op.Responses.Status(status) == nil {
				t.Errorf("%s: no response %d", name, status)
			}
		}
		for status, response := range op.Responses.Map() {
			isProblem := response.Value.Content["application/problem+json"] != nil
			if isProblem != (status >= "400") || isProblem && len(response.Value.Content) != 1 {
				t.Errorf("%s: %s is answered with %v", name, status, slices.Collect(maps.Keys(response.Value.Content)))
			}
		}
		if op.RequestBody == nil {
			return
		}
		for kind, content := range op.RequestBody.Value.Content {
			schema := content.Schema.Value
			if closed := schema.AdditionalProperties.Has; kind == "application/json" && (closed == nil || *closed) {
				t.Errorf("%s: the body's schema lets unknown members through, which the service refuses", name)
			}
		}
	})
	for _, tag := range doc.Tags {
		if !tags[tag.Name] {
			t.Errorf("tag %s is not used", tag.Name)
		}
	}
}

func TestContractHasNoDeadComponents(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
		used[m[1]+"/"+m[2]] = true
	}
	components := loadContract(t).Components
	var all []string
	add := func(group string, names ...string) {
		for _, name := range names {
			all = append(all, group+"/"+name)
		}
	}
	add("schemas", slices.Collect(maps.Keys(components.Schemas))...)
	add("parameters", slices.Collect(maps.Keys(components.Parameters))...)
	add("headers", slices.Collect(maps.Keys(components.Headers))...)
	add("responses", slices.Collect(maps.Keys(components.Responses))...)
	if len(all) < 40 {
		t.Fatalf("found only %d components", len(all))
	}
	for _, name := range all {
		if !used[name] {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

// notInContract are rows of the error table that no operation of the contract can be answered with.
var notInContract = []string{"stale-token", "method-not-allowed", "client-gone"}

// The names of problems that the contract's responses list are those of the error table.
func TestProblemsOfTheContractAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, response := range loadContract(t).Components.Responses {
		if response.Value.Content["application/problem+json"] == nil {
			continue
		}
		for _, m := range problemName.FindAllStringSubmatch(*response.Value.Description, -1) {
			named[m[1]] = true
		}
	}
	rows := map[string]bool{}
	for _, row := range httpapi.ProblemRows() {
		if rows[row.Name] = true; !named[row.Name] && !slices.Contains(notInContract, row.Name) {
			t.Errorf("no response of the contract names %s", row.Name)
		}
	}
	for name := range named {
		if strings.Contains(name, "-") && !rows[name] {
			t.Errorf("the contract names %s, the error table does not", name)
		}
	}
}

// neverAnswered are rows of the error table that no request can get at, and why.
var neverAnswered = map[string]string{
	"client-gone": "nobody is left to read it",
	"stale-token": "only jobs write under a token; a stocktake that is stale is over",
}

// Every problem is what some test of this package gets from a real server, and names.
func TestEveryProblemHasATest(t *testing.T) {
	t.Parallel()
	tested := testedProblems(t)
	for _, row := range httpapi.ProblemRows() {
		switch why := neverAnswered[row.Name]; {
		case tested[row.Name] == 0 && why == "":
			t.Errorf("no test names the problem %s: call (answer).problem with it", row.Name)
		case tested[row.Name] > 0 && why != "":
			t.Errorf("%s has a test, so it is answered", row.Name)
		}
	}
}

// testedProblems counts the calls of (answer).problem in the tests of this package, by the name of the problem.
func testedProblems(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	counts, constants := map[string]int{}, map[string]string{}
	var names []string // of constants that are given
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i := range min(len(n.Names), len(n.Values)) {
					if text, ok := literal(n.Values[i]); ok {
						constants[n.Names[i].Name] = text
					}
				}
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || called.Sel.Name != "problem" || len(n.Args) != 3 {
					break
				}
				if text, ok := literal(n.Args[2]); ok {
					counts[text]++
				} else if name, ok := n.Args[2].(*ast.Ident); ok {
					names = append(names, name.Name)
				}
			}
			return true
		})
	}
	for _, name := range names {
		counts[constants[name]]++
	}
	return counts
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
