package sglang

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/headway-rl/headway/engine/upstream"
)

// probePrompt is what Probe has continued: ids that every vocabulary has.
var probePrompt = []int32{1, 2}

// spareTokens is what SGLang keeps free of a context, and of its room for keys and values where that
// is less: it cuts a response by as much, or refuses it.
const spareTokens = 2

// prober finds out what a server can.
type prober struct {
	ctx  context.Context
	s    *upstream.Server
	caps *upstream.Capabilities
	found
	// cached: prefixes are kept. cut: log-probs are of the distribution before cuts.
	cached, cut bool
	// drawn: with masks it says log-probs over what they kept, and those are taken.
	drawn bool
	// repeats: every event of a stream has all that came before.
	repeats bool
	// lora: it was started for adapters. replicas is how many data-parallel ranks it has.
	lora     bool
	replicas int
	// reference: it is the shim of examples/hf_shim.
	reference bool
	// apart is why its ranks cannot be in one group with a sender, empty if they can.
	apart string
}

// Probe implements [upstream.Dialect]. It samples a few tokens. SGLang does not say whether it is paused. A
// server that was left paused would not answer, so it is resumed, but not by a guest.
func (d *Dialect) Probe(ctx context.Context, s *upstream.Server) (upstream.Capabilities, error) {
	p := &prober{ctx: ctx, s: s, caps: &upstream.Capabilities{}}
	for _, step := range []func() error{p.paths, p.model, p.server, p.routed, p.controls, p.sampling, p.channels, p.distribution, p.salt, p.score, p.templates} {
		if err := step(); err != nil {
			return upstream.Capabilities{}, err
		}
	}
	p.missing()
	f := p.found
	p.caps.Private = &f
	return *p.caps, nil
}

// refused reports whether err is a reply by which the server says no; any other error is returned.
func refused(err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	if upstream.StatusOf(err) != 0 {
		return true, nil
	}
	return false, err
}

// paths asks for the server's own description.
func (p *prober) paths() (err error) {
	p.caps.Paths, err = p.s.Paths(p.ctx)
	if no, err := refused(err); no || err != nil {
		return err // a description that cannot be made is none
	}
	return nil
}

// there reports whether the server has a path that wants a POST. One that has no description is
// asked by a GET, which it refuses without doing anything.
func (p *prober) there(path string) (bool, error) {
	if p.caps.Paths != nil {
		return p.caps.Paths[path], nil
	}
	err := p.s.Call(p.ctx, http.MethodGet, path, nil, nil)
	if _, err := refused(err); err != nil {
		return false, err
	}
	return upstream.StatusOf(err) == http.StatusMethodNotAllowed, nil
}

// first gets the first of some paths that answers; empty for none.
func (p *prober) first(reply any, paths ...string) (string, error) {
	for _, path := range paths {
		no, err := refused(p.s.Call(p.ctx, http.MethodGet, path, nil, reply))
		if err != nil {
			return "", err
		}
		if !no {
			return path, nil
		}
	}
	return "", nil
}

// model asks what is served.
func (p *prober) model() error {
	var info struct {
		Path       string  `json:"model_path"`
		Served     string  `json:"served_model_name"`
		Generation *bool   `json:"is_generation"`
		Version    *string `json:"weight_version"`
	}
	path, err := p.first(&info, "/model_info", "/get_model_info")
	if err != nil {
		return err
	}
	if path == "" || info.Path == "" {
		err := errors.New("it is no SGLang server: neither /model_info nor /get_model_info answers with a model_path")
		if path == "" && !upstream.Unknown(p.s.Call(p.ctx, http.MethodGet, "/model_info", nil, &info)) {
			return err // it may not be up yet
		}
		return upstream.OtherKind(err)
	}
	if info.Generation != nil && !*info.Generation {
		return fmt.Errorf("it serves %s, which does not generate", info.Path)
	}
	if info.Version != nil {
		p.found.model = path
	}
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if _, err := p.first(&list, "/v1/models"); err != nil {
		return err
	}
	p.caps.Model = info.Served
	if len(list.Data) > 0 {
		p.caps.Model, p.caps.Context = list.Data[0].ID, list.Data[0].Context
	}
	return nil
}

