package vm

import (
	"math"
	"net/textproto"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

// defaultTimeout is the documented timeout of a request.
const defaultTimeout = 60 * time.Second

// input is a request as the script gave it.
type input struct {
	method            string
	url, body, params sobek.Value
}

// requestOf reads (method, url, [body], [params]).
func (vu *VU) requestOf(arguments []sobek.Value) *exchange {
	in := input{}
	for i, v := range arguments {
		switch i {
		case 0:
			in.method = v.String()
		case 1:
			in.url = v
		case 2:
			in.body = v
		case 3:
			in.params = v
		}
	}
	return vu.prepare(in)
}

// prepare turns a request of the script into one to send.
func (vu *VU) prepare(in input) *exchange {
	vu.needRun("making requests")
	o := vu.host.Options
	x := &exchange{expected: vu.expected, redirects: o.MaxRedirects}
	x.request = &httpclient.Request{Method: in.method, Timeout: defaultTimeout, Discard: o.DiscardResponseBodies}
	if in.method == "" || strings.ToUpper(in.method) != in.method {
		vu.throw("the method must be in upper case, not %q", in.method)
	}
	x.request.URL, x.name = vu.urlOf(in.url)
	if given(in.params) {
		vu.applyParams(x, in.params)
	}
	vu.applyBody(x, in.body)
	return x
}

func (vu *VU) urlOf(v sobek.Value) (*url.URL, string) {
	text, name := "", ""
	if named, ok := export[*namedURL](v); ok {
		text, name = named.url, named.name
	} else if given(v) {
		text = v.String()
	}
	u, err := url.Parse(text)
	if err != nil {
		// As documented, a bad URL is a request that fails with code 1020; Send says so.
		return &url.URL{Opaque: text}, name
	}
	if u.User != nil {
		vu.refuse("%s: credentials in a URL", u.Redacted())
	}
	if vu.host.Proxy != nil {
		if proxy, err := vu.host.Proxy(u); err != nil || proxy != nil {
			vu.refuse("%s would go through a proxy of the environment: proxies", u)
		}
	}
	return u, name
}

// applyParams reads the documented fields of Params.
func (vu *VU) applyParams(x *exchange, params sobek.Value) {
	o, ok := params.(*sobek.Object)
	if !ok {
		vu.throw("params must be an object")
	}
	for _, key := range o.Keys() {
		v := o.Get(key)
		if sobek.IsUndefined(v) || sobek.IsNull(v) && key != "responseCallback" {
			continue
		}
		switch key {
		case "headers":
			vu.applyHeaders(x, v)
		case "tags":
			vu.applyTags(x, v)
		case "timeout":
			x.request.Timeout = vu.timeoutOf(v)
		case "redirects":
			n := v.ToInteger()
			if n < 0 || n > 100 {
				vu.throw("params.redirects: between 0 and 100")
			}
			x.redirects = int(n)
		case "responseCallback":
			x.expected = vu.expectationOf(v)
		case "responseType":
			vu.applyResponseType(x, v.String())
		case "auth", "compression", "cookies", "jar":
			vu.refuse("params.%s", key)
		default:
			vu.throw("params.%s: no such field", key)
		}
	}
}

func (vu *VU) applyHeaders(x *exchange, v sobek.Value) {
	o, ok := v.(*sobek.Object)
	if !ok {
		vu.throw("params.headers must be an object")
	}
	for _, name := range o.Keys() {
		value := o.Get(name)
		if !given(value) {
			vu.throw("params.headers: %q has no value", name)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if canonical == "Cookie" {
			vu.refuse("params.headers: Cookie: cookies")
		}
		x.request.Header = append(x.request.Header, httpclient.Field{Name: canonical, Value: value.String()})
	}
	if err := x.request.CheckHeader(); err != nil {
		vu.throw("%s", err)
	}
}

func (vu *VU) applyTags(x *exchange, v sobek.Value) {
	for _, tag := range vu.tagsOf(v) {
		if tag.Key == "name" {
			x.name = tag.Value
			continue
		}
		x.tags = append(x.tags, tag)
	}
}

func (vu *VU) timeoutOf(v sobek.Value) time.Duration {
	if isString(v) {
		d, err := option.ParseDuration(v.String())
		if err != nil || d <= 0 {
			vu.throw("params.timeout: %q is not a duration such as \"30s\"", v)
		}
		return d
	}
	ms := v.ToFloat()
	if math.IsNaN(ms) || ms <= 0 || ms > maxDelay {
		vu.throw("params.timeout: %s is not a number of milliseconds", v)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (vu *VU) applyResponseType(x *exchange, kind string) {
	switch kind {
	case "text", "binary", "none":
		x.request.Discard = kind == "none"
		x.binary = kind == "binary"
	default:
		vu.throw("params.responseType: text, binary or none, not %q", kind)
	}
}

// applyBody reads a body: a string, an ArrayBuffer, or an object that becomes a form.
func (vu *VU) applyBody(x *exchange, body sobek.Value) {
	if !given(body) {
		return
	}
	if isString(body) {
		x.request.Body = []byte(body.String())
		return
	}
	if buffer, ok := export[sobek.ArrayBuffer](body); ok {
		x.request.Body = append([]byte{}, buffer.Bytes()...)
		return
	}
	o, ok := body.(*sobek.Object)
	if !ok || o.ExportType().Kind() != reflect.Map { // arrays of all sorts are slices, functions are functions
		vu.throw("a body is a string, an ArrayBuffer or an object of form fields")
	}
	form := url.Values{}
	for _, key := range o.Keys() {
		v := o.Get(key)
		if _, nested := v.(*sobek.Object); nested || !given(v) {
			vu.throw("form field %q: the value must be a string, a number or a boolean", key)
		}
		form.Set(key, v.String())
	}
	x.request.Body = []byte(form.Encode())
	for _, field := range x.request.Header {
		if field.Name == "Content-Type" {
			return
		}
	}
	x.request.Header = append(x.request.Header,
		httpclient.Field{Name: "Content-Type", Value: "application/x-www-form-urlencoded"})
}
