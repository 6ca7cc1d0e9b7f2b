package serving

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/headway-rl/headway/drive/sim/serving"
	"github.com/headway-rl/headway/predict/hardware"
)

// Answer is what is predicted of one row. A figure that the row's load does not give is nil.
type Answer struct {
	ID string `json:"id"`
	// TTFTMS is the mean time to the first token and TPOTMS that of each later one, in milliseconds.
	TTFTMS *float64 `json:"ttft_ms"`
	TPOTMS *float64 `json:"tpot_ms"`
	// OutputTokensPerS and RequestsPerS are rates from the first arrival to the last end.
	OutputTokensPerS *float64 `json:"output_tokens_per_s"`
	RequestsPerS     *float64 `json:"requests_per_s"`
	// LatencyS is a call's mean time, in seconds.
	LatencyS *float64 `json:"latency_s"`
	// PrefixHit is the share of prompt tokens found in a cache.
	PrefixHit *float64 `json:"prefix_hit"`
	// TransferMS is the time to move a prompt's cache to where it is decoded, in milliseconds.
	TransferMS *float64 `json:"transfer_ms"`
	// SpanS is the time from the first arrival to the last end, in seconds.
	SpanS *float64 `json:"span_s"`
	// Preemptions are calls that lost their cache, of so many Calls.
	Preemptions, Calls int
	// Assumed are inputs that the row does not have, with the value taken.
	Assumed []string `json:"assumed,omitempty"`
	// Reason says why there is no answer, "" if there is one.
	Reason string `json:"reason"`
}

// Columns that a row of a table of serving measurements must have.
func Columns() []string {
	return []string{"id", "area", "model", "gpu", "gpus", "engine", "layout", "dtype", "input_tokens", "output_tokens", "load", "arm"}
}

// Answers predicts every row, in order. A row may leave inputs to the one before it ([Resolve]).
func Answers(rows []map[string]string) []Answer {
	resolved := Resolve(rows)
	answers := make([]Answer, len(rows))
	for i, row := range resolved {
		a, err := Of(row)
		if err != nil {
			a = Answer{ID: row["id"], Reason: err.Error()}
		}
		answers[i] = a
	}
	return answers
}

// Resolve replaces what rows leave to the row before them. That is a layout that begins with "the same", the load "as
// above", and the prefixes of a load that names a rate alone.
func Resolve(rows []map[string]string) []map[string]string {
	all := make([]map[string]string, len(rows))
	for i, row := range rows {
		one := make(map[string]string, len(row))
		for k, v := range row {
			one[k] = v
		}
		if i > 0 {
			before := all[i-1]
			if rest, same := strings.CutPrefix(one["layout"], "the same"); same {
				one["layout"] = before["layout"] + rest
			}
			switch {
			case one["load"] == "as above":
				one["load"] = before["load"]
			case one["area"] == before["area"] && one["input_tokens"] == before["input_tokens"] && !prefixPattern.MatchString(one["load"]):
				if prefixes := prefixPattern.FindString(before["load"]); prefixes != "" {
					one["load"] += "; " + prefixes
				}
			}
		}
		all[i] = one
	}
	return all
}

// Of predicts one row, whose columns refer to no other, of a model that has a preset. It fails where the row has no
// answer, and says why.
func Of(row map[string]string) (Answer, error) {
	model, err := hardware.ModelNamed(row["model"])
	if err != nil {
		return Answer{}, err
	}
	return OfModel(row, model)
}

// OfModel predicts one row of a model of the caller's own.
func OfModel(row map[string]string, model hardware.Model) (Answer, error) {
	s, err := newSetup(row, model)
	if err != nil {
		return Answer{}, err
	}
	return s.answer()
}

// setup is a row made out.
type setup struct {
	id            string
	input, output int
	layout        layout
	load          load
	config        serving.Config
	transferS     float64
	assumed       []string
}

