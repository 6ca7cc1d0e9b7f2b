package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Engine is one replica that generates rollouts, or several alike.
type Engine struct {
	// Kind of engine: embedded, or a server that runs elsewhere. Kinds vllm, sglang and llamacpp (llama-server) are those servers. Kind openai is any other that answers completions; it gives no token ids, so nothing can be trained on. Kind tinker is a service of Tinker's API, which trains as well and stands alone. Default embedded.
	Kind string `json:"kind" allowed:"embedded vllm sglang llamacpp openai tinker"`
	// Count is the number of engines that this entry stands for, each with the entry's slots. A range says it as well: url http://node-{1..40}:8000 is 40 engines, {01..40} counts with zeros, and two ranges in one text make all their combinations. Texts of the entry with ranges have the same number of engines. Default 1.
	Count int `json:"count,omitempty" min:"1" max:"4096"`
	// Name in status and reports. Behind the name of several engines is the number of each: that of url's range, else 0, 1 and so on. Default engine-0, engine-1 and so on.
	Name string `json:"name"`
	// Cell is the name of the process that plays on the engine, with the rollouts and sandboxes of its slots. Engines with the same name have the same process. With a fleet {index} stands for the engine's number. Default none: the control plane plays on it.
	Cell string `json:"cell,omitempty"`
	// URL of the server, such as http://host:8000, or http://host-{1..40}:8000 for 40 of them; for every kind but embedded. That of a service may have a path, which stands before /api/v1.
	URL string `json:"url,omitempty"`
	// ServedModel is the name by which the server knows the model, for tinker the base model. Default the first that it lists; tinker must name it where the service has several.
	ServedModel string `json:"served_model,omitempty"`
	// KeyFile holds the server's API key, where it asks for one.
	KeyFile string `json:"key_file,omitempty"`
	// Weights is how new versions reach the server. Under disk, it reads them from a directory that it shares with the control plane. Value lora is the same for an adapter, of which the trainer publishes version 0 too. Under distributed, it receives the tensors in a collective from the process that has the trainer's weights, and the control plane sees none of them. Under restart, it is started again with them by command. Under service, the trainer is the same service and saves them there. Under none, it goes on serving version 0. Default disk for vllm and sglang, restart for llamacpp with a command, service for tinker, else none.
	Weights string `json:"weights,omitempty" allowed:"disk lora distributed restart service none"`
	// WeightsDir is the run's weights directory as the server sees it, where that is not the control plane's own path.
	WeightsDir string `json:"weights_dir,omitempty"`
	// Cache says what happens to keys and values computed under old weights. Value salt keeps them for running requests and salts the prefix cache by version. Value flush drops them all, so that they are computed anew. Value keep keeps them for every request. Default salt.
	Cache string `json:"cache,omitempty" allowed:"salt flush keep"`
	// SilentS is how long a response may bring no token before the server counts as hung, in seconds; switches of weights are not counted. Of tinker it is how long the service may be out of reach or busy before it counts as down. Default 120, 300 for tinker.
	SilentS float64 `json:"silent_s,omitempty" above:"0" max:"86400"`
	// UpdateS is how long one update of weights may take, in seconds. Default 720.
	UpdateS float64 `json:"update_s,omitempty" above:"0" max:"86400"`
	// PieceTokens is the most tokens of one request to a service of kind tinker, which samples a request from one version. Longer responses are made of several requests, and take new weights between them. Each reads what was before it anew. Default 256.
	PieceTokens int `json:"piece_tokens,omitempty" min:"1" max:"1048576"`
	// Command starts the server for weights restart: program and arguments, in which {weights} stands for the version's directory.
	Command []string `json:"command,omitempty"`
	// Convert, if given, is run before command, to make of {weights} what the server reads.
	Convert []string `json:"convert,omitempty"`
	// Slots is the number of rollouts the engine generates at once; all engines' slots add up to rollout.concurrency.
	Slots int `json:"slots" min:"1" max:"16777216"`
	// Stages is how many stages of the engine receivers bring versions to (headway receive). A receiver of another stage is refused. Without it the engine has none, and every receiver is refused.
	Stages int `json:"stages,omitempty" min:"1" max:"64"`
	// DecodeStepS is the least time of one decode step in seconds: a faster engine waits for it. 0 is as fast as it can. Default 0.
	DecodeStepS float64 `json:"decode_step_s" min:"0" max:"3600"`
	// ModelledSpeed is the speed of decoding and prefill in a simulation, relative to what modelled says. Default 1.
	ModelledSpeed float64 `json:"modelled_speed,omitempty" above:"0" max:"1000"`
}

