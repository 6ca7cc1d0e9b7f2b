package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

// exampleBias has a part of every kind.
func exampleBias() *bias.Report {
	r := &bias.Report{Groups: 4350, TrainedGroups: 4000, Rollouts: 34_800, Batches: 20,
		Length: &bias.Property{Name: "length", Unit: "tokens", Started: 34_000, Trained: 31_000, StartedMean: 1397.2, TrainedMean: 1224.9, Ratio: 0.877, Ratio95: [2]float64{0.872, 0.882},
			Distance: 0.3, P: 1e-12, Effect: 1.2, Found: true, Conclusion: "trained responses are 12 % shorter than started (95 %: 12 % to 13 %)"},
		Environment: &bias.Property{Name: "environment time", Unit: "seconds", StartedMean: 0.25, TrainedMean: 0.25, Ratio: 1, P: 0.7, Conclusion: "environment time: ratio 1.000 over too few train steps for an interval"},
		Level: &bias.Categories{Name: "level", Cells: []bias.Cell{{Name: "1", Started: 2000, Trained: 1900, TrainedShare: 0.95}, {Name: "2", Started: 2350, Trained: 2100, TrainedShare: 0.894}},
			ChiSquare: 44, Freedom: 1, P: 1e-10, Found: true, Conclusion: "some levels are trained more than others"},
		Order: &bias.Order{Groups: 4000, Slope: 0.18, Slope95: [2]float64{0.17, 0.19}, MeanTokens: []float64{1100, 1150, 1200, 1250, 1300}, Found: true, Conclusion: "length goes with the order in a batch"},
	}
	for i := range 30 {
		x := float64(i)
		r.Length.Histogram = append(r.Length.Histogram, bias.Bin{Low: 64 * math.Exp2(x/4), Started: math.Exp(-(x-15)*(x-15)/40) / 11.2, Trained: math.Exp(-(x-14)*(x-14)/36) / 10.6})
	}
	r.Conclusions = []string{r.Length.Conclusion, r.Environment.Conclusion, r.Level.Conclusion, r.Order.Conclusion}
	return r
}

