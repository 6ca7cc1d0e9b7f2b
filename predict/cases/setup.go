package cases

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/schedule"
)

// setup is a row in terms of a prediction: everything that constants do not move.
type setup struct {
	row   Row
	rules rules
	model hardware.Model
	gpu   hardware.GPU
	// promptTokens, meanTokens and capTokens are of one response.
	promptTokens, meanTokens, capTokens float64
	sequences                           float64
	lengths                             map[float64]*workload.Lengths
	kept                                *schedule.Kept
	// assumed are inputs that the source does not have, with the value taken, and guessSpread what they add to the
	// uncertainty of the answer's logarithm.
	assumed     []string
	guessSpread float64
}

// unanswerable is why a row has no prediction.
type unanswerable string

func (u unanswerable) Error() string { return string(u) }

// newSetup reads what a prediction needs, or says what is missing.
func newSetup(r Row) (*setup, error) {
	if len(r.unread) > 0 {
		return nil, unanswerable(strings.Join(r.unread, "; "))
	}
	s := &setup{row: r, rules: r.rules(), lengths: map[float64]*workload.Lengths{}, kept: new(schedule.Kept), assumed: slices.Clone(r.uncompared)}
	var lacks []string
	lack := func(missing bool, what string) {
		if missing {
			lacks = append(lacks, what)
		}
	}
	var err error
	if r.Model == "" {
		lacks = append(lacks, "model")
	} else if s.model, err = r.model(); err != nil {
		return nil, unanswerable(err.Error())
	}
	if r.GPU == "" {
		lacks = append(lacks, "gpu")
	} else if s.gpu, err = hardware.GPUNamed(r.GPU); err != nil {
		return nil, unanswerable(err.Error())
	}
	k := s.rules.kind
	lack(r.TrainGPUs == 0 && k != kindSync, "train_gpus")
	lack(k != kindTrain && r.RolloutGPUs == 0, "rollout_gpus")
	s.sequences = float64(r.Sequences)
	lack(k != kindSync && s.sequences == 0, "sequences")
	lack(k != kindSync && r.ResponseTokens == 0 && r.CapTokens == 0, "mean_response_tokens or cap_tokens")
	if len(lacks) > 0 {
		return nil, unanswerable("not published, and the answer turns on it: " + strings.Join(lacks, ", "))
	}
	if err := r.contradiction(); err != nil {
		return nil, err
	}
	s.guess()
	s.readLengths()
	return s, s.fits()
}

// contradiction is a layout that needs more GPUs than its side has.
func (r Row) contradiction() error {
	if need := r.engineGPUs(); need > r.RolloutGPUs && r.RolloutGPUs > 0 {
		return unanswerable(fmt.Sprintf("an engine takes %d GPUs by rollout_tp and rollout_ep, and rollout_gpus is %d", need, r.RolloutGPUs))
	}
	if need := max(r.TrainTP, 1) * max(r.TrainCP, 1) * max(r.TrainPP, 1); need > r.TrainGPUs && r.TrainGPUs > 0 {
		return unanswerable(fmt.Sprintf("the trainer takes %d GPUs by train_tp, train_cp and train_pp, and train_gpus is %d", need, r.TrainGPUs))
	}
	return nil
}

// Guesses of lengths: a mean response in shares of its cap, and a cap in means.
const (
	meanOfCap = 0.35
	capOfMean = 4
)

// completed are rows with the mean response of their siblings where they have none: runs of the same
// family, model and cap. Their source's figures are better than a guess.
func completed(rows []Row) []Row {
	out := slices.Clone(rows)
	for i, r := range rows {
		if r.ResponseTokens > 0 || r.CapTokens == 0 {
			continue
		}
		var means []float64
		for _, other := range rows {
			if other.Family == r.Family && other.Model == r.Model && other.CapTokens == r.CapTokens && other.CapOf == r.CapOf && other.ResponseTokens > 0 {
				means = append(means, other.ResponseTokens)
			}
		}
		if len(means) > 0 {
			out[i].ResponseTokens, out[i].siblings = median(means), len(means)
		}
	}
	return out
}

// guess fills in what usually follows from the rest, and says so.
func (s *setup) guess() {
	r := &s.row
	assume := func(spread float64, format string, args ...any) {
		s.assumed = append(s.assumed, fmt.Sprintf(format, args...))
		s.guessSpread = math.Hypot(s.guessSpread, spread)
	}
	if k := s.rules.kind; k == kindSync || k == kindTrain {
		return
	}
	if r.PromptTokens == 0 {
		assume(0, "mean_prompt_tokens %d, a question of mathematics or code", promptGuess)
	}
	if r.siblings > 0 {
		assume(0.1, "mean_response_tokens %.0f, the median of %d rows of the same model and cap", r.ResponseTokens, r.siblings)
	}
	if r.ResponseTokens == 0 {
		r.ResponseTokens = meanOfCap * r.CapTokens
		assume(0.4, "mean_response_tokens %.0f, which is %g of the cap", r.ResponseTokens, meanOfCap)
	}
	if r.CapTokens == 0 {
		r.CapTokens = math.Min(capOfMean*r.ResponseTokens, workload.MaxTokens)
		assume(0.15, "cap_tokens %.0f, which is %d means", r.CapTokens, capOfMean)
	}
	if r.RolloutTP == 0 && r.RolloutReplicas == 0 {
		r.RolloutTP = 1
		s.readLengths()
		for r.RolloutTP < r.RolloutGPUs && !s.roomy() {
			r.RolloutTP *= 2
		}
		assume(0.1, "rollout_tp %d, the smallest that holds the model and 32 rollouts", r.RolloutTP)
	}
}