// Sampling says how tokens are drawn. Any other value than the defaults gives the log-probs of rollouts another
// distribution than the trainer's, unless the trainer does the same.
type Sampling struct {
	// Temperature divides the logits. Default 1.
	Temperature float64 `json:"temperature" min:"0" max:"10"`
	// TopP keeps the likeliest tokens that make up this probability; 1 keeps all. Default 1.
	TopP float64 `json:"top_p" above:"0" max:"1"`
	// TopK keeps this many of the likeliest tokens; 0 keeps all. Default 0.
	TopK int `json:"top_k" min:"0" max:"1000000"`
	// MinP keeps tokens at least this likely relative to the likeliest; 0 keeps all. Default 0.
	MinP float64 `json:"min_p" min:"0" below:"1"`
}

// Defaults of engines that are servers elsewhere.
const (
	silentDefaultS = 120
	updateDefaultS = 720
)

// External reports whether an engine is a server of its own, not part of this process.
func (e Engine) External() bool { return e.Kind != "" && e.Kind != "embedded" }

// External reports whether any engine is a server of its own.
func (c Config) External() bool {
	return slices.ContainsFunc(c.Engines, Engine.External)
}

// PlanKey is the key that names a plan's model or GPUs in a document with the built-in toy for engines, "" for none. A
// run of such a document would train the toy in the model's stead, so that run and serve refuse it.
func (c Config) PlanKey() string {
	if c.External() {
		return ""
	}
	for _, key := range []string{"hardware.model", "hardware.gpu", "hardware.shape"} {
		if c.Given(key) {
			return key
		}
	}
	return ""
}

// serverDefaults fills in what is said of a server.
func (e *Engine) serverDefaults() {
	if !e.External() {
		return
	}
	if e.Kind == kindTinker {
		e.serviceDefaults()
		return
	}
	delivery := "none"
	switch {
	case e.Kind == "vllm" || e.Kind == "sglang":
		delivery = "disk"
	case e.Kind == "llamacpp" && len(e.Command) > 0:
		delivery = "restart"
	}
	orWord(&e.Weights, delivery)
	orWord(&e.Cache, "salt")
	e.SilentS = cmp.Or(e.SilentS, silentDefaultS)
	e.UpdateS = cmp.Or(e.UpdateS, updateDefaultS)
}

// gatewayDefaults fills in how tokens are drawn and how agents become rollouts.
func (c *Config) gatewayDefaults() {
	s, g := &c.Rollout.Sampling, &c.Gateway
	orNumber(&s.Temperature, 1, c.given("rollout.sampling.temperature"))
	orNumber(&s.TopP, 1, c.given("rollout.sampling.top_p"))
	orWord(&g.ClientSampling, "override")
	orWord(&g.ToolFormat, "auto")
	orNumber(&g.WaitS, 600, c.given("gateway.wait_s"))
	loss := "retry"
	if c.External() {
		loss = "resume"
	}
	orWord(&c.Failures.OnEngineLoss, loss)
}

// partDefaults fills in where trainer and environment are: with engines that are servers there is
// nothing in this process that knows their model.
func (c *Config) partDefaults() {
	where := "embedded"
	if c.External() {
		where = "remote"
	}
	orWord(&c.Environment.Kind, where)
	if c.Tinker() {
		where = kindTinker
	}
	orWord(&c.Trainer.Kind, where)
	if c.Trainer.Kind == kindTinker {
		orCount(&c.Trainer.AdapterRank, adapterRankDefault, c.given("trainer.adapter_rank"))
	}
}

