package sglang

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
)

// flags are what the server is started with to say a side channel.
var flags = map[string]string{
	channel.RoutedExperts: "--enable-return-routed-experts",
	upstream.IndexerTopK:  "--enable-return-indexer-topk, and a model with sparse attention",
	channel.SamplingMask:  "--incremental-streaming-output --sampling-mask-max-tokens, at least rollout.sampling.top_k",
}

// sideReply is what an answer as a whole says of side channels.
type sideReply struct {
	Meta struct {
		Completion int       `json:"completion_tokens"`
		Experts    string    `json:"routed_experts"`
		Indexer    string    `json:"indexer_topk"`
		Masks      [][]int32 `json:"output_token_sampling_mask"`
		Drawn      []float64 `json:"output_token_sampling_logprobs"`
	} `json:"meta_info"`
}

// channels finds out which of the side channels that are asked for the server says, and in which form. Each is asked
// for by itself, as a server refuses what it was not started for.
func (p *prober) channels() error {
	for _, name := range p.s.Channels {
		body := map[string]any{"input_ids": probePrompt, "return_" + name: true, "return_logprob": true, "logprob_start_len": -1,
			"sampling_params": map[string]any{"max_new_tokens": 2, "temperature": 1, "top_k": 2, "ignore_eos": true}}
		var reply sideReply
		err := p.s.Call(p.ctx, http.MethodPost, "/generate", body, &reply)
		if _, unreached := errors.AsType[*url.Error](err); unreached {
			return err
		}
		form, why := reply.form(name, p.s.Experts)
		if err != nil {
			why = upstream.Said(err.Error())
		}
		if why == "" && name == channel.SamplingMask && p.repeats {
			why = "every event of a stream repeats all masks before it, 100 MB after 32,000 tokens of 512 ids"
		}
		if why == "" {
			p.caps.Channels = append(p.caps.Channels, form)
			p.drawn = p.drawn || name == channel.SamplingMask && len(reply.Meta.Drawn) == reply.Meta.Completion
			continue
		}
		p.caps.Missing = append(p.caps.Missing, upstream.Missing{What: "no " + name + " (rollout.channels): " + why, Flag: flags[name], Fatal: true})
	}
	return nil
}

// form is how the answer says a channel, or why it does not.
func (r *sideReply) form(name string, known rows.Shape) (form rows.Form, why string) {
	text := ""
	switch name {
	case channel.SamplingMask:
		if len(r.Meta.Masks) == 0 || len(r.Meta.Masks) != r.Meta.Completion {
			return form, "its answers have none"
		}
		return rows.Masks, ""
	case channel.RoutedExperts:
		text = r.Meta.Experts
	case upstream.IndexerTopK:
		text = r.Meta.Indexer
	}
	if text == "" {
		return form, "its answers have none"
	}
	form, err := rows.Learn(name, rows.Int32, text, len(probePrompt)+r.Meta.Completion-1, known)
	if err != nil {
		return form, err.Error()
	}
	form.Whole = name == upstream.IndexerTopK
	return form, ""
}

// maskSeen says how many of an event's n masks have been seen before. They are as many as its log-probs, of which seen
// have been, or as many as the tokens sampled so far, of which the tokens before the event have been. It is false for
// any other number, and where there are none.
func maskSeen(n, logprobs, seen, sampled, before int) (int, bool) {
	switch n {
	case 0:
		return 0, false
	case logprobs:
		return seen, true
	case sampled:
		return before, true
	}
	return 0, false
}

// masks reads a list of masks from its entry number skip on. It has been gone over before.
func masks(c *upstream.Scanner, skip int, into *upstream.Delta) bool {
	lengths, ids, at := len(into.MaskLengths), len(into.MaskIDs), 0
	ok := c.List(func() bool {
		if at++; at <= skip {
			return c.Value()
		}
		before := len(into.MaskIDs)
		ok := c.List(func() bool {
			id, ok := c.Integer()
			into.MaskIDs = append(into.MaskIDs, id)
			return ok
		})
		into.MaskLengths = append(into.MaskLengths, int32(len(into.MaskIDs)-before))
		return ok
	})
	if !ok {
		into.MaskLengths, into.MaskIDs = into.MaskLengths[:lengths], into.MaskIDs[:ids]
	}
	return ok
}

// readMasks is masks for any text. What is no list of masks counts as none: it does not decide about the tokens.
func readMasks(text json.RawMessage, logprobs, seen, sampled, before int, into *upstream.Delta) {
	var all [][]int32
	if json.Unmarshal(text, &all) != nil {
		return
	}
	skip, ok := maskSeen(len(all), logprobs, seen, sampled, before)
	if !ok {
		return
	}
	for _, ids := range all[skip:] {
		into.MaskLengths, into.MaskIDs = append(into.MaskLengths, int32(len(ids))), append(into.MaskIDs, ids...)
	}
}

// drawn puts log-probs over what masks kept, from entry number skip of their list on, in the place of those over all
// ids. It has been gone over before.
func drawn(c *upstream.Scanner, skip int, logprobs []float32) bool {
	at := -skip
	return c.List(func() bool {
		if at++; at <= 0 {
			return c.Value()
		}
		p, ok := c.Float(64)
		if ok {
			logprobs[at-1] = float32(p)
		}
		return ok
	})
}

// readDrawn is drawn for any text. What is no list of log-probs counts as none.
func readDrawn(text json.RawMessage, count, seen, sampled, before int, logprobs []float32) {
	var all []*float32
	if json.Unmarshal(text, &all) != nil || slices.Contains(all, nil) { // null is not the log-prob 0
		return
	}
	skip, ok := maskSeen(len(all), count, seen, sampled, before)
	for i := 0; ok && i < len(logprobs) && skip+i < len(all); i++ {
		logprobs[i] = *all[skip+i]
	}
}