// roomy reports whether an engine holds so many rollouts that a batch is worth it.
func (s *setup) roomy() bool {
	const enough = 32
	slots, err := s.replica(priors(), s.lengthsOf(priors()[lengthSpread])).Slots()
	return err == nil && slots >= enough
}

// capsWhole reports whether the cap is of prompt and response together.
func (r Row) capsWhole() bool {
	of := strings.ToLower(r.CapOf)
	return !strings.HasPrefix(of, "response") && wholeCap.MatchString(of)
}

var wholeCap = regexp.MustCompile(`prompt|context|total|sequence`)

// promptGuess is a prompt where the row has none: a question of mathematics or code.
const promptGuess = 256

// readLengths turns means and caps into those of one response.
func (s *setup) readLengths() {
	s.promptTokens, s.meanTokens, s.capTokens = s.row.PromptTokens, s.row.ResponseTokens, s.row.CapTokens
	if s.promptTokens == 0 && s.rules.kind != kindTrain {
		s.promptTokens = promptGuess
	}
	if s.row.capsWhole() && s.promptTokens < s.capTokens {
		s.capTokens -= s.promptTokens
	}
	if s.capTokens == 0 {
		s.capTokens = s.meanTokens
	}
	s.capTokens = math.Max(s.capTokens, s.meanTokens)
}

// fits refuses a row whose engines cannot hold one rollout.
func (s *setup) fits() error {
	if s.rules.kind != kindStep {
		return nil
	}
	if _, err := s.replica(priors(), s.lengthsOf(priors()[lengthSpread])).Slots(); err != nil {
		return unanswerable(err.Error())
	}
	return nil
}

// lengthsOf are the responses' lengths with that spread before the cap: lognormal, with the row's mean
// after it.
func (s *setup) lengthsOf(spread float64) *workload.Lengths {
	spread = math.Min(spread, 1.29)
	given := spread
	if l := s.lengths[given]; l != nil {
		return l
	}
	limit := int(math.Max(s.capTokens, 1))
	if s.rules.kind == kindTrain {
		spread = 0 // lengths are exact, or a fixed bank's mean
	}
	// A mean at the cap itself has no spread that any length shows.
	want := math.Max(math.Min(s.meanTokens, 0.985*s.capTokens), 1)
	mean := nominal(want, s.capTokens, spread)
	l, err := workload.LengthSpec{Kind: "lognormal", MeanTokens: mean, Tailness: 100 * spread / 1.3, CapTokens: limit}.Build()
	if err != nil {
		panic(fmt.Sprintf("cases: lengths of mean %g and cap %d: %v", mean, limit, err))
	}
	s.lengths[given] = l
	return l
}

// release forgets what can be made again, which is most of a row's memory.
func (s *setup) release() { s.lengths, s.kept = map[float64]*workload.Lengths{}, new(schedule.Kept) }

// nominal is the mean of lognormal lengths before a cap that leaves them that mean: by bisection of
// E[min(L, c)] = e^(μ+σ²/2)·Φ(z−σ) + c·(1−Φ(z)) with z = (ln c − μ)/σ.
func nominal(want, limit, spread float64) float64 {
	if spread == 0 || want >= limit {
		return want
	}
	phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	low, high := math.Log(want), math.Min(math.Log(want)+4, math.Log(workload.MaxTokens))
	for range 40 {
		mid := (low + high) / 2
		z := (math.Log(limit) - mid + spread*spread/2) / spread
		if math.Exp(mid)*phi(z-spread)+limit*phi(-z) < want {
			low = mid
		} else {
			high = mid
		}
	}
	return math.Min(math.Exp((low+high)/2), workload.MaxTokens)
}

// The share of memory that an engine may use: alone, and where a trainer's memory stays beside it.
const (
	memoryAlone  = 0.85
	memoryShared = 0.6
)

// sequencesMost is how many rollouts an engine runs at once at most: vLLM's default on large GPUs.
const sequencesMost = 1024

// replica is one engine under the constants.
func (s *setup) replica(c [constants]float64, l *workload.Lengths) hardware.Replica {
	r := hardware.Replica{Model: s.model, GPU: s.gpu, GPUs: s.row.engineGPUs(), WeightBytes: s.rules.rolloutBytes,
		MemoryUse: memoryAlone, PromptTokens: s.promptTokens, MeanTokens: l.Mean(), MeanSquareTokens: l.MeanSquare()}
	if s.rules.shared {
		r.MemoryUse = memoryShared
	}
	return engine(c, r, s.row.RolloutTP > 1, s.row.RolloutEP > 1)
}

// engine is a replica in terms of a schedule: its slots, and its decode step by the rollouts on it.
// A token carries its share of the prompt's prefill, which siblings have once.
func (s *setup) engine(c [constants]float64, l *workload.Lengths) (int, schedule.Decode) {
	r := s.replica(c, l)
	slots, err := r.Slots()
	if err != nil {
		slots = 1
	}
	slots = min(slots, sequencesMost*max(s.row.RolloutEP, 1))
	if all := s.rules.inFlightRollouts; all > 0 {
		slots = min(slots, max(all/s.row.replicas(), 1))
	}
	prefill := r.PrefillSeconds(s.promptTokens) / float64(max(s.row.Samples, 1)) / l.Mean()
	return slots, schedule.Sampled(func(active int) float64 {
		return r.Decode(float64(active)).Seconds + float64(active)*prefill
	}, slots)
}

// contextTokens is E[S²]/E[S] of whole sequences.
func (s *setup) contextTokens(l *workload.Lengths) float64 {
	p, m := s.promptTokens, l.Mean()
	return (p*p + 2*p*m + l.MeanSquare()) / (p + m)
}