// assume notes an input that the row does not have.
func (s *setup) assume(format string, values ...any) {
	s.assumed = append(s.assumed, fmt.Sprintf(format, values...))
}

// newSetup reads a row.
func newSetup(row map[string]string, model hardware.Model) (*setup, error) {
	s := &setup{id: row["id"]}
	var err error
	if s.input, err = s.tokens("input", row["input_tokens"]); err != nil {
		return nil, err
	}
	if s.output, err = s.tokens("output", row["output_tokens"]); err != nil {
		return nil, err
	}
	if s.layout, err = parseLayout(row["layout"], number(row["gpus"])); err != nil {
		return nil, err
	}
	if s.load, err = parseLoad(row["load"]); err != nil {
		return nil, err
	}
	if s.load.aWorker {
		s.load.atOnce *= s.layout.decode.count * s.layout.decode.data
	}
	gpu, err := hardware.GPUNamed(row["gpu"])
	if err != nil {
		return nil, err
	}
	return s, s.engines(model, gpu, row)
}

var digits = regexp.MustCompile(`\d+`)

// tokens reads a length. A bound is taken as the length of all.
func (s *setup) tokens(what, text string) (int, error) {
	n := number(digits.FindString(text))
	if n < 1 || n > 1e7 {
		return 0, fmt.Errorf("%s %q: expected 1 to 1e7 tokens", what, text)
	}
	if number(text) != n {
		s.assume("every %s has %d tokens, of %q", what, n, text)
	}
	return n, nil
}

// Settings of engines that rows do not give: vLLM's and SGLang's defaults on GPUs of 80 GB and more.
const (
	defaultBlock     = 16
	defaultBatched   = 8192
	defaultSequences = 1024
)

// Transfers between engines. linkUse is the share of the network cards' rate that a cache's transfer reaches, and linkStartS what
// each takes besides: fitted to two rows, kv-8b-h800-2k and kv-8b-h800-32k (4.5 GB over 8 cards of 50 GB/s in
// 31.65 ms, 0.29 GB in 2.51 ms).
const (
	linkUse    = 0.36
	linkStartS = 0.0005
	// hostBytesPerS is what a GPU reads from its host: 5th generation of PCIe, 16 lanes, 70 % of 64 GB/s. Assumed.
	hostBytesPerS = 45e9
)

// engines sets the replicas.
func (s *setup) engines(model hardware.Model, gpu hardware.GPU, row map[string]string) error {
	sglang := strings.Contains(strings.ToLower(row["engine"]), "sglang")
	context := float64(s.input + s.output/2)
	numbers, decode, err := s.fitting(model, gpu, row["dtype"], context)
	if err != nil {
		return err
	}
	decode.PrefillAlone = sglang
	arm := strings.ToLower(row["arm"])
	s.config = serving.Config{Replicas: s.layout.decode.count, Engine: decode, Placement: placement(arm), AtOnce: s.load.atOnce}
	if s.layout.prefill.count == 0 {
		return nil
	}
	reads, err := s.engine(s.layout.prefill, model, gpu, numbers, context)
	if err != nil {
		return err
	}
	cards := float64(min(s.layout.prefill.gpus(), s.layout.decode.gpus()))
	perToken := model.CacheBytes(context, numbers.cacheBytes) / context
	if s.layout.hostBytes > 0 {
		reads.HostTokens, reads.HostTokenS = int(s.layout.hostBytes/perToken), perToken/hostBytesPerS
		reads.HostHidden = hiddenPattern.MatchString(arm)
	}
	tokenS := perToken / (cards * gpu.NICBytesPerS * linkUse)
	s.transferS = linkStartS + tokenS*float64(s.input)
	s.config.Placement = serving.LeastLoaded
	s.config.Prefill = &serving.Prefill{Replicas: s.layout.prefill.count, Engine: reads, Placement: placement(arm), TokenS: tokenS, StartS: linkStartS}
	return nil
}

