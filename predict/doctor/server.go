package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
)

// Model is what model.path was found to be.
type Model struct {
	// Err says why it is no model, empty where it is one.
	Err string
	// Vocabulary is its number of token ids, Context its longest sequence in tokens; 0 for unknown.
	Vocabulary, Context int
	// LimitsErr says why prompts and responses do not fit into it; else they have at most so many tokens.
	LimitsErr                    string
	PromptTokens, ResponseTokens int
}

// Server is what asking the server of an engine came to.
type Server struct {
	// Err says why it does not answer as what it is to be, empty where it does; the rest is then not known.
	Err string
	// Other: it answers, as a server of another kind or of another model.
	Other bool
	// Vocabulary and Context are its model's, 0 for unknown.
	Vocabulary, Context int
	// Processed: its log-probs are of what was sampled from. Salt, Flush: its cache of prefixes can be
	// kept apart by version, or dropped. Template: it renders chats.
	Processed, Salt, Flush, Template bool
	// Slots is how many responses it samples at once, 0 for unknown. Uncached: it keeps no prefixes.
	Slots    int
	Uncached bool
	// Lacks is what it lacks.
	Lacks []Lack
}

// Lack is something that a server lacks.
type Lack struct {
	// The server lacks What, and Flag starts it with that, empty for unknown. Fatal: nothing can be trained on without
	// it.
	What, Flag string
	Fatal      bool
}

const (
	keyModel     = "model.path"
	keySampling  = "rollout.sampling"
	samplingMask = "sampling_mask" // of rollout.channels
	keyTemplate  = "gateway.template"
	keyScoring   = "scoring.servers"
	keyPromptMax = "environment.prompt_tokens_max"
)

var serverChecks = []check{
	{Kind{
		Code: "model-unread", Severities: []Severity{Error}, Keys: []string{keyModel},
		When:  "`model.path` is no directory of a model in the layout of Hugging Face, or cannot be read here",
		Known: "reading: its config.json, and the names of its safetensors files",
	}, (*examination).modelRead},
	{Kind{
		Code: "context-exceeded", Severities: []Severity{Error}, Keys: []string{keyPromptMax, keyEngines},
		When:  "`environment.prompt_tokens_max` and `response_tokens_max` together are above the model's context, or above what an engine's server was started with",
		Known: "reading the model's config.json, and asking the server",
	}, (*examination).context},
	{Kind{
		Code: "engine-unreachable", Severities: []Severity{Error}, Keys: []string{keyEngines},
		When:  "an engine's server does not answer; a new run waits ten minutes for it, and does not begin without it",
		Known: "asking the server; `--no-probe` asks none",
	}, (*examination).unreachable},
	{Kind{
		Code: "engine-kind", Severities: []Severity{Error}, Keys: []string{keyEngines},
		When:  "an engine's server answers, and is of another kind, or serves another model; a new run ends at once",
		Known: "asking the server",
	}, (*examination).otherKind},
	{Kind{
		Code: "engine-lacks", Severities: []Severity{Error, Warning}, Keys: []string{keyEngines},
		When:  "an engine's server lacks something: an error where nothing can be trained on without it, or its `weights` cannot go that way. What to start it with is said",
		Known: "asking the server for what it can; nothing is concluded from its version",
	}, (*examination).lacks},
	{Kind{
		Code: "model-differs", Severities: []Severity{Error}, Keys: []string{keyEngines},
		When:  "an engine's server has another number of token ids than `model.path`",
		Known: "reading the model's config.json, and asking the server",
	}, (*examination).differs},
	{Kind{
		Code: "slots-wait", Severities: []Severity{Warning}, Keys: []string{keyEngines},
		When:  "an engine has more `slots` than its server samples at once: the rest stand in the server's queue, and count as decoding here",
		Known: "asking the server: SGLang's `max_running_requests`, vLLM's `max_num_seqs`, llama-server's `total_slots`",
	}, (*examination).slotsWait},
	{Kind{
		Code: "cache-without-effect", Severities: []Severity{Warning}, Keys: []string{keyEngines},
		When:  "an engine's `cache` is salt or flush, and its server can do neither, or not that",
		Known: "asking the server",
	}, (*examination).cache},
	{Kind{
		Code: "weights-unseen", Severities: []Severity{Warning}, Keys: []string{keyEngines},
		When:  "an engine's server reads versions from disk on another host, and nothing says where it sees them; or `weights_dir` is no absolute path",
		Known: "arithmetic: the host in its URL. Whether the disk is shared cannot be seen from here",
	}, (*examination).unseen},
	{Kind{
		Code: "logprobs-raw", Severities: []Severity{Warning}, Keys: []string{keySampling},
		When:  "tokens are drawn otherwise than by the policy as it is, and an engine's server says log-probs of the policy as it is",
		Known: "asking the server: importance ratios would measure the temperature and the cuts, not staleness",
	}, (*examination).rawLogprobs},
	{Kind{
		Code: "cut-without-masks", Severities: []Severity{Warning}, Keys: []string{keySampling},
		When:  "`top_p`, `top_k` or `min_p` cut what tokens are drawn from, engines are servers, and `rollout.channels` has no `sampling_mask`",
		Known: "arithmetic: an engine's log-prob is over the ids that it kept and a trainer's over all, so the ratio of an unchanged policy is the kept probability. With `top_p` alone that is from `top_p` to 1",
	}, (*examination).cutWithoutMasks},
	{Kind{
		Code: "scorer-unfit", Severities: []Severity{Error, Warning}, Keys: []string{keyScoring},
		When:  "a server of `scoring.servers` does not answer, cannot say what `scoring.top_k` asks for, takes shorter sequences than a rollout may have, or (a warning) fewer token ids than the policy has",
		Known: "having the server score three tokens; `--no-probe` asks none",
	}, (*examination).scorersUnfit},
	{Kind{
		Code: "pieces", Severities: []Severity{Info}, Keys: []string{keyEngines},
		When:  "a response of an engine of kind tinker may have more than `piece_tokens`: it is several requests, each of which reads what was before it",
		Known: "arithmetic: `environment.prompt_tokens_max` and `response_tokens_max`",
	}, (*examination).pieces},
	{Kind{
		Code: "no-template", Severities: []Severity{Info}, Keys: []string{keyTemplate},
		When:  "no engine's server can render chats, and `gateway.template` names none that does: under /v1 only prompts of token ids are served",
		Known: "asking the servers",
	}, (*examination).template},
}

