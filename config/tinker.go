package config

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// kindTinker is the kind of an engine and of a trainer that are one service of Tinker's API.
const kindTinker = "tinker"

// Defaults where engine and trainer are such a service. The rate is what recipes of reinforcement learning with
// adapters of that rank use (1e-5 to 1e-4, an order of magnitude over what all of a model's weights take).
const (
	serviceSilentDefault = 300
	pieceTokensDefault   = 256
	adapterRankDefault   = 32
	adapterRateDefault   = 4e-5
)

// Tinker reports whether an engine is a service of Tinker's API, which then trains as well and keeps every version.
func (c Config) Tinker() bool { return c.serviceEngine() >= 0 }

// serviceEngine is the index of the first engine that is a service, -1 for none.
func (c Config) serviceEngine() int {
	for i, e := range c.Engines {
		if e.Kind == kindTinker {
			return i
		}
	}
	return -1
}

// serviceDefaults fills in what is said of a service, piece_tokens apart.
func (e *Engine) serviceDefaults() {
	orWord(&e.Weights, "service")
	e.SilentS = cmp.Or(e.SilentS, serviceSilentDefault)
}

// checkServiceURL says what is wrong with a service's address, empty for nothing. Unlike a server it may be below a
// path, as that of Thinking Machines is.
func checkServiceURL(text string) string {
	if wrong := environmentURL(text); wrong != "" {
		return wrong
	}
	if u, _ := url.Parse(text); u.RawQuery != "" || u.Fragment != "" {
		return "has a query"
	}
	return ""
}

// serviceAddress is what the url of a service is to be.
const serviceAddress = "such as http://host:8000, or https://host/services/name: what stands before /api/v1"

// engineURL checks the address of an engine that is no embedded one. It returns the address, empty for one that is wrong.
func (v *validator) engineURL(i int) string {
	e, address := v.config.Engines[i], v.config.EngineURL(i, nil)
	problem, allowed := CheckURL(address), serverAddress
	if e.Kind == kindTinker {
		problem, allowed = checkServiceURL(address), serviceAddress
	}
	if problem == "" {
		return address
	}
	if numberRange.MatchString(address) {
		return "" // an entry stands for no engines, which is said
	}
	if strings.Contains(address, "..") {
		allowed = "such as http://node-{1..40}:8000, a range of whole numbers"
	}
	v.fail(fmt.Sprintf("engines.%d.url", i), e.URL, problem, allowed)
	return ""
}

// tinker checks that engine and trainer are one service, or neither is.
func (v *validator) tinker() {
	c := v.config
	i := c.serviceEngine()
	if i < 0 {
		if c.Trainer.Kind == kindTinker {
			v.fail("trainer.kind", c.Trainer.Kind, "trains at the service that samples, and no engine is one", "one engine of kind tinker, or another kind of trainer")
		} else if c.Trainer.AdapterRank != 0 {
			v.fail("trainer.adapter_rank", c.Trainer.AdapterRank, "has no effect with trainer.kind "+c.Trainer.Kind+", which trains no adapter", "leave it out, or trainer.kind tinker")
		}
		return
	}
	if c.Trainer.Kind != kindTinker {
		v.fail("trainer.kind", c.Trainer.Kind, "cannot train the adapters of "+c.Engines[i].Name+", which never leave the service", "tinker, or leave it out")
	}
	if _, said := c.givenUnder("fleet"); said || c.Fleet.said() {
		v.fail("fleet", nil, "has no effect on a service, which has machines of its own", "leave it out")
	} else {
		v.alone(i)
	}
	v.besideService(i)
}

// alone refuses engines beside a service.
func (v *validator) alone(service int) {
	for i, e := range v.config.Engines {
		switch {
		case i == service:
		case e.Kind == kindTinker:
			v.fail(fmt.Sprintf("engines.%d.kind", i), e.Kind, "is a second service, which does not know what the first has saved", "one engine of kind tinker with all the slots: the service spreads them over its machines")
		default:
			v.fail(fmt.Sprintf("engines.%d.kind", i), e.Kind, "stands beside "+v.config.Engines[service].Name+", whose adapters never leave the service: it could load no version", "one engine of kind tinker, and no other")
		}
	}
}

// besideService refuses what has no meaning with a service.
func (v *validator) besideService(i int) {
	c := v.config
	if c.Trainer.Kind == kindTinker {
		const machines = "with trainer.kind tinker, whose machines the service has"
		v.idle("trainer.threads", c.Trainer.Threads != 0, machines, "leave it out")
		v.idle("trainer.step_s", c.Trainer.StepS != 0, machines, "leave it out")
	}
	if s := c.Rollout.Sampling; s.MinP != 0 {
		v.fail("rollout.sampling.min_p", s.MinP, "has no counterpart in the API of a service", "0; top_p and top_k cut there")
	}
	v.idle("store.nats.objects", c.Store.NATS.Objects, "with engines of kind tinker: versions stay at the service", "false, or leave it out")
	if c.Environment.Played() && c.Gateway.Template == "" {
		v.fail("gateway.template", nil, "is missing: environment.kind "+c.Environment.Kind+" speaks in chats, and "+c.Engines[i].Name+" renders none", "the URL of a vLLM with the base model's tokenizer; it needs to sample nothing")
	}
}

// serverKeys refuses what has no effect on a server, and what has none on one of its kind.
func (v *validator) serverKeys(e Engine, key func(string) string) {
	if e.DecodeStepS > 0 {
		v.fail(key("decode_step_s"), e.DecodeStepS, "has no effect on a server, which takes its own time", "0")
	}
	if e.Kind != kindTinker {
		v.idle(key("piece_tokens"), e.PieceTokens != 0, "on kind "+e.Kind+", which takes new weights within a response", "leave it out, or kind tinker")
		return
	}
	for _, of := range []struct {
		name, why string
		given     bool
	}{
		{"weights_dir", "it reads no directory", e.WeightsDir != ""},
		{"cache", "every version is sampled from by a session of its own", e.Cache != ""},
		{"update_s", "a version is there when it is saved", e.UpdateS != 0},
		{"command", "nothing here starts it", len(e.Command) > 0},
		{"convert", "nothing here starts it", len(e.Convert) > 0},
	} {
		v.idle(key(of.name), of.given, "on kind tinker: "+of.why, "leave it out")
	}
}
