package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// rawResponse is what a server said of a response, read from the bytes that it sent by nothing that
// the adapters use.
type rawResponse struct {
	prompt   []int32
	tokens   []int32
	logprobs []float32
	// arrived is when each token came, since the recorder was started.
	arrived []time.Duration
	// spans say which weights sampled which tokens, nil where the server does not say.
	spans []rawSpan
}

// rawSpan is a stretch of tokens under one label.
type rawSpan struct {
	label      string
	start, end int
}

// readPrompt returns the tokens that a request asks to go on from, nil for any other request.
func readPrompt(body []byte) []int32 {
	var content map[string]json.RawMessage
	if json.Unmarshal(body, &content) != nil {
		return nil
	}
	for _, name := range []string{"prompt", "token_ids", "input_ids"} {
		var tokens []int32
		if text, ok := content[name]; ok && json.Unmarshal(text, &tokens) == nil && len(tokens) > 0 {
			return tokens
		}
	}
	return nil
}

// readRaw reads an exchange that sampled.
func readRaw(e Exchange) (*rawResponse, error) {
	r := &rawResponse{prompt: readPrompt(e.Body)}
	if r.prompt == nil {
		return nil, fmt.Errorf("%s has no prompt of tokens: %.200s", e.Path, e.Body)
	}
	for _, piece := range e.Pieces {
		data, ok := EventData(piece.Data)
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var event map[string]any
		if err := unmarshalNumbers(data, &event); err != nil {
			continue // cut off in the middle, or an error: no tokens either way
		}
		if err := r.take(event); err != nil {
			return nil, fmt.Errorf("%w in %.300s", err, data)
		}
		for len(r.arrived) < len(r.tokens) {
			r.arrived = append(r.arrived, e.At+piece.After)
		}
	}
	if len(r.tokens) != len(r.logprobs) {
		return nil, fmt.Errorf("%d tokens and %d log-probs from the server", len(r.tokens), len(r.logprobs))
	}
	return r, nil
}

// take reads one event, in whichever of the forms it is.
func (r *rawResponse) take(event map[string]any) error {
	if choices, ok := event["choices"].([]any); ok {
		for _, c := range choices {
			if err := r.takeChoice(c.(map[string]any)); err != nil {
				return err
			}
		}
		return nil
	}
	if meta, ok := event["meta_info"].(map[string]any); ok {
		return r.takeMeta(event, meta)
	}
	return r.takeProbabilities(event)
}

// takeChoice reads vLLM's two forms.
func (r *rawResponse) takeChoice(choice map[string]any) error {
	r.tokens = append(r.tokens, numbers(choice["token_ids"])...)
	if logprobs, ok := choice["logprobs"].(map[string]any); ok {
		for _, text := range list(logprobs["token_logprobs"]) {
			r.logprobs = append(r.logprobs, float(text))
		}
		for _, entry := range list(logprobs["content"]) {
			r.logprobs = append(r.logprobs, float(entry.(map[string]any)["logprob"]))
		}
	}
	r.takeSpans(choice["weight_versions"])
	return nil
}

// takeSpans reads which weights made which tokens.
func (r *rawResponse) takeSpans(value any) {
	for _, entry := range list(value) {
		s := entry.(map[string]any)
		label, _ := s["version"].(string)
		r.spans = append(r.spans, rawSpan{label, int(number(s["start"])), int(number(s["end"]))})
	}
}

// takeMeta reads SGLang's form, whose events hold everything so far or what is new.
func (r *rawResponse) takeMeta(event, meta map[string]any) error {
	tokens, entries := numbers(event["output_ids"]), list(meta["output_token_logprobs"])
	total := int(number(meta["completion_tokens"]))
	if len(tokens) == total {
		r.tokens = tokens
	} else {
		r.tokens = append(r.tokens, tokens...)
	}
	if len(entries) == total {
		r.logprobs = r.logprobs[:0]
	}
	for _, entry := range entries {
		r.logprobs = append(r.logprobs, float(entry.([]any)[0]))
	}
	r.takeSpans(meta["weight_versions"])
	// Spans that begin at the prompt's end or after it count from the prompt's first token.
	if n := len(r.prompt); len(r.spans) > 0 && r.spans[0].start >= n {
		for i := range r.spans {
			r.spans[i].start, r.spans[i].end = r.spans[i].start-n, r.spans[i].end-n
		}
	}
	return nil
}

// takeProbabilities reads llama-server's form.
func (r *rawResponse) takeProbabilities(event map[string]any) error {
	entries := list(event["completion_probabilities"])
	if len(entries) == 0 {
		return nil
	}
	r.tokens = append(r.tokens, numbers(event["tokens"])...)
	for _, e := range entries {
		entry := e.(map[string]any)
		if p, ok := entry["prob"]; ok {
			x, err := strconv.ParseFloat(string(p.(json.Number)), 64)
			if err != nil {
				return err
			}
			r.logprobs = append(r.logprobs, float32(math.Log(x)))
			continue
		}
		r.logprobs = append(r.logprobs, float(entry["logprob"]))
	}
	return nil
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

func number(value any) int64 {
	n, _ := value.(json.Number)
	i, _ := n.Int64()
	return i
}

func numbers(value any) []int32 {
	var out []int32
	for _, v := range list(value) {
		out = append(out, int32(number(v)))
	}
	return out
}

// float reads a number as float32; NaN where there is none, which is equal to nothing.
func float(value any) float32 {
	n, ok := value.(json.Number)
	if !ok {
		return float32(math.NaN())
	}
	x, err := strconv.ParseFloat(string(n), 32)
	if err != nil {
		return float32(math.NaN())
	}
	return float32(x)
}

// unmarshalNumbers reads JSON and leaves numbers as they are written.
func unmarshalNumbers(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(into)
}
