package serving

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// workers are engines of one kind.
type workers struct {
	count int
	// tensor are the GPUs that split a layer, data the ranks that share experts and step together.
	tensor, data int
	// cacheTokens are what the source measured that a worker's cache holds; 0 where it did not.
	cacheTokens int
}

// gpus of one worker.
func (w workers) gpus() int { return w.tensor * w.data }

// layout is how GPUs are spread over engines.
type layout struct {
	decode workers
	// prefill reads prompts apart; count 0 for none.
	prefill workers
	// blockTokens is 0 where it is not said. hostBytes is host memory for caches of one worker that reads prompts.
	blockTokens int
	hostBytes   float64
	// sequences and batchedTokens cap an engine; 0 where it is not said.
	sequences, batchedTokens int
}

var (
	groupPattern  = regexp.MustCompile(`(?i)(?:(\d+)\s*(prefill|decode|replicas?|engines?|workers?)(?:\s+(?:of|engines?|workers?|replicas?))*\s+)?((?:(?:TP|DP|EP|PP|DEP|TEP)\d+\s*)+)(?:of (\d+) cache tokens)?`)
	partPattern   = regexp.MustCompile(`(?i)(TEP|DEP|TP|DP|EP|PP)(\d+)`)
	blocksPattern = regexp.MustCompile(`(?i)blocks of (\d+)`)
	hostPattern   = regexp.MustCompile(`(?i)([\d.]+)\s*GiB of host memory`)
	capsPattern   = regexp.MustCompile(`(?i)caps (\d+)(?: sequences)? and (\d+)`)
)

// parseLayout reads a layout as tables write it, such as "8 prefill TP1, 2 decode TP4", "8 replicas TP2, blocks of 64"
// or "TP1 DP8 EP8, caps 1024 sequences and 4096 batched tokens".
func parseLayout(text string, gpus int) (layout, error) {
	var l layout
	for _, found := range groupPattern.FindAllStringSubmatch(text, -1) {
		w := workers{count: number(found[1]), cacheTokens: number(found[4])}
		if err := w.split(found[3]); err != nil {
			return layout{}, fmt.Errorf("layout %q: %w", text, err)
		}
		switch kind := strings.ToLower(found[2]); {
		case kind == "prefill":
			l.prefill = w
		case kind == "":
			w.count = max(gpus/w.gpus(), 1)
			l.decode = w
		default:
			l.decode = w
		}
	}
	if l.decode.count == 0 {
		return layout{}, fmt.Errorf("layout %q: no engine that decodes is named: expected such as TP4, \"8 replicas TP2\" or \"4 prefill TP1, 2 decode TP4\"", text)
	}
	if used := l.decode.count*l.decode.gpus() + l.prefill.count*max(l.prefill.gpus(), 0); gpus > 0 && used > gpus {
		return layout{}, fmt.Errorf("layout %q takes %d GPUs, and the row has %d", text, used, gpus)
	}
	if found := blocksPattern.FindStringSubmatch(text); found != nil {
		l.blockTokens = number(found[1])
	}
	if found := hostPattern.FindStringSubmatch(text); found != nil {
		gib, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return layout{}, fmt.Errorf("layout %q: %q GiB of host memory is no number", text, found[1])
		}
		l.hostBytes = gib * (1 << 30)
	}
	if found := capsPattern.FindStringSubmatch(text); found != nil {
		l.sequences, l.batchedTokens = number(found[1]), number(found[2])
	}
	return l, nil
}

// split reads the ways in which a worker is split.
func (w *workers) split(text string) error {
	w.tensor, w.data = 1, 1
	expert := 1
	for _, part := range partPattern.FindAllStringSubmatch(text, -1) {
		n := number(part[2])
		if n < 1 || n > 1e5 {
			return fmt.Errorf("%s: expected 1 to 100000 GPUs", part[0])
		}
		switch strings.ToUpper(part[1]) {
		case "TP", "TEP":
			w.tensor = n
		case "DP", "DEP":
			w.data = n
		case "EP":
			expert = n
		case "PP":
			if n > 1 {
				return fmt.Errorf("%s: pipelines are not modelled", part[0])
			}
		}
	}
	if expert > w.gpus() && w.data == 1 { // experts over more GPUs than a layer's: ranks that decode side by side
		w.data = expert / w.tensor
	}
	return nil
}

// number reads digits; 0 for none or too many.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
