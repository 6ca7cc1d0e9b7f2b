package browser

import (
	"strings"
	"testing"
)

// A run with a target shows how it is kept beside the measured staleness, and every move of a setting as a mark
// of the timeline that says why.
func TestTargetIsShown(t *testing.T) {
	document := write(t, "target.yaml", "rollout: {concurrency: 64, group_size: 4}\nmodelled: {decode_tokens_per_s: 50, length: {mean_tokens: 300, tailness: 50, cap_tokens: 1800}, train: {utilization: 1.2}}\n"+
		"train: {batch: 32}\nqueue: {factor: 2}\ncontrol: {target: 1.5, window: 16}\nsteps: {warmup: 20, measured: 200}\n")
	s := serve(t, "view", document, "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url)
	p.ready("overview")
	p.wait("document.querySelector('header [role=status]')?.innerText.includes('ended')")
	p.wait("document.querySelector('main').innerText.includes('mean staleness at most 1.5')")
	page := eval[string](p, "document.querySelector('main').innerText")
	for _, want := range []string{"steps with the target held", "single batches", "live groups", "mean over 16 steps", "target"} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview does not say %q:\n%s", want, page)
		}
	}
	p.picture("target-overview")
	p.keys("2")
	p.ready("timeline")
	p.wait("document.querySelectorAll('.timeline-moves .mark').length > 0")
	if says := eval[string](p, "document.querySelector('.timeline-moves .mark').title"); !strings.Contains(says, "live groups") || !strings.Contains(says, "the goal") {
		t.Errorf("the first mark says %q", says)
	}
	p.wait("[...document.querySelectorAll('.timeline-moves .mark')].some(mark => !mark.hidden && mark.style.left !== '')")
	p.picture("target-timeline")
}
