package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// choicesMax bounds n: the choices of a request are sampled one after the other.
const choicesMax = 128

// stopsMax bounds the texts, and the ids, that end a response.
const stopsMax = 64

// request is what a client asks for, decoded and checked.
type request struct {
	chat bool
	// messages of a chat and its tools, each as the client wrote it; nil tools for none.
	messages []json.RawMessage
	tools    json.RawMessage
	// media are those of each message; nil where no message has any.
	media [][]media.Item
	// callable: tools may be called, so that the policy has to see them. offered are they.
	callable bool
	offered  calls.Tools
	// hidden: the client wants no reasoning. Tokens are named whether or not.
	hidden bool
	// text or tokens are the prompt of a completion.
	text   string
	tokens []int32

	choices   int
	maxTokens int
	sampling  protocol.Sampling
	// overridden names what the client asked for that no rollout is sampled with.
	overridden []string

	stream, usage, logprobs, tokenIDs bool
}

// body has the fields that both kinds of request share. Other fields are ignored, as most servers do: user,
// metadata and the like.
type body struct {
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	TopP                *float64        `json:"top_p"`
	TopK                *int            `json:"top_k"`
	MinP                *float64        `json:"min_p"`
	Stop                json.RawMessage `json:"stop"`
	StopTokenIDs        stopIDs         `json:"stop_token_ids"`
	ReturnTokenIDs      bool            `json:"return_token_ids"`
	ResponseFormat      *responseFormat `json:"response_format"`
	// Words with which other servers change what is drawn.
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              json.RawMessage    `json:"seed"`
	MinTokens         *int               `json:"min_tokens"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	GuidedJSON        json.RawMessage    `json:"guided_json"`
	GuidedRegex       json.RawMessage    `json:"guided_regex"`
	GuidedChoice      json.RawMessage    `json:"guided_choice"`
	GuidedGrammar     json.RawMessage    `json:"guided_grammar"`
	StructuredOutputs json.RawMessage    `json:"structured_outputs"`
	Regex             json.RawMessage    `json:"regex"`
	EBNF              json.RawMessage    `json:"ebnf"`
	JSONSchema        json.RawMessage    `json:"json_schema"`
	StructuralTag     json.RawMessage    `json:"structural_tag"`
	AllowedTokenIDs   json.RawMessage    `json:"allowed_token_ids"`
	BadWords          json.RawMessage    `json:"bad_words"`
	UseBeamSearch     bool               `json:"use_beam_search"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type responseFormat struct {
	Type string `json:"type"`
}

// A body may have so many bytes for every token of the context, beside what a small one may have:
// the texts of no prompt that fits need as many.
const bodyBytes, bodyBytesAToken = 1 << 20, 256

// decode reads a request's body into a message. The body is closed, and the room that it takes given
// back, once it is decoded.
func decode(r *http.Request, message any, options Options) error {
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if most := bodyBytes + bodyBytesAToken*options.Context; options.Context > 0 && len(text) > most && len(text)-mediaBytes(text) > most {
		limit := options.promptMax()
		return protocol.Refuse(protocol.CodeContextExceeded, "This model's maximum context length is %d tokens for a prompt, and the body has %d bytes, more than their %d. Shorten the history, or end the rollout; %s", limit, len(text), most, protocol.PromptLimit).
			With("bytes_max", most).With("prompt_tokens_max", limit)
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return protocol.Refuse(protocol.CodeInvalid, "the body is no JSON object: want one as OpenAI's API describes it")
	}
	if err := json.Unmarshal(text, message); err != nil {
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
			return refusal
		}
		return jsonRefusal(err)
	}
	return nil
}

// jsonRefusal says what is wrong with a body without quoting it.
func jsonRefusal(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := kind.Field
		if i := strings.LastIndex(field, "body."); i >= 0 {
			field = field[i+len("body."):] // the name of the embedded struct
		}
		found, _, _ := strings.Cut(kind.Value, " ")
		return invalid(field, "%s holds a %s: want %s", field, found, protocol.KindLabel(kind.Type))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return protocol.Refuse(protocol.CodeInvalid, "the body is not JSON at byte %d", syntax.Offset)
	}
	return protocol.Refuse(protocol.CodeInvalid, "the body is no JSON that can be read")
}

// given reports whether a field stands in the body with something in it.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// shared reads what both kinds of request have.
func (b *body) shared(req *request, options Options) error {
	req.choices, req.stream, req.tokenIDs = 1, b.Stream, b.ReturnTokenIDs
	req.usage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	if b.N != nil {
		req.choices = *b.N
	}
	if req.choices < 1 || req.choices > choicesMax {
		return invalid("n", "n is %d: want 1 to %d", req.choices, choicesMax)
	}
	name, limit := "max_completion_tokens", b.MaxCompletionTokens
	if limit == nil {
		name, limit = "max_tokens", b.MaxTokens
	}
	if limit != nil {
		if req.maxTokens = *limit; req.maxTokens < 1 {
			return invalid(name, "%s is %d: want at least 1, or leave it out for the run's limit", name, req.maxTokens)
		}
	}
	if err := b.unsupported(); err != nil {
		return err
	}
	return b.draws(req, options)
}

