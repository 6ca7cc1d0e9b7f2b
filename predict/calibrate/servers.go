package calibrate

import dto "github.com/prometheus/client_model/go"

// quantity is something that a page counts or shows. A histogram is two: its sum, and count of it.
type quantity int

const (
	running quantity = 2 * iota
	waiting
	cacheUse
	generated
	prompted
	hits
	queries
	preempted
	finished
	cut // finished because they were as long as allowed
	betweenTokens
	firstToken
	promptTokens
	responseTokens
	latency
	longestAllowed
	readNow // prompt tokens, as they are read, without those of the prefix cache
)

// count is the number of a histogram's values, where q is their sum.
func (q quantity) count() quantity { return q + 1 }

// reading is what a page says of one engine.
type reading struct {
	values  map[quantity]float64
	lengths []bucket
	ranks   []string // data-parallel replicas behind the engine's name, none where they are not told apart
}

// replicas are the engines behind a reading.
func (r reading) replicas() float64 { return float64(max(len(r.ranks), 1)) }

// software is how one kind of server names what it counts.
type software struct {
	name, prefix string
	engineLabel  string // its values tell engines of one page apart; empty where a page is of one
	// names of a quantity, newest first. Counters end in _total, or do not, by the version of the client library.
	names map[quantity][]string
	// atEnd: tokens are counted when a request has finished, so that only sums over many requests mean anything.
	atEnd bool
}

// softwares by the names in their sources: vLLM's v1/metrics/loggers.py (0.8 to 0.32), and SGLang's
// observability metrics collector (0.4 to 0.5).
var softwares = []software{
	{name: "vllm", prefix: "vllm:", engineLabel: "engine", names: map[quantity][]string{
		running: {"num_requests_running"}, waiting: {"num_requests_waiting"}, cacheUse: {"kv_cache_usage_perc", "gpu_cache_usage_perc"},
		generated: {"generation_tokens"}, prompted: {"prompt_tokens"}, hits: {"prefix_cache_hits", "gpu_prefix_cache_hits"},
		queries: {"prefix_cache_queries", "gpu_prefix_cache_queries"}, preempted: {"num_preemptions"}, finished: {"request_success"},
		betweenTokens: {"inter_token_latency_seconds", "time_per_output_token_seconds"}, firstToken: {"time_to_first_token_seconds"},
		promptTokens: {"request_prompt_tokens"}, responseTokens: {"request_generation_tokens"}, latency: {"e2e_request_latency_seconds"},
		longestAllowed: {"request_params_max_tokens"},
	}},
	{name: "sglang", prefix: "sglang:", atEnd: true, names: map[quantity][]string{
		running: {"num_running_reqs"}, waiting: {"num_queue_reqs"}, cacheUse: {"token_usage"}, generated: {"generation_tokens"},
		prompted: {"prompt_tokens"}, hits: {"cached_tokens"}, finished: {"num_requests"}, preempted: {"num_retracted_requests"},
		betweenTokens: {"inter_token_latency_seconds", "time_per_output_token_seconds"}, firstToken: {"time_to_first_token_seconds"},
		promptTokens: {"prompt_tokens_histogram"}, responseTokens: {"generation_tokens_histogram"}, latency: {"e2e_request_latency_seconds"}, readNow: {"realtime_tokens"},
	}},
}

// family is the metric of the first of some names that a page has: during a renaming a server has both.
func (s software) family(families map[string]*dto.MetricFamily, names []string) *dto.MetricFamily {
	for _, name := range names {
		for _, end := range []string{"", "_total"} {
			if f := families[s.prefix+name+end]; f != nil {
				return f
			}
		}
	}
	return nil
}
