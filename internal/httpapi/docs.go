package httpapi

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/swaggest/swgui/v5/static"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// pages are the frame around Swagger UI. The script is a file of its own, so that the page needs no inline script.
//
//go:embed docs
var pages embed.FS

// policy of the documentation: everything comes from here and nothing goes elsewhere. Swagger UI sets styles
// on elements and has its icons as data.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// documents are the routes that tell about the API. They need no token.
func documents() []route {
	return []route{
		{method: http.MethodGet, pattern: "/openapi.yaml", serve: serveContract},
		{method: http.MethodGet, pattern: "/docs", serve: servePage},
		{method: http.MethodGet, pattern: "/docs/{file}", serve: servePage},
	}
}

func serveContract(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	callOf(w).document(openapi.YAML)
}

// servePage serves the frame and, from the library, Swagger UI's own files, which are embedded compressed.
func servePage(w http.ResponseWriter, r *http.Request) {
	c := callOf(w)
	name := path.Base(r.URL.Path)
	if name == "docs" {
		name = "index.html"
	}
	kind := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8", ".png": "image/png",
	}[path.Ext(name)]
	content, compressed := findPage(name)
	if content == nil || kind == "" {
		c.fail(errNoRoute)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	if !compressed {
		c.document(content)
		return
	}
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		c.document(content)
		return
	}
	c.document(uncompressed(content))
}

// findPage looks among our own files first.
func findPage(name string) (content []byte, compressed bool) {
	if content, err := pages.ReadFile("docs/" + name); err == nil {
		return content, false
	}
	if content, err := fs.ReadFile(static.FS, name); err == nil {
		return content, false
	}
	content, err := fs.ReadFile(static.FS, name+".gz")
	return content, err == nil
}

// uncompressed is for the rare client that takes no gzip. What is embedded is whole, so nothing can fail.
func uncompressed(content []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		panic(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return plain
}

// document sends content whose type is set already.
func (c *call) document(content []byte) {
	h := c.Header()
	h["X-Content-Type-Options"] = noSniff
	h[requestIDHeader] = []string{c.id}
	_, _ = c.Write(content)
}