// unsupported refuses what a response would be wrong without.
func (b *body) unsupported() error {
	if f := b.ResponseFormat; f != nil && f.Type != "text" && f.Type != "" {
		return invalid("response_format", "response_format is of type %.40q: want text. The policy is sampled as it is, without a grammar", f.Type)
	}
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"guided_json", b.GuidedJSON}, {"guided_regex", b.GuidedRegex}, {"guided_choice", b.GuidedChoice},
		{"guided_grammar", b.GuidedGrammar}, {"structured_outputs", b.StructuredOutputs},
		{"regex", b.Regex}, {"ebnf", b.EBNF}, {"json_schema", b.JSONSchema}, {"structural_tag", b.StructuralTag}} {
		if given(f.raw) {
			return invalid(f.name, "%s is not supported: the policy is sampled as it is, without a grammar", f.name)
		}
	}
	return nil
}

// draws reads how tokens are to be drawn.
func (b *body) draws(req *request, options Options) error {
	req.sampling = protocol.Sampling{Temperature: b.Temperature, TopP: b.TopP, TopK: b.TopK, MinP: b.MinP, StopTokens: b.StopTokenIDs}
	if b.TopK != nil && *b.TopK == -1 { // another way of saying none
		none := 0
		req.sampling.TopK = &none
	}
	var err error
	if req.sampling.Stop, err = stops(b.Stop); err != nil {
		return err
	}
	if len(b.StopTokenIDs) > stopsMax {
		return invalid("stop_token_ids", "stop_token_ids has %d ids: want at most %d", len(b.StopTokenIDs), stopsMax)
	}
	if err := b.ranges(); err != nil {
		return err
	}
	req.overridden = b.foreign()
	if len(req.overridden) > 0 && options.ClientSampling != "override" {
		return invalid(req.overridden[0], "%s changes what is drawn, and no engine is told of it: leave it out, or set gateway.client_sampling to override to have it ignored", req.overridden[0])
	}
	if given(b.Seed) { // named, and never refused: it changes which tokens are drawn, not by what they are
		req.overridden = append(req.overridden, "seed")
	}
	return nil
}

// ranges refuses figures that cannot be meant.
func (b *body) ranges() error {
	for _, f := range []struct {
		name     string
		value    *float64
		min, max float64
	}{{"temperature", b.Temperature, 0, 10}, {"top_p", b.TopP, 0, 1}, {"min_p", b.MinP, 0, 1}} {
		if f.value != nil && (*f.value < f.min || *f.value > f.max) {
			return invalid(f.name, "%s is %g: want %g to %g", f.name, *f.value, f.min, f.max)
		}
	}
	if b.TopK != nil && *b.TopK < -1 {
		return invalid("top_k", "top_k is %d: want at least 0", *b.TopK)
	}
	return nil
}

// foreign names what the client wants beyond what a rollout can be sampled with.
func (b *body) foreign() []string {
	var names []string
	for _, f := range []struct {
		name  string
		asked bool
	}{
		{"frequency_penalty", b.FrequencyPenalty != nil && *b.FrequencyPenalty != 0},
		{"presence_penalty", b.PresencePenalty != nil && *b.PresencePenalty != 0},
		{"repetition_penalty", b.RepetitionPenalty != nil && *b.RepetitionPenalty != 1},
		{"logit_bias", len(b.LogitBias) > 0},
		{"min_tokens", b.MinTokens != nil && *b.MinTokens > 0},
		{"ignore_eos", b.IgnoreEOS},
		{"allowed_token_ids", given(b.AllowedTokenIDs)},
		{"bad_words", given(b.BadWords) && string(b.BadWords) != "[]"},
		{"use_beam_search", b.UseBeamSearch},
	} {
		if f.asked {
			names = append(names, f.name)
		}
	}
	return names
}

// stops reads one text or a list of them.
func stops(raw json.RawMessage) ([]string, error) {
	if !given(raw) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		if one == "" {
			return nil, nil
		}
		return []string{one}, nil
	}
	var many []string
	if json.Unmarshal(raw, &many) != nil {
		return nil, invalid("stop", "stop is neither a text nor a list of texts")
	}
	if len(many) > stopsMax {
		return nil, invalid("stop", "stop has %d texts: want at most %d", len(many), stopsMax)
	}
	if slices.Contains(many, "") {
		return nil, invalid("stop", "stop has an empty text, which would end every response at once")
	}
	return many, nil
}

// completionBody is the body of POST /v1/completions.
type completionBody struct {
	body
	Prompt   promptText `json:"prompt"`
	Logprobs *int       `json:"logprobs"`
	Echo     bool       `json:"echo"`
	BestOf   *int       `json:"best_of"`
	Suffix   *string    `json:"suffix"`
}

func decodeCompletion(r *http.Request, options Options) (*request, error) {
	var b completionBody
	if err := decode(r, &b, options); err != nil {
		return nil, err
	}
	req := &request{}
	if err := b.shared(req, options); err != nil {
		return nil, err
	}
	if b.Logprobs != nil {
		if req.logprobs = true; *b.Logprobs < 0 || *b.Logprobs > 1 {
			return nil, invalid("logprobs", "logprobs is %d: want 0 or 1. Only the log-probs of sampled tokens are known", *b.Logprobs)
		}
	}
	switch {
	case b.Echo:
		return nil, invalid("echo", "echo is not supported: the response has the response alone")
	case b.BestOf != nil && *b.BestOf > req.choices:
		return nil, invalid("best_of", "best_of is more than n: every response that is sampled is returned")
	case b.Suffix != nil && *b.Suffix != "":
		return nil, invalid("suffix", "suffix is not supported: responses are sampled after a prompt alone")
	}
	if req.text, req.tokens = b.Prompt.text, b.Prompt.tokens; req.text == "" && req.tokens == nil {
		return nil, invalid("prompt", "prompt is missing: want a text or a list of token ids")
	}
	return req, nil
}
