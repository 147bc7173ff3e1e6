package vm

import (
	"errors"
	"strconv"
	"strings"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

var httpExports = []string{
	"asyncRequest", "batch", "del", "expectedStatuses", "get", "head", "options", "patch", "post", "put", "request",
	"setResponseCallback", "url",
}

var httpRefused = []string{
	"CookieJar", "FileData", "cookieJar", "file",
	"OCSP_REASON_AA_COMPROMISE", "OCSP_REASON_AFFILIATION_CHANGED", "OCSP_REASON_CA_COMPROMISE",
	"OCSP_REASON_CERTIFICATE_HOLD", "OCSP_REASON_CESSATION_OF_OPERATION", "OCSP_REASON_KEY_COMPROMISE",
	"OCSP_REASON_PRIVILEGE_WITHDRAWN", "OCSP_REASON_REMOVE_FROM_CRL", "OCSP_REASON_SUPERSEDED", "OCSP_REASON_UNSPECIFIED",
	"OCSP_STATUS_GOOD", "OCSP_STATUS_REVOKED", "OCSP_STATUS_SERVER_FAILED", "OCSP_STATUS_UNKNOWN",
	"SSL_3_0", "TLS_1_0", "TLS_1_1", "TLS_1_2", "TLS_1_3",
}

func buildHTTP(vu *VU) map[string]any {
	return map[string]any{
		"get":  vu.method("GET", false),
		"head": vu.method("HEAD", false),
		"del":  vu.method("DELETE", true), "options": vu.method("OPTIONS", true), "patch": vu.method("PATCH", true),
		"post": vu.method("POST", true), "put": vu.method("PUT", true),
		"request": func(call sobek.FunctionCall) sobek.Value {
			return vu.response(vu.perform(vu.requestOf(call.Arguments)))
		},
		"asyncRequest":        vu.asyncRequest,
		"batch":               vu.batch,
		"expectedStatuses":    vu.expectedStatuses,
		"setResponseCallback": vu.setResponseCallback,
		"url":                 vu.namedURL,
	}
}

// method makes http.get, http.post and so on.
func (vu *VU) method(name string, hasBody bool) func(sobek.FunctionCall) sobek.Value {
	return func(call sobek.FunctionCall) sobek.Value {
		in := input{method: name, url: call.Argument(0)}
		if hasBody {
			in.body, in.params = call.Argument(1), call.Argument(2)
		} else {
			in.params = call.Argument(1)
		}
		return vu.response(vu.perform(vu.prepare(in)))
	}
}

func (vu *VU) asyncRequest(call sobek.FunctionCall) sobek.Value {
	x := vu.requestOf(call.Arguments)
	promise, resolve, reject := vu.rt.NewPromise()
	vu.loop.start(func() func() error {
		x.follow(vu.client)
		return func() error {
			vu.record(x)
			if err := x.last().Err; err != nil && vu.host.Options.Throw {
				return reject(vu.rt.NewGoError(err))
			}
			return resolve(vu.response(x))
		}
	})
	return vu.rt.ToValue(promise)
}

// exchange is one request of the script: what to send, how to judge it, and the answers, redirects included.
type exchange struct {
	request   *httpclient.Request
	name      string // tag, "" for the URL
	tags      []metric.Tag
	expected  *expectation
	redirects int
	binary    bool

	hops []hop
}

// hop is one request on the wire and its answer.
type hop struct {
	request *httpclient.Request
	answer  *httpclient.Answer
}

func (x *exchange) last() *httpclient.Answer { return x.hops[len(x.hops)-1].answer }

// follow sends the request, and those that redirects ask for.
func (x *exchange) follow(client *httpclient.Client) {
	for request := x.request; request != nil; {
		answer := client.Send(request)
		x.hops = append(x.hops, hop{request, answer})
		if answer.Err != nil || x.redirects == 0 {
			return
		}
		next, err := httpclient.Redirect(request, answer)
		if next != nil && len(x.hops) > x.redirects {
			err = errors.New("stopped after " + strconv.Itoa(x.redirects) + " redirects")
		}
		if err != nil {
			answer.Err = err
			return
		}
		request = next
	}
}

// perform sends a request and waits.
func (vu *VU) perform(x *exchange) *exchange {
	x.follow(vu.client)
	vu.record(x)
	if err := x.last().Err; err != nil && vu.host.Options.Throw && !errors.Is(err, httpclient.ErrCut) {
		panic(vu.rt.NewGoError(err))
	}
	return x
}

// record turns the answers into values of the documented metrics. A request that was cut because the iteration was
// interrupted says nothing about the server and is not recorded.
func (vu *VU) record(x *exchange) {
	b := vu.host.Builtin
	for i := range x.hops {
		h := &x.hops[i]
		a := h.answer
		if errors.Is(a.Err, httpclient.ErrCut) {
			continue
		}
		if a.Header.Get("Set-Cookie") != "" {
			vu.refuse("%s: the server set a cookie: cookies", h.request.URL)
		}
		tags := metric.Tags{Own: x.tagsOf(h), Below: &vu.system}
		t := &a.Timings
		samples := [...]metric.Sample{
			{Metric: b.HTTPReqs, Value: 1},
			{Metric: b.HTTPReqDuration, Value: milliseconds(t.Duration())},
			{Metric: b.HTTPReqBlocked, Value: milliseconds(t.Blocked)},
			{Metric: b.HTTPReqConnecting, Value: milliseconds(t.Connecting)},
			{Metric: b.HTTPReqTLSHandshake, Value: milliseconds(t.TLSHandshaking)},
			{Metric: b.HTTPReqSending, Value: milliseconds(t.Sending)},
			{Metric: b.HTTPReqWaiting, Value: milliseconds(t.Waiting)},
			{Metric: b.HTTPReqReceiving, Value: milliseconds(t.Receiving)},
			{Metric: b.DataSent, Value: float64(a.Sent)},
			{Metric: b.DataReceived, Value: float64(a.Received)},
			{Metric: b.HTTPReqFailed},
		}
		judged := samples[:len(samples)-1]
		if x.expected != nil {
			judged = samples[:]
			if !x.expected.meets(a) {
				judged[len(judged)-1].Value = 1
			}
		}
		vu.rec.Add(&tags, judged...)
		if a.Err != nil {
			vu.host.Warn.failed(vu.host.Log, h.request, a.Err)
		}
	}
}

// tagsOf returns the system tags of one answer and the tags the script gave the request.
func (x *exchange) tagsOf(h *hop) []metric.Tag {
	a := h.answer
	tags := make([]metric.Tag, 0, len(x.tags)+8)
	url := x.name
	if url == "" {
		url = h.request.URL.String()
	}
	tags = append(tags,
		metric.Tag{Key: "name", Value: url},
		metric.Tag{Key: "url", Value: url},
		metric.Tag{Key: "method", Value: h.request.Method},
		metric.Tag{Key: "status", Value: strconv.Itoa(a.Status)})
	if a.Proto != "" {
		tags = append(tags, metric.Tag{Key: "proto", Value: a.Proto})
	}
	if x.expected != nil {
		tags = append(tags, metric.Tag{Key: "expected_response", Value: strconv.FormatBool(x.expected.meets(a))})
	}
	if code := errorCode(a); code != 0 {
		tags = append(tags, metric.Tag{Key: "error_code", Value: strconv.Itoa(code)})
	}
	if a.Err != nil {
		tags = append(tags, metric.Tag{Key: "error", Value: a.Err.Error()})
	}
	if a.TLS != nil {
		tags = append(tags, metric.Tag{Key: "tls_version", Value: tlsVersion(a)})
	}
	return append(tags, x.tags...)
}

func errorCode(a *httpclient.Answer) int {
	if a.Err != nil {
		return httpclient.Code(a.Err)
	}
	if a.Status >= 400 && a.Status < 600 {
		return 1000 + a.Status
	}
	return 0
}

// namedURL implements the template tag http.url: the name is the template without its values.
func (vu *VU) namedURL(call sobek.FunctionCall) sobek.Value {
	parts, ok := call.Argument(0).(*sobek.Object)
	if !ok || parts.ClassName() != "Array" {
		vu.throw("http.url is a template tag: http.url`…`")
	}
	var url, name strings.Builder
	n := int(parts.Get("length").ToInteger())
	for i := range n {
		text := parts.Get(strconv.Itoa(i)).String()
		url.WriteString(text)
		name.WriteString(text)
		if i < n-1 {
			url.WriteString(call.Argument(i + 1).String())
			name.WriteString("${}")
		}
	}
	return vu.rt.ToValue(&namedURL{url.String(), name.String()})
}

// namedURL is what http.url makes.
type namedURL struct{ url, name string }