// server asks how it was started.
func (p *prober) server() error {
	var info struct {
		Version    string `json:"version"`
		Frontend   string `json:"frontend"`
		Vocabulary int    `json:"vocab_size"`
		Router     *bool  `json:"router_manager"`
		Tokens     int    `json:"max_total_num_tokens"`
		Priority   bool   `json:"enable_priority_scheduling"`
		Low        bool   `json:"schedule_low_priority_values_first"`
		NoPrefix   bool   `json:"disable_radix_cache"`
		Running    int    `json:"max_running_requests"`
		Tensor     int    `json:"tp_size"`
		Pipeline   int    `json:"pp_size"`
		Data       int    `json:"dp_size"`
		Attention  bool   `json:"enable_dp_attention"`
		Lora       bool   `json:"enable_lora"`
		Increments *bool  `json:"incremental_streaming_output"`
	}
	var err error
	if p.found.server, err = p.first(&info, "/server_info", "/get_server_info"); err != nil {
		return err
	}
	name := "SGLang"
	if info.Frontend == "hf_shim" {
		name, p.reference = info.Frontend, true
	}
	p.caps.Software = name
	if info.Version != "" {
		p.caps.Software += " " + info.Version
	}
	if c := &p.caps.Context; *c > 0 && info.Tokens > 0 {
		*c = min(*c, info.Tokens)
	}
	p.caps.Spare, p.caps.Slots, p.caps.Uncached = spareTokens, info.Running, info.NoPrefix
	p.caps.Vocabulary, p.cached = info.Vocabulary, !info.NoPrefix
	p.found.priority, p.found.low = info.Priority, info.Low
	p.found.router = info.Router != nil
	p.caps.Ranks = max(info.Tensor, 1)
	p.lora, p.replicas = info.Lora, info.Data
	p.repeats = info.Increments != nil && !*info.Increments
	switch {
	case info.Pipeline > 1:
		p.apart = fmt.Sprintf("it has %d pipeline stages, and only ranks of one stage have numbers of their own in a group", info.Pipeline)
	case info.Data > 1 && !info.Attention:
		p.apart = fmt.Sprintf("it has %d data-parallel ranks, which take no weights in a group", info.Data)
	}
	return nil
}

// routed recognises a router by its list of workers, which no SGLang server has.
func (p *prober) routed() error {
	var list struct {
		Workers []struct {
			URL string `json:"url"`
		} `json:"workers"`
	}
	path, err := p.first(&list, "/workers")
	if err != nil {
		return err
	}
	if p.found.router = p.found.router || path != "" && list.Workers != nil; !p.found.router {
		return nil
	}
	p.caps.Software = fmt.Sprintf("a router in front of %d SGLang servers", len(list.Workers))
	// What it answers for a worker is one's of several, so nothing of it is the fleet's.
	p.found.server, p.found.model = "", ""
	urls := ""
	for _, w := range list.Workers {
		urls += " " + w.URL
	}
	p.caps.Missing = append(p.caps.Missing, upstream.Missing{
		What: "it is a router, and what controls a server would reach one of its workers or none: sampling cannot be paused and weights cannot change",
		Flag: "an engine of its own in the document for each worker, by its url:" + urls,
	})
	return nil
}

// controls finds the paths that control a server, and resumes one that was left paused.
func (p *prober) controls() error {
	if p.found.router {
		return nil
	}
	has := map[string]bool{}
	for _, path := range []string{"/pause_generation", "/continue_generation", "/update_weights_from_disk", "/flush_cache", pathInitGroup, pathDestroyGroup, pathDistributed, pathBegin, pathEnd, pathLoad, pathUnload} {
		there, err := p.there(path)
		if err != nil {
			return err
		}
		has[path] = there
	}
	p.caps.Pause = has["/pause_generation"] && has["/continue_generation"]
	p.caps.UpdateDisk = has["/update_weights_from_disk"]
	p.caps.UpdateDistributed = has[pathInitGroup] && has[pathDestroyGroup] && has[pathDistributed] && p.apart == ""
	p.caps.UpdateLora = p.lora && p.replicas <= 1 && has[pathLoad] && has[pathUnload]
	p.found.served = &served{}
	p.found.session = has[pathBegin] && has[pathEnd] // since 0.5.21
	// The cache is dropped by an update, where requests can be retracted before.
	p.caps.Flush = p.caps.Pause && p.caps.UpdateDisk
	if p.caps.Pause && !p.s.Guest {
		if err := (&Dialect{}).Resume(p.ctx, p.s, nil); err != nil {
			return fmt.Errorf("resuming it, in case it was left paused: %w", err)
		}
	}
	var err error
	p.found.load, err = p.first(nil, "/v1/loads", "/get_load")
	return err
}

