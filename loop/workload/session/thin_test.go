package session

import "testing"

// A record of more turns than are kept is thinned by prompts, evenly, and its prompts stay whole.
func TestLongRecordsAreThinned(t *testing.T) {
	kept := taken{every: 1, most: 100}
	for group := range 60 {
		for sample := range 4 {
			s := Session{Group: group, Sample: sample, Calls: []Call{{InputTokens: 10 + group, OutputTokens: 1}, {InputTokens: 100, OutputTokens: 1}}}
			kept.take(group, &s, 0)
		}
	}
	w, err := kept.workload()
	if err != nil {
		t.Fatal(err)
	}
	// 480 turns in at most 100: every eighth of 60 prompts is taken, the first among them.
	if n := w.Rollouts.Rollouts(); w.Every != 8 || n != 8*4 || w.PromptTokens != 10+28 {
		t.Errorf("%d rollouts with prompts of %g tokens, one of %d", n, w.PromptTokens, w.Every)
	}
}
