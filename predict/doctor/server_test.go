package doctor

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// servedExample shows a finding about engines that are servers, and what about them makes it go.
type servedExample struct {
	code     string
	severity Severity
	key      string
	set      []string
	spoil    func(m *Model, servers []Server)
	want     string
}

var servedExamples = []servedExample{
	{"model-unread", Error, keyModel, nil, func(m *Model, _ []Server) { *m = Model{Err: "m has no config.json"} }, "m has no config.json"},
	{"context-exceeded", Error, keyPromptMax, nil, func(m *Model, _ []Server) { m.LimitsErr = "leaves no room" }, "leaves no room"},
	{"context-exceeded", Error, keyEngines, nil, func(_ *Model, s []Server) { s[1].Context = 200 }, "engine-1 takes sequences of 200 tokens, and a rollout may have 256"},
	{"engine-unreachable", Error, keyEngines, nil, func(_ *Model, s []Server) { s[0] = Server{Err: "connection refused"} }, "engine-0 does not answer as vllm: connection refused"},
	{"engine-kind", Error, keyEngines, nil, func(_ *Model, s []Server) { s[0] = Server{Err: "it is not vLLM", Other: true} }, "engine-0 is not the vllm that the document says: it is not vLLM"},
	{"engine-lacks", Error, keyEngines, nil, func(_ *Model, s []Server) {
		s[0].Lacks = []Lack{{What: "token ids", Flag: "--return", Fatal: true}}
	}, "engine-0 lacks something: token ids"},
	{"engine-lacks", Warning, keyEngines, nil, func(_ *Model, s []Server) { s[1].Lacks = []Lack{{What: "metrics"}} }, "engine-1 lacks something: metrics"},
	{"model-differs", Error, keyEngines, nil, func(_ *Model, s []Server) { s[0].Vocabulary = 65 }, "engine-0 has 65 token ids, and the model in model.path has 64"},
	{"slots-wait", Warning, keyEngines, nil, func(_ *Model, s []Server) { s[1].Slots = 16 }, "engine-1 has 32 slots, and its server samples 16 responses at once"},
	{"cache-without-effect", Warning, keyEngines, nil, func(_ *Model, s []Server) { s[0].Salt = false }, "its cache of prefixes is dropped at every switch instead"},
	{"cache-without-effect", Warning, keyEngines, nil, func(_ *Model, s []Server) { s[0].Salt, s[0].Flush = false, false }, "what is cached under old weights is used under new ones"},
	{"cache-without-effect", Warning, keyEngines, []string{"engines.0.cache=flush"}, func(_ *Model, s []Server) { s[0].Flush = false }, "cache flush has no effect on engine-0"},
	{"weights-unseen", Warning, keyEngines, []string{"engines.0.url=http://10.1.1.1:8000"}, func(*Model, []Server) {}, "engine-0 is on another host"},
	{"weights-unseen", Warning, keyEngines, []string{"engines.0.weights_dir=weights"}, func(*Model, []Server) {}, `weights_dir of engine-0 is "weights"`},
	{"logprobs-raw", Warning, keySampling, []string{"rollout.sampling.temperature=0.7"}, func(_ *Model, s []Server) { s[1].Processed = false }, "log-probs of engine-1 are those of the policy as it is"},
	{"cut-without-masks", Warning, keySampling, []string{"rollout.sampling.top_p=0.8"}, func(*Model, []Server) {}, "cut distribution (top_p 0.8, top_k 0, min_p 0)"},
	{"pieces", Info, keyEngines, []string{`engines=[{kind: tinker, url: "http://10.1.1.1", slots: 64, piece_tokens: 16}]`}, func(m *Model, s []Server) { s[0], s[1] = Server{Template: true}, Server{Template: true} }, "a response of 64 tokens is 4 requests to engine-0, which read up to 672 tokens again"},
	{"no-template", Info, keyTemplate, nil, func(_ *Model, s []Server) { s[0].Template, s[1].Template = false, false }, "/v1 serves only prompts of token ids"},
}

// servedCase is a case of two servers with which nothing is wrong.
func servedCase(t *testing.T, set ...string) Case {
	t.Helper()
	c := caseOf(t, append([]string{"model.path=m", `engines=[{kind: vllm, url: "http://127.0.0.1:8000", slots: 32}, {kind: sglang, url: "http://localhost:30000", slots: 32}]`}, set...)...)
	sound := Server{Vocabulary: 64, Context: 256, Processed: true, Salt: true, Flush: true, Template: true}
	c.Model, c.Servers = &Model{Vocabulary: 64, Context: 256, PromptTokens: 192, ResponseTokens: 64}, []Server{sound, sound}
	return c
}