// place notes where the document gives a key, for a finding that is about a wider one.
func (e *examination) place(f *Finding, key string) {
	var placed config.Errors
	if errors.As(e.document.Refuse(key, "", ""), &placed) && len(placed) > 0 && placed[0].Line > 0 {
		f.File, f.Line = placed[0].File, placed[0].Line
	}
}

// engine adds a finding about an engine.
func (e *examination) engine(severity Severity, i int, basis Basis, key string) *Finding {
	f := e.add(severity, keyEngines, basis)
	e.place(f, fmt.Sprintf("engines.%d.%s", i, key))
	return f
}

// answered calls look for every engine whose server has answered.
func (e *examination) answered(look func(i int, engine config.Engine, s Server)) {
	for i, s := range e.servers {
		if s.Err == "" && i < len(e.document.Engines) {
			look(i, e.document.Engines[i], s)
		}
	}
}

func (e *examination) modelRead() {
	if e.model == nil || e.model.Err == "" {
		return
	}
	f := e.add(Error, keyModel, File)
	f.What = "model.path is no model that can be read: " + e.model.Err
	f.Why = "the limits of a rollout, version 0 and what every version's weights are put beside come from there"
	f.Do = "name the directory that the servers were started with, as this machine sees it"
}

func (e *examination) context() {
	if e.model == nil || e.model.Err != "" {
		return
	}
	if e.model.LimitsErr != "" {
		f := e.add(Error, keyPromptMax, Asked)
		f.What = "prompts and responses do not fit into the model: " + e.model.LimitsErr
		f.Why = "prompt, earlier turns and response are one sequence"
		f.Do = "set environment.prompt_tokens_max and response_tokens_max to what the rollouts need"
		f.Figures = Figures{{"context_tokens", float64(e.model.Context)}}
		return
	}
	need := e.model.PromptTokens + e.model.ResponseTokens
	e.answered(func(i int, engine config.Engine, s Server) {
		if s.Context == 0 || s.Context >= need {
			return
		}
		f := e.engine(Error, i, Asked, "url")
		f.What = fmt.Sprintf("%s takes sequences of %d tokens, and a rollout may have %d", engine.Name, s.Context, need)
		f.Why = "it would refuse the longest rollouts, which would be tried again, and fail again"
		f.Do = fmt.Sprintf("lower environment.prompt_tokens_max and response_tokens_max to %d in all, or start the server with a longer context", s.Context)
		f.Figures = Figures{{"server_context_tokens", float64(s.Context)}, {"prompt_tokens_max", float64(e.model.PromptTokens)}, {"response_tokens_max", float64(e.model.ResponseTokens)}}
	})
}