// numbers are the forms of weights and caches.
type numbers struct {
	dtype      string
	cacheBytes float64
}

// fp8Cache finds that a source says so of its caches.
var fp8Cache = regexp.MustCompile(`(?i)fp8 (?:kv|cache)|(?:kv|cache)[^,;]* fp8`)

// fitting returns the engines that decode. Where as many calls as run at once do not fit with the numbers that the row
// has, and do with a cache in fp8, or with weights in fp8 too, the source had those.
func (s *setup) fitting(model hardware.Model, gpu hardware.GPU, dtype string, context float64) (numbers, serving.Engine, error) {
	first := numbers{dtype, 2}
	if fp8Cache.MatchString(dtype) {
		first.cacheBytes = 1
	}
	tried := []numbers{first, {dtype, 1}}
	if strings.HasPrefix(dtype, "bf16") {
		tried = append(tried, numbers{"fp8", 2}, numbers{"fp8", 1})
	}
	wanted := float64(s.load.atOnce) * context / float64(s.layout.decode.count)
	for i, n := range tried {
		e, err := s.engine(s.layout.decode, model, gpu, n, context)
		if err != nil || float64(e.CacheTokens) < wanted {
			continue
		}
		if i > 0 {
			s.assume("weights in %s and a cache of %g bytes a number: with %s and 2 bytes no engine holds %.0f tokens", n.dtype, n.cacheBytes, dtype, wanted)
		}
		return n, e, nil
	}
	e, err := s.engine(s.layout.decode, model, gpu, first, context)
	return first, e, err
}

// hiddenPattern finds that a router does not know what the host has.
var hiddenPattern = regexp.MustCompile(`blind|not know|unaware`)

// placement reads an arm's rule.
func placement(arm string) serving.Placement {
	switch {
	case strings.Contains(arm, "round robin"):
		return serving.RoundRobin
	case strings.Contains(arm, "consistent hash"):
		return serving.ConsistentHash
	case strings.Contains(arm, "prefix") || strings.Contains(arm, "host tier") || strings.Contains(arm, "router knows") || strings.Contains(arm, "precise"):
		return serving.PrefixWeighted
	}
	return serving.LeastLoaded
}

// engine sets one kind of replica. Ranks that decode side by side and step together are one replica.
func (s *setup) engine(w workers, model hardware.Model, gpu hardware.GPU, n numbers, context float64) (serving.Engine, error) {
	r, err := replica(w, model, gpu, n)
	if err != nil {
		return serving.Engine{}, err
	}
	e := serving.Engine{
		StepS: StepCost(r), BlockTokens: defaultBlock, CacheTokens: w.cacheTokens,
		BatchedTokens: defaultBatched * w.data, Sequences: defaultSequences * w.data,
	}
	if s.layout.blockTokens > 0 {
		e.BlockTokens = s.layout.blockTokens
	}
	if s.layout.sequences > 0 {
		e.Sequences = s.layout.sequences * w.data
	}
	if s.layout.batchedTokens > 0 {
		e.BatchedTokens = s.layout.batchedTokens * w.data
	}
	if e.CacheTokens == 0 {
		if e.CacheTokens, err = CacheTokens(r, context); err != nil {
			return serving.Engine{}, err
		}
	}
	return e, nil
}

// expertPrefillUse is the share of the peak in bf16 that reading prompts reaches in a model of experts, whatever the weights'
// form: a round figure for the rows pd-dsv3-h200-c64, pd-dsv3-h200-c256, pd-oss120-h200-45qps and
// pd-oss120-h200-evict-nixl-30 together, of two models and two engines.
const expertPrefillUse = 0.4

