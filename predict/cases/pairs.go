package cases

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Pair is two rows that differ in one choice.
type Pair struct {
	A string `json:"a"`
	B string `json:"b"`
	// Choice is what they differ in: schedule, split, gpus, gpu, precision, layout, placement or release.
	Choice string `json:"choice"`
	// Measured and Predicted are B's time over A's; below 1 B is the faster.
	Measured  float64 `json:"measured_ratio"`
	Predicted float64 `json:"predicted_ratio"`
	// Right says that the prediction has the sign of the measurement.
	Right bool `json:"right"`
	// Async and More say what two rules of thumb would have said: the asynchronous one is faster, that with more
	// GPUs is. 0 is nothing, 1 right, −1 wrong.
	Async int `json:"always_asynchronous"`
	More  int `json:"more_gpus"`
}

// tie is the difference of two measurements below which neither is the faster.
const tie = 0.05

// choices are what a row has chosen, by name.
func (r Row) choices(k rules) map[string]string {
	split := ""
	if k.async && !k.shared {
		split = fmt.Sprintf("%.2f", float64(r.TrainGPUs)/math.Max(float64(r.TrainGPUs+r.RolloutGPUs), 1))
	}
	return map[string]string{
		"schedule":  fmt.Sprintf("%v %v %g %g %s", k.async, k.shared, k.ahead, k.syncEvery, r.ruleWords()),
		"split":     split,
		"gpus":      fmt.Sprint(r.GPUs),
		"gpu":       strings.ToLower(r.GPU),
		"precision": fmt.Sprintf("%g %g", k.rolloutBytes, k.trainBytes),
		"layout":    fmt.Sprint(r.RolloutTP, r.RolloutEP, r.TrainTP, r.TrainCP, r.TrainEP, r.TrainPP),
		"placement": r.placement(k.kind),
		"release":   r.Framework,
		"trained":   fmt.Sprint(k.lora),
	}
}

// ruleWords tell apart schedules that the rules read alike.
func (r Row) ruleWords() string {
	if strings.Contains(strings.ToLower(r.Schedule), "switch") || strings.Contains(strings.ToLower(r.Schedule), "streamed") {
		return r.Schedule
	}
	return ""
}

// placement is how requests find a replica, in the source's words.
func (r Row) placement(k kind) string {
	if k != kindServe {
		return ""
	}
	return r.Fields["note"]
}

// speed is what a row measured, as a time of the same work: a step, or the inverse of tokens a second.
func (r Row) speed(k kind) float64 {
	for _, figure := range []string{"step_s", "gen_s", "train_s"} {
		if v := r.Measured[figure]; v > 0 && (figure != "train_s" || k == kindTrain) {
			return v
		}
	}
	if v := r.Measured["total_tokens_per_s"]; v > 0 {
		return 1 / v
	}
	return 0
}

// matched is a row that is measured and answered, with what its words mean.
type matched struct {
	Row
	rules            rules
	choices          map[string]string
	speed, predicted float64
}

// work is what rows share that do the same work, beside their tokens.
type work struct {
	family, model string
	sequences     int
	capTokens     float64
	kind          kind
}

func (a matched) work() work { return work{a.Family, a.Model, a.Sequences, a.CapTokens, a.rules.kind} }

// sameTokens reports whether two rows have the same tokens, within a tenth.
func (a matched) sameTokens(b matched) bool {
	x, y := a.PromptTokens+a.ResponseTokens, b.PromptTokens+b.ResponseTokens
	return x == y || x > 0 && y > 0 && math.Abs(math.Log(x/y)) < 0.1
}

// follows are the choices that another one brings with it: shared GPUs that are parted have a split and
// another layout, other GPUs another layout, and placement its own router.
var follows = map[string][]string{"schedule": {"split", "layout"}, "gpus": {"layout"}, "gpu": {"layout"}, "split": {"layout"}, "placement": {"release"}}

// differ returns the one choice in which two rows differ, "" if it is none or several.
func differ(x, y map[string]string) string {
	var different []string
	for name := range x {
		if x[name] != y[name] {
			different = append(different, name)
		}
	}
	slices.Sort(different)
	for _, name := range different {
		rest := slices.DeleteFunc(slices.Clone(different), func(other string) bool { return other == name || slices.Contains(follows[name], other) })
		if len(rest) == 0 {
			return name
		}
	}
	return ""
}

// Pairs are all decisions of a table. The two rows are of one family, do the same work and differ in one
// choice. Both are measured and answered, and more than a tie apart.
func Pairs(rows []Row, answers []Answer) []Pair {
	var out []Pair
	var all []matched
	for i, r := range rows {
		k := r.rules()
		if speed := r.speed(k.kind); speed > 0 && answers[i].Step != nil {
			all = append(all, matched{r, k, r.choices(k), speed, answers[i].Step.Predicted})
		}
	}
	alike := map[work][]matched{} // the rows after a, by their work, the first last
	for i := len(all) - 1; i >= 0; i-- {
		alike[all[i].work()] = append(alike[all[i].work()], all[i])
	}
	for _, a := range all {
		w := a.work()
		alike[w] = alike[w][:len(alike[w])-1]
		if a.Model == "" {
			continue
		}
		for _, b := range slices.Backward(alike[w]) {
			if !a.sameTokens(b) {
				continue
			}
			choice := differ(a.choices, b.choices)
			if choice == "" {
				continue
			}
			p := Pair{A: a.ID, B: b.ID, Choice: choice, Measured: b.speed / a.speed, Predicted: b.predicted / a.predicted}
			if math.Abs(math.Log(p.Measured)) < math.Log(1+tie) {
				continue
			}
			p.Right = (p.Measured < 1) == (p.Predicted < 1) && p.Predicted != 1
			p.Async = thumb(p.Measured, a.rules.async, b.rules.async)
			p.More = thumb(p.Measured, a.GPUs > b.GPUs, b.GPUs > a.GPUs)
			out = append(out, p)
		}
	}
	return out
}

// thumb is how a rule of thumb does that says the row which has something is the faster.
func thumb(measured float64, a, b bool) int {
	if a == b {
		return 0
	}
	if (measured < 1) == b {
		return 1
	}
	return -1
}