func (e *examination) unreachable() {
	for i, s := range e.servers {
		if s.Err == "" || s.Other {
			continue
		}
		f := e.engine(Error, i, Asked, "url")
		f.What = fmt.Sprintf("%s does not answer as %s: %s", e.document.Engines[i].Name, e.document.Engines[i].Kind, s.Err)
		f.Why = "a new run waits for it, and does not begin without it"
		f.Do = "start the server, look at url, kind and key_file, or skip this check with --no-probe"
	}
}

func (e *examination) otherKind() {
	for i, s := range e.servers {
		if !s.Other {
			continue
		}
		f := e.engine(Error, i, Asked, "kind")
		f.What = fmt.Sprintf("%s is not the %s that the document says: %s", e.document.Engines[i].Name, e.document.Engines[i].Kind, s.Err)
		f.Why = "the server answers and will not change: a new run ends at once"
		f.Do = "set kind, url and served_model to what is there"
	}
}

func (e *examination) lacks() {
	e.answered(func(i int, engine config.Engine, s Server) {
		for _, l := range s.Lacks {
			severity, why := Warning, "the run works without it, as far as that goes"
			if l.Fatal {
				severity, why = Error, "nothing can be trained on without it"
			}
			f := e.engine(severity, i, Asked, "kind")
			f.What = engine.Name + " lacks something: " + l.What
			f.Why = why
			f.Do = "use a server that has it"
			if l.Flag != "" {
				f.Do = "start it with " + l.Flag
			}
		}
	})
}

func (e *examination) differs() {
	e.answered(func(i int, engine config.Engine, s Server) {
		if e.model == nil || e.model.Err != "" || s.Vocabulary == 0 || s.Vocabulary == e.model.Vocabulary {
			return
		}
		f := e.engine(Error, i, Asked, "url")
		f.What = fmt.Sprintf("%s has %d token ids, and the model in model.path has %d: they are not the same", engine.Name, s.Vocabulary, e.model.Vocabulary)
		f.Why = "its tokens would mean something else to the trainer"
		f.Do = "start the server with model.path, or name the model that it was started with"
		f.Figures = Figures{{"server_vocabulary", float64(s.Vocabulary)}, {"model_vocabulary", float64(e.model.Vocabulary)}}
	})
}

func (e *examination) slotsWait() {
	e.answered(func(i int, engine config.Engine, s Server) {
		if s.Slots == 0 || engine.Slots <= s.Slots {
			return
		}
		f := e.engine(Warning, i, Asked, "slots")
		f.What = fmt.Sprintf("%s has %d slots, and its server samples %d responses at once", engine.Name, engine.Slots, s.Slots)
		f.Why = "the others wait in the server's queue without a token: they count as decoding, and after silent_s as hung"
		f.Do = fmt.Sprintf("set its slots to %d, or start the server with room for more", s.Slots)
		f.Figures = Figures{{"slots", float64(engine.Slots)}, {"server_slots", float64(s.Slots)}}
	})
}

func (e *examination) cache() {
	e.answered(func(i int, engine config.Engine, s Server) {
		if engine.Weights == "none" || s.Uncached {
			return
		}
		effect := "what is cached under old weights is used under new ones"
		switch {
		case engine.Cache == "salt" && !s.Salt && s.Flush:
			effect = "its cache of prefixes is dropped at every switch instead"
		case engine.Cache == "salt" && !s.Salt, engine.Cache == "flush" && !s.Flush:
		default:
			return
		}
		f := e.engine(Warning, i, Asked, "cache")
		f.What = fmt.Sprintf("cache %s has no effect on %s: %s", engine.Cache, engine.Name, effect)
		f.Why = "its server has no means for it"
		f.Do = "write what it does do (flush or keep), or use a server that can"
	})
}

