package hardware

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	_ "github.com/cockroachdb/datadriven" // declares -rewrite
)

const docsFile = "../../docs/reference/hardware.md"

// TestDocument regenerates the tables of docs/reference/hardware.md and compares them
// with the file; with -rewrite it writes them.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, part := range []struct{ name, table string }{
		{"models", modelsTable()}, {"gpus", gpusTable()}, {"anchors", anchorsTable(t)}, {"ladder", ladderTable(t)}, {"decode", decodeTable(t)},
	} {
		start, end := "<!-- generated: "+part.name+" -->\n", "<!-- end: "+part.name+" -->"
		before, rest, found := strings.Cut(text, start)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no section between %q and %q", docsFile, start, end)
		}
		text = before + start + part.table + end + after
	}
	if text == string(raw) {
		return
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(docsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is not what the presets say: go test ./predict/hardware -run Document -rewrite", docsFile)
}

func modelsTable() string {
	var b strings.Builder
	b.WriteString("| name | parameters | by shape | active | experts | cache, KB a token | source |\n|---|---|---|---|---|---|---|\n")
	for _, m := range Models() {
		active, experts := "all", "–"
		if m.Experts > 0 {
			active = fmt.Sprintf("%s (card: %s)", billions(m.Active()), billions(m.PublishedActive))
			experts = fmt.Sprintf("%d of %d", m.ExpertsPerToken, m.Experts)
		}
		by := m.Architecture.Parameters()
		fmt.Fprintf(&b, "| `%s` | %s | %s (%+.2f %%) | %s | %s | %.1f | %s |\n",
			m.Name, billions(m.Parameters), billions(by), 100*(by/m.Parameters-1), active, experts, m.CacheBytes(1, 2)/1e3, m.Source)
	}
	return b.String()
}

func billions(n float64) string { return fmt.Sprintf("%.4g B", n/1e9) }

func gpusTable() string {
	var b strings.Builder
	b.WriteString("| name | memory, GiB | bandwidth, TB/s | bf16, TFLOP/s | fp8, TFLOP/s | link, GB/s | node | card, GB/s | source |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range GPUs() {
		fp8 := "–"
		if g.FP8 > 0 {
			fp8 = fmt.Sprintf("%.0f", g.FP8/1e12)
		}
		fmt.Fprintf(&b, "| `%s` | %g | %.3g | %.0f | %s | %.0f | %d | %g | %s |\n",
			g.Name, g.MemoryBytes/gib, g.MemoryBytesPerS/1e12, g.BF16/1e12, fp8, g.LinkBytesPerS/1e9, g.NodeGPUs, g.NICBytesPerS/1e9, g.Source)
	}
	return b.String()
}

func anchorsTable(t *testing.T) string {
	anchors, err := anchors()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| sync | published, s | ours, s | residual | fitted | assumed | source |\n|---|---|---|---|---|---|---|\n")
	for _, a := range anchors {
		fitted := ""
		if a.Calibrated {
			fitted = "fitted"
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %+.0f %% | %s | %s | %s |\n", a.Name, a.Published, a.Ours, 100*a.residual(), fitted, a.Assumed, a.Source)
	}
	return b.String()
}

func ladderTable(t *testing.T) string {
	rungs, err := ladder(llama70(t))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| after | published | ours | ours, s |\n|---|---|---|---|\n")
	for _, r := range rungs {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f |\n", r.Name, r.Published, r.Relative, r.Times.Critical)
	}
	return b.String()
}

func decodeTable(t *testing.T) string {
	anchors, err := decodeAnchors()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| decoding | published, tokens/s and GPU | ours | residual | binds | source |\n|---|---|---|---|---|---|\n")
	for _, a := range anchors {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %+.0f %% | %s | %s |\n", a.Name, a.Published, a.Ours, 100*a.residual(), a.Limit, a.Source)
	}
	return b.String()
}
