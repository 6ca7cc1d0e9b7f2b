package calibrate

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Document is the result as keys of a document, in YAML. Commands headway simulate and predict read it, and headway
// plan with --measured. Argument of names the measured engine, for the comment at its head.
func (r Result) Document(of string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured by headway calibrate: %s.\n", strings.ReplaceAll(of, "\n", " "))
	fmt.Fprintf(&b, "# With prompts of %d tokens and responses of %d.", r.PromptTokens, r.ResponseTokens)
	if r.Knee > 0 {
		fmt.Fprintf(&b, " Beyond %s, more bring little.", slots(r.Knee))
	}
	b.WriteByte('\n')
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	b.WriteString("rollout:\n")
	fmt.Fprintf(&b, "  concurrency: %d\n", r.Decode[len(r.Decode)-1].Slots)
	if len(r.Lengths) > 0 {
		fmt.Fprintf(&b, "  group_size: %d\n", len(r.Lengths[0]))
	}
	b.WriteString("modelled:\n  decode_curve:\n")
	for _, block := range pool(r.Decode) {
		for _, p := range block.points {
			s, measured := p.SlotTokensPerS, ""
			if len(block.points) > 1 {
				measured = number(s.Value) + " measured, "
			}
			fmt.Fprintf(&b, "    - {active: %d, tokens_per_s: %s} # %s%s to %s\n", p.Slots, number(block.speed), measured, number(s.Low), number(s.High))
		}
	}
	fmt.Fprintf(&b, "  prompt_tokens: %d\n", r.PromptTokens)
	if r.PrefillTokensPerS > 0 {
		fmt.Fprintf(&b, "  prefill: {tokens_per_s: %s, mode: engine}\n", number(r.PrefillTokensPerS))
	}
	r.length(&b)
	if len(r.SyncS) > 0 {
		fmt.Fprintf(&b, "  sync: {time_s: %s}\n", number(MedianOf(r.SyncS).Value))
	}
	b.WriteString("  train:\n    utilization: 0.5 # not measured: a trainer twice as fast as this engine, so that the engine decides; give step_s of yours\n")
	return []byte(b.String())
}

// length writes how long responses are. Where nobody has said what they answer, it is what decoding
// was measured with.
func (r Result) length(b *strings.Builder) {
	if len(r.Lengths) == 0 {
		fmt.Fprintf(b, "  length: {kind: fixed, mean_tokens: %d} # not measured: give --prompts\n", r.ResponseTokens)
		return
	}
	fmt.Fprintf(b, "  length:\n    kind: empirical\n    cap_tokens: %d\n    groups:\n", r.LengthMax)
	for _, group := range r.Lengths {
		cells := make([]string, len(group))
		for i, n := range group {
			cells[i] = strconv.Itoa(n)
		}
		fmt.Fprintf(b, "      - [%s]\n", strings.Join(cells, ", "))
	}
}

// slots says how many they are.
func slots(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}

// number prints six digits, without an exponent.
func number(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// Table is the speeds as a table: a bar for what all slots do together.
func (r Result) Table() report.Table {
	t := report.Table{Title: "Decoding", Header: []string{"slots", "tokens/s a slot", "95 %", "tokens/s", "", ""}}
	most := topOf(r.Decode)
	for _, p := range r.Decode {
		s, mark := p.SlotTokensPerS, ""
		if p.Slots == r.Knee {
			mark = "knee"
		}
		t.Rows = append(t.Rows, []string{strconv.Itoa(p.Slots), report.Figure(s.Value, 1), report.Figure(s.Low, 1) + " to " + report.Figure(s.High, 1),
			report.Figure(p.TokensPerS, 1), strings.Repeat("█", int(math.Round(30*p.TokensPerS/most))), mark})
	}
	return t
}

// PrefillTable is the times to the first token; empty without any.
func (r Result) PrefillTable() report.Table {
	t := report.Table{Title: "Prefill", Header: []string{"prompt tokens", "first token, s", "95 %"}}
	for _, p := range r.Prefill {
		f := p.FirstTokenS
		t.Rows = append(t.Rows, []string{strconv.Itoa(p.PromptTokens), report.Figure(f.Value, 4), report.Figure(f.Low, 4) + " to " + report.Figure(f.High, 4)})
	}
	return t
}

// Sentences say what the figures come to.
func (r Result) Sentences() []string {
	var all []string
	last := r.Decode[len(r.Decode)-1]
	if r.Knee > 0 {
		all = append(all, fmt.Sprintf("The knee is at %s: beyond, twice the slots never bring 1.4 times the tokens.", slots(r.Knee)))
	} else if len(r.Decode) > 1 {
		all = append(all, fmt.Sprintf("No knee up to %s: more of them may bring more; start the server with more and measure again.", slots(last.Slots)))
	}
	if r.PrefillTokensPerS > 0 {
		all = append(all, fmt.Sprintf("Prompts are read at %s tokens/s; a request costs %s ms beside.", report.Figure(r.PrefillTokensPerS, 0), report.Figure(1e3*r.FirstTokenS, 1)))
	}
	if len(r.Lengths) > 0 {
		sum, n := 0, 0
		for _, group := range r.Lengths {
			for _, l := range group {
				sum, n = sum+l, n+1
			}
		}
		all = append(all, fmt.Sprintf("%d responses to %d prompts have %s tokens on average.", n, len(r.Lengths), report.Figure(float64(sum)/float64(n), 1)))
	}
	if len(r.SyncS) > 0 {
		all = append(all, fmt.Sprintf("A switch of weights takes %s s.", report.Figure(MedianOf(r.SyncS).Value, 2)))
	}
	return all
}

// Picture is the speed of all slots together by how many they are.
func (r Result) Picture() report.Plot {
	measured := report.Series{Name: "measured"}
	linear := report.Series{Name: "if slots cost each other nothing"}
	for _, p := range r.Decode {
		n := float64(p.Slots)
		measured.X, measured.Y = append(measured.X, n), append(measured.Y, p.TokensPerS)
		measured.Low, measured.High = append(measured.Low, n*p.SlotTokensPerS.Low), append(measured.High, n*p.SlotTokensPerS.High)
		linear.X, linear.Y = append(linear.X, n), append(linear.Y, n*r.Decode[0].SlotTokensPerS.Value)
	}
	title := "Tokens per second by slots"
	if r.Knee > 0 {
		title += fmt.Sprintf(", knee at %d", r.Knee)
	}
	return report.Plot{
		ID: "calibration", Title: title, Description: "The speed of decoding of all slots of the engine together, beside what it would be if each were as fast as one alone.",
		XLabel: "slots that decode", YLabel: "tokens/s", YMin: 0, YMax: 1.15 * topOf(r.Decode), Series: []report.Series{measured, linear},
	}
}

// topOf is the greatest speed of all slots together.
func topOf(points []Point) float64 {
	top := 0.0
	for _, p := range points {
		top = max(top, p.TokensPerS)
	}
	return top
}