func (e *examination) unseen() {
	for i, engine := range e.document.Engines {
		if e.model == nil || !engine.External() || slices.Contains([]string{"none", "distributed", "service"}, engine.Weights) {
			continue
		}
		switch {
		case engine.WeightsDir == "" && !ownHost(engine.URL):
			f := e.engine(Warning, i, Arithmetic, "url")
			f.What = fmt.Sprintf("%s is on another host, and weights_dir does not say where it sees the run's weights", engine.Name)
			f.Why = "it is told to load versions from this machine's path of store.dir"
			f.Do = "keep store.dir on a disk that both see under the same path, or give weights_dir"
		case engine.WeightsDir != "" && !path.IsAbs(strings.ReplaceAll(engine.WeightsDir, "\\", "/")) && !strings.Contains(engine.WeightsDir, ":"):
			f := e.engine(Warning, i, Arithmetic, "weights_dir")
			f.What = fmt.Sprintf("weights_dir of %s is %q, which its server reads from wherever it was started", engine.Name, engine.WeightsDir)
			f.Why = "a path that is not absolute depends on the directory of the process"
			f.Do = "give the absolute path of the run's weights directory, as the server sees it"
		}
	}
}

// ownHost reports whether a server is on this machine, as far as its address says.
func ownHost(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true // which config refuses
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (e *examination) rawLogprobs() {
	if policy := (config.Sampling{Temperature: 1, TopP: 1}); e.document.Rollout.Sampling == policy {
		return
	}
	raw := e.raw()
	if len(raw) == 0 {
		return
	}
	f := e.add(Warning, keySampling, Asked)
	f.What = "rollout.sampling is not the policy as it is, and log-probs of " + strings.Join(raw, ", ") + " are those of the policy as it is, or it cannot be told"
	f.Why = "what was sampled from is another distribution than the one whose log-probs are recorded"
	f.Do = "sample with temperature 1 and nothing cut off, or start the servers so that they say processed log-probs"
}

// raw are the engines whose log-probs are not of what was sampled from, as far as they were asked.
func (e *examination) raw() (names []string) {
	e.answered(func(_ int, engine config.Engine, s Server) {
		if !s.Processed {
			names = append(names, engine.Name)
		}
	})
	return names
}

func (e *examination) cutWithoutMasks() {
	s, d := e.document.Rollout.Sampling, e.document
	// Raw log-probs are another finding: they are over all ids, as the trainer's.
	if !s.Cuts() || !d.External() || slices.Contains(d.Rollout.Channels, samplingMask) || len(e.raw()) > 0 {
		return
	}
	f := e.add(Warning, keySampling, Arithmetic)
	f.What = fmt.Sprintf("tokens are drawn from a cut distribution (top_p %g, top_k %d, min_p %g), and the trainer does not get what was kept", s.TopP, s.TopK, s.MinP)
	f.Why = "engines say log-probs over the ids that they kept, and a trainer's are over all: the ratio of an unchanged policy is the kept probability instead of 1"
	if s.TopK == 0 && s.MinP == 0 {
		f.Why += fmt.Sprintf(", from %g on", s.TopP)
		f.Figures = Figures{{"ratio_least", s.TopP}}
	}
	f.Do = "sample without cuts: top_p 1, top_k 0 and min_p 0"
	if !slices.ContainsFunc(d.Engines, func(e config.Engine) bool { return !e.Says(samplingMask) }) {
		masks := "rollout.channels: [sampling_mask]"
		if s.TopK == 0 {
			masks += " with rollout.sampling.top_k above 0, which bounds its size"
		}
		f.Do = masks + ", and log-probs over what was kept in the trainer; or " + f.Do
	}
	if s.Temperature != 1 {
		f.Do += fmt.Sprintf("; in both cases divide the trainer's logits by %g", s.Temperature)
	}
}

func (e *examination) template() {
	renders, reached := e.document.Gateway.Template != "", false
	e.answered(func(_ int, _ config.Engine, s Server) { renders, reached = renders || s.Template, true })
	if renders || !reached {
		return
	}
	f := e.add(Info, keyTemplate, Asked)
	f.What = "no engine's server renders chats, so that /v1 serves only prompts of token ids"
	f.Why = "chats are rendered and texts read by a server, which has the model's tokenizer"
	f.Do = "give gateway.template the URL of a vLLM that serves the same tokenizer, where agents speak in chats"
}
