// Package vm runs a script: one JavaScript runtime a virtual user, with the documented k6 modules in it.
//
// A [Script] is read and compiled once and shared; a [VU] is one runtime, with its own globals, connections, timers and
// tags, used by one goroutine at a time. What the runtimes share (files, SharedArrays, metrics, counters) lies in Script
// and [Host]. Everything k6 documents and this package does not have ends the run with an [Unsupported] error.
package vm

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/grafana/sobek"
	"github.com/grafana/sobek/parser"
)

// maxFile bounds a file that open() reads into memory.
const maxFile = 256 << 20

// Script is a compiled script and what its runtimes share.
type Script struct {
	path string // of the main module, absolute
	main sobek.CyclicModuleRecord

	mu      sync.Mutex // guards all below
	records map[string]sobek.ModuleRecord
	paths   map[sobek.ModuleRecord]string
	files   map[string][]byte
	arrays  map[string]*sharedArray
	users   map[*sobek.Runtime]*VU
}

// Load reads and compiles the script at path and every module it imports.
func Load(path string) (*Script, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := &Script{
		path:    absolute,
		records: map[string]sobek.ModuleRecord{},
		paths:   map[sobek.ModuleRecord]string{},
		files:   map[string][]byte{},
		arrays:  map[string]*sharedArray{},
		users:   map[*sobek.Runtime]*VU{},
	}
	record, err := s.load(absolute)
	if err != nil {
		return nil, err
	}
	s.main = record.(sobek.CyclicModuleRecord) // a file is always a source text module
	if err := s.main.Link(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Path returns where the main module lies.
func (s *Script) Path() string { return s.path }

// resolve finds the module that specifier means inside the module referrer.
func (s *Script) resolve(referrer any, specifier string) (sobek.ModuleRecord, error) {
	if specifier == "k6" || strings.HasPrefix(specifier, "k6/") {
		return s.builtin(specifier)
	}
	record, _ := referrer.(sobek.ModuleRecord)
	path, err := s.locate(record, specifier)
	if err != nil {
		return nil, err
	}
	return s.load(path)
}

// locate turns a specifier into the path of a local file, relative to the module that names it.
func (s *Script) locate(referrer sobek.ModuleRecord, specifier string) (string, error) {
	if u, err := url.Parse(specifier); err == nil && u.Scheme == "file" {
		return filepath.FromSlash(u.Path), nil
	}
	if strings.Contains(specifier, "://") {
		return "", unsupported("import %q: remote modules", specifier)
	}
	if filepath.IsAbs(specifier) {
		return specifier, nil
	}
	if !strings.HasPrefix(specifier, "./") && !strings.HasPrefix(specifier, "../") {
		return "", fmt.Errorf("import %q: write a relative path with its extension, such as ./lib/file.js", specifier)
	}
	s.mu.Lock()
	from, ok := s.paths[referrer]
	s.mu.Unlock()
	if !ok {
		from = s.path
	}
	return filepath.Join(filepath.Dir(from), filepath.FromSlash(specifier)), nil
}

func (s *Script) load(path string) (sobek.ModuleRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if record, ok := s.records[path]; ok {
		return record, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	record, err := sobek.ParseModule(path, string(text), s.resolve, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, err
	}
	s.records[path], s.paths[record] = record, path
	return record, nil
}

func (s *Script) builtin(name string) (sobek.ModuleRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if record, ok := s.records[name]; ok {
		return record, nil
	}
	known := modules()
	def, ok := known[name]
	if !ok {
		names := make([]string, 0, len(known))
		for n := range known {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, unsupported("import %q (it has %s)", name, strings.Join(names, ", "))
	}
	record := &builtinModule{script: s, name: name, module: def}
	s.records[name] = record
	return record, nil
}

// read returns the content of a file, read once for all virtual users.
func (s *Script) read(path string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if content, ok := s.files[path]; ok {
		return content, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	content, err := os.ReadFile(path)
	if err == nil {
		s.files[path] = content
	}
	return content, err
}

func (s *Script) user(rt *sobek.Runtime) *VU {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[rt]
}
