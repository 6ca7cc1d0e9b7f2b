package doctor

import (
	"strings"
	"testing"
)

// scorerExamples are servers of scoring.servers, and what is found of them.
var scorerExamples = []struct {
	name     string
	spoil    func(s *Scorer)
	severity Severity
	want     string
}{
	{"sound", func(*Scorer) {}, "", ""},
	{"unknown context", func(s *Scorer) { s.Context = 0 }, "", ""},
	{"refusal", func(s *Scorer) { s.Err = "start it with --max-logprobs 30" }, Error, "teacher b does not score: start it with --max-logprobs 30"},
	{"context", func(s *Scorer) { s.Context = 255 }, Error, "teacher b scores sequences of 255 tokens, and a rollout may have 256"},
	{"narrow", func(s *Scorer) { s.Narrow = "out of vocabulary" }, Warning, "teacher b takes fewer token ids than the policy has"},
}

// showsScorer reports whether an example has a finding of that severity.
func showsScorer(code string, severity Severity) bool {
	for _, x := range scorerExamples {
		if code == "scorer-unfit" && x.severity == severity {
			return true
		}
	}
	return false
}

// Servers that cannot score what the run needs are found, each on its own, and sound ones are not.
func TestScorers(t *testing.T) {
	for _, x := range scorerExamples {
		c := servedCase(t, `scoring={servers: [{kind: vllm, url: "http://a:8000", channel: reference}, {name: b, kind: vllm, url: "http://b:8000"}]}`)
		c.Scorers = []Scorer{{Context: 256}, {Context: 256}}
		x.spoil(&c.Scorers[1])
		found := servedFindings(t, c)
		wellFormed(t, found)
		if x.want == "" && len(found) > 0 || x.want != "" && (len(found) != 1 || found[0].Code != "scorer-unfit" || found[0].Severity != x.severity || !strings.Contains(found[0].What, x.want)) {
			t.Errorf("%s: %+v", x.name, found)
		}
	}
}
