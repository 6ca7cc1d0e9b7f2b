package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// served is a server whose constants are known, in a clock of its own.
type served struct {
	draw    *rand.Rand
	now     float64
	running []request
	counted map[string]float64
	lengths []float64
	cap     float64
}

// request is a response under way: at is when its last token came.
type request struct {
	at, began, length, done, prompt float64
}

// The truth.
const (
	truthStepS    = 0.006  // of a step
	truthSlotS    = 0.0002 // of every slot in it
	truthReadS    = 25_000 // tokens/s
	truthPrompt   = 900.0
	truthHit      = 0.4
	truthMean     = 400.0
	truthTailness = 60.0
)

func newServed(seed uint64) *served {
	return &served{draw: rand.New(rand.NewPCG(seed, 5)), counted: map[string]float64{}, cap: 2048}
}

// speed is that of a slot.
func truthSpeed(active float64) float64 { return 1 / (truthStepS + truthSlotS*active) }

// start begins a response.
func (s *served) start() (read float64) {
	sigma := tailSigma * truthTailness / 100
	length := min(math.Ceil(truthMean*math.Exp(sigma*s.draw.NormFloat64()-sigma*sigma/2)), s.cap)
	prompt := math.Round(truthPrompt * (0.5 + s.draw.Float64()))
	hit := math.Round(prompt * truthHit)
	s.counted["queries"] += prompt
	s.counted["hits"] += hit
	s.running = append(s.running, request{began: s.now, length: length, prompt: prompt})
	return prompt - hit
}

// run goes on for so long with so many responses at once.
func (s *served) run(seconds float64, active int) {
	for end := s.now + seconds; s.now < end; {
		read := 0.0
		for len(s.running) < active {
			read += s.start()
		}
		if len(s.running) == 0 {
			s.now = end
			return
		}
		s.now += (truthStepS+truthSlotS*float64(len(s.running)))*(1+0.03*s.draw.NormFloat64()) + read/truthReadS
		s.step()
	}
}

// step brings every response a token.
func (s *served) step() {
	kept := s.running[:0]
	for _, r := range s.running {
		if r.done++; r.done == 1 {
			s.counted["first"] += 1
			s.counted["firstS"] += s.now - r.began
			s.counted["prompt"] += r.prompt
		} else {
			s.counted["between"] += 1
			s.counted["betweenS"] += s.now - r.at
		}
		s.counted["generated"] += 1
		r.at = s.now
		if r.done < r.length {
			kept = append(kept, r)
			continue
		}
		s.counted["ended"] += 1
		s.counted["latencyS"] += s.now - r.began
		s.counted["endedTokens"] += r.length
		s.counted["endedPrompt"] += r.prompt
		if r.length >= s.cap {
			s.counted["cut"] += 1
		}
		s.lengths = append(s.lengths, r.length)
	}
	s.running = kept
}

// histogram writes one.
func histogram(b *strings.Builder, name, labels string, sum, count float64, bounds []float64, values []float64) {
	fmt.Fprintf(b, "# HELP %s as it is\n# TYPE %s histogram\n", name, name)
	for _, most := range bounds {
		n := 0
		for _, v := range values {
			if v <= most {
				n++
			}
		}
		fmt.Fprintf(b, "%s_bucket{le=\"%g\",%s} %d\n", name, most, labels, n)
	}
	fmt.Fprintf(b, "%s_bucket{le=\"+Inf\",%s} %g\n%s_sum{%s} %v\n%s_count{%s} %g\n", name, labels, count, name, labels, sum, name, labels, count)
}

var lengthBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// vllm is the page of a vLLM.
func (s *served) vllm() string {
	var b strings.Builder
	labels := `engine="0",model_name="m"`
	one := func(kind, name string, v float64) {
		fmt.Fprintf(&b, "# TYPE vllm:%s %s\nvllm:%s{%s} %v\n", name, kind, name, labels, v)
	}
	c := s.counted
	one("gauge", "num_requests_running", float64(len(s.running)))
	one("gauge", "num_requests_waiting", 0)
	one("gauge", "kv_cache_usage_perc", 0.25)
	one("counter", "prefix_cache_queries_total", c["queries"])
	one("counter", "prefix_cache_hits_total", c["hits"])
	one("counter", "num_preemptions_total", 0)
	one("counter", "prompt_tokens_total", c["prompt"])
	one("counter", "generation_tokens_total", c["generated"])
	fmt.Fprintf(&b, "# TYPE vllm:request_success_total counter\nvllm:request_success_total{%s,finished_reason=\"stop\"} %v\nvllm:request_success_total{%s,finished_reason=\"length\"} %v\n",
		labels, c["ended"]-c["cut"], labels, c["cut"])
	histogram(&b, "vllm:time_to_first_token_seconds", labels, c["firstS"], c["first"], nil, nil)
	// During a renaming a server has both.
	histogram(&b, "vllm:inter_token_latency_seconds", labels, c["betweenS"], c["between"], nil, nil)
	histogram(&b, "vllm:time_per_output_token_seconds", labels, c["betweenS"], c["between"], nil, nil)
	histogram(&b, "vllm:e2e_request_latency_seconds", labels, c["latencyS"], c["ended"], nil, nil)
	histogram(&b, "vllm:request_generation_tokens", labels, c["endedTokens"], c["ended"], lengthBounds, s.lengths)
	histogram(&b, "vllm:request_params_max_tokens", labels, c["ended"]*s.cap, c["ended"], nil, nil)
	return b.String()
}