// sampling has a token sampled and looks at what comes with it.
func (p *prober) sampling() error {
	reply, err := sample(p.ctx, p.s, "", probePrompt, -1, map[string]any{"max_new_tokens": 1, "temperature": 1})
	if err != nil {
		return fmt.Errorf("it does not sample: %w", err)
	}
	meta := reply.Meta
	p.caps.TokenIDs = len(reply.IDs) > 0 && len(reply.IDs) == meta.Completion
	p.caps.Logprobs = p.caps.TokenIDs && len(meta.Output) == len(reply.IDs) && meta.Output[0].value != nil && meta.Output[0].id == reply.IDs[0]
	p.caps.VersionSpans = len(meta.Spans) > 0 && meta.Spans[0].Start == 0 && meta.Spans[len(meta.Spans)-1].End == len(reply.IDs)
	return nil
}

// hot is a temperature at which every token that is not cut off is as likely as the others.
const hot = 1e4

// distribution finds out what a log-prob is of, by having tokens sampled of which all but two are cut
// off at a temperature that makes those two as likely: ln ½ is of the distribution that is sampled
// from (or a little less, where a server keeps what is as likely as the second, which low precision
// makes frequent), equal log-probs are of the one before the cut, others of the model's own.
func (p *prober) distribution() error {
	if !p.caps.Logprobs {
		return nil
	}
	reply, err := sample(p.ctx, p.s, "", probePrompt, -1, map[string]any{"max_new_tokens": 4, "temperature": hot, "top_k": 2, "ignore_eos": true})
	if no, err := refused(err); no || err != nil {
		return err
	}
	var logprobs []float64
	for _, l := range reply.Meta.Output {
		if l.value == nil {
			return nil
		}
		logprobs = append(logprobs, *l.value)
	}
	if len(logprobs) < 2 {
		return nil
	}
	p.caps.ProcessedLogprobs = p.drawn || keptTwo(logprobs)
	p.cut = !p.caps.ProcessedLogprobs && slices.Max(logprobs)-slices.Min(logprobs) < 0.02
	return nil
}

// keptTwo reports whether log-probs are of two tokens that are as likely, at half of the places at
// least, and of a few more at the others.
func keptTwo(logprobs []float64) bool {
	const most = 6
	two := 0
	for _, x := range logprobs {
		left := math.Round(math.Exp(-x))
		if left < 2 || left > most || math.Abs(x+math.Log(left)) > 0.02 {
			return false
		}
		if left == 2 {
			two++
		}
	}
	return 2*two >= len(logprobs)
}

// salt finds out whether prefixes can be kept apart: a server that knows extra_key refuses one that
// is no text.
func (p *prober) salt() error {
	body := map[string]any{"input_ids": probePrompt, "sampling_params": map[string]any{"max_new_tokens": 1}, "extra_key": map[string]int{"no": 1}}
	err := p.s.Call(p.ctx, http.MethodPost, "/generate", body, nil)
	p.caps.Salt = upstream.StatusOf(err)/100 == 4
	_, err = refused(err)
	return err
}

// score finds out whether given tokens are scored.
func (p *prober) score() error {
	_, err := (&Dialect{}).Score(p.ctx, p.s, probePrompt, nil)
	if errors.Is(err, upstream.ErrLied) {
		return nil
	}
	no, err := refused(err)
	p.caps.Score = err == nil && !no
	return err
}

