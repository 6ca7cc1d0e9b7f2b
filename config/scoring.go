package config

import (
	"fmt"
	"slices"
)

// Scoring says which other models say how likely the tokens of rollouts are: teachers to distil from, and references to
// stay near. A rollout is scored before it ends, and keeps its slot meanwhile.
type Scoring struct {
	// Servers score rollouts. Those of one channel are alike: a rollout is scored by any of them. Default none, which scores nothing.
	Servers []ScoringServer `json:"servers,omitempty"`
	// TopK is how many of its likeliest tokens a teacher says at each sampled token, beside that token itself; 0 for none. Default 8.
	TopK int `json:"top_k,omitempty" min:"0" max:"1024"`
	// TimeoutS is how long one call to a server may take, in seconds. Waiting for one of its slots is not counted. Default 300.
	TimeoutS float64 `json:"timeout_s,omitempty" above:"0" max:"86400"`
	// Attempts is how often a sequence is tried, at another server first. The rollout fails after the last, with the reason scorer, and is tried again by failures.max_attempts. Default 3.
	Attempts int `json:"attempts,omitempty" min:"1" max:"100"`
}

// ScoringServer is a server of vLLM or SGLang whose model scores tokens of the policy's vocabulary. Nothing changes its weights.
type ScoringServer struct {
	// Name in status and errors. Default its channel and place, such as teacher-0.
	Name string `json:"name"`
	// Kind of server.
	Kind string `json:"kind" allowed:"vllm sglang"`
	// URL of the server, such as http://host:8000.
	URL string `json:"url"`
	// KeyFile holds the server's API key, where it asks for one.
	KeyFile string `json:"key_file,omitempty"`
	// ServedModel is the name by which the server knows the model. Default the first that it lists.
	ServedModel string `json:"served_model,omitempty"`
	// Channel is what trainers get: under teacher, the channels teacher_ids and teacher_logprobs; under reference, ref_logprobs. Default teacher.
	Channel string `json:"channel" allowed:"teacher reference"`
	// Slots is how many calls the server gets at once; further ones wait here. Cells share them by the slots of their engines, and each has one at least. Default 8.
	Slots int `json:"slots" min:"1" max:"65536"`
}

// Scores reports whether rollouts are scored by other models.
func (c Config) Scores() bool { return len(c.Scoring.Servers) > 0 }

// Taught reports whether a teacher scores rollouts, so that they need no reward.
func (c Config) Taught() bool {
	return slices.ContainsFunc(c.Scoring.Servers, func(s ScoringServer) bool { return s.Channel == "teacher" })
}

// scoringDefaults fills in what is said of servers that score, where there are any.
func (c *Config) scoringDefaults() {
	s := &c.Scoring
	if !c.Scores() {
		return
	}
	orCount(&s.TopK, 8, c.given("scoring.top_k"))
	orNumber(&s.TimeoutS, 300, c.given("scoring.timeout_s"))
	orCount(&s.Attempts, 3, c.given("scoring.attempts"))
	for i := range s.Servers {
		e, at := &s.Servers[i], fmt.Sprintf("scoring.servers.%d.slots", i)
		orWord(&e.Channel, "teacher")
		orWord(&e.Name, fmt.Sprintf("%s-%d", e.Channel, i))
		orCount(&e.Slots, 8, c.given(at))
	}
}

// scoring checks servers that score, and that somebody reads what they say.
func (v *validator) scoring() {
	c := v.config
	for _, key := range []string{"scoring.top_k", "scoring.timeout_s", "scoring.attempts"} {
		v.idle(key, !c.Scores() && c.Given(key), "without scoring.servers, which would score", "scoring.servers, or leave it out")
	}
	if !c.Scores() {
		return
	}
	v.idle("scoring.servers", c.Trainer.Kind != "remote", "with trainer.kind "+c.Trainer.Kind+", which reads no teacher", "trainer.kind remote, or leave it out")
	teachers := false
	for i, e := range c.Scoring.Servers {
		key := func(name string) string { return fmt.Sprintf("scoring.servers.%d.%s", i, name) }
		teachers = teachers || e.Channel == "teacher"
		if e.URL == "" {
			v.fail(key("url"), nil, "is not said", serverAddress)
		} else if problem := CheckURL(e.URL); problem != "" {
			v.fail(key("url"), e.URL, problem, serverAddress)
		}
		for k, o := range c.Scoring.Servers[:i] {
			if o.Name == e.Name {
				v.fail(key("name"), e.Name, "is the name of another server that scores", "a name of its own")
			}
			if e.URL != "" && sameServer(o.URL) == sameServer(e.URL) && o.Channel == e.Channel {
				v.fail(key("url"), e.URL, "is the server of "+c.Scoring.Servers[k].Name+" already", "one entry for each server and channel")
			}
		}
		for _, engine := range c.Engines {
			if e.URL != "" && engine.URL != "" && sameServer(engine.URL) == sameServer(e.URL) {
				v.fail(key("url"), e.URL, "is the server of engine "+engine.Name+", whose weights are the policy's", "a server of another model")
			}
		}
	}
	v.idle("scoring.top_k", !teachers && c.Given("scoring.top_k"), "without a teacher: references say the log-probs of sampled tokens alone", "a server of channel teacher, or leave it out")
}
