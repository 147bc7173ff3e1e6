package vm

import (
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/grafana/sobek"
	"github.com/tidwall/gjson"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
)

// shapes are functions of a runtime that are looked up once.
type shapes struct {
	json      sobek.Value    // Response.json
	stringify sobek.Callable // JSON.stringify
}

func newShapes(rt *sobek.Runtime) *shapes {
	stringify, _ := sobek.AssertFunction(rt.GlobalObject().Get("JSON").(*sobek.Object).Get("stringify")) // it is there
	return &shapes{stringify: stringify, json: rt.ToValue(func(call sobek.FunctionCall) sobek.Value {
		r, ok := export[*response](call.This)
		if !ok {
			panic(rt.NewTypeError("json() is a method of a response"))
		}
		return r.json(call.Argument(0))
	})}
}

// response is the Response object of the script. Its properties are made when they are read: most scripts read two or
// three of them.
type response struct {
	vu   *VU
	x    *exchange
	made map[string]sobek.Value // properties made so far, and those the script has set
	tree sobek.Value            // what json() without a selector gave
}

var _ sobek.DynamicObject = (*response)(nil)

func (vu *VU) response(x *exchange) sobek.Value {
	return vu.rt.NewDynamicObject(&response{vu: vu, x: x})
}

var responseKeys = []string{
	"body", "error", "error_code", "headers", "proto", "remote_ip", "remote_port", "request", "status", "status_text",
	"timings", "tls_cipher_suite", "tls_version", "url",
}

// Get returns a property.
func (r *response) Get(key string) sobek.Value {
	if v, ok := r.made[key]; ok {
		return v
	}
	a, rt := r.x.last(), r.vu.rt
	switch key {
	case "status":
		return rt.ToValue(a.Status)
	case "status_text":
		return rt.ToValue(a.StatusText)
	case "json":
		return r.vu.shape.json
	case "proto":
		return rt.ToValue(a.Proto)
	case "url":
		return rt.ToValue(r.x.hops[len(r.x.hops)-1].request.URL.String())
	case "error":
		if a.Err == nil {
			return rt.ToValue("")
		}
		return rt.ToValue(a.Err.Error())
	case "error_code":
		return rt.ToValue(errorCode(a))
	case "remote_ip", "remote_port":
		return r.remote(key)
	case "tls_version":
		return rt.ToValue(tlsVersion(a))
	case "tls_cipher_suite":
		if a.TLS == nil {
			return rt.ToValue("")
		}
		return rt.ToValue(tls.CipherSuiteName(a.TLS.CipherSuite))
	case "body":
		return r.keep(key, r.body())
	case "headers":
		return r.keep(key, r.headers())
	case "timings":
		return r.keep(key, r.timings())
	case "request":
		return r.keep(key, r.request())
	case "cookies", "ocsp", "html", "clickLink", "submitForm":
		r.vu.refuse("Response.%s", key)
		return sobek.Undefined()
	}
	return nil
}

func (r *response) keep(key string, v sobek.Value) sobek.Value {
	if r.made == nil {
		r.made = map[string]sobek.Value{}
	}
	r.made[key] = v
	return v
}

// Set lets a script put a property of its own on a response.
func (r *response) Set(key string, v sobek.Value) bool {
	r.keep(key, v)
	return true
}

// Has says whether a property exists.
func (r *response) Has(key string) bool {
	return key == "json" || r.made[key] != nil || slices.Contains(responseKeys, key)
}

// Delete removes a property of the script.
func (r *response) Delete(key string) bool {
	delete(r.made, key)
	return true
}

// Keys lists the data properties.
func (r *response) Keys() []string { return responseKeys }

func (r *response) body() sobek.Value {
	a := r.x.last()
	switch {
	case a.Body == nil:
		return sobek.Null()
	case r.x.binary:
		return r.vu.rt.ToValue(r.vu.rt.NewArrayBuffer(append([]byte{}, a.Body...)))
	default:
		return r.vu.rt.ToValue(string(a.Body))
	}
}

func (r *response) headers() sobek.Value {
	o := r.vu.rt.NewObject()
	header := r.x.last().Header
	for _, name := range slices.Sorted(maps.Keys(header)) {
		must(o.Set(name, strings.Join(header[name], ", ")))
	}
	return o
}

func (r *response) timings() sobek.Value {
	t := &r.x.last().Timings
	o := r.vu.rt.NewObject()
	must(o.Set("duration", milliseconds(t.Duration())))
	must(o.Set("blocked", milliseconds(t.Blocked)))
	must(o.Set("connecting", milliseconds(t.Connecting)))
	must(o.Set("tls_handshaking", milliseconds(t.TLSHandshaking)))
	must(o.Set("sending", milliseconds(t.Sending)))
	must(o.Set("waiting", milliseconds(t.Waiting)))
	must(o.Set("receiving", milliseconds(t.Receiving)))
	return o
}

func (r *response) request() sobek.Value {
	sent := r.x.hops[len(r.x.hops)-1].request
	headers := r.vu.rt.NewObject()
	for _, field := range sent.Header {
		must(headers.Set(field.Name, r.vu.rt.NewArray(field.Value)))
	}
	o := r.vu.rt.NewObject()
	must(o.Set("method", sent.Method))
	must(o.Set("url", sent.URL.String()))
	must(o.Set("body", string(sent.Body)))
	must(o.Set("headers", headers))
	return o
}

func (r *response) remote(key string) sobek.Value {
	host, port, err := net.SplitHostPort(r.x.last().Remote)
	if err != nil {
		host, port = "", "0" // no connection was made
	}
	if key == "remote_ip" {
		return r.vu.rt.ToValue(host)
	}
	n, _ := strconv.Atoi(port) // the kernel gave it
	return r.vu.rt.ToValue(n)
}

// json implements Response.json([selector]) with the path syntax of gjson, which is what k6 documents.
func (r *response) json(selector sobek.Value) sobek.Value {
	a := r.x.last()
	if given(selector) {
		r.mustBeJSON(a)
		found := gjson.GetBytes(a.Body, selector.String())
		if !found.Exists() {
			return sobek.Undefined()
		}
		return r.vu.fromJSON(found)
	}
	if r.tree == nil {
		r.mustBeJSON(a)
		r.tree = r.vu.fromJSON(gjson.ParseBytes(a.Body))
	}
	return r.tree
}

func (r *response) mustBeJSON(a *httpclient.Answer) {
	if a.Body == nil {
		r.vu.throw("json(): the response has no body (status %d, responseType none, or an error: %v)", a.Status, a.Err)
	}
	if !gjson.ValidBytes(a.Body) {
		r.vu.throw("json(): the body is not JSON: %.200q", a.Body)
	}
}

func tlsVersion(a *httpclient.Answer) string {
	if a.TLS == nil {
		return ""
	}
	switch a.TLS.Version {
	case tls.VersionTLS12:
		return "tls1.2"
	case tls.VersionTLS13:
		return "tls1.3"
	default:
		return tls.VersionName(a.TLS.Version)
	}
}