// templates finds the path that renders chats. Newer servers have it under /v1 too, and list only that.
func (p *prober) templates() error {
	chat := map[string]any{"messages": []map[string]string{{"role": "user", "content": "a"}}, "add_generation_prompt": true}
	for _, prefix := range []string{"", "/v1"} {
		var reply tokenized
		no, err := refused(p.s.Call(p.ctx, http.MethodPost, prefix+"/tokenize", chat, &reply))
		if err != nil {
			return err
		}
		if !no && len(reply.Tokens) > 0 {
			p.found.tokenize, p.found.detokenize = prefix+"/tokenize", prefix+"/detokenize"
			p.caps.Template = true
			return nil
		}
	}
	return nil
}

// missing lists what the server lacks, with what it is started with to have it.
func (p *prober) missing() {
	c := p.caps
	on := func(delivery upstream.Delivery, lacks, fatal bool, what, flag string) {
		if lacks {
			c.Missing = append(c.Missing, upstream.Missing{What: what, Flag: flag, Delivery: delivery, Fatal: fatal})
		}
	}
	lack := func(lacks, fatal bool, what, flag string) { on("", lacks, fatal, what, flag) }
	direct := !p.found.router
	lack(!c.TokenIDs, true, "no ids of sampled tokens", "an SGLang whose /generate returns output_ids")
	lack(!c.Logprobs, true, "no log-probs of sampled tokens", "an SGLang whose /generate takes return_logprob")
	lack(p.cut, false, "log-probs are of the distribution before top_p, top_k and min_p: with any of these the trainer corrects for the wrong one", "sampling without cuts: top_p 1, top_k 0 and min_p 0 in the document; or rollout.channels: [sampling_mask]")
	lack(c.Logprobs && !p.cut && !c.ProcessedLogprobs, false, "log-probs are of the model's own distribution: with another temperature than 1, or a cut, the trainer corrects for the wrong one", "without SGLANG_RETURN_ORIGINAL_LOGPROB in its environment")
	lack(direct && !c.Pause, false, "sampling cannot be paused: every switch of weights cuts off what is under way", "an SGLang that has /pause_generation and /continue_generation")
	on(upstream.DeliveryDisk, direct && !c.UpdateDisk, false, "weights cannot be read from a directory while it runs", "an SGLang that has /update_weights_from_disk")
	on(upstream.DeliveryLora, direct && !c.UpdateLora && p.replicas <= 1, false, "weights cannot be replaced by an adapter", "--enable-lora with --max-lora-rank and --lora-target-modules, of an SGLang that has "+pathLoad)
	on(upstream.DeliveryLora, direct && !c.UpdateLora && p.replicas > 1, false, fmt.Sprintf("it has %d data-parallel ranks, which load no adapters while it runs", p.replicas), "a server of its own for each rank, and an engine for each in the document")
	on(upstream.DeliveryDistributed, direct && !c.UpdateDistributed && p.apart != "", false, "weights cannot be received in a collective: "+p.apart, "tensor parallelism alone (or --enable-dp-attention with data parallelism); or take weights disk in the document")
	on(upstream.DeliveryDistributed, direct && !c.UpdateDistributed && p.apart == "", false, "weights cannot be received in a collective", "an SGLang that has "+pathInitGroup+" and "+pathDistributed)
	lack(direct && p.found.model == "", false, "it does not say which weights it serves", "an SGLang whose /model_info has weight_version")
	lack(!c.VersionSpans, false, "it does not say which weights sampled which tokens: versions are derived from when they are switched", "an SGLang whose replies have weight_versions")
	lack(!c.Salt, false, "prefixes of different weights cannot be kept apart by a salt", "an SGLang that has extra_key")
	lack(direct && !p.cached && p.reference, false, "every turn of a rollout computes all turns before it anew: it keeps no prefixes", "an SGLang; the shim is for small models and trials")
	lack(direct && !p.cached && !p.reference, false, "every turn of a rollout computes all turns before it anew", "SGLang without --disable-radix-cache")
	lack(!c.Template, false, "it cannot render chats", "a tokenizer (without --skip-tokenizer-init) with a chat template (--chat-template), and an SGLang that has /tokenize")
	lack(!c.Score, false, "it cannot say what log-probs given tokens have", "an SGLang whose /generate takes logprob_start_len")
	lack(direct && p.found.load == "", false, "it does not say how busy it is", "an SGLang that has /v1/loads or /get_load")
}
