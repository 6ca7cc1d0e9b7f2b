package plane

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/env"
)

// limited is a task of 40 tokens.
type limited struct{ env.Task }

func (limited) Limits() env.Limits { return env.Limits{PromptTokens: 30, ResponseTokens: 10} }

// A new run waits for a teacher that does not answer yet, and ends with one that could not score. A run that goes on does
// neither.
func TestWaitsForScorers(t *testing.T) {
	away, unfit := scorer.Found{Silent: true, Err: errors.New("refused")}, scorer.Found{Err: errors.New("start it with --max-logprobs 30")}
	for _, c := range []struct {
		name   string
		goesOn bool
		found  []scorer.Found // one a look
		looks  int
		want   string
		logged string
	}{
		{"there", false, []scorer.Found{{}}, 1, "", ""},
		{"comes", false, []scorer.Found{away, away, {}}, 3, "", "waiting, up to 10m0s: teacher big: refused"},
		{"never comes", false, []scorer.Found{away}, 300, "no answer from 1 scoring server within 10m0s", "waiting"},
		{"unfit", false, []scorer.Found{unfit}, 1, "cannot be scored: teacher big: start it with --max-logprobs 30", ""},
		{"context", false, []scorer.Found{{Context: 40, Spare: 1}}, 1, "", "teacher big scores sequences of 39 tokens, and a rollout may have 40"},
		{"context that does", false, []scorer.Found{{Context: 41, Spare: 1}}, 1, "", ""},
		{"narrow", false, []scorer.Found{{Narrow: errors.New("out of vocabulary")}}, 1, "", "teacher big takes fewer token ids"},
		{"goes on", true, []scorer.Found{away}, 1, "", "rollouts fail until they are scored"},
		{"goes on with an unfit one", true, []scorer.Found{unfit}, 1, "", "rollouts fail until they are scored"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged strings.Builder
			looks := 0
			p := &Plane{Record: &record.Record{App: &app.Process{Stderr: &logged, Now: time.Now}, Parts: &parts.Parts{Task: limited{}, Cfg: config.Config{Scoring: config.Scoring{Servers: []config.ScoringServer{{Name: "big", Channel: "teacher"}}}}}}}
			err := p.awaitProbed(t.Context(), c.goesOn, func() []scorer.Found {
				looks++
				return c.found[min(looks, len(c.found))-1 : min(looks, len(c.found))]
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || !strings.Contains(logged.String(), c.logged) || c.logged == "" && logged.Len() > 0 || looks < c.looks || c.looks < 300 && looks > c.looks {
				t.Errorf("%s: %v after %d looks, logged %q", c.name, err, looks, logged.String())
			}
		})
	}
}