// servedFindings are those about servers alone.
func servedFindings(t *testing.T, c Case) []Finding {
	t.Helper()
	e := newExamination(c)
	for _, check := range serverChecks {
		e.kind = check.kind
		check.look(e)
	}
	return e.findings
}

func TestServers(t *testing.T) {
	for _, x := range servedExamples {
		t.Run(x.code+"/"+string(x.severity)+"/"+x.key, func(t *testing.T) {
			if x.spoil == nil {
				t.Fatal("nothing is spoilt")
			}
			c := servedCase(t, x.set...)
			x.spoil(c.Model, c.Servers)
			found := servedFindings(t, c)
			f, ok := find(found, x.code)
			if !ok || len(found) != 1 || f.Severity != x.severity || f.Key != x.key || !strings.Contains(f.What, x.want) {
				t.Errorf("found %+v, want a %s %s about %s that %q", found, x.severity, x.code, x.key, x.want)
			}
			wellFormed(t, found)
		})
	}
}

// Nothing is found where nothing is wrong, where nobody was asked, and where a key makes up for it.
func TestServersWithoutFindings(t *testing.T) {
	sound := servedCase(t)
	unasked := servedCase(t)
	unasked.Servers = nil
	elsewhere := servedCase(t, "engines.0.url=http://10.1.1.1:8000", "engines.0.weights_dir=/mnt/weights", "engines.1.weights_dir=C:/weights")
	rendered := servedCase(t, "gateway.template=http://a")
	rendered.Servers[0].Template, rendered.Servers[1].Template = false, false
	frozen := servedCase(t, "engines.0.weights=none", "engines.0.url=http://10.1.1.1:8000")
	frozen.Servers[0].Salt, frozen.Servers[0].Flush = false, false
	unknown := servedCase(t)
	unknown.Servers[0].Vocabulary, unknown.Servers[0].Context = 0, 0
	hosted := servedCase(t, `engines=[{kind: tinker, url: "http://10.1.1.1", slots: 64}]`) // one piece, and no disk
	for name, c := range map[string]Case{"hosted": hosted, "sound": sound, "unasked": unasked, "elsewhere": elsewhere, "rendered": rendered, "frozen": frozen, "unknown": unknown, "embedded": caseOf(t)} {
		if found := servedFindings(t, c); len(found) > 0 {
			t.Errorf("%s: found %+v", name, found)
		}
	}
}

// Masks are advised where every engine can say them, with the bound that they need. Where log-probs are raw, or masks
// are asked for, nothing is said of them.
func TestCutWithoutMasks(t *testing.T) {
	for _, x := range []struct {
		set   []string
		raw   bool
		want  string
		least float64
	}{
		{[]string{"rollout.sampling.top_p=0.8"}, false, "rollout.channels: [sampling_mask] with rollout.sampling.top_k above 0", 0.8},
		{[]string{"rollout.sampling.top_k=50"}, false, "rollout.channels: [sampling_mask], and log-probs", 0},
		{[]string{"rollout.sampling.min_p=0.1", `engines=[{kind: llamacpp, url: "http://127.0.0.1:8000", slots: 64}]`}, false, "sample without cuts", 0},
		{[]string{"rollout.sampling.top_k=50", "rollout.channels=[sampling_mask]"}, false, "", 0},
		{[]string{"rollout.sampling.temperature=0.8"}, false, "", 0},
		{[]string{"rollout.sampling.top_k=50"}, true, "", 0},
	} {
		c := servedCase(t, x.set...)
		c.Servers[0].Processed = !x.raw
		f, found := find(servedFindings(t, c), "cut-without-masks")
		if found != (x.want != "") || !strings.HasPrefix(f.Do, x.want) {
			t.Errorf("%v, raw %t: %+v, want %q", x.set, x.raw, f, x.want)
		}
		if least := x.least; least > 0 && (len(f.Figures) != 1 || f.Figures[0].Value != least) {
			t.Errorf("%v: figures %+v, want %g", x.set, f.Figures, least)
		}
	}
}

// A finding about one engine stands on that engine's line.
func TestServerFindingsHaveTheirLine(t *testing.T) {
	raw, err := config.Parse("run.yaml", []byte("model: {path: m}\nengines:\n  - {kind: vllm, url: 'http://127.0.0.1:1', slots: 4}\n  - {kind: vllm, url: 'http://127.0.0.1:2', slots: 4}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := raw.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	found := servedFindings(t, Case{Document: d, Servers: []Server{{Template: true, Salt: true}, {Err: "no route to host"}}})
	if len(found) != 1 || found[0].File != "run.yaml" || found[0].Line != 4 {
		t.Errorf("found %+v, want one at run.yaml:4", found)
	}
}