// EnvironmentName is what workers call the environment: environment.name, else the task of an
// embedded engine's model, else rollouts.
func (c Config) EnvironmentName() string {
	switch {
	case c.Environment.Name != "":
		return c.Environment.Name
	case c.External():
		return "rollouts"
	}
	return c.Environment.Task
}

// deliveries are the ways by which a kind of server takes new weights.
var deliveries = map[string][]string{
	"vllm": {"disk", "lora", "none"}, "sglang": {"disk", "lora", "distributed", "none"},
	"llamacpp": {"restart", "none"}, "openai": {"none"}, kindTinker: {"service"},
}

// engineServers checks what is said of engines that are servers, and what is said only for them.
func (v *validator) engineServers() {
	c := v.config
	urls := map[string]int{} // the engine of each
	for i, e := range c.Engines {
		key := func(name string) string { return fmt.Sprintf("engines.%d.%s", i, name) }
		if !e.External() {
			v.embeddedEngine(e, key)
			continue
		}
		if address := v.engineURL(i); address == "" || e.Kind == kindTinker {
			// which is said, or of which there is one
		} else if other, twice := urls[sameServer(address)]; twice && c.Elastic() && !placeholder(e.URL) {
			v.fail(key("url"), e.URL, "does not say which of the fleet's engines it is of", "{index} where the engine's number goes, such as http://NAME-{index}.SERVICE:8000")
			break
		} else if twice && c.origin.sameEntry(other, i) {
			v.fail(key("url"), e.URL, "is one server, and its entry stands for several engines", "a range, such as http://node-{1..4}:8000 or http://host:{8000..8003}")
		} else if twice {
			v.fail(key("url"), e.URL, "is the server of "+c.Engines[other].Name+" already: its weights would be changed under that one's responses", "one engine for each server")
		} else {
			urls[sameServer(address)] = i
		}
		v.engineDelivery(e, key)
		v.serverKeys(e, key)
	}
	v.templateAddress()
	v.cells()
	v.tinker()
	if c.External() {
		v.besideServers()
	} else {
		v.withoutServers()
	}
}

// addresses checks those that are given, each by itself, where the relations to others are not looked at.
func (v *validator) addresses() {
	c := v.config
	for i, e := range c.Engines {
		if e.URL != "" {
			v.engineURL(i)
		}
	}
	v.templateAddress()
}

func (v *validator) templateAddress() {
	if g := v.config.Gateway.Template; g != "" {
		if problem := CheckURL(g); problem != "" {
			v.fail("gateway.template", g, problem, "such as http://host:8000")
		}
	}
}

// serverAddress is what an engine's url is to be.
const serverAddress = "such as http://host:8000, the server's address without a path"

// embeddedEngine refuses what is said of a server where there is none.
func (v *validator) embeddedEngine(e Engine, key func(string) string) {
	said := []struct {
		name  string
		given bool
	}{
		{"url", e.URL != ""}, {"served_model", e.ServedModel != ""}, {"key_file", e.KeyFile != ""}, {"weights", e.Weights != ""},
		{"weights_dir", e.WeightsDir != ""}, {"cache", e.Cache != ""}, {"silent_s", e.SilentS != 0}, {"update_s", e.UpdateS != 0},
		{"piece_tokens", e.PieceTokens != 0}, {"command", len(e.Command) > 0}, {"convert", len(e.Convert) > 0},
	}
	for _, s := range said {
		if s.given {
			v.fail(key(s.name), nil, "is said of an embedded engine", "kind vllm, sglang, llamacpp, openai or tinker, or leave it out")
		}
	}
}

