package doctor

import "fmt"

// pieces says what the longest responses of a service cost beside their tokens.
func (e *examination) pieces() {
	if e.model == nil || e.model.Err != "" || e.model.LimitsErr != "" {
		return
	}
	prompt, response := e.model.PromptTokens, e.model.ResponseTokens
	for i, engine := range e.document.Engines {
		if engine.PieceTokens == 0 || response <= engine.PieceTokens {
			continue
		}
		requests := (response + engine.PieceTokens - 1) / engine.PieceTokens
		again := (requests-1)*prompt + engine.PieceTokens*requests*(requests-1)/2
		f := e.engine(Info, i, Arithmetic, "piece_tokens")
		f.What = fmt.Sprintf("a response of %d tokens is %d requests to %s, which read up to %d tokens again", response, requests, engine.Name, again)
		f.Why = "a service samples a request from one version, so that new weights reach a response between its pieces; reading again is quick where it keeps the keys and values of prefixes"
		f.Do = "nothing where it does; else a larger piece_tokens, at which responses take new weights later, or lower limits"
		f.Figures = Figures{{"requests", float64(requests)}, {"tokens_read_again", float64(again)}, {"piece_tokens", float64(engine.PieceTokens)}, {"prompt_tokens_max", float64(prompt)}, {"response_tokens_max", float64(response)}}
	}
}
