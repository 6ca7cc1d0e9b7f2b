package doctor

import "fmt"

// Scorer is what asking a server of scoring.servers came to.
type Scorer struct {
	// Err says why it cannot score, empty where it can. Narrow says why it takes fewer token ids than the policy has,
	// empty where it takes all.
	Err, Narrow string
	// Context is the longest sequence that it scores, in tokens; 0 for unknown.
	Context int
}

func (e *examination) scorersUnfit() {
	for i, s := range e.scorers {
		server := e.document.Scoring.Servers[i]
		name := server.Channel + " " + server.Name
		unfit := func(severity Severity) *Finding {
			f := e.add(severity, keyScoring, Asked)
			e.place(f, fmt.Sprintf("scoring.servers.%d.url", i))
			return f
		}
		if s.Err != "" {
			f := unfit(Error)
			f.What = fmt.Sprintf("%s does not score: %s", name, s.Err)
			f.Why = "a rollout that cannot be scored fails and is tried again, so that none would be trained on"
			f.Do = "start the server as is said, look at url, kind, key_file and served_model, or skip this check with --no-probe"
			continue
		}
		if s.Narrow != "" {
			f := unfit(Warning)
			f.What = fmt.Sprintf("%s takes fewer token ids than the policy has: %s", name, s.Narrow)
			f.Why = "a rollout with one of the others cannot be scored; where those are padding that is never sampled, nothing is lost"
			f.Do = "use a model with the policy's vocabulary"
		}
		if e.model == nil || e.model.Err != "" || e.model.LimitsErr != "" || s.Context == 0 {
			continue
		}
		if need := e.model.PromptTokens + e.model.ResponseTokens; s.Context < need {
			f := unfit(Error)
			f.What = fmt.Sprintf("%s scores sequences of %d tokens, and a rollout may have %d", name, s.Context, need)
			f.Why = "the longest rollouts could not be scored, and would fail every time"
			f.Do = fmt.Sprintf("start it with a context that is longer by %d, or lower environment.prompt_tokens_max or response_tokens_max", need-s.Context)
			f.Figures = Figures{{"server_context_tokens", float64(s.Context)}, {"prompt_tokens_max", float64(e.model.PromptTokens)}, {"response_tokens_max", float64(e.model.ResponseTokens)}}
		}
	}
}