// besideServers checks the parts of a run whose engines are servers.
func (v *validator) besideServers() {
	c := v.config
	for i, e := range c.Engines {
		if !e.External() && !c.Tinker() {
			v.fail(fmt.Sprintf("engines.%d.kind", i), e.Kind, "stands beside engines that are servers, whose model it does not have", "vllm, sglang, llamacpp or openai, or embedded for all")
		}
	}
	v.adapters()
	if c.Model.Path == "" {
		directory := "the directory of the model that the servers were started with"
		if c.Tinker() {
			directory = "a directory with the base model's config.json and tokenizer; its weights are not needed"
		}
		v.fail("model.path", nil, "is missing: an engine is a server, and its model is not described", directory)
	}
	if c.Trainer.Kind == "embedded" && !c.Tinker() {
		v.fail("trainer.kind", c.Trainer.Kind, "cannot train the model of engines that are servers", "remote, and a trainer of yours that connects to headway serve")
	}
	if c.Environment.Kind == "embedded" {
		v.fail("environment.kind", c.Environment.Kind, "does not know the tokens of engines that are servers", "remote, and workers of yours that claim rollouts from headway serve, or sample under its /v1; tasks or openenv, which it plays itself")
	}
	if c.Rollout.Prune.Check == "task" {
		v.fail("rollout.prune.check", c.Rollout.Prune.Check, "asks an embedded task, and the environment is remote", "none")
	}
	v.channels()
	if s := c.Rollout.Sampling; s.Temperature == 0 {
		v.fail("rollout.sampling.temperature", s.Temperature, "takes the likeliest token always: the rollouts of a group would all be the same", "above 0")
	}
}

// channels of each kind of engine.
var channels = map[string][]string{"vllm": {"routed_experts", "sampling_mask"}, "sglang": {"routed_experts", "sampling_mask", "indexer_topk"}}

// Says reports whether servers of the engine's kind can say a channel of rollout.channels.
func (e Engine) Says(channel string) bool { return slices.Contains(channels[e.Kind], channel) }

// Cuts reports whether some tokens cannot be drawn at all.
func (s Sampling) Cuts() bool { return s.TopP < 1 || s.TopK > 0 || s.MinP > 0 }

// channels checks what is asked for beside log-probs.
func (v *validator) channels() {
	c := v.config
	for i, name := range c.Rollout.Channels {
		at := fmt.Sprintf("rollout.channels.%d", i)
		if slices.Contains(c.Rollout.Channels[:i], name) {
			v.fail(at, name, "stands twice", "each once")
		}
		if name == "sampling_mask" && c.Rollout.Sampling.TopK == 0 {
			v.fail(at, name, "has no bound: nothing cuts a distribution to a number of tokens", "rollout.sampling.top_k above 0, or without it")
		}
		for _, e := range c.Engines {
			if !e.Says(name) {
				v.fail(at, name, "is not said by "+e.Name+", which is of kind "+e.Kind, "engines of kind sglang, or vllm for routed_experts and sampling_mask")
				break
			}
		}
	}
}

// adapters refuses versions that would be models to some engines and adapters to others.
func (v *validator) adapters() {
	lora, model := -1, -1
	for i, e := range v.config.Engines {
		switch {
		case e.Weights == "lora":
			lora = i
		case e.Weights != "none":
			model = i
		}
	}
	if lora >= 0 && model >= 0 {
		v.fail(fmt.Sprintf("engines.%d.weights", lora), "lora", "takes adapters, and "+v.config.Engines[model].Name+" takes models: a version is one or the other", "the same for all engines")
	}
}

// withoutServers refuses what has an effect only on engines that are servers.
func (v *validator) withoutServers() {
	c := v.config
	const instead = "engines of kind vllm, sglang, llamacpp, openai or tinker, or leave it out"
	v.idle("model.path", c.Model.Path != "", "on embedded engines, whose model the other keys describe", instead)
	v.idle("environment.prompt_tokens_max", c.Environment.PromptTokensMax > 0, "on embedded engines, whose task has limits of its own", instead)
	v.idle("environment.response_tokens_max", c.Environment.ResponseTokensMax > 0, "on embedded engines, whose task has limits of its own", instead)
	v.idle("gateway.template", c.Gateway.Template != "", "on embedded engines, whose task has a template of its own", instead)
	v.idle("rollout.channels", len(c.Rollout.Channels) > 0, "on embedded engines, which have nothing to say there", "engines of kind vllm or sglang, or leave it out")
	policy := Sampling{Temperature: 1, TopP: 1}
	v.idle("rollout.sampling", c.Rollout.Sampling != policy, "on embedded engines, which sample from the policy as it is", instead)
}

