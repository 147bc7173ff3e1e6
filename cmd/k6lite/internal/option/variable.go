package option

import "slices"

// variables are the environment variables from which k6 reads options, by its documentation.
var variables = []string{
	"K6_BATCH", "K6_BATCH_PER_HOST", "K6_BLACKLIST_IPS", "K6_BLOCK_HOSTNAMES", "K6_DISCARD_RESPONSE_BODIES", "K6_DNS",
	"K6_DURATION", "K6_FEATURES", "K6_HANDLE_SUMMARY_TIMEOUT", "K6_HTTP_DEBUG", "K6_INSECURE_SKIP_TLS_VERIFY",
	"K6_ITERATIONS", "K6_LINGER", "K6_MAX_REDIRECTS", "K6_MIN_ITERATION_DURATION", "K6_NO_CONNECTION_REUSE",
	"K6_NO_COOKIES_RESET", "K6_NO_SETUP", "K6_NO_TEARDOWN", "K6_NO_THRESHOLDS", "K6_NO_VU_CONNECTION_REUSE", "K6_OUT",
	"K6_PAUSED", "K6_RPS", "K6_SETUP_TIMEOUT", "K6_STAGES", "K6_SUMMARY_EXPORT", "K6_SUMMARY_MODE",
	"K6_SUMMARY_TIME_UNIT", "K6_SUMMARY_TREND_STATS", "K6_SYSTEM_TAGS", "K6_TAGS", "K6_TEARDOWN_TIMEOUT", "K6_THROW",
	"K6_USER_AGENT", "K6_VUS",
}

// IsVariable says whether k6 would read an option from the environment variable.
func IsVariable(name string) bool { return slices.Contains(variables, name) }
