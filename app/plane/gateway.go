package plane

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
)

// afterRollouts is how much longer the gateway waits for a token than the rollouts do, which know why none comes.
const afterRollouts = 10 * time.Second

// buildGateway makes rollouts of agents that speak OpenAI's API, where rollouts are played by workers.
func (p *Plane) buildGateway() error {
	if p.Workers == nil {
		return nil
	}
	g := p.Cfg.Gateway
	opt := gateway.Options{
		Rollouts: p.Workers, Model: p.Cfg.EnvironmentName(), Calls: p.callDialect(), ClientSampling: g.ClientSampling, Wait: config.Seconds(g.WaitS) + afterRollouts, Logf: p.logf,
	}
	if limits := p.Limits(); limits.PromptTokens > 0 && limits.ResponseTokens > 0 {
		opt.Context, opt.PromptTokens = limits.PromptTokens+limits.ResponseTokens, limits.PromptTokens
	}
	if !p.Cfg.External() {
		opt.Templates = embeddedTemplate{p.Task.Vocabulary()}
	} else {
		opt.Model = p.modelName()
		var err error
		if opt.Templates, err = p.chatTemplates(); err != nil {
			return err
		}
	}
	var err error
	if p.gateway, err = gateway.New(opt); err != nil {
		return err
	}
	p.OnClose(p.gateway.Close)
	return nil
}

// callDialect is how the policy writes calls of tools and reasoning: as the document says, else as its own
// files tell.
func (p *Plane) callDialect() *calls.Dialect {
	format := p.Cfg.Gateway.ToolFormat
	if format == "none" || !p.Cfg.External() {
		return nil
	}
	model := calls.ReadModel(p.ModelFile)
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
	p.logf("gateway: calls of tools and reasoning are read as %s writes them (%s); %d of the %d words of its frame are tokens of this model", grammar.Name, from, found, len(grammar.Words()))
	return grammar.In(model.Tokens)
}

// chatTemplates render chats by a server, or refuse them where there is none that could.
func (p *Plane) chatTemplates() (gateway.Templates, error) {
	if p.Service != nil && p.Cfg.Gateway.Template == "" {
		return noTemplate{}, nil
	}
	templates, err := p.templates()
	if err != nil {
		return nil, err
	}
	return retryingTemplate{serverTemplate{templates}, config.Seconds(p.Cfg.Gateway.WaitS), p.suspect}, nil
}

// modelName is what agents see the policy under: the name that the engines know it by, or its directory's.
func (p *Plane) modelName() string {
	for _, e := range p.Cfg.Engines {
		if e.ServedModel != "" {
			return e.ServedModel
		}
	}
	if p.Service != nil {
		return p.Service.Base
	}
	if name := filepath.Base(p.Cfg.Model.Path); name != "." && name != string(filepath.Separator) {
		return name
	}
	return p.Cfg.EnvironmentName()
}

// templates render chats by the engines that can, or by the server that the document names.
func (p *Plane) templates() (*upstream.Templates, error) {
	if p.Cfg.Gateway.Template == "" {
		return upstream.NewTemplates(upstream.TemplatesOptions{Engines: p.Upstreams, Away: p.AwayOf})
	}
	e := config.Engine{Kind: "vllm", Name: "gateway.template", URL: p.Cfg.Gateway.Template, Slots: 1}
	server, err := parts.ServerOf(e)
	if err != nil {
		return nil, fmt.Errorf("gateway.template: %w", err)
	}
	dialect, err := parts.DialectOf(e, p.logf)
	if err != nil {
		return nil, fmt.Errorf("gateway.template: %w", err)
	}
	p.renderer, err = upstream.New(upstream.Options{Name: e.Name, Slots: e.Slots, Server: server, Dialect: dialect, Vocabulary: p.Vocabulary(), Logf: p.logf})
	if err != nil {
		return nil, err
	}
	p.OnClose(p.renderer.Close)
	return upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{p.renderer}})
}
