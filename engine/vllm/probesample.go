package vllm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

const (
	// pauseProof is how long a paused server may sample nothing to be believed, resumeLimit how
	// long it may take to go on, pausedLimit how long one may have been found paused.
	pauseProof  = 250 * time.Millisecond
	resumeLimit = 10 * time.Second
	pausedLimit = 3 * time.Second
	// topMost is how many of the likeliest tokens are asked for; no server allows fewer unless none.
	topMost = 5
)

// probePrompt is what the model is asked to go on from: two ids that every vocabulary has.
var probePrompt = []int32{0, 1}

// sample finds the way of sampling and what comes by it.
func (p *prober) sample() error {
	p.l.generate, p.l.text = true, true
	d, err := p.ask(p.ctx, 2)
	if status := upstream.StatusOf(err); status == http.StatusBadRequest || status == http.StatusUnprocessableEntity {
		p.l.text = false // a server without a tokenizer
		d, err = p.ask(p.ctx, 2)
	}
	if absent(err) {
		p.l.generate, p.l.text = false, false
		d, err = p.ask(p.ctx, 2)
	}
	if err != nil {
		return err
	}
	p.caps.TokenIDs = len(d.Tokens) > 0
	p.caps.Logprobs = p.caps.TokenIDs && len(d.Logprobs) == len(d.Tokens) && plausible(d.Logprobs)
	p.caps.VersionSpans = len(d.Spans) > 0
	return nil
}

// plausible reports whether there are log-probs, and none is missing or cannot be.
func plausible(logprobs []float32) bool {
	for _, x := range logprobs {
		if math.IsNaN(float64(x)) || x <= missing || x > 0 {
			return false
		}
	}
	return len(logprobs) > 0
}

// ask samples a few tokens as a rollout does.
func (p *prober) ask(ctx context.Context, tokens int) (upstream.Delta, error) {
	var d upstream.Delta
	r := upstream.Request{ID: "headway-probe-" + rand.Text() + "|", Prompt: probePrompt, MaxTokens: tokens, Sampling: port.Sampling{Temperature: 1}}
	if masked(p.s) {
		r.Sampling.TopK = wideCut
	}
	call, err := p.Generate(r, p.caps)
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithCancel(ctx) // the connection ends before its body is closed
	body, err := p.s.Open(ctx, http.MethodPost, call)
	if err != nil {
		cancel()
		return d, err
	}
	defer body.Close()
	defer cancel()
	events, decoder := upstream.NewEventReader(body, &r), p.Decoder(r, p.caps)
	for {
		data, err := events.Next()
		switch {
		case err != nil:
			return d, fmt.Errorf("%s: %w", call.Path, err)
		case string(data) == "[DONE]" && d.Finish == "":
			return d, fmt.Errorf("%s: the stream ends without a finish reason", call.Path)
		case string(data) == "[DONE]" && d.Finish == upstream.FinishAbort:
			return d, fmt.Errorf("%s: %w", call.Path, errAborted)
		case string(data) == "[DONE]":
			return d, nil
		}
		if err := decoder.Event(data, &d); err != nil {
			return d, err
		}
	}
}

