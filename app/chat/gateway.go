package chat

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
)

// afterRollouts is how much longer the gateway waits for a token than the rollouts do, which know why none comes.
const afterRollouts = 10 * time.Second

// builder makes the gateway of parts.
type builder struct {
	*parts.Parts
	// suspect asks for a look at the engines' servers, which do not answer. It does not block.
	suspect func()
	logf    func(format string, args ...any)
}

// NewGateway returns a gateway to rollouts that workers play, for agents that speak OpenAI's API. It is nil for a document
// without workers, and in a process without engines. Suspect is told that servers do not answer, and must not block. The parts close the gateway.
func NewGateway(p *parts.Parts, suspect func(), logf func(format string, args ...any)) (*gateway.Gateway, error) {
	if p.Workers == nil || !p.OwnsAny() {
		return nil, nil
	}
	b := builder{p, suspect, logf}
	g := p.Cfg.Gateway
	opt := gateway.Options{
		Rollouts: p.Workers, Model: p.Cfg.EnvironmentName(), Calls: b.callDialect(), ClientSampling: g.ClientSampling, Wait: config.Seconds(g.WaitS) + afterRollouts, Logf: logf,
	}
	if limits := p.Limits(); limits.PromptTokens > 0 && limits.ResponseTokens > 0 {
		opt.Context, opt.PromptTokens = limits.PromptTokens+limits.ResponseTokens, limits.PromptTokens
	}
	if !p.Cfg.External() {
		opt.Templates = embeddedTemplate{p.Task.Vocabulary()}
	} else {
		opt.Model = b.modelName()
		var err error
		if opt.Templates, err = b.chatTemplates(); err != nil {
			return nil, err
		}
	}
	made, err := gateway.New(opt)
	if err != nil {
		return nil, err
	}
	p.OnClose(made.Close)
	return made, nil
}

// callDialect is how the policy writes calls of tools and reasoning: as the document says, else as its own
// files tell.
func (b *builder) callDialect() *calls.Dialect {
	format := b.Cfg.Gateway.ToolFormat
	if format == "none" || !b.Cfg.External() {
		return nil
	}
	model := calls.ReadModel(b.ModelFile)
	grammar, from := calls.ByName(format), "gateway.tool_format"
	if grammar == nil {
		grammar, from = calls.Choose(model), "the model's own files"
	}
	if grammar == nil {
		grammar, from = calls.ByName("hermes"), "the default: the model's files tell none"
	}
	found := 0
	for _, word := range grammar.Words() {
		if _, ok := model.Tokens[word]; ok {
			found++
		}
	}
	b.logf("gateway: calls of tools and reasoning are read as %s writes them (%s); %d of the %d words of its frame are tokens of this model", grammar.Name, from, found, len(grammar.Words()))
	return grammar.In(model.Tokens)
}

// chatTemplates render chats by a server, or refuse them where there is none that could.
func (b *builder) chatTemplates() (gateway.Templates, error) {
	if b.Service != nil && b.Cfg.Gateway.Template == "" {
		return noTemplate{}, nil
	}
	templates, err := b.templates()
	if err != nil {
		return nil, err
	}
	return retryingTemplate{serverTemplate{templates}, config.Seconds(b.Cfg.Gateway.WaitS), b.suspect}, nil
}

// modelName is what agents see the policy under: the name that the engines know it by, or its directory's.
func (b *builder) modelName() string {
	for _, e := range b.Cfg.Engines {
		if e.ServedModel != "" {
			return e.ServedModel
		}
	}
	if b.Service != nil {
		return b.Service.Base
	}
	if name := filepath.Base(b.Cfg.Model.Path); name != "." && name != string(filepath.Separator) {
		return name
	}
	return b.Cfg.EnvironmentName()
}

// templates render chats by the engines that can, or by the server that the document names.
func (b *builder) templates() (*upstream.Templates, error) {
	if b.Cfg.Gateway.Template == "" {
		own := b.OwnUpstreams()
		away := func(k int) bool { return b.AwayOf(slices.Index(b.Upstreams, own[k])) }
		return upstream.NewTemplates(upstream.TemplatesOptions{Engines: own, Away: away})
	}
	e := config.Engine{Kind: "vllm", Name: "gateway.template", URL: b.Cfg.Gateway.Template, Slots: 1}
	server, err := parts.ServerOf(e)
	if err != nil {
		return nil, fmt.Errorf("gateway.template: %w", err)
	}
	dialect, err := parts.DialectOf(e, b.logf)
	if err != nil {
		return nil, fmt.Errorf("gateway.template: %w", err)
	}
	renderer, err := upstream.New(upstream.Options{Name: e.Name, Slots: e.Slots, Server: server, Dialect: dialect, Vocabulary: b.Vocabulary(), Logf: b.logf})
	if err != nil {
		return nil, err
	}
	b.OnClose(renderer.Close)
	return upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{renderer}})
}
