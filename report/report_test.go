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
)

// example is a run with something in every part, some of it hostile.
func example() Run {
	run := Run{
		Name:    "reverse-seed-1",
		Summary: "500 train steps of reverse in 83 s on 2 cores.",
		Headline: []Row{{"Held-out accuracy", "0.981", "200 prompts"}, {"Mean staleness", "3.02", "versions"},
			{"Trainer idle", "4.1 %", ""}, {"Tokens per second", "26 410", ""}},
		Settings: []Row{{"rollout.concurrency", "64", ""}, {"queue.policy", "drop", ""}},
		Comparison: []Comparison{
			{"mean", 3.02, 2.91, 3.05, 3.0},
			{"p95", 5, Unknown, Unknown, 5},
		},
		Measured:   []int64{2, 10, 400, 900, 300, 40, 3},
		Simulated:  []int64{0, 12, 420, 880, 310, 30},
		Dominant:   "pqs",
		Notes:      []string{"p95 is measured over 60 s only", "<b>bold & dangerous</b>"},
		Ledger:     []Row{{"admitted", "33 120", ""}, {"trained", "32 000", ""}, {"evicted", "1 040", "full queue"}},
		Balanced:   true,
		Throughput: []Row{{"production, rollouts/s", "412.1", ""}, {"binding", "rollout", ""}},
		Samples: []Sample{
			{Step: 500, Prompt: "abcd|", Answer: "dcba", Expected: "dcba", Reward: 1, Versions: "498–499"},
			{Step: 500, Prompt: `<script>alert("prompt")</script>`, Answer: "\x1b[31m</td>", Reward: Unknown, Versions: "499"},
		},
		Files: []Row{{"trace", "runs/reverse-seed-1/trace.ndjson", ""}},
	}
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
	want := "Notes, Staleness: measured, closed form, simulated, Over the run, Throughput, Ledger of rollout attempts: balanced, Samples, Settings, Files"
	if got := strings.Join(headings, ", "); got != want {
		t.Errorf("headings\n%s\nwant\n%s", got, want)
	}
	if got := root.all("h1"); len(got) != 1 || got[0].text != "reverse-seed-1" {
		t.Errorf("h1: %d, want one with the run's name", len(got))
	}
	for _, want := range []string{"3.02", "2.91", "3.05", "3.00", "Most staleness arises before the queue (PQS)", "26 410", "evicted", "498–499"} {
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
	if len(pictures) != 6 {
		t.Fatalf("%d pictures, want 6", len(pictures))
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

Staleness, in policy versions
      measured  predicted before the run  closed form, measured inputs  simulated
mean      3.02                      2.91                          3.05       3.00
p95       5.00                         –                             –       5.00

Most staleness arises before the queue (PQS), while groups are generated: concurrency over batch, and the tail of the lengths, move it.

Throughput
production, rollouts/s  412.1
binding                 rollout

Ledger of rollout attempts: balanced
admitted  33 120
trained   32 000
evicted    1 040  full queue

! p95 is measured over 60 s only
! <b>bold & dangerous</b>

trace  runs/reverse-seed-1/trace.ndjson
`
	if text.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", text.String(), want)
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