// example is a run with something in every part, some of it hostile.
func example() Run {
	run := Run{
		Name:    "reverse-seed-1",
		Summary: "500 train steps of reverse in 83 s on 2 cores.",
		Headline: []Row{{Name: "Held-out accuracy", Value: "0.981", Note: "200 prompts"}, {Name: "Mean staleness", Value: "3.02", Note: "versions"},
			{Name: "Trainer idle", Value: "4.1 %"}, {Name: "Tokens per second", Value: "26 410"}},
		Settings: []Row{{Name: "rollout.concurrency", Value: "64"}, {Name: "queue.policy", Value: "drop"}},
		Comparison: []Comparison{
			{"mean", 3.02, 2.91, 3.05, 3.0},
			{"p95", 5, Unknown, Unknown, 5},
		},
		Measured:   []int64{2, 10, 400, 900, 300, 40, 3},
		Simulated:  []int64{0, 12, 420, 880, 310, 30},
		Dominant:   "pqs",
		Notes:      []string{"p95 is measured over 60 s only", "<b>bold & dangerous</b>"},
		Ledger:     []Row{{Name: "admitted", Value: "33 120"}, {Name: "trained", Value: "32 000"}, {Name: "evicted", Value: "1 040", Note: "full queue"}},
		Balanced:   true,
		Window:     "after the warm-up",
		Throughput: []Row{{Name: "production, rollouts/s", Value: "412.1"}, {Name: "binding", Value: "rollout"}},
		Samples: []Sample{
			{Step: 500, Prompt: "abcd|", Answer: "dcba", Expected: "dcba", Reward: 1, Versions: "498–499"},
			{Step: 500, Prompt: `<script>alert("prompt")</script>`, Answer: "\x1b[31m</td>", Reward: Unknown, Versions: "499"},
		},
		Files:         []Row{{Name: "trace", Value: "runs/reverse-seed-1/trace.ndjson"}},
		Bias:          exampleBias(),
		Hold:          []Row{{Name: "held", Value: "12.0 %", Note: "of the time"}},
		OffPolicyNote: "the band is 0.8 to 1.2",
		OffPolicy: []OffPolicy{
			{Staleness: "0", Tokens: 120_000, ClipFraction: 0.004, Predicted: 0.005, Clipped: 0.002, MeanLogRatio: 0.0001, EffectiveShare: Unknown, Health: "healthy"},
			{Staleness: "8 and more", Tokens: 900, ClipFraction: 0.31, Predicted: 0.22, Clipped: 0, MeanLogRatio: -0.08, EffectiveShare: Unknown, Health: "broken"},
		},
	}
	s := metrics.Summary{
		Waste: metrics.Waste{TrainedTokens: 900_000, EvictedTokens: 80_000, CancelledTokens: 20_000, WastedShare: 0.1,
			GroupsEnded: metrics.GroupsEnded{Trained: 4000, Evicted: 350}, RedundantRollouts: 12},
		Partial:          metrics.Partial{Interruptions: 50, Resumed: 48, BacklogMean: 1.5, BacklogMax: 9, ResumedRatio: 0.02, SpansMean: 1.02, SpansMax: 3, PartialRollouts: 700, PartialRatio: 0.2, VersionSpanMax: 4},
		FilterAcceptance: metrics.Filters{Verdict: 1, ZeroAdvantage: 0.8, SolveRate: 1},
	}
	run.Waste, run.Partial = WasteRows(s), PartialRows(s)
	for i := range 1200 {
		x := float64(i)
		run.Steps = append(run.Steps, Step{Step: int64(i + 1), TimeS: x / 6, Reward: 1 - math.Exp(-x/200), Staleness: 3 + math.Sin(x/9)/2,
			PQS: 2, IQS: 1 + math.Sin(x/9)/2, TrainerIdle: 0.05, RolloutIdle: 0.01 + 0.2*math.Exp(-x/10), ClipFraction: 0.01, TokensPerS: 26_000 + 500*math.Cos(x)})
		if i%100 == 99 {
			run.Accuracy = append(run.Accuracy, Point{int64(i + 1), 1 - math.Exp(-x/150)})
		}
	}
	run.Steps[3].Reward = Unknown
	return run
}

var keep = flag.String("keep", "", "write the example report to this file, to look at it")

func render(t *testing.T, run Run) string {
	t.Helper()
	var page bytes.Buffer
	if err := HTML(&page, run); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// node is an element of a parsed page.
type node struct {
	name     string
	attr     map[string]string
	children []*node
	text     string // its own and its descendants'
}

// parse reads a page as XML, which the template keeps to but for void elements,
// and fails when the elements do not nest.
func parse(t *testing.T, page string) *node {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(page))
	decoder.Strict = false
	decoder.AutoClose = []string{"meta"}
	decoder.Entity = xml.HTMLEntity
	root := &node{name: "root"}
	stack := []*node{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page does not parse: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				n.attr[a.Name.Local] = a.Value
			}
			parent := stack[len(stack)-1]
			parent.children = append(parent.children, n)
			stack = append(stack, n)
		case xml.EndElement:
			if len(stack) < 2 || stack[len(stack)-1].name != token.Name.Local {
				t.Fatalf("the page closes %s out of turn", token.Name.Local)
			}
			stack = stack[:len(stack)-1]
		case xml.CharData:
			for _, n := range stack {
				n.text += string(token)
			}
		}
	}
	if len(stack) != 1 {
		t.Fatalf("the page leaves %s open", stack[len(stack)-1].name)
	}
	return root
}

// all returns the elements of a name, in order.
func (n *node) all(name string) []*node {
	var found []*node
	if n.name == name {
		found = append(found, n)
	}
	for _, child := range n.children {
		found = append(found, child.all(name)...)
	}
	return found
}

