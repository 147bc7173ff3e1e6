package metric

// Builtin are the metrics every run has, by their documented names.
type Builtin struct {
	VUs, VUsMax                            *Metric
	Iterations, DroppedIterations          *Metric
	IterationDuration, GroupDuration       *Metric
	Checks                                 *Metric
	DataSent, DataReceived                 *Metric
	HTTPReqs, HTTPReqFailed                *Metric
	HTTPReqDuration, HTTPReqBlocked        *Metric
	HTTPReqConnecting, HTTPReqTLSHandshake *Metric
	HTTPReqSending, HTTPReqWaiting         *Metric
	HTTPReqReceiving                       *Metric
}

// DeclareBuiltin declares them, and the sub-metric of expected responses that every summary shows.
func DeclareBuiltin(r *Registry) (*Builtin, error) {
	b := new(Builtin)
	for _, d := range []struct {
		to       **Metric
		name     string
		kind     Kind
		contains Contains
	}{
		{&b.VUs, "vus", Gauge, Default},
		{&b.VUsMax, "vus_max", Gauge, Default},
		{&b.Iterations, "iterations", Counter, Default},
		{&b.DroppedIterations, "dropped_iterations", Counter, Default},
		{&b.IterationDuration, "iteration_duration", Trend, Time},
		{&b.GroupDuration, "group_duration", Trend, Time},
		{&b.Checks, "checks", Rate, Default},
		{&b.DataSent, "data_sent", Counter, Data},
		{&b.DataReceived, "data_received", Counter, Data},
		{&b.HTTPReqs, "http_reqs", Counter, Default},
		{&b.HTTPReqFailed, "http_req_failed", Rate, Default},
		{&b.HTTPReqDuration, "http_req_duration", Trend, Time},
		{&b.HTTPReqBlocked, "http_req_blocked", Trend, Time},
		{&b.HTTPReqConnecting, "http_req_connecting", Trend, Time},
		{&b.HTTPReqTLSHandshake, "http_req_tls_handshaking", Trend, Time},
		{&b.HTTPReqSending, "http_req_sending", Trend, Time},
		{&b.HTTPReqWaiting, "http_req_waiting", Trend, Time},
		{&b.HTTPReqReceiving, "http_req_receiving", Trend, Time},
	} {
		m, err := r.Declare(d.name, d.kind, d.contains)
		if err != nil {
			return nil, err
		}
		*d.to = m
	}
	_, err := r.Select("http_req_duration{expected_response:true}")
	return b, err
}
