// Package internal_test keeps the tree in shape: it enforces the import table of docs/architecture.md.
package internal_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/holdfast-stock/holdfast"

// mayImport is the table: a component and the components that its code may import. A component is a package
// directly under internal/ with all packages below it, or one of cmd and db.
var mayImport = map[string][]string{
	"cmd":                {anything},
	"client":             {},
	"db":                 {},
	"internal/stock":     {},
	"internal/fault":     {},
	"internal/sandbox":   {"db"},
	"internal/lock":      {},
	"internal/defect":    {},
	"internal/number":    {},
	"internal/ledger":    {"internal/stock", "internal/number", "internal/defect"},
	"internal/gate":      {"internal/stock", "internal/defect"},
	"internal/inventory": {"internal/stock", "internal/ledger", "internal/gate", "internal/defect"},
	"internal/event":     {"internal/stock", "internal/ledger"},
	"internal/job":       {"internal/stock", "internal/ledger", "internal/inventory", "internal/event", "internal/lock"},
	"internal/httpapi":   {"internal/stock", "internal/inventory", "internal/defect"},
	"internal/console":   {"internal/stock", "internal/inventory", "internal/event", "internal/job", "internal/lock"},
	"internal/bench":     {"db", "internal/stock", "internal/sandbox"},
	"internal/lab":       belowTheSurface,
	"internal/robust":    belowTheSurface,
}

const anything = "*"

// belowTheSurface is all that has no face to the outside: what experiments are made with.
var belowTheSurface = []string{
	"db", "internal/stock", "internal/fault", "internal/sandbox", "internal/lock", "internal/number", "internal/ledger", "internal/gate",
	"internal/inventory", "internal/event", "internal/job", "internal/defect",
}

// testsMayImport is what test files may import besides: real servers, broken wires and the schema. They may also
// import all that their package stands on, because nothing is mocked: whoever tests builds the real thing.
var testsMayImport = []string{"internal/sandbox", "internal/fault", "db"}

func TestPackagesImportWhatTheTableAllows(t *testing.T) {
	t.Parallel()
	files, err := goFiles(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no Go file: the walk is broken")
	}
	for _, violation := range violations(files) {
		t.Error(violation)
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	t.Parallel()
	file := func(name string, imports ...string) *fstest.MapFile {
		source := "package " + name + "\n"
		for _, path := range imports {
			source += "import _ " + strconv.Quote(path) + "\n"
		}
		return &fstest.MapFile{Data: []byte(source)}
	}
	tree := fstest.MapFS{
		"cmd/holdfast/main.go":                    file("main", module+"/db", module+"/internal/httpapi"),
		"cmd/other/go.mod":                        {Data: []byte("module example.com/other\n")},
		"cmd/other/main.go":                       file("main", module+"/internal/ledger"),
		"db/embed.go":                             file("db", "embed"),
		"internal/gate/gate.go":                   file("gate", module+"/internal/stock", "github.com/redis/go-redis/v9"),
		"internal/gate/gate_test.go":              file("gate_test", module+"/internal/gate", module+"/internal/sandbox"),
		"internal/httpapi/api.go":                 file("httpapi", module+"/internal/ledger"),
		"internal/httpapi/api_test.go":            file("httpapi_test", module+"/internal/ledger", module+"/internal/lock"),
		"internal/ledger/internal/dbsqlc/db.go":   file("dbsqlc"),
		"internal/ledger/ledger.go":               file("ledger", module+"/internal/ledger/internal/dbsqlc"),
		"internal/ledger/testdata/scratch/bad.go": file("scratch", module+"/internal/httpapi"),
		"internal/lab/lab.go":                     file("lab", module+"/internal/ledger", module+"/internal/console"),
		"internal/sandbox/postgres.go":            file("sandbox", module+"/db"),
		"internal/sandbox/postgres_test.go":       file("sandbox_test", module+"/internal/ledger"),
		"internal/stock/item.go":                  file("stock", module+"/internal/sandbox"),
		"internal/stock/sub/deep/deep.go":         file("deep", module+"/internal/ledger"),
		"internal/util/util.go":                   file("util"),
		"root.go":                                 file("holdfast", module+"/cmd/holdfast"),
	}
	files, err := goFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"internal/httpapi/api.go: internal/httpapi may not import internal/ledger",
		"internal/httpapi/api_test.go: internal/httpapi may not import internal/lock",
		"internal/lab/lab.go: internal/lab may not import internal/console",
		"internal/sandbox/postgres_test.go: internal/sandbox may not import internal/ledger",
		"internal/stock/item.go: internal/stock may not import internal/sandbox",
		"internal/stock/sub/deep/deep.go: internal/stock may not import internal/ledger",
		"internal/util/util.go: internal/util is not in the table",
		"root.go: . is not in the table",
	}
	if diff := cmp.Diff(want, violations(files)); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// goFile is a Go file and the packages of ours that it imports, each as a path from the root.
type goFile struct {
	path    string
	imports []string
}

// violations returns a line for each import that the table forbids and each file of a component it lacks,
// in the order of the files.
func violations(files []goFile) []string {
	var found []string
	for _, file := range files {
		from := component(path.Dir(file.path))
		allowed, known := mayImport[from]
		if !known {
			found = append(found, fmt.Sprintf("%s: %s is not in the table", file.path, from))
			continue
		}
		for _, imported := range file.imports {
			to := component(imported)
			ok := to == from || slices.Contains(allowed, to) || slices.Contains(allowed, anything)
			if !ok && strings.HasSuffix(file.path, "_test.go") {
				ok = slices.Contains(testsMayImport, to) || standsOn(from, to)
			}
			if !ok {
				found = append(found, fmt.Sprintf("%s: %s may not import %s", file.path, from, to))
			}
		}
	}
	return found
}

// standsOn reports whether the table leads from one component to another, in one step or more. It has no cycle.
func standsOn(from, to string) bool {
	return slices.ContainsFunc(mayImport[from], func(next string) bool { return next == to || standsOn(next, to) })
}

// component is the row of the table that the package in dir belongs to.
func component(dir string) string {
	first, rest, _ := strings.Cut(dir, "/")
	if first != "internal" || rest == "" {
		return first
	}
	second, _, _ := strings.Cut(rest, "/")
	return path.Join(first, second)
}

// goFiles reads every Go file of this module, whatever its build constraints are.
func goFiles(root fs.FS) ([]goFile, error) {
	var files []goFile
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skip(root, name)
		case path.Ext(name) != ".go" || path.Dir(name) == "internal": // this test's own folder
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		file := goFile{path: name}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if ours, ok := strings.CutPrefix(imported+"/", module+"/"); ok {
				file.imports = append(file.imports, path.Clean(ours))
			}
		}
		files = append(files, file)
		return nil
	})
	return files, err
}

// skip returns fs.SkipDir for the folders that the go command leaves out too, and for other modules.
func skip(root fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}