func TestPageHasEveryPart(t *testing.T) {
	page := render(t, example())
	if *keep != "" {
		if err := os.WriteFile(*keep, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := parse(t, page)
	var headings []string
	for _, h := range root.all("h2") {
		headings = append(headings, h.text)
	}
	want := "Notes, Predicted, measured and simulated, Over the run, Throughput, Ledger of rollout attempts, from the start: balanced, " +
		"What became of the tokens, after the warm-up, Partial rollouts, after the warm-up, Hold, Off-policy, by staleness, Bias: trained against started, Samples, Settings, Files"
	if got := strings.Join(headings, ", "); got != want {
		t.Errorf("headings\n%s\nwant\n%s", got, want)
	}
	if got := root.all("h1"); len(got) != 1 || got[0].text != "reverse-seed-1" {
		t.Errorf("h1: %d, want one with the run's name", len(got))
	}
	for _, want := range []string{"3.02", "2.91", "3.05", "3.00", "Most staleness arises before the queue (PQS)", "26 410", "evicted", "498–499",
		"tokens wasted", "10.0 %", "accepted by the zero-advantage filter", "spans per rollout", "31.0 %", "trained responses are 12 % shorter", "0.872 to 0.882", "+18.0 %"} {
		if !strings.Contains(root.text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// Every picture has a name and a description for those who do not see it, and
// ids are unique, or the names would be of something else.
func TestPageIsAccessible(t *testing.T) {
	root := parse(t, render(t, example()))
	ids := map[string]int{}
	var walk func(n *node)
	walk = func(n *node) {
		if id := n.attr["id"]; id != "" {
			ids[id]++
		}
		for _, child := range n.children {
			walk(child)
		}
	}
	walk(root)
	for id, times := range ids {
		if times > 1 {
			t.Errorf("the id %s is there %d times", id, times)
		}
	}
	pictures := root.all("svg")
	if len(pictures) != 8 {
		t.Fatalf("%d pictures, want 8", len(pictures))
	}
	for _, svg := range pictures {
		if svg.attr["role"] != "img" || len(svg.all("title")) != 1 || svg.all("title")[0].text == "" {
			t.Errorf("a picture without a role or a title: %v", svg.attr)
		}
		for _, label := range strings.Fields(svg.attr["aria-labelledby"]) {
			if ids[label] != 1 {
				t.Errorf("aria-labelledby names %s, which is not there", label)
			}
		}
	}
	for _, section := range root.all("section") {
		if ids[section.attr["aria-labelledby"]] != 1 {
			t.Errorf("a section is labelled by %q, which is not there", section.attr["aria-labelledby"])
		}
	}
	if root.all("html")[0].attr["lang"] != "en" {
		t.Error("the page does not say its language")
	}
}

// The page asks nobody for anything, and text from outside stays text.
func TestPageIsSelfContained(t *testing.T) {
	page := render(t, example())
	root := parse(t, page)
	for _, name := range []string{"script", "link", "img", "iframe", "object", "form", "a"} {
		if n := len(root.all(name)); n != 0 {
			t.Errorf("%d elements %s, want none", n, name)
		}
	}
	if found := regexp.MustCompile(`(?i)url\(|@import|https?://[^"' ]*`).FindAllString(page, -1); len(found) > 0 {
		for _, at := range found {
			if at != "http://www.w3.org/2000/svg" && at != "http://www.w3.org/1999/xlink" { // namespaces, never fetched
				t.Errorf("the page refers to %s", at)
			}
		}
	}
	if !strings.Contains(page, "default-src 'none'") || !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("the page lacks its content policy or its dark colours")
	}
	if strings.Contains(page, "<b>bold") || !strings.Contains(root.text, `<script>alert("prompt")</script>`) {
		t.Error("text from outside is not escaped, or lost")
	}
}

// Without data there is a page all the same, without empty parts.
func TestEmptyRun(t *testing.T) {
	root := parse(t, render(t, Run{Name: "empty"}))
	if n := len(root.all("h2")) + len(root.all("svg")) + len(root.all("table")); n != 0 {
		t.Errorf("%d parts of nothing", n)
	}
	var text bytes.Buffer
	if err := Text(&text, Run{Name: "empty"}); err != nil || text.Len() != 0 {
		t.Errorf("%v, %q", err, text.String())
	}
}

// Runs that end early have series of one point, of nothing finite, of zeros.
func TestDegenerateSeries(t *testing.T) {
	for _, steps := range [][]Step{
		{{Step: 1, Reward: 0.5}},
		{{Step: 1, Reward: Unknown, Staleness: math.Inf(1)}, {Step: 2, Reward: Unknown, Staleness: Unknown}},
		{{Step: 1}, {Step: 2}, {Step: 3}},
	} {
		page := render(t, Run{Name: "x", Steps: steps, Measured: []int64{0, 0}, Simulated: []int64{7}})
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("%v draws what is not a number", steps)
		}
		parse(t, page)
	}
}

func TestTickLabels(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.1 + 0.2: "0.3", 50000: "50 000", -2: "-2", 0.005: "0.005", 100: "100"} {
		if got := tickLabel(value); got != want {
			t.Errorf("%v: %q, want %q", value, got, want)
		}
	}
}

func TestSVGStandsAlone(t *testing.T) {
	for _, p := range Plots(example()) {
		svg, err := p.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal([]byte(svg), new(struct{ XMLName xml.Name })); err != nil {
			t.Errorf("%s is not XML: %v", p.ID, err)
		}
		if len(svg) > 60_000 {
			t.Errorf("%s takes %d bytes for %d points", p.ID, len(svg), pointsMax)
		}
	}
	if _, err := (Plot{ID: "many", Series: make([]Series, seriesMax+1)}).SVG(); err == nil {
		t.Error("more series than can be told apart are drawn")
	}
}

// Thinning keeps the mean of what it averages.
func TestThinningKeepsTheMean(t *testing.T) {
	series := Series{}
	sum := 0.0
	for i := range 4 * pointsMax {
		series.X, series.Y = append(series.X, float64(i)), append(series.Y, float64(i%7))
		sum += float64(i % 7)
	}
	points := series.points()
	thinned := 0.0
	for _, point := range points {
		thinned += point.Y
	}
	if len(points) != pointsMax || math.Abs(thinned/pointsMax-sum/(4*pointsMax)) > 1e-9 {
		t.Errorf("%d points with mean %g, want %d with mean %g", len(points), thinned/pointsMax, pointsMax, sum/(4*pointsMax))
	}
}

func TestText(t *testing.T) {
	run := example()
	run.Comparison = run.Comparison[:2]
	var text bytes.Buffer
	if err := Text(&text, run); err != nil {
		t.Fatal(err)
	}
	want := `500 train steps of reverse in 83 s on 2 cores.

Held-out accuracy   0.981  200 prompts
Mean staleness       3.02  versions
Trainer idle        4.1 %
Tokens per second  26 410

Predicted, measured and simulated
      measured  predicted before the run  closed form, measured inputs  simulated
mean      3.02                      2.91                          3.05       3.00
p95       5.00                         –                             –       5.00

Most staleness arises before the queue (PQS), while groups are generated: concurrency over batch, and the tail of the lengths, move it.

Throughput
production, rollouts/s  412.1
binding                 rollout

Ledger of rollout attempts, from the start: balanced
admitted  33 120
trained   32 000
evicted    1 040  full queue

What became of the tokens, after the warm-up
tokens wasted                           10.0 %  made and never trained
trained                                900 000  90.0 %; 4 000 groups
evicted                                 80 000  8.0 %; 350 groups; the queue was full
cancelled                               20 000  2.0 %; stopped in flight; 12 rollouts redundant
accepted by the zero-advantage filter   80.0 %  of the groups that reached it

Partial rollouts, after the warm-up
trained over more than one version  20.0 %  700 rollouts; at most 4 versions from start to end
interruptions                           50  48 resumed
rollouts resumed                     2.0 %  of those scored
spans per rollout                     1.02  at most 3
backlog, mean                          1.5  rollouts; at most 9, 0 at the end

Hold
held  12.0 %  of the time

Off-policy, by staleness: the band is 0.8 to 1.2
staleness    tokens  outside the band  predicted  clipped  mean log-ratio  health
0           120 000             0.4 %      0.5 %    0.2 %          0.0001  healthy
8 and more      900            31.0 %     22.0 %    0.0 %         -0.0800  broken

Trained against started
                                       started  trained    ratio                95 %  p of the distributions  found
length, mean tokens                      1 397    1 225    0.877      0.872 to 0.882                  <0.001  bias
environment time, mean seconds          0.2500   0.2500    1.000                   –                   0.700  none
length, from first to last of a batch                    +18.0 %  +17.0 % to +19.0 %                          trend

Groups by level: chi-square 44.0, degrees of freedom 1, p <0.001
level  started  trained  share trained
1        2 000    1 900         95.0 %
2        2 350    2 100         89.4 %

trained responses are 12 % shorter than started (95 %: 12 % to 13 %).
environment time: ratio 1.000 over too few train steps for an interval.
some levels are trained more than others.
length goes with the order in a batch.

! p95 is measured over 60 s only
! <b>bold & dangerous</b>

trace  runs/reverse-seed-1/trace.ndjson
`
	if text.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", text.String(), want)
	}
}

// What moves the wait in the queue depends on the policy.
func TestDominanceNamesTheLever(t *testing.T) {
	for _, test := range []struct{ source, lever, want string }{
		{"iqs", "", "the queue factor and the split between rollouts and training move it."},
		{"iqs", "queue.eta and the split", "wait: queue.eta and the split move it."},
		{"pqs", "queue.eta", "the tail of the lengths, move it."},
	} {
		if got := dominance(test.source, test.lever); !strings.HasSuffix(got, test.want) {
			t.Errorf("%s, %q: %q lacks %q", test.source, test.lever, got, test.want)
		}
	}
	if got := dominance("", "queue.eta"); got != "" {
		t.Errorf("of no staleness: %q", got)
	}
}

// Where staleness is attributed, the sentence follows the attribution: it names no lever of another source.
func TestDominanceFollowsTheAttribution(t *testing.T) {
	run := example()
	run.Dominant, run.Source = "iqs", Source{Name: "fill", Words: "in the queue for its own batch", Share: 0.75, Lever: "It falls where ρ is below 1"}
	var text, page strings.Builder
	if err := errors.Join(Text(&text, run), HTML(&page, run)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), strings.ReplaceAll(page.String(), "&#39;", "'")} {
		if !strings.Contains(out, "The largest source of a group's staleness is fill (75.0 %), in the queue for its own batch. It falls where ρ is below 1.") || strings.Contains(out, "queue factor") {
			t.Errorf("printed\n%s", out)
		}
	}
}

