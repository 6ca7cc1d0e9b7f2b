package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// windowsMin is how many intervals an engine's speed needs: six make an interval of 95 % of a median.
const windowsMin = 6

// FromPages makes constants of the pages of running servers of one model on equal engines. The error says what
// else is needed.
func FromPages(pages []Page, left []Left) (Findings, error) {
	t := &tally{left: append([]Left{}, left...)}
	engines := windowsOf(pages, t)
	s := &servers{pages: pages}
	for _, of := range slices.Sorted(keysOf(engines)) {
		if len(engines[of]) > 0 {
			s.engines++
			s.windows = append(s.windows, engines[of]...)
		}
	}
	if len(s.windows) < windowsMin {
		return Findings{}, fmt.Errorf("%d intervals between pages in which an engine decoded, want at least %d%s", len(s.windows), windowsMin, said(t.left))
	}
	s.find()
	s.found.Left = t.left
	s.found.Of = sourcesOf(pages)
	return s.found, nil
}

// keysOf yields a map's keys.
func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// said lists what was left out, in an error.
func said(left []Left) string {
	var parts []string
	for _, l := range left {
		parts = append(parts, fmt.Sprintf("%s (%d times, first at %s)", l.Why, l.Count, l.First))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; left out: " + strings.Join(parts, "; ")
}

// sourcesOf are the names of what pages came from.
func sourcesOf(pages []Page) []string {
	var all []string
	for _, p := range pages {
		if name := fmt.Sprintf("%s (%s)", p.Source, p.software); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// servers are the windows of all engines.
type servers struct {
	pages   []Page
	windows []window
	engines int
	found   Findings
}

// note adds a note.
func (s *servers) note(format string, args ...any) {
	s.found.Notes = append(s.found.Notes, fmt.Sprintf(format, args...))
}

// add adds a determined constant.
func (s *servers) add(name, key string, value, low, high float64, from string) {
	s.found.Constants = append(s.found.Constants, Constant{Name: name, Key: key, Value: value, Low: low, High: high, Determined: true, From: from})
}

// find finds all constants.
func (s *servers) find() {
	slope, ok := s.prefill()
	s.decode(slope, ok)
	s.prompts(ok)
	s.lengths()
	s.load()
}

// pace is how fast a slot was in a window, at how many, and how many prompt tokens were read a second meanwhile.
type pace struct {
	active, speed, read, weight float64
}

// paces are the windows' paces. known is false where a server does not count what it reads as it reads it.
func (s *servers) paces() (all []pace, known bool) {
	known = true
	for _, w := range s.steadyWindows() {
		read := w.by[prompted] - w.by[hits]
		if w.atEnd {
			read = w.by[readNow]
		}
		known = known && read >= 0
		all = append(all, pace{w.active(), w.tokens() / w.slotS(), max(read, 0) / w.replicas / w.seconds, w.tokens()})
	}
	return all, known && slices.ContainsFunc(all, func(p pace) bool { return p.read > 0 })
}

// steadyWindows are those in which the load hardly changed, or all where those are too few.
func (s *servers) steadyWindows() []window {
	var steady []window
	for _, w := range s.windows {
		if w.steady() {
			steady = append(steady, w)
		}
	}
	if len(steady) < windowsMin {
		return s.windows
	}
	return steady
}

// sum adds up a quantity over all windows.
func (s *servers) sum(q quantity) float64 {
	total := 0.0
	for _, w := range s.windows {
		total += w.by[q]
	}
	return total
}

// octaves is how many steps of the load an octave is divided into.
const octaves = 2

// binOf is the bin of a load.
func binOf(active float64) int { return int(math.Round(octaves * math.Log2(max(active, 1)))) }

// prefill finds the seconds that reading one token takes: an engine that reads r tokens a second decodes in the rest of
// the time, so that intervals of the same load are slower by 1 - r times that. It is not found where intervals do not
// differ in what was read, or their speeds do not follow.
func (s *servers) prefill() (perToken float64, ok bool) {
	all, known := s.paces()
	most := 0.0
	for _, p := range all {
		most = max(most, p.read)
	}
	bins := map[int]bool{}
	for _, p := range all {
		bins[binOf(p.active)] = true
	}
	free := float64(len(all) - len(bins) - 2)
	if !known || free < windowsMin {
		return 0, false
	}
	const steps = 2000
	var rest [steps]float64
	best := 0
	for i := range rest {
		if rest[i] = unexplained(all, float64(i)/steps/most); rest[i] < rest[best] {
			best = i
		}
	}
	low, high := best, best
	for i, r := range rest {
		if r <= rest[best]*(1+fourSquares/free) {
			low, high = min(low, i), max(high, i)
		}
	}
	if low == 0 || high == steps-1 || high > 2*low {
		return 0, false
	}
	perToken = float64(best) / steps / most
	s.add("speed of reading prompts, tokens/s", prefillKey, 1/perToken, (1-spreadMin)*most*steps/(float64(high)+0.5), (1+spreadMin)*most*steps/(float64(low)-0.5), "intervals of the same load were slower where more was read")
	return perToken, true
}

// fourSquares is the square of how many standard errors an interval of 95 % reaches over which a fit is profiled.
const fourSquares = 4

// unexplained is the sum of squares that is left of the logarithms of speeds, once reading at so many seconds a token
// is taken off, with the mean and the slope by load of each bin of loads.
func unexplained(all []pace, perToken float64) float64 {
	type sums struct{ n, a, v float64 }
	bins := map[int]sums{}
	value := func(p pace) (a, v float64) {
		return math.Log(p.active), math.Log(p.speed) - math.Log1p(-p.read*perToken)
	}
	for _, p := range all {
		a, v := value(p)
		b := bins[binOf(p.active)]
		bins[binOf(p.active)] = sums{b.n + 1, b.a + a, b.v + v}
	}
	var aa, av, vv float64
	for _, p := range all {
		a, v := value(p)
		b := bins[binOf(p.active)]
		a, v = a-b.a/b.n, v-b.v/b.n
		aa, av, vv = aa+a*a, av+a*v, vv+v*v
	}
	return vv - av*av/max(aa, 1e-300)
}

// decode makes the curve. What reading prompts took is taken off where it is known.
func (s *servers) decode(perPrompt float64, apart bool) {
	all, _ := s.paces()
	if steady := len(s.steadyWindows()); steady == len(s.windows) {
		unsteady := slices.ContainsFunc(s.windows, func(w window) bool { return !w.steady() })
		if unsteady {
			s.note("the load changed in most intervals: the curve is blurred; scrape more often")
		}
	} else {
		s.note("%d of %d intervals, in which the load changed, are not in the curve", len(s.windows)-steady, len(s.windows))
	}
	samples := make([]Sample, len(all))
	for i, x := range all {
		samples[i] = Sample{x.active, x.speed / (1 - perPrompt*x.read), x.weight}
	}
	curve := CurveOf(samples)
	if !apart {
		curve.From += "; reading prompts is in it"
		s.note("how long prompts take to be read could not be told from decoding: the curve has both, at the prompts that were read")
	}
	s.found.Constants = append(s.found.Constants, curve)
}

// Sample is the speed of a slot in tokens/s while so many were active, which counts by its weight.
type Sample struct{ Active, SlotTokensPerS, Weight float64 }

// CurveOf makes the decode curve of samples, of which there is at least one.
func CurveOf(samples []Sample) Constant {
	type point struct {
		weight, active float64
		speeds         []float64
	}
	bins := map[int]*point{}
	for _, x := range samples {
		b := bins[binOf(x.Active)]
		if b == nil {
			b = &point{}
			bins[binOf(x.Active)] = b
		}
		b.weight, b.active = b.weight+x.Weight, b.active+x.Weight*x.Active
		b.speeds = append(b.speeds, x.SlotTokensPerS)
	}
	var curve []Point
	for _, k := range slices.Sorted(intsOf(bins)) {
		b := bins[k]
		n := max(int(math.Round(b.active/b.weight)), 1)
		m := MedianOf(b.speeds)
		if last := len(curve) - 1; last < 0 || curve[last].Slots != n {
			curve = append(curve, Point{Slots: n, SlotTokensPerS: m, TokensPerS: float64(n) * m.Value})
		}
	}
	busiest := slices.MaxFunc(curve, func(a, b Point) int { return a.SlotTokensPerS.Values - b.SlotTokensPerS.Values })
	speed := busiest.SlotTokensPerS
	spread := max(max(speed.High-speed.Value, speed.Value-speed.Low)/speed.Value, spreadMin)
	return Constant{Name: fmt.Sprintf("speed of a slot of %d, tokens/s", busiest.Slots), Key: "modelled.decode_curve",
		Value: speed.Value, Low: speed.Value * (1 - spread), High: speed.Value * (1 + spread), Determined: true, Curve: curve,
		From: fmt.Sprintf("%d points of %d to %d slots, %d intervals", len(curve), curve[0].Slots, curve[len(curve)-1].Slots, len(samples))}
}

// spreadMin is the least spread that a curve's speed is given: what differs between two servers that are called the same.
const spreadMin = 0.02

// intsOf yields a map's keys.
func intsOf[V any](m map[int]V) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// ratio is one sum over another over the windows, with an interval of 95 % by how windows differ. It is not known
// where there is nothing to divide by.
func (s *servers) ratio(over, under func(window) float64) (value, low, high float64, ok bool) {
	var a, b float64
	for _, w := range s.windows {
		a, b = a+over(w), b+under(w)
	}
	if !(b > 0) || a < 0 {
		return 0, 0, 0, false
	}
	value = a / b
	var squares float64
	for _, w := range s.windows {
		d := over(w) - value*under(w)
		squares += d * d
	}
	off := 2 * math.Sqrt(squares) / b
	return value, max(value-off, 0), value + off, true
}

// by is a quantity of windows.
func by(q quantity) func(window) float64 { return func(w window) float64 { return w.by[q] } }

// prompts finds how long they are, and what the prefix cache has of them.
func (s *servers) prompts(apart bool) {
	under := by(firstToken.count())
	if s.windows[0].atEnd {
		under = by(finished)
	}
	asked := by(queries)
	if s.windows[0].atEnd {
		asked = by(prompted)
	}
	rate, low, high, known := s.ratio(by(hits), asked)
	if known {
		s.add("prefix cache's hit rate", "", rate, low, min(high, 1), "tokens of prompts that it had, over those asked for")
	}
	all, low, high, ok := s.ratio(by(prompted), under)
	if !ok || !(all > 0) {
		return
	}
	if !apart {
		s.add("mean prompt, tokens", "", all, low, high, "counters; reading them is in the decode speed")
		return
	}
	left := 1.0
	from := "counters"
	if known {
		left = 1 - rate
		from = fmt.Sprintf("%s of a prompt, less those of the prefix cache", short(all))
	}
	s.add("prompt tokens read for a response", "modelled.prompt_tokens", all*left, low*left, high*left, from)
}

// load says how busy the engines were.
func (s *servers) load() {
	engines := 0.0
	for _, w := range s.windows {
		engines = max(engines, w.replicas)
	}
	active, low, high, _ := s.ratio(window.slotS, func(w window) float64 { return w.seconds * w.replicas })
	n := engines * float64(s.engines)
	s.found.Engines = int(n)
	s.add("responses at once", concurrencyKey, n*max(active, 1), n*max(low, 1), n*max(high, 1), fmt.Sprintf("the mean while anything was decoded, engines: %.0f", n))
	if rate, low, high, ok := s.ratio(by(preempted), s.ended()); ok && s.sum(preempted) > 0 {
		s.add("preemptions a response", "", rate, low, high, "the cache was full; the decode speed has what they cost")
	}
	use := 0.0
	for _, w := range s.windows {
		use = max(use, w.to.values[cacheUse]/max(w.replicas, 1))
	}
	if use > 0 {
		s.add("most of the cache in use", "", min(use, 1), min(use, 1), min(use, 1), "the greatest of all pages")
	}
}

// ended counts responses that have ended.
func (s *servers) ended() func(window) float64 {
	if s.sum(responseTokens.count()) > 0 {
		return by(responseTokens.count())
	}
	return by(finished)
}

// ErrNoPages is the error of sources without a single page that could be read.
var ErrNoPages = errors.New("no page could be read")
