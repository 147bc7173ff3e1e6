package vm

import (
	"sync"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
)

// batch implements http.batch(requests): an array or an object of requests, all on their way at once within the limits
// batch and batchPerHost.
func (vu *VU) batch(call sobek.FunctionCall) sobek.Value {
	requests, ok := call.Argument(0).(*sobek.Object)
	if !ok {
		vu.throw("http.batch() needs an array or an object of requests")
	}
	keys := requests.Keys()
	all := make([]*exchange, len(keys))
	for i, key := range keys {
		all[i] = vu.batchEntry(requests.Get(key))
	}
	vu.sendTogether(all)
	results := make([]any, len(all))
	for i, x := range all {
		vu.record(x)
		results[i] = vu.response(x)
	}
	for _, x := range all {
		if err := x.last().Err; err != nil && vu.host.Options.Throw {
			panic(vu.rt.NewGoError(err))
		}
	}
	if requests.ClassName() == "Array" {
		return vu.rt.NewArray(results...)
	}
	named := vu.rt.NewObject()
	for i, key := range keys {
		must(named.Set(key, results[i]))
	}
	return named
}

// batchEntry reads one request of a batch: a URL, an array [method, url, body, params] or an object.
func (vu *VU) batchEntry(v sobek.Value) *exchange {
	o, ok := v.(*sobek.Object)
	if !ok {
		return vu.prepare(input{method: "GET", url: v})
	}
	if _, ok := export[*namedURL](v); ok {
		return vu.prepare(input{method: "GET", url: v})
	}
	if o.ClassName() == "Array" {
		var arguments []sobek.Value
		for _, key := range o.Keys() {
			arguments = append(arguments, o.Get(key))
		}
		return vu.requestOf(arguments)
	}
	in := input{method: "GET"}
	for _, key := range o.Keys() {
		switch value := o.Get(key); key {
		case "method":
			in.method = value.String()
		case "url":
			in.url = value
		case "body":
			in.body = value
		case "params":
			in.params = value
		default:
			vu.throw("http.batch(): a request has no field %q", key)
		}
	}
	return vu.prepare(in)
}

// sendTogether sends all requests in parallel and waits for all of them.
func (vu *VU) sendTogether(all []*exchange) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, vu.host.Options.Batch)
	hosts := map[string]chan struct{}{}
	for _, x := range all {
		host := httpclient.Host(x.request.URL)
		if hosts[host] == nil {
			hosts[host] = make(chan struct{}, vu.host.Options.BatchPerHost)
		}
		mine := hosts[host]
		wg.Go(func() {
			mine <- struct{}{}
			slots <- struct{}{}
			x.follow(vu.client)
			<-slots
			<-mine
		})
	}
	wg.Wait()
}