// Cancelled rollouts are told apart by why they were.
func TestCancelledNote(t *testing.T) {
	for want, w := range map[string]metrics.Waste{
		"stopped in flight with their group":                                               {},
		"stopped in flight; of groups past the staleness budget":                           {GroupsEnded: metrics.GroupsEnded{Discarded: 3}},
		"stopped in flight; 2 groups surplus":                                              {SurplusGroups: 2},
		"stopped in flight; 1 000 rollouts redundant, of groups past the staleness budget": {RedundantRollouts: 1000, GroupsEnded: metrics.GroupsEnded{Discarded: 3}},
	} {
		if got := cancelledNote(w); got != want {
			t.Errorf("%+v: %q, want %q", w, got, want)
		}
	}
}

func TestFigures(t *testing.T) {
	tests := []struct{ got, want string }{
		{Figure(1.005, 2), "1.00"}, {Figure(-0.001, 2), "0.00"}, {Figure(math.NaN(), 2), "–"}, {Figure(math.Inf(-1), 0), "–"},
		{Figure(12345.6, 1), "12 346"}, {Figure(-1e20, 1), "-1e+20"}, {Figure(0, 0), "0"},
		{Share(0.0412), "4.1 %"}, {Share(Unknown), "–"}, {Count(0), "0"}, {Count(-1234567), "-1 234 567"}, {Count(999), "999"},
		{Count(math.MinInt64), "-9 223 372 036 854 775 808"},
	}
	for i, test := range tests {
		if test.got != test.want {
			t.Errorf("%d: %q, want %q", i, test.got, test.want)
		}
	}
}

func ExampleTable() {
	fmt.Print(Table{Title: "Runs", Header: []string{"name", "steps", "wall"}, Rows: [][]string{{"a", "500", "83 s"}, {"longer", "40", "7 s"}}})
	// Output:
	// Runs
	// name    steps  wall
	// a         500  83 s
	// longer     40   7 s
}
