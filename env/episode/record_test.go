package episode_test

import (
	"encoding/json"
	"testing"

	"github.com/headway-rl/headway/env/episode"
)

// A record of an earlier version has spans of the kinds judge_wait and judge.
func TestSpansOfAnEarlierVersion(t *testing.T) {
	var r episode.Record
	if err := json.Unmarshal([]byte(`{"spans":[{"kind":"tool"},{"kind":"judge_wait"},{"kind":"judge"},{"kind":"verifier"}]}`), &r); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r.Spans)
	const want = `[{"kind":"tool","turn":0,"start_ns":0,"end_ns":0},{"kind":"verifier_wait","turn":0,"start_ns":0,"end_ns":0},{"kind":"verifier","turn":0,"start_ns":0,"end_ns":0},{"kind":"verifier","turn":0,"start_ns":0,"end_ns":0}]`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}