// likeliest asks how likely the likeliest tokens are under given settings, by their ids.
func (p *prober) likeliest(temperature float64, topK int) (sampled float64, top map[string]float64, err error) {
	body := map[string]any{"model": p.caps.Model, "prompt": probePrompt, "max_tokens": 1, "temperature": temperature, "top_p": 1, "top_k": topK,
		"min_p": 0, "repetition_penalty": 1, "logprobs": topMost, "return_tokens_as_token_ids": true}
	var reply struct {
		Choices []struct {
			Finish   string `json:"finish_reason"`
			Logprobs struct {
				Sampled []*float64           `json:"token_logprobs"`
				Top     []map[string]float64 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if err := p.s.Call(p.ctx, http.MethodPost, pathCompletions, body, &reply); err != nil {
		return 0, nil, err
	}
	if len(reply.Choices) != 1 {
		return 0, nil, errUntold
	}
	if reply.Choices[0].Finish == string(upstream.FinishAbort) {
		return 0, nil, fmt.Errorf("%s: %w", pathCompletions, errAborted)
	}
	found := reply.Choices[0].Logprobs
	if len(found.Sampled) != 1 || found.Sampled[0] == nil || len(found.Top) != 1 {
		return 0, nil, errUntold
	}
	return *found.Sampled[0], found.Top[0], nil
}

var (
	errUntold = errors.New("the reply does not say")
	// errAborted is of a response that somebody has the server end, such as one who pauses it. It tells nothing of the server.
	errAborted = errors.New("the response is aborted before it is whole")
)

// distribution finds out whether log-probs are of the distribution that is sampled from. Half the
// temperature doubles the distance between two tokens' log-probs there, and leaves it in the
// model's own; where all tokens but the likeliest are cut off, that one's log-prob is 0, or less by
// those that are as likely: low precision makes many so.
func (p *prober) distribution() error {
	if c := p.config; c != nil && (c.Model.Logprobs == "raw_logits" || c.Model.Logprobs == "processed_logits") {
		p.caps.Logprobs = false // what it calls log-probs are none
		return nil
	}
	all := -1
	if masked(p.s) {
		all = wideCut
	}
	_, whole, err := p.likeliest(1, all)
	if no, err := answered(err); no || err != nil {
		return err
	}
	_, half, err := p.likeliest(0.5, all)
	if no, err := answered(err); no || err != nil {
		return err
	}
	only, _, err := p.likeliest(1, 1)
	if no, err := answered(err); no || err != nil {
		return err
	}
	p.caps.ProcessedLogprobs = scaled(whole, half) && kept(whole, only)
	return nil
}

// kept reports whether only, a log-prob where all tokens but the likeliest of whole are cut off, is of
// what the cut has left: one token, or some or all of the ones that are as likely as the likeliest.
func kept(whole map[string]float64, only float64) bool {
	most, ties := math.Inf(-1), 0
	for _, x := range whole {
		switch {
		case x > most:
			most, ties = x, 1
		case x == most:
			ties++
		}
	}
	for left := range ties {
		if math.Abs(only+math.Log(float64(left+1))) < 1e-3 {
			return true
		}
	}
	return ties >= topMost && only > most+1e-3 // there may be more of them than were shown
}

// scaled reports whether the widest distance between two tokens of whole is twice as wide in half.
func scaled(whole, half map[string]float64) bool {
	var most, there float64
	for a, x := range whole {
		for b, y := range whole {
			_, hasA := half[a]
			_, hasB := half[b]
			if distance := x - y; hasA && hasB && distance > most {
				most, there = distance, half[a]-half[b]
			}
		}
	}
	return most > 1e-3 && math.Abs(there-2*most) < math.Abs(there-most)
}

// vocabularySize is how a server says how many tokens there are, when it is asked for all of them.
var vocabularySize = regexp.MustCompile(`Requested sample logprobs of (\d+)`)

// vocabulary finds the number of token ids: the number that the server names where it is asked for
// the log-probs of all, if the last of them may be sampled and the one after it may not.
func (p *prober) vocabulary() error {
	body := bounded(p.s, map[string]any{"model": p.caps.Model, "prompt": probePrompt, "max_tokens": 1, "logprobs": -1}, 1)
	refusal := p.s.Call(p.ctx, http.MethodPost, pathCompletions, body, nil)
	if no, err := answered(refusal); err != nil || !no {
		return err
	}
	named := vocabularySize.FindStringSubmatch(refusal.Error())
	if named == nil {
		return nil
	}
	size, err := strconv.Atoi(named[1])
	if err != nil || size < 2 {
		return nil
	}
	inside, err := p.allowed(size - 1)
	if err != nil {
		return err
	}
	outside, err := p.allowed(size)
	if inside && !outside {
		p.caps.Vocabulary = size
	}
	return err
}

// allowed reports whether a token may be sampled at all.
func (p *prober) allowed(token int) (bool, error) {
	body := map[string]any{"model": p.caps.Model, "prompt": probePrompt, "max_tokens": 1, "allowed_token_ids": []int{token}}
	body = bounded(p.s, body, 1)
	no, err := answered(p.s.Call(p.ctx, http.MethodPost, pathCompletions, body, nil))
	return !no && err == nil, err
}