// sglang is the page of an SGLang, which counts tokens when a response has ended.
func (s *served) sglang() string {
	var b strings.Builder
	c, labels := s.counted, `model_name="m"`
	fmt.Fprintf(&b, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{%s,tp_rank=\"0\"} %d\n", labels, len(s.running))
	fmt.Fprintf(&b, "# TYPE sglang:token_usage gauge\nsglang:token_usage{%s,tp_rank=\"0\"} 0.25\n", labels)
	if c["ended"] > 0 { // a counter is there once it has counted
		for name, v := range map[string]float64{"prompt_tokens": c["endedPrompt"], "generation_tokens": c["endedTokens"], "cached_tokens": math.Round(c["endedPrompt"] * truthHit), "num_requests": c["ended"]} {
			fmt.Fprintf(&b, "# TYPE sglang:%s_total counter\nsglang:%s_total{%s} %v\n", name, name, labels, v)
		}
		histogram(&b, "sglang:generation_tokens_histogram", labels, c["endedTokens"], c["ended"], lengthBounds, s.lengths)
		histogram(&b, "sglang:e2e_request_latency_seconds", labels, c["latencyS"], c["ended"], nil, nil)
	}
	fmt.Fprintf(&b, "# TYPE sglang:realtime_tokens_total counter\nsglang:realtime_tokens_total{%s,mode=\"prefill_compute\"} %v\nsglang:realtime_tokens_total{%s,mode=\"decode\"} %v\n", labels, c["queries"]-c["hits"], labels, c["generated"])
	histogram(&b, "sglang:time_to_first_token_seconds", labels, c["firstS"], c["first"], nil, nil)
	histogram(&b, "sglang:inter_token_latency_seconds", labels, c["betweenS"], c["between"], nil, nil)
	return b.String()
}

// record runs through loads that change and returns a page every 5 s.
func (s *served) record(t *testing.T, page func(*served) string) []Page {
	t.Helper()
	var pages []Page
	for _, active := range []int{4, 8, 16, 32, 64, 32, 8} {
		for range 20 {
			s.run(5, active)
			pages = append(pages, s.page(t, page))
		}
	}
	return pages
}

func (s *served) page(t *testing.T, page func(*served) string) Page {
	t.Helper()
	p, err := ParsePage("server", fmt.Sprintf("pages:%.0f", s.now), s.now, []byte(page(s)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// near checks a constant against the truth.
func near(t *testing.T, f Findings, name string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= within) {
		t.Errorf("%s: %.5g, want %.5g within %.0f %%\n%+v", name, got, want, 100*within, f.Constants)
	}
}

// checkTruth holds findings to what the server was.
func checkTruth(t *testing.T, f Findings) {
	t.Helper()
	curve, _ := f.Find("modelled.decode_curve")
	if len(curve.Curve) < 4 {
		t.Fatalf("a curve of %d points: %+v", len(curve.Curve), f)
	}
	for _, p := range curve.Curve {
		near(t, f, fmt.Sprintf("speed at %d", p.Slots), p.SlotTokensPerS.Value, truthSpeed(float64(p.Slots)), 0.05)
	}
	// The reads are told from the steps by how intervals differ: their speed is the least certain.
	prefill, ok := f.Find(prefillKey)
	if !ok || !prefill.Determined || prefill.Low > truthReadS || prefill.High < truthReadS {
		t.Errorf("prefill %+v, want %d in the interval", prefill, truthReadS)
	}
	near(t, f, "prefill", prefill.Value, truthReadS, 0.2)
	for _, c := range []struct {
		key          string
		want, within float64
	}{
		{"modelled.prompt_tokens", truthPrompt * (1 - truthHit), 0.03},
		{"modelled.length.mean_tokens", truthMean, 0.06},
		{"modelled.length.tailness", truthTailness, 0.08},
	} {
		got, _ := f.Find(c.key)
		near(t, f, c.key, got.Value, c.want, c.within)
	}
	i := slices.IndexFunc(f.Constants, func(c Constant) bool { return strings.Contains(c.Name, "hit rate") })
	near(t, f, "hit rate", f.Constants[i].Value, truthHit, 0.01)
}

// Pages of a server give its constants back.
func TestPagesGiveTheTruth(t *testing.T) {
	for name, page := range map[string]func(*served) string{"vllm": (*served).vllm, "sglang": (*served).sglang} {
		t.Run(name, func(t *testing.T) {
			f, err := FromPages(newServed(1).record(t, page), nil)
			if err != nil {
				t.Fatal(err)
			}
			checkTruth(t, f)
			if len(f.Left) > 0 {
				t.Errorf("left out: %+v", f.Left)
			}
		})
	}
}

// Restarts, gaps, idle times, torn, reordered and repeated pages are left out, said, and change nothing else.
func TestDamagedPagesGiveTheTruth(t *testing.T) {
	pages := newServed(2).record(t, (*served).vllm)
	again := newServed(3)
	again.now = pages[len(pages)-1].AtS + 5 // a new process
	pages = append(pages, again.record(t, (*served).vllm)...)
	again.running = nil
	again.run(5, 0)
	pages = append(pages, again.page(t, (*served).vllm))
	again.run(5, 0)
	pages = append(pages, again.page(t, (*served).vllm))
	again.run(600, 16)
	pages = append(pages, again.page(t, (*served).vllm))
	// A counter that was cut in the middle of its digits, and one that is missing.
	torn := pages[30]
	torn.AtS, torn.engines = torn.AtS+1, map[string]reading{}
	for e, r := range pages[30].engines {
		r.values = mapsClone(r.values)
		r.values[generated] = math.Floor(r.values[generated] / 1000)
		torn.engines[e] = r
	}
	lacking := pages[40]
	lacking.AtS, lacking.engines = lacking.AtS+1, map[string]reading{}
	for e, r := range pages[40].engines {
		r.values = mapsClone(r.values)
		delete(r.values, betweenTokens)
		lacking.engines[e] = r
	}
	pages = append(pages, torn, lacking, pages[50])
	draw := rand.New(rand.NewPCG(1, 1))
	draw.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	f, err := FromPages(pages, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkTruth(t, f)
	for why, count := range map[string]int{"began anew": 1, "gap between": 1, "nothing was decoded": 1, "torn page": 2, "same moment": 1} {
		i := slices.IndexFunc(f.Left, func(l Left) bool { return strings.Contains(l.Why, why) })
		if i < 0 || f.Left[i].Count < count || f.Left[i].First == "" {
			t.Errorf("%q is not among %+v", why, f.Left)
		}
	}
}

func mapsClone(m map[quantity]float64) map[quantity]float64 {
	c := map[quantity]float64{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// A file of pages is read page by page; a page that is torn is named with its line.
func TestReadPages(t *testing.T) {
	s := newServed(4)
	var text strings.Builder
	for i := range 10 {
		s.run(5, 8)
		page := s.vllm()
		if i == 5 {
			page = page[:len(page)/2] + "\n"
			page = page[:strings.LastIndex(page[:len(page)-1], " ")] + "\n"
		}
		switch i % 3 {
		case 0:
			fmt.Fprintf(&text, "%d\n%s", 1_700_000_000+5*i, page)
		case 1:
			fmt.Fprintf(&text, "# %d.250\n%s", 1_700_000_000+5*i, page)
		case 2:
			fmt.Fprintf(&text, "%s\n%s", time.Unix(int64(1_700_000_000+5*i), 0).UTC().Format(time.RFC3339), page)
		}
	}
	var pages []Page
	var left []string
	err := ReadPages(strings.NewReader(text.String()), "f", time.Time{}, func(p Page) { pages = append(pages, p) }, func(where, why string) { left = append(left, where+": "+why) })
	if err != nil || len(pages) != 9 || len(left) != 1 || !strings.HasPrefix(left[0], "f:") || !strings.Contains(left[0], "line") {
		t.Fatalf("%d pages, left %q, %v", len(pages), left, err)
	}
	if pages[1].AtS != 1_700_000_005.25 || pages[0].engines["0"].values[generated] == 0 {
		t.Errorf("%+v", pages[1])
	}
}

// A page of another program, of two kinds of server, or of two models, is refused.
func TestParsePageRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"go_goroutines 4\n": "no metrics of vLLM",
		"vllm:num_requests_running{model_name=\"a\"} 1\nvllm:num_requests_running{model_name=\"b\"} 1\n": "several models",
		"vllm:num_requests_running 1\nsglang:num_running_reqs 1\n":                                       "give the pages of one server",
		"vllm:num_requests_running{ 1\n":                                                                 "line 1",
	} {
		if _, err := ParsePage("s", "s:1", 0, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := FromPages([]Page{newServed(1).page(t, (*served).vllm)}, nil); err == nil || !strings.Contains(err.Error(), "want at least 6") {
		t.Errorf("one page: %v", err)
	}
}

// Engines that were read are engines of the document. Where a run has more responses at once than they had, the
// document has more of them.
func TestEnginesOfARun(t *testing.T) {
	var pages []Page
	for i := range 2 {
		for _, p := range newServed(uint64(8+i)).record(t, (*served).vllm) {
			p.Source = fmt.Sprint("server ", i)
			pages = append(pages, p)
		}
	}
	f, err := FromPages(pages, nil)
	if err != nil || f.Engines != 2 {
		t.Fatalf("%d engines, %v", f.Engines, err)
	}
	at, _ := f.Find(concurrencyKey)
	near(t, f, "responses at once", at.Value, 2*(4+8+16+32+64+32+8)/7, 0.1)
	if text := string(f.Document()); !strings.Contains(text, "engines: [{count: 2, slots: ") {
		t.Errorf("no two engines in\n%s", text)
	}
	run := Findings{Constants: []Constant{{Name: "responses at once", Key: concurrencyKey, Value: 4 * at.Value, Low: 4 * at.Value, High: 4 * at.Value, Determined: true}}}
	joined := f.Join(run)
	if c, _ := joined.Find(concurrencyKey); joined.Engines != 8 || c.Value != 4*at.Value {
		t.Errorf("%d engines with %v", joined.Engines, c.Value)
	}
}

// Data-parallel ranks of an SGLang are engines, and the tensor-parallel ranks of each say the same thing.
func TestRanks(t *testing.T) {
	page := ""
	for rank := range 4 {
		page += fmt.Sprintf("sglang:num_running_reqs{dp_rank=\"%d\",tp_rank=\"%d\"} 6\n", rank/2, rank)
	}
	p, err := ParsePage("s", "s", 0, []byte(page))
	if r := p.engines[""]; err != nil || r.values[running] != 12 || r.replicas() != 2 {
		t.Errorf("%+v, %v, want 12 that run on 2", r, err)
	}
}

// The metrics that a vLLM 0.32 sent while a conversation with it was recorded are read: there stands what was kept.
func TestRecordedPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "engine", "vllm", "testdata", "everything.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "> GET /metrics\n")
	_, rest, _ = strings.Cut(rest, "<+0 ")
	line, _, _ := strings.Cut(rest, "\n")
	page, err := strconv.Unquote(line)
	if err != nil {
		t.Fatalf("%v in %.100s", err, line)
	}
	p, err := ParsePage("recorded", "everything.txt", 0, []byte(page))
	if err != nil || p.software != "vllm" || len(p.engines) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	values := p.engines["0"].values
	if _, ok := values[running]; !ok || len(values) != 3 {
		t.Errorf("%v, want running, waiting and the cache's use", values)
	}
}

// Whatever stands in a file, reading it ends without a fault, and figures that come out are finite.
func FuzzReadPages(f *testing.F) {
	s := newServed(6)
	s.run(2, 4)
	first := s.vllm()
	s.run(2, 4)
	f.Add("1700000000\n" + first + "1700000002\n" + s.vllm())
	f.Add("1700000000\n" + s.sglang() + "# 2026-01-01T00:00:00Z\n" + s.sglang())
	f.Fuzz(func(t *testing.T, text string) {
		var pages []Page
		if err := ReadPages(strings.NewReader(text), "f", time.Unix(0, 0), func(p Page) { pages = append(pages, p) }, func(string, string) {}); err != nil {
			t.Fatal(err)
		}
		found, err := FromPages(pages, nil)
		if err != nil {
			return
		}
		for _, c := range found.Constants {
			if math.IsNaN(c.Value) || math.IsInf(c.Value, 0) {
				t.Errorf("%+v", c)
			}
		}
	})
}