// What a decode step takes beyond its roofline. stepS is scheduling and sampling that do not hide behind the GPUs' work: a round
// figure for all rows of the area decode, and pd-dsv3 and pd-32b. exchangeS is one exchange of a layer that GPUs of a
// node split, and expertS a layer whose experts ranks share: round figures of what package cases fits to runs of
// reinforcement learning, none of which is a row of serving. splitExpertS is a layer whose experts are split as its matrices
// are: a round figure for the 800 aggregated rows of such models in aiconfigurator's silicon_sample.csv at 095f58a5.
const (
	stepS        = 0.001
	exchangeS    = 20e-6
	expertS      = 0.0002
	splitExpertS = 25e-6
)

// fourBits is the peak in bf16 from which on GPUs multiply floating numbers of 4 bits as they are: Blackwell's.
const fourBits = 2e15

// replica makes an engine's hardware out.
func replica(w workers, model hardware.Model, gpu hardware.GPU, n numbers) (hardware.Replica, error) {
	r := hardware.Replica{Model: model, GPU: gpu, GPUs: w.gpus(), KVBytes: n.cacheBytes, MeanTokens: 1}.WithDefaults()
	switch dtype := strings.ToLower(n.dtype); {
	case strings.Contains(dtype, "fp4"), strings.Contains(dtype, "int4"), strings.Contains(dtype, "w4"):
		r.WeightBytes = 0.56
		if gpu.FP8 > 0 && (gpu.BF16 < fourBits || !strings.Contains(dtype, "fp4")) { // multiplied in bf16
			r.ComputeUse *= gpu.BF16 / gpu.FP8
			r.PrefillUse *= gpu.BF16 / gpu.FP8
		}
	case strings.HasPrefix(dtype, "fp8"), strings.HasPrefix(dtype, "int8"):
		r.WeightBytes = 1
	case dtype == "", strings.HasPrefix(dtype, "bf16"), strings.HasPrefix(dtype, "fp16"):
		r.WeightBytes = 2
	default:
		return r, fmt.Errorf("dtype %q is not known: expected bf16, fp8, mxfp4, nvfp4 or int4", n.dtype)
	}
	if model.Experts > 0 {
		r.PrefillUse = expertPrefillUse * gpu.BF16 / gpu.FLOPs(r.WeightBytes)
	}
	r.StepOverheadS = stepS
	switch {
	case w.data > 1:
		r.ExpertS = expertS
	case w.tensor > 1:
		r.ExchangeS, r.HeadsRepeated, r.ExpertS = exchangeS, true, splitExpertS
	}
	return r, r.Validate()
}

// answer simulates the row.
func (s *setup) answer() (Answer, error) {
	sessions, from := s.load.sessions(s.input, s.output, s.config.Engine.BlockTokens)
	result, err := serving.Run(s.config, sessions)
	if err != nil {
		return Answer{}, err
	}
	calls := result.Calls[:0:0]
	for _, c := range result.Calls {
		if c.ArriveS >= from {
			calls = append(calls, c)
		}
	}
	if len(calls) == 0 {
		return Answer{}, errors.New("the load has no call")
	}
	counted := serving.Result{Calls: calls}
	for i := range calls {
		counted.EndS = max(counted.EndS, calls[i].EndS)
	}
	a := Answer{ID: s.id, Assumed: s.assumed, Calls: len(calls), Preemptions: counted.Preemptions()}
	a.TTFTMS = value(1e3 * (serving.Over(calls, (*serving.Call).TTFT).Mean + front(s.input)))
	a.TPOTMS = value(1e3 * serving.Over(calls, (*serving.Call).TPOT).Mean)
	a.LatencyS = value(serving.Over(calls, (*serving.Call).Latency).Mean + front(s.input))
	a.OutputTokensPerS = value(counted.OutputTokensPerS())
	a.SpanS = value(counted.EndS - calls[0].ArriveS)
	a.RequestsPerS = value(float64(len(calls)) / *a.SpanS)
	if s.load.prefixes > 0 {
		a.PrefixHit = value(counted.HitRate())
	}
	if s.transferS > 0 {
		a.TransferMS = value(1e3 * s.transferS)
	}
	return a, nil
}

func value(v float64) *float64 { return &v }