// engineDelivery checks how new weights reach a server.
func (v *validator) engineDelivery(e Engine, key func(string) string) {
	if !slices.Contains(deliveries[e.Kind], e.Weights) {
		v.fail(key("weights"), e.Weights, "is no way by which "+e.Kind+" takes new weights", strings.Join(deliveries[e.Kind], ", "))
		return
	}
	if e.Kind == kindTinker {
		return
	}
	started := e.Weights == "restart"
	if started && len(e.Command) == 0 {
		v.fail(key("command"), nil, "is missing: with weights restart the server is started again by it", "program and arguments, with {weights} where the version's directory goes")
	}
	if !started && len(e.Command) > 0 {
		v.fail(key("command"), nil, "has no effect with weights "+e.Weights, "weights restart, or leave it out")
	}
	if !started && len(e.Convert) > 0 {
		v.fail(key("convert"), nil, "has no effect with weights "+e.Weights, "weights restart, or leave it out")
	}
	if started && len(e.Command) > 0 && !strings.Contains(strings.Join(append(slices.Clone(e.Command), e.Convert...), " "), "{weights}") {
		v.fail(key("command"), nil, "does not say {weights}: the server would start with the same weights again", "{weights} where the version's directory goes, in command or convert")
	}
	if (e.Weights == "none" || e.Weights == "distributed") && e.WeightsDir != "" {
		v.fail(key("weights_dir"), e.WeightsDir, "has no effect with weights "+e.Weights+", which reads no directory", "another way for weights, or leave it out")
	}
}

// engineWarnings says what engines that are servers are probably not meant to do.
func (c Config) engineWarnings(warn func(key, format string, args ...any)) {
	if !c.External() {
		return
	}
	updated, sent := 0, 0
	for _, e := range c.Engines {
		if e.Weights != "none" {
			updated++
		}
		if e.Weights == "distributed" {
			sent++
		}
	}
	if sent > 0 && sent < updated {
		warn("engines", "%d of %d engines read new weights from the store, and the others receive them: the trainer has to publish every version in full (checkpoint_every 1); weights distributed for all of them, or for none", updated-sent, updated)
	}
	switch {
	case updated == 0:
		warn("engines", "no engine takes new weights: every rollout is sampled by version 0, however long the run is; weights disk, lora, distributed or restart")
	case updated < len(c.Engines):
		warn("engines", "%d of %d engines take no new weights: their rollouts are of version 0, and ever more stale", len(c.Engines)-updated, len(c.Engines))
	}
	switch policy := (Sampling{Temperature: 1, TopP: 1}); {
	case c.Rollout.Sampling == policy:
	case c.Tinker():
		warn("rollout.sampling", "is not the policy as it is, and that is what a service trains: importance ratios measure the difference")
	default:
		warn("rollout.sampling", "is not the policy as it is: log-probs are of what was sampled from where the engine says those, and the trainer must compute its own the same way, or the importance ratios measure the difference")
	}
}

// sameServer is the same for two addresses that are one server's, as far as they say: capitals, the
// scheme's own port and the names of this machine's loopback make no difference.
func sameServer(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	host, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// CheckURL says what is wrong with a server's address, empty for nothing.
func CheckURL(text string) string {
	if wrong := environmentURL(text); wrong != "" {
		return wrong
	}
	u, _ := url.Parse(text)
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return "has a query"
	case strings.Trim(u.Path, "/") != "":
		return "has a path: the servers' paths are known"
	}
	return ""
}
