package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pasted is a block of shell lines in a document.
type pasted struct {
	line   int    // it begins at
	shell  string // what is pasted
	answer string // that the document shows below it, empty when none
}

// blocks of a document that call the service. One that is followed by a block of JSON has that for an answer, a refusal.
func blocks(t *testing.T, path string) []pasted {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []pasted
	kind, block := "", ""
	for n, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && kind == "":
			kind, block = fence+"?", ""
		case !isFence:
			block += line + "\n"
		default:
			switch {
			case kind == "sh?" && (strings.Contains(block, "curl ") || strings.Contains(block, "api ")):
				all = append(all, pasted{line: n + 1 - strings.Count(block, "\n"), shell: block})
			case kind == "json?" && len(all) > 0:
				all[len(all)-1].answer = block
			}
			kind = ""
		}
	}
	return all
}

// TestDocumentsWorkAsPasted: what README.md and the guide tell their readers to paste does what they say, on a service as `make run` has it.
func TestDocumentsWorkAsPasted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("nobody can paste a call where there is no curl")
	}
	for document, least := range map[string]int{"README.md": 4, "docs/api-guide.md": 9} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			service := newShop(t, "").open(t)
			if err := seed(t.Context(), service.addr, shopToken); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, ".dev"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, ".dev", "token"), []byte(shopToken+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			all := blocks(t, filepath.Join("..", "..", document))
			if len(all) < least {
				t.Fatalf("found %d blocks to paste", len(all))
			}
			paste(t, dir, service.addr, all)
			for _, p := range all {
				if p.answer != "" {
					p.answered(t, filepath.Join(dir, fmt.Sprint(p.line)))
				}
			}
		})
	}
}

// paste all blocks into one shell, in which every call must succeed but those that are shown to be refused. What a block prints is in a file of
// its own, named by its line.
func paste(t *testing.T, dir, addr string, all []pasted) {
	t.Helper()
	script := "set -euo pipefail\nshopt -s inherit_errexit\ncurl() { command curl $fails \"$@\"; }\n"
	for _, p := range all {
		fails := "--fail-with-body"
		if p.answer != "" {
			fails = ""
		}
		script += fmt.Sprintf("echo line %d >&2\nfails=%s\n{\n%s} >%d\n", p.line, fails, strings.ReplaceAll(p.shell, "127.0.0.1:8080", addr), p.line)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	var log bytes.Buffer
	shell.Stderr = &log
	if err := shell.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(log.String()), "line ")
		at := strings.Fields(lines[len(lines)-1])[0]
		printed, _ := os.ReadFile(filepath.Join(dir, at)) // it is there, or was not come to
		t.Fatalf("the block at line %s: %v\n%s\n%s", at, err, log.Bytes(), printed)
	}
}

// answered checks that the service answered what the document shows: each member that it shows.
func (p *pasted) answered(t *testing.T, path string) {
	t.Helper()
	printed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var shown, got map[string]any
	if err := json.Unmarshal([]byte(p.answer), &shown); err != nil {
		t.Fatalf("below line %d: %v", p.line, err)
	}
	if err := json.Unmarshal(printed, &got); err != nil {
		t.Fatalf("line %d: %v: %s", p.line, err, printed)
	}
	for name, want := range shown {
		if fmt.Sprint(got[name]) != fmt.Sprint(want) {
			t.Errorf("line %d shows %s: %v, it is %v", p.line, name, want, got[name])
		}
	}
}
